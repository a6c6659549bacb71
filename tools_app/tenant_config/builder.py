"""Unsaved rows built from a file, and their validation."""

from collections.abc import Iterator

from django.core.exceptions import ValidationError

from tools_app.models import Tenant
from tools_app.tenant_config import upstreams
from tools_app.tenant_config.document import Problem
from tools_app.tenant_config.fields import TENANT_FIELDS, Plain, Row, Section, default_of
from tools_app.tenant_config.reader import Path


def build(section: Section, name: str, row: Row, into: Plain) -> Plain:
    """Write a row of the file into a model instance: a new one, or the one of this name. Does not save it."""
    setattr(into, section.key, name)
    for field in section.fields:
        setattr(into, field, row[field] if field in row else default_of(section.model, field))
    return into


def faults_of(section: Section, row: Plain, path: Path) -> Iterator[Problem]:
    """Yield the problems of a built row, with their places in the file."""
    checked = {section.key, *section.fields}
    try:
        row.clean_fields(exclude={field.name for field in row._meta.concrete_fields} - checked)
    except ValidationError as problem:
        for field, messages in problem.message_dict.items():
            place = path if field == section.key else (*path, field)
            yield from (Problem(place, message) for message in messages)
    yield from upstreams.faults_of(row, path)


def tenant_faults(tenant: Tenant) -> Iterator[Problem]:
    """Yield the problems of a tenant's settings."""
    try:
        tenant.clean_fields(exclude={field.name for field in tenant._meta.concrete_fields} - {*TENANT_FIELDS})
    except ValidationError as problem:
        for field, messages in problem.message_dict.items():
            yield from (Problem(("tenant", field), message) for message in messages)
