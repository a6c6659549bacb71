"""The consent page: whose tools a client asks for, what its person allows, and why it may be refused.

The authorization endpoint and the page for devices share it.
"""

from functools import cached_property
from typing import Any, Final, NamedTuple

from csp.decorators import csp_update
from django import forms
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.catalog.offers import Offer, offers_of
from tools_app.catalog.toolsets import Resolver
from tools_app.core.sanitize import is_storable
from tools_app.core.validators import ITEM_KINDS, MAX_EXACT
from tools_app.identity.oauth import attempts, clients, connections, policies, redirects, resources, scopes
from tools_app.identity.oauth.connections import DEFAULT_LIFETIME, LIFETIMES
from tools_app.identity.patterns import PermittedNames, exactly
from tools_app.models import ClientDecision, Connection, Membership, OAuthClient, Role, SignInStep, Tenant, Toolset
from tools_app.tenants import permissions
from tools_app.web.admin.site import site

MAX_ADMINS: Final = 3
MAX_TENANTS: Final = 100
# Further offers of a group are chosen all together.
MAX_SHOWN: Final = 500
# Toolsets with a button of their own, the first ones by name.
MAX_TOOLSET_BUTTONS: Final = 20
TENANT_PARAMETER: Final = "tenant"


class AuthorizationRequest(NamedTuple):
    """What a client asks for, checked. `scope` is as the client wrote it until the tenant is known.

    `state` and `challenge` are of a client in a browser, and `user_code` is of a device.
    """

    client: OAuthClient
    redirect_uri: str
    scope: str
    resource: resources.Resource
    state: str = ""
    challenge: str = ""
    user_code: str = ""


def with_granted_scope(tenant: Tenant, auth_request: AuthorizationRequest) -> AuthorizationRequest:
    """Return what is asked for with the scopes that the tenant knows."""
    return auth_request._replace(scope=scopes.granted(tenant, auth_request.scope))


# --- Whose tools -------------------------------------------------------------------------------------------------


def tenant_of(
    request: HttpRequest, person: User, auth_request: AuthorizationRequest, chosen: str
) -> Tenant | list[Tenant] | HttpResponse:
    """Return the tenant to connect to, those to choose from, or a page that says why there is none."""
    tenants = permissions.tenants_seen_by(person).filter(is_active=True).order_by("name")
    slug = auth_request.resource.slug or (chosen if is_storable(chosen) else "")
    if slug:
        return tenants.filter(slug=slug).first() or _no_membership_page(request, person, slug, auth_request)
    offered = list(tenants[:MAX_TENANTS])
    if not offered:
        return _no_membership_page(request, person, "any tenant", auth_request)
    return offered if len(offered) > 1 else offered[0]


def _no_membership_page(
    request: HttpRequest, person: User, tenant_name: str, auth_request: AuthorizationRequest
) -> HttpResponse:
    text = (
        f"You are signed in as {person.get_username()}, who is no member of {tenant_name}. Ask an admin to invite you."
    )
    return refusal_page(request, "No access", text, auth_request=auth_request, log_out=True)


# --- What the person chooses --------------------------------------------------------------------------------------


class Checkbox(NamedTuple):
    """An offer that can be chosen. `toolsets`: numbers of the toolset buttons that check it, for the page's script."""

    offer: Offer
    is_checked: bool
    toolsets: str


class CheckboxGroup(NamedTuple):
    """The checkboxes of one kind. `preset` is the button that checks them beside "All"."""

    legend: str
    kind: str
    preset: str
    checkboxes: list[Checkbox]


