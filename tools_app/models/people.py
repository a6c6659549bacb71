"""Rows that belong to people: invitations, personal tokens, saved searches, exports."""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone

from tools_app.models.ids import new_id
from tools_app.models.recorded import Recorded
from tools_app.models.tenants import Role, Tenant

INVITATION_DAYS = 7


def _in_some_days() -> datetime:
    return timezone.now() + timedelta(days=INVITATION_DAYS)


class Invitation(Recorded):
    """A link that makes the person who opens it a member. Only a digest of its token is stored."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField(
        "e-mail", help_text="Who is invited. An account with another e-mail takes it only when its owner confirms that."
    )
    role = models.CharField(max_length=10, choices=Role)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(default=_in_some_days)
    accepted_at = models.DateTimeField(null=True, editable=False)
    accepted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.SET_NULL, related_name="+"
    )
    revoked_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.email} to {self.tenant}"


class PersonalToken(Recorded):
    """A person's credential for the REST API. Only a digest is stored: the token itself is shown once."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: never.")
    revoked_at = models.DateTimeField(null=True, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "personal token"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class SavedFilter(models.Model):
    """A saved search of the audit log."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="saved_filters")
    name = models.CharField(max_length=100)
    query = models.TextField(help_text="The query string of the list.")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["name"]
        verbose_name = "saved search"
        verbose_name_plural = "saved searches"
        constraints = [models.UniqueConstraint(fields=["person", "name"], name="filter_name_once_per_person")]

    def __str__(self) -> str:
        return self.name


class ExportFormat(models.TextChoices):
    """The file format of an export."""

    JSONL = "jsonl", "JSON lines"
    CSV = "csv", "CSV"


class ExportState(models.TextChoices):
    """The progress of an export."""

    READY = "ready", "Ready to download"
    RUNNING = "running", "Running"
    DONE = "done", "Done"
    BROKEN = "broken", "Broken off"


class Export(models.Model):
    """One download of a filtered part of the audit log, and its progress."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="exports")
    query = models.TextField(blank=True, help_text="The query string of the list.")
    format = models.CharField(max_length=10, choices=ExportFormat)
    state = models.CharField(max_length=10, choices=ExportState, default=ExportState.READY)
    with_payloads = models.BooleanField(default=False, help_text="Arguments and results, too.")
    expected = models.PositiveBigIntegerField(null=True, help_text="How many calls it is about, if that was counted.")
    calls = models.PositiveBigIntegerField(default=0)
    bytes = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    finished_at = models.DateTimeField(null=True)
    problem = models.TextField(blank=True)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.get_format_display()} {self.created_at:%Y-%m-%d %H:%M}"
