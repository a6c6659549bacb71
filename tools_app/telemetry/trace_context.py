"""The trace that a request belongs to, as W3C Trace Context writes it: `00-<trace id>-<span id>-<flags>`.

It comes in a request's `_meta` (2026-07-28, base protocol, §`_meta`), which wins, or in the headers of HTTP. Plain
parsing, without OpenTelemetry: a call's record names its trace in any case.
"""

import re
from collections.abc import Mapping
from typing import Any

KEYS = ("traceparent", "tracestate", "baggage")
# What the specification of each asks every platform to carry at least; more is nobody's trace.
LONGEST = 8192

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id(params: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """The id of the trace that the client began, in 32 hex digits; "" without one."""
    meta = params.get("_meta")
    said = meta.get("traceparent") if isinstance(meta, dict) else None
    header = headers.get("traceparent")
    # Most requests have neither.
    return "" if said is None and header is None else _trace_id(said) or _trace_id(header)


def carrier(params: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, str]:
    """All that the client says of its trace, from one place; empty if it says nothing that is valid."""
    meta = params.get("_meta")
    for source in (meta if isinstance(meta, dict) else {}, headers):
        if _trace_id(source.get("traceparent")):
            said = ((key, source.get(key)) for key in KEYS)
            return {key: value for key, value in said if isinstance(value, str) and len(value) <= LONGEST}
    return {}


def _trace_id(traceparent: Any) -> str:
    if not isinstance(traceparent, str):
        return ""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1] if found else ""
