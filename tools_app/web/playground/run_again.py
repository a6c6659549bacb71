"""A recorded call to run again: its tool, key and arguments, for the form of the playground.

Nothing runs by itself. What the record does not have, because it was redacted or truncated, is left to be filled in.
"""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from tools_app.audit.recorder.redaction import HIDDEN
from tools_app.calls.admin.payloads import CUT_OFF, stored_part
from tools_app.core.packing import UnpackError
from tools_app.models import BY_CALL_TOOL, TOOLS_CALL, Call
from tools_app.tenants.permissions import tenant_permissions_of

MAX_ARGUMENTS: Final = 262_144
NOT_RECORDED: Final = "The record does not have the arguments. Fill them in."
TRUNCATED: Final = "The arguments were truncated when they were recorded. Fill them in."
REDACTED: Final = "Secrets were redacted when the call was recorded. Fill them in."


@dataclass(frozen=True)
class RunAgain:
    """What the form starts with. `note` says what is missing of the arguments."""

    call: Call
    arguments: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def can_run_again(request: HttpRequest, call: Call) -> bool:
    """Return whether this user may run a recorded call again: a tool's, in a tenant that the user administers."""
    is_call = call.method in (TOOLS_CALL, BY_CALL_TOOL) and bool(call.tool_name)
    return is_call and tenant_permissions_of(request).changes(call.tenant_id)


def run_again_of(request: HttpRequest, call_id: str | None) -> RunAgain | None:
    """Return the linked call. Raises Http404 if it is not accessible, PermissionDenied if it cannot be run again."""
    if not call_id:
        return None
    try:
        call = Call.objects.select_related("tenant", "api_key", "payload").filter(pk=UUID(call_id)).first()
    except ValueError:
        call = None
    if call is None or not tenant_permissions_of(request).sees(call.tenant_id):
        raise Http404("Call not found.")
    if not can_run_again(request, call):
        raise PermissionDenied
    return RunAgain(call, *_arguments(call))


def _arguments(call: Call) -> tuple[dict[str, Any], str]:
    """Return the recorded arguments without what was redacted, and a note on what is missing."""
    try:
        text = stored_part(call, "arguments")
        value: Any = orjson.loads(text) if 0 < len(text) <= MAX_ARGUMENTS else None
    except (UnpackError, ValueError):
        value = None
    if not isinstance(value, dict):
        return {}, NOT_RECORDED
    if value.keys() == CUT_OFF:
        return {}, TRUNCATED
    shown = _without_redacted(value)
    return shown, REDACTED if shown != value else ""


def _without_redacted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_redacted(item) for name, item in value.items() if item != HIDDEN}
    return [_without_redacted(item) for item in value if item != HIDDEN] if isinstance(value, list) else value
