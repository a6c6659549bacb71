"""What was said in calls, beside the facts: arguments, results and events, for a piece of an export at a time."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from tools_app.models import Call, CallEvent, CallPayload
from tools_app.models.calls import Texts
from tools_app.models.packing import NotPacked

# Of all calls of a piece together: one that said a million things does not fill the memory.
MOST_EVENTS: Final = 20_000
UNREADABLE: Final = "[not readable]"

Event = tuple[datetime, str, str]


class Details(NamedTuple):
    """Arguments and result as JSON texts, and events: when, of what kind, and their data as JSON text."""

    arguments: str
    result: str
    events: Sequence[Event]


def details_of(calls: Sequence[Call], *, with_events: bool) -> dict[UUID, Details]:
    """What was said in each of these calls."""
    payloads = CallPayload.objects.in_bulk([call.pk for call in calls])
    events = _events(calls) if with_events else {}
    return {call.pk: Details(*_texts(payloads.get(call.pk)), events.get(call.pk, ())) for call in calls}


def _texts(payload: CallPayload | None) -> Texts:
    try:
        return payload.texts() if payload else Texts("", "")
    except NotPacked:
        return Texts(UNREADABLE, UNREADABLE)


def _events(calls: Sequence[Call]) -> dict[UUID, list[Event]]:
    talked = [call.pk for call in calls if call.event_count]
    found: dict[UUID, list[Event]] = defaultdict(list)
    rows = CallEvent.objects.filter(call_id__in=talked).order_by("call_id", "sequence") if talked else ()
    for event in rows[:MOST_EVENTS]:
        found[event.call_id].append((event.at, event.kind, event.data))
    return found
