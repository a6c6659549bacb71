"""Models of the audit log beside its calls: the change log, signed statements, and statistics.

The change log holds administrative changes in one hash chain, insert-only. The signature of a statement covers its text
exactly: its other columns repeat what queries need, and a verifier compares them with the statement. The statistics are
updated as calls end, so that the dashboard is fast for an audit log of any size.
"""

from django.conf import settings
from django.db import models
from django.utils import timezone

from tools_app.core.ids import new_id
from tools_app.tenants.models import Tenant


class Via(models.TextChoices):
    """The interface through which a change was made."""

    ADMIN = "admin", "Admin pages"
    API = "api", "REST API"
    COMMAND = "command", "Command line"
    SIGN_IN = "sign_in", "Sign-in"
    DIRECTORY = "directory", "Directory (SCIM)"
    TOOL = "tool", "Tool of an app"


class Action(models.TextChoices):
    """The action of a change."""

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

    `before` and `after` are JSON text of the fields that differ, without secrets. `position` counts from 1, and
    `digest` is the SHA-256 of the previous change's digest and the contents of this change.
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
        return f"{self.object_name or self.object_id}: {self.get_action_display()}"


class ChainKind(models.TextChoices):
    """The kind of records in a chain."""

    RECORDS = "records", "Records"
    CHECKPOINTS = "checkpoints", "Checkpoints"


class Statement(models.Model):
    """A JSON text with an Ed25519 signature. The signing key is not in the database."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    writer = models.UUIDField(help_text="The process whose records it is about.")
    made_at = models.DateTimeField(default=timezone.now)
    statement = models.TextField(help_text="What is signed, as JSON.")
    digest = models.BinaryField(max_length=32, help_text="SHA-256 of the statement.")
    signature = models.BinaryField(max_length=64, help_text="Ed25519, over the statement.")
    public_key = models.CharField(max_length=64, help_text="The key that verifies the signature, in hex.")

    class Meta:
        abstract = True


class Checkpoint(Statement):
    """The heads of a writer's chains that changed since its previous checkpoint. `sequence` counts from 1."""

    sequence = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["writer", "sequence"], name="checkpoint_once_per_writer")]

    def __str__(self) -> str:
        return f"checkpoint {self.sequence} of {self.writer}"


class ChainStart(Statement):
    """The start of a chain after pruning: records up to `position` are pruned, and the statement has the hash there."""

    kind = models.CharField(max_length=11, choices=ChainKind)
    tenant = models.ForeignKey(
        Tenant, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    position = models.PositiveBigIntegerField(help_text="The last one that was pruned.")

    class Meta:
        indexes = [models.Index(fields=["writer", "tenant"], name="start_by_chain")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.writer} from {self.position + 1} on"


# Upper bounds of the histogram's buckets for durations, in microseconds: 0.25 ms, then doubled each time. The last
# bucket has none.
DURATION_BOUNDS_US = tuple(250 * 2**step for step in range(21))
DURATION_COLUMNS = tuple(f"took_{number:02d}" for number in range(len(DURATION_BOUNDS_US) + 1))


class CallFigures(models.Model):
    """Statistics of calls of one kind in one period, as one process recorded them.

    Each process updates separate rows, in the transaction of the records, so that numbers are exact without waiting.
    Housekeeping merges the rows of several processes, and short periods into long ones. Ids are not foreign keys: the
    nil UUID stands for `None`, so that a period has one row of each kind.
    """

    id = models.BigAutoField(primary_key=True)
    tenant_id = models.UUIDField(help_text="Nil: of no tenant.")
    begins_at = models.DateTimeField()
    seconds = models.PositiveIntegerField(help_text="How long the period is.")
    writer = models.UUIDField(help_text="The process that recorded them; nil: several.")
    tool_name = models.CharField(max_length=128, blank=True)
    api_key_id = models.UUIDField(help_text="Nil: none.")
    client_name = models.CharField(max_length=60, blank=True)
    calls = models.PositiveBigIntegerField(default=0, help_text="All that were let in, however they ended.")
    errors = models.PositiveBigIntegerField(default=0, help_text="Those of them that did not end well.")
    denials = models.PositiveBigIntegerField(default=0, help_text="Requests that were turned away.")
    took_us = models.PositiveBigIntegerField(default=0, help_text="Durations of `calls`, summed up.")

    class Meta:
        verbose_name_plural = "call figures"
        constraints = [
            models.UniqueConstraint(
                fields=["tenant_id", "begins_at", "seconds", "writer", "tool_name", "api_key_id", "client_name"],
                name="figures_once_per_kind",
            )
        ]
        indexes = [models.Index(fields=["seconds", "begins_at"], name="figures_by_time")]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.begins_at:%Y-%m-%d %H:%M}"


for _name in DURATION_COLUMNS:
    CallFigures.add_to_class(_name, models.PositiveIntegerField(default=0))


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
