"""API sources in a tenant's file."""

from typing import Any

from rest_framework import serializers

from tools_app.catalog.kinds.http.config import ConfigProblem
from tools_app.catalog.kinds.openapi.config import check_document
from tools_app.catalog.kinds.openapi.sources.documents import save_source
from tools_app.core.documents import Document
from tools_app.models import ApiSource
from tools_app.web.api.fields import JsonObject, JsonObjects, Texts
from tools_app.web.api.serializers import Row


class ApiSourceDocument(Document, Row):
    """An API source in a tenant's file, with what its applied document says of servers and security schemes."""

    deleted_last = True

    selection = Texts()
    servers = JsonObjects()
    schemes = JsonObject()

    class Meta:
        model = ApiSource
        fields = (
            "url",
            "base_url",
            "server_variables",
            "secrets",
            "cycle_depth",
            "output_schemas",
            "selection",
            "servers",
            "schemes",
        )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Validate the settings. Raises ValidationError."""
        attrs = super().validate(attrs)
        row = self.drafted(attrs)
        row.clean()
        try:
            check_document(row.servers, row.schemes)
        except ConfigProblem as problem:
            raise serializers.ValidationError({problem.field: [problem.message]}) from problem
        return attrs

    def note(self, plan: Any) -> None:
        """Note the secrets that its tools send."""
        for name in dict.fromkeys(self.row.secrets.values()):
            plan.missing_secrets.setdefault(name, []).append(f"API source {self.row.name}")

    def save(self, **_values: Any) -> ApiSource:
        """Save the source. A worker reads its document when somebody refreshes it."""
        return save_source(self.row)
