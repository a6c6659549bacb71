"""Signed statements about the audit log: how far its chains reach, and from where they begin after pruning.

What is signed is the text of `statement`, as it stands. The columns beside it repeat what queries need; whoever
verifies a statement holds them against it.
"""

from django.db import models
from django.utils import timezone

from tools_app.models.ids import new_id
from tools_app.models.tenants import Tenant


class ChainKind(models.TextChoices):
    """What a chain is made of."""

    RECORDS = "records", "Records"
    CHECKPOINTS = "checkpoints", "Checkpoints"


class Statement(models.Model):
    """A JSON text with an Ed25519 signature. The key that signed it is not in the database."""

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
    """How far the chains of a writer reach: those that changed since its checkpoint before. `sequence` is from 1 on."""

    sequence = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["writer", "sequence"], name="checkpoint_once_per_writer")]

    def __str__(self) -> str:
        return f"checkpoint {self.sequence} of {self.writer}"


class ChainStart(Statement):
    """Where a chain begins now: everything up to `position` was pruned, and the hash there is the one stated."""

    kind = models.CharField(max_length=11, choices=ChainKind)
    tenant = models.ForeignKey(
        Tenant, null=True, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    position = models.PositiveBigIntegerField(help_text="The last one that was pruned.")

    class Meta:
        indexes = [models.Index(fields=["writer", "tenant"], name="start_by_chain")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.writer} from {self.position + 1} on"
