"""The fields of a configuration file, derived from the models: what people may set in a row of each kind.

A row in a file is complete: fields that are left out have their defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.db import models

from tools_app.alerts.destinations import MAX_DESTINATIONS, MAX_RULES
from tools_app.alerts.serializers import AlertDestinationDocument, AlertRuleDocument
from tools_app.catalog import versioned
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.identity.issuers import setup
from tools_app.identity.oauth import policies, scopes
from tools_app.identity.serializers import (
    ClientPolicyDocument,
    IssuerDocument,
    ServiceClientDocument,
    TenantScopeDocument,
)
from tools_app.models import (
    MAX_TOOLSETS,
    ApiSource,
    Prompt,
    Resource,
    Tenant,
    Tool,
    Toolset,
    Upstream,
)
from tools_app.upstreams.drafts import MAX_UPSTREAMS

Row = Mapping[str, Any]
# Rows that have fields and no source.
Plain = Toolset | Upstream
Offer = ApiSource | Tool | Resource | Prompt | Plain

LIMITS: Final = ("calls_per_second", "calls_per_minute", "calls_per_day", "calls_in_flight")
# How a search finds a tool, and whether the tool is listed beside it.
FOUND: Final = ("aliases", "pinned")
DESCRIBED: Final = ("name", "title", "description", "mime_type", "enabled", "annotations", "icons")


@dataclass(frozen=True)
class Source:
    """A source of a row's content: a row has exactly one of these fields, and the other fields of its kind.

    `stored` is the model field that holds it, `wanted` describes what to write.
    """

    field: str
    kind: str
    stored: str
    type: type
    wanted: str
    others: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A section of a file with rows by name. `key` is the model field that holds the name.

    Rows without sources have `fields`. `own_most` is their maximum, if it differs from that of catalog rows.
    """

    name: str
    model: type[Offer]
    key: str
    word: str
    sources: tuple[Source, ...]
    fields: tuple[str, ...] = ()
    own_most: int | None = None

    @property
    def most(self) -> int:
        """The maximum number of rows of a tenant."""
        return versioned.MAX_ROWS if self.own_most is None else self.own_most


WRITTEN_TOOL: Final = (
    "title",
    "description",
    "enabled",
    "input_schema",
    "output_schema",
    "annotations",
    "icons",
    "background",
    "task",
    "timeout_seconds",
    *LIMITS,
    *FOUND,
    *SHAPING_FIELDS,
)
FUNCTION: Final = "must be the name of a registered function."
REQUEST: Final = "must be an object with method, base_url, path and the other fields of the request."

OPERATION: Final = "must be an object with source, key, overridden, method, path and the other fields of the request."

