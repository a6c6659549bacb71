"""The private API of servers and of Celery that the hub uses. A new version that changes it fails a test here.

Each part is listed in the docstring of the module that needs it. Where one of these tests fails after an update, its
message says what stopped working; what to do is in the module.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from celery.worker import WorkController, state
from celery.worker.request import Request
from kombu import Connection
from twisted.web.http import HTTPChannel
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

ROOT = Path(__file__).resolve().parents[2]


def source(owner: type) -> str:
    """The code of a class, for attributes that exist on its instances alone."""
    return inspect.getsource(owner)


# Module, package, class, parts, and what stops working without them.
PARTS: list[tuple[str, str, Any, str, str]] = [
    (
        "tools_app.server.daphne",
        "Twisted",
        HTTPChannel,
        "persistent",
        "connections are not drained: a stopping hub loses requests",
    ),
    (
        "tools_app.server.uvicorn",
        "uvicorn",
        Server,
        "capture_signals startup",
        "the hub is not told when it listens, and does not stop by its own signal handlers",
    ),
    (
        "tools_app.server.uvicorn",
        "uvicorn",
        Server,
        "servers server_state",
        "connections are not drained: a stopping hub loses requests",
    ),
    ("tools_app.server.uvicorn", "uvicorn", ServerState, "connections", "the same"),
    ("tools_app.server.uvicorn", "uvicorn", HttpToolsProtocol, "shutdown", "the same"),
    ("tools_app.server.uvicorn", "uvicorn", Config, "get_loop_factory", "uvicorn does not start"),
    (
        "tools_app.server.worker",
        "celery",
        WorkController,
        "ready_callback use_eventloop",
        "the embedded hub has no background worker",
    ),
    ("tools_app.server.worker", "celery", state, "should_stop", "the embedded hub does not stop its worker"),
    (
        "tools_app.calls.background.worker_commands",
        "celery",
        state,
        "active_requests",
        "a process whose call ignores its cancellation is not ended",
    ),
    (
        "tools_app.calls.background.worker_commands",
        "celery",
        Request,
        "terminate",
        "a process whose call ignores its cancellation is not ended",
    ),
    (
        "tools_app.calls.background.broker",
        "kombu",
        Connection,
        "collect",
        "closing a broken connection to RabbitMQ blocks a thread",
    ),
]


def each_part() -> Iterator[Any]:
    for module, package, owner, names, broken in PARTS:
        for name in names.split():
            label = getattr(owner, "__name__", type(owner).__name__)
            yield pytest.param(module, package, owner, name, broken, id=f"{label}.{name}")


@pytest.mark.parametrize(("module", "package", "owner", "name", "broken"), list(each_part()))
def test_a_part_is_still_there_and_its_module_lists_it(
    module: str, package: str, owner: Any, name: str, broken: str
) -> None:
    classes = [each for each in getattr(owner, "__mro__", ()) if each is not object]
    is_there = hasattr(owner, name) or any(re.search(rf"\b{name}\b", source(each)) for each in classes)

    assert is_there, f"{package} {version(package)} has no {name} of {owner!r}: {broken}."
    assert f"`{name}`" in import_module(module).__doc__


def overrides() -> Iterator[Any]:
    """Methods of the hub's classes that a library calls, with what they replace."""
    modules = {module for module, *_ in PARTS if module.startswith("tools_app.server")}
    modules.add("tools_app.calls.background.embedded_broker")
    for module in sorted(modules):
        loaded = import_module(module)
        for cls in vars(loaded).values():
            if not inspect.isclass(cls) or cls.__module__ != module:
                continue
            for name, method in vars(cls).items():
                theirs = next((vars(base)[name] for base in cls.__mro__[1:] if name in vars(base)), None)
                replaces = inspect.isfunction(method) and inspect.isfunction(theirs) and name != "__init__"
                if replaces and not is_ours(theirs):
                    yield pytest.param(method, theirs, id=f"{cls.__name__}.{name}")


def is_ours(function: Callable[..., Any]) -> bool:
    return function.__module__.startswith(("tools_app.", "abc", "builtins"))


@pytest.mark.parametrize(("ours", "theirs"), list(overrides()))
def test_an_override_takes_what_the_library_passes(ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    own = inspect.signature(ours).parameters
    takes_all = {each.kind for each in own.values()} & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    required = [name for name, each in inspect.signature(theirs).parameters.items() if each.kind < each.VAR_POSITIONAL]

    assert takes_all or len(own) == len(required), f"{theirs.__qualname__} takes {required} now"


# Packages whose modules are internals, except for what their documentation offers.
INTERNALS = ("twisted", "daphne", "autobahn", "uvicorn", "kombu.transport", "celery.worker", "celery.apps", "amqp")
# What kombu documents: base classes of transports, and the list of their names.
PUBLIC_USES = {"mcphub.celery", "mcphub.environment", "tools_app.calls.background.embedded_broker"}


def test_no_other_module_imports_internals() -> None:
    found = set()
    for path in [*ROOT.glob("tools_app/**/*.py"), *ROOT.glob("mcphub/**/*.py")]:
        text = path.read_text()
        if not any(each in text for each in INTERNALS):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(name == each or name.startswith(f"{each}.") for name in names for each in INTERNALS):
                found.add(".".join(path.relative_to(ROOT).with_suffix("").parts))

    assert found - PUBLIC_USES <= {module for module, *_ in PARTS}
