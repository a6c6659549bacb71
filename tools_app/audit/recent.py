"""Calls that began lately, found by their ids, which grow with time: there is no index by the time of the record."""

from datetime import datetime, timedelta

from django.db.models import QuerySet

from tools_app.models import Call
from tools_app.models.ids import least_id

# How much earlier than its record a call may have begun, as good as always.
LONGEST_CALL = timedelta(days=1)
# How many rows may be read to find a few of them, as good as never more than there are.
MOST_CALLS = 200_000


def calls_from(moment: datetime) -> QuerySet[Call]:
    """Calls that were recorded from `moment` on, the newest if there are more than MOST_CALLS."""
    recent = Call.objects.filter(id__gte=least_id(moment - LONGEST_CALL))
    for oldest in recent.order_by("-id").values_list("id", flat=True)[MOST_CALLS : MOST_CALLS + 1]:
        recent = recent.filter(id__gt=oldest)
    return recent
