"""The JSON form field: errors name their line, and the input is kept."""

from typing import Any

import pytest
from django import forms
from django.core.exceptions import ValidationError

from tools_app.protocol.authoring_schema import check_schema
from tools_app.web.admin import json_source
from tools_app.web.admin.fields import JsonTextField


def refused(text: str, **options: Any) -> list[str]:
    with pytest.raises(ValidationError) as refusal:
        JsonTextField(**options).clean(text)
    return refusal.value.messages


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n  "a": 1,\n  "b" 2\n}', "Line 3, column 7: Expecting ':' delimiter"),
        ("{\n", "Line 2, column 1: Expecting property name enclosed in double quotes"),
        ('{"a": NaN}', "NaN is not JSON."),
        ('{"a": 1, "a": 2}', "Duplicate key 'a' in one object."),
        ('{"a":\n "\\u0000"}', "Line 2: the character \\u0000 cannot be stored."),
        ("[1]", "Line 1: enter a JSON object, such as {}."),
        ("[" * 100_000, "Nested too deeply."),
        ('{"a": ' * 70 + "1" + "}" * 70, "Nested too deeply: at most 64 levels are allowed."),
    ],
)
def test_a_fault_is_named_with_its_line(text: str, message: str) -> None:
    assert refused(text) == [message]


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', f'{{"a": {2**70}}}'])
def test_what_no_store_takes_is_refused(text: str) -> None:
    assert "cannot be stored" in refused(text)[0]


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    assert JsonTextField().clean('{"a": "\\\\u0000"}') == {"a": "\\u0000"}


def test_every_fault_of_a_schema_is_named_with_its_line() -> None:
    text = '{\n  "properties": {\n    "a": {"type": "strin"},\n    "b": {\n      "minimum": "3"\n    }\n  }\n}'
    first, second = refused(text, check=check_schema)
    assert first.startswith("Line 3: properties.a.type: 'strin' is not one of")
    assert second.startswith("Line 5: properties.b.minimum: '3' is not of type")


@pytest.mark.parametrize(("text", "value"), [("", {}), (" \n", {}), ("{}", {}), ('{"a": "ä"}', {"a": "ä"})])
def test_an_empty_field_has_its_empty_value(text: str, value: Any) -> None:
    assert JsonTextField(empty=dict, required=False).clean(text) == value


def test_a_required_field_takes_an_empty_object_and_no_empty_text() -> None:
    assert JsonTextField().clean("{}") == {}
    assert refused("") == ["This field is required."]


def test_a_form_shows_stored_json_indented_and_typed_text_as_it_was_typed() -> None:
    class Form(forms.Form):
        data = JsonTextField()

    assert "&quot;a&quot;: [\n    &quot;ä&quot;\n  ]" in str(Form(initial={"data": {"a": ["ä"]}})["data"])
    assert "{ &quot;a&quot;:1,}" in str(Form({"data": '{ "a":1,}'})["data"])
    assert "{ &quot;a&quot;:1}" in str(Form({"data": '{ "a":1}'})["data"])


def test_another_layout_of_the_same_value_is_no_change() -> None:
    field = JsonTextField()
    assert not field.has_changed({"a": 1}, '{\n"a":1}')
    assert field.has_changed({"a": 1}, '{"a": 2}')
    assert field.has_changed({"a": 1}, "{")


@pytest.mark.parametrize(
    ("path", "line"),
    [((), 1), (("a",), 2), (("a", 0), 3), (("a", 1, "b"), 5), (("a", 2), 7), (("c",), 8), (("c", "none"), 8)],
)
def test_a_value_is_found_again_in_the_text(path: tuple[str | int, ...], line: int) -> None:
    text = '{\n "a" : [\n  "x]",\n  {\n   "b": {}},\n\n  -1.5e3],\n "c": {"d\\"": []}\n}'
    assert json_source.parse(text).line_of(path) == line
