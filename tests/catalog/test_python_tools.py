"""Python functions as tools: the registry, return values, and threads."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from tools_app.calls.conversation import Rounds
from tools_app.calls.invocation import FIRST_ROUND
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.tool_api.context import Caller, Cancellation
from tools_app.catalog.tool_api.results import ToolError, ToolResult, text
from tools_app.toolkit import ToolContext, tool

# A thread of the pool may keep a connection of an earlier test, which it closes itself.
pytestmark = pytest.mark.django_db
WAIT_SECONDS = 30.0


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, python.PythonFunction]:
    """An empty registry during a test."""
    functions: dict[str, python.PythonFunction] = {}
    monkeypatch.setattr(python, "_functions", functions)
    return functions


@pytest.fixture
def context() -> ToolContext:
    caller = Caller(UUID(int=1), "acme", "203.0.113.9", "test", "1", "2026-07-28", {})
    return ToolContext(UUID(int=2), caller, lambda kind, data: None, Cancellation(), lambda: Rounds(FIRST_ROUND))


@pytest.fixture
def run(context: ToolContext) -> Callable[..., ToolResult]:
    """Register a function and run it: `run(function, x=1)`."""

    def register_and_run(function: Callable[..., Any], **arguments: Any) -> ToolResult:
        runner = python.register(function, name="tool").run
        return asyncio.run(asyncio.wait_for(runner(arguments, context), WAIT_SECONDS))

    return register_and_run


def structured(result: ToolResult) -> Any:
    """The structured content, which the text block has to repeat (tools, §Structured Content)."""
    (block,) = result.content
    assert block["type"] == "text"
    assert orjson.loads(block["text"]) == result.structured
    return result.structured


def output_schema(function: Callable[..., Any]) -> Any:
    return python.register(function, name="tool").definition.output_schema


# --- The registry


def test_a_bare_decorator_registers_the_function_under_its_own_name() -> None:
    @tool
    def list_files(folder: str) -> str:
        """List the files of a folder."""
        return folder

    registered = python.registered("list_files")
    assert registered.definition.title == "List files"
    assert registered.definition.description == "List the files of a folder."
    assert registered.definition.annotations == {}
    assert not registered.background
    assert list_files("x") == "x"


def test_options_reach_the_registry() -> None:
    @tool(name="files.remove", title="Remove a file", background=True, timeout=5.0)
    def remove(path: str) -> None: ...

    registered = python.registered("files.remove")
    assert registered.definition.title == "Remove a file"
    assert registered.background
    assert registered.timeout_seconds == 5.0


def test_what_a_tool_says_of_itself_becomes_its_annotations() -> None:
    @tool(read_only=False, destructive=True, idempotent=True, open_world=False, annotations={"x": 1})
    def remove(path: str) -> None: ...

    assert python.registered("remove").definition.annotations == {
        "x": 1,
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": True,
        "openWorldHint": False,
    }


def test_registered_functions_are_listed_in_the_order_of_their_names() -> None:
    for name in ("b", "c", "a"):
        tool(name=name)(_function_of_its_own())

    assert list(python.all_registered()) == ["a", "b", "c"]


def test_an_unknown_name_is_an_error_of_its_own() -> None:
    with pytest.raises(python.UnknownFunction, match="nothing"):
        python.registered("nothing")


@pytest.mark.shows("tools.names-unique")
def test_two_functions_of_one_name_are_refused_with_both_places() -> None:
    def first() -> None: ...
    def second() -> None: ...

    tool(name="same")(first)
    with pytest.raises(ImproperlyConfigured, match=r"'same': \S+\.first and \S+\.second"):
        tool(name="same")(second)


def test_the_same_function_may_be_registered_again() -> None:
    function = _function_of_its_own()
    tool(function)
    tool(function)

    assert len(python.all_registered()) == 1


@pytest.mark.shows("tools.names")
@pytest.mark.parametrize("name", ["with space", "ümlaut", "a/b", "x" * 129, "end\n"])
def test_a_name_that_the_specification_forbids_is_refused(name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="cannot be a tool's name"):
        tool(name=name)(_function_of_its_own())


def test_a_generator_is_refused() -> None:
    def steps() -> Iterator[int]:
        yield 1

    with pytest.raises(ImproperlyConfigured, match="steps: a tool returns one result"):
        tool(steps)


def test_a_time_limit_of_zero_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured, match="time limit"):
        tool(timeout=0)(_function_of_its_own())


# --- What comes back


def test_a_string_is_one_text_block_without_structure(run: Callable[..., ToolResult]) -> None:
    def say() -> str:
        return "hi"

    assert run(say) == ToolResult(content=[text("hi")])
    assert output_schema(say) is None


def test_nothing_is_empty_content(run: Callable[..., ToolResult]) -> None:
    def rest() -> None: ...

    assert run(rest) == ToolResult(content=[])
    assert output_schema(rest) is None


def test_a_tool_result_is_passed_through(run: Callable[..., ToolResult]) -> None:
    result = ToolResult(content=[text("a"), text("b")], structured={"x": 1})

    def give() -> ToolResult:
        return result

    assert run(give) is result
    assert output_schema(give) is None


def test_a_text_or_nothing_declares_no_structure(run: Callable[..., ToolResult]) -> None:
    def find(known: bool) -> str | None:
        return "x" if known else None

    assert output_schema(find) is None
    assert run(find, known=False) == ToolResult(content=[])
    assert run(find, known=True) == ToolResult(content=[text("x")])


def test_without_return_hint_a_value_is_shown_as_json(run: Callable[..., ToolResult]) -> None:
    def give():  # type: ignore[no-untyped-def]
        return {"a": [1]}

    assert run(give) == ToolResult(content=[text('{"a":[1]}')])
    assert output_schema(give) is None


@pytest.mark.parametrize(
    ("hint", "value", "schema"),
    [
        (int, 2, {"type": "integer"}),
        (float, 5, {"type": "number"}),
        (bool, True, {"type": "boolean"}),
        (list[int], [1, 2], {"type": "array", "items": {"type": "integer"}}),
        (Literal["a", "b"], "a", {"enum": ["a", "b"], "type": "string"}),
        (int | None, None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    ],
)
def test_a_value_that_is_no_object_is_wrapped_as_result(
    run: Callable[..., ToolResult], hint: Any, value: Any, schema: dict[str, Any]
) -> None:
    def give():  # type: ignore[no-untyped-def]
        return value

    give.__annotations__["return"] = hint

    assert output_schema(give) == {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    assert structured(run(give)) == {"result": value}


def test_an_integer_under_a_float_hint_stays_an_integer(run: Callable[..., ToolResult]) -> None:
    def give() -> float:
        return 5

    assert run(give).content == [text('{"result":5}')]


def test_a_dictionary_is_the_structured_content(run: Callable[..., ToolResult]) -> None:
    def give() -> dict[str, int]:
        return {"a": 1}

    assert output_schema(give) == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert structured(run(give)) == {"a": 1}


@dataclass
class Weather:
    degrees: float
    wind_speed: Annotated[float, Field(serialization_alias="windSpeed")]


class Book(TypedDict):
    pages: int


class Tree(BaseModel):
    name: str
    children: list["Tree"] = []


def test_a_dataclass_is_the_structured_content_under_its_wire_names(run: Callable[..., ToolResult]) -> None:
    def give() -> Weather:
        return Weather(1.5, 3.0)

    assert output_schema(give) == {
        "type": "object",
        "properties": {"degrees": {"type": "number"}, "windSpeed": {"type": "number"}},
        "required": ["degrees", "windSpeed"],
    }
    assert structured(run(give)) == {"degrees": 1.5, "windSpeed": 3.0}


def test_a_typed_dict_is_the_structured_content(run: Callable[..., ToolResult]) -> None:
    def give() -> Book:
        return {"pages": 3}

    assert output_schema(give)["properties"] == {"pages": {"type": "integer"}}
    assert structured(run(give)) == {"pages": 3}


def test_a_recursive_model_has_an_object_schema_at_its_root(run: Callable[..., ToolResult]) -> None:
    def give() -> Tree:
        return Tree(name="a", children=[Tree(name="b")])

    schema = output_schema(give)
    assert schema["type"] == "object"
    assert schema["$ref"] == "#/$defs/Tree"
    assert structured(run(give)) == {"name": "a", "children": [{"name": "b", "children": []}]}


def test_definitions_of_a_wrapped_result_stay_at_the_root(run: Callable[..., ToolResult]) -> None:
    def give() -> list[Weather]:
        return [Weather(1, 2)]

    schema = output_schema(give)
    assert schema["properties"]["result"] == {"type": "array", "items": {"$ref": "#/$defs/Weather"}}
    assert list(schema["$defs"]) == ["Weather"]
    assert structured(run(give)) == {"result": [{"degrees": 1.0, "windSpeed": 2.0}]}


def test_bytes_are_refused_as_a_result() -> None:
    def give() -> bytes:
        return b""

    with pytest.raises(ImproperlyConfigured, match="bytes have no JSON form"):
        python.register(give, name="give")


def test_a_result_without_json_form_is_refused() -> None:
    def give() -> Callable[[], int]:
        return int

    with pytest.raises(ImproperlyConfigured, match="give, return value: "):
        python.register(give, name="give")


# --- How they run


def test_an_async_function_runs_on_the_loop_of_the_call(run: Callable[..., ToolResult]) -> None:
    async def where() -> str:
        return threading.current_thread().name

    assert run(where).content == [text(threading.current_thread().name)]


@pytest.mark.parametrize(("background", "pool"), [(False, "tool_"), (True, "background-tool_")])
def test_a_sync_function_runs_in_a_thread_of_its_pool(context: ToolContext, background: bool, pool: str) -> None:
    def where() -> str:
        return threading.current_thread().name

    runner = python.register(where, background=background).run
    (block,) = asyncio.run(asyncio.wait_for(runner({}, context), WAIT_SECONDS)).content
    assert block["text"].startswith(pool)


def test_a_sync_function_does_not_hold_up_the_loop(context: ToolContext) -> None:
    opened = threading.Event()

    def wait() -> bool:
        return opened.wait(WAIT_SECONDS)

    async def open_it() -> None:
        opened.set()

    async def both() -> ToolResult:
        result, _ = await asyncio.gather(python.register(wait).run({}, context), open_it())
        return result

    assert asyncio.run(both()).structured == {"result": True}


def test_context_variables_reach_the_thread(context: ToolContext) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    def read() -> str:
        return variable.get()

    async def call() -> ToolResult:
        variable.set("set")
        return await python.register(read).run({}, context)

    assert asyncio.run(call()).content == [text("set")]


def test_stale_database_connections_are_closed_around_a_sync_function(
    run: Callable[..., ToolResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    monkeypatch.setattr(python, "close_old_connections", lambda: happened.append("closed"))

    def work() -> None:
        happened.append("worked")

    run(work)
    assert happened == ["closed", "worked", "closed"]


def test_the_context_is_passed_to_those_who_ask(run: Callable[..., ToolResult]) -> None:
    async def who(greeting: str, context: ToolContext) -> str:
        return f"{greeting} {context.caller.remote_address}"

    assert run(who, greeting="hi").content == [text("hi 203.0.113.9")]


@pytest.mark.parametrize("problem", [ToolError("no"), KeyError("x")])
def test_what_a_tool_raises_is_left_as_it_is(run: Callable[..., ToolResult], problem: Exception) -> None:
    async def fail_here() -> None:
        raise problem

    def fail_in_thread() -> None:
        raise problem

    for function in (fail_here, fail_in_thread):
        python._functions.clear()
        with pytest.raises(type(problem)) as raised:
            run(function)
        assert raised.value is problem


def test_a_sync_function_that_runs_out_of_an_iterator_fails_at_once(run: Callable[..., ToolResult]) -> None:
    def first() -> int:
        return next(iter([]))

    with pytest.raises(RuntimeError, match="StopIteration"):
        run(first)


# --- What the documentation says of them


def test_the_examples_of_the_documentation_register() -> None:
    page = (settings.BASE_DIR / "docs" / "writing-tools.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "documentation"}
    for example in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(example, names)

    assert list(python.all_registered()) == ["find_orders", "reindex"]
    assert python.registered("find_orders").definition.input_schema["required"] == ["customer"]
    assert python.registered("reindex").background


def _function_of_its_own() -> Callable[[], None]:
    def function() -> None: ...

    return function
