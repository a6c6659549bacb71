"""The table of bounds in `docs/security.md` has the values of the code and of the settings."""

import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

from django.conf import settings

HERE = Path(__file__).resolve()
PAGE = (HERE.parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
# For each row, the values that its second column contains: settings, or constants below `tools_app`.
VALUES = (HERE.parent / "bounds.txt").read_text(encoding="utf-8")


def test_each_row_has_the_values_of_the_code() -> None:
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", PAGE.partition("## Bounds")[2], re.MULTILINE))
    for line in VALUES.splitlines():
        title, _, names = line.rpartition(" | ")
        written = {float(number) for number in re.findall(r"\b\d+\b", rows[title])}
        for name in names.split():
            assert written & set(numbers(name)), f"{title}: {name}"


def numbers(name: str) -> Iterator[float]:
    """Yield how a value, or a product of values, may be written."""
    value = prod(value_of(factor) for factor in name.split("*")) if "*" in name else value_of(name)
    if isinstance(value, timedelta):
        yield value / timedelta(hours=1)
        yield value / timedelta(minutes=1)
    else:
        yield float(value)


def value_of(name: str) -> Any:
    """Return a value by its setting, or by its module and name."""
    if name.startswith("settings."):
        return getattr(settings, name.removeprefix("settings."))
    module, _, attribute = name.rpartition(".")
    if attribute == "max_waiting":
        return value_of(module).max_waiting
    return getattr(import_module(f"tools_app.{module}"), attribute)
