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
from tools_app.catalog.kinds.openapi.serializers import ApiSourceDocument
from tools_app.catalog.kinds.openapi.sources.settings import MAX_SOURCES
from tools_app.catalog.serializers import PromptDocument, ResourceDocument, ToolDocument, ToolsetDocument
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
    Tenant,
    Upstream,
)
from tools_app.upstreams.drafts import MAX_UPSTREAMS

Row = Mapping[str, Any]
Plain = Upstream


@dataclass(frozen=True)
class Section:
    """A section of a file with rows by name. `key` is the model field that holds the name."""

    name: str
    model: type[Plain]
    key: str
    word: str
    fields: tuple[str, ...]
    most: int


# Without what the operator approved, without credentials, and without what it offers and what was accepted of that.
UPSTREAMS: Final = Section(
    "upstreams",
    Upstream,
    "name",
    "upstream",
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
SECTIONS: Final = (UPSTREAMS,)


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
        """What several rows are."""
        return str(self.serializer.Meta.model._meta.verbose_name_plural)

    def rows_by_name(self, tenant: Tenant) -> dict[str, Any]:
        """Return the rows of a tenant that the file describes."""
        return {getattr(row, self.serializer.key): row for row in self.serializer.rows(tenant)}


# In the order in which they are applied: tools refer to API sources, and rules to destinations.
DOCUMENT_SECTIONS: Final = (
    DocumentSection("api_sources", ApiSourceDocument, MAX_SOURCES),
    DocumentSection("tools", ToolDocument, versioned.MAX_ROWS),
    DocumentSection("resources", ResourceDocument, versioned.MAX_ROWS),
    DocumentSection("prompts", PromptDocument, versioned.MAX_ROWS),
    DocumentSection("client_policies", ClientPolicyDocument, policies.MAX_POLICIES),
    DocumentSection("scopes", TenantScopeDocument, scopes.MAX_SCOPES),
    DocumentSection("toolsets", ToolsetDocument, MAX_TOOLSETS),
    DocumentSection("issuers", IssuerDocument, setup.MAX_ISSUERS),
    DocumentSection("service_clients", ServiceClientDocument, versioned.MAX_ROWS),
    DocumentSection("alert_destinations", AlertDestinationDocument, MAX_DESTINATIONS),
    DocumentSection("alert_rules", AlertRuleDocument, MAX_RULES),
)
# The sections in the order of an export.
ORDER: Final = (
    "api_sources",
    "tools",
    "resources",
    "prompts",
    "upstreams",
    "client_policies",
    "scopes",
    "toolsets",
    "issuers",
    "service_clients",
    "alert_destinations",
    "alert_rules",
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
