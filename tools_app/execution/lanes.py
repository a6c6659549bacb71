"""The lanes of the queue: a tenant keeps to one, and workers take from each in turn.

So a tenant that queues ten thousand calls is in its own way only. Who has which lane is kept with the limits, so that
no two tenants share one as long as there are enough; with more tenants than lanes, those of a lane share its turn.
"""

from uuid import UUID

from django.conf import settings

from tools_app.auth import limits
from tools_app.auth.allowance import Places


def names() -> list[str]:
    """The queues of the broker: the lanes, and the one for all else."""
    base = settings.CELERY_TASK_DEFAULT_QUEUE
    return [base, *(f"{base}.{lane}" for lane in range(settings.MCPHUB_LANES))]


def lane_of(tenant_id: UUID) -> str:
    """Into which of them to put a call of this tenant."""
    lanes = names()[1:]
    first = tenant_id.int % len(lanes)
    for lane in (*lanes[first:], *lanes[:first]):
        if limits.hold_here([Places("tenant", "lanes", 1, f"lane:{lane}")], str(tenant_id), _seconds()) is None:
            return lane
    return lanes[first]


def _seconds() -> float:
    """How long a lane is a tenant's own after its last call went there: until that has been taken or given up."""
    return float(settings.MCPHUB_QUEUE_SECONDS)
