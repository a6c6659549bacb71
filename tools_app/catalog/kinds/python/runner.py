"""Tools as Python functions: the registry of installed apps' functions, and how they are run.

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

from tools_app.audit.recorder.redaction import is_secret
from tools_app.catalog.kinds.base import Runner, ToolDefinition
from tools_app.catalog.kinds.python import signature
from tools_app.catalog.models import TOOL_NAME, TaskSupport
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import ToolResult, size_of
from tools_app.core import large_work
from tools_app.core.fair_scheduler import LARGE_BYTES, FairScheduler, Slot
from tools_app.core.process.runtime import Service
from tools_app.protocol.mirrored import PREFIX, InvalidMirror, mirrored
from tools_app.protocol.schema import CompiledSchema, InvalidSchema

# Synchronous tools run in threads: two pools, so that long background tools never delay short ones. Tenants share 32
# threads of the first pool, of which a single tenant may use 24. Calls that started while fewer tenants were active are
# not stopped; the other tenants have as many threads again. The second pool only has to be larger than the number of
# calls that a Celery worker runs concurrently.
TOGETHER, ALONE = 32, 24
_inline_threads = Service(lambda: ThreadPoolExecutor(max_workers=2 * TOGETHER, thread_name_prefix="tool"))
_background_threads = Service(lambda: ThreadPoolExecutor(max_workers=256, thread_name_prefix="background-tool"))


class UnknownFunction(LookupError):
    """No installed app registers a function under this name."""


@dataclass(frozen=True)
class PythonFunction:
    """A registered function: its definition, how to run it, and its `place` in the code.

    `needs_person` means that it runs for the person behind the caller's key, and not without one.
    """

    definition: ToolDefinition
    background: bool
    timeout_seconds: float
    task: TaskSupport
    run: Runner
    place: str
    needs_person: bool = False


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
    """Register `function` as a tool, named `name` or as the function.

    `input_schema` and `output_schema` replace the schemas of the type hints. Raises ImproperlyConfigured for an invalid
    or duplicate name, a time limit that is not positive, a `task` that is not a TaskSupport, an invalid schema, a
    generator, or a signature that JSON arguments cannot fill.
    """
    name = name or function.__name__
    place = signature.place_of(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ImproperlyConfigured(f"{place}: a tool returns one result. Report progress with ToolContext.progress.")
    described = signature.parse_docstring(function.__doc__)
    taken = signature.read(function, described.parameters)
    given = signature.declared_output(output_schema) if output_schema else signature.output_of(taken.returns, place)
    definition = ToolDefinition(
        name=name,
        title=title or name.replace("_", " ").replace("-", " ").capitalize(),
        description=described.description,
        input_schema=dict(input_schema or taken.schema),
        output_schema=given.schema,
        annotations=dict(annotations or {}),
        icons=[dict(icon) for icon in icons],
    )
    if task not in TaskSupport.values:
        raise ImproperlyConfigured(f"{place}: task is one of {', '.join(TaskSupport.values)}, not {task!r}.")
    run = _runner(function, taken.bind, given.package, background=background)
    return add(PythonFunction(definition, background, timeout_seconds, TaskSupport(task), run, place))


def add(offered: PythonFunction) -> PythonFunction:
    """Register a tool whose definition is complete. Raises ImproperlyConfigured as `register` does."""
    name, place = offered.definition.name, offered.place
    try:
        TOOL_NAME(name)
    except ValidationError as problem:
        raise ImproperlyConfigured(f"{place}: {name!r} cannot be a tool's name. {problem.message}") from problem
    holder = _functions.get(name)
    # The same location again is a reloaded module, not a duplicate.
    if holder and holder.place != place:
        raise ImproperlyConfigured(f"Two tools are named {name!r}: {holder.place} and {place}.")
    if offered.timeout_seconds <= 0:
        raise ImproperlyConfigured(f"{place}: the time limit must be greater than zero, not {offered.timeout_seconds}.")
    input_schema = offered.definition.input_schema
    try:
        check_header_arguments(input_schema)
        CompiledSchema(input_schema)
        CompiledSchema(offered.definition.output_schema or {})
    except (InvalidMirror, InvalidSchema) as problem:
        raise ImproperlyConfigured(f"{place}: {problem}") from problem
    if input_schema.get("type") != "object":
        raise ImproperlyConfigured(f"{place}: the input schema must have the type object.")
    _functions[name] = offered
    return offered


def registered(name: str) -> PythonFunction:
    """Return the function registered under `name`. Raises UnknownFunction."""
    try:
        return _functions[name]
    except KeyError:
        raise UnknownFunction(name) from None


def all_registered() -> Mapping[str, PythonFunction]:
    """Return every registered function, by name."""
    return dict(sorted(_functions.items()))


_schedulers: WeakKeyDictionary[asyncio.AbstractEventLoop, FairScheduler] = WeakKeyDictionary()


async def in_thread(
    function: Callable[..., Any], arguments: dict[str, Any], tenant_id: UUID, *, background: bool = False
) -> Any:
    """Run a synchronous function in a thread; waits for a slot of the tenant unless `background`."""
    work = partial(copy_context().run, _call, function, arguments)
    loop = asyncio.get_running_loop()
    if background:
        return await loop.run_in_executor(_background_threads(), work)
    scheduler = _schedulers.get(loop)
    if scheduler is None:
        scheduler = _schedulers[loop] = FairScheduler(alone=ALONE, together=TOGETHER)
    turn = scheduler.try_acquire(tenant_id) or await scheduler.acquire(tenant_id)
    running = _inline_threads().submit(work)
    try:
        return await asyncio.wrap_future(running)
    finally:
        if running.done():
            scheduler.release(turn)
        else:
            # The caller has stopped waiting, but the thread is still busy.
            running.add_done_callback(partial(_left, loop, scheduler, turn))


def _left(loop: asyncio.AbstractEventLoop, scheduler: FairScheduler, turn: Slot, _: object) -> None:
    with suppress(RuntimeError):  # the loop is closed: no call waits for a slot
        loop.call_soon_threadsafe(scheduler.release, turn)


def _runner(
    function: Callable[..., Any],
    bind: Callable[[dict[str, Any], ToolContext], dict[str, Any]],
    package: Callable[[Any], ToolResult],
    *,
    background: bool,
) -> Runner:
    async def run_here(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        size = size_of(arguments)
        bound = partial(bind, arguments, context)
        value = await function(**(bound() if size <= LARGE_BYTES else await large_work.run(size, bound)))
        if package is signature.unstructured and isinstance(value, str):
            return package(value)
        return await large_work.run(size_of(value), partial(package, value))

    def packaged(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return package(function(**bind(arguments, context)))

    async def run_in_thread(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        result: ToolResult = await in_thread(
            packaged,
            {"arguments": arguments, "context": context},
            context.caller.tenant_id,
            background=background,
        )
        return result

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


def check_header_arguments(schema: Mapping[str, Any]) -> None:
    """Raise InvalidMirror for a mark that the specification forbids, or on a parameter named like a secret."""
    for one in mirrored(schema):
        for name in (*one.path, one.header.removeprefix(PREFIX)):
            if is_secret(name):
                place = tuple(step for name in one.path for step in ("properties", name))
                raise InvalidMirror(place, f"'{name}' looks like a secret; headers are logged by proxies.")
