"""Shaping of results: what a client receives of a tool's result, which the record contains whole.

A mask selects fields, arrays are cut to a number of items, and texts to a number of bytes. The mask and the number of
items apply to structured content and to texts that are JSON. Errors are never shaped.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from tools_app.catalog.tokens import CHARACTERS_OF_A_TOKEN
from tools_app.catalog.tool_api.results import Block, ToolResult, link, text
from tools_app.core.config import config
from tools_app.core.field_mask import FieldMask, MaskError, StepBudget
from tools_app.core.process.fair_threads import FairThreads, QueueFull
from tools_app.core.process.runtime import Service
from tools_app.models import Tool
from tools_app.protocol import exact_json

# Of definitions of tools: those that a revision has only if they are set.
SHAPING_FIELDS: Final = ("result_mask", "result_items", "result_bytes")
SCHEME: Final = "result://"
DEFAULT_PART_BYTES: Final = 64 * 1024
MAX_PART_BYTES: Final = 256 * 1024
# The threads that shape results, for all tenants, and the results that wait for one. A tenant has one thread at most.
THREADS: Final = 2
MAX_WAITING: Final = 512
MAX_WAITING_OF_TENANT: Final = 64
BUSY: Final = "[The result is not shown: too many results of this tenant are being shaped at this moment.]"
MAX_NESTING: Final = 200
_MISSING: Final = object()
_ADDRESS: Final = re.compile(
    re.escape(SCHEME) + r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"(?:\?(?:offset=([0-9]{1,10}))?(?:(?:&|(?<=\?))length=([0-9]{1,10}))?)?"
)


@dataclass(frozen=True, slots=True)
class Shaping:
    """How the results of a tool are shaped. `max_bytes` bounds the content, and the structured content by itself."""

    mask: FieldMask | None
    max_items: int | None
    max_bytes: int | None


class Shaped(NamedTuple):
    """A shaped result, and why its mask could not be applied; "" if it was."""

    result: ToolResult
    problem: str = ""


def shaping_of(tool: Tool) -> Shaping | None:
    """Return how a tool's results are shaped; None if they are not. Raises ValueError for an invalid mask."""
    if not (tool.result_mask or tool.result_items or tool.result_bytes):
        return None
    return Shaping(
        FieldMask(tool.result_mask) if tool.result_mask else None, tool.result_items or None, tool.result_bytes or None
    )


def result_uri(call_id: UUID) -> str:
    """Return the URI under which the caller reads the whole result of a call."""
    return f"{SCHEME}{call_id}"


class Part(NamedTuple):
    """A part of the result of a call, in bytes of its JSON text. Without a length, as many as one answer has."""

    call_id: UUID
    offset: int
    length: int


def part_of(uri: str) -> Part | None:
    """Return the part of a result that a URI names; None for another URI."""
    found = _ADDRESS.fullmatch(uri)
    if found is None:
        return None
    length = int(found[3]) if found[3] else DEFAULT_PART_BYTES
    return Part(UUID(found[1]), int(found[2] or 0), min(max(1, length), MAX_PART_BYTES))


_threads = Service(lambda: FairThreads("shaping", THREADS, MAX_WAITING, MAX_WAITING_OF_TENANT), FairThreads.stop)


async def shaped(tenant_id: UUID, shaping: Shaping, wire: bytes, call_id: UUID | None) -> ToolResult | None:
    """Return what the client receives of a result, with a link to the whole; None if it receives all of it.

    `wire` is the result as JSON. Without `call_id`, the caller cannot read the whole, and there is no link.
    """
    shaped_result = await shape_in_thread(tenant_id, shaping, wire)
    if shaped_result is None:
        return None
    content = list(shaped_result.result.content)
    if shaped_result.problem:
        content.append(text(f"[The result was not filtered: {shaped_result.problem}]"))
    if call_id is not None:
        about = {"description": "Parts: add ?offset=0&length=65536, in bytes.", "mimeType": "application/json"}
        recorded_bytes = config.MCPHUB_MAX_PAYLOAD_BYTES
        name = (
            f"Whole result, {len(wire)} bytes"
            if len(wire) <= recorded_bytes
            else f"First {recorded_bytes} bytes of {len(wire)}"
        )
        content.append(link(result_uri(call_id), name, size=min(len(wire), recorded_bytes), **about))
    cause = (
        f"The field mask was not applied: {shaped_result.problem}"
        if shaped_result.problem
        else shaped_result.result.cause
    )
    return ToolResult(content, structured=shaped_result.result.structured, cause=cause)


