"""A tenant's configuration as a file: in the same order every time, so that two files can be compared."""

from typing import Any, Final

import msgspec
import yaml

from tools_app.blueprints.blueprint import FORMAT
from tools_app.blueprints.fields import SECTIONS, TENANT_FIELDS, Row, Section, Source, default_of
from tools_app.execution.kinds import http
from tools_app.models import Prompt, Resource, Tenant, Tool

HEADER: Final = """\
# The configuration of the tenant {slug} of an mcphub.
# Preview and apply it with: python manage.py import_tenant SLUG FILE
# Secrets are named, their values are not in here. Keys and members are not in here either.
# A row is all that is written of it: what is left out of it has its default.
"""
WIDTH: Final = 110
# Of a request, these are written even where they are as they would be anyway.
REQUEST_ALWAYS: Final = ("method", "base_url")


# What YAML takes for the end of a line, too: a text keeps it only between double quotation marks.
OTHER_BREAKS: Final = frozenset("\x85\u2028\u2029")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, and everything in full wherever it stands."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - what it is asked about makes no difference
        """Never refer to another place."""
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if OTHER_BREAKS & set(text) else style)


_Dumper.add_representer(str, _text)


def export(tenant: Tenant) -> str:
    """The configuration of a tenant as YAML."""
    text = yaml.dump(
        described(tenant), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=WIDTH
    )
    return HEADER.format(slug=tenant.slug) + text


def described(tenant: Tenant) -> dict[str, Any]:
    """The configuration of a tenant as values."""
    return {
        "mcphub": FORMAT,
        "tenant": settings_of(tenant),
        "secrets": list(tenant.secrets.order_by("name").values_list("name", flat=True)),
        **{section.name: described_rows(section, tenant) for section in SECTIONS},
    }


def settings_of(tenant: Tenant) -> Row:
    """The settings of a tenant, every one of them."""
    return {name: getattr(tenant, name) for name in TENANT_FIELDS}


def described_rows(section: Section, tenant: Tenant) -> dict[str, Row]:
    """The rows of a section by their names, in the order of these."""
    rows = section.model._default_manager.filter(tenant=tenant)
    found = {getattr(row, section.key): described_row(section, row) for row in rows}
    # Databases differ in how they order texts.
    return {name: found[name] for name in sorted(found)}


def described_row(section: Section, row: Tool | Resource | Prompt) -> Row:
    """What a file says of a row: all that is not as it would be anyway, with its source at the end."""
    source = next(source for source in section.sources if source.kind == row.kind)
    fields = {name: getattr(row, name) for name in source.others}
    told = {name: value for name, value in fields.items() if value != default_of(section.model, name)}
    return {**told, source.field: _sourced(source, row)}


def _sourced(source: Source, row: Tool | Resource | Prompt) -> Any:
    value = getattr(row, source.stored)
    match source.field:
        case "function":
            return value.get("function", "")
        case "request":
            return told_request(value)
        case "file":
            return bytes(value)
    return value


def told_request(config: Row) -> Row:
    """A request without what is as it would be anyway; one that is wrong as it is."""
    try:
        parsed = http.parse_config(config)
    except http.ConfigProblem:
        return dict(config)
    full, plain = msgspec.to_builtins(parsed), msgspec.to_builtins(http.HttpConfig())
    return {name: value for name, value in full.items() if name in REQUEST_ALWAYS or value != plain[name]}
