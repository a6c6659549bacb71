"""Common base of tools, resources and prompts in the API."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from tools_app.catalog import authoring
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.revisions import LIMITS
from tools_app.catalog.validation.sizes import MAX_DESCRIPTION_LENGTH
from tools_app.models import ToolKind
from tools_app.web.api.fields import Text
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Row
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import Created, Deleted, IsTenantAdmin, ListMixin, Retrieved, ScopedView, Updated

# Tools, resources and prompts that come from code share the name of their kind.
PYTHON = ToolKind.PYTHON.value
IN_CODE = "Declared by the function's code. Remove this field."
UNKNOWN_FUNCTION = {"config": ['Must be {"function": "NAME"} with the name of a registered function.']}

UPSTREAM_ADDS = "Add the upstream, and accept what it offers."
IN_UPSTREAM = "Defined by the upstream. Remove this field."
# What may be set for a row of an upstream.
OWN_FIELDS = frozenset({"enabled", "timeout_seconds", *LIMITS})

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
        match row.kind:
            case ToolKind.PYTHON:
                faults = self._code_faults(row, attrs)
            case ToolKind.UPSTREAM:
                faults = self._upstream_faults(attrs)
            case _:
                faults = self.faults(row)
        if faults:
            raise serializers.ValidationError({name: list(messages) for name, messages in faults.items()})
        self._check_name(row)
        return attrs

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

    def _upstream_faults(self, attrs: dict[str, Any]) -> Faults:
        """Return problems of a row of an upstream: it is not created here, and its definition is accepted there."""
        if self.instance is None:
            return {"kind": [UPSTREAM_ADDS]}
        return {
            name: [IN_UPSTREAM]
            for name, value in attrs.items()
            if name not in OWN_FIELDS and getattr(self.instance, name) != value
        }

    def _code_faults(self, row: Any, attrs: dict[str, Any]) -> Faults:
        """Return problems of a row from code: an unknown function, and values that the code decides."""
        if not row.config:
            row.config = attrs["config"] = {"function": getattr(row, self.named_by)}
        if not isinstance(row.config.get("function", ""), str):
            return UNKNOWN_FUNCTION
        try:
            self.adopt(row)
        except python.UnknownFunction:
            return UNKNOWN_FUNCTION
        return {name: [IN_CODE] for name, value in attrs.items() if getattr(row, name) != value}


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
