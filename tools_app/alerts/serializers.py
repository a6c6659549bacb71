"""What is read and written of alert rules, destinations, alerts and deliveries: over REST, and in a tenant's file."""

from collections.abc import Mapping
from typing import Any

import orjson
from django.core.exceptions import ValidationError
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied

from tools_app.alerts import destinations
from tools_app.alerts.models import MAX_URL_LENGTH, Alert, AlertDelivery, AlertDestination, AlertRule, DestinationKind
from tools_app.core.documents import Document
from tools_app.core.urls import split_url
from tools_app.web.api.fields import Email, Id, JsonObject, Text, Texts
from tools_app.web.api.problems import Conflict
from tools_app.web.api.serializers import Row, TenantField, TenantOfRecord

OTHERS = "Enter ids of destinations of the rule's own tenant, each once."
TAKEN = "There is already one with this name. Change that one."
SUPERUSERS_ONLY = "Only superusers can set up alerts of the whole hub. Choose a tenant."


class ScopeField(TenantField):
    """The tenant of a row by slug, or null for the whole hub."""

    def __init__(self) -> None:
        super().__init__(allow_null=True, help_text="Slug of the tenant. Null: the whole hub, for superusers only.")

    def validate_empty_values(self, data: Any) -> tuple[bool, Any]:
        """Accept null from superusers only. Raises PermissionDenied."""
        if data is None and not self.context["view"].tenant_permissions.is_superuser:
            raise PermissionDenied(SUPERUSERS_ONLY)
        checked: tuple[bool, Any] = super().validate_empty_values(data)
        return checked


class ScopedRow(Row):
    """A row that people set up, of a tenant or of the whole hub."""

    tenant = ScopeField()

    def check(self, row: Any) -> None:
        """Check a drafted row. Raises django.core.exceptions.ValidationError, and Conflict for a name that exists."""
        others = type(row).objects.filter(tenant=row.tenant_id, name=row.name).exclude(pk=row.pk)
        if others.exists():
            raise Conflict({"name": [TAKEN]})
        row.clean()
        destinations.check_count(row)


