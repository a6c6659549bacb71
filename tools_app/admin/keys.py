"""API keys: issued, shown once, revoked."""

from typing import Any
from weakref import WeakKeyDictionary

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter

from tools_app.admin import limit_fields
from tools_app.admin.dashboard import active_keys
from tools_app.admin.decorators import button, column
from tools_app.admin.scoped import ScopedAdmin, TenantFilter, badge, writer
from tools_app.admin.site import site
from tools_app.auth import keys, snippets
from tools_app.models import ApiKey

STATUS_COLOURS = {"Active": "success", "Expired": "warning", "Revoked": "danger"}


class StatusFilter(DropdownFilter):
    """By whether a key still opens the door."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: ScopedAdmin) -> list[tuple[str, str]]:
        return [("active", "Active"), ("expired", "Expired"), ("revoked", "Revoked")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> QuerySet[ApiKey]:
        match self.value():
            case "active":
                return queryset.filter(active_keys())
            case "expired":
                return queryset.filter(revoked_at=None, expires_at__lte=timezone.now())
            case "revoked":
                return queryset.exclude(revoked_at=None)
        return queryset


@admin.register(ApiKey, site=site)
class ApiKeyAdmin(ScopedAdmin):
    """Keys of the tenants within reach. A key is revoked, never deleted: its sessions and calls tell of it."""

    list_display = ("name", "tenant", "visible_prefix", "status", "last_used_at", "expires_at", "created_at")
    list_filter = (StatusFilter, TenantFilter)
    list_select_related = ("tenant", "created_by")
    search_fields = ("name", "prefix")
    actions = ("revoke_selected",)
    actions_detail = ("revoke_key",)
    readonly_fields = ("visible_prefix", "status", "last_used_at", "created_at", "created_by_name", "revoked_at")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The key of the request that issues it, until its answer is made: it must not live any longer.
        self._issued: WeakKeyDictionary[HttpRequest, str] = WeakKeyDictionary()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[str | None, dict[str, Any]]]:
        settings = (None, {"fields": ("tenant", "name", "expires_at")})
        limits = limit_fields.limits(limit_fields.OF_KEY)
        return [settings, limits, ("Facts", {"fields": self.readonly_fields})] if obj else [settings, limits]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether this key, or any, may be revoked by this person."""
        key = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, key) and (key is None or key.revoked_at is None)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Issue a new key, or write the changed settings of one."""
        if change:
            super().save_model(request, obj, form, change)
            return
        row, self._issued[request] = keys.issue(
            obj.tenant, obj.name, expires_at=obj.expires_at, created_by=writer(request)
        )
        limits = {name: getattr(obj, name) for name in limit_fields.OF_KEY}
        ApiKey.objects.filter(pk=row.pk).update(**limits)
        obj.pk, obj.prefix = row.pk, row.prefix

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Show the key in the answer itself: a redirect would have to carry it in a cookie or a URL."""
        key = self._issued.pop(request)
        url = snippets.endpoint(request.build_absolute_uri("/"), obj.tenant.slug)
        page = {
            "title": "Copy your key now",
            "api_key": obj,
            "key": key,
            "url": url,
            "command": snippets.claude_command(obj.tenant.slug, url, key),
            "snippet": snippets.client_json(obj.tenant.slug, url, key),
        }
        return TemplateResponse(
            request,
            "admin/tools_app/apikey/issued.html",
            {**self.admin_site.each_context(request), "opts": self.opts, **page},
            headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"},
        )

    @admin.action(description="Revoke selected keys", permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        """Revoke those of the selected keys that this person may change, once that is confirmed."""
        chosen = self.rows_run(request, queryset).filter(revoked_at=None)
        if "confirmed" not in request.POST:
            return self._ask(request, list(chosen), "revoke_selected")
        self._revoke(request, list(chosen))
        return None

    @button("Revoke", url_path="revoke", permissions=["revoke"], icon="block", danger=True)
    def revoke_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Revoke one key, once that is confirmed."""
        key = self.get_object(request, object_id)
        if not self.has_change_permission(request, key):
            raise PermissionDenied
        if request.method != "POST":
            return self._ask(request, [key])
        self._revoke(request, [key])
        return HttpResponseRedirect(reverse("admin:tools_app_apikey_change", args=[key.pk]))

    def _ask(self, request: HttpRequest, chosen: list[ApiKey], action_name: str = "") -> HttpResponse:
        page = {"title": "Revoke for good?", "keys": chosen, "action_name": action_name, "opts": self.opts}
        return TemplateResponse(
            request,
            "admin/tools_app/apikey/revoke.html",
            {**self.admin_site.each_context(request), **page},
        )

    def _revoke(self, request: HttpRequest, chosen: list[ApiKey]) -> None:
        revoked = [key for key in chosen if keys.revoke(key)]
        for key in revoked:
            self.log_change(request, key, "Revoked.")
        self.message_user(request, f"Keys revoked: {len(revoked)}.", messages.SUCCESS)

    @column("key", ordering="prefix")
    def visible_prefix(self, key: ApiKey) -> str:
        return f"{key.prefix}…"

    @column("status")
    def status(self, key: ApiKey) -> SafeString:
        status = status_of(key)
        return badge(status, STATUS_COLOURS[status])

    @column("created by")
    def created_by_name(self, key: ApiKey) -> str:
        return key.created_by.get_username() if key.created_by else "-"


def status_of(key: ApiKey) -> str:
    """Whether a key opens the door now, and if not, why."""
    if key.revoked_at:
        return "Revoked"
    if key.expires_at and key.expires_at <= timezone.now():
        return "Expired"
    return "Active"
