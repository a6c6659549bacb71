"""API keys: issued and shown once, narrowed, rotated, revoked."""

from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms.widgets import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from tools_app.admin import connect, key_offers, limit_fields
from tools_app.admin.decorators import button, column
from tools_app.admin.key_forms import ApiKeyForm, OverlapForm, PreviewForm
from tools_app.admin.key_status import StatusFilter, has_overlap, notes_on, status_of
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import ScopedAdmin, TenantFilter, badge, writer
from tools_app.admin.site import site
from tools_app.admin.zone import zoned
from tools_app.audit import key_changes
from tools_app.auth import keys
from tools_app.models import ApiKey

PICK_TENANT = "Pick a tenant to see what it gets."
FACTS = ("visible_prefix", "status", "last_used_at", "created_at", "created_by_name", "revoked_at")


@admin.register(ApiKey, site=site)
class ApiKeyAdmin(ScopedAdmin):
    """Keys of the tenants within reach. A key is revoked, never deleted: its sessions and calls tell of it."""

    list_display = ("name", "tenant", "visible_prefix", "status", "last_used_at", "expires_at", "created_at")
    list_filter = (StatusFilter, TenantFilter)
    list_select_related = ("tenant", "created_by")
    search_fields = ("name", "prefix")
    actions = ("revoke_selected",)
    actions_detail = ("connect_key", "rotate_key", "overlap_key", "revoke_key")
    readonly_fields = ("gets", *FACTS)
    form = ApiKeyForm
    change_form_before_template = "admin/tools_app/apikey/notes.html"

    class Media:
        js = (Script("tools_app/key_preview.js", type="module"),)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The key of the request that issues it, until its answer is made: it must not live any longer.
        self._issued: WeakKeyDictionary[HttpRequest, str] = WeakKeyDictionary()

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[str | None, dict[str, Any]]]:
        settings = (None, {"fields": ("tenant", "name", "expires_at")})
        scopes = ("What it opens", {"fields": ("tool_patterns", "gets", "methods", "networks")})
        limits = limit_fields.limits(limit_fields.OF_KEY)
        return [settings, scopes, limits, *([("Facts", {"fields": FACTS})] if obj else [])]

    def get_urls(self) -> list[Any]:
        """The usual pages, and what patterns name while they are typed."""
        preview = self.admin_site.admin_view(require_POST(self.preview))
        return [path("preview/", preview, name="tools_app_apikey_preview"), *super().get_urls()]

    def preview(self, request: HttpRequest) -> HttpResponse:
        """What a key of a tenant with these patterns would get, as JSON: `{"text": …}`."""
        reach, form = reach_of(request), PreviewForm(request.POST)
        if not form.is_valid():
            return JsonResponse({"text": " ".join(str(text) for texts in form.errors.values() for text in texts)})
        tenant_id = form.cleaned_data["tenant"]
        if not reach.sees(tenant_id):
            raise Http404("There is no such tenant.")
        if not reach.changes(tenant_id):
            raise PermissionDenied
        return JsonResponse({"text": key_offers.described(tenant_id, form.cleaned_data["patterns"])})

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any) -> Any:
        """The form, below what whoever opens it should know."""
        key = options.get("obj")
        context["notes"] = notes_on(key) if key else []
        return super().render_change_form(request, context, *args, **options)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether this key, or any, may be revoked by this person."""
        key = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, key) and (key is None or key.revoked_at is None)

    def has_rotate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether this key can be rotated by this person."""
        key = self.get_object(request, object_id) if object_id else None
        good = key is None or keys.rotatable(ApiKey.objects.filter(pk=key.pk)).exists()
        return self.has_change_permission(request, key) and good

    def has_overlap_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether this key was replaced, and this person may say for how long it is good."""
        key = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, key) and (key is None or has_overlap(key))

    def has_connect_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether this person may see how clients connect with this key."""
        key = self.get_object(request, object_id) if object_id else None
        return self.has_view_permission(request, key)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Issue a new key, or write the changed settings of one."""
        if change:
            super().save_model(request, obj, form, change)
            return
        row, self._issued[request] = keys.issue(
            obj.tenant,
            obj.name,
            expires_at=obj.expires_at,
            created_by=writer(request),
            **{name: getattr(obj, name) for name in keys.SCOPES},
            limits={name: getattr(obj, name) for name in keys.LIMITS},
        )
        obj.pk, obj.prefix = row.pk, row.prefix

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Show the key in the answer itself: a redirect would have to carry it in a cookie or a URL."""
        return self._shown_once(request, obj, self._issued.pop(request))

    def _shown_once(
        self, request: HttpRequest, obj: ApiKey, key: str, replaces: ApiKey | None = None
    ) -> TemplateResponse:
        page = {
            "title": "Copy your key now",
            "api_key": obj,
            "replaces": replaces,
            "key": key,
            "connect": connect.offer(request, obj.tenant, key),
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
        key = self._to_change(request, object_id)
        if request.method != "POST":
            return self._ask(request, [key])
        self._revoke(request, [key])
        return HttpResponseRedirect(reverse("admin:tools_app_apikey_change", args=[key.pk]))

    @button("Connect", url_path="connect", permissions=["connect"], icon="cable")
    def connect_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what to paste into a client."""
        return HttpResponseRedirect(reverse("admin:connect", args=[self.get_object(request, object_id).pk]))

    @button("Rotate", url_path="rotate", permissions=["rotate"], icon="autorenew")
    def rotate_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Issue the key that takes this one's place, and show it once."""
        key, form = self._to_change(request, object_id), OverlapForm(request.POST or None)
        if not form.is_valid():
            return self._about_overlap(request, key, form, rotating=True)
        try:
            new, text = key_changes.rotate(key, form.chosen, writer(request))
        except keys.NotRotatable as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:tools_app_apikey_change", args=[key.pk]))
        self.log_change(request, key, f"Rotated: {new} takes its place.")
        return self._shown_once(request, new, text, replaces=key)

    @button("Overlap", url_path="overlap", permissions=["overlap"], icon="timelapse")
    def overlap_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Let a key that was replaced be good for longer, or no more."""
        key, form = self._to_change(request, object_id), OverlapForm(request.POST or None)
        if not form.is_valid():
            return self._about_overlap(request, key, form, rotating=False)
        if key_changes.set_overlap(key, form.chosen):
            self.log_change(request, key, f"Good until {key.expires_at}.")
            until = f"until {zoned(key.expires_at)}" if form.chosen and key.expires_at else "no more"
            self.message_user(request, f"The old key is good {until}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_apikey_change", args=[key.pk]))

    def _to_change(self, request: HttpRequest, object_id: str) -> ApiKey:
        key: ApiKey = self.get_object(request, object_id)
        if not self.has_change_permission(request, key):
            raise PermissionDenied
        return key

    def _about_overlap(
        self, request: HttpRequest, key: ApiKey, form: OverlapForm, *, rotating: bool
    ) -> TemplateResponse:
        page = {
            "title": f"Rotate {key.name}" if rotating else f"Overlap of {key.name}",
            "key": key,
            "form": form,
            "rotating": rotating,
            "opts": self.opts,
        }
        return TemplateResponse(
            request, "admin/tools_app/apikey/overlap.html", {**self.admin_site.each_context(request), **page}
        )

    def _ask(self, request: HttpRequest, chosen: list[ApiKey], action_name: str = "") -> HttpResponse:
        page = {"title": "Revoke for good?", "keys": chosen, "action_name": action_name, "opts": self.opts}
        return TemplateResponse(
            request,
            "admin/tools_app/apikey/revoke.html",
            {**self.admin_site.each_context(request), **page},
        )

    def _revoke(self, request: HttpRequest, chosen: list[ApiKey]) -> None:
        revoked = [key for key in chosen if key_changes.revoke(key)]
        for key in revoked:
            self.log_change(request, key, "Revoked.")
        self.message_user(request, f"Keys revoked: {len(revoked)}.", messages.SUCCESS)

    @column("key", ordering="prefix")
    def visible_prefix(self, key: ApiKey) -> str:
        return f"{key.prefix}…"

    @column("status")
    def status(self, key: ApiKey) -> SafeString:
        return badge(*status_of(key))

    @column("it gets")
    def gets(self, key: ApiKey) -> SafeString:
        """What its patterns name now; while they are typed, a script asks for it again."""
        tenant_id: UUID | None = key.tenant_id
        told = PICK_TENANT if tenant_id is None else key_offers.described(tenant_id, key.tool_patterns)
        address, tenant = reverse("admin:tools_app_apikey_preview"), tenant_id or ""
        return format_html(
            '<span aria-live="polite" data-key-preview="{}" data-tenant="{}">{}</span>', address, tenant, told
        )

    @column("created by")
    def created_by_name(self, key: ApiKey) -> str:
        return key.created_by.get_username() if key.created_by else "-"
