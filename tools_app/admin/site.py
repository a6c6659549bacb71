"""The admin site: open to superusers and to the members of any tenant, whatever `is_staff` says."""

from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from unfold.forms import AuthenticationForm as UnfoldAuthenticationForm
from unfold.sites import UnfoldAdminSite

from tools_app.admin import connect, dashboard, evidence, health, live_tail, playground, retention
from tools_app.admin.login_form import CountedLoginForm
from tools_app.admin.reach import reach_of
from tools_app.auth import access


class LoginForm(CountedLoginForm, UnfoldAuthenticationForm):
    """Refuses a stranger with the words it uses for a wrong password, so that it tells nobody who exists."""

    error_messages = {
        **UnfoldAuthenticationForm.error_messages,
        "invalid_login": "No member of this hub has this user name and password. Both may be case-sensitive.",
    }

    def confirm_login_allowed(self, user: User) -> None:
        """Let those in who may enter the admin. Raises ValidationError for the rest."""
        AuthenticationForm.confirm_login_allowed(self, user)
        if not access.may_enter_admin(user):
            raise ValidationError(self.error_messages["invalid_login"], code="invalid_login")


class HubAdminSite(UnfoldAdminSite):
    """The admin of the hub."""

    site_title = site_header = "mcphub"
    index_title = "Overview"
    login_form = LoginForm

    def has_permission(self, request: HttpRequest) -> bool:
        """Whether this person may open any page at all."""
        return reach_of(request).enters

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The first page: how the person's tenants are doing, and what to do next."""
        page: HttpResponse = super().index(request, {**dashboard.context_of(request), **(extra_context or {})})
        return page

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Change one's own password and record that, or neither."""
        with transaction.atomic():
            page: HttpResponse = super().password_change(request, extra_context)
            return page

    def get_urls(self) -> list[Any]:
        """The pages of the rows, and one about all records together."""
        return [
            *evidence.urls(self),
            *retention.urls(self),
            *health.urls(self),
            *connect.urls(self),
            *playground.urls(self),
            *live_tail.urls(self),
            *super().get_urls(),
        ]


site = HubAdminSite()
