"""Resumption of a stream after its last event, in any process (2025-11-25, transports, §Resumability)."""

from collections.abc import AsyncIterator
from functools import partial
from uuid import UUID

from tools_app.calls import events as store
from tools_app.calls.background.delivery import follow
from tools_app.calls.events import Event, NotificationEncoder, Origin
from tools_app.calls.invocation import call_topic
from tools_app.calls.outcomes import CallOutcome
from tools_app.calls.request import complete_result, downgrade_for_version
from tools_app.calls.sessions import SessionFacts
from tools_app.core import large_work
from tools_app.core.database import run_in_db_thread
from tools_app.core.notifications.listener import TopicListener
from tools_app.protocol import exact_json
from tools_app.protocol.jsonrpc import error_message, result_message
from tools_app.protocol.sse import Frame
from tools_app.protocol.versions import Era

MAX_DIGITS = 9


async def stream_after(
    last_event: str | None, session: SessionFacts, listener: TopicListener
) -> AsyncIterator[Frame] | None:
    """Return a call's events after `last_event`, and its response. None if that is no event of this session."""
    place = parsed_event_id(last_event) if last_event else None
    if place is None:
        return None
    call_id, after = place
    origin = await run_in_db_thread(store.origin_of, call_id, session.id)
    return _rest(call_id, after, origin, session, listener) if origin else None


async def _rest(
    call_id: UUID, after: int, origin: Origin, session: SessionFacts, listener: TopicListener
) -> AsyncIterator[Frame]:
    encoder = NotificationEncoder(call_id, session.version, session.log_level)
    # The stream starts immediately, even if the next event is late.
    yield Frame(b"")
    with listener.subscribe(call_topic(call_id)) as subscription:
        async for news in follow(call_id, origin.name, after, subscription):
            if not isinstance(news, Event):
                assert isinstance(news, CallOutcome), "in this era a call waits in its process"
                if not news.withdrawn:
                    answer = partial(_answer, news, origin, session.version)
                    yield Frame(await large_work.run(len(news.wire), answer))
                return
            message = encoder.message_of(news)
            yield Frame(message, encoder.event_id(news.sequence)) if message else Frame(b"")


def _answer(outcome: CallOutcome, origin: Origin, version: str) -> bytes:
    id = exact_json.loads(origin.request_id)
    if outcome.refusal is not None:
        return error_message(id, outcome.refusal)
    return result_message(id, complete_result(downgrade_for_version(outcome, version), Era.HANDSHAKE))


def parsed_event_id(value: str) -> tuple[UUID, int] | None:
    """Return the call id and the sequence number of an event id; None if it is invalid."""
    call, _, sequence = value.partition("/")
    if not (sequence.isascii() and sequence.isdigit() and len(sequence) <= MAX_DIGITS):
        return None
    try:
        return UUID(call), int(sequence)
    except ValueError:
        return None
