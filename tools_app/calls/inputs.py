"""Delivery of clients' answers from the process that receives them to the one whose running call asked.

A request to the client has the id `<call>:<name of the question>`, so that any process can match its response. The
answer is encrypted at rest, accepted once, and deleted when the call ends. The reason of a cancellation is delivered
in the same way.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import msgspec
from django.db import Error, IntegrityError, transaction
from django.utils import timezone

from tools_app.calls import stop_reasons
from tools_app.calls.stop_reasons import StopReason
from tools_app.catalog.tool_api.elicitation import Refused
from tools_app.core import encryption
from tools_app.core.database import run_in_db_thread
from tools_app.models import CallEvent, CallInput, CallStatus, RunningCall
from tools_app.protocol import exact_json
from tools_app.protocol.jsonrpc import MAX_ANSWER_NAME_LENGTH

POLL_SECONDS = 0.25
# The name that stores the reason of a cancellation. No question has it: names of questions are asked first.
REASON = "notifications/cancelled"
ALREADY_READ = b""


class NoAnswer(Refused):
    """The client did not answer."""


def request_id(call_id: UUID, name: str) -> str:
    """Return the id of a call's request to its client."""
    return f"{call_id}:{name}"


def deliver(session_id: UUID, id: object, result: Any, error: Any) -> bool:
    """Store a client's answer for the call that asked. False if no running call of this session waits for it."""
    call_id, name = _parsed(id)
    if call_id is None:
        return False
    running = RunningCall.objects.filter(pk=call_id, session_id=session_id)
    if not running.exists() or name not in _open_questions(call_id):
        return False
    stored = _store(call_id, name, {"result": result, "error": error})
    if not running.exists():
        # The call ended in between, and may have deleted its inputs before this one was stored.
        forget(call_id)
    return stored


def note_reason(call_ids: Iterable[UUID], reason: StopReason) -> None:
    """Store why these calls are cancelled, for the processes that run them. The first reason is kept."""
    for call_id in call_ids:
        _store(call_id, REASON, msgspec.to_builtins(reason))


def reason_of(call_id: UUID) -> StopReason:
    """Return why a call was cancelled; UNKNOWN without a reason, or while the database is unavailable."""
    try:
        row = CallInput.objects.filter(call_id=call_id, name=REASON).first()
    except Error:
        return stop_reasons.UNKNOWN
    if row is None:
        return stop_reasons.UNKNOWN
    return msgspec.convert(_opened(row), StopReason)


def forget(call_id: UUID) -> None:
    """Delete the inputs of a call."""
    rows = CallInput.objects.filter(call_id=call_id)
    if rows.exists():
        rows.delete()


async def wait_for(call_id: UUID, name: str, seconds: float) -> Mapping[str, Any]:
    """Return the client's response to a question, for `result_of`. Raises NoAnswer after `seconds` without one.

    In the meantime the call's row has the status WAITING, so that it is not settled as stuck.
    """
    try:
        async with asyncio.timeout(seconds):
            # Polls the database: another process may receive the answer.
            while (answer := await run_in_db_thread(_take, call_id, name)) is None:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise NoAnswer(f"The client did not answer within {seconds:g} seconds.") from None
    finally:
        waiting = RunningCall.objects.filter(pk=call_id, status=CallStatus.WAITING)
        running = lambda: waiting.update(status=CallStatus.RUNNING, changed_at=timezone.now())  # noqa: E731
        await asyncio.shield(run_in_db_thread(running))
    response: Mapping[str, Any] = answer
    return response


def result_of(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the result in a client's response. Raises Refused for an error."""
    result, error = response["result"], response["error"]
    if isinstance(result, dict) and error is None:
        return result
    message = error.get("message") if isinstance(error, dict) else None
    raise Refused(f"The client returned an error: {message}" if message else "The client did not answer.")


def _parsed(id: object) -> tuple[UUID | None, str]:
    call, _, name = str(id).partition(":")
    try:
        return UUID(call), name[:MAX_ANSWER_NAME_LENGTH]
    except ValueError:
        return None, ""


def _store(call_id: UUID, name: str, value: Any) -> bool:
    sealed = encryption.seal(exact_json.dumps(value), _purpose(call_id, name))
    try:
        with transaction.atomic():
            CallInput.objects.create(call_id=call_id, name=name, sealed=sealed)
    except IntegrityError:
        return False
    return True


def _take(call_id: UUID, name: str) -> Any:
    """Return an answer, or None. Its row stays, so that no second answer is accepted."""
    row = CallInput.objects.filter(call_id=call_id, name=name).first()
    if row is None:
        # At each poll: the row may be newer than the question, or another answer have been received.
        rows = RunningCall.objects.filter(pk=call_id, status=CallStatus.RUNNING)
        if rows.exists():
            rows.update(status=CallStatus.WAITING, changed_at=timezone.now())
        return None
    CallInput.objects.filter(pk=row.pk).update(sealed=ALREADY_READ)
    return _opened(row)


def unanswered_questions(call_id: UUID) -> set[str]:
    """Return the names of a call's questions without an answer."""
    answered = CallInput.objects.filter(call_id=call_id).values_list("name", flat=True)
    return _open_questions(call_id) - set(answered)


def _open_questions(call_id: UUID) -> set[str]:
    """Return the names of the questions that a call asked and did not cancel."""
    events = CallEvent.objects.filter(call_id=call_id, kind__in=("request", "withdrawal")).order_by("sequence")
    names: set[str] = set()
    for kind, data in events.values_list("kind", "data"):
        (names.add if kind == "request" else names.discard)(exact_json.loads(data)["name"])
    return names


def _opened(row: CallInput) -> Any:
    return exact_json.loads(encryption.unseal(bytes(row.sealed), _purpose(row.call_id, row.name)))


def _purpose(call_id: UUID, name: str) -> str:
    return f"input:{call_id}:{name}"
