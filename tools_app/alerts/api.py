"""The REST API of alert rules, destinations, alerts and the log of their deliveries.

The secret of a webhook is only in the responses that create or rotate it. Rows of the whole hub have no tenant: only
superusers find and change them.
"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.response import Response

from tools_app.alerts import delivery, destinations, evaluation
from tools_app.alerts.models import (
    Alert,
    AlertDelivery,
    AlertDestination,
    AlertKind,
    AlertRule,
    DeliveryStatus,
    DestinationKind,
)
from tools_app.alerts.serializers import (
    AlertDeliveryRow,
    AlertDestinationRow,
    AlertRow,
    AlertRuleRow,
    IssuedDestination,
)
from tools_app.audit.changes.changes import change_log_transaction
from tools_app.web.api.fields import Choice, FlagParameter, Id
from tools_app.web.api.problems import Conflict
from tools_app.web.api.views import HasMembership
from tools_app.web.api.viewsets import (
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
        except evaluation.TooManyTests as error:
            raise Throttled(wait=60, detail=str(error)) from error
        delivery.attempt(found.pk)
        found.refresh_from_db()
        return Response(AlertDeliveryRow(found, context=self.get_serializer_context()).data)


class AlertRules(ListMixin, Retrieved, Created, Updated, Deleted, ScopedView):
    """Conditions that are watched, and whom they notify. Rules without a tenant watch the whole hub."""

    permission_classes = (HasMembership, IsTenantAdmin)
    queryset = AlertRule.objects.select_related("tenant").prefetch_related("destinations")
    serializer_class = AlertRuleRow
    query_class = RulesQuery


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
