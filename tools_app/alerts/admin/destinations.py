"""Alert destinations: e-mail addresses and webhooks, whose secret is shown once."""

from types import MappingProxyType
from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

import orjson
from django import forms
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.forms.widgets import Script
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from tools_app.alerts import delivery, destinations
from tools_app.alerts.admin.log import send_tests
from tools_app.alerts.models import AlertDelivery, AlertDestination, DestinationKind
from tools_app.audit.changes.changes import change_log_transaction
from tools_app.core.urls import netloc_of
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin import shown_once
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter, badge, narrow
from tools_app.web.admin.site import site

# The field with the address of each kind.
ADDRESSES: Final = {DestinationKind.EMAIL: "email", DestinationKind.WEBHOOK: "url"}


SECRET_PAGE = shown_once.SecretPage(
    "alerts/issued.html",
    noun="secret",
    advice="rotate the secret: you get a new one.",
    place="the destination",
)


class DestinationForm(forms.ModelForm):  # type: ignore[type-arg]
    """An e-mail address or the URL of a webhook."""

    class Meta:
        model = AlertDestination
        fields = ("tenant", "name", "kind", "email", "url", "enabled")
        help_texts: ClassVar = {
            "kind": "It cannot be changed later.",
            "email": "",
            "url": "It receives a POST with JSON, signed with a secret that is shown once.",
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "kind" in self.fields:
            kinds = {kind.value: {"fields": [name]} for kind, name in ADDRESSES.items()}
            self.fields["kind"].widget.attrs["data-kinds"] = orjson.dumps(kinds).decode()

    def clean(self) -> dict[str, Any] | None:
        """Check the number of destinations, and clear the address of another kind. Raises ValidationError."""
        cleaned = super().clean() or self.cleaned_data
        for kind, name in ADDRESSES.items():
            if name in self.fields and "kind" in cleaned and cleaned["kind"] != kind:
                # It is not shown, so what was typed before another kind was chosen does not count.
                cleaned[name] = ""
                self.errors.pop(name, None)
        if "tenant" in cleaned:
            self.instance.tenant = cleaned["tenant"]
        destinations.check_count(self.instance)
        if "enabled" in self.changed_data:
            self.instance.disabled_reason = ""
        return cleaned


@admin.register(AlertDestination, site=site)
class DestinationAdmin(ScopedAdmin):
    """The alert destinations of the user's tenants; those of the whole hub for superusers."""

    form = DestinationForm
    list_display = ("name", "tenant", "kind", "address", "status")
    list_filter = ("kind", "enabled", TenantFilter)
    list_select_related = ("tenant",)
    search_fields = ("name",)
    actions_detail = ("send_test", "rotate_secret")
    deleted_with_it = (AlertDelivery,)
    blank_labels = MappingProxyType({"tenant": "The whole hub"})
    empty_hint = "A destination is an e-mail address or a webhook that is notified when an alert fires."
    empty_advice = "Choose it in the rules of alerts."

    class Media:
        js = (Script("tools_app/alerts/kinds.js", type="module"),)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The new secret, held only until its request is answered.
        self._issued: WeakKeyDictionary[HttpRequest, str] = WeakKeyDictionary()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return all fields for a new destination, and those of its kind for an existing one."""
        if obj is None:
            return list(DestinationForm.Meta.fields)
        address = ADDRESSES[DestinationKind(obj.kind)]
        if not self.has_change_permission(request, obj):
            # The path of a webhook's URL is often a credential.
            address = "address"
        return ["tenant", "name", "kind", address, "enabled", "status"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        fixed = super().get_readonly_fields(request, obj)
        return [*fixed, "kind", "status", "address"] if obj else fixed

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Require a tenant, except from superusers."""
        field = super().formfield_for_foreignkey(db_field, request, **options)
        if field is not None and db_field.name == "tenant":
            field.required = not tenant_permissions_of(request).is_superuser
            field.help_text = "" if field.required else field.help_text
        return field

    def save_model(self, request: HttpRequest, obj: AlertDestination, form: Any, change: bool) -> None:
        """Save a destination; a new webhook gets its secret."""
        if change and form.changed_data:
            obj.save(update_fields=[*form.changed_data, "disabled_reason"])
        elif not change:
            if obj.kind == DestinationKind.WEBHOOK:
                self._issued[request] = destinations.add_secret(obj)
            obj.save()

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin and of the page of a new secret."""
        issued = self.admin_site.admin_view(require_GET(self.issued))
        return [path("<path:object_id>/issued/", issued, name="tools_app_alertdestination_issued"), *super().get_urls()]

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Redirect to the page that shows the secret of a new webhook once."""
        secret = self._issued.pop(request, None)
        if secret is None:
            page: HttpResponse = super().response_add(request, obj, post_url_continue)
            return page
        return self._to_issued(request, obj, secret)

    def _to_issued(self, request: HttpRequest, row: AlertDestination, secret: str) -> HttpResponse:
        shown_once.store(request, row, {"secret": secret})
        return HttpResponseRedirect(reverse("admin:tools_app_alertdestination_issued", args=[row.pk]))

    def issued(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a new secret once, and say afterwards that it was shown."""
        row = self.get_object(request, unquote(object_id))
        if not self.has_rotate_permission(request, object_id):
            raise PermissionDenied
        return SECRET_PAGE.response(
            request,
            self,
            row,
            lambda values: {"title": "Copy the secret now", "secret": values["secret"], "destination": row},
        )

    def has_test_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may send a test."""
        row = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, row)

    def has_rotate_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may rotate the secret; e-mail addresses have none."""
        row = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, row) and (row is None or row.kind == DestinationKind.WEBHOOK)

    @button("Send test", url_path="test", permissions=["test"], icon="send")
    def send_test(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Send a test message after confirmation, and show its result."""
        row = self.get_object(request, object_id)
        back = reverse("admin:tools_app_alertdestination_change", args=[row.pk])
        if request.method != "POST":
            page = {"title": "Send a test message?", "destinations": [row], "back": back, "opts": self.opts}
            context = {**self.admin_site.each_context(request), **page}
            return TemplateResponse(request, "alerts/test.html", context)
        send_tests(request, [row])
        return HttpResponseRedirect(back)

    @button("Rotate secret", url_path="rotate", permissions=["rotate"], icon="autorenew")
    def rotate_secret(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Replace the secret of a webhook after confirmation, and show the new one once."""
        row = self.get_object(request, object_id)
        if request.method != "POST":
            page = {"title": "Rotate the secret?", "destination": row, "opts": self.opts}
            context = {**self.admin_site.each_context(request), **page}
            return TemplateResponse(request, "alerts/rotate.html", context)
        with change_log_transaction():
            # Read again: the secret that another request has just made must go on signing.
            row = self.get_object(request, object_id)
            secret = destinations.rotate_secret(row)
        return self._to_issued(request, row, secret)

    @column("address")
    def address(self, row: AlertDestination) -> SafeString:
        return narrow(row.email or netloc_of(row.url))

    @column("status")
    def status(self, row: AlertDestination) -> SafeString:
        if not row.enabled:
            return badge(row.disabled_reason or "Disabled", "warning")
        if row.kind == DestinationKind.EMAIL and not delivery.can_send_email():
            return badge(delivery.NO_MAIL, "danger")
        if row.kind == DestinationKind.WEBHOOK and not row.url:
            return badge(delivery.NO_URL, "danger")
        return badge("Enabled", "success")
