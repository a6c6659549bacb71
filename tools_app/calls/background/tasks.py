"""The Celery task that runs background calls. Its message contains only ids, including those of traces.

Nothing of Celery stores a call: its row has the state, the recorder its outcome. A message is acknowledged when its
task starts, since a call runs at most once; the sweeper finds calls whose messages or processes were lost.
"""

from uuid import UUID

from celery import Task, shared_task
from django.conf import settings

from tools_app.calls import tracing
from tools_app.calls.background import worker


@shared_task(name="tools_app.run_call", bind=True, acks_late=False, ignore_result=True)
def run_call(self: Task[..., None], call_id: str) -> None:
    """Run one background call."""
    with tracing.traced_claim(settings.CELERY_TASK_DEFAULT_QUEUE, self.request.headers or {}):
        worker.run_claimed(UUID(call_id))
