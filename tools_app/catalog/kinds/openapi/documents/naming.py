"""Names of tools and of their arguments, within what clients and models accept."""

import re
from collections.abc import Container
from itertools import chain, count
from typing import Final

# Clients prefix a name with that of their server, and allow 64 characters in all.
MAX_NAME: Final = 48
# Models restrict the names of arguments to these characters and this length.
MAX_ARGUMENT: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_NOT_IN_ARGUMENTS: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def tool_name(operation_id: str, method: str, path: str) -> str:
    """Return the name of an operation's tool, before collisions are settled."""
    wanted = _NOT_IN_NAMES.sub("_", operation_id).strip("_-")
    if not wanted:
        words = (_NOT_IN_NAMES.sub("_", word).strip("_-") for word in path.split("/"))
        wanted = "_".join([method.lower(), *filter(None, words)])
    return (wanted or method.lower())[:MAX_NAME].rstrip("_-")


def unique_name(name: str, taken: Container[str], most: int = MAX_NAME) -> str:
    """Return a name that is not taken: itself, or with a number, which counts in its length."""
    suffixes = chain([""], (f"_{number}" for number in count(2)))
    return next(one for suffix in suffixes if (one := name[: most - len(suffix)] + suffix) not in taken)


def argument_name(name: str) -> str:
    """Return the name of an argument for a parameter or a property, before collisions are settled."""
    return _NOT_IN_ARGUMENTS.sub("_", name).strip("_")[:MAX_ARGUMENT] or "value"
