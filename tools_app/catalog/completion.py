"""Completers: suggestions for the values of an argument (completion)."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

# The maximum number of suggestions in a result (completion, §Completion Results).
MAX_VALUES = 100

Completer = Callable[[str, Mapping[str, str]], Iterable[str] | Awaitable[Iterable[str]]]


def among(values: Iterable[str]) -> Completer:
    """Return a completer of `values`, ignoring case: those that start with the input, then those that contain it."""
    offered = tuple(values)

    def complete(typed: str, _given: Mapping[str, str]) -> Iterable[str]:
        wanted = typed.casefold()
        first = [value for value in offered if value.casefold().startswith(wanted)]
        begun = set(first)
        return first + [value for value in offered if wanted in value.casefold() and value not in begun]

    return complete


async def suggestions(completer: Completer, typed: str, given: Mapping[str, str]) -> list[str]:
    """Return the suggestions of `completer`; one that is not `async` runs in a thread."""
    if inspect.iscoroutinefunction(completer):
        return list(await completer(typed, given))

    def run() -> list[str]:
        suggested = completer(typed, given)
        assert not isinstance(suggested, Awaitable)
        return list(suggested)

    return await asyncio.to_thread(run)


def enumerated(schema: Mapping[str, Any]) -> Completer | None:
    """Return a completer of the values that a schema enumerates."""
    values = schema.get("enum")
    return among(map(str, values)) if isinstance(values, list) else None
