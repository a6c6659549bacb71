"""Taking a stream up again after its last event (2025-11-25, transports, §Resumability), in whichever process."""

from collections.abc import AsyncIterator
from uuid import UUID

import orjson

from tools_app.auth.sessions import SessionFacts
from tools_app.events import store
from tools_app.events.store import Event, Origin
from tools_app.events.switchboard import Switchboard
from tools_app.execution.background import followed
from tools_app.execution.invocation import call_topic
from tools_app.execution.run import Ran
from tools_app.methods.events import Hearing, parsed_event_id
from tools_app.methods.invoking import fitting
from tools_app.methods.results import complete
from tools_app.models import Outcome
from tools_app.models.bridge import in_store
from tools_app.protocol.jsonrpc import error_message, result_message
from tools_app.protocol.sse import Frame
from tools_app.protocol.versions import Era


async def stream_after(
    last_event: str | None, session: SessionFacts, switchboard: Switchboard
) -> AsyncIterator[Frame] | None:
    """What a call said after `last_event`, and its answer. None if that is no event of a call of this session."""
    place = parsed_event_id(last_event) if last_event else None
    if place is None:
        return None
    call_id, after = place
    origin = await in_store(store.origin, call_id, session.id)
    return _rest(call_id, after, origin, session, switchboard) if origin else None


async def _rest(
    call_id: UUID, after: int, origin: Origin, session: SessionFacts, switchboard: Switchboard
) -> AsyncIterator[Frame]:
    hearing = Hearing(call_id, session.version, session.log_level)
    # The stream begins at once, whenever the next event comes.
    yield Frame(b"")
    with switchboard.watching(call_topic(call_id)) as watch:
        async for news in followed(call_id, origin.name, after, watch):
            if not isinstance(news, Event):
                assert isinstance(news, Ran), "in this era a call waits in its process"
                if news.outcome != Outcome.CANCELLED:
                    yield Frame(_answer(news, origin, session.version))
                return
            message = hearing.message_of(news)
            yield Frame(message, hearing.event_id(news.sequence)) if message else Frame(b"")


def _answer(ran: Ran, origin: Origin, version: str) -> bytes:
    id = orjson.loads(origin.request_id)
    if ran.refusal is not None:
        return error_message(id, ran.refusal)
    return result_message(id, complete(fitting(ran, version), Era.HANDSHAKE))
