"""The command that prints the table of bounds and writes it into a page."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tools_app.management.input_bounds import markdown


def test_it_prints_the_table(capsys: Any) -> None:
    call_command("input_bounds")

    assert capsys.readouterr().out.strip() == markdown()


def test_it_renews_the_table_of_a_page_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bounds -->\nold\n<!-- end of bounds -->\nafter\n")

    call_command("input_bounds", write=page)

    assert page.read_text() == f"before\n<!-- bounds -->\n\n{markdown()}\n\n<!-- end of bounds -->\nafter\n"


def test_a_page_without_a_place_for_the_table_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n")

    with pytest.raises(CommandError, match="around the table"):
        call_command("input_bounds", write=page)

    assert page.read_text() == "before\n"
