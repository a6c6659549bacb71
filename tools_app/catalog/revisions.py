"""Earlier definitions of a tool: restored, or cloned to another tool. Only `authoring` writes them."""

from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from tools_app.audit.changes import changes
from tools_app.calls.models import CallFacts
from tools_app.catalog import authoring
from tools_app.catalog.kinds.base import UnknownKind, kind_of
from tools_app.catalog.models import LIMITS
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.catalog.validation.items import tool_faults
from tools_app.core.relations import related
from tools_app.models import Action, Tenant, Tool, ToolRevision

# The name of the tool is not restored, because clients use it.
RESTORED = tuple(name for name in authoring.DEFINITION_FIELDS if name != "name")
UNCHANGED = "This is the current definition."


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
    try:
        problems = [kind_of(kind).restore_problem(tool, definition) for kind in (tool.kind, definition.get("kind", ""))]
    except UnknownKind as error:
        return str(error)
    return problems[0] or problems[1]


def restore(tool: Tool, revision: ToolRevision, by: User | None) -> Tool:
    """Restore the definition of an earlier revision as a new revision. Raises RevisionError."""
    with changes.change_log_transaction():
        tool.refresh_from_db()  # another process may have changed it before the lock was taken
        if error := restore_problem(tool, revision.definition):
            raise RevisionError(error)
        for name in RESTORED:
            setattr(tool, name, revision.definition[name])
        _check(tool)
        authoring.save_tool(tool, by)
        changes.record(Action.RESTORED, tool, after={"restored_revision": revision.number, "revision": tool.revision})
    return tool


def clone(tool: Tool, tenant: Tenant, name: str, *, enabled: bool, by: User | None) -> Tool:
    """Copy a tool's definition and limits to a new tool of the same or another tenant. Raises RevisionError."""
    if error := kind_of(tool.kind).clone_problem(tool, tenant):
        raise RevisionError(error)
    if tenant.tools.filter(name=name).exists():
        raise RevisionError(f"{tenant} already has a tool named {name}.")
    values = {field: getattr(tool, field) for field in (*RESTORED, *LIMITS)}
    # Also a tool that was an operation once has a source: one of another tenant would delete the copy with itself.
    source = tool.source if tool.source is not None and tool.source.tenant_id == tenant.pk else None
    copy = Tool(tenant=tenant, enabled=enabled, source=source, **(values | {"name": name}))
    _check(copy)
    return authoring.save_tool(copy, by)


def _check(tool: Tool) -> None:
    """Validate a tool against the current rules. Raises RevisionError."""
    try:
        tool.clean_fields(exclude={"tenant"})
        tool.clean()
    except ValidationError as error:
        raise RevisionError("; ".join(error.messages)) from error
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
    try:
        return kind_of(definition.get("kind", "")).origin(tool, definition.get("config") or {})
    except UnknownKind:
        return ""
