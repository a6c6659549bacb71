"""What is read and written of API sources: over REST, and in a tenant's file."""

from typing import Any

from rest_framework import serializers

from tools_app.catalog.kinds.http.config import ConfigProblem
from tools_app.catalog.kinds.openapi.config import check_document
from tools_app.catalog.kinds.openapi.documents.reader import MAX_BYTES
from tools_app.catalog.kinds.openapi.sources.documents import save_source
from tools_app.catalog.kinds.openapi.sources.plan import OperationChange
from tools_app.core.documents import Document
from tools_app.models import ApiSource, RevisionState
from tools_app.web.api.fields import Flag, JsonObject, JsonObjects, Text, Texts, Whole
from tools_app.web.api.paging import MOST
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Row, Strict, TenantField

DOCUMENT = "An OpenAPI document, JSON or YAML, of a source without a URL. Larger ones are imported by URL."


class ApiSourceRow(Row):
    """The settings of a source, and what its applied document says of servers and security schemes."""

    tenant = TenantField()
    selection = Texts(required=False, help_text=ApiSource._meta.get_field("selection").help_text)
    servers = JsonObjects(read_only=True, help_text="Of the applied document, with their variables.")
    document = Text(write_only=True, required=False, max_length=MAX_BYTES, help_text=DOCUMENT)

    class Meta:
        model = ApiSource
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "name",
            "url",
            "document",
            "base_url",
            "server_variables",
            "secrets",
            "cycle_depth",
            "output_schemas",
            "selection",
            "servers",
            "schemes",
            "revision",
            "created_at",
            "updated_at",
        )
        read_only_fields: tuple[str, ...] = ("servers", "schemes", "revision")
        fixed: tuple[str, ...] = ("tenant",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Validate the settings, and that the name is free. Raises ValidationError."""
        attrs = super().validate(attrs)
        row = self.drafted({name: value for name, value in attrs.items() if name != "document"})
        row.clean()
        if row.url and "document" in attrs:
            raise serializers.ValidationError({"document": ["Remove the URL to upload a document."]})
        if self.instance is None and not row.url and "document" not in attrs:
            raise serializers.ValidationError({"url": ["Enter the URL of the document, or send the document."]})
        if ApiSource.objects.filter(tenant=row.tenant, name=row.name).exclude(pk=row.pk).exists():
            raise Conflict({"name": ["This tenant already has an API source with this name."]})
        return attrs


class ApiSourceDocument(Document, ApiSourceRow):
    """An API source in a tenant's file, with what its applied document says of servers and security schemes."""

    deleted_last = True

    servers = JsonObjects()
    schemes = JsonObject()

    class Meta(ApiSourceRow.Meta):
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
        read_only_fields: tuple[str, ...] = ()
        fixed: tuple[str, ...] = ()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Validate the settings. Raises ValidationError."""
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


class FieldRow(serializers.Serializer):
    """A field that the document changes."""

    field = serializers.CharField()
    overridden = serializers.BooleanField(help_text="Whether somebody changed it, so that it stays.")


class OperationRow(serializers.Serializer):
    """An operation, and what the document means for its tool."""

    key = serializers.CharField(help_text="Method and path.")
    name = serializers.CharField(help_text="Name of the tool.")
    doing = serializers.ChoiceField([(one.value, one.value) for one in OperationChange])
    title = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    tokens = serializers.IntegerField(help_text="About what it costs a model in a list of tools.")
    changes = FieldRow(many=True)
    overridden = serializers.ListField(child=serializers.CharField(), help_text="Fields that somebody changed.")
    notes = serializers.ListField(
        child=serializers.CharField(), help_text="What was repaired in the document, with the place."
    )


class SkippedRow(serializers.Serializer):
    """An operation that cannot be a tool."""

    key = serializers.CharField()
    pointer = serializers.CharField(help_text="JSON pointer of the problem.")
    reason = serializers.CharField()


class NotOfferedRow(serializers.Serializer):
    """A tool that is enabled and that clients do not see."""

    name = serializers.CharField()
    reason = serializers.CharField()


class OperationsRow(serializers.Serializer):
    """The newest document: whether it was read, and what it would change."""

    state = serializers.ChoiceField(RevisionState.choices)
    problem = serializers.CharField(help_text="Why it could not be read.")
    revision = serializers.IntegerField()
    fingerprint = serializers.CharField(help_text="Of the source and its tools. Send it with `apply`.")
    changes_servers = serializers.BooleanField(help_text="Whether requests would be sent elsewhere.")
    changes_schemes = serializers.BooleanField(help_text="Whether credentials would be sent in another way.")
    count = serializers.IntegerField(help_text="Operations that match.")
    tokens = serializers.IntegerField(help_text="Of all that match.")
    results = OperationRow(many=True)
    skipped = SkippedRow(many=True)
    skipped_count = serializers.IntegerField(help_text=f"Of all that cannot be tools; `skipped` has up to {MOST}.")
    unselected = serializers.IntegerField(help_text="Operations of the document that the source does not select.")
    not_offered = NotOfferedRow(many=True)


class Refreshing(Strict):
    """The document of a source without a URL."""

    document = Text(required=False, max_length=MAX_BYTES, help_text=DOCUMENT)


class DocumentRow(serializers.Serializer):
    """A document that a worker reads."""

    revision = serializers.IntegerField(source="number")
    state = serializers.ChoiceField(RevisionState.choices)


class Applying(Strict):
    """What to import. Existing tools are brought up to date in any case."""

    operations = Texts(
        required=False, allow_null=True, help_text="Keys of new operations to import, null for all. Default: none."
    )
    enable = Flag(required=False, help_text="Whether the imported tools are enabled. Default: false.")
    revision = Whole(required=False, min_value=1, help_text="Fail unless this is still the newest revision.")
    fingerprint = Text(required=False, max_length=64, help_text="Fail if anything changed since.")


class AppliedRow(serializers.Serializer):
    """What was done: names of tools."""

    imported = serializers.ListField(child=serializers.CharField())
    changed = serializers.ListField(child=serializers.CharField())
    disabled = serializers.ListField(child=serializers.CharField())
