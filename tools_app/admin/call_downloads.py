"""What a call was sent, said and answered, as files: whole, as the audit log keeps it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import orjson
from django.http import Http404, HttpResponse

from tools_app.admin import call_payloads
from tools_app.admin.call_events import said
from tools_app.models import Call, CallEvent
from tools_app.models.packing import NotPacked

# How much of the events of a call one file holds.
MOST_BYTES: Final = 32 * 1024 * 1024
AT_ONCE: Final = 200


def answer(call: Call, part: str) -> HttpResponse:
    """The file of one part of a call. Raises Http404 for a part that calls do not have, or this one has not."""
    write = PARTS.get(part)
    if write is None:
        raise Http404("A call has arguments, events and a result.")
    try:
        text = write(call)
    except NotPacked as problem:
        raise Http404(f"This is not readable: {problem}.") from problem
    if not text:
        raise Http404("The audit log kept nothing of it.")
    kind, ending = ("application/jsonl", "jsonl") if part == "events" else ("application/json", "json")
    headers = {
        "Content-Disposition": f'attachment; filename="{call.pk}-{part}.{ending}"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return HttpResponse(text, content_type=kind, headers=headers)


def _arguments(call: Call) -> bytes:
    return call_payloads.kept(call, "arguments").encode()


def _result(call: Call) -> bytes:
    return call_payloads.kept(call, "result").encode()


def _events(call: Call) -> bytes:
    """The first events, MOST_BYTES of them: each a line of JSON whose `data` is what was recorded."""
    lines, size = [], 0
    for line in _lines(call):
        size += len(line)
        if size > MOST_BYTES:
            break
        lines.append(line)
    return b"".join(lines)


def _lines(call: Call) -> Iterator[bytes]:
    events = CallEvent.objects.filter(call_id=call.pk).order_by("sequence")
    for event in events.iterator(chunk_size=AT_ONCE):
        line = {"sequence": event.sequence, "at": event.at, "kind": event.kind, "data": said(event)}
        yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


PARTS: Final[Mapping[str, Callable[[Call], bytes]]] = {"arguments": _arguments, "events": _events, "result": _result}
