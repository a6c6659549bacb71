"""Who may do what with a tool, a prompt or a resource: the rule that lists, calls and notifications share."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from tools_app.catalog import presentation
from tools_app.catalog.compiled import Catalog
from tools_app.catalog.toolsets import CompiledToolset
from tools_app.core.validators import ITEM_KINDS, ItemKind, validate_names
from tools_app.identity.oauth.scopes import READ_GRANT, Grant
from tools_app.identity.patterns import PermittedNames, exactly
from tools_app.identity.principal import Principal

TENANT, HOLDING, EMPTY, GONE = uuid4(), uuid4(), uuid4(), uuid4()
ACTIONS: dict[ItemKind, tuple[str, ...]] = {
    "tool": ("tools/list", "tools/call", "tasks/get"),
    "prompt": ("prompts/list", "prompts/get", "completion/complete"),
    "resource": ("resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "skills/get"),
}
ODD = r"x:/a*b?c[d]=(e)|\f%2A"


def caller(*entries: str, **fields: Any) -> Principal:
    return Principal(uuid4(), TENANT, "acme", (), names=PermittedNames(entries), **fields)


@pytest.mark.parametrize(
    ("entry", "name", "kinds"),
    [
        ("tool=wipe", "wipe", "tool"),
        ("prompt=wipe", "wipe", "prompt"),
        ("resource=wipe", "wipe", "resource"),
        ("tool=wipe", "wipe2", ""),
        ("tool=wipe", "tool=wipe", ""),
        ("tool=w*", "wipe", ""),
        ("tool=*", "wipe", ""),
        ("tool=", "wipe", ""),
        ("resource=hr://*", "hr://*", "resource"),
        ("resource=hr://*", "hr://salaries", ""),
        (f"resource={ODD}", ODD, "resource"),
        (f"resource={ODD}", ODD.replace("*", "**"), ""),
        ("resource=api://{page}", "api://{page}", "resource"),
        ("resource=api://{page}", "api://a", ""),
        ("wipe", "wipe", "tool prompt resource"),
        ("w*e", "wipe", "tool prompt resource"),
        ("*", "wipe", "tool prompt resource"),
        ("hr://*", "hr://salaries", "tool prompt resource"),
        ("other=wipe", "wipe", ""),
        ("Tool=wipe", "wipe", ""),
        ("wipe", "Wipe", ""),
    ],
)
def test_an_entry_permits_what_it_names_for_every_method_of_these_kinds_alike(
    entry: str, name: str, kinds: str
) -> None:
    for principal in (caller(entry), caller("other", entry, "tool=more"), caller("*", grants=(grant(entry),))):
        allowed = {
            (kind, method)
            for kind, methods in ACTIONS.items()
            for method in methods
            if principal.may(kind, method, name, None)
        }
        assert allowed == {(kind, method) for kind in kinds.split() for method in ACTIONS[kind]}  # type: ignore[index]


def grant(*names: str, methods: tuple[str, ...] | None = None) -> Grant:
    return Grant(PermittedNames(names) if names else None, methods)


@pytest.mark.parametrize("kind", ITEM_KINDS)
@pytest.mark.parametrize("name", ["echo", "hr://*", ODD, "tool=a"])
def test_what_is_chosen_is_valid_and_permits_itself_alone(kind: ItemKind, name: str) -> None:
    validate_names([exactly(kind, name)])
    for other in ITEM_KINDS:
        assert caller(exactly(kind, name)).may(other, ACTIONS[other][0], name, None) is (other == kind)


@pytest.mark.parametrize(
    ("fields", "kind", "method", "name", "allowed"),
    [
        ({}, "tool", "tools/call", "echo", True),
        # Methods of the key.
        ({"methods": ("tools/*",)}, "tool", "tools/call", "echo", True),
        ({"methods": ("tools/list",)}, "tool", "tools/call", "echo", False),
        ({"methods": ()}, "prompt", "prompts/get", "echo", False),
        # Scopes: one has to permit both, the method and the item.
        ({"grants": ()}, "tool", "tools/list", "echo", False),
        ({"grants": (READ_GRANT,)}, "tool", "tools/list", "echo", True),
        ({"grants": (READ_GRANT,)}, "tool", "tools/call", "echo", False),
        ({"grants": (READ_GRANT, grant("e*", methods=("tools/call",)))}, "tool", "tools/call", "echo", True),
        ({"grants": (READ_GRANT, grant("o*", methods=("tools/call",)))}, "tool", "tools/call", "echo", False),
        ({"grants": (grant("prompt=echo"),)}, "tool", "tools/call", "echo", False),
        ({"grants": (grant("prompt=echo"),)}, "prompt", "prompts/get", "echo", True),
        ({"grants": (grant("o*"), grant("e*", methods=("prompts/get",)))}, "tool", "tools/list", "echo", False),
        # Toolsets restrict tools.
        ({"toolset": HOLDING}, "tool", "tools/call", "echo", True),
        ({"toolset": HOLDING}, "tool", "tools/list", "orders", False),
        ({"toolset": EMPTY}, "tool", "tools/call", "echo", False),
        ({"toolset": EMPTY}, "tool", "tasks/get", "gone", True),
        ({"toolset": GONE}, "tool", "tools/call", "echo", False),
        ({"toolset": GONE}, "prompt", "prompts/get", "echo", True),
        # A tool that needs a person.
        ({}, "tool", "tools/call", "orders", False),
        ({"person_id": 7}, "tool", "tools/call", "orders", True),
        ({}, "prompt", "prompts/get", "orders", True),
    ],
)
def test_methods_scopes_toolset_and_person_count_beside_the_names(
    fields: dict[str, Any], kind: ItemKind, method: str, name: str, allowed: bool
) -> None:
    found = catalog()
    assert caller("*", **fields).may(kind, method, name, found) is allowed
    assert not caller(**fields).may(kind, method, name, found)
    assert not caller("other", **fields).may(kind, method, name, found)
    if kind == "tool" and name in found.tools and method != "tasks/get":
        view = presentation.view_of(found, caller("*", **fields))
        assert (name in (view.searchable if method == "tools/call" else view.names)) is allowed


def catalog() -> Catalog:
    """Return a catalog with a tool for everybody, and one that needs a person."""
    tools: dict[str, Any] = {
        name: SimpleNamespace(name=name, needs_person=name == "orders", tokens=1) for name in ("echo", "orders")
    }
    toolsets: dict[UUID, CompiledToolset] = {
        HOLDING: CompiledToolset(frozenset({"echo"}), frozenset({"echo"}), ()),
        EMPTY: CompiledToolset(frozenset(), frozenset({"gone"}), ()),
    }
    return Catalog(TENANT, "acme", b"1", tools, {}, {}, {}, {}, toolsets=toolsets)
