"""A form field for a list of short texts, one a line, with messages that name the line."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from tools_app.admin import json_source
from tools_app.admin.json_field import JsonTextarea

MOST_LINES = 200
MOST_TOLD = 10

Check = Callable[[str], None]


def check_anything(_line: str) -> None:
    """Take every line."""


class LinesField(forms.Field):
    """Texts, one a line; a JSON list of them is taken, too. Empty lines and repetitions are dropped.

    `check` raises ValidationError for a line that is not good.
    """

    def __init__(self, *, check: Check, rows: int = 4, placeholder: str = "", **options: Any) -> None:
        self.check = check
        widget = JsonTextarea(rows)
        if placeholder:
            widget.attrs["placeholder"] = placeholder
        super().__init__(widget=widget, **options)
        self.empty_values = [None, ""]

    def prepare_value(self, value: Any) -> Any:
        """The text for the widget: what was typed, or the stored texts."""
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:
        """The texts. Raises ValidationError that names each bad line."""
        lines = _lines(value or "")
        if len(lines) > MOST_LINES:
            raise ValidationError(f"At most {MOST_LINES} lines; these are {len(lines)}.", code="lines")
        problems = []
        for number, line in lines:
            try:
                self.check(line)
            except ValidationError as problem:
                problems += [f"Line {number}: {message}" for message in problem.messages]
        if problems:
            raise ValidationError(problems[:MOST_TOLD], code="line")
        return list(dict.fromkeys(line for _, line in lines))

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether the texts differ, however they were typed."""
        try:
            return self.to_python(data) != (initial or [])
        except ValidationError:
            return True


def _lines(text: str) -> list[tuple[int, str]]:
    """The lines that are not empty, with their numbers."""
    if text.lstrip().startswith("["):
        return list(enumerate(_entries(text), start=1))
    numbered = enumerate(text.splitlines(), start=1)
    return [(number, line.strip()) for number, line in numbered if line.strip()]


def _entries(text: str) -> list[str]:
    try:
        value = json_source.parse(text).value
    except json_source.JsonProblem as problem:
        raise ValidationError(f"Write one a line. {problem}", code="json") from problem
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValidationError("Write one a line, or a JSON list of strings.", code="json")
    return [entry.strip() for entry in value if entry.strip()]
