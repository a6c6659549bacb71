"""What tools, resources and prompts have in common on the API."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from rest_framework import serializers

from tools_app.api.v1.entrance import Member
from tools_app.api.v1.problems import Conflict
from tools_app.api.v1.rows import Row
from tools_app.api.v1.scoped import Created, Deleted, Listed, Retrieved, Runs, ScopedView, Updated
from tools_app.execution import authoring
from tools_app.execution.kinds import python
from tools_app.models import ToolKind

# Tools, resources and prompts that come from code are of a kind of the same name.
PYTHON = ToolKind.PYTHON.value
IN_CODE = "The function's code declares this: leave it out."
UNKNOWN_FUNCTION = {"config": ['Write {"function": "NAME"}, with the name of one that an installed app registers.']}

Faults = Mapping[str, Iterable[str]]


class OfferRow(Row):
    """A row that a tenant offers to its clients. `named_by` is what its clients know it by, once in a tenant."""

    named_by: ClassVar[str] = "name"

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the row as it would be. Raises ValidationError."""
        attrs = super().validate(attrs)
        row = self.drafted(attrs)
        faults = self._code_faults(row, attrs) if row.kind == PYTHON else self.faults(row)
        if faults:
            raise serializers.ValidationError({name: list(messages) for name, messages in faults.items()})
        self._check_name(row)
        return attrs

    def adopt(self, row: Any) -> None:
        """Copy what the code declares into `row`. Raises python.UnknownFunction."""
        raise NotImplementedError

    def faults(self, row: Any) -> Faults:
        """What is wrong with a row that is written by an admin, by field."""
        raise NotImplementedError

    def _check_name(self, row: Any) -> None:
        """Raise Conflict if its tenant has another one of this name."""
        name = getattr(row, self.named_by)
        others = type(row)._default_manager.filter(tenant=row.tenant, **{self.named_by: name}).exclude(pk=row.pk)
        if others.exists():
            raise Conflict({self.named_by: [f"This tenant has another one of this {self.named_by}."]})

    def _code_faults(self, row: Any, attrs: dict[str, Any]) -> Faults:
        """A function that is not there, and values that its code decides."""
        if not row.config:
            row.config = attrs["config"] = {"function": getattr(row, self.named_by)}
        if not isinstance(row.config.get("function", ""), str):
            return UNKNOWN_FUNCTION
        try:
            self.adopt(row)
        except python.UnknownFunction:
            return UNKNOWN_FUNCTION
        return {name: [IN_CODE] for name, value in attrs.items() if getattr(row, name) != value}


class OfferView(Listed, Retrieved, Created, Updated, Deleted, ScopedView):
    """Rows that a tenant offers to its clients. All writing is `execution.authoring`'s."""

    permission_classes = (Member, Runs)

    def save(self, row: Any) -> Any:
        """Write the row."""
        raise NotImplementedError

    def add(self, wanted: serializers.BaseSerializer) -> Any:
        """Write a new row."""
        return self.save(self.queryset.model(**wanted.validated_data))

    def change(self, wanted: serializers.BaseSerializer) -> Any:
        """Write the row with what is wanted."""
        row = wanted.instance
        for name, value in wanted.validated_data.items():
            setattr(row, name, value)
        return self.save(row)

    def remove(self, row: Any) -> None:
        """Delete it. Recorded calls stay."""
        authoring.delete(row)
