"""How a Celery worker runs calls in its threads: without Celery's request object and tracer.

Those keep results, retries, time limits and rate limits, which calls do not have: the database has the state of a call,
and the recorder its outcome. They took a tenth of a worker's time for short calls. In a pool of processes, Celery's
default strategy runs calls.

`Strategy` of a task is where Celery looks this up. These parts are not public API and are pinned by
`tests/server/test_contracts.py`: `default` of `celery.worker.strategy`, what it passes, and `executor` of `TaskPool`.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from celery import Task, current_app
from celery.concurrency.thread import TaskPool
from celery.worker import strategy

from tools_app.calls import tracing as traced
from tools_app.calls.background import worker
from tools_app.runtime import process

log = logging.getLogger(__name__)

Headers = Mapping[str, Any]


class CallTask(Task[..., Any]):
    """The base of the task that runs calls."""

    Strategy = "tools_app.runtime.call_strategy:call_strategy"


def call_strategy(task: CallTask, app: Any, consumer: Any) -> Callable[..., None]:
    """Return the function to which a worker's consumer passes each message of a call."""
    pool = consumer.pool
    if not isinstance(pool, TaskPool):
        by_default: Callable[..., None] = strategy.default(task, app, consumer)
        return by_default

    def receive(message: Any, _body: object, ack: Callable[..., object], *_options: Any) -> None:
        # Until it is acknowledged, a message counts as reserved: a worker takes no more than it has threads for.
        acknowledge = (ack, log, consumer.connection_errors)
        pool.executor.submit(_run_message, message.headers, *acknowledge)  # type: ignore[attr-defined] # its stub lacks it

    return receive


def run_call(call_id: str, headers: Headers) -> None:
    """Run a call. `headers` are those of its message."""
    process.start("worker")
    with traced.traced_claim(current_app.conf.task_default_queue, headers):
        worker.run_claimed(UUID(call_id))


def _run_message(headers: Headers, acknowledge: Callable[..., object], *acknowledged_to: Any) -> None:
    acknowledge(*acknowledged_to)
    try:
        run_call(headers["id"], headers)
    except Exception:
        log.exception("Call %s was not run to its end", headers.get("id"))
