"""The company's directory (SCIM) on the page of its issuer: its address, its token, shown once, and what it said."""

from typing import Any

from allauth.core import context
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.views.decorators.http import require_GET

from tools_app.identity.people import directory
from tools_app.models import Issuer, IssuerUse
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin import shown_once
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import ScopedAdmin

FIELDS = ("directory_url", "directory_state", "directory_claim", "directory_only")
SHOWN = FIELDS[:2]
NEW, WITHDRAW = "Create directory token", "Withdraw directory token"


TOKEN_PAGE = shown_once.SecretPage(
    "identity/issuer/directory_issued.html",
    noun="token",
    advice="create another one on the page of the issuer.",
    place="the issuer",
)


class DirectoryPages(ScopedAdmin):
    """What the pages of issuers have for directories."""

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin and of the page of a new token."""
        issued = self.admin_site.admin_view(require_GET(self.directory_issued))
        name = "tools_app_issuer_directory_issued"
        return [path("<path:object_id>/directory-issued/", issued, name=name), *super().get_urls()]

    def has_directory_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may create the token of this issuer's directory."""
        row = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, row) and (row is None or row.use == IssuerUse.PEOPLE)

    def has_withdraw_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may withdraw the token of this issuer's directory, which has one."""
        row = self.get_object(request, object_id) if object_id else None
        is_connected = row is None or directory.state_of(row).connected
        return self.has_change_permission(request, row) and is_connected

    @button(NEW, url_path="directory-token", permissions=["directory"], icon="sync")
    def directory_token(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Create a token after confirmation, and redirect to the page that shows it once."""
        row = self._of_people(request, object_id)
        if request.method != "POST":
            return self._ask_directory(request, row, NEW)
        shown_once.store(request, row, {"token": directory.issue(row)})
        return HttpResponseRedirect(reverse("admin:tools_app_issuer_directory_issued", args=[row.pk]))

    @button(WITHDRAW, url_path="withdraw-directory", permissions=["withdraw"], icon="sync_disabled", danger=True)
    def withdraw_directory(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Withdraw the token after confirmation."""
        row = self._of_people(request, object_id)
        if request.method != "POST":
            return self._ask_directory(request, row, WITHDRAW)
        if directory.withdraw(row):
            self.message_user(request, f"The directory of {row.name} is disconnected.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_issuer_change", args=[row.pk]))

    def directory_issued(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a new token once, and say afterwards that it was shown."""
        row = self._of_people(request, object_id)
        page = {"title": "Copy the token now", "row": row, "url": _url(request, row)}
        return TOKEN_PAGE.response(request, self, row, lambda values: {**page, "token": values["token"]})

    def _of_people(self, request: HttpRequest, object_id: str) -> Issuer:
        row: Issuer = self.get_object(request, object_id)
        if not tenant_permissions_of(request).changes(row.tenant_id) or row.use != IssuerUse.PEOPLE:
            raise PermissionDenied
        return row

    def _ask_directory(self, request: HttpRequest, row: Issuer, action: str) -> HttpResponse:
        page = {
            "title": f"{action}?",
            "is_new": action == NEW,
            "row": row,
            "opts": self.opts,
            "connected": directory.state_of(row).connected,
        }
        whole = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "identity/issuer/directory_ask.html", whole)

    @column("SCIM base URL")
    def directory_url(self, row: Issuer) -> SafeString:
        """Show the address to enter in the directory."""
        if row._state.adding:
            return format_html("{}", "Save the issuer first: then it is shown here.")
        return format_html("<code>{}</code>", _url(context.request, row))

    @column("state")
    def directory_state(self, row: Issuer) -> str:
        """Say whether the directory is connected, when it last asked, and how much it has said."""
        if row._state.adding:
            return "Not connected."
        state = directory.state_of(row)
        text = f"{state.users} people and {state.groups} groups."
        if not state.connected:
            return f"Not connected. {text}" if state.users else "Not connected."
        used = f"last request {timesince(state.last_used_at)} ago" if state.last_used_at else "no request yet"
        return f"Connected with the token {state.token_prefix}…, {used}. {text}"


def _url(request: HttpRequest, row: Issuer) -> str:
    return request.build_absolute_uri(reverse("scim", args=[row.pk])).rstrip("/")
