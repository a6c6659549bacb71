"""The revisions of the protocol that the hub speaks, and what differs between them."""

from enum import Enum
from typing import Final

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)
LATEST_HANDSHAKE: Final = HANDSHAKE_VERSIONS[-1]
LATEST_MODERN: Final = MODERN_VERSIONS[-1]
BATCHING_VERSIONS: Final = ("2025-03-26",)


class Era(Enum):
    """How a client opens: with `initialize` and a session, or with metadata on each request."""

    HANDSHAKE = "handshake"
    MODERN = "modern"


def negotiated(requested: str) -> str:
    """The handshake revision to answer `initialize` with (2025-11-25, lifecycle, §Version Negotiation)."""
    return requested if requested in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE


def has_annotations(version: str) -> bool:
    """Tool annotations and progress messages came with 2025-03-26."""
    return version >= "2025-03-26"


def has_structured_content(version: str) -> bool:
    """Titles, output schemas and structured content came with 2025-06-18."""
    return version >= "2025-06-18"


def reports_bad_arguments_in_result(version: str) -> bool:
    """From 2025-11-25 on, arguments that fail the schema are a tool error that the model may mend."""
    return version >= "2025-11-25"
