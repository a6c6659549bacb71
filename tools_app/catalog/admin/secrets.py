"""Secrets: write-only values."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminPasswordWidget

from tools_app.catalog import authoring
from tools_app.catalog.validation.sizes import MAX_SECRET_LENGTH
from tools_app.models import Secret
from tools_app.web.admin.columns import cut_column, full_moment, moment_column
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter
from tools_app.web.admin.site import site


class SecretForm(forms.ModelForm):  # type: ignore[type-arg]
    """Accepts a value and never displays one, including the value just entered."""

    value = forms.CharField(
        strip=False,
        max_length=MAX_SECRET_LENGTH,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "off"}, render_value=False),
        help_text="It is encrypted and cannot be read back. A new value replaces the stored one.",
    )

    # See ConflictForm.
    WRITE_ONLY: ClassVar = {"value": "ciphertext"}

    class Meta:
        model = Secret
        fields = ("tenant", "name", "value")


UPDATED = full_moment("updated_at", "updated")


@admin.register(Secret, site=site)
class SecretAdmin(ScopedAdmin):
    """Secrets of the user's tenants."""

    form = SecretForm
    list_display = (
        cut_column("name", "name"),
        "tenant",
        moment_column("updated_at", "updated"),
        moment_column("created_at", "created"),
    )
    list_filter = (TenantFilter,)
    list_select_related = ("tenant",)
    search_fields = ("name",)
    empty_hint = "Requests of tools, resources and upstreams name a secret as {secret:NAME}. Its value is encrypted."

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return the fields, without the write-only value for auditors."""
        fields = ["tenant", "name"]
        return [*fields, "value"] if self.has_change_permission(request, obj) else [*fields, UPDATED]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Make the name read-only: it is bound into the encryption."""
        fixed = [*super().get_readonly_fields(request, obj), UPDATED]
        return [*fixed, "name"] if obj else fixed

    def save_model(self, request: HttpRequest, obj: Secret, form: Any, change: bool) -> None:
        obj.pk = authoring.set_secret(obj.tenant, obj.name, form.cleaned_data["value"]).pk

    def delete_model(self, request: HttpRequest, obj: Secret) -> None:
        authoring.delete_secret(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Secret]) -> None:
        for secret in queryset:
            authoring.delete_secret(secret)
