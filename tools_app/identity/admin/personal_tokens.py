"""A user's own tokens for the REST API: created, shown once, revoked. Other users' tokens are never shown."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET
from unfold.admin import ModelAdmin

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.identity import personal_tokens as tokens
from tools_app.models import PersonalToken
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin import shown_once
from tools_app.web.admin.columns import cut_column, full_moment, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import badge
from tools_app.web.admin.site import site

FACTS = (
    "visible_prefix",
    "status",
    full_moment("last_used_at", "last used"),
    full_moment("created_at", "created"),
    full_moment("revoked_at", "revoked"),
)


TOKEN_PAGE = shown_once.SecretPage(
    "identity/personal_token/issued.html",
    noun="token",
    advice="revoke it and create another one.",
    place="my tokens",
    place_view="admin:tools_app_personaltoken_changelist",
)


@admin.register(PersonalToken, site=site)
class TokenAdmin(ModelAdmin):
    """The tokens of the current user, also for superusers."""

    empty_hint = "A script that uses the REST API with your permissions sends a token."
    list_display = (
        cut_column("name", "name"),
        "visible_prefix",
        "status",
        moment_column("last_used_at", "last used"),
        moment_column("expires_at", "expires"),
        moment_column("created_at", "created"),
    )
    actions = None
    actions_detail = ("revoke_token",)
    fields = ("name", "expires_at")

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin and of the page of a new token."""
        issued = self.admin_site.admin_view(require_GET(self.issued))
        return [path("<path:object_id>/issued/", issued, name="tools_app_personaltoken_issued"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[PersonalToken]:
        """Return the user's own tokens."""
        rows: QuerySet[PersonalToken] = super().get_queryset(request)
        return rows.filter(person=request.user.pk)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the token with this id. Raises Http404 alike if it is missing or belongs to another user."""
        row = super().get_object(request, object_id, from_field)
        if row is None:
            raise Http404("Token not found.")
        return row

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return (*self.fields, *FACTS) if obj else self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return FACTS if obj else ()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return tenant_permissions_of(request).has_access

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return tenant_permissions_of(request).has_access and (obj is None or obj.person_id == request.user.pk)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return tenant_permissions_of(request).has_access

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this token can be revoked. Raises Http404 if it belongs to another user."""
        return not object_id or self.get_object(request, object_id).revoked_at is None

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list of the user's own tokens."""
        page: HttpResponse = super().changelist_view(request, {"title": "My tokens", **(extra_context or {})})
        return page

    def save_model(self, request: HttpRequest, obj: PersonalToken, form: Any, change: bool) -> None:
        """Create a token."""
        if change or not isinstance(request.user, User):
            raise PermissionDenied
        row, token = tokens.issue(request.user, obj.name, expires_at=obj.expires_at)
        obj.pk, obj.prefix = row.pk, row.prefix
        # Until its request is answered.
        vars(obj)["token"] = token

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Redirect to the page that shows the token once."""
        shown_once.store(request, obj, {"token": vars(obj)["token"]})
        return HttpResponseRedirect(reverse("admin:tools_app_personaltoken_issued", args=[obj.pk]))

    def issued(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a new token once, and say afterwards that it was shown."""
        row = self.get_object(request, object_id)
        me = request.build_absolute_uri(reverse("api-me"))
        return TOKEN_PAGE.response(
            request,
            self,
            row,
            lambda values: {
                "title": "Copy your token now",
                "token": values["token"],
                "command": f'curl --header "Authorization: Bearer {values["token"]}" {me}',
            },
        )

    @button("Revoke", url_path="revoke", permissions=["revoke"], icon="block", danger=True)
    def revoke_token(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Revoke a token after confirmation."""
        row = self.get_object(request, object_id)
        if request.method != "POST":
            page = {"title": "Revoke token?", "token": row, "opts": self.opts}
            context = {**self.admin_site.each_context(request), **page}
            return TemplateResponse(request, "identity/personal_token/revoke.html", context)
        with change_log_transaction():
            tokens.revoke(row)
        self.message_user(request, "The token was revoked.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_personaltoken_changelist"))

    @column("token", ordering="prefix")
    def visible_prefix(self, row: PersonalToken) -> str:
        return f"{row.prefix}…"

    @column("status")
    def status(self, row: PersonalToken) -> SafeString:
        if row.revoked_at:
            return badge("Revoked", "danger")
        if row.expires_at and row.expires_at <= timezone.now():
            return badge("Expired", "warning")
        return badge("Active", "success")
