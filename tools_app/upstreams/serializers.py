"""What is read and written of upstreams, what they offer, and credentials: over REST, and in a tenant's file."""

from typing import Any
from uuid import UUID

from rest_framework import serializers

from tools_app.catalog.kinds import templates
from tools_app.core.documents import Document
from tools_app.models import ItemState, Upstream, UpstreamCredential, UpstreamItem, UpstreamStatus
from tools_app.upstreams import service
from tools_app.upstreams.credentials.store import MAX_VALUE_LENGTH
from tools_app.upstreams.validation import upstream_faults
from tools_app.web.api.fields import Id, JsonObject, JsonObjects, Text, Texts
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Row, Strict, TenantField, TenantOfRecord

TAKEN = "This tenant already has one with this name. Change that one."
DIGEST_LENGTH = 64


class UpstreamStatusRow(Row):
    """How the last connection to an upstream went. `problem` is empty if it succeeded."""

    left_out = JsonObjects(read_only=True, help_text=UpstreamStatus._meta.get_field("left_out").help_text)

    class Meta:
        model = UpstreamStatus
        fields = (
            "checked_at",
            "reached_at",
            "refused_until",
            "problem",
            "era",
            "version",
            "server_name",
            "server_version",
            "left_out",
        )
        read_only_fields = fields


class UpstreamRow(Row):
    """An MCP server whose tools, resources and prompts a tenant offers as its own."""

    tenant = TenantField()
    command = Texts(required=False, help_text=Upstream._meta.get_field("command").help_text)
    status = UpstreamStatusRow(read_only=True, allow_null=True, help_text="Null before the first connection.")

    class Meta:
        model = Upstream
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "name",
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
            "status",
            "created_at",
            "updated_at",
        )
        fixed: tuple[str, ...] = ("tenant",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the settings together, and the name. Raises ValidationError."""
        attrs = super().validate(attrs)
        row = self.drafted(attrs)
        request = self.context.get("request")
        if faults := upstream_faults(row, request.build_absolute_uri("/") if request is not None else ""):
            raise serializers.ValidationError(faults)
        if Upstream.objects.filter(tenant=row.tenant_id, name=row.name).exclude(pk=row.pk).exists():
            raise Conflict({"name": [TAKEN]})
        return attrs

    def to_representation(self, instance: Upstream) -> dict[str, Any]:
        """Return the row; its status is null before the first connection."""
        shown: dict[str, Any] = super().to_representation(instance)
        return {"status": None, **shown}


class UpstreamDocument(Document, UpstreamRow):
    """An upstream in a tenant's file, without credentials.

    Accepting a definition is a decision about what the server lists now, so that a file has nothing of what it offers.
    Nor has it what the operator approved: a file cannot allow a command or an address.
    """

    class Meta(UpstreamRow.Meta):
        fields = UpstreamRow.Meta.fields[3:-3]
        fixed = ()

    tenant = status = None  # type: ignore[assignment]

    def note(self, plan: Any) -> None:
        """Note the secrets that it needs."""
        values = self.validated_data
        texts = (*values["headers"].values(), *values["environment"].values())
        names = {name for text in texts for name in templates.parse(text).secrets} | {values["oauth_client_secret"]}
        for name in names - {""}:
            plan.missing_secrets.setdefault(name, []).append(f"upstream {self.context['name']}")

    def delete(self) -> None:
        """Delete the upstream with all that it offers."""
        service.delete(self.instance)


class UpstreamItemRow(Row):
    """What an upstream offers. `digest` is that of the definition that accepting it would accept."""

    tenant = TenantOfRecord(help_text="Slug of the tenant.")
    upstream = Id(source="upstream_id", read_only=True, help_text="Id of the upstream.")
    accepted = JsonObject(read_only=True, allow_null=True, help_text="The accepted definition.")
    proposed = JsonObject(read_only=True, allow_null=True, help_text="What the upstream lists, if that is different.")
    digest = serializers.SerializerMethodField(help_text="SHA-256 of the proposed definition, or of the accepted one.")
    warnings = Texts(read_only=True, help_text="Signs of instructions to models, and what the hub does not check.")
    former_name = serializers.SerializerMethodField(
        help_text="Of a new item: the name of a removed one that it may be, because it is equal but for the name, or "
        "has a similar one. Empty without such an item."
    )

    class Meta:
        model = UpstreamItem
        fields = (
            "id",
            "tenant",
            "upstream",
            "kind",
            "name",
            "state",
            "accepted",
            "proposed",
            "digest",
            "warnings",
            "former_name",
            "created_at",
            "updated_at",
        )
        read_only_fields = fields

    def get_digest(self, item: UpstreamItem) -> str:
        """Return the digest of what would be accepted."""
        return service.proposal_digest(item)

    def get_former_name(self, item: UpstreamItem) -> str:
        """Return the name of the removed item that a new one may be; "" without one."""
        if item.state != ItemState.NEW:
            return ""
        # The items of each upstream are compared once for a response.
        known: dict[UUID, dict[UUID, str]] = self.context.setdefault("former_names", {})
        if item.upstream_id not in known:
            known[item.upstream_id] = service.former_names_of(item.upstream_id)
        return known[item.upstream_id].get(item.pk, "")


class Accepting(Strict):
    """The definition to accept: the one that was reviewed."""

    digest = Text(max_length=DIGEST_LENGTH, help_text="`digest` of the item, as it was read.")


class UpstreamCredentialRow(Row):
    """A credential without its value. One without a key and a person is the tenant's."""

    tenant = TenantOfRecord(help_text="Slug of the tenant.")
    upstream = Id(source="upstream_id", help_text="Id of the upstream.")
    key = Id(source="key_id", read_only=True, allow_null=True, help_text="Id of the API key that has it.")
    person = serializers.CharField(
        source="person.username", read_only=True, allow_null=True, default=None, help_text="Who has it."
    )
    value = Text(
        write_only=True,
        max_length=MAX_VALUE_LENGTH,
        help_text="The value of the header. It replaces the one that is stored, and cannot be read back.",
    )

    class Meta:
        model = UpstreamCredential
        fields = (
            "id",
            "tenant",
            "upstream",
            "key",
            "person",
            "kind",
            "value",
            "origin",
            "scopes",
            "expires_at",
            "refresh_at",
            "problem",
            "created_at",
            "updated_at",
        )
        read_only_fields = ("kind", "origin", "scopes", "expires_at", "refresh_at", "problem")
