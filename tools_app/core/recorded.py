"""The base class of models whose changes are recorded (see `audit.changes.signals`)."""

from typing import Any

from django.db import models, transaction


class Recorded(models.Model):
    """A row that is saved in a transaction with the record of its change."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:
        """Save the row; roll back if the change cannot be recorded."""
        # An outer transaction is rolled back as a whole.
        with transaction.atomic(savepoint=False):
            super().save(*args, **options)
