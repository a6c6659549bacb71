"""Media types of bodies: how a body is written, and which of several a tool sends."""

import re
from typing import Any, Final

from tools_app.catalog.kinds.openapi.documents import lowering

JSON: Final = "application/json"
FORM: Final = lowering.FORM
MULTIPART: Final = lowering.MULTIPART
OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain"
# JSON values one after another (OpenAPI 3.2, §Sequential Media Types).
LINES: Final = re.compile(
    r"(?:application|text)/(?:x-)?(?:ndjson|jsonl|jsonlines|json-lines|ldjson|json-seq|json-stream)|.*\+json-seq"
    r"|application/stream\+json"
)
_JSON: Final = re.compile(r"(?:application|text)/(?:x-)?json|.*\+json|\*/\*|application/\*|[^/]*")
_XML: Final = re.compile(r"(?:application|text)/xml|.*\+xml")
_TEXT: Final = re.compile(
    r"(?:text|message)/.*|.*\+(?:xml|yaml)"
    r"|application/(?:x-)?(?:xml|yaml|javascript|ecmascript|sql|graphql|jwt|jose|toml|text|csv|pem-file|typescript|sh)"
)
_BYTES: Final = re.compile(
    r"(?:image|audio|video|font|model)/.*|.*\+(?:zip|gzip|cbor)"
    r"|application/(?:x-)?(?:octet-stream|zip|gzip|tar|gtar|bzip2|7z-compressed|pdf|protobuf|msgpack|cbor|dicom|wasm)"
)
_VALID: Final = re.compile(r"[!-~]+/[ -~]+")
# Media types that are sent when there are several, in this order; others follow in that of the document.
RANKS: Final = {"json": 1, "form": 2, "multipart": 3, "lines": 4, "raw": 5}
PREFERRED: Final = ("message/rfc822", OCTETS, "application/xml", "text/xml", TEXT)


def essence_of(media_type: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return media_type.partition(";")[0].strip().lower()


def mode_of(media_type: str) -> str:
    """Return how a body of this media type is written. What is no media type is taken for JSON."""
    essence = essence_of(media_type)
    if essence == FORM:
        return "form"
    if essence.startswith("multipart/"):
        return "multipart"
    if LINES.fullmatch(essence):
        return "lines"
    return "json" if _JSON.fullmatch(essence) else "raw"


def is_xml(media_type: str) -> bool:
    """Whether a body of this media type is XML."""
    return _XML.fullmatch(essence_of(media_type)) is not None


def is_text(media_type: str) -> bool:
    """Whether a body of this media type is text, which the argument gives as it is."""
    return _TEXT.fullmatch(essence_of(media_type)) is not None


def is_bytes(media_type: str) -> bool:
    """Whether a body of this media type is no text, whatever its schema says."""
    essence = essence_of(media_type)
    return _BYTES.fullmatch(essence) is not None and not is_text(essence)


def chosen(content: dict[str, Any]) -> tuple[str, Any] | None:
    """Return the media type that a tool sends, of those that the service accepts: JSON if possible."""

    def rank(one: tuple[str, Any]) -> tuple[int, int]:
        essence = essence_of(one[0])
        preference = PREFERRED.index(essence) if essence in PREFERRED else len(PREFERRED)
        return (0 if one[0] == JSON else RANKS[mode_of(one[0])]), preference

    return min(content.items(), key=rank, default=None)


def sent_as(media_type: str, mode: str) -> str:
    """Return the value of `Content-Type`, for a range of media types one of them."""
    if "*" not in media_type and _VALID.fullmatch(media_type):
        return media_type
    if mode == "json":
        return JSON
    if mode == "multipart":
        return MULTIPART
    return TEXT if is_text(media_type) else OCTETS
