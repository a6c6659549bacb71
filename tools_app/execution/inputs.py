"""Clients' answers to what running calls asked, on their way from the process that hears them to the one that waits.

A request to the client has the id `<call>:<name of the question>`, so that any process can tell where its answer
belongs. The answer is sealed at rest, counts once, and is dropped with the end of the call. The reason of a
cancellation takes the same way.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import orjson
from django.db import IntegrityError, transaction
from django.utils import timezone

from tools_app.auth import vault
from tools_app.models import CallEvent, CallInput, CallStatus, RunningCall
from tools_app.models.bridge import in_store

LONGEST_NAME = 200
POLL_SECONDS = 0.25
# Under which name the reason of a cancellation is kept; no question has it, as names of questions are asked first.
REASON = "notifications/cancelled"
TAKEN = b""


class Refused(Exception):
    """The client answered a question with an error, or not at all."""


class Silence(Refused):
    """The client did not answer."""


def request_id(call_id: UUID, name: str) -> str:
    """The id under which a call asks its client."""
    return f"{call_id}:{name}"


def offer(session_id: UUID, id: object, result: Any, error: Any) -> bool:
    """Keep a client's answer for the call that asked. False if no running call of this session waits for it."""
    call_id, name = _parsed(id)
    if call_id is None:
        return False
    running = RunningCall.objects.filter(pk=call_id, session_id=session_id)
    if not running.exists() or name not in _open_questions(call_id):
        return False
    kept = _kept(call_id, name, {"result": result, "error": error})
    if not running.exists():
        # The call ended meanwhile, and may have looked for what to drop before this was there.
        forget(call_id)
    return kept


def note_reason(call_ids: Iterable[UUID], reason: str) -> None:
    """Keep why these calls are cancelled, for whoever runs them."""
    for call_id in call_ids:
        _kept(call_id, REASON, reason)


def reason_of(call_id: UUID) -> str:
    """Why a call was cancelled; empty if nobody said."""
    row = CallInput.objects.filter(call_id=call_id, name=REASON).first()
    return str(_opened(row)) if row else ""


def forget(call_id: UUID) -> None:
    """Drop what clients said to a call."""
    rows = CallInput.objects.filter(call_id=call_id)
    if rows.exists():
        rows.delete()


async def wait_for(call_id: UUID, name: str, seconds: float) -> Mapping[str, Any]:
    """The client's response to a question, for `result_of`. Raises Silence after so many seconds without one.

    The call's row says meanwhile that it waits, so that nobody takes it for stuck.
    """
    try:
        async with asyncio.timeout(seconds):
            # The store is asked in turns: the process that hears the answer may be another one.
            while (answer := await in_store(_take, call_id, name)) is None:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise Silence(f"The client did not answer within {seconds:g} seconds.") from None
    finally:
        await asyncio.shield(in_store(_say_running, call_id))
    response: Mapping[str, Any] = answer
    return response


def result_of(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result in a client's response. Raises Refused for an error."""
    result, error = response["result"], response["error"]
    if isinstance(result, dict) and error is None:
        return result
    message = error.get("message") if isinstance(error, dict) else None
    raise Refused(f"The client refused: {message}" if message else "The client gave no answer.")


def _parsed(id: object) -> tuple[UUID | None, str]:
    call, _, name = str(id).partition(":")
    try:
        return UUID(call), name[:LONGEST_NAME]
    except ValueError:
        return None, ""


def _kept(call_id: UUID, name: str, value: Any) -> bool:
    sealed = vault.seal(orjson.dumps(value), _purpose(call_id, name))
    try:
        with transaction.atomic():
            CallInput.objects.create(call_id=call_id, name=name, sealed=sealed)
    except IntegrityError:
        return False
    return True


def _take(call_id: UUID, name: str) -> Any:
    """An answer, which leaves its place behind so that no other one takes it; None while there is none."""
    row = CallInput.objects.filter(call_id=call_id, name=name).first()
    if row is None:
        _say_waiting(call_id)
        return None
    CallInput.objects.filter(pk=row.pk).update(sealed=TAKEN)
    return _opened(row)


def unanswered(call_id: UUID) -> set[str]:
    """The names of what a call still waits to hear."""
    answered = CallInput.objects.filter(call_id=call_id).values_list("name", flat=True)
    return _open_questions(call_id) - set(answered)


def _open_questions(call_id: UUID) -> set[str]:
    """What a call asked and did not withdraw."""
    said = CallEvent.objects.filter(call_id=call_id, kind__in=("request", "withdrawal")).order_by("sequence")
    names: set[str] = set()
    for kind, data in said.values_list("kind", "data"):
        (names.add if kind == "request" else names.discard)(orjson.loads(data)["name"])
    return names


def _opened(row: CallInput) -> Any:
    return orjson.loads(vault.unseal(bytes(row.sealed), _purpose(row.call_id, row.name)))


def _purpose(call_id: UUID, name: str) -> str:
    return f"input:{call_id}:{name}"


def _say_waiting(call_id: UUID) -> None:
    """Said at each look: the row may be younger than the question, and another answer may have come meanwhile."""
    rows = RunningCall.objects.filter(pk=call_id, status=CallStatus.RUNNING)
    if rows.exists():
        rows.update(status=CallStatus.WAITING, changed_at=timezone.now())


def _say_running(call_id: UUID) -> None:
    rows = RunningCall.objects.filter(pk=call_id, status=CallStatus.WAITING)
    rows.update(status=CallStatus.RUNNING, changed_at=timezone.now())
