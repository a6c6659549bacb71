"""The base of rows whose changes are recorded (see `audit.change_signals`)."""

from typing import Any

from django.db import models, transaction


class Recorded(models.Model):
    """A row whose saves are transactions, so that a change and its record are there together or not at all."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:
        """Save, and have that undone if it cannot be recorded."""
        # Within another transaction, that one is undone.
        with transaction.atomic(savepoint=False):
            super().save(*args, **options)
