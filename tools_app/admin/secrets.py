"""Secrets: written here, shown nowhere."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminPasswordWidget

from tools_app.admin.scoped import ScopedAdmin, TenantFilter
from tools_app.admin.site import site
from tools_app.execution import authoring
from tools_app.models import Secret


class SecretForm(forms.ModelForm):  # type: ignore[type-arg]
    """Takes a value and never gives one back, not even the one that was just typed."""

    value = forms.CharField(
        strip=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "off"}, render_value=False),
        help_text="Replaces what was stored before. It is encrypted and cannot be read again.",
    )

    class Meta:
        model = Secret
        fields = ("tenant", "name", "value")


@admin.register(Secret, site=site)
class SecretAdmin(ScopedAdmin):
    """Secrets of the tenants within reach."""

    form = SecretForm
    list_display = ("name", "tenant", "updated_at", "created_at")
    list_filter = (TenantFilter,)
    list_select_related = ("tenant",)
    search_fields = ("name",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """An auditor's page has no field for the value: there is nothing to read."""
        fields = ["tenant", "name"]
        return [*fields, "value"] if self.has_change_permission(request, obj) else [*fields, "updated_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """The name is bound into the encryption, so it stays."""
        fixed = super().get_readonly_fields(request, obj)
        return [*fixed, "name"] if obj else fixed

    def save_model(self, request: HttpRequest, obj: Secret, form: Any, change: bool) -> None:
        obj.pk = authoring.set_secret(obj.tenant, obj.name, form.cleaned_data["value"]).pk

    def delete_model(self, request: HttpRequest, obj: Secret) -> None:
        authoring.delete_secret(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Secret]) -> None:
        for secret in queryset:
            authoring.delete_secret(secret)
