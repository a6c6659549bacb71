"""The limits on the pages of tenants, keys and tools: the same words and the same order everywhere."""

from typing import Any, Final

from tools_app.auth.keys import LIMITS

CALLS: Final = ("calls_per_second", "calls_per_minute", "calls_per_day")
REQUESTS: Final = ("requests_per_second", "requests_per_day")

OF_TENANT: Final = (*CALLS, *REQUESTS, "calls_in_flight", "open_streams", "most_sessions")
OF_KEY: Final = LIMITS
OF_TOOL: Final = (*CALLS, "calls_in_flight")

MEANING: Final = (
    "Counted by all processes of the hub together. 0 lets nothing through. What is over a limit is refused, and told"
    " when to try again."
)


def limits(names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The fieldset of these limits."""
    return "Limits", {"description": MEANING, "fields": names}