class AlertDestinationRow(ScopedRow):
    """An e-mail address or a webhook."""

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
        fixed: tuple[str, ...] = ("tenant", "kind")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the address, the name and the number of destinations. Raises ValidationError and Conflict."""
        attrs = super().validate(attrs)
        row = self.drafted(attrs)
        self.check(row)
        # The check drops an address that does not fit the kind.
        return {**attrs, **{name: getattr(row, name) for name in ("email", "url") if name in attrs}}

    def create(self, validated_data: dict[str, Any]) -> AlertDestination:
        """Save a new destination. A webhook gets its secret, which is the attribute `secret` of this row only."""
        row = AlertDestination(**validated_data)
        vars(row)["secret"] = destinations.add_secret(row) if row.kind == DestinationKind.WEBHOOK else None
        row.save()
        return row

    def update(self, instance: AlertDestination, validated_data: dict[str, Any]) -> Any:
        """Save the changed fields; enabling it again forgets why it was disabled."""
        if validated_data.get("enabled"):
            validated_data["disabled_reason"] = ""
        return super().update(instance, validated_data)

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


class AlertDestinationDocument(Document, AlertDestinationRow):
    """A destination in a tenant's file.

    The URL of a webhook is never exported, because its path is often a credential, nor is its secret. A file may have
    the URL all the same; without it, that of an existing destination is kept.
    """

    hidden = ("url",)

    class Meta(AlertDestinationRow.Meta):
        fields = ("kind", "enabled", "email", "url")
        fixed = ("kind",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Keep a URL that the file does not have. Raises ValidationError."""
        if self.instance is not None:
            attrs["url"] = attrs["url"] or self.instance.url
        return super().validate(attrs)

    def check(self, row: AlertDestination) -> None:
        """Check a drafted destination. A webhook may lack its URL until somebody sets it."""
        if row.kind == DestinationKind.WEBHOOK and row.email:
            raise ValidationError({"email": "Webhooks have no e-mail address. Remove the field."})
        if row.kind == DestinationKind.EMAIL and row.url:
            raise ValidationError({"url": "E-mail destinations have no URL. Remove the field."})
        if row.kind == DestinationKind.EMAIL or row.url:
            row.clean()

    def to_representation(self, instance: AlertDestination) -> dict[str, Any]:
        """Return all fields. Not who reads them, but `hidden` decides of the URL."""
        shown: dict[str, Any] = ScopedRow.to_representation(self, instance)
        return shown

    def hidden_changes(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the origins of the URLs before and after, if the URL changes."""
        former, url = self.instance.url if self.instance is not None else "", self.validated_data["url"]
        return ({}, {}) if url == former else ({"url": _origin(former)}, {"url": f"{_origin(url)} (new)"})

    def note(self, plan: Any) -> None:
        """Note webhooks that need a URL, and those that will get a secret."""
        if self.validated_data["kind"] == DestinationKind.WEBHOOK:
            if not self.validated_data["url"]:
                plan.missing_urls.append(self.context["name"])
            if self.instance is None:
                plan.new_webhooks.append(self.context["name"])


def _origin(url: str) -> str:
    parts = split_url(url) if url else None
    return f"{parts.scheme}://{parts.netloc}/…" if parts else ""


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


class AlertRuleRow(ScopedRow):
    """A condition, and the ids of the destinations that it notifies."""

    destinations = Texts(
        source="destination_ids", required=False, help_text="IDs of destinations of the same tenant that are notified."
    )

    class Meta:
        model = AlertRule
        fields: tuple[str, ...] = (
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
        fixed: tuple[str, ...] = ("tenant", "kind")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the rule against its kind, and that its destinations are the tenant's. Raises ValidationError."""
        attrs = super().validate(attrs)
        chosen = attrs.pop("destination_ids", None)
        row = self.drafted(attrs)
        self.check(row)
        if chosen is not None:
            attrs["destinations"] = self.named(row, chosen)
        return attrs

    def named(self, rule: AlertRule, ids: list[str]) -> list[AlertDestination]:
        """Return the destinations of the rule's tenant with these ids. Raises ValidationError."""
        found = [row for row in AlertDestination.objects.filter(tenant=rule.tenant_id) if str(row.pk) in ids]
        if len(found) != len(set(ids)):
            raise serializers.ValidationError({"destinations": [OTHERS]})
        return found

    def create(self, validated_data: dict[str, Any]) -> AlertRule:
        """Save a new rule with its destinations."""
        chosen = validated_data.pop("destinations", [])
        row = AlertRule.objects.create(**validated_data)
        destinations.set_recipients(row, chosen)
        return row

    def update(self, instance: AlertRule, validated_data: dict[str, Any]) -> AlertRule:
        """Save the changed fields, and the destinations if they are given."""
        chosen = validated_data.pop("destinations", None)
        row = super().update(instance, validated_data)
        if chosen is not None:
            destinations.set_recipients(row, chosen)
        return AlertRule.objects.select_related("tenant").get(pk=row.pk)


class AlertRuleDocument(Document, AlertRuleRow):
    """A rule in a tenant's file, with the names of the destinations that it notifies."""

    destinations = Texts(source="destination_names", default=list)

    class Meta(AlertRuleRow.Meta):
        fields = tuple(name for name in AlertRuleRow.Meta.fields if name not in {"id", "tenant", "name", "created_at"})
        fixed = ("kind",)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check also that the destinations will exist, some of them by the same file. Raises ValidationError."""
        names = sorted(set(attrs.pop("destination_names")))
        attrs = super().validate(attrs)
        if unknown := sorted(set(names) - self.context["rows"]["alert_destinations"].keys()):
            message = f"there is no alert destination with the name {', '.join(map(repr, unknown))}."
            raise serializers.ValidationError({"destinations": [message]})
        return {**attrs, "destinations": names}

    def check(self, row: AlertRule) -> None:
        """Check a drafted rule. The file as a whole has a bound of their number."""
        row.clean()

    def save(self, **values: Any) -> Any:
        """Save the rule with the destinations of these names, which exist by now."""
        names = self.validated_data["destinations"]
        found = AlertDestination.objects.filter(tenant=self.context["tenant"], name__in=names)
        return super().save(**values, destinations=list(found))


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
