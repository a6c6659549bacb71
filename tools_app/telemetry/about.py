"""What the running code is about: the request and the call that each line of the log names.

Set where a request or a call begins, in the context of its own task; threads and tasks that it starts inherit it.
Kept as a plain tuple, which costs next to nothing on the way of a call and is only looked at when something is logged.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

FIELDS = ("method", "request_id", "tenant", "session_id", "call_id", "trace_id")

# The values of FIELDS, as far as they are known, and after them the arguments of the call.
about: ContextVar[tuple[Any, ...]] = ContextVar("about", default=())


def fields() -> dict[str, str]:
    """What is known, by its name."""
    return {name: str(value) for name, value in zip(FIELDS, about.get(), strict=False) if value}


def arguments() -> Mapping[str, Any]:
    """The arguments of the call; they are never logged, but what is secret in them is looked for."""
    known = about.get()
    return known[len(FIELDS)] if len(known) > len(FIELDS) else {}
