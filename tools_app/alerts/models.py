"""Alerts: rules, the destinations they notify, the alerts that fired, and the log of their deliveries.

A rule or destination without a tenant belongs to the whole hub, and only superusers see it.
"""

from typing import Any, Final, NamedTuple

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils import timezone

from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.core.ids import new_id
from tools_app.core.recorded import Recorded
from tools_app.core.validators import ONE_LINE
from tools_app.tenants.models import Tenant

MAX_URL_LENGTH: Final = 2000
MAX_ERROR_LENGTH: Final = 500
# Statistics of the last six hours have periods of five minutes; older ones are merged into hours.
MIN_WINDOW_MINUTES: Final = 5
MAX_WINDOW_MINUTES: Final = 360
MIN_QUIET_MINUTES: Final = 5
MAX_QUIET_MINUTES: Final = 7 * 24 * 60
NAME_PATTERN: Final = RegexValidator(
    r"^[A-Za-z0-9_.*-]+\Z", "Use letters, digits, underscore, hyphen, dot, and * as the wildcard."
)


class AlertKind(models.TextChoices):
    """What a rule watches."""

    ERROR_RATE = "error_rate", "Error rate"
    P95 = "p95", "Slow calls (p95)"
    FAILURES = "failures", "A tool fails several times in a row"
    DENIALS = "denials", "Denied requests"
    KEY_EXPIRES = "key_expires", "An API key expires soon"
    QUEUE_AGE = "queue_age", "Background calls wait too long"
    PROCESS_DIED = "process_died", "A process of the hub died"


class Measure(NamedTuple):
    """The threshold of a kind: its unit and bounds, and whether it counts calls within the rule's window."""

    unit: str
    lowest: float
    highest: float
    has_window: bool = False
    has_min_calls: bool = False
    has_pattern: bool = False
    of_tenant: bool = True
    of_hub: bool = True


MEASURES: Final = {
    AlertKind.ERROR_RATE: Measure("% of calls", 0.1, 100, has_window=True, has_min_calls=True, has_pattern=True),
    AlertKind.P95: Measure("ms", 1, 3_600_000, has_window=True, has_min_calls=True, has_pattern=True),
    AlertKind.FAILURES: Measure("calls in a row", 2, 50, has_pattern=True, of_hub=False),
    AlertKind.DENIALS: Measure("requests", 1, 1_000_000, has_window=True),
    AlertKind.KEY_EXPIRES: Measure("days", 1, 90, of_hub=False),
    AlertKind.QUEUE_AGE: Measure("seconds", 1, 86_400),
    AlertKind.PROCESS_DIED: Measure("processes", 1, 1, has_window=True, of_tenant=False),
}


class DestinationKind(models.TextChoices):
    """How a destination is notified."""

    EMAIL = "email", "E-mail"
    WEBHOOK = "webhook", "Webhook"


class AlertDestination(Recorded):
    """An e-mail address or a webhook. The secret that signs a webhook's messages is encrypted."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(
        Tenant,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="alert_destinations",
        help_text="Empty: the whole hub.",
    )
    name = models.CharField(max_length=100, validators=[ONE_LINE])
    kind = models.CharField(max_length=10, choices=DestinationKind)
    email = models.EmailField("e-mail", blank=True, help_text="For the kind E-mail.")
    url = models.CharField(
        "URL", max_length=MAX_URL_LENGTH, blank=True, help_text="For the kind Webhook. It receives a POST with JSON."
    )
    enabled = models.BooleanField(default=True)
    disabled_reason = models.CharField(max_length=200, blank=True, editable=False)
    ciphertext = models.BinaryField(null=True, editable=False)
    previous_ciphertext = models.BinaryField(null=True, editable=False)
    previous_secret_until = models.DateTimeField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        verbose_name = "alert destination"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                name="alert_destination_name_once",
                violation_error_message="There is already a destination with this name. Choose another one.",
            ),
            models.UniqueConstraint(
                fields=["name"],
                condition=models.Q(tenant=None),
                name="hub_alert_destination_name_once",
                violation_error_message="There is already a destination with this name. Choose another one.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Require the address that fits the kind, and no other; check the URL of a webhook. Raises ValidationError."""
        wanted, other = ("email", "url") if self.kind == DestinationKind.EMAIL else ("url", "email")
        if not getattr(self, wanted):
            message = "Enter an e-mail address." if wanted == "email" else "Enter the URL of the webhook."
            raise ValidationError({wanted: message})
        setattr(self, other, "")
        if self.url:
            try:
                parse_url(self.url)
            except InvalidUrl as error:
                raise ValidationError({"url": f"This URL is invalid: {error}."}) from error


