"""The revisions of the protocol that the hub speaks, and what differs between them."""

from enum import Enum
from typing import Final

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)
LATEST_HANDSHAKE: Final = HANDSHAKE_VERSIONS[-1]
LATEST_MODERN: Final = MODERN_VERSIONS[-1]
BATCHING_VERSIONS: Final = ("2025-03-26",)

# RFC 5424, §6.2.1, from the least to the most severe (logging, §Log Levels).
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


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


def has_audio(version: str) -> bool:
    """Audio content came with 2025-03-26."""
    return version >= "2025-03-26"


def has_icons(version: str) -> bool:
    """Icons came with 2025-11-25."""
    return version >= "2025-11-25"


def has_tasks(version: str) -> bool:
    """The experimental tasks are in 2025-11-25 only; after it they are an extension."""
    return version == "2025-11-25"


def has_page_ids(version: str) -> bool:
    """Pages that a person is sent to came with 2025-11-25; only that revision gives them ids."""
    return version == "2025-11-25"


def has_sampling_tools(version: str) -> bool:
    """From 2025-11-25 on, clients declare apart whether their model takes tools and the context of other servers."""
    return version >= "2025-11-25"


def has_polling(version: str) -> bool:
    """Streams that begin with an id and may be left and taken up again came with 2025-11-25."""
    return version >= "2025-11-25"


def is_heard(level: str, wanted: str) -> bool:
    """Whether a message of `level` is at least as severe as `wanted`."""
    return LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted)


def is_modern(version: str) -> bool:
    """Whether a revision has no sessions."""
    return version in MODERN_VERSIONS
