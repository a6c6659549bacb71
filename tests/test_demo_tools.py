"""The demo tools."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tools_app import mcp_tools
from tools_app.calls.conversation import Rounds
from tools_app.calls.invocation import FIRST_ROUND
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.tool_api.context import Caller, Cancellation, ToolContext
from tools_app.catalog.tool_api.results import CallCancelled, ToolError, ToolResult, text
from tools_app.protocol.schema import CompiledSchema
from tools_app.web.documentation import search

WAIT_SECONDS = 10
DEMO = ["calculator", "count", "echo", "echo_ip", "search_docs", "test_throw"]


class Call:
    """A call of a registered tool, with its events."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.cancelled = Cancellation()

    def run(self, tool_name: str, **arguments: Any) -> ToolResult:
        caller = Caller(UUID(int=1), "acme", "203.0.113.9", "test", "1", "2026-07-28", {})
        context = ToolContext(UUID(int=2), caller, self._record_event, self.cancelled, lambda: Rounds(FIRST_ROUND))
        runner = python.registered(tool_name).run
        return asyncio.run(asyncio.wait_for(runner(arguments, context), WAIT_SECONDS))

    def _record_event(self, kind: str, data: dict[str, Any]) -> None:
        self.events.append({"kind": kind, **data})


@pytest.fixture
def call() -> Call:
    return Call()


@pytest.fixture
def quick_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tools, "STEP_SECONDS", 0.0)


