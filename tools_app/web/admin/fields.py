"""Form fields and fieldsets that several pages share: JSON, lists of lines, icons, descriptions, and limits.

Error messages of JSON and of lists name the line.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.utils.text import capfirst
from unfold.widgets import UnfoldAdminTextareaWidget

from tools_app.catalog.validation.shapes import check_icons
from tools_app.catalog.validation.sizes import MAX_DESCRIPTION_LENGTH, MAX_JSON_BYTES, json_size_fault
from tools_app.core.sanitize import is_storable
from tools_app.core.text_lists import TextListField
from tools_app.core.validators import MAX_ENTRY_LENGTH, MAX_EXACT, MAX_EXACT_LENGTH, validate_names
from tools_app.protocol.authoring_schema import SchemaProblem
from tools_app.tenants.keys import LIMITS
from tools_app.web.admin import json_source

Check = Callable[[Any], list[SchemaProblem]]

# Styles of the rows in which a script shows arguments, beside their JSON.
ARGUMENT_ROWS_CSS: Final = ("tools_app/web/playground/playground.css", "tools_app/catalog/argument_rows.css")
KINDS: dict[type, str] = {dict: "a JSON object, such as {}", list: "a JSON list, such as []"}


def add_faults(form: forms.BaseForm, faults: Mapping[str, Iterable[str]]) -> None:
    """Report the errors of a row at their fields, except for fields that are known to be invalid already."""
    for name, messages in faults.items():
        field = name if name in form.fields else None
        if field not in form.errors:
            form.add_error(field, list(messages))


class JsonTextarea(UnfoldAdminTextareaWidget):
    """A textarea with a monospaced font."""

    def __init__(self, rows: int = 8) -> None:
        super().__init__(attrs={"rows": rows, "style": "font-family: ui-monospace, monospace", "spellcheck": "false"})


class LinesTextarea(JsonTextarea):
    """A textarea for one text per line. The `placeholder` says what no text means."""

    def __init__(self, placeholder: str = "", rows: int = 4) -> None:
        super().__init__(rows)
        if placeholder:
            self.attrs["placeholder"] = placeholder


class JsonTextField(forms.Field):
    """A JSON value as indented text. Invalid and valid input is shown again as typed.

    `kind` is the required type of the value (None: any), `empty` returns the value of an empty field, and `check`
    returns the problems of a value, which are reported with their line. The compact form has at most `max_bytes`.
    """

    def __init__(
        self,
        *,
        kind: type | None = dict,
        empty: Callable[[], Any] | None = None,
        check: Check | None = None,
        rows: int = 8,
        max_bytes: int = MAX_JSON_BYTES,
        **options: Any,
    ) -> None:
        self.kind, self.empty, self.check, self.max_bytes = kind, empty, check, max_bytes
        super().__init__(widget=JsonTextarea(rows), **options)
        # `{}` and `[]` are not empty values.
        self.empty_values = [None, ""]

    def prepare_value(self, value: Any) -> Any:
        """Return the text for the widget: the typed text, or the stored value indented."""
        if value is None or isinstance(value, str):
            return value
        return json_source.pretty(value)

    def to_python(self, value: Any) -> Any:
        """Return the parsed value. Raises ValidationError with line and column."""
        if self.disabled:
            return value
        text = (value or "").strip()
        if not text:
            return self.empty() if self.empty else None
        try:
            source = json_source.parse(value)
        except json_source.JsonProblem as error:
            raise ValidationError(str(error), code="json") from error
        if self.kind and not isinstance(source.value, self.kind):
            raise ValidationError(f"Line 1: enter {KINDS[self.kind]}.", code="kind")
        if fault := json_size_fault(source.value, self.max_bytes):
            raise ValidationError(fault, code="size")
        problems = self.check(source.value) if self.check else []
        lines = sorted((source.line_of(problem.path), str(problem)) for problem in problems)
        if lines:
            raise ValidationError([f"Line {line}: {problem}" for line, problem in lines])
        return source.value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the value changed, ignoring formatting."""
        try:
            return bool(self.to_python(data) != initial)
        except ValidationError:
            return True


MAX_LINES = 200
MAX_TOLD = 10

LineCheck = Callable[[str], None]


