"""The base of what the API takes and gives: rows as JSON, whose fields are all checked and none of which is unknown."""

from collections.abc import Mapping
from typing import Any

from django.db import models
from rest_framework import serializers
from rest_framework.exceptions import NotFound, PermissionDenied

from tools_app.api.v1 import fields
from tools_app.auth.reach import Reach
from tools_app.models import Tenant
from tools_app.models.reading import related

FIXED = "This cannot be changed: make another one."
UNKNOWN = "There is no such field."


class Strict(serializers.Serializer):
    """Refuses fields that it does not know: a misspelled one would be lost without a word.

    What is only read may be sent back, as a client does that changes what it has read. It is not looked at.
    """

    def to_internal_value(self, data: Any) -> Any:
        """The checked values. Raises ValidationError."""
        if isinstance(data, Mapping):
            unknown = {str(name): [UNKNOWN] for name in data if name not in self.fields}
            if unknown:
                raise serializers.ValidationError(unknown)
        return super().to_internal_value(data)


class Row(Strict, serializers.ModelSerializer):
    """A row of a table. `Meta.fixed` names fields that are written once."""

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
    }
    serializer_choice_field = fields.Choice

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Constraints of several fields are checked where their messages can name the field.
        self.validators: list[Any] = []

    @property
    def reach(self) -> Reach:
        """What the person behind the request may see and change."""
        reach: Reach = self.context["view"].reach
        return reach

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Keep what is fixed. Raises ValidationError."""
        if self.instance is not None:
            fixed = getattr(self.Meta, "fixed", ())
            moved = {name: [FIXED] for name in fixed if name in attrs and attrs[name] != getattr(self.instance, name)}
            if moved:
                raise serializers.ValidationError(moved)
        return attrs

    def drafted(self, attrs: Mapping[str, Any]) -> Any:
        """The row as it would be, not saved."""
        row = self.Meta.model()
        if self.instance is not None:
            for field in self.instance._meta.concrete_fields:
                setattr(row, field.attname, getattr(self.instance, field.attname))
            row._state.adding = False  # noqa: SLF001 - its own constraints ask
        for name, value in attrs.items():
            setattr(row, name, value)
        return row


class TenantField(serializers.SlugRelatedField):
    """The tenant of a row, by its slug. Of those that a person sees; it must run the one that it adds a row to."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("help_text", "The slug of its tenant.")
        if not options.get("read_only"):
            options.setdefault("queryset", Tenant.objects.all())
        super().__init__(slug_field="slug", **options)

    def to_internal_value(self, data: Any) -> Tenant:
        """The tenant. Raises NotFound for one that is not seen, PermissionDenied for one that is not run."""
        if not isinstance(data, str):
            self.fail("invalid")
        reach: Reach = self.context["view"].reach
        tenant: Tenant | None = self.get_queryset().filter(slug=data).first()
        if tenant is None or not reach.sees(tenant.pk):
            raise NotFound("There is no tenant of this slug, or none that you may see.")
        if not reach.changes(tenant.pk):
            raise PermissionDenied("Only this tenant's admins change what belongs to it.")
        return tenant


class TenantOfRecord(serializers.SlugRelatedField):
    """The tenant of a record, which may be gone: then it is null."""

    def __init__(self, **options: Any) -> None:
        super().__init__(slug_field="slug", read_only=True, allow_null=True, **options)

    def get_attribute(self, instance: Any) -> Any:
        """The tenant, or None."""
        return related(instance, "tenant")


class PersonField(serializers.SlugRelatedField):
    """A person, by its user name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(slug_field="username", read_only=True, **options)
