"""Base classes of serializers: every field is validated, and unknown fields are rejected."""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError as InvalidRow
from django.db import models
from rest_framework import serializers
from rest_framework.exceptions import NotFound, PermissionDenied

from tools_app.core.relations import related
from tools_app.core.text_lists import TextListField
from tools_app.models import Tenant
from tools_app.tenants.models import MAX_SLUG_LENGTH
from tools_app.tenants.permissions import TenantPermissions
from tools_app.web.api import fields
from tools_app.web.api.problems import Conflict

FIXED = "This cannot be changed. Create another one."
UNKNOWN = "Unknown field."
NO_TENANT = "Tenant not found."


class Strict(serializers.Serializer):
    """Rejects unknown fields: a misspelled one would be ignored silently.

    Read-only fields are accepted and ignored, so that a client can send back what it has read.
    """

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated values. Raises ValidationError."""
        if isinstance(data, Mapping):
            unknown = {str(name): [UNKNOWN] for name in data if name not in self.fields}
            if unknown:
                raise serializers.ValidationError(unknown)
        return super().to_internal_value(data)


class Row(Strict, serializers.ModelSerializer):
    """A row of a table. `Meta.fixed` names fields that cannot be changed after creation."""

    serializer_field_mapping = {
        **serializers.ModelSerializer.serializer_field_mapping,
        models.CharField: fields.Text,
        models.TextField: fields.Text,
        models.EmailField: fields.Email,
        models.BooleanField: fields.Flag,
        models.PositiveIntegerField: fields.Whole,
        models.PositiveBigIntegerField: fields.Whole,
        models.FloatField: fields.Number,
        models.DateTimeField: fields.Moment,
        models.UUIDField: fields.Id,
        models.JSONField: fields.JsonObject,
        TextListField: fields.Texts,
    }
    serializer_choice_field = fields.Choice

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Constraints of several fields are checked where their messages can name the field.
        self.validators: list[Any] = []

    @property
    def tenant_permissions(self) -> TenantPermissions:
        """The permissions of the person who sends the request."""
        tenant_permissions: TenantPermissions = self.context["view"].tenant_permissions
        return tenant_permissions

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Keep fixed fields unchanged. Raises ValidationError."""
        if self.instance is not None:
            fixed = getattr(self.Meta, "fixed", ())
            moved = {name: [FIXED] for name in fixed if name in attrs and attrs[name] != getattr(self.instance, name)}
            if moved:
                raise serializers.ValidationError(moved)
        return attrs

    def update(self, instance: Any, validated_data: dict[str, Any]) -> Any:
        """Save the changed fields only, and return the row."""
        for name, value in validated_data.items():
            setattr(instance, name, value)
        if validated_data:
            instance.save(update_fields=list(validated_data))
        return instance

    def drafted(self, attrs: Mapping[str, Any]) -> Any:
        """Return the row with these values, not saved."""
        row = self.Meta.model()
        if self.instance is not None:
            for field in self.instance._meta.concrete_fields:
                setattr(row, field.attname, getattr(self.instance, field.attname))
            row._state.adding = False  # noqa: SLF001 - its own constraints ask
        for name, value in attrs.items():
            setattr(row, name, value)
        return row


class NamedRow(Row):
    """A row of which a tenant has one by each name.

    `Meta.named` is the field of the name, `Meta.kind` what the row is, as in "toolset with" this name, and
    `Meta.checked` the field that `check` checks.
    """

    def check(self, row: Any) -> None:
        """Check the drafted row, and normalize its name. Raises django.core.exceptions.ValidationError."""
        raise NotImplementedError

    def check_room(self, tenant: Tenant) -> None:
        """Raise django.core.exceptions.ValidationError if a tenant has as many of these as it may have."""
        raise NotImplementedError

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject invalid values, a row too many, and a name that exists. Raises ValidationError and Conflict."""
        attrs = super().validate(attrs)
        row, meta = self.drafted(attrs), self.Meta
        try:
            self.check(row)
            if self.instance is None:
                self.check_room(row.tenant)
        except InvalidRow as error:
            raise serializers.ValidationError({meta.checked: error.messages}) from error
        name = getattr(row, meta.named)
        if meta.named in attrs:
            attrs[meta.named] = name
        if meta.model._default_manager.filter(tenant=row.tenant, **{meta.named: name}).exclude(pk=row.pk).exists():
            message = f"This tenant already has a {meta.kind} this {meta.named}. Change that one."
            raise Conflict({meta.named: [message]})
        return attrs


class TenantField(serializers.SlugRelatedField):
    """The tenant of a row, by slug, among those that a person may read. Adding a row requires its admin role."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("help_text", "Slug of the tenant.")
        if not options.get("read_only"):
            options.setdefault("queryset", Tenant.objects.all())
        super().__init__(slug_field="slug", **options)

    def run_validation(self, data: Any = serializers.empty) -> Any:
        """Return the tenant. An empty text is no slug, where DRF takes it for null: the whole hub."""
        if data == "":
            self.fail("invalid")
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> Tenant:
        """Return the tenant. Raises NotFound if it is not visible, PermissionDenied if the person is not its admin."""
        if not isinstance(data, str):
            self.fail("invalid")
        if len(data) > MAX_SLUG_LENGTH:
            raise NotFound(NO_TENANT)
        tenant_permissions: TenantPermissions = self.context["view"].tenant_permissions
        tenant: Tenant | None = self.get_queryset().filter(slug=data).first()
        if tenant is None or not tenant_permissions.sees(tenant.pk):
            raise NotFound(NO_TENANT)
        if not tenant_permissions.changes(tenant.pk):
            raise PermissionDenied("Only admins of this tenant can change this.")
        return tenant


class TenantOfRecord(serializers.SlugRelatedField):
    """The tenant of a record; null if the tenant was deleted."""

    def __init__(self, **options: Any) -> None:
        super().__init__(slug_field="slug", read_only=True, allow_null=True, **options)

    def get_attribute(self, instance: Any) -> Any:
        """Return the tenant, or None."""
        return related(instance, "tenant")


class PersonField(serializers.SlugRelatedField):
    """A person, by username."""

    def __init__(self, **options: Any) -> None:
        super().__init__(slug_field="username", read_only=True, **options)
