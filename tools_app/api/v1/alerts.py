"""Alert rules, destinations, alerts and the log of their deliveries.

The secret of a webhook is only in the responses that create or rotate it. Rows of the whole hub have no tenant: only
superusers find and change them.
"""

from typing import Any

import orjson
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied, Throttled
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.alerts import delivery, destinations, evaluation
from tools_app.api.v1.base.fields import Choice, Email, FlagParameter, Id, JsonObject, Text, Texts
from tools_app.api.v1.base.problems import Conflict
from tools_app.api.v1.base.serializers import Row, TenantField, TenantOfRecord
from tools_app.api.v1.base.views import HasMembership
from tools_app.api.v1.base.viewsets import (
    Created,
    Deleted,
    IsTenantAdmin,
    ListMixin,
    OfferQuery,
    Retrieved,
    ScopedView,
    TenantQuery,
    Updated,
)
from tools_app.audit.changes.changes import change_log_transaction
from tools_app.models import (
    Alert,
    AlertDelivery,
    AlertDestination,
    AlertKind,
    AlertRule,
    DeliveryStatus,
    DestinationKind,
)
from tools_app.models.alerts import MAX_URL_LENGTH

OTHERS = "Enter ids of destinations of the rule's own tenant, each once."
TAKEN = "There is already one with this name. Change that one."
SUPERUSERS_ONLY = "Only superusers can set up alerts of the whole hub. Choose a tenant."


class ScopeField(TenantField):
    """The tenant of a row by slug, or null for the whole hub."""

    def __init__(self) -> None:
        super().__init__(allow_null=True, help_text="Slug of the tenant. Null: the whole hub, for superusers only.")

    def validate_empty_values(self, data: Any) -> tuple[bool, Any]:
        """Accept null from superusers only. Raises PermissionDenied."""
        if data is None and not self.context["view"].tenant_permissions.everything:
            raise PermissionDenied(SUPERUSERS_ONLY)
        checked: tuple[bool, Any] = super().validate_empty_values(data)
        return checked


class WholeHubQuery(TenantQuery):
    """Filter by tenant, or by whether a row belongs to the whole hub."""

    whole_hub = FlagParameter(
        source="tenant__isnull",
        required=False,
        help_text="Whether it belongs to the whole hub and not to a tenant. Only superusers find those.",
    )


class DestinationsQuery(WholeHubQuery, OfferQuery):
    """Filter also by name, kind, and whether it is enabled."""

    kind = Choice(DestinationKind.choices, required=False, help_text="Kind.")


class RulesQuery(WholeHubQuery, OfferQuery):
    """Filter also by name, kind, and whether it is enabled."""

    kind = Choice(AlertKind.choices, required=False, help_text="Kind.")


class ScopedRow(Row):
    """A row of a tenant that people set up."""

    def _check_name(self, row: Any) -> None:
        others = type(row).objects.filter(tenant=row.tenant_id, name=row.name).exclude(pk=row.pk)
        if others.exists():
            raise Conflict({"name": [TAKEN]})


class AlertDestinationRow(ScopedRow):
    """An e-mail address or a webhook."""

    tenant = ScopeField()
    email = Email(required=False, allow_blank=True, max_length=254, help_text="For the kind `email`.")
    url = Text(
        required=False,
        allow_blank=True,
        max_length=MAX_URL_LENGTH,
        help_text="For the kind `webhook`. Empty for people who may not change it.",
    )

    class Meta:
        model = AlertDestination
        fields: tuple[str, ...] = (
            "id",
            "tenant",
            "name",
            "kind",
            "email",
            "url",
            "enabled",
            "disabled_reason",
            "created_at",
        )
        read_only_fields = ("disabled_reason",)
        fixed = ("tenant", "kind")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the address, the name and the number of destinations. Raises ValidationError."""
        attrs = super().validate(attrs)
        row = self.drafted(attrs)
        self._check_name(row)
        row.clean()
        destinations.check_destination(row)
        return attrs

    def to_representation(self, instance: AlertDestination) -> dict[str, Any]:
        """Hide the URL, whose path is often a credential, from people who may not change it."""
        shown: dict[str, Any] = super().to_representation(instance)
        if not self.tenant_permissions.changes(instance.tenant_id):
            shown["url"] = ""
        return shown


class IssuedDestination(AlertDestinationRow):
    """A destination, with the secret of a webhook, which is shown only once."""

    secret = serializers.CharField(read_only=True, allow_null=True, help_text="Null for e-mail. It is not shown again.")

    class Meta(AlertDestinationRow.Meta):
        fields = (*AlertDestinationRow.Meta.fields, "secret")


class AlertDeliveryRow(Row):
    """One message to one destination."""

    tenant = TenantOfRecord(help_text="Slug of the tenant.")
    destination = Id(source="destination_id", read_only=True)
    alert = Id(source="alert_id", read_only=True, allow_null=True)
    message = serializers.SerializerMethodField(help_text="The message.")

    class Meta:
        model = AlertDelivery
        fields = (
            "id",
            "tenant",
            "alert",
            "destination",
            "event",
            "status",
            "attempts",
            "response_status",
            "error",
            "created_at",
            "next_attempt_at",
            "finished_at",
            "message",
        )
        read_only_fields = fields

    @extend_schema_field(JsonObject())
    def get_message(self, row: AlertDelivery) -> Any:
        """Return the message as it is sent."""
        return orjson.loads(row.body)


class AlertDestinations(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Whom alert rules notify: e-mail addresses and signed webhooks. Those without a tenant are the whole hub's."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = AlertDestination.objects.select_related("tenant")
    serializer_class = AlertDestinationRow
    query_class = DestinationsQuery

    def get_serializer_class(self) -> type[AlertDestinationRow]:
        """Use the serializer with the secret for the responses that show it."""
        return IssuedDestination if self.action in {"create", "rotate"} else AlertDestinationRow

    @extend_schema(request=AlertDestinationRow, responses={201: IssuedDestination})
    def create(self, request: Request, *args: Any, **options: Any) -> Response:
        """Create a destination. The response holds the secret of a webhook, which is shown only once."""
        return super().create(request, *args, **options)

    def add(self, wanted: serializers.BaseSerializer) -> AlertDestination:
        """Save the destination with its secret."""
        row = AlertDestination(**wanted.validated_data)
        row.clean()
        secret = destinations.add_secret(row) if row.kind == DestinationKind.WEBHOOK else None
        row.save()
        vars(row)["secret"] = secret
        return row

    def change(self, wanted: serializers.BaseSerializer) -> Any:
        """Save the changed fields; enabling it again forgets why it was disabled."""
        if wanted.validated_data.get("enabled"):
            wanted.validated_data["disabled_reason"] = ""
        return super().change(wanted)

    @extend_schema(summary="Rotate secret", request=None, responses={200: IssuedDestination})
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: str) -> Response:
        """Replace the secret of a webhook. Messages are signed with both for 24 hours."""
        with change_log_transaction():
            row = self.get_object()
            if row.kind != DestinationKind.WEBHOOK:
                raise Conflict({"kind": ["Only webhooks have a secret."]})
            vars(row)["secret"] = destinations.rotate_secret(row)
        return Response(self.get_serializer(row).data)

    @extend_schema(summary="Send test", request=None, responses={200: AlertDeliveryRow})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Send a test message now, and return its delivery. At most 30 per minute of one tenant."""
        try:
            found = evaluation.send_test(self.get_object())
        except evaluation.TooManyTests as problem:
            raise Throttled(wait=60, detail=str(problem)) from problem
        delivery.attempt(found.pk)
        found.refresh_from_db()
        return Response(AlertDeliveryRow(found, context=self.get_serializer_context()).data)


