"""Arguments, events and result of a call: as its page shows them, bounded, and as downloads, as they are stored."""

from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import orjson
from django.http import Http404, HttpResponse

from tools_app.calls.admin.columns import indented
from tools_app.calls.admin.events import event_data
from tools_app.core.packing import UnpackError
from tools_app.core.relations import related
from tools_app.models import Call, CallEvent, CallPayload
from tools_app.protocol import exact_json

Part = Literal["arguments", "result"]

# Maximum length shown on the page; the download is complete.
MAX_SHOWN: Final = 262_144
# The keys that `audit.recorder.redaction` writes for a text that exceeds the maximum length.
CUT_OFF: Final = {"truncated", "size", "head"}


@dataclass(frozen=True)
class Shown:
    """A text of a record. `note` says why it is incomplete or missing."""

    text: str = ""
    note: str = ""


def shown(call: Call, part: Part) -> Shown:
    """Return one part of a call as shown on the page."""
    size = call.arguments_size if part == "arguments" else call.result_size
    try:
        text = stored_part(call, part)
    except UnpackError as problem:
        return Shown(note=f"Cannot be read: {problem}.")
    if not text:
        return Shown(note=f"Not recorded ({size} bytes)." if size else "None.")
    return shown_text(text)


def shown_text(text: str) -> Shown:
    """Return JSON text as shown on the page."""
    cut_off = _cut_off(text)
    if cut_off is not None:
        head, size = cut_off
        note = f"Truncated when it was recorded; the original had {size} bytes."
        return Shown(head[:MAX_SHOWN], note)
    if len(text) > MAX_SHOWN:
        note = f"Showing the first {MAX_SHOWN} of {len(text)} characters. Download it to see the rest."
        return Shown(text[:MAX_SHOWN], note)
    # Indentation can multiply the length of deeply nested values.
    laid_out = indented(text)
    return Shown(laid_out if len(laid_out) <= MAX_SHOWN else text)


def stored_part(call: Call, part: Part) -> str:
    """Return one part of a call as stored in the audit log, or an empty string. Raises packing.UnpackError."""
    payload: CallPayload | None = related(call, "payload")
    return getattr(payload.texts(), part) if payload else ""


def _cut_off(text: str) -> tuple[str, Any] | None:
    """Return the beginning and original size of a text that was truncated when recorded, or None if it was not."""
    if not text.startswith('{"truncated":true,'):
        return None
    try:
        value = exact_json.loads(text)
    except ValueError:
        return None
    return (str(value["head"]), value["size"]) if value.keys() == CUT_OFF else None


# Maximum size of the events in one file.
MAX_BYTES: Final = 32 * 1024 * 1024
AT_ONCE: Final = 200


def download(call: Call, part: str) -> HttpResponse:
    """Return the file of one part of a call. Raises Http404 if the part is unknown or this call does not have it."""
    if part not in ("arguments", "events", "result"):
        raise Http404("Unknown part. Use arguments, events or result.")
    try:
        text = _events(call) if part == "events" else stored_part(call, cast("Part", part)).encode()
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


def _events(call: Call) -> bytes:
    """Return the first events, up to MAX_BYTES, as JSON Lines whose `data` is the recorded data."""
    lines, size = [], 0
    events = CallEvent.objects.filter(call_id=call.pk).order_by("sequence")
    for event in events.iterator(chunk_size=AT_ONCE):
        data = {"sequence": event.sequence, "at": event.at, "kind": event.kind, "data": event_data(event)}
        line = exact_json.dumps(data, option=orjson.OPT_APPEND_NEWLINE)
        size += len(line)
        if size > MAX_BYTES:
            break
        lines.append(line)
    return b"".join(lines)
