"""A person's page of credentials for upstream servers: entered, signed in for, and removed; and the way back from a
sign-in.

Everybody has their own, and those of their own keys. Admins have their tenant's, and those of all its keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from tools_app.core.urls import netloc_of
from tools_app.identity.authorization.metadata import allow_any_origin
from tools_app.models import ApiKey, CredentialKind, CredentialOwner, Upstream, UpstreamCredential
from tools_app.tenants import permissions
from tools_app.upstreams.credentials import sign_in, store
from tools_app.upstreams.credentials.discovery import SignInFailed
from tools_app.upstreams.credentials.store import InvalidCredential, Owner
from tools_app.web.admin.site import site

MAX_SHOWN: Final = 100
MAX_KEYS: Final = 20
MAX_PARAMETER: Final = 4096
PARAMETERS: Final = ("code", "state", "iss", "error")


@dataclass(frozen=True)
class CredentialEntry:
    """One credential on the page, which may be missing yet."""

    upstream: Upstream
    owner: Owner
    owner_name: str
    row: UpstreamCredential | None

    @property
    def value(self) -> str:
        """What the form sends for it."""
        return f"{self.upstream.pk}/{self.owner}"

    @property
    def is_sign_in(self) -> bool:
        """Whether it comes from a sign-in, and not from a form."""
        return self.upstream.credential == CredentialKind.OAUTH

    @property
    def is_for_other_origin(self) -> bool:
        """Whether it was for another server, to which the upstream led before."""
        return self.row is not None and self.row.origin != store.origin_of(self.upstream.url)


@never_cache
@login_required
@require_http_methods(["GET", "POST"])
def page(request: HttpRequest, upstream_id: UUID | None = None) -> HttpResponse:
    """Show the credentials that a person has or can have, or change one of them."""
    assert isinstance(request.user, User)
    upstreams = _seen_by(request.user)
    if upstream_id is not None:
        upstreams = upstreams.filter(pk=upstream_id)
    entries = [
        CredentialEntry(upstream, owner, owner_name, store.of_owner(upstream.pk, owner).first())
        for upstream in upstreams[:MAX_SHOWN]
        for owner, owner_name in _owners(request.user, upstream, request.GET.get("key", ""))
    ]
    if upstream_id is not None and not entries:
        raise Http404("There is no such upstream, or it needs no credential of yours.")
    if request.method == "POST":
        chosen = next((entry for entry in entries if entry.value == request.POST.get("entry")), None)
        if chosen is None:
            raise Http404("Credential not found.")
        return _change(request, chosen)
    context = {"title": "Credentials for upstream servers", "entries": entries}
    return TemplateResponse(request, "identity/authorization/upstreams.html", {**site.each_context(request), **context})


@never_cache
@login_required
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    """Complete a sign-in with the answer of an authorization server."""
    assert isinstance(request.user, User)
    # A repeated parameter could be read in two ways.
    answer = {name: request.GET[name][:MAX_PARAMETER] for name in PARAMETERS if len(request.GET.getlist(name)) == 1}
    try:
        if any(len(request.GET.getlist(name)) > 1 for name in PARAMETERS):
            raise SignInFailed("The answer has a parameter twice.")
        pending = sign_in.pop_pending(request.session, answer.get("state", ""))
        key_id, person_id = pending["owner"]
        owner = Owner(UUID(key_id) if key_id else None, person_id)
        upstream = _seen_by(request.user).filter(pk=pending["upstream"]).first()
        owners = _owners(request.user, upstream, key_id or "") if upstream is not None else ()
        if upstream is None or owner not in [each for each, _ in owners]:
            raise SignInFailed("You may not sign in for this upstream.")
        sign_in.finish(upstream, owner, pending, answer)
    except SignInFailed as error:
        context = {**site.each_context(request), "title": "Not signed in", "text": str(error)}
        return TemplateResponse(request, "identity/authorization/message.html", context, status=400)
    messages.success(request, f"Signed in for {upstream}.")
    return HttpResponseRedirect(store.credential_url(upstream.pk, owner, _origin(request)))


@allow_any_origin("GET", "HEAD")
def client_document(request: HttpRequest) -> HttpResponse:
    """Return the hub's metadata as a client of the authorization servers of upstreams."""
    return JsonResponse(
        sign_in.client_document(_origin(request)), headers={"Cache-Control": "public, max-age=3600", "Vary": "Host"}
    )


def has_any(person: User) -> bool:
    """Whether there is an upstream that needs a credential in the tenants of a person."""
    return _seen_by(person).exists()


def _seen_by(person: User) -> "QuerySet[Upstream]":
    rows = permissions.rows_seen_by(person, Upstream.objects.exclude(credential=""))
    return rows.filter(enabled=True, tenant__is_active=True).select_related("tenant").order_by("tenant__name", "name")


def _change(request: HttpRequest, entry: CredentialEntry) -> HttpResponse:
    """Store, remove or sign in for a credential. The person may have it."""
    if "remove" in request.POST:
        if entry.row is not None:
            store.delete(entry.row)
            messages.success(request, f"The credential for {entry.upstream} was removed.")
    elif entry.is_sign_in:
        try:
            url = sign_in.begin(entry.upstream, entry.owner, request.session, _origin(request))
        except SignInFailed as error:
            messages.error(request, str(error))
        else:
            # A link, because the policy forbids forms that lead elsewhere.
            context = {"title": f"Sign in for {entry.upstream}", "url": url, "upstream": entry.upstream}
            context |= {"host": netloc_of(url), **site.each_context(request)}
            return TemplateResponse(request, "upstreams/redirect.html", context)
    else:
        try:
            store.save_value(entry.upstream, entry.owner, request.POST.get("value", ""))
        except InvalidCredential as error:
            messages.error(request, str(error))
        else:
            messages.success(request, f"The credential for {entry.upstream} was saved.")
    return HttpResponseRedirect(request.get_full_path())


def _owners(person: User, upstream: Upstream, key: str) -> Iterator[tuple[Owner, str]]:
    """Yield whose credentials for an upstream a person may enter."""
    if permissions.may_change(person, upstream.tenant) and not key:
        yield store.TENANT, upstream.tenant.name
    if upstream.credential_owner == CredentialOwner.PERSON:
        yield Owner(person_id=person.pk), person.get_username()
    elif upstream.credential_owner == CredentialOwner.KEY:
        for row in _keys(person, upstream, key):
            yield Owner(key_id=row.pk), f"key {row.name}"


def _keys(person: User, upstream: Upstream, key: str) -> "QuerySet[ApiKey]":
    """Return a person's own keys of the upstream's tenant; with `key`, that one, which for an admin may be
    any that belongs to no other person's connection.
    """
    rows = ApiKey.objects.filter(tenant=upstream.tenant_id, revoked_at=None).order_by("-created_at")
    belongs_to_person = Q(created_by=person, connection=None) | Q(connection__person=person)
    try:
        key_id = UUID(key) if key else None
    except ValueError:
        return rows.none()
    if key_id is None:
        return rows.filter(belongs_to_person)[:MAX_KEYS]
    rows = rows.filter(pk=key_id)
    is_admin = permissions.may_change(person, upstream.tenant)
    return rows.filter(belongs_to_person | Q(connection=None)) if is_admin else rows.filter(belongs_to_person)


def _origin(request: HttpRequest) -> str:
    return f"{request.scheme}://{request.get_host()}"
