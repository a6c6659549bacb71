"""Logging in by user name and password, wherever the hub asks for them."""

from typing import Any, Final

from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.views.decorators.debug import sensitive_variables

from tools_app.auth import logins
from tools_app.auth.proxies import address_of

TOO_OFTEN: Final = "Too many logins failed. Wait five minutes, then try again."


class CountedLoginForm(AuthenticationForm):
    """Refuses whoever failed too often, before the password is looked at: also with the right one."""

    @sensitive_variables()
    def clean(self) -> dict[str, Any]:
        """Log in. Raises ValidationError."""
        name, password = (self.cleaned_data.get(field) for field in ("username", "password"))
        if not (name and password):
            return super().clean()
        assert self.request is not None
        try:
            with logins.attempt(name, address_of(self.request)):
                return super().clean()
        except logins.TooManyTries:
            raise ValidationError(TOO_OFTEN, code="too_often") from None
