"""Tools that are Python functions: the registry of what installed apps offer, and how such a function is run.

`tools_app.toolkit.tool` fills the registry while Django starts; it is the same in every process of a hub.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import close_old_connections

from tools_app.execution.context import ToolContext
from tools_app.execution.kinds import docstring, mirroring, outputs, signature
from tools_app.execution.kinds.base import Runner, ToolDefinition
from tools_app.execution.results import ToolResult
from tools_app.execution.turnstile import Turn, Turnstile
from tools_app.models.catalog import TOOL_NAME, TaskSupport
from tools_app.protocol.mirrored import BadMirror
from tools_app.protocol.schema import BadSchema, CompiledSchema

# Synchronous tools run in threads: two pools, so that long background tools never keep a quick one waiting.
# Tenants share 32 threads of the first, and one that is alone gets 24. What began while there were fewer tenants is
# not stopped: for the others there are as many again.
# The second only has to be above the number of calls that a Celery worker runs at once.
TOGETHER, ALONE = 32, 24
_INLINE_THREADS = ThreadPoolExecutor(max_workers=2 * TOGETHER, thread_name_prefix="tool")
_BACKGROUND_THREADS = ThreadPoolExecutor(max_workers=256, thread_name_prefix="background-tool")


class UnknownFunction(LookupError):
    """No installed app registers a function under this name."""


@dataclass(frozen=True)
class PythonFunction:
    """A registered function: what clients see of it, how to run it, and its `place` in the code."""

    definition: ToolDefinition
    background: bool
    timeout_seconds: float
    task: TaskSupport
    run: Runner
    place: str


_functions: dict[str, PythonFunction] = {}


def register(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    icons: Sequence[Mapping[str, Any]] = (),
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    background: bool = False,
    task: str = TaskSupport.NEVER.value,
    timeout_seconds: float = 60.0,
) -> PythonFunction:
    """Offer `function` as a tool, under its own name unless `name` is given.

    `input_schema` and `output_schema` stand for what the hints would say. Raises ImproperlyConfigured for a bad name,
    a name that another function has, a time limit that is not above zero, a `task` that is no TaskSupport, a bad
    schema, a generator, or a signature that JSON cannot fill.
    """
    name = name or function.__name__
    place = signature.place_of(function)
    _check(function, name, place, timeout_seconds)
    described = docstring.parse(function.__doc__)
    taken = signature.read(function, described.parameters)
    given = outputs.declared(output_schema) if output_schema else outputs.read(taken.returns, place)
    definition = ToolDefinition(
        name=name,
        title=title or name.replace("_", " ").replace("-", " ").capitalize(),
        description=described.description,
        input_schema=dict(input_schema or taken.schema),
        output_schema=given.schema,
        annotations=dict(annotations or {}),
        icons=[dict(icon) for icon in icons],
    )
    _check_schemas(definition, place)
    run = _runner(function, taken.bind, given.package, background=background)
    _functions[name] = PythonFunction(definition, background, timeout_seconds, _task_support(task, place), run, place)
    return _functions[name]


def registered(name: str) -> PythonFunction:
    """The function registered under `name`. Raises UnknownFunction."""
    try:
        return _functions[name]
    except KeyError:
        raise UnknownFunction(name) from None


def all_registered() -> Mapping[str, PythonFunction]:
    """Every registered function, in the order of their names."""
    return dict(sorted(_functions.items()))


def _check(function: Callable[..., Any], name: str, place: str, timeout_seconds: float) -> None:
    try:
        TOOL_NAME(name)
    except ValidationError as problem:
        raise ImproperlyConfigured(f"{place}: {name!r} cannot be a tool's name. {problem.message}") from problem
    holder = _functions.get(name)
    # The same place again is a reloaded module, not a second tool.
    if holder and holder.place != place:
        raise ImproperlyConfigured(f"Two tools are named {name!r}: {holder.place} and {place}.")
    if timeout_seconds <= 0:
        raise ImproperlyConfigured(f"{place}: its time limit must be above zero, not {timeout_seconds}.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ImproperlyConfigured(f"{place}: a tool returns one result; say the rest by ToolContext.progress.")


def _check_schemas(definition: ToolDefinition, place: str) -> None:
    try:
        mirroring.check(definition.input_schema)
        CompiledSchema(definition.input_schema)
        CompiledSchema(definition.output_schema or {})
    except (BadMirror, BadSchema) as problem:
        raise ImproperlyConfigured(f"{place}: {problem}") from problem
    if definition.input_schema.get("type") != "object":
        raise ImproperlyConfigured(f"{place}: its input schema must have the type object.")


def _task_support(task: str, place: str) -> TaskSupport:
    try:
        return TaskSupport(task)
    except ValueError as problem:
        raise ImproperlyConfigured(
            f"{place}: task is one of {', '.join(TaskSupport.values)}, not {task!r}."
        ) from problem


_turnstiles: WeakKeyDictionary[asyncio.AbstractEventLoop, Turnstile] = WeakKeyDictionary()


async def in_thread(
    function: Callable[..., Any], arguments: dict[str, Any], tenant_id: UUID, *, background: bool = False
) -> Any:
    """What a synchronous function returns, or raises, in a thread; when it is the tenant's turn unless `background`."""
    work = partial(copy_context().run, _call, function, arguments)
    loop = asyncio.get_running_loop()
    if background:
        return await loop.run_in_executor(_BACKGROUND_THREADS, work)
    turnstile = _turnstiles.get(loop)
    if turnstile is None:
        turnstile = _turnstiles[loop] = Turnstile(alone=ALONE, together=TOGETHER)
    turn = turnstile.enter(tenant_id) or await turnstile.wait(tenant_id)
    running = _INLINE_THREADS.submit(work)
    try:
        return await asyncio.wrap_future(running)
    finally:
        if running.done():
            turnstile.leave(turn)
        else:
            # Nobody waits any more, but the thread is busy all the same.
            running.add_done_callback(partial(_left, loop, turnstile, turn))


def _left(loop: asyncio.AbstractEventLoop, turnstile: Turnstile, turn: Turn, _: object) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits for a turn
        loop.call_soon_threadsafe(turnstile.leave, turn)


def _runner(
    function: Callable[..., Any],
    bind: Callable[[dict[str, Any], ToolContext], dict[str, Any]],
    package: Callable[[Any], ToolResult],
    *,
    background: bool,
) -> Runner:
    async def run_here(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return package(await function(**bind(arguments, context)))

    async def run_in_thread(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        taken = bind(arguments, context)
        return package(await in_thread(function, taken, context.caller.tenant_id, background=background))

    return run_here if inspect.iscoroutinefunction(function) else run_in_thread


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a synchronous tool in its thread, which must not inherit or keep a stale database connection."""
    close_old_connections()
    try:
        return function(**arguments)
    except StopIteration as problem:
        # A future cannot carry StopIteration: before Python 3.12 its waiter would never wake.
        raise RuntimeError("The tool raised StopIteration.") from problem
    finally:
        close_old_connections()
