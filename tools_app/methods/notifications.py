"""Messages of handshake-era clients without a response: notifications, and responses to the hub's requests."""

from tools_app.calls import inputs, run
from tools_app.calls.background import delivery
from tools_app.calls.sessions import SessionFacts
from tools_app.calls.stop_reasons import StopReason, cancelled_by_client
from tools_app.core.database import run_in_db_thread
from tools_app.core.sanitize import for_column
from tools_app.protocol.errors import RpcError
from tools_app.protocol.jsonrpc import Notification, RequestId, Response, check_answer, id_json

CANCELLED = "notifications/cancelled"
MAX_REASON = 500


async def handle(notification: Notification, session: SessionFacts) -> None:
    """Handle a notification; invalid ones are ignored (cancellation, §Error Handling)."""
    if notification.method == CANCELLED:
        await cancel(notification, session)


async def cancel(notification: Notification, session: SessionFacts) -> bool:
    """Cancel the call of a session's request, in any process. Returns False if there is none."""
    request_id = request_id_of(notification)
    if request_id is None:
        return False
    as_json, reason = id_json(request_id).decode(), reason_of(notification)
    return run.stop_request(session.id, as_json, reason) or bool(
        await delivery.cancel_request(session.id, as_json, reason)
    )


async def deliver_response(response: Response, session: SessionFacts) -> bool:
    """Deliver a response to the call that asked, in any process. Returns False if no call of this session asked.

    Raises RpcError for one that is too large; the call is notified of that instead.
    """
    try:
        check_answer(response.result if response.error is None else response.error, "result")
    except RpcError as problem:
        await run_in_db_thread(inputs.deliver, session.id, response.id, None, {"message": problem.message})
        raise
    return await run_in_db_thread(inputs.deliver, session.id, response.id, response.result, response.error)


def request_id_of(cancellation: Notification) -> RequestId | None:
    """Return the id of the request that a client cancels; None if it is invalid."""
    request_id = cancellation.params.get("requestId")
    return request_id if isinstance(request_id, str | int) and not isinstance(request_id, bool) else None


def reason_of(cancellation: Notification) -> StopReason:
    """Return the client's reason for a cancellation, for the audit log (cancellation, §Implementation Notes)."""
    reason = cancellation.params.get("reason")
    return cancelled_by_client(for_column(reason, MAX_REASON) if isinstance(reason, str) else "")
