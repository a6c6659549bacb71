"""The selection of operations of a document: patterns of names, paths, methods and tags.

An operation that is not selected is not lowered, so a document may have many more than a source.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import Final

MAX_PATTERNS: Final = 100
MAX_PATTERN: Final = 200
TAG: Final = "tag:"


class Selection:
    """Patterns with `*`, `?` and `[...]`: an operation is selected if one of them matches. Without any, all are.

    A pattern that begins with a slash is for paths, `METHOD /path` for methods with paths, `tag:NAME` for tags, and any
    other for the name of the tool and the `operationId`. Capitals count.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self.is_everything = not patterns
        self._paths = _compiled(one for one in patterns if one.startswith("/"))
        self._keys = _compiled(one for one in patterns if not one.startswith(("/", TAG)) and " /" in one)
        self._tags = _compiled(one.removeprefix(TAG).strip() for one in patterns if one.startswith(TAG))
        self._names = _compiled(one for one in patterns if not one.startswith(("/", TAG)) and " /" not in one)

    def includes(self, key: str, names: Iterable[str], tags: Iterable[str]) -> bool:
        """Whether an operation is selected: its key is the method and the path."""
        path = key.partition(" ")[2]
        return (
            self.is_everything
            or _any_matches(self._paths, (path,))
            or _any_matches(self._keys, (key,))
            or _any_matches(self._names, filter(None, names))
            or _any_matches(self._tags, tags)
        )


def faults_of(patterns: object) -> str:
    """Return what is wrong with a list of patterns, or ""."""
    are_texts = isinstance(patterns, list) and all(
        isinstance(one, str) and 0 < len(one) <= MAX_PATTERN and one.isprintable() for one in patterns
    )
    if are_texts and isinstance(patterns, list) and len(patterns) <= MAX_PATTERNS:
        return ""
    return f"Enter a list of at most {MAX_PATTERNS} patterns, each of 1 to {MAX_PATTERN} characters."


def _compiled(patterns: Iterable[str]) -> list[re.Pattern[str]]:
    return [re.compile(translate(one)) for one in patterns]


def _any_matches(patterns: list[re.Pattern[str]], texts: Iterable[str]) -> bool:
    return bool(patterns) and any(pattern.match(text) for text in texts for pattern in patterns)
