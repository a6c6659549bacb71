"""What the pages of all kinds of tools are made of: forms, fieldsets, and the page of a kind."""

from typing import Any, ClassVar, Final

from django import forms
from django.contrib.admin import AdminSite
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.urls import URLPattern

from tools_app.catalog.admin.base import Fieldsets
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.catalog.validation.items import check_tool_annotations, check_tool_arguments
from tools_app.catalog.validation.reserved import reserved_fault
from tools_app.core.validators import MAX_ALIASES, validate_aliases
from tools_app.models import Tool
from tools_app.protocol.authoring_schema import check_schema
from tools_app.web.admin.fields import TOOL_LIMITS, JsonTextField, LinesField, OfferForm, limits_fieldset

# The fields of how a search finds a tool.
ALIAS_FIELDS: Final = ("aliases", "pinned")


def check_alias(line: str) -> None:
    """Raise ValidationError for a text that is no alias."""
    try:
        validate_aliases([line])
    except ValidationError as error:
        raise ValidationError([text.removeprefix("Entry 1: ") for text in error.messages]) from error


class AliasForm(forms.ModelForm):  # type: ignore[type-arg]
    """How a search finds a tool, and whether the tool is listed beside it."""

    aliases = LinesField(
        check=check_alias,
        required=False,
        rows=3,
        help_text=f"Other words for what the tool does, one per line, at most {MAX_ALIASES}: bug report. Clients whose"
        " tools are searched find it by them.",
    )


class WrittenToolForm(AliasForm, OfferForm):
    """What clients see of a tool whose definition is edited in the admin."""

    input_schema = JsonTextField(check=check_tool_arguments, rows=14, help_text="JSON Schema of the arguments.")
    output_schema = JsonTextField(
        check=check_schema, required=False, help_text="JSON Schema of the structured result. Optional."
    )
    annotations = JsonTextField(
        empty=dict,
        check=check_tool_annotations,
        required=False,
        rows=4,
        help_text=Tool._meta.get_field("annotations").help_text,
    )

    class Meta:
        model = Tool
        fields = (
            "tenant",
            "name",
            "title",
            "description",
            "enabled",
            "input_schema",
            "output_schema",
            "annotations",
            "icons",
            "background",
            "task",
            "timeout_seconds",
            *TOOL_LIMITS,
            *ALIAS_FIELDS,
            *SHAPING_FIELDS,
        )
        labels: ClassVar = {"timeout_seconds": "Timeout in seconds"}

    def clean_name(self) -> str:
        """Return the name. Raises ValidationError if another tool of the tenant has it, or the hub itself."""
        name = self.unique("name")
        tenant = self.cleaned_data.get("tenant") or (None if self.instance._state.adding else self.instance.tenant)
        fault = reserved_fault(tenant, name, self.instance.pk) if tenant is not None else ""
        if fault:
            raise ValidationError(fault)
        return name


DECLARED: Final = (
    "title",
    "description",
    "background",
    "task",
    "timeout_seconds",
    "annotations_json",
    "icons_json",
    "input_json",
    "output_json",
)
SHAPING: Final = "Shaping of results"
ABOUT_SHAPING: Final = {
    "description": "What clients receive of a result. The record keeps the whole, and clients can read it in parts."
    " A shaped tool is listed without its output schema.",
    "fields": SHAPING_FIELDS,
}


def settings_page(
    title: str, fields: tuple[str, ...], description: str = "", *, own: tuple[str, ...] = ()
) -> Fieldsets:
    """Return the fieldsets of a tool whose definition is shown and not edited, with its `own` fields in the first."""
    definition: dict[str, Any] = {"fields": (*fields, "revision")}
    return [
        (None, {"fields": ("tenant", "name", "kind_label", "enabled", *own)}),
        limits_fieldset(TOOL_LIMITS),
        (SHAPING, ABOUT_SHAPING),
        ("Search", {"fields": ALIAS_FIELDS}),
        (title, definition | ({"description": description} if description else {})),
    ]


class ToolPage:
    """The pages of tools of one kind. `readonly` are fields beside those of all kinds.

    With `add_title`, the list of tools has a button for the form of a new one, with the icon `add_icon`.
    """

    form: ClassVar["type[forms.ModelForm[Tool]]"]
    readonly: ClassVar[tuple[str, ...]] = ()
    add_title: ClassVar[str] = ""
    add_icon: ClassVar[str] = "add"

    def fieldsets(self, _tool: Tool | None) -> Fieldsets:
        """Return the fieldsets of a tool, or of a new one."""
        raise NotImplementedError

    def context(self, _request: HttpRequest, _tool: Tool | None) -> dict[str, Any]:
        """Return more context of the form, for a user who may save it."""
        return {}

    def urls(self, _site: AdminSite) -> list[URLPattern]:
        """Return the URL patterns of the endpoints that the form uses."""
        return []
