"""What a client of the handshake era sends that wants no answer: notifications, and responses to what calls asked."""

from tools_app.auth.sessions import SessionFacts
from tools_app.execution import background, inputs, local
from tools_app.models.bridge import in_store
from tools_app.models.storable import storable
from tools_app.protocol.jsonrpc import Notification, Response, id_json

LONGEST_REASON = 500


async def heed(notification: Notification, session: SessionFacts) -> None:
    """Do what a notification asks; what it gets wrong is ignored (cancellation, §Error Handling)."""
    request_id = notification.params.get("requestId")
    if notification.method == "notifications/cancelled" and isinstance(request_id, str | int):
        as_json, reason = id_json(request_id).decode(), _reason(notification)
        if not local.stop_request(session.id, as_json, reason):
            await background.cancel_request(session.id, as_json, reason)


async def hand_on(response: Response, session: SessionFacts) -> bool:
    """Give a response to the call that asked, in whichever process it runs. False if none of this session's did."""
    return await in_store(inputs.offer, session.id, response.id, response.result, response.error)


def _reason(cancellation: Notification) -> str:
    """Why a client cancels, for the auditor (cancellation, §Implementation Notes)."""
    reason = cancellation.params.get("reason")
    return storable(f"cancelled by its client: {reason}", LONGEST_REASON) if isinstance(reason, str) and reason else ""
