"""Earlier definitions of a tool: restored, or cloned to another tool. Only `authoring` writes them."""

from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from tools_app.audit.changes import changes
from tools_app.calls.models import CallFacts
from tools_app.catalog import authoring
from tools_app.catalog.models import LIMITS
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.catalog.validation.items import tool_faults
from tools_app.core.relations import related
from tools_app.models import Action, Tenant, Tool, ToolKind, ToolRevision

# The name of the tool is not restored, because clients use it.
RESTORED = tuple(name for name in authoring.DEFINITION_FIELDS if name != "name")
UNCHANGED = "This is the current definition."
FROM_CODE = (
    "The code declares what a Python tool is, so nothing of this can be brought back here: install the version of its "
    "app that declared it, and run manage.py sync_tools."
)
FROM_UPSTREAM = "An upstream defines this tool. Review its definition under Upstreams."


class RevisionError(ValueError):
    """The operation is not possible; the message says why, and what to do instead."""


def restore_problem(tool: Tool, definition: dict[str, Any]) -> str:
    """Return why a definition cannot be restored; "" if it can, as far as is known without trying."""
    now = authoring.definition_of(tool)
    changed = [name for name in RESTORED if definition.get(name) != now.get(name)]
    if not changed:
        return UNCHANGED
    if set(changed) <= set(SHAPING_FIELDS):
        return ""  # settings of an admin, for tools of every kind
    if ToolKind.UPSTREAM in {tool.kind, definition.get("kind")}:
        return FROM_UPSTREAM
    is_same_code = tool.kind == definition.get("kind") == ToolKind.PYTHON and tool.config == definition.get("config")
    return FROM_CODE if is_same_code else ""


def restore(tool: Tool, revision: ToolRevision, by: User | None) -> Tool:
    """Restore the definition of an earlier revision as a new revision. Raises RevisionError."""
    with changes.change_log_transaction():
        tool.refresh_from_db()  # another process may have changed it before the lock was taken
        if problem := restore_problem(tool, revision.definition):
            raise RevisionError(problem)
        for name in RESTORED:
            setattr(tool, name, revision.definition[name])
        _check(tool)
        authoring.save_tool(tool, by)
        changes.record(Action.RESTORED, tool, after={"restored_revision": revision.number, "revision": tool.revision})
    return tool


def clone(tool: Tool, tenant: Tenant, name: str, *, enabled: bool, by: User | None) -> Tool:
    """Copy a tool's definition and limits to a new tool of the same or another tenant. Raises RevisionError."""
    if tool.kind == ToolKind.UPSTREAM:
        raise RevisionError("A tool of an upstream cannot be cloned. Add the upstream to the other tenant.")
    if tenant.tools.filter(name=name).exists():
        raise RevisionError(f"{tenant} already has a tool named {name}.")
    if tool.source is not None and tool.source.tenant_id != tenant.pk:
        raise RevisionError(f"{tenant} does not have the API source of this tool. Import the API there.")
    values = {field: getattr(tool, field) for field in (*RESTORED, *LIMITS)}
    copy = Tool(tenant=tenant, enabled=enabled, source=tool.source, **(values | {"name": name}))
    _check(copy)
    return authoring.save_tool(copy, by)


def _check(tool: Tool) -> None:
    """Validate a tool against the current rules. Raises RevisionError."""
    try:
        tool.clean_fields(exclude={"tenant"})
        tool.clean()
    except ValidationError as problem:
        raise RevisionError("; ".join(problem.messages)) from problem
    faults = tool_faults(tool)
    if faults:
        raise RevisionError(
            "; ".join(f"{field}: {message}" for field, messages in faults.items() for message in messages)
        )


def source_of(call: CallFacts) -> str:
    """Return where the tool of a call came from, in the revision that ran; "" if the call had none or it is deleted."""
    tool: Tool | None = related(call, "tool")
    if tool is None or not call.tool_revision:
        return ""
    ran = ToolRevision.objects.filter(tool=tool, number=call.tool_revision).values_list("definition", flat=True).first()
    definition = ran if isinstance(ran, dict) else {"kind": tool.kind, "config": tool.config}
    config = definition.get("config") or {}
    match definition.get("kind"):
        case ToolKind.UPSTREAM:
            return f"upstream {config.get('upstream')}: {config.get('tool')}"
        case ToolKind.OPERATION:
            return f"API source {tool.source.name if tool.source else '(deleted)'}: {tool.operation}"
        case ToolKind.PYTHON:
            return f"function {config.get('function')}"
    return "HTTP request"
