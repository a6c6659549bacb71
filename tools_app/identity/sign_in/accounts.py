"""Local accounts with a second factor: django-allauth, adapted to the hub.

allauth checks factors and manages authenticator apps, security keys and recovery codes. People log in on the admin's
login page, sign-up is closed, and what proves a factor is encrypted at rest.
"""

import base64
from datetime import timedelta
from typing import Any, Final

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.core.internal.cryptokit import normalize_user_code
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.forms import AuthenticateForm, BaseAuthenticateForm, ReauthenticateForm
from allauth.mfa.models import Authenticator
from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models.signals import post_delete, post_save
from django.http import HttpRequest
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.core import encryption
from tools_app.identity import logins, single_use
from tools_app.identity.principal import client_ip_of
from tools_app.models import Action
from tools_app.tenants.permissions import TenantPermissions

MAX_CODE: Final = 32
# A code of an app is valid for three steps of 30 seconds.
CODE_LIFETIME: Final = timedelta(minutes=2)
# Wrong codes of a person, from all addresses together, in a number of seconds: who guesses on waits longer. Whoever is
# asked for a code has the password already.
MAX_WRONG_CODES: Final = ((5, 300.0), (10, 3600.0), (20, 86_400.0))
PURPOSE: Final = "second factor"
FACTOR_NAMES: Final = {"totp": "authenticator app", "webauthn": "security key", "recovery_codes": "recovery codes"}


class AccountAdapter(DefaultAccountAdapter):
    """Accounts are made by admins, invitations and issuers, and pages say what happened themselves."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:  # noqa: ARG002 - allauth's signature
        """Whether strangers may make an account."""
        return False

    def add_message(self, *args: Any, **options: Any) -> None:
        """Say nothing: "You have signed in" is no news."""

    def get_client_ip(self, request: HttpRequest) -> str:
        """Return the address behind trusted proxies."""
        return client_ip_of(request)


class FactorAdapter(DefaultMFAAdapter):
    """Second factors: sealed, and kept while a tenant requires one."""

    def encrypt(self, text: str) -> str:
        """Seal what proves a factor."""
        return base64.b64encode(encryption.seal(text.encode(), PURPOSE)).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """Return what `encrypt` was given. Raises DecryptionError."""
        return encryption.unseal(base64.b64decode(encrypted_text), PURPOSE).decode()

    def get_totp_issuer(self) -> str:
        """Return the name that an authenticator app shows."""
        return "mcphub"

    def get_totp_label(self, user: User) -> str:
        """Return the account that an authenticator app shows."""
        return f"{user.get_username()} ({context.request.get_host()})"

    def can_delete_authenticator(self, authenticator: Authenticator) -> bool:
        """Whether another factor is left, or none is required."""
        kinds = [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]
        others = Authenticator.objects.filter(user=authenticator.user, type__in=kinds).exclude(pk=authenticator.pk)
        return others.exists() or not TenantPermissions(authenticator.user).requiring_second_factor


class CodeForm(BaseAuthenticateForm):
    """A code that counts once. Wrong ones are counted as wrong passwords are, with limits of their own for a person."""

    code = forms.CharField(
        label="Code", max_length=MAX_CODE, widget=forms.TextInput(attrs={"autocomplete": "one-time-code"})
    )

    def clean_code(self) -> str:
        """Check the code. Raises ValidationError."""
        try:
            with logins.attempt(f"second factor of {self.user.pk}", client_ip_of(context.request), MAX_WRONG_CODES):
                code: str = super().clean_code()
                # As allauth compares codes: written with spaces or dashes, it is the same code.
                if not single_use.use(self.user, [normalize_user_code(code)], timezone.now() + CODE_LIFETIME):
                    raise ValidationError("This code was used. Wait for the next one.", code="used")
        except logins.TooManyAttempts:
            message = "Too many wrong codes. Wait five minutes, or after many of them up to a day."
            raise ValidationError(message, code="too_often") from None
        return code


class LoginCodeForm(CodeForm, AuthenticateForm):
    """A code at login."""


class ReauthenticationCodeForm(CodeForm, ReauthenticateForm):
    """A code before factors are changed."""


def connect_signals() -> None:
    """Record the changes of people's factors."""
    post_save.connect(_record, sender=Authenticator, dispatch_uid="factor added")
    post_delete.connect(_record, sender=Authenticator, dispatch_uid="factor removed")


def _record(instance: Authenticator, created: bool | None = None, **_options: Any) -> None:
    """Record that a factor was added, or removed: then nothing says whether it was created."""
    if created is not False:
        kind = FACTOR_NAMES.get(instance.type, instance.type)
        change = "removed" if created is None else "added"
        with changes.change_log_transaction():
            changes.record(Action.CHANGED, instance.user, after={"second_factor": f"{kind} {change}"})