@pytest.fixture
def documentation(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Replace the hub's documentation: `documentation({"docs/a.md": "# A"})`."""

    def write(pages: dict[str, str]) -> None:
        index = search.Index(section for path in pages for section in search.sections(path, pages[path]))
        monkeypatch.setattr(search, "index", lambda: index)

    return write


def structured(name: str, result: ToolResult) -> Any:
    """The structured content, checked against the tool's output schema."""
    schema = python.registered(name).definition.output_schema
    assert schema is not None
    assert CompiledSchema(schema).problems(result.structured) == []
    return result.structured


def accepts(name: str, **arguments: Any) -> bool:
    return CompiledSchema(python.registered(name).definition.input_schema).accepts(arguments)


def test_the_demo_tools_are_registered_when_django_starts() -> None:
    assert set(DEMO) <= set(python.all_registered())


@pytest.mark.parametrize("name", DEMO)
def test_each_demo_tool_tells_a_model_what_it_is_for(name: str) -> None:
    definition = python.registered(name).definition
    assert definition.title
    assert len(definition.description) > 30
    assert definition.annotations["readOnlyHint"] is True
    assert all("description" in schema for schema in definition.input_schema["properties"].values())


def test_only_count_runs_in_the_background() -> None:
    assert [name for name in DEMO if python.registered(name).background] == ["count"]


def test_echo_says_hello(call: Call) -> None:
    assert call.run("echo", message="world") == ToolResult(content=[text("hello world")])


def test_echo_ip_tells_the_address_of_the_caller(call: Call) -> None:
    assert call.run("echo_ip") == ToolResult(content=[text("203.0.113.9")])


def test_count_reports_each_step_and_ends_with_the_number(call: Call, quick_steps: None) -> None:
    assert call.run("count", n=3) == ToolResult(content=[text("3")])
    assert call.events == [
        {"kind": "progress", "progress": step, "total": 3, "message": f"Step {step} of 3"} for step in range(3)
    ]


def test_count_steps_every_hundred_milliseconds() -> None:
    assert mcp_tools.STEP_SECONDS == 0.1


def test_count_to_zero_says_nothing(call: Call) -> None:
    assert call.run("count", n=0) == ToolResult(content=[text("0")])
    assert call.events == []


def test_count_stops_in_the_middle_of_a_step_when_it_is_cancelled(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tools, "STEP_SECONDS", WAIT_SECONDS * 2)
    monkeypatch.setattr(call, "_record_event", lambda kind, data: call.cancelled.set())

    with pytest.raises(CallCancelled):
        call.run("count", n=5)


@pytest.mark.parametrize("n", [-1, 10_001, True, "3", 1.5])
def test_count_refuses_what_it_cannot_count_to(n: Any) -> None:
    assert not accepts("count", n=n)


def test_test_throw_raises(call: Call) -> None:
    with pytest.raises(RuntimeError):
        call.run("test_throw")


@pytest.mark.parametrize(
    ("operation", "a", "b", "expected"),
    [
        ("add", 2, 3, '{"result":5}'),
        ("subtract", 2, 3, '{"result":-1}'),
        ("multiply", 1.5, 2, '{"result":3.0}'),
        ("divide", 1, 4, '{"result":0.25}'),
    ],
)
def test_calculator_answers_in_text_and_structure(
    call: Call, operation: str, a: float, b: float, expected: str
) -> None:
    result = call.run("calculator", operation=operation, a=a, b=b)

    assert result.content == [text(expected)]
    assert set(structured("calculator", result)) == {"result"}


@pytest.mark.parametrize("b", [0, 0.0])
def test_calculator_cannot_divide_by_zero(call: Call, b: float) -> None:
    with pytest.raises(ToolError, match=r"^Cannot divide by zero\.$"):
        call.run("calculator", operation="divide", a=1, b=b)


@pytest.mark.parametrize(
    ("operation", "a", "b"),
    [
        ("multiply", 1e308, 10),
        ("multiply", 10**200, 10**200),
        ("divide", 10**400, 1),
        ("add", 1e308, 1e308),
        ("subtract", float("inf"), float("inf")),
    ],
)
def test_calculator_says_when_no_number_holds_the_result(call: Call, operation: str, a: float, b: float) -> None:
    with pytest.raises(ToolError, match="too large"):
        call.run("calculator", operation=operation, a=a, b=b)


def test_calculator_gives_whole_numbers_beyond_64_bits_as_floats(call: Call) -> None:
    result = call.run("calculator", operation="multiply", a=2**62, b=4)

    assert structured("calculator", result) == {"result": 2.0**64}


def test_calculator_knows_its_operations_only() -> None:
    assert accepts("calculator", operation="add", a=1, b=2.5)
    assert not accepts("calculator", operation="power", a=1, b=2)
    assert not accepts("calculator", operation="add", a=True, b=2)


def test_search_finds_the_sections_that_hold_a_word(
    call: Call, documentation: Callable[[dict[str, str]], None]
) -> None:
    documentation({"docs/keys.md": "# Keys\n\nHow to make a key.\n\n## Rotation\n\nMake the successor first."})

    assert structured("search_docs", call.run("search_docs", query="Successors")) == {
        "result": [
            {
                "title": "Keys",
                "section": "Rotation",
                "snippet": "Make the successor first.",
                "path": "docs/keys.md",
                "anchor": "rotation",
            }
        ],
        "totalCount": 1,
    }


def test_search_puts_a_match_in_the_heading_first(call: Call, documentation: Callable[[dict[str, str]], None]) -> None:
    documentation({"a.md": "# A\n\nThe audit is elsewhere.", "b.md": "# B\n\n## Audit\n\nWhat is kept."})

    hits = call.run("search_docs", query="audit").structured["result"]
    assert [hit["section"] for hit in hits] == ["Audit", "A"]


def test_search_puts_a_rare_word_before_a_common_one(
    call: Call, documentation: Callable[[dict[str, str]], None]
) -> None:
    pages = {f"{name}.md": f"# {name}\n\nThe hub again." for name in "pqrs"}
    documentation({**pages, "z.md": "# Z\n\nA doorbell rings."})

    hits = call.run("search_docs", query="hub doorbell").structured["result"]
    assert hits[0]["path"] == "z.md"
    assert len(hits) == 5


def test_search_returns_no_more_than_the_limit_and_counts_all(
    call: Call, documentation: Callable[[dict[str, str]], None]
) -> None:
    documentation({f"{name}.md": f"# {name}\n\nThe hub." for name in "abcdef"})

    found = structured("search_docs", call.run("search_docs", query="hub", limit=2))
    assert len(found["result"]) == 2
    assert found["totalCount"] == 6


@pytest.mark.parametrize("query", ["xylophone", "???"])
def test_search_without_a_match_gives_an_empty_list(
    call: Call, documentation: Callable[[dict[str, str]], None], query: str
) -> None:
    documentation({"a.md": "# A\n\nText."})

    assert structured("search_docs", call.run("search_docs", query=query)) == {"result": [], "totalCount": 0}


def test_search_works_where_no_documentation_is_installed(
    call: Call, documentation: Callable[[dict[str, str]], None]
) -> None:
    documentation({})

    assert call.run("search_docs", query="key").structured == {"result": [], "totalCount": 0}


def test_search_cuts_a_long_section_around_its_first_match(
    call: Call, documentation: Callable[[dict[str, str]], None]
) -> None:
    documentation({"a.md": f"# A\n\n{'before ' * 100}needle {'after ' * 100}"})

    (hit,) = call.run("search_docs", query="needle").structured["result"]
    assert "needle" in hit["snippet"]
    assert hit["snippet"].startswith("…before ")
    assert hit["snippet"].endswith(" after…")
    assert len(hit["snippet"]) <= search.SNIPPET_CHARACTERS + 2


def test_a_comment_in_a_code_block_is_no_heading() -> None:
    page = "# Page\n\n```sh\n# not a heading\nrun\n```\n"

    assert [section.heading for section in search.sections("p.md", page)] == ["Page"]


def test_text_above_the_first_heading_is_found_under_the_path() -> None:
    found = list(search.sections("p.md", "Intro.\n\n# Page\n\nText."))

    assert [(section.heading, section.text) for section in found] == [("p.md", "Intro."), ("Page", "Text.")]


@pytest.mark.parametrize("limit", [0, 51, "5"])
def test_search_refuses_a_limit_out_of_bounds(limit: Any) -> None:
    assert not accepts("search_docs", query="key", limit=limit)


def test_search_refuses_an_empty_query() -> None:
    assert not accepts("search_docs", query="")


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("connect claude code", "docs/connecting.md"),
        ("revoke key", "docs/keys.md"),
        ("rate limit", "docs/limits.md"),
        ("background tool progress", "docs/writing-tools.md"),
    ],
)
def test_the_documentation_of_the_hub_itself_is_found(call: Call, query: str, path: str) -> None:
    hits = call.run("search_docs", query=query).structured["result"]

    assert path in [hit["path"] for hit in hits[:3]]
