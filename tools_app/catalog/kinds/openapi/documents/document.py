"""An OpenAPI document and the references within it."""

from typing import Any, Final
from urllib.parse import unquote

from tools_app.catalog.kinds.openapi.documents.reader import UnreadableDocument

# Where a bundle has the documents that it refers to by their names, and the reasons of those that could not be read.
DOCUMENTS: Final = "x-mcphub-documents"
UNREAD: Final = "x-mcphub-unread"
MAX_HOPS: Final = 32
# Schemas and references that are looked at for one document, each time that they are.
MAX_STEPS: Final = 4_000_000
TOO_ENTANGLED: Final = "The document is too entangled."


class InvalidDocument(ValueError):
    """A part of a document that cannot be used: its JSON pointer, and why."""

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{pointer}: {reason}")
        self.pointer = pointer
        self.reason = reason


def escaped(name: object) -> str:
    """Return a name as a segment of a JSON pointer (RFC 6901)."""
    return str(name).replace("~", "~0").replace("/", "~1")


def joined(pointer: str, *names: object) -> str:
    """Return the pointer to what is below another one."""
    return "/".join((pointer, *(escaped(name) for name in names)))


class Document:
    """The values of a document, and the parts that its references name: nothing is fetched."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        version = root.get("openapi", root.get("swagger"))
        self.version = str(version)
        self.is_old = "openapi" not in root
        self._steps = MAX_STEPS

    def spend(self, steps: int = 1) -> None:
        """Count work. Raises UnreadableDocument if the document needs too much: references can multiply it."""
        self._steps -= steps
        if self._steps < 0:
            raise UnreadableDocument(TOO_ENTANGLED)

    def target(self, reference: Any, pointer: str) -> Any:
        """Return the value that a `$ref` at `pointer` names. Raises InvalidDocument."""
        self.spend()
        if not isinstance(reference, str):
            raise InvalidDocument(pointer, "The $ref is not a string.")
        if not reference.startswith("#"):
            raise InvalidDocument(pointer, self._elsewhere(reference))
        node: Any = self.root
        pointed = unquote(reference[1:])
        for segment in pointed.removeprefix("/").split("/") if pointed else ():
            name = segment.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and name in node:
                node = node[name]
            elif isinstance(node, list) and name.isdecimal() and len(name) < len("1000000") and int(name) < len(node):
                node = node[int(name)]
            else:
                raise InvalidDocument(pointer, f"{_as_written(reference)[:200]!r} is not in the document.")
        return node

    def _elsewhere(self, reference: str) -> str:
        reason = text_of(mapping(self.root.get(UNREAD)).get(reference.partition("#")[0]))
        if reason:
            return f"{reference[:200]!r} was not read: {reason[:200]}"
        advice = "Import the document by its URL, or bundle the documents into one."
        return f"{reference[:200]!r} is in another document. {advice}"

    def resolved(self, value: Any, pointer: str) -> tuple[Any, str]:
        """Follow the references of an object that may be one; return it with its pointer. Raises InvalidDocument."""
        for _ in range(MAX_HOPS):
            if not (isinstance(value, dict) and "$ref" in value):
                return value, pointer
            reference = value["$ref"]
            value, pointer = self.target(reference, pointer), reference
        raise InvalidDocument(pointer, "The reference leads to itself.")

    def object_at(self, value: Any, pointer: str) -> tuple[dict[str, Any], str]:
        """Follow references to an object. Raises InvalidDocument for anything else."""
        found, place = self.resolved(value, pointer)
        if not isinstance(found, dict):
            raise InvalidDocument(place, "An object is expected here.")
        return found, place


def _as_written(reference: str) -> str:
    """Return a reference into a bundle with the name of the document that it had before: `shared.yaml#/Book`."""
    prefix = f"#/{DOCUMENTS}/"
    if not reference.startswith(prefix):
        return reference
    name, _, rest = reference.removeprefix(prefix).partition("/")
    unescaped = name.replace("~1", "/").replace("~0", "~")
    return f"{unescaped}#/{rest}" if rest else unescaped


def mapping(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listing(value: Any) -> list[Any]:
    """Return a list, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str:
    """Return a text; numbers, such as a version, as they are written, and "" for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
