"""API keys: issuing (shown once), restricting, rotating and revoking them."""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.forms.widgets import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET, require_POST

from tools_app.catalog.offers import offers_of
from tools_app.models import ApiKey, Tenant
from tools_app.tenants import keys
from tools_app.tenants.admin import connect
from tools_app.tenants.admin import key_forms as forms
from tools_app.tenants.admin.key_forms import ApiKeyForm, OverlapForm, PreviewForm
from tools_app.tenants.admin.status import StatusFilter, notes_on, status_of
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin import fields, shown_once
from tools_app.web.admin.columns import cut_column, full_moment, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter, badge, by_id, writer
from tools_app.web.admin.site import site
from tools_app.web.admin.times import full_text

MAX_OFFERS = 1_000
PICK_TENANT = "Select a tenant to see what the key can use."
FACTS = (
    "visible_prefix",
    "status",
    full_moment("last_used_at", "last used"),
    full_moment("created_at", "created"),
    "created_by_name",
    full_moment("revoked_at", "revoked"),
)
# What the names and the toolset give access to stands below them.
FIRST_SCOPES = ("tool_patterns", "toolset", "gets", "presentation")
SCOPES = ("Scopes", {"fields": (*FIRST_SCOPES, *(name for name in keys.SCOPES if name not in FIRST_SCOPES))})


def preview_of(key: ApiKey) -> SafeString:
    """Return what the patterns of a key match now, with the boxes of names that a script shows."""
    tenant_id: UUID | None = key.tenant_id
    description = (
        PICK_TENANT if tenant_id is None else forms.described_access(tenant_id, key.tool_patterns, key.toolset_id)
    )
    address, tenant = reverse("admin:tools_app_apikey_preview"), tenant_id or ""
    return format_html(
        '<div data-key-names="{}" data-tenant="{}"></div>'
        '<span aria-live="polite" data-key-preview="{}" data-tenant="{}">{}</span>',
        reverse("admin:tools_app_apikey_names"),
        tenant,
        address,
        tenant,
        description,
    )


KEY_PAGE = shown_once.SecretPage(
    "tenants/key/issued.html",
    noun="key",
    advice="rotate the key on its page: you get a new one in its place.",
    place="the key",
)


