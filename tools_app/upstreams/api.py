"""The REST API of upstream MCP servers, what they offer, and credentials for them.

Values of credentials are never read. People set and remove their own, admins of a tenant remove any.
"""

from contextlib import suppress
from typing import Any

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.models import CredentialOwner, ItemKind, ItemState, Upstream, UpstreamCredential, UpstreamItem
from tools_app.tenants import permissions
from tools_app.upstreams import service
from tools_app.upstreams.credentials import store
from tools_app.upstreams.credentials.store import InvalidCredential, Owner
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.serializers import Accepting, UpstreamCredentialRow, UpstreamItemRow, UpstreamRow
from tools_app.web.api.fields import Choice, Id
from tools_app.web.api.problems import Conflict
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
        with suppress(UpstreamFailed):  # noted in the status
            service.discover(self.get_object(), request.user.pk)
        upstream = self.get_object()
        return tagged(Response(self.get_serializer(upstream).data), upstream)


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
        reviewed = Accepting(data=request.data)
        reviewed.is_valid(raise_exception=True)
        with change_log_transaction():
            item = self.get_object()
            if service.proposal_digest(item) != reviewed.validated_data["digest"]:
                raise Conflict("The definition is another one than the one that was reviewed. Review it again.")
            try:
                service.accept([item], by=request.user if request.user.is_authenticated else None)
            except service.NotAcceptable as error:
                raise Conflict(str(error)) from error
        return tagged(Response(self.get_serializer(item).data), item)


class UpstreamCredentials(ListMixin, Retrieved, Created, Deleted, ScopedView):
    """Credentials for upstream servers: the caller's own, and for admins all of their tenants."""

    permission_classes = (HasMembership,)
    queryset = UpstreamCredential.objects.select_related("tenant", "upstream", "person").defer("ciphertext")
    serializer_class = UpstreamCredentialRow

    def get_queryset(self) -> QuerySet[Any]:
        """Return the rows that this person may see, and may delete."""
        rows: QuerySet[Any] = super().get_queryset()
        person = self.request.user
        return rows.filter(Q(person=person.pk) | Q(tenant__in=permissions.tenants_run_by(person)))

    def add(self, serializer: serializers.BaseSerializer) -> UpstreamCredential:
        """Store the value for the caller, or for the tenant, as the upstream needs it. Raises ValidationError."""
        values, person = serializer.validated_data, self.request.user
        upstreams = permissions.rows_seen_by(person, Upstream.objects.select_related("tenant"))
        upstream = upstreams.filter(pk=values["upstream_id"]).first()
        if upstream is None:
            raise serializers.ValidationError({"upstream": ["There is no such upstream."]})
        if upstream.credential_owner == CredentialOwner.KEY:
            text = "Its calls use credentials of keys. Enter them at /connections/upstreams."
            raise serializers.ValidationError({"upstream": [text]})
        owner = store.TENANT
        if upstream.credential_owner == CredentialOwner.PERSON:
            owner = Owner(person_id=person.pk)
        elif not permissions.may_change(person, upstream.tenant):
            raise PermissionDenied("Only admins of this tenant enter its credential.")
        try:
            return store.save_value(upstream, owner, values["value"])
        except InvalidCredential as error:
            raise serializers.ValidationError({"value": [str(error)]}) from None
