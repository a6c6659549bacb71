"""Calls in one line each, as a list shows them: the arguments and what came of them, or the piece that was searched.

Payloads are read in one query for all rows of a page, and of large ones only the beginning: a line shows no more.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import BinaryField
from django.db.models.functions import Left, Substr
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tools_app.audit.search.failures import cause_line
from tools_app.audit.search.scan import spellings_of
from tools_app.core import packing
from tools_app.models import Call, CallPayload, Outcome
from tools_app.protocol import exact_json

# The characters of each text that a line shows, and of which its beginning is read.
MAX_PART: Final = 100
MAX_HEAD: Final = 2_000
MAX_PACKED_HEAD: Final = 32 * 1024
# The characters before and after a match.
BEFORE, AFTER = 40, 80
# The size of all payloads of a page that are read whole to find where a text matches.
MAX_SEARCHED_BYTES: Final = 4 * 1024 * 1024
CUT: Final = "…"
NONE: Final = "-"

Beginnings = Mapping[UUID, tuple[str, str]]


def summaries(calls: Sequence[Call], audits: Callable[[UUID | None], bool], text: str = "") -> dict[UUID, SafeString]:
    """Return a line for each call: `-` for a call whose payload the person may not read.

    With a searched `text`, the line is the piece that matches, if it can be found in a bounded amount of data.
    """
    readable = [call for call in calls if audits(call.tenant_id)]
    matches = dict(_matches(readable, text)) if text else {}
    beginnings = _beginnings([call.pk for call in readable if call.pk not in matches])
    lines = {call.pk: matches.get(call.pk) or _line(call, beginnings) for call in readable}
    return {call.pk: lines.get(call.pk) or format_html("{}", NONE) for call in calls}


def _line(call: Call, beginnings: Beginnings) -> SafeString:
    arguments, result = beginnings.get(call.pk, ("", ""))
    came_of_it = cause_line(call.cause) if call.cause and call.outcome != Outcome.OK else readable_result(result)
    parts = [
        part if len(part) <= MAX_PART else part[:MAX_PART] + CUT
        for part in (arguments if arguments != "{}" else "", came_of_it)
        if part
    ]
    if not parts:
        return format_html("{}", NONE)
    whole = " → ".join(parts)
    return format_html('<span class="call-line" title="{}">{}</span>', whole, whole)


def readable_result(text: str) -> str:
    """Return the first text of a tool's result, or the result as it is stored where it has none."""
    try:
        value: Any = exact_json.loads(text)
    except ValueError:
        return text
    content = value.get("content") if isinstance(value, dict) else None
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    found = next((one for one in texts if isinstance(one, str) and one), None)
    return text if found is None else " ".join(found[:MAX_HEAD].split())


def _beginnings(ids: Sequence[UUID]) -> Beginnings:
    """Return the beginning of the arguments and the result of calls."""
    if not ids:
        return {}
    packed = Substr("packed", 1, MAX_PACKED_HEAD, output_field=BinaryField())
    rows = CallPayload.objects.filter(pk__in=ids).values_list(
        "pk", Left("arguments", MAX_HEAD), Left("result", MAX_HEAD), packed
    )
    return {
        id: (arguments, result) if head is None else packing.unpack_beginnings(bytes(head), MAX_HEAD)
        for id, arguments, result, head in rows
    }


def _matches(calls: Sequence[Call], text: str) -> Iterator[tuple[UUID, SafeString]]:
    """Yield the pieces that match, of the causes and of payloads up to MAX_SEARCHED_BYTES together."""
    pattern = re.compile("|".join(re.escape(spelling) for spelling in sorted(spellings_of(text))), re.IGNORECASE)
    ids, left = [], MAX_SEARCHED_BYTES
    for call in calls:
        found = pattern.search(call.cause)
        if found:
            yield call.pk, _piece(found)
            continue
        left -= call.arguments_size + call.result_size
        if left < 0:
            break
        ids.append(call.pk)
    for payload in CallPayload.objects.filter(pk__in=ids) if ids else ():
        found = _found_in(payload, pattern)
        if found:
            yield payload.pk, _piece(found)


def _found_in(payload: CallPayload, pattern: re.Pattern[str]) -> re.Match[str] | None:
    try:
        texts = payload.texts()
    except packing.UnpackError:
        return None
    return pattern.search(texts.arguments) or pattern.search(texts.result)


def _piece(found: re.Match[str]) -> SafeString:
    text, start, end = found.string, found.start(), found.end()
    before = text[max(0, start - BEFORE) : start]
    after = text[end : end + AFTER]
    return format_html(
        '<span class="call-line">{}{}<mark>{}</mark>{}{}</span>',
        CUT if start > BEFORE else "",
        before,
        found.group()[:AFTER],
        after,
        CUT if end + AFTER < len(text) else "",
    )
