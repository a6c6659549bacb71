"""Regular expressions in schemas: accepted ones, and errors of the others."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from tests.linear import assert_linear
from tools_app.protocol.authoring_schema import check_schema
from tools_app.protocol.schema import CompiledSchema, InvalidSchema
from tools_app.protocol.schema_bounds import MAX_PATTERN_LENGTH, MAX_PATTERNS
from tools_app.toolkit import tool

LOOK_AHEAD = "(?=.*x)z"
REFUSED = {
    LOOK_AHEAD: "uses look-around",
    "(?<=a.*b)c|(?=(a*)*$)z": "uses look-around",
    "a(?!b)": "uses look-around",
    "(?<!a)b": "uses look-around",
    r"(a)\1": "uses a back-reference",
    r"(?<n>a)\k<n>": "uses a back-reference",
    "(?>a)b": "uses an atomic group",
    "(a{1000}){1000}": "too large when compiled",
    "a{1000}{1000}": "too large when compiled",
    r"\p{L}" * 700: "too large when compiled",
    "a" * (MAX_PATTERN_LENGTH + 1): "longer than 4000 characters",
    "(" * 4000: "not a valid regular expression",
    "[" * 3999 + "\\": "not a valid regular expression",
    "[": "not a valid regular expression",
    "a{2,1}": "not a valid regular expression",
}
PLACES: list[tuple[str, Any]] = [
    ("pattern", lambda pattern: {"pattern": pattern}),
    ("properties.a.pattern", lambda pattern: {"properties": {"a": {"pattern": pattern}}}),
    ("properties.pattern.pattern", lambda pattern: {"properties": {"pattern": {"pattern": pattern}}}),
    ("patternProperties.{}", lambda pattern: {"patternProperties": {pattern: {}}}),
    ("patternProperties.^a.pattern", lambda pattern: {"patternProperties": {"^a": {"pattern": pattern}}}),
    ("propertyNames.pattern", lambda pattern: {"propertyNames": {"pattern": pattern}}),
    ("$defs.a.items.pattern", lambda pattern: {"$defs": {"a": {"items": {"pattern": pattern}}}}),
    ("anyOf.0.not.pattern", lambda pattern: {"anyOf": [{"not": {"pattern": pattern}}]}),
    ("prefixItems.0.pattern", lambda pattern: {"prefixItems": [{"pattern": pattern}]}),
    ("dependentSchemas.a.pattern", lambda pattern: {"dependentSchemas": {"a": {"pattern": pattern}}}),
    ("if.pattern", lambda pattern: {"if": {"pattern": pattern}}),
]


@pytest.mark.parametrize(("pattern", "reason"), REFUSED.items(), ids=[pattern[:20] for pattern in REFUSED])
def test_what_has_no_bound_or_no_meaning_is_refused_by_name(pattern: str, reason: str) -> None:
    problem = check_schema({"properties": {"a": {"pattern": pattern}}})[0]
    assert str(problem).startswith(f"properties.a.pattern: {pattern[:80]!r}"[:60])
    assert reason in problem.message
    with pytest.raises(InvalidSchema, match=reason):
        CompiledSchema({"properties": {"a": {"pattern": pattern}}})


@pytest.mark.parametrize(("place", "schema"), PLACES, ids=[place for place, _ in PLACES])
def test_a_pattern_is_found_wherever_it_stands(place: str, schema: Any) -> None:
    problem = check_schema(schema(LOOK_AHEAD))[0]
    assert str(problem).startswith(f"{place.format(LOOK_AHEAD)}: '(?=.*x)z' uses look-around")
    with pytest.raises(InvalidSchema, match="uses look-around"):
        CompiledSchema(schema(LOOK_AHEAD))


def test_code_with_such_a_pattern_is_refused_when_it_is_registered(registries: None) -> None:
    def give(x: str) -> str:
        return x

    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": LOOK_AHEAD}}}
    with pytest.raises(ImproperlyConfigured, match=r"properties\.x\.pattern: '\(\?=\.\*x\)z' uses look-around"):
        tool(input_schema=schema)(give)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d{4}-\d\d$", "2026-01", "٢٠٢٦-01"),
        (r"^\w+$", "a_1", "é"),
        (r"^\p{L}+$", "é", "1"),
        (r"^[\s\S]{1,9}$", "a\nb", "a" * 10),
        (r"^(?<y>\d+)\/\-$", "12/-", "12"),
        (r"^\u0041\x42$", "AB", "A"),
        (r"^a\(\?=b$", "a(?=b", "ab"),
        (r"[(?=]", "(", "a"),
        (r"^.{1,200}$", "é" * 200, "é" * 201),
    ],
)
def test_patterns_have_the_meaning_of_javascript(pattern: str, good: str, bad: str) -> None:
    schema = CompiledSchema({"pattern": pattern})
    assert check_schema({"pattern": pattern}) == []
    assert (schema.accepts(good), schema.accepts(bad)) == (True, False)


def test_data_that_looks_like_a_pattern_is_none() -> None:
    schema = {"default": {"pattern": LOOK_AHEAD}, "enum": [{"pattern": LOOK_AHEAD}], "properties": {"pattern": {}}}
    assert check_schema(schema) == []


def test_the_number_of_patterns_and_what_they_take_together_are_bounded() -> None:
    many = {"patternProperties": {f"^a{number}$": {} for number in range(MAX_PATTERNS + 1)}}
    large = {"properties": {f"a{number}": {"pattern": f"^.{{1,{400 + number}}}$"} for number in range(20)}}
    for schema, reason in ((many, "more than 500 regular expressions"), (large, "more than 4096 KiB together")):
        assert reason in str(check_schema(schema)[0])
        with pytest.raises(InvalidSchema, match=reason):
            CompiledSchema(schema)


@pytest.mark.parametrize("pattern", ["(a*)*$z", "(a|a)*z", "^(a+)+$", "a*a*a*z", "(.*a.*b){20}z"])
def test_no_pattern_takes_longer_than_in_proportion_to_the_text(pattern: str) -> None:
    schema = CompiledSchema({"pattern": pattern})
    assert_linear(lambda size: schema.accepts("a" * size), 15_000)
