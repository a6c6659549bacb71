"""A tenant's configuration file: parsed, and validated as far as possible without a tenant."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from django.db import models

from tools_app.core.yaml_events import YamlError
from tools_app.models import Tenant
from tools_app.tenant_config.reader import Path, dotted, parse
from tools_app.tenant_config.sections import SECTIONS, Row

FORMAT: Final = 1
PARTS: Final = ("mcphub", "tenant", "secrets", *(section.name for section in SECTIONS))
# All fields of the tenant's admin pages. The slug is left out: clients know the tenant by it, and it does not change.
TENANT_FIELDS: Final = tuple(
    field.name for field in Tenant._meta.concrete_fields if field.editable and field.name != "slug"
)


@dataclass(frozen=True)
class Problem:
    """A problem, and its place in the file."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


class InvalidConfiguration(ValueError):
    """The file is not a valid configuration; lists all problems."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True)
class Configuration:
    """The contents of a configuration file. A section that is absent from the file is None."""

    tenant: Row = field(default_factory=dict)
    secrets: list[str] | None = None
    sections: Mapping[str, Mapping[str, Row] | None] = field(default_factory=dict)


def read(text: str) -> Configuration:
    """Return the configuration in a YAML text. Raises InvalidConfiguration."""
    try:
        value = parse(text)
    except YamlError as error:
        raise InvalidConfiguration([Problem((), str(error))]) from error
    problems = list(_faults(value))
    if problems:
        raise InvalidConfiguration(problems)
    return Configuration(
        tenant=value.get("tenant") or {},
        secrets=value.get("secrets"),
        sections={section.name: value.get(section.name) for section in SECTIONS},
    )


def _faults(value: Any) -> Iterator[Problem]:
    if not isinstance(value, dict) or value.get("mcphub") != FORMAT:
        yield Problem((), f"The file is not a configuration for this hub. It must start with `mcphub: {FORMAT}`.")
        return
    yield from _unknown(value, PARTS, ())
    yield from _tenant_faults(value.get("tenant"))
    secrets = value.get("secrets")
    if secrets is not None and not (isinstance(secrets, list) and all(isinstance(name, str) for name in secrets)):
        yield Problem(("secrets",), "must be a list of names.")
    for section in SECTIONS:
        rows = value.get(section.name)
        if rows is not None and (not isinstance(rows, dict) or len(rows) > section.most):
            message = f"must be an object of at most {section.most} {section.words} by their {section.serializer.key}s."
            yield Problem((section.name,), message)
        elif rows is not None:
            for name, row in rows.items():
                if not isinstance(row, dict):
                    yield Problem((section.name, name), "must be an object with its fields.")
                # The contents of a file are bytes.
                elif not _is_json({field: held for field, held in row.items() if not isinstance(held, bytes)}):
                    yield Problem((section.name, name), "has a value that is not JSON.")


def _tenant_faults(settings: Any) -> Iterator[Problem]:
    if settings is None:
        return
    if not isinstance(settings, dict):
        yield Problem(("tenant",), "must be an object with the tenant's settings.")
        return
    yield from _unknown(settings, TENANT_FIELDS, ("tenant",))
    for name in TENANT_FIELDS:
        if name in settings and (fault := _type_fault(name, settings[name])):
            yield Problem(("tenant", name), fault)


def _type_fault(name: str, value: Any) -> str | None:
    """Return what is wrong with the type of a setting's value, before the model validates the value itself."""
    field = Tenant._meta.get_field(name)
    assert isinstance(field, models.Field)
    if value is None and field.null:
        return None
    expected: Any
    match field:
        case models.BooleanField():
            expected, message = bool, "Must be true or false."
        case models.IntegerField():
            expected, message = int, "Must be a whole number."
        case models.JSONField():
            expected, message = (list, "Must be a list.") if field.get_default() == [] else (dict, "Must be an object.")
        case _:
            expected, message = str, "Must be a string. Use quotes if YAML reads it as another type."
    if isinstance(value, expected) and isinstance(value, bool) == (expected is bool) and _is_json(value):
        return None
    return message + (" Remove the field for no value." if field.null else "")


def _is_json(value: Any) -> bool:
    """Whether JSON can represent this value: it cannot represent bytes."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _unknown(given: Mapping[str, Any], known: tuple[str, ...], path: Path) -> Iterator[Problem]:
    for name in given:
        if name not in known:
            yield Problem((*path, name), f"unknown field. Known fields: {', '.join(known)}.")
