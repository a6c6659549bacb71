"""What a client of the handshake era sends that wants no answer: notifications, and responses to what calls asked."""

from tools_app.auth.sessions import SessionFacts
from tools_app.execution import background, inputs, local
from tools_app.models.bridge import in_store
from tools_app.models.storable import storable
from tools_app.protocol.jsonrpc import Notification, RequestId, Response, id_json

CANCELLED = "notifications/cancelled"
LONGEST_REASON = 500


async def heed(notification: Notification, session: SessionFacts) -> None:
    """Do what a notification asks; what it gets wrong is ignored (cancellation, §Error Handling)."""
    if notification.method == CANCELLED:
        await cancel(notification, session)


async def cancel(notification: Notification, session: SessionFacts) -> bool:
    """Stop what a request of the session runs, in whichever process. False if nothing runs for it."""
    request_id = request_id_of(notification)
    if request_id is None:
        return False
    as_json, reason = id_json(request_id).decode(), reason_of(notification)
    return local.stop_request(session.id, as_json, reason) or bool(
        await background.cancel_request(session.id, as_json, reason)
    )


async def hand_on(response: Response, session: SessionFacts) -> bool:
    """Give a response to the call that asked, in whichever process it runs. False if none of this session's did."""
    return await in_store(inputs.offer, session.id, response.id, response.result, response.error)


def request_id_of(cancellation: Notification) -> RequestId | None:
    """Which request a client cancels; None if that is no id."""
    request_id = cancellation.params.get("requestId")
    return request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None


def reason_of(cancellation: Notification) -> str:
    """Why a client cancels, for the auditor (cancellation, §Implementation Notes)."""
    reason = cancellation.params.get("reason")
    return storable(f"cancelled by its client: {reason}", LONGEST_REASON) if isinstance(reason, str) and reason else ""
