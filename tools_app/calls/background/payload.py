"""The data of a call that runs from its row, stored encrypted."""

from typing import Any, Final
from uuid import UUID

import msgspec

from tools_app.calls.invocation import Invocation, Round
from tools_app.core import encryption
from tools_app.models import RunningCall
from tools_app.protocol import exact_json

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


class CallPayload(msgspec.Struct, frozen=True):
    """Arguments and state of a call. `used` are the keys of its questions so far."""

    arguments: dict[str, Any]
    capabilities: dict[str, Any]
    progress_token: str | int | None
    round: Round
    used: list[str] = []

    def sealed(self, call_id: UUID) -> bytes:
        """Return the payload encrypted, as the row stores it."""
        return encryption.seal(_encode(self), _purpose(call_id))


def payload_of_invocation(invocation: Invocation) -> CallPayload:
    """Return the payload of an invocation."""
    return CallPayload(invocation.arguments, dict(invocation.capabilities), invocation.progress_token, invocation.round)


def payload_of_row(row: RunningCall) -> CallPayload:
    """Return the payload of a row. Raises encryption.DecryptionError."""
    opened = encryption.unseal(bytes(row.sealed_arguments or b""), _purpose(row.pk))
    return msgspec.convert(exact_json.loads(opened), CallPayload)


def _purpose(call_id: UUID) -> str:
    """Return the encryption purpose of a call's stored payload."""
    return f"arguments:{call_id}"