class AlertRule(Recorded):
    """A condition that is checked every few seconds, and whom it notifies."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(
        Tenant,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="alert_rules",
        help_text="Empty: the whole hub.",
    )
    name = models.CharField(max_length=100, validators=[ONE_LINE])
    kind = models.CharField(max_length=20, choices=AlertKind)
    enabled = models.BooleanField(default=True)
    threshold = models.FloatField(default=1, help_text="The alert fires at this value or above.")
    window_minutes = models.PositiveIntegerField(
        "window in minutes",
        default=15,
        validators=[MinValueValidator(MIN_WINDOW_MINUTES), MaxValueValidator(MAX_WINDOW_MINUTES)],
        help_text=f"{MIN_WINDOW_MINUTES} to {MAX_WINDOW_MINUTES}, rounded up to statistics of five minutes.",
    )
    min_calls = models.PositiveIntegerField(
        "minimum number of calls",
        default=10,
        validators=[MinValueValidator(1), MaxValueValidator(1_000_000)],
        help_text="With fewer calls in the window, the alert does not fire.",
    )
    tool_pattern = models.CharField(
        max_length=128,
        blank=True,
        validators=[NAME_PATTERN],
        help_text="Names of tools, such as search_*. Empty: all.",
    )
    quiet_minutes = models.PositiveIntegerField(
        "quiet time in minutes",
        default=60,
        validators=[MinValueValidator(MIN_QUIET_MINUTES), MaxValueValidator(MAX_QUIET_MINUTES)],
        help_text="After a notification, there is no other one about the same cause for this long.",
    )
    notify_resolved = models.BooleanField(default=True, help_text="Also notify when the alert is resolved.")
    destinations = models.ManyToManyField(AlertDestination, blank=True, related_name="rules")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        verbose_name = "alert rule"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"],
                name="alert_rule_name_once",
                violation_error_message="There is already a rule with this name. Choose another one.",
            ),
            models.UniqueConstraint(
                fields=["name"],
                condition=models.Q(tenant=None),
                name="hub_alert_rule_name_once",
                violation_error_message="There is already a rule with this name. Choose another one.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def destination_ids(self) -> list[str]:
        """The ids of its destinations, as text."""
        return sorted(str(row.pk) for row in self.destinations.all())

    @property
    def destination_names(self) -> list[str]:
        """The names of its destinations."""
        return sorted(row.name for row in self.destinations.all())

    @property
    def measure(self) -> Measure:
        """The unit and bounds of the threshold."""
        return MEASURES[AlertKind(self.kind)]

    def clean(self) -> None:
        """Check the threshold and the scope against the kind. Raises ValidationError."""
        if self.kind not in AlertKind.values:
            return
        measure, problems = self.measure, dict[str, Any]()
        if self.tenant_id is None and not measure.of_hub:
            problems["tenant"] = "Rules of this kind watch one tenant. Choose a tenant."
        if self.tenant_id is not None and not measure.of_tenant:
            problems["kind"] = "Rules of this kind watch the whole hub. Only superusers can add them, without a tenant."
        if not measure.lowest <= self.threshold <= measure.highest:
            problems["threshold"] = f"Enter {measure.lowest:,.10g} to {measure.highest:,.10g} {measure.unit}."
        if problems:
            raise ValidationError(problems)


class Alert(models.Model):
    """A rule whose condition was met: from `fired_at` until `resolved_at`. `subject` is the tool, key or process."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="alerts")
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="+")
    subject = models.CharField(max_length=128, blank=True)
    summary = models.CharField(max_length=300)
    value = models.FloatField()
    threshold = models.FloatField()
    fired_at = models.DateTimeField(default=timezone.now)
    notified_at = models.DateTimeField(default=timezone.now)
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-fired_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "subject"], condition=models.Q(resolved_at=None), name="alert_open_once"
            )
        ]
        indexes = [
            models.Index(fields=["rule", "subject", "-notified_at"], name="alert_by_rule"),
            models.Index(fields=["fired_at"], name="alert_by_time"),
        ]

    def __str__(self) -> str:
        return self.summary


class AlertEvent(models.TextChoices):
    """What a delivery says."""

    FIRED = "alert.fired", "Fired"
    REMINDER = "alert.reminder", "Still firing"
    RESOLVED = "alert.resolved", "Resolved"
    TEST = "alert.test", "Test"


class DeliveryStatus(models.TextChoices):
    """The progress of a delivery."""

    PENDING = "pending", "Pending"
    DELIVERED = "delivered", "Delivered"
    FAILED = "failed", "Failed"


class AlertDelivery(models.Model):
    """One message to one destination, with its attempts. The process that sends it holds it until `claimed_until`."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    alert = models.ForeignKey(Alert, null=True, on_delete=models.CASCADE, related_name="deliveries")
    destination = models.ForeignKey(AlertDestination, on_delete=models.CASCADE, related_name="deliveries")
    tenant = models.ForeignKey(Tenant, null=True, on_delete=models.CASCADE, related_name="+")
    event = models.CharField(max_length=20, choices=AlertEvent)
    body = models.TextField(help_text="The message, as JSON.")
    status = models.CharField(max_length=10, choices=DeliveryStatus, default=DeliveryStatus.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    next_attempt_at = models.DateTimeField(null=True, default=timezone.now)
    claimed_until = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    response_status = models.PositiveSmallIntegerField(null=True)
    error = models.CharField(max_length=MAX_ERROR_LENGTH, blank=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "alert delivery"
        verbose_name_plural = "alert deliveries"
        indexes = [
            models.Index(
                fields=["next_attempt_at"], name="delivery_due", condition=models.Q(status=DeliveryStatus.PENDING)
            ),
            models.Index(fields=["created_at"], name="delivery_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.get_event_display()} to {self.destination}"
