"""The sections of a tenant's file: rows by name, which the serializers of their features read and write."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools_app.alerts.destinations import MAX_DESTINATIONS, MAX_RULES
from tools_app.alerts.serializers import AlertDestinationDocument, AlertRuleDocument
from tools_app.catalog import versioned
from tools_app.catalog.kinds.openapi.models import MAX_SOURCES
from tools_app.catalog.kinds.openapi.serializers import ApiSourceDocument
from tools_app.catalog.serializers import PromptDocument, ResourceDocument, ToolDocument, ToolsetDocument
from tools_app.identity.issuers import setup
from tools_app.identity.oauth import policies, scopes
from tools_app.identity.serializers import (
    ClientPolicyDocument,
    IssuerDocument,
    ServiceClientDocument,
    TenantScopeDocument,
)
from tools_app.models import MAX_TOOLSETS, Tenant
from tools_app.upstreams.serializers import UpstreamDocument
from tools_app.upstreams.validation import MAX_UPSTREAMS

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A section of a file. `serializer` is a `core.documents.Document`, `most` the maximum of rows of a tenant."""

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

    def rows(self, tenant: Tenant) -> dict[str, Any]:
        """Return the rows of a tenant that the file describes, by name."""
        return {getattr(row, self.serializer.key): row for row in self.serializer.rows(tenant)}


# In the order in which they are written and applied: tools refer to API sources, service clients to toolsets, and rules
# to destinations.
SECTIONS: Final = (
    Section("api_sources", ApiSourceDocument, MAX_SOURCES),
    Section("tools", ToolDocument, versioned.MAX_ROWS),
    Section("resources", ResourceDocument, versioned.MAX_ROWS),
    Section("prompts", PromptDocument, versioned.MAX_ROWS),
    Section("upstreams", UpstreamDocument, MAX_UPSTREAMS),
    Section("client_policies", ClientPolicyDocument, policies.MAX_POLICIES),
    Section("scopes", TenantScopeDocument, scopes.MAX_SCOPES),
    Section("toolsets", ToolsetDocument, MAX_TOOLSETS),
    Section("issuers", IssuerDocument, setup.MAX_ISSUERS),
    Section("service_clients", ServiceClientDocument, versioned.MAX_ROWS),
    Section("alert_destinations", AlertDestinationDocument, MAX_DESTINATIONS),
    Section("alert_rules", AlertRuleDocument, MAX_RULES),
)
