"""Service clients: programs with access tokens of their own. Created (secret shown once), restricted, revoked."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms.widgets import Script
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from tools_app.identity.oauth import clients, key_sets, service_clients
from tools_app.models import ServiceClient
from tools_app.tenants import keys
from tools_app.tenants.admin.key_forms import ApiKeyForm
from tools_app.tenants.admin.keys import SCOPES, preview_of
from tools_app.tenants.admin.status import StatusFilter, status_of
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.tenants.snippets import clients as snippets
from tools_app.web.admin import fields, shown_once
from tools_app.web.admin.columns import cut_column, full_moment, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.fields import JsonTextField
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter, badge, writer
from tools_app.web.admin.site import site

FACTS = (
    "client_id",
    "authenticates",
    "status",
    full_moment("last_used_at", "last used"),
    full_moment("created_at", "created"),
    full_moment("revoked_at", "revoked"),
)


SECRET_PAGE = shown_once.SecretPage(
    "identity/service_client/issued.html",
    noun="secret",
    advice="rotate the secret on the page of the client.",
    place="the service client",
)


class ServiceClientForm(ApiKeyForm):
    """The settings of a service client, and its public keys if it signs."""

    public_keys = JsonTextField(
        required=False,
        help_text="A JSON Web Key Set with public keys, for a client that signs its requests (private_key_jwt). Empty:"
        " the client gets a secret, which is shown once.",
    )

    class Meta(ApiKeyForm.Meta):
        model = ServiceClient

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not self.instance._state.adding:
            stored = self.instance.connection.client.jwks
            if stored:
                self.fields["public_keys"].required, self.initial["public_keys"] = True, stored
            else:
                del self.fields["public_keys"]

    def clean_public_keys(self) -> dict[str, Any] | None:
        """Return the keys as they are stored. Raises ValidationError."""
        found = self.cleaned_data["public_keys"]
        return key_sets.checked(found) if found else None


@admin.register(ServiceClient, site=site)
class ServiceClientAdmin(ScopedAdmin):
    """Service clients of the user's tenants. They are revoked, never deleted: calls refer to them."""

    list_display = (
        cut_column("name", "name"),
        "tenant",
        "authenticates",
        "status",
        moment_column("last_used_at", "last used"),
        moment_column("expires_at", "expires"),
        moment_column("created_at", "created"),
    )
    list_filter = (StatusFilter, TenantFilter)
    list_select_related = ("tenant", "connection__client")
    search_fields = ("name", "connection__client__client_id")
    empty_hint = "A program that acts for itself gets tokens with its own secret or key."
    actions = None
    actions_detail = ("calls_of_client", "rotate_secret", "revoke_client")
    readonly_fields = ("gets", *FACTS)
    form = ServiceClientForm

    class Media:
        js = (
            Script("tools_app/tenants/key_preview.js", type="module"),
            Script("tools_app/tenants/key_names.js", type="module"),
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ServiceClient]:
        """Return the keys of connections without a person."""
        rows: QuerySet[ServiceClient] = super().get_queryset(request)
        return rows.filter(connection__isnull=False, connection__person=None).select_related("connection__client")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[str | None, dict[str, Any]]]:
        signs = obj is None or bool(obj.connection.client.jwks)
        settings = (None, {"fields": ("tenant", "name", "expires_at", *(["public_keys"] if signs else []))})
        limits = fields.limits_fieldset(fields.KEY_LIMITS)
        return [settings, SCOPES, limits, *([("Details", {"fields": FACTS})] if obj else [])]

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin and of the page of a new secret."""
        issued = self.admin_site.admin_view(require_GET(self.issued))
        return [path("<path:object_id>/issued/", issued, name="tools_app_serviceclient_issued"), *super().get_urls()]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_read_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may see this client, or any."""
        return self.has_view_permission(request, self.get_object(request, object_id) if object_id else None)

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may revoke this client, which is not revoked yet."""
        row = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, row) and (row is None or row.revoked_at is None)

    def has_rotate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may rotate the secret of this client, which has one."""
        row = self.get_object(request, object_id) if object_id else None
        has_secret = row is None or (row.revoked_at is None and row.connection.client.auth_method != clients.SIGNED)
        return self.has_change_permission(request, row) and has_secret

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Create a client, or save changed settings."""
        public_keys = form.cleaned_data.get("public_keys")
        if change:
            # The keys are no field of this row.
            if changed := [name for name in form.changed_data if name != "public_keys"]:
                obj.save(update_fields=changed)
                service_clients.keep_name(obj)
            if "public_keys" in form.changed_data and public_keys:
                service_clients.replace_keys(obj, public_keys)
            return
        row, secret = service_clients.create(
            obj.tenant,
            obj.name,
            public_keys=public_keys,
            expires_at=obj.expires_at,
            created_by=writer(request),
            **{name: getattr(obj, name) for name in keys.SETTINGS},
        )
        obj.pk, obj.prefix = row.pk, row.prefix
        # Until its request is answered.
        vars(obj)["secret"] = secret

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Redirect to the page that shows how the client asks for tokens, with its secret once."""
        return self._to_issued(request, obj, vars(obj)["secret"])

    def _to_issued(self, request: HttpRequest, row: ServiceClient, secret: str) -> HttpResponse:
        shown_once.store(request, row, {"secret": secret})
        return HttpResponseRedirect(reverse("admin:tools_app_serviceclient_issued", args=[row.pk]))

    def issued(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a new secret once, and say afterwards that it was shown."""
        row = self._to_change(request, object_id)
        return SECRET_PAGE.response(request, self, row, lambda values: _issued_context(request, row, values["secret"]))

    @button("Calls", url_path="calls", permissions=["read"], icon="receipt_long")
    def calls_of_client(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Redirect to the calls of a client."""
        row: ServiceClient = self.get_object(request, object_id)
        return HttpResponseRedirect(f"{reverse('admin:tools_app_call_changelist')}?key={row.pk}")

    @button("Rotate secret", url_path="rotate", permissions=["rotate"], icon="autorenew")
    def rotate_secret(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Replace the secret after confirmation, and redirect to the page that shows it once."""
        row = self._to_change(request, object_id)
        if not self.has_rotate_permission(request, object_id):
            raise PermissionDenied
        if request.method != "POST":
            return self._confirm(request, row, "Rotate secret")
        return self._to_issued(request, row, service_clients.rotate_secret(row))

    @button("Revoke", url_path="revoke", permissions=["revoke"], icon="block", danger=True)
    def revoke_client(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Revoke a client after confirmation."""
        row = self._to_change(request, object_id)
        if request.method != "POST":
            return self._confirm(request, row, "Revoke")
        if service_clients.revoke(row):
            self.message_user(request, f"{row.name} was revoked.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_serviceclient_change", args=[row.pk]))

    def _to_change(self, request: HttpRequest, object_id: str) -> ServiceClient:
        row: ServiceClient = self.get_object(request, object_id)
        if not tenant_permissions_of(request).changes(row.tenant_id):
            raise PermissionDenied
        return row

    def _confirm(self, request: HttpRequest, row: ServiceClient, action: str) -> HttpResponse:
        page = {"title": f"{action}?", "action": action, "row": row, "opts": self.opts}
        context = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "identity/service_client/ask.html", context)

    @column("client ID")
    def client_id(self, row: ServiceClient) -> str:
        return row.connection.client.client_id

    @column("authenticates with")
    def authenticates(self, row: ServiceClient) -> str:
        return "Signed assertion" if row.connection.client.auth_method == clients.SIGNED else "Secret"

    @column("status")
    def status(self, row: ServiceClient) -> SafeString:
        blocked = row.connection.client.blocked_at is not None and row.revoked_at is None
        return badge("Blocked", "danger") if blocked else badge(*status_of(row))

    @column("can use")
    def gets(self, row: ServiceClient) -> SafeString:
        """What the patterns match now; a script updates it while they are edited."""
        return preview_of(row)


def _issued_context(request: HttpRequest, row: ServiceClient, secret: str) -> dict[str, Any]:
    base, client_id = request.build_absolute_uri("/").rstrip("/"), row.connection.client.client_id
    token_url = base + reverse("oauth-token")
    return {
        "title": "Copy the secret now" if secret else "The service client is ready",
        "row": row,
        "client_id": client_id,
        "secret": secret,
        "token_url": token_url,
        "endpoint": snippets.endpoint(f"{base}/", row.tenant.slug),
        "command": f"curl --user '{client_id}:{secret}' --data grant_type=client_credentials {token_url}",
    }
