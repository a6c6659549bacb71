"""References to other documents: those are read and put into the document, which then refers to itself only.

So a revision is whole without them, and a change in any of them is a change of the document.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urldefrag, urljoin, urlsplit

import orjson

from tools_app.catalog.kinds.openapi.documents.document import DOCUMENTS, UNREAD, escaped
from tools_app.catalog.kinds.openapi.documents.reader import (
    MAX_BYTES,
    MAX_VALUES,
    TOO_LARGE,
    TOO_MANY,
    UnreadableDocument,
    read,
)

# Documents that one refers to, by itself or by others.
MAX_DOCUMENTS: Final = 100
# Returns the text at an absolute URL. Raises UnreadableDocument.
Fetch = Callable[[str], bytes]

_EXTERNAL: Final = re.compile(rb"""\$ref["']?\s{0,20}:\s{0,20}["']?[^"'#\s]""")
# Values that a document shows or allows are data. In a map of names, these are names.
_DATA: Final = frozenset({"example", "examples", "default", "enum", "const"})
_MAPS: Final = frozenset(
    {
        *("properties", "patternProperties", "dependentSchemas", "definitions", "$defs", "schemas", "parameters"),
        *("paths", "pathItems", "responses", "requestBodies", "headers", "callbacks", "content", "encoding"),
    }
)


def bundled(data: bytes, url: str, fetch: Fetch) -> bytes:
    """Return the document of a URL with those that it refers to; as it is if there are none. Raises UnreadableDocument.

    A reference to a document that cannot be read stays, with the reason for its operations.
    """
    if not _EXTERNAL.search(data):
        return data
    root = read(data)
    if not isinstance(root, dict):
        return data
    bundle = _Bundle(urldefrag(url).url, len(data), fetch).of(root)
    try:
        text = orjson.dumps(bundle)
    except TypeError as problem:
        raise UnreadableDocument(f"The document cannot be written as JSON: {problem}.") from problem
    if len(text) > MAX_BYTES:
        raise UnreadableDocument(TOO_LARGE)
    return text


class _Bundle:
    """The documents that were read: the one at `url`, of `size` bytes, and others."""

    def __init__(self, url: str, size: int, fetch: Fetch) -> None:
        self._url = url
        self._fetch = fetch
        # The pointer to each document.
        self._places = {url: ""}
        self._unread: dict[str, str] = {}
        self._waiting: deque[tuple[str, str, Any]] = deque()
        self._bytes = size
        self._values = 0

    def of(self, root: dict[str, Any]) -> dict[str, Any]:
        """Return the document with the others. Raises UnreadableDocument."""
        document: dict[str, Any] = self._rewritten(root, self._url)
        others: dict[str, Any] = {}
        while self._waiting:
            name, url, value = self._waiting.popleft()
            others[name] = self._rewritten(value, url)
        if others:
            document[DOCUMENTS] = others
        if self._unread:
            document[UNREAD] = self._unread
        return document

    def _rewritten(self, value: Any, url: str, *, are_names: bool = False) -> Any:
        """Return a value of the document at `url` with other references."""
        self._values += 1
        if self._values > MAX_VALUES:
            raise UnreadableDocument(TOO_MANY)
        if isinstance(value, list):
            return [self._rewritten(one, url) for one in value]
        if not isinstance(value, dict):
            return value
        rewritten: dict[str, Any] = {}
        for name, inner in value.items():
            if not are_names and name == "$ref" and isinstance(inner, str):
                rewritten[name] = self._reference(inner, url)
            elif not are_names and name in _DATA:
                rewritten[name] = inner
            else:
                rewritten[name] = self._rewritten(inner, url, are_names=not are_names and name in _MAPS)
        return rewritten

    def _reference(self, reference: str, url: str) -> str:
        try:
            target, fragment = urldefrag(urljoin(url, reference))
            place = self._place(target)
        except ValueError:
            return reference
        if place is None:
            return f"{target}#{fragment}"
        return f"#{place}{fragment}"

    def _place(self, url: str) -> str | None:
        """Return the pointer to the document at a URL, which is read if it is new; None if it cannot be."""
        if url not in self._places and url not in self._unread:
            try:
                self._read(url)
            except UnreadableDocument as problem:
                # As many as can be read can fail: more are not told one by one.
                if len(self._unread) < MAX_DOCUMENTS:
                    self._unread[url] = str(problem)
        return self._places.get(url)

    def _read(self, url: str) -> None:
        if len(self._places) + len(self._unread) > MAX_DOCUMENTS:
            raise UnreadableDocument(f"The document refers to more than {MAX_DOCUMENTS} others.")
        data = self._fetch(url)
        self._bytes += len(data)
        if self._bytes > MAX_BYTES:
            raise UnreadableDocument(f"The documents are larger than {MAX_BYTES // 1024**2} MB together.")
        value = read(data)
        name = urlsplit(url).path.rpartition("/")[2] or "document"
        name = name if f"/{DOCUMENTS}/{escaped(name)}" not in self._places.values() else f"{len(self._places)}-{name}"
        self._places[url] = f"/{DOCUMENTS}/{escaped(name)}"
        self._waiting.append((name, url, value))
