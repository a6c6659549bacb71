"""Arguments and result of a call as its page shows them: readable, bounded, and with a word on what is missing."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from tools_app.admin.call_facts import indented
from tools_app.models import Call, CallPayload
from tools_app.models.packing import NotPacked
from tools_app.models.reading import related

Part = Literal["arguments", "result"]

# What a page bears of each; the download has the whole.
MOST_SHOWN: Final = 262_144
# What `audit.redaction` makes of a text that is longer than the log keeps.
CUT_OFF: Final = {"truncated", "size", "head"}


@dataclass(frozen=True)
class Shown:
    """A text of a record. `note` says why it is not whole, or why there is none."""

    text: str = ""
    note: str = ""


def shown(call: Call, part: Part) -> Shown:
    """What the page shows of one part of a call."""
    size = call.arguments_size if part == "arguments" else call.result_size
    try:
        text = kept(call, part)
    except NotPacked as problem:
        return Shown(note=f"Not readable: {problem}.")
    if not text:
        return Shown(note=f"Not kept ({size} bytes)." if size else "None.")
    return shown_text(text)


def shown_text(text: str) -> Shown:
    """JSON text as a page shows it."""
    cut_off = _cut_off(text)
    if cut_off is not None:
        head, size = cut_off
        note = f"The audit log kept the beginning of {size} bytes: more is cut off when it is recorded."
        return Shown(head[:MOST_SHOWN], note)
    if len(text) > MOST_SHOWN:
        note = f"The first {MOST_SHOWN} of {len(text)} characters. Download it to see the rest."
        return Shown(text[:MOST_SHOWN], note)
    # Indented, deep values are many times as long.
    laid_out = indented(text)
    return Shown(laid_out if len(laid_out) <= MOST_SHOWN else text)


def kept(call: Call, part: Part) -> str:
    """One part of a call as the audit log keeps it; empty for nothing. Raises packing.NotPacked."""
    payload: CallPayload | None = related(call, "payload")
    return getattr(payload.texts(), part) if payload else ""


def _cut_off(text: str) -> tuple[str, Any] | None:
    """The beginning of a text that was cut off when it was recorded, and its size; None for one that was not."""
    if not text.startswith('{"truncated":true,'):
        return None
    try:
        value = orjson.loads(text)
    except ValueError:
        return None
    return (str(value["head"]), value["size"]) if value.keys() == CUT_OFF else None
