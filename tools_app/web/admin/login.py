"""The login page: attempts are counted, and a person with a second factor is asked for it."""

from typing import Any, Final

from allauth.account.utils import perform_login
from csp.decorators import csp_update
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from unfold.forms import AuthenticationForm as UnfoldAuthenticationForm

from tools_app.identity import logins
from tools_app.identity.principal import client_ip_of
from tools_app.tenants import permissions

MAX_NAME_LENGTH: Final = 150
TOO_OFTEN: Final = "Too many failed logins. Try again in five minutes."


class CountedLoginForm(AuthenticationForm):
    """Rejects logins after too many failures before the password is checked, even if it is correct."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Django enforces the maximum length of a username only in browsers.
        name = self.fields["username"]
        name.validators.append(MaxLengthValidator(MAX_NAME_LENGTH))

    @sensitive_variables()
    def clean(self) -> dict[str, Any]:
        """Log in. Raises ValidationError."""
        name, password = (self.cleaned_data.get(field) for field in ("username", "password"))
        if not (name and password):
            return super().clean()
        assert self.request is not None
        try:
            with logins.attempt(name, client_ip_of(self.request)):
                return super().clean()
        except logins.TooManyAttempts:
            raise ValidationError(TOO_OFTEN, code="too_often") from None


class LoginForm(CountedLoginForm, UnfoldAuthenticationForm):
    """Rejects users without access with the message for a wrong password, so as not to reveal which accounts exist."""

    error_messages = {
        **UnfoldAuthenticationForm.error_messages,
        "invalid_login": "The username or password is incorrect. Both can be case-sensitive.",
    }

    def confirm_login_allowed(self, user: User) -> None:
        """Allow users who may enter the admin. Raises ValidationError for others."""
        AuthenticationForm.confirm_login_allowed(self, user)
        if not permissions.may_enter_admin(user):
            raise ValidationError(self.error_messages["invalid_login"], code="invalid_login")


class LoginPage(LoginView):
    """Logs in after the password, and the second factor where there is one."""

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Go on to the page that was asked for, or to that of the second factor."""
        return enter(self.request, form.get_user(), self.get_success_url())


@never_cache
def login_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponseBase:
    """Return the page with the context of the site."""
    to = request.POST.get(REDIRECT_FIELD_NAME, "") or request.GET.get(REDIRECT_FIELD_NAME, "")
    shown = {
        **context,
        "title": "Log in",
        "subtitle": None,
        "app_path": request.get_full_path(),
        "username": request.user.get_username(),
        REDIRECT_FIELD_NAME: to or reverse("admin:index"),
        "redirect_field": format_html('<input type="hidden" name="{}" value="{}">', REDIRECT_FIELD_NAME, to),
    }
    page = LoginPage.as_view(authentication_form=LoginForm, template_name="web/login.html", extra_context=shown)
    answer = page(request)
    if to.startswith(reverse("oauth-authorize")):
        # Browsers apply the policy to the redirects that answer the form, which may lead on to the client.
        csp_update({"form-action": ["https:"]})(lambda _request: answer)(request)
    return answer


def enter(request: HttpRequest, person: User, to: str) -> HttpResponse:
    """Log a person in whose password is right, asking for the second factor first, then redirect to `to`."""
    # Not that of a sign-in that somebody began before.
    request.session.set_expiry(None)
    answer: HttpResponse = perform_login(request, person, redirect_url=to)
    return answer