class AlertRuleRow(ScopedRow):
    """A condition, and the ids of the destinations that it notifies."""

    tenant = ScopeField()
    destinations = Texts(
        source="destination_ids", required=False, help_text="IDs of destinations of the same tenant that are notified."
    )

    class Meta:
        model = AlertRule
        fields = (
            "id",
            "tenant",
            "name",
            "kind",
            "enabled",
            "threshold",
            "window_minutes",
            "min_calls",
            "tool_pattern",
            "quiet_minutes",
            "notify_resolved",
            "destinations",
            "created_at",
        )
        fixed = ("tenant", "kind")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the rule against its kind, and that its destinations are the tenant's. Raises ValidationError."""
        attrs = super().validate(attrs)
        chosen = attrs.pop("destination_ids", None)
        row = self.drafted(attrs)
        self._check_name(row)
        row.clean()
        destinations.check_rule(row)
        if chosen is not None:
            found = _named(row, chosen)
            if len(found) != len(set(chosen)):
                raise serializers.ValidationError({"destinations": [OTHERS]})
            attrs["destinations"] = found
        return attrs


def _named(rule: AlertRule, ids: list[str]) -> list[AlertDestination]:
    return [row for row in AlertDestination.objects.filter(tenant=rule.tenant_id) if str(row.pk) in ids]


class AlertRules(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Conditions that are watched, and whom they notify. Rules without a tenant watch the whole hub."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = AlertRule.objects.select_related("tenant").prefetch_related("destinations")
    serializer_class = AlertRuleRow
    query_class = RulesQuery

    def add(self, wanted: serializers.BaseSerializer) -> AlertRule:
        """Save the rule with its destinations."""
        values = dict(wanted.validated_data)
        chosen = values.pop("destinations", [])
        row = AlertRule.objects.create(**values)
        destinations.set_recipients(row, chosen)
        return row

    def change(self, wanted: serializers.BaseSerializer) -> Any:
        """Save the changed fields and the destinations, if they are given."""
        chosen = wanted.validated_data.pop("destinations", None)
        row = super().change(wanted)
        if chosen is not None:
            destinations.set_recipients(row, chosen)
        return AlertRule.objects.select_related("tenant").get(pk=row.pk)


class AlertRow(Row):
    """A rule whose condition was met."""

    tenant = TenantOfRecord(help_text="Slug of the tenant.")
    rule = Id(source="rule_id", read_only=True)

    class Meta:
        model = Alert
        fields = (
            "id",
            "tenant",
            "rule",
            "subject",
            "summary",
            "value",
            "threshold",
            "fired_at",
            "notified_at",
            "resolved_at",
        )
        read_only_fields = fields


class AlertsQuery(WholeHubQuery):
    """Filter by tenant, by rule, and by whether the alert is firing."""

    rule = Id(required=False, help_text="ID of its rule.")
    firing = FlagParameter(
        source="resolved_at__isnull", required=False, help_text="Whether it is firing, not resolved."
    )


class Alerts(ListMixin, Retrieved, ScopedView):
    """Alerts that fired. Read-only."""

    queryset = Alert.objects.select_related("tenant")
    serializer_class = AlertRow
    query_class = AlertsQuery


class AlertDeliveriesQuery(WholeHubQuery):
    """Filter by tenant and status."""

    status = Choice(DeliveryStatus.choices, required=False, help_text="Status.")


class AlertDeliveries(ListMixin, Retrieved, ScopedView):
    """The messages to destinations, with their attempts. Read-only."""

    queryset = AlertDelivery.objects.select_related("tenant")
    serializer_class = AlertDeliveryRow
    query_class = AlertDeliveriesQuery
    singular = "alert delivery"