async def shape_in_thread(tenant_id: UUID, shaping: Shaping, wire: bytes) -> Shaped | None:
    """Return the shaped result without keeping the event loop busy; None if it is the whole.

    If too many results of the tenant wait, nothing of this one is shown, because it is not known what to leave out.
    """
    try:
        return await _threads().run(tenant_id, lambda: shape(shaping, wire))
    except QueueFull:
        return Shaped(ToolResult([text(BUSY)], cause="Too many results of the tenant waited to be shaped."))


def shape(shaping: Shaping, wire: bytes) -> Shaped | None:
    """Return the shaped result; None if it is the whole. For threads: it may take a second."""
    whole = exact_json.loads(wire)
    content, structured = whole["content"], whole.get("structuredContent")
    shaped_structured, shaped_content, problem = _selected(shaping, content, structured)
    if shaping.max_bytes is not None:
        shaped_content = _cut(shaped_content, shaping.max_bytes)
        if shaped_structured is not None and len(exact_json.dumps(shaped_structured)) > shaping.max_bytes:
            shaped_structured = None
    if not problem and shaped_content == content and shaped_structured == structured:
        return None
    return Shaped(ToolResult(shaped_content, structured=shaped_structured), problem)


def _selected(shaping: Shaping, content: list[Block], structured: Any) -> tuple[Any, list[Block], str]:
    """Return the selected structured content and the content, and why the mask or the cut did not fit; "" if it did."""
    problem = ""
    for selection in (_Selection(shaping.mask, shaping.max_items), _Selection(None, shaping.max_items)):
        try:
            selected, blocks = selection.of(content, structured)
            size = len(exact_json.dumps([selected, blocks]))
        except (MaskError, TypeError, RecursionError) as found:
            problem = problem or (
                str(found) if isinstance(found, MaskError) else "It makes values that JSON cannot hold."
            )
            continue
        if size <= config.MCPHUB_MAX_RESULT_BYTES:
            return selected, blocks, problem
        problem = problem or f"It makes a result of more than {config.MCPHUB_MAX_RESULT_BYTES} bytes."
    return structured, content, problem


@dataclass(frozen=True, slots=True)
class _Selection:
    """The parts of JSON data that clients receive."""

    mask: FieldMask | None
    max_items: int | None
    budget: StepBudget = field(default_factory=StepBudget)

    def of(self, content: list[Block], structured: Any) -> tuple[Any, list[Block]]:
        """Return the selected structured content, and the content. Raises MaskError."""
        selected = None if structured is None else self._selected(structured)
        return selected, [self._block(block, structured, selected) for block in content]

    def _block(self, block: Block, structured: Any, selected: Any) -> Block:
        value = _json_in(block)
        if value is _MISSING:
            return block
        # Usually, the text repeats the structured content.
        selection = selected if structured is not None and value == structured else self._selected(value)
        if selection == value:
            return block
        try:
            return {**block, "text": exact_json.dumps(selection).decode()}
        except TypeError as problem:
            raise MaskError("The selection cannot be written as JSON.") from problem

    def _selected(self, value: Any) -> Any:
        if self.mask is not None:
            value = self.mask.apply(value, self.budget)
        return value if self.max_items is None else self._limited(value, self.max_items)

    def _limited(self, value: Any, most: int, depth: int = 0) -> Any:
        """Return the value with at most so many items in each of its arrays."""
        if depth > MAX_NESTING:
            raise MaskError("The result is nested too deeply.")
        if isinstance(value, list):
            return [self._limited(item, most, depth + 1) for item in value[:most]]
        if isinstance(value, dict):
            return {name: self._limited(item, most, depth + 1) for name, item in value.items()}
        return value


def _json_in(block: Block) -> Any:
    """Return the JSON object or array that is the text of a block."""
    text = block.get("text") if block.get("type") == "text" else None
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return _MISSING
    try:
        return exact_json.loads(text)
    except orjson.JSONDecodeError:
        return _MISSING


def _cut(content: list[Block], most: int) -> list[Block]:
    """Return content of at most so many bytes, and sentences that say what is missing."""
    blocks: list[Block] = []
    left, dropped = most, 0
    for block in content:
        encoded = block["text"].encode() if block.get("type") == "text" else exact_json.dumps(block)
        if len(encoded) <= left:
            blocks.append(block)
            left -= len(encoded)
        elif block.get("type") == "text" and left > 0:
            shown = encoded[:left].decode(errors="ignore")
            blocks.append({**block, "text": f"{shown}\n[The text was cut after {left} of {len(encoded)} bytes.]"})
            left = 0
        else:
            dropped += 1
    if dropped:
        blocks.append(text(f"[{dropped} more content {'block is' if dropped == 1 else 'blocks are'} left out.]"))
    return blocks


def tokens_of_bytes(size: int) -> int:
    """Return about how many tokens a text of so many bytes costs a model."""
    return -(-size // CHARACTERS_OF_A_TOKEN)
