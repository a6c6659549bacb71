"""What admins changed: a part of the audit log of its own, in one chain, insert-only."""

from django.conf import settings
from django.db import models
from django.utils import timezone

from tools_app.models.ids import new_id
from tools_app.models.tenants import Tenant


class Via(models.TextChoices):
    """How somebody changed something."""

    ADMIN = "admin", "Admin pages"
    API = "api", "REST API"
    COMMAND = "command", "Command line"


class Action(models.TextChoices):
    """What was done."""

    CREATED = "created", "Created"
    CHANGED = "changed", "Changed"
    DELETED = "deleted", "Deleted"
    ISSUED = "issued", "Issued"
    REVOKED = "revoked", "Revoked"
    ROTATED = "rotated", "Rotated"
    RESTORED = "restored", "Restored"
    INVITED = "invited", "Invited"
    EXPORTED = "exported", "Exported"


class Change(models.Model):
    """One change by one person: who, what, before and after.

    `before` and `after` are JSON text of the fields that differ, without secrets. `position` counts from 1 on, and
    `digest` is the SHA-256 of the change before it and of all that this one says.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    at = models.DateTimeField(default=timezone.now)
    tenant = models.ForeignKey(
        Tenant, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    person_name = models.CharField(max_length=150, blank=True, help_text="As it was called then; empty: nobody's.")
    via = models.CharField(max_length=10, choices=Via)
    remote_address = models.CharField(max_length=45, blank=True)
    action = models.CharField(max_length=10, choices=Action)
    kind = models.CharField(max_length=40, help_text="What sort of thing was changed, as in the model's name.")
    object_id = models.CharField(max_length=64)
    object_name = models.CharField(max_length=500, blank=True)
    before = models.TextField(default="{}")
    after = models.TextField(default="{}")
    position = models.PositiveBigIntegerField(unique=True)
    digest = models.BinaryField(max_length=32)

    class Meta:
        ordering = ["-position"]
        indexes = [
            models.Index(fields=["tenant", "position"], name="change_by_tenant"),
            models.Index(fields=["kind", "object_id", "position"], name="change_by_object"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.object_name} {self.action}"
