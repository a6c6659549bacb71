"""The broker and the Celery workers: reachable, alive, of the same code, and not behind."""

from collections.abc import Iterator, Mapping
from typing import Any

from celery import current_app
from django.utils import timezone

from tools_app.execution import hub_numbers, readiness
from tools_app.execution.inspection import CODE, code_digest
from tools_app.execution.queue import RUN_CALL
from tools_app.management.doctor.configuration import is_embedded
from tools_app.management.doctor.findings import Finding, judged, ok, problem
from tools_app.models import CallStatus, RunningCall

ANSWER_SECONDS = 2.0
MANY_MESSAGES = 100
LONG_SECONDS = 60.0


def broker() -> Iterator[Finding]:
    """Whether it answers, and how much waits in it."""
    if is_embedded():
        yield ok("broker", "in the memory of the process that `up` runs; it cannot be asked from here")
        return
    readiness.broker()
    yield ok("broker", "answers")
    waiting = hub_numbers.queue_length()
    yield judged(
        "queue",
        f"{waiting} messages wait",
        "Start more workers, or raise their --concurrency.",
        doubtful=waiting > MANY_MESSAGES,
    )


def workers() -> Iterator[Finding]:
    """Whether somebody takes the messages."""
    if is_embedded():
        return
    asked = current_app.control.inspect(timeout=ANSWER_SECONDS)
    answers: Mapping[str, Any] = asked.registered() or {}
    if not answers:
        yield problem(
            "workers",
            "none answers",
            "Start one: celery -A mcphub worker --pool threads --concurrency 8. Background tools wait for it.",
        )
        return
    yield ok("workers", f"{len(answers)} answer: {', '.join(sorted(answers))}")
    deaf = sorted(name for name, tasks in answers.items() if RUN_CALL not in tasks)
    yield judged(
        "worker tasks",
        f"{', '.join(deaf)} do not know {RUN_CALL}" if deaf else "all know the hub's tasks",
        "Start workers with `celery -A mcphub worker`, and give another application a queue of its own.",
        bad=bool(deaf),
    )
    codes: Any = asked._request(CODE)  # noqa: SLF001 - Celery's own way to ask for a command of ours
    yield _code(codes or {})


def _code(answers: Mapping[str, Any]) -> Finding:
    own = code_digest()
    others = sorted(name for name, digest in answers.items() if digest != own)
    return judged(
        "worker code",
        f"{', '.join(others)} run other code than this" if others else "the same as here",
        "Restart the workers that still run the old code, or deploy the new code to all.",
        doubtful=bool(others),
    )


def waiting_calls() -> Iterator[Finding]:
    """Background calls that nobody began with."""
    oldest = RunningCall.objects.filter(status=CallStatus.QUEUED).order_by("changed_at").first()
    seconds = (timezone.now() - oldest.changed_at).total_seconds() if oldest else 0.0
    yield judged(
        "queued calls",
        f"the oldest has waited for {seconds:.0f} seconds" if oldest else "none waits",
        "See to the workers: they are busy, or do not take this queue (MCPHUB_QUEUE).",
        doubtful=seconds > LONG_SECONDS,
    )
