"""CSV for spreadsheets: no cell is evaluated as a formula, and texts stay texts."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools_app.audit.export import _cell, _rows

DDE = "cmd|' /C calc'!A0"


@pytest.mark.parametrize(
    "sign", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\ufe66", "\ufe62", "\u2212"]
)
def test_what_a_spreadsheet_would_calculate_becomes_a_text(sign: str) -> None:
    for before in ("", " ", "\u00a0 ", "\t", "\r\n", "\ufeff", "\u200b", "\x00", "\u3000"):
        cell = _cell(f"{before}{sign}{DDE}")
        assert cell.startswith("'"), before
        assert cell.replace("'", "") == f"{before}{sign}{DDE}".replace("'", "")


@pytest.mark.parametrize("beginning", ["\t", "\r", "\n"])
def test_a_break_at_the_beginning_is_suspect_by_itself(beginning: str) -> None:
    assert _cell(f"{beginning}x") == f"'{beginning}x"


@pytest.mark.parametrize("separator", [";", "\t", "; "])
def test_no_cell_begins_with_a_formula_behind_another_separator(separator: str) -> None:
    assert _cell(f"x{separator}={DDE}") == f"x{separator[0]}'{separator[1:]}={DDE}"


@pytest.mark.parametrize(
    "text", ["", " ", "x", "a=b", "1-2", "a@b.example", '{"a":-1}', "[1,-2]", "'=1", "\u200b", "a; b"]
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert _cell(text) == text


def test_numbers_stay_numbers() -> None:
    assert [_cell(value) for value in (-5, 1.5, None, True)] == [-5, 1.5, None, "true"]


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_each_cell_is_read_back_with_no_more_than_apostrophes_added(texts: list[str]) -> None:
    (row,) = csv.reader(io.StringIO(_rows([[_cell(text) for text in texts]]).decode(), newline=""))
    assert [cell.replace("'", "") for cell in row] == [text.replace("'", "") for text in texts]