SOURCES: Final = Section(
    "api_sources",
    ApiSource,
    "name",
    "API source",
    (
        Source(
            "url",
            "source",
            "url",
            str,
            "must be the URL of the document, or empty.",
            (
                "base_url",
                "server_variables",
                "secrets",
                "cycle_depth",
                "output_schemas",
                "selection",
                "servers",
                "schemes",
            ),
        ),
    ),
)
TOOLS: Final = Section(
    "tools",
    Tool,
    "name",
    "tool",
    (
        Source("function", "python", "config", str, FUNCTION, ("enabled", *LIMITS, *FOUND, *SHAPING_FIELDS)),
        Source("request", "http", "config", dict, REQUEST, WRITTEN_TOOL),
        Source("operation", "operation", "config", dict, OPERATION, WRITTEN_TOOL),
    ),
)
RESOURCES: Final = Section(
    "resources",
    Resource,
    "uri",
    "resource",
    (
        Source("function", "python", "config", str, FUNCTION, ("enabled",)),
        Source("text", "text", "text", str, "must be a string.", DESCRIBED),
        Source("file", "file", "blob", bytes, "must be base64 after !!binary.", DESCRIBED),
        Source("request", "http", "config", dict, REQUEST, (*DESCRIBED, "timeout_seconds")),
    ),
)
PROMPTS: Final = Section(
    "prompts",
    Prompt,
    "name",
    "prompt",
    (
        Source("function", "python", "config", str, FUNCTION, ("enabled",)),
        Source(
            "messages",
            "template",
            "messages",
            list,
            "must be a list of messages with role and text.",
            ("title", "description", "enabled", "icons", "arguments"),
        ),
    ),
)
TOOLSETS: Final = Section("toolsets", Toolset, "name", "toolset", (), ("description", "tools"), MAX_TOOLSETS)
# Without what the operator approved, without credentials, and without what it offers and what was accepted of that.
UPSTREAMS: Final = Section(
    "upstreams",
    Upstream,
    "name",
    "upstream",
    (),
    (
        "prefix",
        "transport",
        "url",
        "command",
        "era",
        "headers",
        "credential",
        "credential_owner",
        "credential_header",
        "oauth_client_id",
        "oauth_client_secret",
        "oauth_issuer",
        "oauth_scopes",
        "environment",
        "enabled",
        "timeout_seconds",
    ),
    MAX_UPSTREAMS,
)
# Sources first: tools refer to them.
SECTIONS: Final = (SOURCES, TOOLS, RESOURCES, PROMPTS, UPSTREAMS, TOOLSETS)


@dataclass(frozen=True)
class DocumentSection:
    """A section with rows by name that a serializer reads and writes. `most` is the maximum of a tenant."""

    name: str
    serializer: Any
    most: int

    @property
    def word(self) -> str:
        """What a row is."""
        return str(self.serializer.Meta.model._meta.verbose_name)

    @property
    def words(self) -> str:
        """What rows are."""
        return str(self.serializer.Meta.model._meta.verbose_name_plural)


# In the order in which they are applied: rules refer to destinations.
DOCUMENT_SECTIONS: Final = (
    DocumentSection("client_policies", ClientPolicyDocument, policies.MAX_POLICIES),
    DocumentSection("scopes", TenantScopeDocument, scopes.MAX_SCOPES),
    DocumentSection("issuers", IssuerDocument, setup.MAX_ISSUERS),
    DocumentSection("service_clients", ServiceClientDocument, versioned.MAX_ROWS),
    DocumentSection("alert_destinations", AlertDestinationDocument, MAX_DESTINATIONS),
    DocumentSection("alert_rules", AlertRuleDocument, MAX_RULES),
)
# All fields of the tenant's admin pages. The slug is left out: clients know the tenant by it, and it does not change.
TENANT_FIELDS: Final = tuple(
    field.name for field in Tenant._meta.concrete_fields if field.editable and field.name != "slug"
)


def type_fault(model: type[models.Model], name: str, value: Any) -> str | None:
    """Return what is wrong with the type of a field's value, before the model validates the value itself."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)
    if value is None and field.null:
        return None
    fits, wanted = _type_of(field)
    is_flag = isinstance(value, bool)
    if isinstance(value, fits) and (is_flag == (fits is bool)) and is_json(value):
        return None
    return wanted + (" Remove the field for no value." if field.null else "")


def is_json(value: Any) -> bool:
    """Whether JSON can represent this value: it cannot represent bytes."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def default_of(model: type[models.Model], name: str) -> Any:
    """Return the default of a field."""
    field = model._meta.get_field(name)
    assert isinstance(field, models.Field)
    return field.get_default()


def _type_of(field: "models.Field[Any, Any]") -> tuple[Any, str]:
    match field:
        case models.BooleanField():
            return bool, "Must be true or false."
        case models.FloatField():
            return (int, float), "Must be a number."
        case models.IntegerField():
            return int, "Must be a whole number."
        case models.JSONField():
            return (list, "Must be a list.") if field.get_default() == [] else (dict, "Must be an object.")
    return str, "Must be a string. Use quotes if YAML reads it as another type."
