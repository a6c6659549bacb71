"""The tables, gathered where Django looks for them."""

from tools_app.models.calls import Call, CallAnswer, CallEvent, CallPayload, CallStatus, Outcome, Process, RunningCall
from tools_app.models.catalog import Secret, Tool, ToolKind, ToolRevision
from tools_app.models.sessions import Session
from tools_app.models.tenants import ApiKey, Membership, Role, Tenant

__all__ = [
    "ApiKey",
    "Call",
    "CallAnswer",
    "CallEvent",
    "CallPayload",
    "CallStatus",
    "Membership",
    "Outcome",
    "Process",
    "Role",
    "RunningCall",
    "Secret",
    "Session",
    "Tenant",
    "Tool",
    "ToolKind",
    "ToolRevision",
]
