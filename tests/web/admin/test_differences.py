"""Diffs of JSON values for people."""

from typing import Any

import pytest
from django.template.loader import render_to_string

from tools_app.core.diff import MAX_COMPARED, MAX_LINE, MAX_SHOWN, DiffLine, lines


def changed(before: Any, after: Any) -> list[tuple[str, str]]:
    return [(line.kind, line.text.strip()) for line in lines(before, after) if line.kind in ("added", "removed")]


@pytest.mark.parametrize("value", [None, {}, [], "text", 0, {"a": [1, {"b": "two\nlines"}]}])
def test_a_value_does_not_differ_from_itself(value: Any) -> None:
    assert lines(value, value) == []


def test_the_order_of_keys_is_no_difference() -> None:
    assert lines({"a": 1, "b": 2}, {"b": 2, "a": 1}) == []


def test_a_changed_value_is_taken_out_and_put_in_with_its_surroundings() -> None:
    assert lines({"a": 1, "b": 2}, {"a": 1, "b": 3}) == [
        DiffLine("same", "{"),
        DiffLine("same", '  "a": 1'),
        DiffLine("removed", '  "b": 2'),
        DiffLine("added", '  "b": 3'),
        DiffLine("same", "}"),
    ]


@pytest.mark.parametrize(("before", "after"), [(1, True), (1, "1"), (None, ""), ({}, []), (1, 1.5)])
def test_values_of_different_types_differ(before: Any, after: Any) -> None:
    assert lines(before, after)


def test_texts_of_several_lines_are_compared_line_by_line() -> None:
    before, after = {"text": "one\ntwo\nthree"}, {"text": "one\n2\nthree"}
    assert changed(before, after) == [("removed", "two"), ("added", "2")]


def test_far_away_lines_are_left_out_and_counted() -> None:
    before = {f"k{number:02}": number for number in range(40)}
    found = lines(before, {**before, "k20": "new"})
    assert [line.text for line in found if line.kind == "gap"] == ["18 unchanged lines", "17 unchanged lines"]
    assert len(found) == 2 + 2 + 3 + 3


def test_values_of_any_size_are_shown_within_bounds() -> None:
    found = lines(list(range(MAX_COMPARED + 1)), ["x" * (2 * MAX_LINE)])
    assert len(found) == MAX_SHOWN + 1
    assert found[-1].kind == "gap"


def test_long_lines_are_cut_where_they_are_shown_and_not_where_they_are_compared() -> None:
    found = lines("x" * (2 * MAX_LINE), "x" * (2 * MAX_LINE) + "y")
    assert [line.kind for line in found] == ["removed", "added"]
    assert max(len(line.text) for line in found) < MAX_LINE + 50


def test_half_a_surrogate_pair_can_be_shown() -> None:
    assert changed("", "\ud800") == [("removed", '""'), ("added", '"\\ud800"')]


def test_what_is_compared_is_escaped_on_the_page() -> None:
    page = render_to_string("web/diff.html", {"diff": lines("", "<script>")})
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_no_difference_says_so() -> None:
    assert "Unchanged" in render_to_string("web/diff.html", {"diff": []})
