"""The supported revisions of the protocol and their differences."""

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
    """How clients connect: with `initialize` and a session, or with metadata on each request."""

    HANDSHAKE = "handshake"
    MODERN = "modern"


def negotiated(requested: str) -> str:
    """Return the revision with which to answer `initialize` (2025-11-25, lifecycle, §Version Negotiation)."""
    return requested if requested in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE


def has_annotations(version: str) -> bool:
    """Tool annotations and progress messages were added in 2025-03-26."""
    return version >= "2025-03-26"


def has_structured_content(version: str) -> bool:
    """Titles, output schemas and structured content were added in 2025-06-18."""
    return version >= "2025-06-18"


def reports_bad_arguments_in_result(version: str) -> bool:
    """From 2025-11-25 on, invalid arguments are a tool error, so that the model can correct them."""
    return version >= "2025-11-25"


def has_audio(version: str) -> bool:
    """Audio content was added in 2025-03-26."""
    return version >= "2025-03-26"


def has_icons(version: str) -> bool:
    """Icons were added in 2025-11-25."""
    return version >= "2025-11-25"


def has_tasks(version: str) -> bool:
    """Experimental tasks exist in 2025-11-25 only; later they are an extension."""
    return version == "2025-11-25"


def has_page_ids(version: str) -> bool:
    """URL elicitation was added in 2025-11-25; only that revision gives it an id."""
    return version == "2025-11-25"


def has_sampling_tools(version: str) -> bool:
    """From 2025-11-25 on, clients declare whether sampling supports tools and the context of other servers."""
    return version >= "2025-11-25"


def has_polling(version: str) -> bool:
    """Streams that start with an event id and can be closed and resumed were added in 2025-11-25."""
    return version >= "2025-11-25"


def is_heard(level: str, wanted: str) -> bool:
    """Whether `level` is at least as severe as `wanted`."""
    return LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted)


def is_modern(version: str) -> bool:
    """Whether a revision has no sessions."""
    return version in MODERN_VERSIONS
