"""Leases of rows: one process works on a row until its `claimed_until`. If it dies, others may take it after that."""

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Model, Q, QuerySet
from django.utils import timezone


def free(now: datetime) -> Q:
    """Select the rows that no process holds."""
    return Q(claimed_until=None) | Q(claimed_until__lte=now)


def claim(rows: "QuerySet[Model]", lifetime: timedelta, **changes: Any) -> bool:
    """Hold a row, in the statement that makes these `changes`. False if another process holds it, or it has gone."""
    now = timezone.now()
    return bool(rows.filter(free(now)).update(claimed_until=now + lifetime, **changes))
