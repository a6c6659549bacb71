"""Downloads of a call's arguments, events and result, complete as stored in the audit log."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import orjson
from django.http import Http404, HttpResponse

from tools_app.calls.admin import payloads
from tools_app.calls.admin.events import event_data
from tools_app.core.packing import UnpackError
from tools_app.models import Call, CallEvent
from tools_app.protocol import exact_json

# Maximum size of the events in one file.
MAX_BYTES: Final = 32 * 1024 * 1024
AT_ONCE: Final = 200


def answer(call: Call, part: str) -> HttpResponse:
    """Return the file of one part of a call. Raises Http404 if the part is unknown or this call does not have it."""
    write = PARTS.get(part)
    if write is None:
        raise Http404("Unknown part. Use arguments, events or result.")
    try:
        text = write(call)
    except UnpackError as problem:
        raise Http404(f"It cannot be read: {problem}.") from problem
    if not text:
        raise Http404("The audit log has no copy of it.")
    kind, ending = ("application/jsonl", "jsonl") if part == "events" else ("application/json", "json")
    headers = {
        "Content-Disposition": f'attachment; filename="{call.pk}-{part}.{ending}"',
        "Cache-Control": "no-store",
    }
    return HttpResponse(text, content_type=kind, headers=headers)


def _arguments(call: Call) -> bytes:
    return payloads.stored_part(call, "arguments").encode()


def _result(call: Call) -> bytes:
    return payloads.stored_part(call, "result").encode()


def _events(call: Call) -> bytes:
    """Return the first events, up to MAX_BYTES, as JSON Lines whose `data` is the recorded data."""
    lines, size = [], 0
    for line in _lines(call):
        size += len(line)
        if size > MAX_BYTES:
            break
        lines.append(line)
    return b"".join(lines)


def _lines(call: Call) -> Iterator[bytes]:
    events = CallEvent.objects.filter(call_id=call.pk).order_by("sequence")
    for event in events.iterator(chunk_size=AT_ONCE):
        line = {"sequence": event.sequence, "at": event.at, "kind": event.kind, "data": event_data(event)}
        yield exact_json.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


PARTS: Final[Mapping[str, Callable[[Call], bytes]]] = {"arguments": _arguments, "events": _events, "result": _result}
