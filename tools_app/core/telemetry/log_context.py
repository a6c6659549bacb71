"""The log context of running code: the request and the call that each log line names.

It is set where a request or a call starts, in the context of its own task, and inherited by threads and tasks that it
starts. A plain tuple costs almost nothing for a call and is only read when something is logged.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

FIELDS = ("method", "request_id", "tenant", "session_id", "call_id", "trace_id")

# The values of FIELDS, as far as known, followed by a list that holds the arguments of the call.
log_fields: ContextVar[tuple[Any, ...]] = ContextVar("about", default=())


def fields() -> dict[str, str]:
    """Return the known fields by name."""
    return {name: str(value) for name, value in zip(FIELDS, log_fields.get(), strict=False) if value}


def tenant() -> str:
    """Return the tenant of the request or the call, "" without one."""
    known = log_fields.get()
    return known[2] if known else ""


def arguments() -> Mapping[str, Any]:
    """Return the arguments of the call. They are never logged, but secrets in them are redacted from log lines."""
    known = log_fields.get()
    return known[len(FIELDS)][0] if len(known) > len(FIELDS) else {}


def replace_arguments(arguments: Mapping[str, Any]) -> None:
    """Replace the arguments of the call, also in contexts that were copied from this one."""
    known = log_fields.get()
    if len(known) > len(FIELDS):
        known[len(FIELDS)][0] = arguments
