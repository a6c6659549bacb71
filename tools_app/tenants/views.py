"""The public page of an invitation link: create an account or log in, and become a member.

The page is outside the admin's login, since most invited people cannot log in yet. A GET changes nothing, because link
scanners open links in e-mails. The page is the same whether or not the invited address has an account: the person who
created the invitation has its link and must not learn that.
"""

from typing import Any, Final

from allauth.mfa.utils import is_mfa_enabled
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.forms import BaseUserCreationForm
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminTextInputWidget

from tools_app.audit.changes import changes
from tools_app.audit.changes.changes import Actor
from tools_app.core.ids import new_id
from tools_app.identity.principal import client_ip_of, rate_limit_key
from tools_app.models import Invitation, Via
from tools_app.tenants import invitations
from tools_app.tenants.invitations import State
from tools_app.tenants.limits import limits
from tools_app.tenants.limits.quotas import ConcurrencyLimit
from tools_app.web.admin.login import CountedLoginForm, enter
from tools_app.web.admin.site import site
from tools_app.web.middleware import ORIGIN_ONLY

# Account names tried per tenant and hour: each attempt reveals whether a name is taken.
MAX_NAMES: Final = 60
NAMES_SECONDS: Final = 3600.0
NAMES_TRIED: Final = "Too many usernames were tried with invitation links of this tenant. Try again in an hour."
HAS_ACCOUNT: Final = "An account with this e-mail address already exists. Log in below."
NOT_CONFIRMED: Final = "Confirm that the invitation is for you."
# Requests per client address in TRIES_SECONDS: legitimate use needs a few.
MAX_TRIES: Final = 30
TRIES_SECONDS: Final = 60.0
LOGIN_PREFIX: Final = "login"

ASK_FOR_LINK = "Ask the person who invited you for a new link."
ENDED: Final = {
    State.ACCEPTED: ("This link has already been used", "A link works once. If you used it, log in."),
    State.REVOKED: ("This invitation was revoked", ASK_FOR_LINK),
    State.EXPIRED: ("This link has expired", ASK_FOR_LINK),
    State.VOID: (
        "This invitation is no longer valid",
        "The person who sent it is no longer an admin of the tenant. Ask another admin for a new one.",
    ),
}
UNKNOWN = ("Invalid link", f"Check that the whole link was copied. {ASK_FOR_LINK}")
ANOTHERS_ACCOUNT = (
    "Use another account",
    "You are logged in with the account of another company's sign-in. Log out, then open the link again.",
)
TOO_OFTEN = ("Too many attempts", "Wait a minute, then open the link again.")


