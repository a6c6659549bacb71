"""Export of a tenant's configuration as a file, in a fixed order, so that two files can be compared."""

import json
from typing import Any, Final

import msgspec
import yaml
from django.db.models import QuerySet

from tools_app.catalog.kinds.http import runner as http
from tools_app.models import ApiSource, Prompt, Resource, Tenant, Tool, ToolKind
from tools_app.tenant_config import documents, operations
from tools_app.tenant_config.document import FORMAT
from tools_app.tenant_config.fields import (
    DOCUMENT_SECTIONS,
    SECTIONS,
    TENANT_FIELDS,
    Offer,
    Plain,
    Row,
    Section,
    Source,
    default_of,
)

# What was accepted of upstreams is not part of a file.
UPSTREAM: Final = ToolKind.UPSTREAM.value
HEADER: Final = """\
# The configuration of the tenant {slug} of an mcphub.
# Preview and apply it with: python manage.py import_tenant SLUG FILE
# Secrets are listed without their values. API keys, members, what upstreams offer, the URLs of webhooks and the secrets
# of issuers and service clients are not included.
# Fields that are left out of a row have their defaults.
"""
WIDTH: Final = 110
# Fields of a request that are written even if they have their defaults.
REQUEST_ALWAYS: Final = ("method", "base_url")


SHARED: Final = """\
# Left out, because several service clients have the same name: {names}. Rename all but one of each.
"""
MAX_SHARED: Final = 20

# Other line breaks of YAML: only a double-quoted string preserves them.
OTHER_BREAKS: Final = frozenset("\x85\u2028\u2029")


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # chosen at run time
    """Writes multi-line strings as blocks, and repeats values in full."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - what it is asked about makes no difference
        """Never write aliases."""
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    quoted = '"' if OTHER_BREAKS & set(text) else style
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=quoted)
    return node


_Dumper.add_representer(str, _text)


def export(tenant: Tenant) -> str:
    """Return the configuration of a tenant as YAML."""
    text = yaml.dump(
        described(tenant), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=WIDTH
    )
    shared = [name for section in DOCUMENT_SECTIONS for name in section.serializer.left_out(tenant)]
    # Escaped as JSON, which has no line breaks.
    names = ", ".join(map(json.dumps, shared[:MAX_SHARED])) + (", …" if len(shared) > MAX_SHARED else "")
    return HEADER.format(slug=tenant.slug) + (SHARED.format(names=names) if shared else "") + text


def described(tenant: Tenant) -> dict[str, Any]:
    """Return the configuration of a tenant as values."""
    return {
        "mcphub": FORMAT,
        "tenant": settings_of(tenant),
        "secrets": list(tenant.secrets.order_by("name").values_list("name", flat=True)),
        **{section.name: described_rows(section, tenant) for section in SECTIONS},
        **{section.name: documents.described_rows(section, tenant) for section in DOCUMENT_SECTIONS},
    }


def settings_of(tenant: Tenant) -> Row:
    """Return all settings of a tenant."""
    return {name: getattr(tenant, name) for name in TENANT_FIELDS}


def own_rows(section: Section, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return those of the rows of a section that a file describes: not those of upstreams."""
    return rows.exclude(kind=UPSTREAM) if section.model in (Tool, Resource, Prompt) else rows


def described_rows(section: Section, tenant: Tenant) -> dict[str, Row]:
    """Return the rows of a section by name, sorted by name."""
    # Only tools refer to another row.
    owned = Tool.objects.select_related("source") if section.model is Tool else section.model._default_manager.all()
    rows = own_rows(section, owned.filter(tenant=tenant))
    found = {getattr(row, section.key): described_row(section, row) for row in rows}
    # Databases differ in their sort order.
    return {name: found[name] for name in sorted(found)}


def described_row(section: Section, row: Offer) -> Row:
    """Return a row as a file describes it: all fields that differ from their defaults, its source last."""
    if isinstance(row, Plain):
        return _unusual(section, {name: getattr(row, name) for name in section.fields})
    source = next(source for source in section.sources if source.kind == row.kind)
    fields = {name: getattr(row, name) for name in source.others}
    return {**_unusual(section, fields), source.field: _sourced(source, row)}


def _unusual(section: Section, fields: Row) -> Row:
    """Return the fields that differ from their defaults."""
    return {name: value for name, value in fields.items() if value != default_of(section.model, name)}


def _sourced(source: Source, row: ApiSource | Tool | Resource | Prompt) -> Any:
    value = getattr(row, source.stored)
    match source.field:
        case "function":
            return value.get("function", "")
        case "request":
            return told_request(value)
        case "operation":
            assert isinstance(row, Tool)
            return operations.described(row)
        case "file":
            return bytes(value)
    return value


def told_request(config: Row) -> Row:
    """Return a request without fields that have their defaults; an invalid one is returned unchanged."""
    try:
        parsed = http.parse_config(config)
    except http.ConfigProblem:
        return dict(config)
    full, plain = msgspec.to_builtins(parsed), msgspec.to_builtins(http.HttpConfig())
    return {name: value for name, value in full.items() if name in REQUEST_ALWAYS or value != plain[name]}