class ConsentForm(forms.Form):
    """What the person chose. An offer that is not checked is not allowed."""

    days = forms.ChoiceField(
        label="Ask again after",
        choices=[(str(days), f"{days} days") for days in LIFETIMES],
        initial=str(DEFAULT_LIFETIME),
        required=False,
    )
    later = forms.BooleanField(label="Everything, including what is added later", required=False)

    def __init__(self, tenant: Tenant, data: QueryDict | None = None, **options: Any) -> None:
        super().__init__(data, **options)
        self._tenant = tenant
        self.offers = offers_of(tenant)
        self.chosen = {kind: set(data.getlist(kind)) if data is not None else None for kind in ITEM_KINDS}

    def clean(self) -> dict[str, Any]:
        """Reject a choice of nothing, or of too much to store. Raises ValidationError."""
        names = self.names()
        if not self.cleaned_data.get("later") and not names:
            raise forms.ValidationError("Choose at least one tool, prompt or resource.")
        if len(names) > MAX_EXACT:
            raise forms.ValidationError(f"Choose at most {MAX_EXACT}, or everything, including what is added later.")
        return self.cleaned_data

    @property
    def lifetime(self) -> int:
        """The chosen number of days."""
        return int(self.cleaned_data["days"] or DEFAULT_LIFETIME)

    def names(self) -> list[str]:
        """Return entries for exactly what was chosen; empty for everything."""
        if self.cleaned_data.get("later"):
            return []
        # What the tenant does not offer is ignored: it may have gone since the page was opened.
        chosen = [offer for offer in self.offers if offer.name in (self.chosen[offer.kind] or ())]
        return sorted(exactly(offer.kind, offer.name) for offer in chosen)

    def groups(self) -> list[CheckboxGroup]:
        """Return the checkboxes, at most MAX_SHOWN of a group."""
        return [
            self._group("Tools that only read", "tool", "reading", read_only=True),
            self._group("Tools that can change something", "tool", "changing", read_only=False),
            self._group("Prompts", "prompt", "reading", read_only=True),
            self._group("Resources", "resource", "reading", read_only=True),
        ]

    @cached_property
    def toolsets(self) -> list[tuple[str, frozenset[str]]]:
        """Toolsets of the tenant by name, with the offered tools that belong to them: a button checks these."""
        resolver = Resolver(offer.name for offer in self.offers if offer.kind == "tool")
        rows = Toolset.objects.filter(tenant=self._tenant).order_by("name")[:MAX_TOOLSET_BUTTONS]
        resolved = [(row.name, resolver.resolve(row.tools).names) for row in rows]
        return [(name, tools) for name, tools in resolved if tools]

    @property
    def unlisted_count(self) -> int:
        """The number of offers without a checkbox of their own."""
        return len(self.offers) - sum(len(group.checkboxes) for group in self.groups())

    def _group(self, legend: str, kind: str, preset: str, *, read_only: bool) -> CheckboxGroup:
        offers = [offer for offer in self.offers if offer.kind == kind and offer.read_only == read_only]
        return CheckboxGroup(legend, kind, preset, [self._checkbox(offer) for offer in offers[:MAX_SHOWN]])

    def _checkbox(self, offer: Offer) -> Checkbox:
        """Return a checkbox, checked as it was sent, else as allowed before, else always."""
        toolsets = enumerate(self.toolsets) if offer.kind == "tool" else ()
        numbers = " ".join(str(number) for number, (_, tools) in toolsets if offer.name in tools)
        chosen, allowed = self.chosen[offer.kind], self.initial.get("names")
        if chosen is not None:
            return Checkbox(offer, offer.name in chosen, numbers)
        return Checkbox(offer, not allowed or allowed.have(offer.kind, offer.name), numbers)


# --- Consent -----------------------------------------------------------------------------------------------------


def allow(
    request: HttpRequest, person: User, tenant: Tenant, auth_request: AuthorizationRequest, existing: Connection | None
) -> Connection | HttpResponse:
    """Return the connection that the person allows with the form, or the page again with what is wrong with it."""
    form = ConsentForm(tenant, request.POST)
    if not form.is_valid():
        return page(request, person, tenant, auth_request, existing, form=form)
    with change_log_transaction():
        connection = connections.allow(
            tenant,
            person,
            auth_request.client,
            names=form.names(),
            scope=auth_request.scope,
            redirect_uri=auth_request.redirect_uri,
            days=form.lifetime,
        )
        attempts.record(request, SignInStep.ALLOWED, connection=connection)
    return connection