class NewPersonForm(BaseUserCreationForm):  # type: ignore[type-arg]
    """A username and password for a person without an account.

    The account gets the invited e-mail address if the link proves its ownership, else none.
    """

    class Meta:
        model = User
        fields = ("username",)
        widgets = {"username": UnfoldAdminTextInputWidget}

    def __init__(self, row: Invitation, *args: Any, proven: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._row, self._proven = row, proven
        # Set before the password is validated, since they must not be similar.
        self.instance.email = row.email if proven else ""
        for name in ("password1", "password2"):
            self.fields[name].widget = UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"})

    def clean_username(self) -> str:
        """Return the username, unique regardless of case. Raises ValidationError."""
        username: str = self.cleaned_data["username"]
        places = [ConcurrencyLimit("tenant", "names", MAX_NAMES, f"invitations:names:{self._row.tenant_id}")]
        if limits.acquire_blocking(places, str(new_id()), NAMES_SECONDS) is not None:
            raise ValidationError(NAMES_TRIED)
        if User.objects.filter(username__iexact=username).exists():
            raise ValidationError("This username is already taken.")
        return username

    def clean(self) -> dict[str, Any] | None:
        """Reject a second account for a proven address. Raises ValidationError."""
        if self._proven and invitations.has_account(self._row):
            raise ValidationError(HAS_ACCOUNT)
        return super().clean()


class KnownPersonForm(CountedLoginForm):
    """The login of a person with an account; membership of a tenant is not required yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].widget = UnfoldAdminTextInputWidget(attrs={"autocomplete": "username"})
        self.fields["password"].widget = UnfoldAdminPasswordWidget(attrs={"autocomplete": "current-password"})


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def page(request: HttpRequest, token: str) -> HttpResponse:
    """Show the page of a link. Its requests never send the URL as referrer, since it contains the secret."""
    answer = _answer(request, token)
    answer.headers["Referrer-Policy"] = ORIGIN_ONLY
    return answer


def _answer(request: HttpRequest, token: str) -> HttpResponse:
    # Attempts are counted across processes.
    tries = f"invitations:{rate_limit_key(client_ip_of(request))}"
    places = [ConcurrencyLimit("address", "tries", MAX_TRIES, tries)]
    if limits.acquire_blocking(places, str(new_id()), TRIES_SECONDS) is not None:
        return _message_page(request, *TOO_OFTEN, status=429)
    row = invitations.find(token)
    if row is None:
        return _message_page(request, *UNKNOWN, status=404)
    state = invitations.state_of(row)
    if state is not State.OPEN:
        return _message_page(request, *ENDED[state], status=410)
    proven = invitations.proves_address(row, token)
    if isinstance(request.user, User):
        return _known(request, row, request.user, proven=proven)
    if request.method == "POST" and f"{LOGIN_PREFIX}-username" in request.POST:
        return _entering(request, row, proven=proven)
    return _create_account(request, row, proven=proven)


def _known(request: HttpRequest, row: Invitation, person: User, *, proven: bool) -> HttpResponse:
    """Accept the invitation as the logged-in user. A user with another e-mail address has to confirm."""
    if invitations.belongs_elsewhere(row, person):
        return _message_page(request, *ANOTHERS_ACCOUNT, status=403)
    is_theirs = invitations.is_for(row, person)
    confirmed = "confirm" in request.POST
    if request.method == "POST" and (is_theirs or confirmed):
        return _joined(request, row, person, confirmed=confirmed)
    problem = NOT_CONFIRMED if request.method == "POST" else ""
    return _accept_page(request, row, proven=proven, person=person, is_another=not is_theirs, problem=problem)


def _entering(request: HttpRequest, row: Invitation, *, proven: bool) -> HttpResponse:
    """Log in on the page: accept with the invited e-mail address, else ask for confirmation."""
    entering = _login_form(request, request.POST)
    if not entering.is_valid():
        return _accept_page(request, row, proven=proven, form=NewPersonForm(row, proven=proven), login_form=entering)
    person = entering.get_user()
    if invitations.is_for(row, person) and not is_mfa_enabled(person):
        return _joined(request, row, person)
    # With a second factor, the person comes back here once it is proven.
    return enter(request, person, request.path)


def _login_form(request: HttpRequest, data: Any = None) -> KnownPersonForm:
    return KnownPersonForm(request, data, prefix=LOGIN_PREFIX)


def _create_account(request: HttpRequest, row: Invitation, *, proven: bool) -> HttpResponse:
    """Show the page, or create the account and the membership, atomically."""
    form = NewPersonForm(row, request.POST if request.method == "POST" else None, proven=proven)
    if not form.is_valid():
        return _accept_page(request, row, proven=proven, form=form, login_form=_login_form(request))
    with (
        transaction.atomic(),
        changes.recording_as(Actor(None, Via.ADMIN, client_ip_of(request), f"invited as {row.email}")),
    ):
        person: User = form.save()
        if _accepted(request, row, person, confirmed=True):
            return _welcome(request, row, person)
        transaction.set_rollback(True)
    return _taken(request, row)


def _joined(request: HttpRequest, row: Invitation, person: User, *, confirmed: bool = False) -> HttpResponse:
    accepted = _accepted(request, row, person, confirmed=confirmed)
    return _welcome(request, row, person) if accepted else _taken(request, row)


def _accepted(request: HttpRequest, row: Invitation, person: User, *, confirmed: bool) -> bool:
    with changes.recording_as(Actor(person, Via.ADMIN, client_ip_of(request))):
        return invitations.accept(row, person, confirmed=confirmed)


def _welcome(request: HttpRequest, row: Invitation, person: User) -> HttpResponse:
    if request.user != person:
        login(request, person, settings.AUTHENTICATION_BACKENDS[0])
        request.session.set_expiry(None)
    messages.success(request, f"Welcome to {row.tenant}.")
    return HttpResponseRedirect(reverse("admin:index"))


def _taken(request: HttpRequest, row: Invitation) -> HttpResponse:
    """Respond that the invitation was accepted or revoked in the meantime."""
    row.refresh_from_db()
    state = invitations.state_of(row)
    return _message_page(request, *ENDED.get(state, UNKNOWN), status=410)


def _accept_page(request: HttpRequest, row: Invitation, *, proven: bool, **more: Any) -> TemplateResponse:
    address = row.email if proven else invitations.masked_address(row)
    context = {"title": f"Join {row.tenant}", "invitation": row, "address": address, "proven": proven, **more}
    return TemplateResponse(request, "tenants/invitation/accept.html", {**site.each_context(request), **context})


def _message_page(request: HttpRequest, title: str, text: str, *, status: int) -> TemplateResponse:
    context = {**site.each_context(request), "title": title, "text": text}
    return TemplateResponse(request, "tenants/invitation/message.html", context, status=status)
