"""Definitions that a tool has had: brought back, and given to another tool. Written by `authoring` alone."""

from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from tools_app.audit import changes
from tools_app.execution import authoring
from tools_app.execution.checks.offers import tool_faults
from tools_app.models import Action, Tenant, Tool, ToolKind, ToolRevision

# What clients call the tool by stays as it is now: they know it by that.
RESTORED = tuple(name for name in authoring.DEFINITION_FIELDS if name != "name")
LIMITS = ("calls_per_second", "calls_per_minute", "calls_per_day", "calls_in_flight")
AS_NOW = "This is how it is defined now."
FROM_CODE = (
    "The code declares what a Python tool is, so nothing of this can be brought back here: install the version of its "
    "app that declared it, and run manage.py sync_tools."
)


class NotPossible(ValueError):
    """What was wanted cannot be; the message says why, and what can."""


def definition_of(tool: Tool) -> dict[str, Any]:
    """The definition of a tool as it is now, as a revision keeps it."""
    return {name: getattr(tool, name) for name in authoring.DEFINITION_FIELDS}


def why_not(tool: Tool, definition: dict[str, Any]) -> str:
    """Why a definition cannot be brought back; "" if it can, as far as can be told without trying."""
    if all(definition.get(name) == getattr(tool, name) for name in RESTORED):
        return AS_NOW
    is_same_code = tool.kind == definition.get("kind") == ToolKind.PYTHON and tool.config == definition.get("config")
    return FROM_CODE if is_same_code else ""


def restore(tool: Tool, revision: ToolRevision, by: User | None) -> Tool:
    """Give a tool the definition of one of its revisions, as a new revision. Raises NotPossible."""
    with changes.in_turn():
        tool.refresh_from_db()  # whoever had the turn before may have changed it
        if problem := why_not(tool, revision.definition):
            raise NotPossible(problem)
        for name in RESTORED:
            if name in revision.definition:
                setattr(tool, name, revision.definition[name])
        _check(tool)
        authoring.save_tool(tool, by)
        changes.record(Action.RESTORED, tool, after={"restored_revision": revision.number, "revision": tool.revision})
    return tool


def clone(tool: Tool, tenant: Tenant, name: str, *, enabled: bool, by: User | None) -> Tool:
    """Another tool of the same definition and limits, for the same tenant or another. Raises NotPossible."""
    if tenant.tools.filter(name=name).exists():
        raise NotPossible(f"{tenant} has a tool named {name}.")
    values = {field: getattr(tool, field) for field in (*RESTORED, *LIMITS)}
    made = Tool(tenant=tenant, enabled=enabled, **(values | {"name": name}))
    _check(made)
    return authoring.save_tool(made, by)


def _check(tool: Tool) -> None:
    """Refuse what the rules of today do not allow. Raises NotPossible."""
    try:
        tool.clean_fields(exclude={"tenant"})
    except ValidationError as problem:
        raise NotPossible("; ".join(problem.messages)) from problem
    faults = tool_faults(tool)
    if faults:
        raise NotPossible("; ".join(f"{field}: {message}" for field, told in faults.items() for message in told))
