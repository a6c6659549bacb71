"""Export of a tenant's configuration as a file, in a fixed order, so that two files can be compared."""

import json
from typing import Any, Final

import yaml

from tools_app.models import Tenant
from tools_app.tenant_config.document import FORMAT, TENANT_FIELDS
from tools_app.tenant_config.sections import SECTIONS, Row, Section

HEADER: Final = """\
# The configuration of the tenant {slug} of an mcphub.
# Preview and apply it with: python manage.py import_tenant SLUG FILE
# Secrets are listed without their values. API keys, members, what upstreams offer, the URLs of webhooks and the secrets
# of issuers and service clients are not included.
# Fields that are left out of a row have their defaults.
"""
WIDTH: Final = 110

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
    shared = [name for section in SECTIONS for name in section.serializer.left_out(tenant)]
    # Escaped as JSON, which has no line breaks.
    names = ", ".join(map(json.dumps, shared[:MAX_SHARED])) + (", …" if len(shared) > MAX_SHARED else "")
    return HEADER.format(slug=tenant.slug) + (SHARED.format(names=names) if shared else "") + text


def described(tenant: Tenant) -> dict[str, Any]:
    """Return the configuration of a tenant as values: of each row, all fields that differ from their defaults."""
    return {
        "mcphub": FORMAT,
        "tenant": settings_of(tenant),
        "secrets": list(tenant.secrets.order_by("name").values_list("name", flat=True)),
        **{section.name: _described_rows(section, tenant) for section in SECTIONS},
    }


def _described_rows(section: Section, tenant: Tenant) -> dict[str, Row]:
    rows, documents = section.rows(tenant), section.serializer(context={"tenant": tenant})
    # Databases differ in their sort order.
    return {name: documents.described_row(rows[name]) for name in sorted(rows)}


def settings_of(tenant: Tenant) -> Row:
    """Return all settings of a tenant."""
    return {name: getattr(tenant, name) for name in TENANT_FIELDS}
