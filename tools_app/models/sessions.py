"""Handshake-era sessions (2025-11-25, transports, §Session Management), stored as rows that any process can serve."""

from django.db import models
from django.utils import timezone

from tools_app.models.ids import new_id
from tools_app.models.tenants import ApiKey, Tenant


class Session(models.Model):
    """The result of `initialize`, bound to the key that created it. Only a digest of the session id is stored."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="sessions")
    # Empty: a session of an anonymous client, in a public tenant.
    api_key = models.ForeignKey(ApiKey, null=True, on_delete=models.CASCADE, related_name="sessions")
    protocol_version = models.CharField(max_length=10)
    client_name = models.CharField(max_length=200, blank=True)
    client_version = models.CharField(max_length=100, blank=True)
    client_capabilities = models.JSONField(default=dict)
    log_level = models.CharField(max_length=10, default="info")
    subscriptions = models.JSONField(default=list, help_text="URIs of resources whose changes the client wants.")
    listener = models.UUIDField(null=True, help_text="The one of its streams that hears of changes.")
    remote_address = models.CharField(max_length=45, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)
    end_reason = models.CharField(max_length=20, blank=True)

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["tenant", "-created_at"], name="session_by_tenant"),
            models.Index(fields=["last_seen_at"], condition=models.Q(ended_at=None), name="session_by_idleness"),
            # Covers the count of open sessions. SQLite also reads the rows if a column of the condition is missing.
            models.Index(
                fields=["tenant", "last_seen_at", "ended_at"], condition=models.Q(ended_at=None), name="session_open"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.client_name or 'client'} {self.created_at:%Y-%m-%d %H:%M}"


class SessionMessage(models.Model):
    """An encrypted message from a session's client to the process that holds the session's stream (HTTP+SSE)."""

    id = models.BigAutoField(primary_key=True)
    session_id = models.UUIDField(db_index=True)
    sealed = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.id} of {self.session_id}"
