"""What an HTTP request refers to outside of itself: secrets of its tenant, and the address of its service.

The admin and the REST API reject a tool or resource whose secret is missing: it could not be used. A file may name
secrets that are set later, because it never contains their values; its preview lists them. Only the admin checks the
address, whose network a superuser may allow later.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Literal

from tools_app.catalog.kinds import templates
from tools_app.catalog.kinds.http.config import ConfigProblem, HttpConfig, base_of, body_templates, parse_config
from tools_app.core.http.addresses import block_reason, parse_networks
from tools_app.models import Tenant

LOCALHOST = ip_address("127.0.0.1")


@dataclass(frozen=True)
class ReferenceFault:
    """Something that a definition refers to and that is not there: the field, what it is, and its name."""

    field: str
    kind: Literal["secret", "address"]
    name: str

    @property
    def message(self) -> str:
        """What is wrong, in one sentence."""
        if self.kind == "secret":
            return f"There is no secret {self.name}."
        return f"{self.name} is a private or reserved address, which this tenant may not call."


def reference_faults(
    tenant: Tenant, config: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> list[ReferenceFault]:
    """Return the faults of a valid `config`, except those that the definition `before` has already.

    What uses a secret that was deleted can still be edited.
    """
    known = set(_faults(tenant, _parsed(before))) if before else set()
    return [fault for fault in _faults(tenant, _parsed(config)) if fault not in known]


def secret_faults(
    tenant: Tenant, config: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> dict[str, list[str]]:
    """Return the messages about missing secrets by field of `config`, except those that `before` has already."""
    found: dict[str, list[str]] = {}
    for fault in reference_faults(tenant, config, before):
        if fault.kind == "secret":
            found.setdefault(f"config.{fault.field}", []).append(fault.message)
    return found


def _parsed(config: Mapping[str, Any]) -> HttpConfig | None:
    try:
        return parse_config(config)
    except ConfigProblem:
        return None


def _faults(tenant: Tenant, config: HttpConfig | None) -> Iterator[ReferenceFault]:
    if config is None:
        return
    host = base_of(config).host
    # Names are resolved when they are called, not here.
    with suppress(ValueError):
        address = LOCALHOST if host == "localhost" or host.endswith(".localhost") else ip_address(host)
        if block_reason(address, parse_networks(tenant.allowed_networks)):
            yield ReferenceFault("base_url", "address", host)
    parts = [
        *(("query", templates.parse(text)) for text in config.query.values()),
        *(("headers", templates.parse(text)) for text in config.headers.values()),
        *(("body", template) for template in body_templates(config)),
    ]
    used = dict.fromkeys((field, name) for field, template in parts for name in sorted(template.secrets))
    present = set(tenant.secrets.filter(name__in={name for _, name in used}).values_list("name", flat=True))
    for field, name in used:
        if name not in present:
            yield ReferenceFault(field, "secret", name)
