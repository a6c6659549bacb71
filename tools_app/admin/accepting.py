"""The public page of an invitation's link: whoever opens it makes an account, or logs in, and is a member.

Outside of the admin's login, for most who come here cannot log in yet. Opening the page changes nothing: programs
that look at links in e-mails open them too.
"""

from typing import Any, Final

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

from tools_app.admin.login_form import CountedLoginForm
from tools_app.admin.site import site
from tools_app.audit import changes, invitation_changes
from tools_app.audit.changes import Actor
from tools_app.auth import invitations, limits
from tools_app.auth.allowance import Places
from tools_app.auth.invitations import State
from tools_app.auth.proxies import address_of, counted_as
from tools_app.models import Invitation, Via
from tools_app.models.ids import new_id

# Requests of one address in any such time: people need a few, and nobody else should be here.
MOST_TRIES: Final = 30
TRIES_SECONDS: Final = 60.0

ANEW = "Ask whoever invited you for a new link."
ENDED: Final = {
    State.ACCEPTED: ("This link was used already", "It works once. If it was you, just log in."),
    State.REVOKED: ("This invitation was taken back", ANEW),
    State.EXPIRED: ("This link has expired", ANEW),
    State.VOID: ("This invitation counts no more", "Whoever sent it does not run the tenant any more: ask who does."),
}
UNKNOWN = ("This link leads nowhere", f"Look whether it was copied whole. {ANEW}")
TOO_OFTEN = ("Too many tries", "Wait a minute, and open the link again.")


class NewPersonForm(BaseUserCreationForm):  # type: ignore[type-arg]
    """A user name and a password for somebody who has no account; the e-mail is the one that was invited."""

    class Meta:
        model = User
        fields = ("username",)
        widgets = {"username": UnfoldAdminTextInputWidget}

    def __init__(self, row: Invitation, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Before the password is checked, which must not be like it.
        self.instance.email = row.email
        for name in ("password1", "password2"):
            self.fields[name].widget = UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"})

    def clean_username(self) -> str:
        """The name, which nobody else has in other letters. Raises ValidationError."""
        username: str = self.cleaned_data["username"]
        if User.objects.filter(username__iexact=username).exists():
            raise ValidationError("Somebody has this name already.")
        return username


class KnownPersonForm(CountedLoginForm):
    """The login of somebody who has an account; being a member of a tenant is not asked for yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].widget = UnfoldAdminTextInputWidget(attrs={"autocomplete": "username"})
        self.fields["password"].widget = UnfoldAdminPasswordWidget(attrs={"autocomplete": "current-password"})


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def page(request: HttpRequest, token: str) -> HttpResponse:
    """The page of a link."""
    if _too_often(request):
        return _said(request, *TOO_OFTEN, status=429)
    row = invitations.find(token)
    if row is None:
        return _said(request, *UNKNOWN, status=404)
    state = invitations.state_of(row)
    if state is not State.OPEN:
        return _said(request, *ENDED[state], status=410)
    if isinstance(request.user, User):
        return _known(request, row, request.user)
    return _unknown(request, row)


def _known(request: HttpRequest, row: Invitation, person: User) -> HttpResponse:
    """For somebody who is logged in."""
    if not invitations.is_for(row, person):
        return _another(request, row, person)
    if request.method == "POST":
        return _joined(request, row, person)
    return _asked(request, row, None, person=person)


def _unknown(request: HttpRequest, row: Invitation) -> HttpResponse:
    """For somebody who is not: with an account of that e-mail, or without one yet."""
    data = request.POST if request.method == "POST" else None
    if invitations.account_for(row) is not None:
        entering = KnownPersonForm(request, data)
        if not entering.is_valid():
            return _asked(request, row, entering, has_account=True)
        person = entering.get_user()
        if not invitations.is_for(row, person):
            return _another(request, row, person)
        return _joined(request, row, person)
    coming = NewPersonForm(row, data)
    if not coming.is_valid():
        return _asked(request, row, coming)
    return _made(request, row, coming)


def _made(request: HttpRequest, row: Invitation, form: NewPersonForm) -> HttpResponse:
    """Make the account and the member, or neither."""
    with transaction.atomic(), changes.acting(Actor(None, Via.ADMIN, address_of(request), row.email)):
        person: User = form.save()
        if _accepted(request, row, person):
            return _welcome(request, row, person)
        transaction.set_rollback(True)
    return _taken(request, row)


def _joined(request: HttpRequest, row: Invitation, person: User) -> HttpResponse:
    return _welcome(request, row, person) if _accepted(request, row, person) else _taken(request, row)


def _accepted(request: HttpRequest, row: Invitation, person: User) -> bool:
    with changes.acting(Actor(person, Via.ADMIN, address_of(request))):
        return invitation_changes.accept(row, person)


def _welcome(request: HttpRequest, row: Invitation, person: User) -> HttpResponse:
    if request.user != person:
        login(request, person, settings.AUTHENTICATION_BACKENDS[0])
    messages.success(request, f"Welcome to {row.tenant}.")
    return HttpResponseRedirect(reverse("admin:index"))


def _taken(request: HttpRequest, row: Invitation) -> HttpResponse:
    """Somebody else was quicker, or it was revoked just now."""
    row.refresh_from_db()
    state = invitations.state_of(row)
    return _said(request, *ENDED.get(state, UNKNOWN), status=410)


def _another(request: HttpRequest, row: Invitation, person: User) -> HttpResponse:
    text = (
        f"It is for {row.email}, and the account {person.get_username()} has another e-mail. Log out and open the link"
        " again, or ask for an invitation to the e-mail of your account."
    )
    return _said(request, "This invitation is for somebody else", text, status=403, log_out=request.user == person)


def _asked(request: HttpRequest, row: Invitation, form: Any, **more: Any) -> TemplateResponse:
    context = {"title": f"Join {row.tenant}", "invitation": row, "form": form, **more}
    return TemplateResponse(request, "invitation/accept.html", {**site.each_context(request), **context})


def _said(request: HttpRequest, title: str, text: str, *, status: int, log_out: bool = False) -> TemplateResponse:
    context = {**site.each_context(request), "title": title, "text": text, "log_out": log_out}
    return TemplateResponse(request, "invitation/said.html", context, status=status)


def _too_often(request: HttpRequest) -> bool:
    """Whether this address was here too often. A try holds a place for a while, wherever the next one comes in."""
    places = [Places("address", "tries", MOST_TRIES, f"invitations:{counted_as(address_of(request))}")]
    return limits.hold_here(places, str(new_id()), TRIES_SECONDS) is not None
