"""Recent calls, found by their time-ordered ids: there is no index on the time of the record."""

from datetime import datetime, timedelta

from django.db.models import QuerySet

from tools_app.core.ids import least_id
from tools_app.models import Call

# How long before its record a call may have started, in almost every case.
MAX_CALL = timedelta(days=1)
# How many rows may be read to find a few of them; almost never reached.
MAX_CALLS = 200_000


def calls_from(moment: datetime) -> QuerySet[Call]:
    """Return the calls recorded from `moment` on, the newest if there are more than MAX_CALLS."""
    recent = Call.objects.filter(id__gte=least_id(moment - MAX_CALL))
    for oldest in recent.order_by("-id").values_list("id", flat=True)[MAX_CALLS : MAX_CALLS + 1]:
        recent = recent.filter(id__gt=oldest)
    return recent
