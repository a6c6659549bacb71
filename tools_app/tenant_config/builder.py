"""Unsaved rows built from a file, and their validation."""

from collections.abc import Iterator
from typing import Any

import msgspec
from django.core.exceptions import ValidationError

from tools_app.catalog.kinds import http
from tools_app.catalog.validation.items import Faults, prompt_faults, resource_faults, tool_faults
from tools_app.catalog.validation.mime_types import mime_type_of
from tools_app.models import Prompt, Resource, Tenant, Tool
from tools_app.tenant_config.document import Problem, source_of
from tools_app.tenant_config.fields import TENANT_FIELDS, Row, Section, Source, default_of
from tools_app.tenant_config.reader import Path

Offer = Tool | Resource | Prompt


def build(section: Section, name: str, row: Row, into: Offer) -> Offer:
    """Write a row of the file into a model instance: a new one, or the one of this name. Does not save it."""
    source = source_of(section, row)
    assert source is not None, "the reader has seen to it"
    setattr(into, section.key, name)
    into.kind = source.kind
    for other in section.sources:
        setattr(into, other.stored, default_of(section.model, other.stored))
    for field in source.others:
        setattr(into, field, row[field] if field in row else default_of(section.model, field))
    setattr(into, source.stored, _stored(source, row[source.field]))
    if isinstance(into, Resource):
        into.mime_type = mime_type_of(into)
    return into


def faults_of(section: Section, row: Offer, path: Path) -> Iterator[Problem]:
    """Yield the problems of a built row, with their places in the file."""
    source = next(source for source in section.sources if source.kind == row.kind)
    checked = {section.key, *source.others}
    try:
        row.clean_fields(exclude={field.name for field in row._meta.concrete_fields} - checked)
    except ValidationError as problem:
        for field, messages in problem.message_dict.items():
            place = path if field == section.key else (*path, field)
            yield from (Problem(place, message) for message in messages)
    for field, told in _faults(row).items():
        yield from (Problem((*path, *_place(field, source)), message) for message in told)


def tenant_faults(tenant: Tenant) -> Iterator[Problem]:
    """Yield the problems of a tenant's settings."""
    try:
        tenant.clean_fields(exclude={field.name for field in tenant._meta.concrete_fields} - {*TENANT_FIELDS})
    except ValidationError as problem:
        for field, messages in problem.message_dict.items():
            yield from (Problem(("tenant", field), message) for message in messages)


def secrets_named_by(row: Offer) -> set[str]:
    """Return the names of the secrets that a row's request uses."""
    if row.kind != "http":
        return set()
    try:
        return http.secret_names(http.parse_config(row.config))
    except http.ConfigProblem:
        return set()


def _stored(source: Source, value: Any) -> Any:
    match source.field:
        case "function":
            return {"function": value}
        case "request":
            return _request(value)
    return value


def _request(config: Row) -> Row:
    """Return a request with all its fields, as a tool's form stores it; an invalid one is returned unchanged."""
    try:
        full: Row = msgspec.to_builtins(http.parse_config(config))
    except http.ConfigProblem:
        return dict(config)
    return full


def _faults(row: Offer) -> Faults:
    match row:
        case Tool():
            return tool_faults(row)
        case Resource():
            return resource_faults(row)
    return prompt_faults(row)


def _place(field: str, source: Source) -> Path:
    """Return the path in a row of the file for a field name of the model's validation."""
    first, _, rest = field.partition(".")
    if first == "config":
        return (source.field, rest) if rest else (source.field,)
    return (first,)
