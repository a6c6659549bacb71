"""Unsaved rows built from a file, and their validation."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from django.core.exceptions import ValidationError

from tools_app.catalog import toolsets
from tools_app.catalog.kinds.http import runner as http
from tools_app.catalog.kinds.openapi.sources.settings import source_faults
from tools_app.catalog.validation.items import Faults, prompt_faults, resource_faults, tool_faults
from tools_app.catalog.validation.mime_types import mime_type_of
from tools_app.models import (
    ApiSource,
    Prompt,
    Resource,
    Tenant,
    Tool,
    Upstream,
)
from tools_app.tenant_config import operations, upstreams
from tools_app.tenant_config.document import Problem, source_of
from tools_app.tenant_config.fields import TENANT_FIELDS, Offer, Plain, Row, Section, Source, default_of
from tools_app.tenant_config.reader import Path


def build(section: Section, name: str, row: Row, into: Offer, sources: Mapping[str, ApiSource]) -> Offer:
    """Write a row of the file into a model instance: a new one, or the one of this name. Does not save it.

    `sources` are the API sources of the tenant and of the file, by name.
    """
    if isinstance(into, Plain):
        setattr(into, section.key, name)
        for field in section.fields:
            setattr(into, field, row[field] if field in row else default_of(section.model, field))
        return into
    source = source_of(section, row)
    assert source is not None, "the reader has seen to it"
    setattr(into, section.key, name)
    into.kind = source.kind
    for other in section.sources:
        setattr(into, other.stored, default_of(section.model, other.stored))
    for field in source.others:
        setattr(into, field, row[field] if field in row else default_of(section.model, field))
    setattr(into, source.stored, _stored(source, row[source.field]))
    if isinstance(into, Tool) and source.field == "operation":
        operations.adopt(row[source.field], into, sources)
    elif isinstance(into, Tool):
        operations.forget(into)
    if isinstance(into, Resource):
        into.mime_type = mime_type_of(into)
    return into


def faults_of(section: Section, row: Offer, path: Path) -> Iterator[Problem]:
    """Yield the problems of a built row, with their places in the file."""
    if isinstance(row, Plain):
        yield from _field_faults(section, row, section.fields, path)
        if isinstance(row, Upstream):
            yield from upstreams.faults_of(row, path)
        else:
            try:
                toolsets.check_tools(row.tools)
            except ValidationError as problem:
                yield from (Problem(path, message) for message in problem.messages)
        return
    source = next(source for source in section.sources if source.kind == row.kind)
    yield from _field_faults(section, row, source.others, path)
    for field, messages in _faults(row).items():
        yield from (Problem((*path, *_place(field, source)), message) for message in messages)


def _field_faults(section: Section, row: Offer, fields: tuple[str, ...], path: Path) -> Iterator[Problem]:
    checked = {section.key, *fields}
    try:
        row.clean_fields(exclude={field.name for field in row._meta.concrete_fields} - checked)
    except ValidationError as problem:
        for field, messages in problem.message_dict.items():
            place = path if field == section.key else (*path, field)
            yield from (Problem(place, message) for message in messages)


def tenant_faults(tenant: Tenant) -> Iterator[Problem]:
    """Yield the problems of a tenant's settings."""
    try:
        tenant.clean_fields(exclude={field.name for field in tenant._meta.concrete_fields} - {*TENANT_FIELDS})
    except ValidationError as problem:
        for field, messages in problem.message_dict.items():
            yield from (Problem(("tenant", field), message) for message in messages)


def secrets_named_by(row: Offer) -> set[str]:
    """Return the names of the secrets that a row's request uses."""
    if isinstance(row, ApiSource):
        return {name for name in row.secrets.values() if isinstance(name, str)}
    if isinstance(row, Upstream):
        return upstreams.secrets_named_by(row)
    if isinstance(row, Plain) or row.kind != "http":
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


def _faults(row: ApiSource | Tool | Resource | Prompt) -> Faults:
    match row:
        case ApiSource():
            return source_faults(row)
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
