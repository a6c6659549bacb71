"""Rows in files: what turns a serializer of the REST API into one that reads and writes a tenant's file."""

from collections.abc import Mapping
from typing import Any


class Document:
    """Mixed into the serializer of a row: the row in a tenant's file, of `context["tenant"]` by `context["name"]`.

    A row in a file is complete: fields that are left out have the defaults of the model. `context["names"]` has the
    names of rows that will exist, by the sections that are read before. An export leaves out the fields in `hidden`.
    """

    hidden: tuple[str, ...] = ()
    Meta: Any
    fields: Any
    instance: Any
    context: Any
    validated_data: Any

    @classmethod
    def default_of(cls, name: str) -> Any:
        """Return the value of a field that a file leaves out."""
        field = cls.Meta.model._meta.get_field(name)
        return [] if field.many_to_many else field.get_default()

    @classmethod
    def unusual(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the fields that a file has: they differ from their defaults, and are not hidden."""
        names = (name for name in cls.Meta.fields if name not in cls.hidden)
        return {name: values[name] for name in names if values[name] != cls.default_of(name)}

    def run_validation(self: Any, data: Any) -> Any:
        """Return the validated values, with defaults. Raises ValidationError."""
        fields = {name: self.Meta.model._meta.get_field(name) for name in self.fields}
        defaults = {name: self.default_of(name) for name, field in fields.items() if field.has_default() or field.blank}
        return super().run_validation({**defaults, **data})  # type: ignore[misc]

    def drafted(self: Any, attrs: Mapping[str, Any]) -> Any:
        """Return the row with these values, not saved."""
        row = super().drafted(attrs)  # type: ignore[misc]
        row.tenant, row.name = self.context["tenant"], self.context["name"]
        return row

    def create(self: Any, validated_data: dict[str, Any]) -> Any:
        """Save a new row of the tenant."""
        named = {"tenant": self.context["tenant"], "name": self.context["name"]}
        return super().create({**validated_data, **named})  # type: ignore[misc]

    def delete(self) -> None:
        """Delete the row."""
        self.instance.delete()

    def described(self) -> dict[str, Any]:
        """Return what the file says of the row once it is saved."""
        return self.unusual(self.validated_data)

    def hidden_changes(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return what a preview shows of the hidden fields, before and after."""
        return {}, {}

    def note(self, plan: Any) -> None:
        """Note in the plan of an import what people have to do after it."""
