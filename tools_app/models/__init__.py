"""The tables, gathered where Django looks for them."""

from tools_app.models.calls import (
    Call,
    CallAnswer,
    CallEvent,
    CallInput,
    CallPayload,
    CallStatus,
    Outcome,
    Process,
    RunningCall,
)
from tools_app.models.catalog import (
    Prompt,
    PromptKind,
    Resource,
    ResourceKind,
    Secret,
    TaskSupport,
    Tool,
    ToolKind,
    ToolRevision,
)
from tools_app.models.evidence import ChainKind, ChainStart, Checkpoint
from tools_app.models.sessions import Session, SessionMessage
from tools_app.models.tenants import ApiKey, Membership, Role, Tenant

__all__ = [
    "ApiKey",
    "Call",
    "CallAnswer",
    "CallEvent",
    "CallInput",
    "CallPayload",
    "CallStatus",
    "ChainKind",
    "ChainStart",
    "Checkpoint",
    "Membership",
    "Outcome",
    "Process",
    "Prompt",
    "PromptKind",
    "Resource",
    "ResourceKind",
    "Role",
    "RunningCall",
    "Secret",
    "Session",
    "SessionMessage",
    "TaskSupport",
    "Tenant",
    "Tool",
    "ToolKind",
    "ToolRevision",
]
