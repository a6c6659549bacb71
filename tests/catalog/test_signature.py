"""Input schemas from type hints and docstrings, and arguments from JSON."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import TypedDict

from tools_app.catalog.kinds.python import signature
from tools_app.catalog.tool_api.results import ToolError
from tools_app.toolkit import ToolContext


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: float
    y: float = 0.0


class Options(TypedDict):
    verbose: bool


class Node(BaseModel):
    title: str
    children: list["Node"] = []


def read(function: Callable[..., Any]) -> signature.Signature:
    return signature.read(function, signature.parse_docstring(function.__doc__).parameters)


def properties(function: Callable[..., Any]) -> Any:
    return read(function).schema["properties"]


def bind(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    return read(function).bind(arguments, None)  # type: ignore[arg-type]


def test_a_schema_is_an_object_closed_to_unknown_arguments() -> None:
    def greet(name: str, times: int = 1) -> None: ...

    assert read(greet).schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["name"],
        "additionalProperties": False,
    }


def test_a_function_without_parameters_has_an_empty_schema() -> None:
    def rest() -> None: ...

    assert read(rest).schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_simple_hints_become_their_json_types() -> None:
    def take(*, a: str, b: int, c: float, d: bool, e: list[str], f: dict[str, int], g: Any) -> None: ...

    assert properties(take) == {
        "a": {"type": "string"},
        "b": {"type": "integer"},
        "c": {"type": "number"},
        "d": {"type": "boolean"},
        "e": {"type": "array", "items": {"type": "string"}},
        "f": {"type": "object", "additionalProperties": {"type": "integer"}},
        "g": {},
    }


def test_literals_and_enums_become_enumerations() -> None:
    def paint(mode: Literal["fill", "line"], colour: Colour = Colour.RED) -> None: ...

    schema = read(paint).schema
    assert schema["properties"]["mode"] == {"enum": ["fill", "line"], "type": "string"}
    assert schema["properties"]["colour"] == {"$ref": "#/$defs/Colour", "default": "red"}
    assert schema["$defs"] == {"Colour": {"enum": ["red", "blue"], "type": "string"}}


def test_an_optional_parameter_may_be_null() -> None:
    def find(name: str | None = None) -> None: ...

    assert properties(find)["name"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}


def test_dataclasses_typed_dicts_and_models_are_described_without_noisy_titles() -> None:
    def draw(point: Point, options: Options, tree: Node) -> None: ...

    definitions = read(draw).schema["$defs"]
    assert definitions["Point"]["required"] == ["x"]
    assert definitions["Options"]["properties"] == {"verbose": {"type": "boolean"}}
    assert definitions["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert not any("title" in definition for definition in definitions.values())
    jsonschema.Draft202012Validator.check_schema(read(draw).schema)


def test_a_title_that_somebody_wrote_stays() -> None:
    def cut(n: Annotated[int, Field(title="How many")]) -> None: ...

    assert properties(cut)["n"] == {"type": "integer", "title": "How many"}


def test_constraints_of_field_reach_the_schema() -> None:
    def cut(n: Annotated[int, Field(ge=1, le=9, description="pieces")] = 2) -> None: ...

    assert properties(cut)["n"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "description": "pieces",
        "default": 2,
    }


def test_google_style_docstrings_describe_parameters() -> None:
    def move(x: int, y: int) -> None:
        """Move the pen.

        It draws nothing.

        Args:
            x: to the right,
                in points
            y (int): down

        Returns:
            Nothing: at all.

        """

    parsed = signature.parse_docstring(move.__doc__)
    assert parsed.description == "Move the pen.\n\nIt draws nothing."
    assert parsed.parameters == {"x": "to the right, in points", "y": "down"}
    assert properties(move)["x"]["description"] == "to the right, in points"


@pytest.mark.parametrize(
    "section",
    [
        ":param x: to the right,\n    in points\n:param int y: down\n:returns: nothing",
        "Parameters\n----------\nx : int\n    to the right,\n    in points\ny : int\n    down",
        "@param x: to the right,\n    in points\n@param y: down",
    ],
)
def test_docstrings_of_other_styles_describe_parameters(section: str) -> None:
    parsed = signature.parse_docstring(f"Move the pen.\n\n{section}\n")
    assert parsed.description.startswith("Move the pen.")
    assert parsed.parameters == {"x": "to the right, in points", "y": "down"}


def test_fields_of_parameters_are_no_part_of_the_description() -> None:
    assert signature.parse_docstring("Move the pen.\n\n:param x: it\n:returns: nothing").description == "Move the pen."


def test_prose_after_a_section_belongs_to_the_description() -> None:
    parsed = signature.parse_docstring("Do.\n\nArgs:\n    x: it\n\nNote: this is prose.")

    assert parsed.description == "Do.\n\nNote: this is prose."


def test_a_function_without_docstring_has_no_description() -> None:
    assert signature.parse_docstring(None) == signature.Docstring("", {})


def test_the_description_in_the_hint_wins_over_the_docstring() -> None:
    def cut(n: Annotated[int, Field(description="from the hint")]) -> None:
        """Cut.

        :param n: from the docstring
        """

    assert properties(cut)["n"]["description"] == "from the hint"


def test_the_context_is_passed_and_is_not_in_the_schema() -> None:
    def work(name: str, context: ToolContext, other: ToolContext | None = None) -> None: ...

    signature = read(work)
    context = object()
    assert list(signature.schema["properties"]) == ["name"]
    assert signature.bind({"name": "x"}, context) == {  # type: ignore[arg-type]
        "name": "x",
        "context": context,
        "other": context,
    }


def test_arguments_that_need_no_conversion_are_handed_on_as_they_are() -> None:
    def take(a: str, b: float, c: bool | None, d: list[str], e: Annotated[str, Field(min_length=1)]) -> None: ...

    arguments = {"a": "x", "b": 2, "c": None, "d": ["y"], "e": "z"}
    assert read(take).bind(arguments, None) is arguments  # type: ignore[arg-type]


def test_an_integer_for_a_float_stays_an_integer() -> None:
    def take(a: float) -> None: ...

    assert type(bind(take, a=5)["a"]) is int


def test_a_whole_float_for_an_integer_becomes_an_integer() -> None:
    def take(n: int, many: list[int]) -> None: ...

    bound = bind(take, n=2.0, many=[1.0])
    assert type(bound["n"]) is int
    assert type(bound["many"][0]) is int


def test_values_become_what_the_hint_asks_for() -> None:
    def take(when: datetime, colour: Colour, point: Point, tree: Node, tags: set[str]) -> None: ...

    assert bind(
        take,
        when="2026-11-22T10:00:00Z",
        colour="blue",
        point={"x": 1},
        tree={"title": "root", "children": [{"title": "leaf"}]},
        tags=["a", "a"],
    ) == {
        "when": datetime(2026, 11, 22, 10, tzinfo=UTC),
        "colour": Colour.BLUE,
        "point": Point(1.0),
        "tree": Node(title="root", children=[Node(title="leaf")]),
        "tags": {"a"},
    }


def test_validators_in_the_hint_are_run() -> None:
    def take(word: Annotated[str, AfterValidator(str.upper)]) -> None: ...

    assert bind(take, word="quiet") == {"word": "QUIET"}


def test_left_out_arguments_are_left_to_the_defaults_of_the_function() -> None:
    def take(colour: Colour = Colour.RED) -> None: ...

    assert bind(take) == {}


def test_a_value_that_cannot_be_converted_names_its_field() -> None:
    def take(points: list[Point]) -> None: ...

    with pytest.raises(ToolError, match=r"Argument 'points\.1\.x': Field required\."):
        bind(take, points=[{"x": 1}, {}])


def positional_only(x: int, /) -> None: ...
def star(*x: int) -> None: ...
def double_star(**x: int) -> None: ...
def unannotated(x) -> None: ...  # type: ignore[no-untyped-def]
def no_json(x: Callable[[], int]) -> None: ...
def wrong_default(x: int = "1") -> None: ...  # type: ignore[assignment]
def none_default(x: int = None) -> None: ...  # type: ignore[assignment] # noqa: RUF013
def default_in_field(x: Annotated[int, Field(default=1)]) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        positional_only,
        star,
        double_star,
        unannotated,
        no_json,
        wrong_default,
        none_default,
        default_in_field,
    ],
)
def test_a_parameter_that_json_cannot_fill_is_refused_by_name(function: Callable[..., Any]) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"{function.__name__}, parameter 'x': "):
        read(function)


def test_a_hint_that_names_nothing_is_refused() -> None:
    def lost(x: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(ImproperlyConfigured, match=r"lost: a type hint cannot be resolved: name 'Nowhere'"):
        read(lost)
