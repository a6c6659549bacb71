"""A form field for JSON that a person types, with messages that name the line."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextareaWidget

from tools_app.admin import json_source
from tools_app.protocol.authoring_schema import SchemaProblem

Check = Callable[[Any], list[SchemaProblem]]

KINDS: dict[type, str] = {dict: "a JSON object, such as {}", list: "a JSON list, such as []"}


class JsonTextarea(UnfoldAdminTextareaWidget):
    """A textarea in a monospaced font."""

    def __init__(self, rows: int = 8) -> None:
        super().__init__(attrs={"rows": rows, "style": "font-family: ui-monospace, monospace", "spellcheck": "false"})


class JsonTextField(forms.Field):
    """A JSON value as indented text. What was typed is shown again as it was, right or wrong.

    `kind` is the type that the value must have (None: any), `empty` makes the value of an empty field, and `check`
    finds faults in the value, which are reported with their line.
    """

    def __init__(
        self,
        *,
        kind: type | None = dict,
        empty: Callable[[], Any] | None = None,
        check: Check | None = None,
        rows: int = 8,
        **options: Any,
    ) -> None:
        self.kind, self.empty, self.check = kind, empty, check
        super().__init__(widget=JsonTextarea(rows), **options)
        # `{}` and `[]` are values.
        self.empty_values = [None, ""]

    def prepare_value(self, value: Any) -> Any:
        """The text for the widget: what was typed, or the stored value indented."""
        if value is None or isinstance(value, str):
            return value
        return json_source.pretty(value)

    def to_python(self, value: Any) -> Any:
        """The JSON value of the text. Raises ValidationError that names line and column."""
        text = (value or "").strip()
        if not text:
            return self.empty() if self.empty else None
        try:
            source = json_source.parse(value)
        except json_source.JsonProblem as problem:
            raise ValidationError(str(problem), code="json") from problem
        self._check(source)
        return source.value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether the value differs, whatever its layout."""
        try:
            return bool(self.to_python(data) != initial)
        except ValidationError:
            return True

    def _check(self, source: json_source.JsonSource) -> None:
        if self.kind and not isinstance(source.value, self.kind):
            raise ValidationError(f"Line 1: write {KINDS[self.kind]}.", code="kind")
        problems = self.check(source.value) if self.check else []
        told = sorted((source.line_of(problem.path), str(problem)) for problem in problems)
        if told:
            raise ValidationError([f"Line {line}: {problem}" for line, problem in told])