class LinesField(forms.Field):
    """Texts, one per line; a JSON list is accepted as well. Empty lines and duplicates are dropped.

    At most `max_lines` lines of `max_length` characters. `check` raises ValidationError for an invalid line, as do
    `list_validators` for a list of one; without them, every line is valid.
    """

    def __init__(
        self,
        *,
        check: LineCheck | None = None,
        list_validators: Iterable[Callable[[Any], object]] = (),
        rows: int = 4,
        placeholder: str = "",
        max_lines: int = MAX_LINES,
        max_length: int = MAX_ENTRY_LENGTH,
        widget: forms.Widget | None = None,
        **options: Any,
    ) -> None:
        self.check, self.max_lines, self.max_length = check, max_lines, max_length
        self.list_validators = tuple(list_validators)
        super().__init__(widget=widget or LinesTextarea(placeholder, rows), **options)
        self.empty_values = [None, ""]

    def prepare_value(self, value: Any) -> Any:
        """Return the text for the widget: the typed text, or the stored texts."""
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> list[str]:
        """Return the texts. Raises ValidationError that names each invalid line."""
        if self.disabled:
            return list(value or [])
        lines = _lines(value or "")
        if len(lines) > self.max_lines:
            raise ValidationError(f"At most {self.max_lines} lines are allowed, not {len(lines)}.", code="lines")
        problems = []
        for number, line in lines:
            try:
                self._check_line(line)
            except ValidationError as error:
                messages = (message.removeprefix("Entry 1: ") for message in error.messages)
                problems += [f"Line {number}: {message}" for message in messages]
        if problems:
            raise ValidationError(problems[:MAX_TOLD], code="line")
        return list(dict.fromkeys(line for _, line in lines))

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the texts changed, ignoring formatting."""
        try:
            return self.to_python(data) != (initial or [])
        except ValidationError:
            return True

    def _check_line(self, line: str) -> None:
        if len(line) > self.max_length:
            raise ValidationError(f"at most {self.max_length} characters; these are {len(line)}.")
        if not is_storable(line):
            raise ValidationError("it holds a character that cannot be stored.")
        for validate in self.list_validators:
            validate([line])
        if self.check is not None:
            self.check(line)


class NamesField(LinesField):
    """Names, URIs and patterns of tools, prompts and resources, and entries for exactly one of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(list_validators=[validate_names], max_lines=MAX_EXACT, max_length=MAX_EXACT_LENGTH, **options)


def form_field(column: Any, **options: Any) -> Any:
    """Return the form field of a column: Django's, or one text per line for a list of texts."""
    if not isinstance(column, TextListField):
        return column.formfield(**options)
    defaults = {
        "label": capfirst(column.verbose_name),
        "help_text": f"{column.help_text} One per line.",
        "required": not column.blank,
        "list_validators": column.validators,
        "max_lines": column.max_entries,
        "max_length": column.max_entry_length,
    }
    return LinesField(**{**defaults, **options})


def _lines(text: str) -> list[tuple[int, str]]:
    """Return the non-empty lines with their numbers."""
    if not text.lstrip().startswith("["):
        numbered = enumerate(text.splitlines(), start=1)
        return [(number, line.strip()) for number, line in numbered if line.strip()]
    try:
        value = json_source.parse(text).value
    except json_source.JsonProblem as error:
        raise ValidationError(f"Enter one per line. {error}", code="json") from error
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValidationError("Enter one per line, or a JSON list of strings.", code="json")
    return list(enumerate((entry.strip() for entry in value if entry.strip()), start=1))


class OfferForm(forms.ModelForm):  # type: ignore[type-arg]
    """The fields and checks of tools, resources and prompts that are written in the admin."""

    icons = JsonTextField(
        kind=list,
        empty=list,
        check=check_icons,
        required=False,
        rows=4,
        help_text='Example: [{"src": "https://example.com/icon.png", "mimeType": "image/png", "sizes": ["48x48"]}].',
    )
    description = forms.CharField(required=False, max_length=MAX_DESCRIPTION_LENGTH, widget=UnfoldAdminTextareaWidget)

    def unique(self, field: str) -> str:
        """Return the value of a field. Raises ValidationError if another row of the tenant has it.

        The form of an existing row has no tenant field, so the model does not check uniqueness.
        """
        value: str = self.cleaned_data[field]
        row = self.instance
        others = type(row)._default_manager.filter(tenant=row.tenant_id, **{field: value}).exclude(pk=row.pk)
        if row.tenant_id and others.exists():
            kind, name = row._meta.verbose_name, row._meta.get_field(field).verbose_name
            raise ValidationError(f"This tenant already has a {kind} with this {name}.")
        return value


CALL_LIMITS: Final = ("calls_per_second", "calls_per_minute", "calls_per_day")
REQUEST_LIMITS: Final = ("requests_per_second", "requests_per_day")

TENANT_LIMITS: Final = (*CALL_LIMITS, *REQUEST_LIMITS, "calls_in_flight", "open_streams", "most_sessions")
KEY_LIMITS: Final = LIMITS
TOOL_LIMITS: Final = (*CALL_LIMITS, "calls_in_flight")

LIMITS_MEANING: Final = (
    "Counted across all processes of the hub. 0 allows nothing. Requests over a limit are rejected with the time"
    " after which to retry."
)


def limits_fieldset(names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """Return the fieldset of these limits."""
    return "Limits", {"description": LIMITS_MEANING, "fields": names}
