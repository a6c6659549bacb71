"""The models of all modules, imported for Django."""

from tools_app.models.audit import Action, CallFigures, ChainKind, ChainStart, Change, Checkpoint, Via
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
from tools_app.models.people import Export, ExportFormat, ExportState, Invitation, PersonalToken, SavedFilter
from tools_app.models.sessions import Session, SessionMessage
from tools_app.models.tenants import ApiKey, Membership, Role, Tenant

__all__ = [
    "Action",
    "ApiKey",
    "Call",
    "CallAnswer",
    "CallEvent",
    "CallFigures",
    "CallInput",
    "CallPayload",
    "CallStatus",
    "ChainKind",
    "ChainStart",
    "Change",
    "Checkpoint",
    "Export",
    "ExportFormat",
    "ExportState",
    "Invitation",
    "Membership",
    "Outcome",
    "PersonalToken",
    "Process",
    "Prompt",
    "PromptKind",
    "Resource",
    "ResourceKind",
    "Role",
    "RunningCall",
    "SavedFilter",
    "Secret",
    "Session",
    "SessionMessage",
    "TaskSupport",
    "Tenant",
    "Tool",
    "ToolKind",
    "ToolRevision",
    "Via",
]