@admin.register(ApiKey, site=site)
class ApiKeyAdmin(ScopedAdmin):
    """Keys of the user's tenants. Keys are revoked, never deleted: sessions and calls refer to them."""

    list_display = (
        cut_column("name", "name"),
        "tenant",
        "visible_prefix",
        "status",
        moment_column("last_used_at", "last used"),
        moment_column("expires_at", "expires"),
        moment_column("created_at", "created"),
    )
    list_filter = (StatusFilter, TenantFilter)
    list_select_related = ("tenant", "created_by")
    search_fields = ("name", "prefix")
    empty_hint = "A client that cannot sign in sends a key. It belongs to one tenant."
    actions = ("revoke_selected",)
    actions_detail = ("connect_key", "rotate_key", "overlap_key", "revoke_key")
    readonly_fields = ("gets", *FACTS)
    form = ApiKeyForm
    change_form_before_template = "tenants/key/notes.html"

    class Media:
        js = (
            Script("tools_app/tenants/key_preview.js", type="module"),
            Script("tools_app/tenants/key_names.js", type="module"),
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        """Return the keys of the user's tenants, without those behind connections."""
        return keys.without_connections(super().get_queryset(request))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[str | None, dict[str, Any]]]:
        settings = (None, {"fields": ("tenant", "name", "expires_at", "acts_for_creator")})
        limits = fields.limits_fieldset(fields.KEY_LIMITS)
        return [settings, SCOPES, limits, *([("Details", {"fields": FACTS})] if obj else [])]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the read-only fields: the holder of a key must not come to act for somebody else."""
        more = ("acts_for_creator",) if obj else ()
        return (*super().get_readonly_fields(request, obj), *more)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        """Return the form, which refuses changes of a key that acts for somebody else."""
        form = super().get_form(request, obj, change, **options)
        return type(form.__name__, (form,), {"editor": writer(request)})

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin, of the preview of patterns and of the page of a new key."""
        preview = self.admin_site.admin_view(require_POST(self.preview))
        issued = self.admin_site.admin_view(require_GET(self.issued))
        names = self.admin_site.admin_view(require_GET(self.names))
        return [
            path("preview/", preview, name="tools_app_apikey_preview"),
            path("names/", names, name="tools_app_apikey_names"),
            path("<path:object_id>/issued/", issued, name="tools_app_apikey_issued"),
            *super().get_urls(),
        ]

    def preview(self, request: HttpRequest) -> HttpResponse:
        """Return what a key with these patterns could use, as JSON: `{"text": …}`."""
        form = PreviewForm(request.POST)
        if not form.is_valid():
            return JsonResponse({"text": " ".join(str(text) for texts in form.errors.values() for text in texts)})
        values = form.cleaned_data
        tenant_permissions_of(request).require_change(values["tenant"])
        return JsonResponse({"text": forms.described_access(values["tenant"], values["patterns"], values["toolset"])})

    def names(self, request: HttpRequest) -> HttpResponse:
        """Return what a tenant offers, as JSON: `{"offers": […], "hidden": number}`, at most MAX_OFFERS."""
        tenant = by_id(Tenant.objects.filter(is_active=True), "pk", request.GET.get("tenant") or "-").first()
        if tenant is None:
            raise Http404("Not found.")
        tenant_permissions_of(request).require_change(tenant.pk)
        offers = offers_of(tenant)
        shown = [offer._asdict() for offer in offers[:MAX_OFFERS]]
        return JsonResponse({"offers": shown, "hidden": max(0, len(offers) - MAX_OFFERS)})

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Show the form below the notes on the key."""
        key = options.get("obj")
        context["notes"] = notes_on(key, writer(request)) if key else []
        return super().render_change_form(request, context, *args, **options)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may revoke this key, or any."""
        key = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, key) and (key is None or key.revoked_at is None)

    def has_rotate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may rotate this key."""
        key = self.get_object(request, object_id) if object_id else None
        good = key is None or keys.rotatable_keys(ApiKey.objects.filter(pk=key.pk)).exists()
        return self.has_change_permission(request, key) and good

    def has_overlap_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this key was replaced and this user may change how long it stays valid."""
        key = self.get_object(request, object_id) if object_id else None
        is_replaced = key is None or (key.revoked_at is None and key.replaced_by_id is not None)
        return self.has_change_permission(request, key) and is_replaced

    def has_connect_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may see how to connect clients with this key."""
        key = self.get_object(request, object_id) if object_id else None
        return self.has_view_permission(request, key)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Issue a new key, or save changed settings."""
        if change:
            super().save_model(request, obj, form, change)
            return
        row, key = keys.issue(
            obj.tenant,
            obj.name,
            expires_at=obj.expires_at,
            created_by=writer(request),
            acts_for_creator=obj.acts_for_creator,
            **{name: getattr(obj, name) for name in keys.SETTINGS},
        )
        obj.pk, obj.prefix = row.pk, row.prefix
        shown_once.store(request, row, {"key": key})

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Redirect to the page that shows the key once."""
        return HttpResponseRedirect(reverse("admin:tools_app_apikey_issued", args=[obj.pk]))

    def issued(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a new key once, and say afterwards that it was shown."""
        key = self._to_change(request, object_id)
        return KEY_PAGE.response(
            request,
            self,
            key,
            lambda values: {
                "title": "Copy your key now",
                "api_key": key,
                "replaces": key.replaces.first(),
                "key": values["key"],
                "connect": connect.offer(request, key.tenant, values["key"]),
            },
        )

    @admin.action(description="Revoke selected keys", permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        """Revoke the selected keys that this user may change, after confirmation."""
        chosen = self.rows_run(request, queryset).filter(revoked_at=None)
        if "confirmed" not in request.POST:
            return self._confirm(request, list(chosen), "revoke_selected")
        self._revoke(request, list(chosen))
        return None

    @button("Revoke", url_path="revoke", permissions=["revoke"], icon="block", danger=True)
    def revoke_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Revoke a key after confirmation."""
        key = self._to_change(request, object_id)
        if request.method != "POST":
            return self._confirm(request, [key])
        self._revoke(request, [key])
        return HttpResponseRedirect(reverse("admin:tools_app_apikey_change", args=[key.pk]))

    @button("Connect", url_path="connect", permissions=["connect"], icon="cable")
    def connect_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Redirect to the connection instructions."""
        return HttpResponseRedirect(reverse("admin:connect", args=[self.get_object(request, object_id).pk]))

    @button("Rotate", url_path="rotate", permissions=["rotate"], icon="autorenew")
    def rotate_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Issue a replacement for this key, and redirect to the page that shows it once."""
        key, form = self._to_change(request, object_id), OverlapForm(request.POST or None)
        if not form.is_valid():
            return self._about_overlap(request, key, form, rotating=True)
        try:
            new, text = keys.rotate(key, form.chosen, writer(request))
        except keys.NotRotatable as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:tools_app_apikey_change", args=[key.pk]))
        self.log_change(request, key, f"Rotated. The new key is {new}.")
        shown_once.store(request, new, {"key": text})
        return HttpResponseRedirect(reverse("admin:tools_app_apikey_issued", args=[new.pk]))

    @button("Overlap", url_path="overlap", permissions=["overlap"], icon="timelapse")
    def overlap_key(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Extend or end the validity of a replaced key."""
        key, form = self._to_change(request, object_id), OverlapForm(request.POST or None)
        if not form.is_valid():
            return self._about_overlap(request, key, form, rotating=False)
        try:
            is_set = keys.set_overlap(key, form.chosen, writer(request))
        except ValidationError as error:
            self.message_user(request, " ".join(error.messages), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:tools_app_apikey_change", args=[key.pk]))
        if is_set:
            self.log_change(request, key, f"Valid until {full_text(key.expires_at)}.")
            until = f"valid until {full_text(key.expires_at)}" if form.chosen and key.expires_at else "no longer valid"
            self.message_user(request, f"The old key is {until}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_apikey_change", args=[key.pk]))

    def _to_change(self, request: HttpRequest, object_id: str) -> ApiKey:
        key: ApiKey = self.get_object(request, object_id)
        if not self.has_change_permission(request, key):
            raise PermissionDenied
        return key

    def _about_overlap(
        self, request: HttpRequest, key: ApiKey, form: OverlapForm, *, rotating: bool
    ) -> TemplateResponse:
        title = f"Rotate {key.name}" if rotating else f"Overlap of {key.name}"
        return self.page(request, "tenants/key/overlap.html", title=title, key=key, form=form, rotating=rotating)

    def _confirm(self, request: HttpRequest, chosen: list[ApiKey], action_name: str = "") -> HttpResponse:
        page = {"title": "Revoke API key?", "button": "Revoke", "back": reverse("admin:tools_app_apikey_changelist")}
        return self.page(request, "tenants/key/revoke.html", **page, rows=chosen, action_name=action_name)

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
        return badge(*status_of(key))

    @column("can use")
    def gets(self, key: ApiKey) -> SafeString:
        """What the patterns match now; a script updates it while they are edited."""
        return preview_of(key)

    @column("created by")
    def created_by_name(self, key: ApiKey) -> str:
        return key.created_by.get_username() if key.created_by else "-"
