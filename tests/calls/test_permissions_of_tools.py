"""Calls and lists decide alike whether a caller may use a tool."""

import asyncio
from itertools import product
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from tools_app.access.limits.quotas import UNLIMITED
from tools_app.access.oauth.tenant_scopes import Grant
from tools_app.access.principal import Principal
from tools_app.calls import dispatch
from tools_app.catalog import compiled, presentation
from tools_app.catalog.compiled import Catalog
from tools_app.catalog.toolsets import CompiledToolset
from tools_app.models import TaskSupport
from tools_app.protocol.errors import RpcError
from tools_app.protocol.versions import Era

NAMES = ("echo", "orders")
PATTERNS = (None, (), ("echo",), ("e*", "x"), ("orders",), ("*",))
ORDERS, ECHOES = Grant(("o*",), ("tools/call",)), Grant(("e*",), None)
GRANTS = (None, (), (Grant(None, None),), (ORDERS, Grant(("x",), None)), (ECHOES,), (ORDERS, ECHOES))
HOLDING, EMPTY, GONE = uuid4(), uuid4(), uuid4()
PERSONS = (None, 7)


def catalog() -> Catalog:
    """Return a catalog with a tool for everybody, and one that needs a person."""
    accepting = SimpleNamespace(accepts=lambda arguments: True)
    tools: dict[str, Any] = {
        name: SimpleNamespace(
            name=name,
            needs_person=name == "orders",
            mirrored=(),
            task=TaskSupport.NEVER,
            allowed=UNLIMITED,
            arguments=accepting,
        )
        for name in NAMES
    }
    toolsets = {
        HOLDING: CompiledToolset(frozenset({"echo"}), frozenset({"echo"}), ()),
        EMPTY: CompiledToolset(frozenset(), frozenset({"gone"}), ()),
    }
    return Catalog(uuid4(), "acme", b"1", tools, {}, {}, {}, {}, toolsets=toolsets)


def test_a_call_is_admitted_exactly_if_the_lists_have_its_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    found = catalog()

    async def get(tenant_id: object) -> Catalog:
        return found

    async def ran(*_arguments: object) -> str:
        return "ran"

    async def refused(_invocation: object, _era: object, refusal: RpcError) -> RpcError:
        return refusal

    monkeypatch.setattr(compiled.cache, "get", get)
    monkeypatch.setattr(dispatch, "_run", ran)
    monkeypatch.setattr(dispatch, "refuse", refused)

    async def is_admitted(principal: Principal, name: str) -> bool:
        invocation: Any = SimpleNamespace(principal=principal, name=name, headers=None, arguments={})
        options: Any = SimpleNamespace(task_request=None)
        try:
            return await dispatch.call_tool(invocation, Era.MODERN, options) == "ran"  # type: ignore[comparison-overlap]
        except RpcError:
            return False

    async def compare() -> set[bool]:
        results = set()
        cases = product(PATTERNS, GRANTS, (None, HOLDING, EMPTY, GONE), PERSONS, NAMES)
        for patterns, grants, toolset, person, name in cases:
            scoped = {"patterns": patterns, "grants": grants, "toolset": toolset}
            principal = Principal(uuid4(), found.tenant_id, "acme", (), person_id=person, **scoped)
            listed = presentation.permits_call(found, principal, name)
            assert await is_admitted(principal, name) == listed, (patterns, grants, toolset, person, name)
            results.add(listed)
            assert not await is_admitted(principal, "missing")
        return results

    assert asyncio.run(compare()) == {True, False}
