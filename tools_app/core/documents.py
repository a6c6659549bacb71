"""Rows in files: what turns a serializer of the REST API into one that reads and writes a tenant's file."""

from collections.abc import Mapping
from typing import Any


class Document:
    """Mixed into the serializer of a row: the row in a tenant's file, of `context["tenant"]` by `context["name"]`.

    A row in a file is complete: fields that are left out have the defaults of the model. `context["names"]` has the
    names of rows that will exist, by the sections that are read before, and `context["others"]` the valid documents of
    the same section that stand before. When a row is saved, `context["by"]` is the person, None on the command line.
    `key` is the model field that has the name. An export leaves out the fields in `hidden`.
    """

    key: str = "name"
    hidden: tuple[str, ...] = ()
    Meta: Any
    fields: Any
    instance: Any
    context: Any
    validated_data: Any

    @classmethod
    def rows(cls, tenant: Any) -> Any:
        """Return the rows of a tenant, with the rows that they refer to."""
        others = (field.name for field in cls.Meta.model._meta.many_to_many)
        return cls.Meta.model._default_manager.filter(tenant=tenant).prefetch_related(*others)

    @classmethod
    def left_out(cls, tenant: Any) -> list[str]:  # noqa: ARG003 - for those that leave rows out
        """Return the names of rows that a file cannot describe, because several have the name."""
        return []

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
        fields = [field for field in self.Meta.model._meta.get_fields() if field.name in self.fields]
        defaults = {field.name: self.default_of(field.name) for field in fields if field.has_default() or field.blank}
        return super().run_validation({**defaults, **data})  # type: ignore[misc]

    def drafted(self: Any, attrs: Mapping[str, Any]) -> Any:
        """Return the row with these values, not saved."""
        row = super().drafted(attrs)  # type: ignore[misc]
        row.tenant = self.context["tenant"]
        setattr(row, self.key, self.context["name"])
        return row

    def create(self: Any, validated_data: dict[str, Any]) -> Any:
        """Save a new row of the tenant."""
        named = {"tenant": self.context["tenant"], self.key: self.context["name"]}
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

    def can_apply(self) -> bool:
        """Whether an import creates or changes the row; if not, `note` says why."""
        return True

    def note(self, plan: Any) -> None:
        """Note in the plan of an import what people have to do after it."""
