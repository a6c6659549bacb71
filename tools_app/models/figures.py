"""Figures of the calls, kept as they end: what the dashboard reads, whatever the size of the audit log."""

from django.db import models

# Upper bounds of the classes into which durations fall, in microseconds: 0.25 ms, then twice as much each time.
# The last class has none.
DURATION_BOUNDS_US = tuple(250 * 2**step for step in range(21))
DURATION_COLUMNS = tuple(f"took_{number:02d}" for number in range(len(DURATION_BOUNDS_US) + 1))


class CallFigures(models.Model):
    """How calls of one kind went in one period, as one process recorded them.

    Each process adds to rows of its own, in the transaction of the records, so that figures are exact and nobody waits.
    Housekeeping merges the rows of several processes and short periods into long ones. Ids stand here without their
    rows: `None` is the nil UUID, so that a period has one row of each kind.
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
