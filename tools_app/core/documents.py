"""Rows in files: what turns a serializer of the REST API into one that reads and writes a tenant's file."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, ClassVar


class Document:
    """Mixed into the serializer of a row: the row in a tenant's file, of `context["tenant"]` by `context["name"]`.

    A row in a file is complete: fields that are left out have the defaults of the model. `context["rows"]` has the
    rows that will exist, by section and name, of the sections that are read before; those of the file are not saved
    yet. `context["others"]` are the valid documents of the same section that stand before. When a row is saved,
    `context["by"]` is the person, None on the command line. `key` is the model field that has the name. An export
    leaves out the fields in `hidden`. Rows that others refer to are `deleted_last`.
    """

    key: ClassVar[str] = "name"
    hidden: tuple[str, ...] = ()
    deleted_last = False
    Meta: Any
    fields: Any
    instance: Any
    initial_data: Any
    validated_data: Any
    # The name of the row, and who imports the file.
    row_name = ""
    by: Any = None
    # The row as the file describes it, not saved.
    row: Any = None

    @property
    def context(self: Any) -> dict[str, Any]:
        """The context, with the name of the row and the person."""
        return {**super().context, "name": self.row_name, "by": self.by}  # type: ignore[misc]

    def of_row(self, name: str, old: Any, data: Any) -> Any:
        """Return the document of one row, new if `old` is None. All rows share their fields, which are slow to make."""
        assert self.fields is not None
        document = copy(self)
        document.row_name, document.instance, document.initial_data = name, old, data
        return document

    @classmethod
    def rows(cls, tenant: Any) -> Any:
        """Return the rows of a tenant that a file describes, with the rows that they refer to."""
        model = cls.Meta.model
        others = (field.name for field in model._meta.many_to_many)
        return model._default_manager.filter(tenant=tenant).prefetch_related(*others)

    @classmethod
    def left_out(cls, tenant: Any) -> list[str]:  # noqa: ARG003 - for those that leave rows out
        """Return the names of rows that a file cannot describe, because several have the name."""
        return []

    @classmethod
    def taken_names(cls, tenant: Any, names: Iterable[str]) -> Iterator[tuple[str, str]]:  # noqa: ARG003 - for overrides
        """Yield those of the names that new rows cannot have, and why."""
        yield from ()

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

    def described_row(self: Any, row: Any) -> dict[str, Any]:
        """Return what a file says of a stored row."""
        unusual: dict[str, Any] = self.unusual(self.to_representation(row))
        return unusual

    def run_validation(self: Any, data: Any) -> Any:
        """Return the validated values, with defaults. Raises ValidationError."""
        fields = [field for field in self.Meta.model._meta.get_fields() if field.name in self.fields]
        defaults = {field.name: self.default_of(field.name) for field in fields if field.has_default() or field.blank}
        return super().run_validation({**defaults, **data})  # type: ignore[misc]

    def drafted(self: Any, attrs: Mapping[str, Any]) -> Any:
        """Return the row with these values, not saved."""
        self.row = super().drafted(attrs)  # type: ignore[misc]
        self.row.tenant = self.context["tenant"]
        setattr(self.row, self.key, self.row_name)
        return self.row

    def create(self: Any, validated_data: dict[str, Any]) -> Any:
        """Save a new row of the tenant."""
        named = {"tenant": self.context["tenant"], self.key: self.row_name}
        return super().create({**validated_data, **named})  # type: ignore[misc]

    def described(self) -> dict[str, Any]:
        """Return what the file says of the row once it is saved."""
        return self.unusual(self.validated_data)

    def place_of(self, field: str) -> tuple[str, ...]:
        """Return where in the row of the file a field of the serializer is."""
        return (field,)

    def hidden_changes(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return what a preview shows of the hidden fields, before and after."""
        return {}, {}

    def can_apply(self) -> bool:
        """Whether an import creates or changes the row; if not, `note` says why."""
        return True

    def note(self, plan: Any) -> None:
        """Note in the plan of an import what people have to do after it."""

    def why_not_deleted(self) -> str:
        """Return why the row cannot be deleted; "" if it can."""
        return ""

    def delete(self) -> None:
        """Delete the row."""
        self.instance.delete()
