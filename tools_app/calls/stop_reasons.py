"""Reasons for stopping a call: the cause in its record and the message to its client."""

import asyncio
from typing import Final

import msgspec


class StopReason(msgspec.Struct, frozen=True):
    """Why a call was stopped: `cause` is for the record, `message` for the client.

    `withdrawn`: the client itself cancelled the request, so it gets no response (2025-11-25, cancellation, §Behavior
    Requirements; 2026-07-28, Streamable HTTP, §Cancellation).
    """

    cause: str
    message: str = "The call was cancelled."
    withdrawn: bool = False


UNKNOWN: Final = StopReason("cancelled")
CLIENT_LEFT: Final = StopReason("the client closed the request", withdrawn=True)
CONNECTION_CLOSED: Final = StopReason("the client closed its connection", withdrawn=True)
INPUT_CLOSED: Final = StopReason(
    "the client closed its input", "The call was cancelled: the client closed its end of the connection."
)
TASK_CANCELLED: Final = StopReason("cancelled by its client: tasks/cancel")
KEY_INVALID: Final = StopReason(
    "its API key was revoked, expired or is not allowed from this address any more",
    "The call was cancelled: the API key is no longer valid.",
)
SCOPES_CHANGED: Final = StopReason(
    "the scopes of its API key changed", "The call was cancelled: the scopes of the API key changed. Reconnect."
)
SESSION_ENDED: Final = StopReason("its session was ended", "The call was cancelled: its session was ended.")
SHUTDOWN: Final = StopReason("the hub was stopped", "The hub was stopped while the call was running.")


def cancelled_by_client(reason: str) -> StopReason:
    """Return the reason for a client's `notifications/cancelled`, with its `reason`."""
    return StopReason(f"cancelled by its client: {reason}" if reason else "cancelled by its client", withdrawn=True)


def cancelled_by(name: str, via: str) -> StopReason:
    """Return the reason for a user of the pages, REST API or command line. The client does not learn the name."""
    return StopReason(f"cancelled by {name} ({via})", "The call was cancelled by an administrator of the hub.")


def reason_of(cancellation: asyncio.CancelledError) -> StopReason:
    """Return the reason passed to `Task.cancel`."""
    given = next((given for given in cancellation.args if isinstance(given, StopReason)), None)
    return given or StopReason("the hub abandoned the request")