def page(
    request: HttpRequest,
    person: User,
    tenant: Tenant,
    auth_request: AuthorizationRequest,
    existing: Connection | None,
    *,
    form: ConsentForm | None = None,
) -> HttpResponse:
    """Return the page on which the person allows or refuses what a client asks for."""
    if form is None:
        names = existing.key.tool_patterns if existing is not None else []
        # What the person allowed before.
        before = {"names": PermittedNames(names) if names else None, "later": not names} if existing is not None else {}
        form = ConsentForm(tenant, initial=before)
    host = clients.host_of(auth_request.client)
    context = {
        "title": f"Connect {auth_request.client.name}",
        "client": auth_request.client,
        "host": host,
        "destination": redirects.destination_of(auth_request.redirect_uri),
        "is_loopback": redirects.is_loopback(auth_request.redirect_uri),
        "is_other_host": bool(host) and redirects.destination_of(auth_request.redirect_uri) != host,
        "user_code": auth_request.user_code,
        "tenant": tenant,
        "person": person,
        "scopes": scopes.meanings(tenant, auth_request.scope),
        "form": form,
    }
    response = TemplateResponse(
        request, "identity/authorization/consent.html", {**site.each_context(request), **context}
    )
    if not auth_request.user_code:
        # Browsers apply the policy to the redirect that answers the form, too.
        with_redirect_source = csp_update({"form-action": [redirects.source_of(auth_request.redirect_uri)]})
        with_redirect_source(lambda _request: response)(request)
    return response


def record_consent_request(request: HttpRequest, tenant: Tenant, auth_request: AuthorizationRequest) -> None:
    """Record that the person is asked, and note it for the client."""
    clients.note_asked(auth_request.client)
    host = policies.host_of(auth_request.client, auth_request.redirect_uri)
    attempts.record(request, SignInStep.ASKED, client=auth_request.client, tenant=tenant, host=host)


# --- Refusals ----------------------------------------------------------------------------------------------------


def policy_refusal(request: HttpRequest, tenant: Tenant, auth_request: AuthorizationRequest) -> HttpResponse | None:
    """Return a page that says whom to ask if the tenant does not allow the client. An admin sees it in the sign-ins."""
    decision = policies.decision_on(tenant, auth_request.client, auth_request.redirect_uri)
    if decision is ClientDecision.ALLOW:
        return None
    suffix = " yet" if decision is ClientDecision.ASK else ""
    rows = Membership.objects.filter(tenant=tenant, role=Role.ADMIN, user__is_active=True).order_by("created_at")
    admins = ", ".join(rows.values_list("user__username", flat=True)[:MAX_ADMINS]) or "none is known"
    text = f"{tenant.name} does not allow {auth_request.client.name}{suffix}. Ask one of its admins: {admins}."
    host = policies.host_of(auth_request.client, auth_request.redirect_uri)
    reason = f"The policy for {host} says: {decision.label}."
    attempts.record(request, SignInStep.REJECTED, reason, client=auth_request.client, tenant=tenant, host=host)
    return message_page(request, "Not allowed", text, status=403)


def refusal_page(
    request: HttpRequest,
    title: str,
    text: str,
    *,
    auth_request: AuthorizationRequest | None = None,
    log_out: bool = False,
) -> HttpResponse:
    """Say on a page what the person can do, and record it."""
    client = auth_request.client if auth_request else None
    attempts.record(request, SignInStep.REJECTED, text, client=client, client_id=request.GET.get("client_id", ""))
    return message_page(request, title, text, status=403 if auth_request else 400, log_out=log_out)


def message_page(
    request: HttpRequest, title: str, text: str, *, status: int = 200, log_out: bool = False
) -> HttpResponse:
    """Return a page with one message."""
    context = {**site.each_context(request), "title": title, "text": text, "log_out": log_out}
    return TemplateResponse(request, "identity/authorization/message.html", context, status=status)
