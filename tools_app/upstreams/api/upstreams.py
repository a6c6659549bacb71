"""Upstream MCP servers, and what they offer."""

from contextlib import suppress
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.models import ItemKind, ItemState, Upstream, UpstreamItem, UpstreamStatus
from tools_app.upstreams import service
from tools_app.upstreams.drafts import upstream_faults
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.web.api.fields import Choice, Id, JsonObject, JsonObjects, Text, Texts
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Row, Strict, TenantField, TenantOfRecord
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import (
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    Retrieved,
    ScopedView,
    SearchQuery,
    TenantQuery,
    Updated,
    tagged,
)

TAKEN = "This tenant already has one with this name. Change that one."
DIGEST_LENGTH = 64


class UpstreamStatusRow(Row):
    """How the last connection to an upstream went. `problem` is empty if it succeeded."""

    left_out = JsonObjects(
        read_only=True, help_text="What it lists that cannot be offered: the kind, the name and the reason of each."
    )

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
    command = Texts(required=False, help_text="For stdio: the program and its arguments.")
    headers = JsonObject(required=False, help_text="Sent with each request; `{secret:NAME}` stands for a secret.")
    environment = JsonObject(required=False, help_text="For stdio: variables; `{secret:NAME}` stands for a secret.")
    status = UpstreamStatusRow(read_only=True, allow_null=True, help_text="Null before the first connection.")

    class Meta:
        model = Upstream
        fields = (
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
        fixed = ("tenant",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the settings together, and the name. Raises ValidationError."""
        attrs = super().validate(attrs)
        row = self.drafted(attrs)
        row.clean()
        if faults := upstream_faults(row, self.context["request"].build_absolute_uri("/")):
            raise serializers.ValidationError(faults)
        if Upstream.objects.filter(tenant=row.tenant_id, name=row.name).exclude(pk=row.pk).exists():
            raise Conflict({"name": [TAKEN]})
        return attrs

    def to_representation(self, instance: Upstream) -> dict[str, Any]:
        """Return the row; its status is null before the first connection."""
        shown: dict[str, Any] = super().to_representation(instance)
        return {"status": None, **shown}


class Upstreams(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Other MCP servers. Nothing that they offer reaches clients before it is accepted."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = Upstream.objects.select_related("tenant", "status")
    serializer_class = UpstreamRow
    query_class = SearchQuery

    def remove(self, row: Upstream) -> None:
        """Delete the upstream with all that it offers. Recorded calls stay."""
        service.delete(row)

    @extend_schema(
        operation_id="upstreams_check", summary="Connect and list", request=None, responses={200: UpstreamRow}
    )
    @action(detail=True, methods=["post"])
    def check(self, request: Request, pk: str) -> Response:
        """Connect to the upstream and list what it offers. `status.problem` tells why that failed, if it did."""
        upstream = self.get_object()
        with suppress(UpstreamFailed):  # noted in the status
            service.discover(upstream, request.user.pk)
        fresh = self.get_object()
        return tagged(Response(self.get_serializer(fresh).data), fresh)


class UpstreamItemRow(Row):
    """What an upstream offers. `digest` is that of the definition that accepting it would accept."""

    tenant = TenantOfRecord(help_text="Slug of the tenant.")
    upstream = Id(source="upstream_id", read_only=True, help_text="Id of the upstream.")
    accepted = JsonObject(read_only=True, allow_null=True, help_text="The accepted definition.")
    proposed = JsonObject(read_only=True, allow_null=True, help_text="What the upstream lists, if that is different.")
    digest = serializers.SerializerMethodField(help_text="SHA-256 of the proposed definition, or of the accepted one.")
    warnings = serializers.SerializerMethodField(
        help_text="Signs of instructions to models, and what the hub does not check."
    )
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

    @extend_schema_field({"type": "array", "items": {"type": "string"}})
    def get_warnings(self, item: UpstreamItem) -> Any:
        """Return the warnings."""
        return item.warnings

    def get_former_name(self, item: UpstreamItem) -> str:
        """Return the name of the removed item that a new one may be; "" without one."""
        if item.state != ItemState.NEW:
            return ""
        # Of each upstream, its items are compared once for a response.
        known: dict[UUID, dict[UUID, str]] = self.context.setdefault("former_names", {})
        if item.upstream_id not in known:
            known[item.upstream_id] = service.former_names_of(item.upstream_id)
        return known[item.upstream_id].get(item.pk, "")


class Accepting(Strict):
    """The definition to accept: the one that was reviewed."""

    digest = Text(max_length=DIGEST_LENGTH, help_text="`digest` of the item, as it was read.")


class UpstreamItemsQuery(TenantQuery):
    """Filter by tenant, upstream, kind and state."""

    upstream = Id(required=False, help_text="Id of the upstream.")
    kind = Choice(ItemKind.choices, required=False, help_text="What it is.")
    state = Choice(ItemState.choices, required=False, help_text="What became of it.")


class UpstreamItems(ListMixin, Retrieved, ScopedView):
    """The tools, resources and prompts of upstreams, with the definitions that were accepted and that are proposed."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = UpstreamItem.objects.select_related("tenant", "upstream", "tool", "resource", "prompt")
    serializer_class = UpstreamItemRow
    query_class = UpstreamItemsQuery

    @extend_schema(
        operation_id="upstream_items_accept",
        summary="Accept a definition",
        request=Accepting,
        responses={200: UpstreamItemRow},
    )
    @action(detail=True, methods=["post"])
    def accept(self, request: Request, pk: str) -> Response:
        """Accept the reviewed definition and offer it to clients. 409 if the upstream lists another one meanwhile."""
        wanted = Accepting(data=request.data)
        wanted.is_valid(raise_exception=True)
        with change_log_transaction():
            item = self.get_object()
            if service.proposal_digest(item) != wanted.validated_data["digest"]:
                raise Conflict("The definition is another one than the one that was reviewed. Review it again.")
            try:
                person = request.user if request.user.is_authenticated else None
                service.accept([item], by=person)
            except service.NotAcceptable as problem:
                raise Conflict(str(problem)) from problem
        return tagged(Response(self.get_serializer(item).data), item)
