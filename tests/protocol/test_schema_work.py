"""Values whose validation would be too much work are rejected; others are validated, however long they are."""

import time
from typing import Any

import pytest

from tools_app.protocol.schema import TOO_MUCH_WORK, UNEXPLAINED, CompiledSchema

# What is not refused would take minutes.
MAX_SECONDS = 30.0
SLOW = "(a|b)*a(a|b){400}z"
NODE = {"properties": {"x": {"$ref": "#/$defs/n"}}}
RECURSIVE = {"$defs": {"n": {"type": "object", "anyOf": [NODE, {"minProperties": 0, **NODE}]}}, "$ref": "#/$defs/n"}


def deep(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = {"x": value}
    return value


TOO_MUCH: dict[str, tuple[dict[str, Any], Any]] = {
    "one slow pattern, a long text": ({"pattern": SLOW}, "ab" * 500_000),
    "one slow pattern, many texts": ({"items": {"pattern": SLOW}}, ["ab" * 50] * 10_000),
    "a slow pattern for names": ({"patternProperties": {SLOW: {}}}, {"ab" * 500_000: 1}),
    "a slow pattern for all names": ({"propertyNames": {"pattern": SLOW}}, {"ab" * 500_000: 1}),
    "many ways": ({"items": {"allOf": [{"minimum": 0}] * 9000}}, [0] * 100_000),
    "alternatives": ({"items": {"enum": [{"a": number} for number in range(9000)]}}, [{"a": 8999}] * 5000),
    "fractions": ({"items": {"multipleOf": 0.01}}, [1e300] * 100_000),
}
UNTOLD: dict[str, tuple[dict[str, Any], Any]] = {
    "alternatives": ({"items": {"enum": [str(number) for number in range(9000)]}}, ["x"] * 20_000),
    "a schema that contains itself": (RECURSIVE, deep(40, 5)),
    "a long text, many ways": ({"allOf": [{"type": "integer"}] * 5000}, "x" * 3_000_000),
}


def seconds(work: Any) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


@pytest.mark.parametrize(("schema", "value"), TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_a_value_of_too_much_work_is_refused_in_bounded_time(schema: dict[str, Any], value: Any) -> None:
    compiled = CompiledSchema(schema)
    assert seconds(lambda: compiled.accepts(value)) < MAX_SECONDS
    assert not compiled.accepts(value)
    (problem,) = compiled.problems(value)
    assert (problem.field, problem.message, problem.received) == ("", TOO_MUCH_WORK, None)


@pytest.mark.parametrize(("schema", "value"), UNTOLD.values(), ids=UNTOLD.keys())
def test_what_is_too_much_to_explain_is_refused_without_the_places(schema: dict[str, Any], value: Any) -> None:
    compiled = CompiledSchema(schema)
    assert not compiled.accepts(value)
    found = []
    assert seconds(lambda: found.extend(compiled.problems(value))) < MAX_SECONDS
    assert [problem.message for problem in found] == [UNEXPLAINED]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"path": {"pattern": "^[a-z0-9/-]{1,64}$"}}}, {"path": "a/b", "content": "x" * 3_000_000}),
        ({"properties": {"path": {"pattern": SLOW[:-1]}}}, {"path": "ab" * 400, "content": "x" * 3_000_000}),
        ({"items": {"type": "integer"}}, list(range(300_000))),
        ({"items": {"multipleOf": 0.01}}, [0.15] * 5000),
        (RECURSIVE, deep(40, {})),
        ({"properties": {"title": {"pattern": "^.{1,255}$"}}}, {"title": "a", "content": "x" * 3_000_000}),
        ({"pattern": "^[a-z]+$"}, "x" * 3_000_000),
    ],
)
def test_large_values_are_checked_where_that_is_little_work(schema: dict[str, Any], value: Any) -> None:
    compiled = CompiledSchema(schema)
    assert compiled.accepts(value)
    assert compiled.problems(value) == []


def test_a_message_about_a_long_value_is_cut() -> None:
    (problem,) = CompiledSchema({"pattern": "^a$"}).problems("x" * 100_000)
    assert len(problem.message) < 400
    assert len(problem.received) < 400


def test_parts_that_refer_to_each_other_on_one_value_hide_no_work() -> None:
    schema = CompiledSchema(
        {
            "$defs": {
                "a": {"pattern": "[a-c]{0,900}[ab][c-f]{0,900}$", "allOf": [{"$ref": "#/$defs/b"}]},
                "b": {"allOf": [{"$ref": "#/$defs/a"}]},
            },
            "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#/$defs/b"}},
        }
    )
    large = "abcdef" * 50_000
    assert [problem.message for problem in schema.problems({"x": large})] == [TOO_MUCH_WORK]
    assert [problem.message for problem in schema.problems({"y": large})] == [TOO_MUCH_WORK]
