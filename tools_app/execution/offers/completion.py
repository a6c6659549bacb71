"""Suggestions for the values of an argument (completion), and who makes them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

# What a client gets at most (completion, §Completion Results).
MOST_VALUES = 100

Completer = Callable[[str, Mapping[str, str]], Iterable[str] | Awaitable[Iterable[str]]]


def among(values: Iterable[str]) -> Completer:
    """Suggests those of `values` that begin like what was typed, whatever the case; then those that contain it."""
    offered = tuple(values)

    def complete(typed: str, _given: Mapping[str, str]) -> Iterable[str]:
        wanted = typed.casefold()
        first = [value for value in offered if value.casefold().startswith(wanted)]
        return first + [value for value in offered if wanted in value.casefold() and value not in first]

    return complete


async def suggestions(completer: Completer, typed: str, given: Mapping[str, str]) -> list[str]:
    """What `completer` suggests; one that is not `async` runs in a thread."""
    if inspect.iscoroutinefunction(completer):
        return list(await completer(typed, given))
    return await asyncio.to_thread(lambda: list(_plain(completer, typed, given)))


def enumerated(schema: Mapping[str, Any]) -> Completer | None:
    """Suggests the values that a schema enumerates."""
    values = schema.get("enum")
    return among(map(str, values)) if isinstance(values, list) else None


def _plain(completer: Completer, typed: str, given: Mapping[str, str]) -> Iterable[str]:
    suggested = completer(typed, given)
    assert not isinstance(suggested, Awaitable)
    return suggested
