"""Common base of tools, resources and prompts in the API."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from tools_app.catalog import authoring
from tools_app.catalog.kinds.python.kind import code_faults
from tools_app.catalog.kinds.upstream.kind import upstream_faults
from tools_app.catalog.validation.sizes import MAX_DESCRIPTION_LENGTH
from tools_app.models import ResourceKind
from tools_app.web.api.fields import Text
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Row
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import Created, Deleted, IsTenantAdmin, ListMixin, Retrieved, ScopedView, Updated

Faults = Mapping[str, Iterable[str]]


class OfferRow(Row):
    """A row that a tenant offers to its clients. `named_by` is the field that identifies it, unique in a tenant."""

    named_by: ClassVar[str] = "name"

    description = Text(required=False, allow_blank=True, max_length=MAX_DESCRIPTION_LENGTH)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Validate the complete row. Raises ValidationError."""
        attrs = super().validate(attrs)
        row = self.drafted(attrs)
        row.clean()
        if faults := self.row_faults(row, attrs):
            raise serializers.ValidationError({name: list(messages) for name, messages in faults.items()})
        self._check_name(row)
        return attrs

    def row_faults(self, row: Any, given: dict[str, Any]) -> Faults:
        """Return the problems of a resource or prompt and of the request, by field."""
        match row.kind:
            case ResourceKind.PYTHON:
                return code_faults(row, given, self.named_by, self.adopt)
            case ResourceKind.UPSTREAM:
                return upstream_faults(given, self.instance)
        return self.faults(row)

    def adopt(self, row: Any) -> None:
        """Copy what the code declares into `row`. Raises python.UnknownFunction."""
        raise NotImplementedError

    def faults(self, row: Any) -> Faults:
        """Return the problems of a row written by an admin, by field."""
        raise NotImplementedError

    def _check_name(self, row: Any) -> None:
        """Raise Conflict if the tenant has another row of this name."""
        name = getattr(row, self.named_by)
        others = type(row)._default_manager.filter(tenant=row.tenant, **{self.named_by: name}).exclude(pk=row.pk)
        if others.exists():
            raise Conflict({self.named_by: [f"This tenant already has one with this {self.named_by}."]})


class OfferView(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Rows that a tenant offers to its clients. `catalog.authoring` writes them."""

    permission_classes = (HasMembership, IsTenantAdmin)

    def save(self, row: Any) -> Any:
        """Save the row."""
        raise NotImplementedError

    def add(self, wanted: serializers.BaseSerializer) -> Any:
        """Save a new row."""
        return self.save(self.queryset.model(**wanted.validated_data))

    def change(self, wanted: serializers.BaseSerializer) -> Any:
        """Save the changed row."""
        row = wanted.instance
        for name, value in wanted.validated_data.items():
            setattr(row, name, value)
        return self.save(row)

    def remove(self, row: Any) -> None:
        """Delete the row. Recorded calls stay."""
        authoring.delete(row)
