"""Arguments and result of a call as shown on its page: formatted, bounded, with a note on what is missing."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from tools_app.calls.admin.columns import indented
from tools_app.core.packing import UnpackError
from tools_app.core.relations import related
from tools_app.models import Call, CallPayload
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
