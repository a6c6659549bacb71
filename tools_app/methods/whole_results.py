"""Whole results of calls whose answers were shaped: the resources `result://<call id>`, read in parts.

Only the caller of a call reads its result, with the same key or connection, while it may use the tool. What is read is
the result as the audit log contains it: redacted, and cut where the log cuts it.
"""

from typing import Any, Final, NamedTuple
from uuid import UUID

from tools_app.calls import pipeline
from tools_app.calls.request import RequestContext
from tools_app.calls.run import Reading
from tools_app.catalog.compiled import Catalog
from tools_app.catalog.shaping import Part, result_uri
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import ResourceResult, contents
from tools_app.core.database import run_in_db_thread
from tools_app.core.packing import UnpackError
from tools_app.identity.principal import Principal
from tools_app.models import TOOLS_CALL, Call, CallPayload
from tools_app.protocol import exact_json
from tools_app.protocol.errors import RpcError, resource_not_found
from tools_app.protocol.versions import Era

TIMEOUT_SECONDS: Final = 30.0
# Bytes of a character in UTF-8 after its first.
CONTINUATION: Final = range(0x80, 0xC0)
# How the audit log begins a result that it cut.
CUT_NOTICE: Final = '{"truncated":true,'


class StoredResult(NamedTuple):
    """The text of a result as the audit log has it, and how long it was before it was cut there."""

    text: bytes
    size: int


async def read(context: RequestContext, found: Catalog | None, uri: str, part: Part) -> bytes:
    """Return a part of a result. Raises RpcError if the caller may not read it, or it is no longer stored."""
    principal = context.principal
    stored = await run_in_db_thread(_stored, part.call_id, principal, found) if principal.key_id else None
    if stored is None:
        raise await pipeline.refuse_reading(context, uri, {}, _missing(context, uri))
    if len(stored.text) <= part.offset < stored.size:
        raise await pipeline.refuse_reading(context, uri, {}, _not_stored(context, uri, stored))

    async def run(arguments: dict[str, Any], context: ToolContext) -> ResourceResult:  # noqa: ARG001 - a Runner
        return _excerpt(stored, uri, part)

    return await pipeline.read(context, Reading("resources/read", uri, run, TIMEOUT_SECONDS), {})


def _missing(context: RequestContext, uri: str) -> RpcError:
    """Return one error for a result of another caller, one that is not stored, and one that there never was."""
    missing = resource_not_found(uri, modern=context.era is Era.MODERN)
    message = "This result is not stored any more, or no call of this caller had it. Call the tool again."
    return RpcError(missing.code, message, missing.data)


def _not_stored(context: RequestContext, uri: str, stored: StoredResult) -> RpcError:
    """Return the error for a part of a result that the audit log cut off."""
    missing = resource_not_found(uri, modern=context.era is Era.MODERN)
    advice = "Call the tool again for less, or ask an operator of the hub to raise MCPHUB_MAX_PAYLOAD_BYTES."
    message = f"{_extent(stored)} {advice}"
    return RpcError(missing.code, message, {**missing.data, "kept": len(stored.text), "size": stored.size})


def _extent(stored: StoredResult) -> str:
    return f"The audit log keeps no more than the first {len(stored.text)} of {stored.size} bytes of this result."


def _stored(call_id: UUID, principal: Principal, found: Catalog | None) -> StoredResult | None:
    """Return the stored result of a shaped call; None if the caller may not read it, or it was deleted."""
    call = Call.objects.filter(
        pk=call_id,
        tenant_id=principal.tenant_id,
        api_key_id=principal.key_id,
        person_id=principal.person_id,
        shaped_size__isnull=False,
    ).first()
    if call is None or not _may_use(call, principal, found):
        return None
    payload = CallPayload.objects.filter(pk=call_id).first()
    try:
        text = payload.texts().result if payload else ""
    except UnpackError:
        return None
    if text.startswith(CUT_NOTICE):
        cut = exact_json.loads(text)
        return StoredResult(cut["head"].encode(), cut["size"])
    encoded = text.encode()
    return StoredResult(encoded, len(encoded)) if encoded else None


def _may_use(call: Call, principal: Principal, found: Catalog | None) -> bool:
    tool = found.tools.get(call.tool_name) if found is not None else None
    is_same = tool is not None and tool.id == call.tool_id
    return is_same and principal.may("tool", TOOLS_CALL, call.tool_name, found)


def _excerpt(stored: StoredResult, uri: str, part: Part) -> ResourceResult:
    """Return a part of a text, of whole characters, and where it stands in the result."""
    begin = _character(stored.text, min(part.offset, len(stored.text)))
    end = _character(stored.text, min(begin + part.length, len(stored.text)))
    if end == begin and begin < len(stored.text):
        end = _character(stored.text, begin + 4)  # one character at least, so that a client that goes on arrives
    shown = stored.text[begin:end].decode()
    is_whole = begin == 0 and end == stored.size
    parts = [contents(uri, shown, "application/json" if is_whole else "text/plain")]
    if not is_whole:
        parts.append(contents(f"{result_uri(part.call_id)}?offset={end}", _place(stored, begin, end), "text/plain"))
    return ResourceResult(parts)


def _place(stored: StoredResult, begin: int, end: int) -> str:
    """Return which part of a result was read, and how to go on."""
    place = f"[Bytes {begin} to {end} of {stored.size}.]"
    if end < len(stored.text):
        return f"{place} [Continue at offset {end}.]"
    if end < stored.size:
        return f"{place} [{_extent(stored)}]"
    return f"{place} [This is the end.]"


def _character(text: bytes, position: int) -> int:
    """Return the position of the character that this byte belongs to."""
    position = min(position, len(text))
    while 0 < position < len(text) and text[position] in CONTINUATION:
        position -= 1
    return position
