"""A tenant's configuration file: parsed, and validated as far as possible without a tenant."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tools_app.core.yaml_events import YamlError
from tools_app.models import Tenant
from tools_app.tenant_config.fields import (
    DOCUMENT_SECTIONS,
    SECTIONS,
    TENANT_FIELDS,
    DocumentSection,
    Row,
    Section,
    Source,
    is_json,
    type_fault,
)
from tools_app.tenant_config.reader import Path, dotted, parse

FORMAT: Final = 1
PARTS: Final = (
    "mcphub",
    "tenant",
    "secrets",
    *(section.name for section in SECTIONS),
    *(section.name for section in DOCUMENT_SECTIONS),
)
BY_NAME: Final = PARTS[3:]


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
    except YamlError as problem:
        raise InvalidConfiguration([Problem((), str(problem))]) from problem
    problems = list(_faults(value))
    if problems:
        raise InvalidConfiguration(problems)
    return Configuration(
        tenant=value.get("tenant") or {},
        secrets=value.get("secrets"),
        sections={name: value.get(name) for name in BY_NAME},
    )


def source_of(section: Section, row: Row) -> Source | None:
    """Return the source of a row, or None."""
    found = [source for source in section.sources if source.field in row]
    return found[0] if len(found) == 1 else None


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
        yield from _section_faults(section, value.get(section.name))
    for documents in DOCUMENT_SECTIONS:
        yield from _document_faults(documents, value.get(documents.name))


def _tenant_faults(settings: Any) -> Iterator[Problem]:
    if settings is None:
        return
    if not isinstance(settings, dict):
        yield Problem(("tenant",), "must be an object with the tenant's settings.")
        return
    yield from _unknown(settings, TENANT_FIELDS, ("tenant",))
    for name in TENANT_FIELDS:
        if name in settings and (fault := type_fault(Tenant, name, settings[name])):
            yield Problem(("tenant", name), fault)


def _section_faults(section: Section, rows: Any) -> Iterator[Problem]:
    if rows is None:
        return
    if not isinstance(rows, dict) or len(rows) > section.most:
        wanted = f"must be an object of at most {section.most} {section.name} by their {section.key}s."
        yield Problem((section.name,), wanted)
        return
    for name, row in rows.items():
        yield from _row_faults(section, row, (section.name, name))


def _row_faults(section: Section, row: Any, path: Path) -> Iterator[Problem]:
    if not isinstance(row, dict):
        yield Problem(path, "must be an object with its fields.")
        return
    if not section.sources:
        yield from _unknown(row, section.fields, path)
        yield from _type_faults(section, row, section.fields, path)
        return
    source = source_of(section, row)
    if source is None:
        one_of = ", ".join(source.field for source in section.sources)
        yield Problem(path, f"must have exactly one of {one_of}.")
        return
    yield from _unknown(row, (source.field, *source.others), path)
    value = row[source.field]
    if not isinstance(value, source.type) or not (source.type is bytes or is_json(value)):
        yield Problem((*path, source.field), source.wanted)
    yield from _type_faults(section, row, source.others, path)


def _type_faults(section: Section, row: Row, names: tuple[str, ...], path: Path) -> Iterator[Problem]:
    for name in names:
        if name in row and (fault := type_fault(section.model, name, row[name])):
            yield Problem((*path, name), fault)


def _document_faults(section: DocumentSection, rows: Any) -> Iterator[Problem]:
    if rows is None:
        return
    if not isinstance(rows, dict) or len(rows) > section.most:
        yield Problem((section.name,), f"must be an object of at most {section.most} {section.words} by their names.")
        return
    for name, row in rows.items():
        if not isinstance(row, dict):
            yield Problem((section.name, name), "must be an object with its fields.")
        elif not is_json(row):
            yield Problem((section.name, name), "has a value that is not JSON.")


def _unknown(given: Mapping[str, Any], known: tuple[str, ...], path: Path) -> Iterator[Problem]:
    for name in given:
        if name not in known:
            yield Problem((*path, name), f"unknown field. Known fields: {', '.join(known)}.")
