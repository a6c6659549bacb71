"""Clients' answers to what running calls asked, on their way from the process that hears them to the one that waits.

A request to the client has the id `<call>:<name of the question>`, so that any process can tell where its answer
belongs. The answer is sealed at rest and taken once.
"""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson
from django.db import IntegrityError, transaction

from tools_app.auth import vault
from tools_app.events import publish
from tools_app.models import CallInput, CallStatus, RunningCall
from tools_app.models.bridge import in_store

LONGEST_NAME = 200
POLL_SECONDS = 0.25


class Refused(Exception):
    """The client answered a question with an error."""


def request_id(call_id: UUID, name: str) -> str:
    """The id under which a call asks its client."""
    return f"{call_id}:{name}"


def topic(call_id: UUID) -> str:
    """What is rung when a call gets an answer."""
    return f"input:{call_id}"


def offer(session_id: UUID, id: object, result: Any, error: Any) -> bool:
    """Keep a client's answer for the call that asked. False if no running call of this session asked for it."""
    call_id, name = _parsed(id)
    if call_id is None or not RunningCall.objects.filter(pk=call_id, session_id=session_id).exists():
        return False
    return store(call_id, {name: {"result": result, "error": error}}) > 0


def store(call_id: UUID, answers: Mapping[str, Any]) -> int:
    """Keep answers of a call by their names; how many of them were new."""
    kept = sum(_kept(call_id, name, value) for name, value in answers.items())
    if kept:
        publish.ring(topic(call_id))
    return kept


def taken(call_id: UUID) -> dict[str, Any]:
    """All answers of a call so far, by name."""
    return {row.name: _opened(row) for row in CallInput.objects.filter(call_id=call_id)}


def forget(call_id: UUID) -> None:
    """Drop what is left of a call's answers."""
    CallInput.objects.filter(call_id=call_id).delete()


async def wait_for(call_id: UUID, name: str, seconds: float) -> Mapping[str, Any]:
    """The result by which the client answered a question. Raises Refused for an error, or after so many seconds.

    The call's row says meanwhile that it waits, so that nobody takes it for stuck.
    """
    await in_store(_say_waiting, call_id, True)
    try:
        async with asyncio.timeout(seconds):
            # The store is asked in turns: the process that hears the answer may be another one.
            while (answer := await in_store(_take, call_id, name)) is None:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise Refused(f"The client did not answer within {seconds:g} seconds.") from None
    finally:
        await asyncio.shield(in_store(_say_waiting, call_id, False))
    result: Any = answer["result"]
    if answer["error"] is not None or not isinstance(result, dict):
        message = answer["error"].get("message") if isinstance(answer["error"], dict) else None
        raise Refused(f"The client refused: {message}" if message else "The client gave no answer.")
    return result


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
    row = CallInput.objects.filter(call_id=call_id, name=name).first()
    if row is None:
        return None
    row.delete()
    return _opened(row)


def _opened(row: CallInput) -> Any:
    return orjson.loads(vault.unseal(bytes(row.sealed), _purpose(row.call_id, row.name)))


def _purpose(call_id: UUID, name: str) -> str:
    return f"input:{call_id}:{name}"


def _say_waiting(call_id: UUID, waiting: bool) -> None:
    before, now = CallStatus.RUNNING, CallStatus.WAITING
    if not waiting:
        before, now = now, before
    RunningCall.objects.filter(pk=call_id, status=before).update(status=now)
