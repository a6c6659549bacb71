"""Forms of a tool: the editable settings of a Python tool, and the complete definition of an HTTP tool."""

from typing import Any, ClassVar, Final

from django import forms
from django.core.exceptions import ValidationError
from django.forms import Script
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from tools_app.catalog.admin.references import ReferencingForm
from tools_app.catalog.kinds.http import runner as http
from tools_app.catalog.kinds.http.config import DEFAULT_RESPONSE_BYTES
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.models import MAX_SHAPING, MIN_RESULT_BYTES
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.catalog.validation.items import check_tool_annotations, check_tool_arguments, check_tool_request
from tools_app.catalog.validation.reserved import reserved_fault
from tools_app.catalog.validation.sizes import MAX_URL_LENGTH
from tools_app.core.field_mask import MAX_MASK_LENGTH
from tools_app.core.validators import MAX_ALIASES, validate_aliases, validate_mask
from tools_app.models import Tool, ToolKind
from tools_app.protocol.authoring_schema import check_schema
from tools_app.web.admin.fields import ARGUMENT_ROWS_CSS, TOOL_LIMITS, JsonTextField, LinesField, OfferForm

MAX_TRIAL_ARGUMENT_BYTES: Final = 256 * 1024


# The fields of how a search finds a tool.
ALIAS_FIELDS: Final = ("aliases", "pinned")


def check_alias(line: str) -> None:
    """Raise ValidationError for a text that is no alias."""
    try:
        validate_aliases([line])
    except ValidationError as problem:
        raise ValidationError([text.removeprefix("Entry 1: ") for text in problem.messages]) from problem


class AliasForm(forms.ModelForm):  # type: ignore[type-arg]
    """How a search finds a tool, and whether the tool is listed beside it."""

    aliases = LinesField(
        check=check_alias,
        required=False,
        rows=3,
        help_text=f"Other words for what the tool does, one per line, at most {MAX_ALIASES}: bug report. Clients whose"
        " tools are searched find it by them.",
    )


class PythonToolForm(AliasForm):
    """The settings of a tool function that are not defined by its code."""

    class Meta:
        model = Tool
        fields = ("enabled", *TOOL_LIMITS, *ALIAS_FIELDS, *SHAPING_FIELDS)

    def clean(self) -> dict[str, Any] | None:
        """Reject a tool that cannot run. Raises ValidationError."""
        try:
            python.registered(self.instance.config.get("function", ""))
        except python.UnknownFunction as problem:
            raise ValidationError(
                f"No installed app registers the function {problem} any more. Disable this tool in the list of tools,"
                " or delete it."
            ) from problem
        return super().clean()


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
        help_texts: ClassVar = {
            "background": "Run calls in a worker and stream their progress.",
            "task": "Whether clients that support tasks receive one: never, when the call takes long, or always.",
            "calls_in_flight": "Calls that run at the same time. Empty: no limit.",
        }

    def clean_name(self) -> str:
        """Return the name. Raises ValidationError if another tool of the tenant has it, or the hub itself."""
        name = self.unique("name")
        tenant = self.cleaned_data.get("tenant") or (None if self.instance._state.adding else self.instance.tenant)
        fault = reserved_fault(tenant, name, self.instance.pk) if tenant is not None else ""
        if fault:
            raise ValidationError(fault)
        return name


class OperationToolForm(WrittenToolForm):
    """An operation of an API source, without its request, which the source's document describes."""

    input_schema = JsonTextField(
        check=check_tool_arguments, rows=14, help_text="JSON Schema of the arguments. A refresh keeps what you change."
    )


class UpstreamToolForm(AliasForm):
    """The settings of a tool of an upstream, whose definition is reviewed with the upstream."""

    class Meta:
        model = Tool
        fields = ("enabled", "timeout_seconds", *TOOL_LIMITS, *ALIAS_FIELDS, *SHAPING_FIELDS)


class RequestForm(forms.Form):
    """The request, the response and the arguments of an HTTP tool, packed into a validated `config`."""

    request_fields = ("method", "base_url", "path", "query", "headers", "body_mode", "body")
    response_fields = ("max_response_bytes", "follow_redirects")

    method = forms.ChoiceField(choices=[(name, name) for name in http.METHODS], widget=UnfoldAdminSelectWidget)
    base_url = forms.CharField(
        label="Base URL",
        max_length=MAX_URL_LENGTH,
        widget=UnfoldAdminTextInputWidget,
        help_text="Requests never leave this URL. Example: https://api.example.com/v1",
    )
    path = forms.CharField(
        required=False,
        max_length=MAX_URL_LENGTH,
        widget=UnfoldAdminTextInputWidget,
        help_text="Relative to the base URL. {name} is replaced by that argument: users/{id}.",
    )
    query = JsonTextField(empty=dict, required=False, rows=4, help_text='Example: {"q": "{term}", "limit": "{limit}"}.')
    headers = JsonTextField(
        empty=dict, required=False, rows=4, help_text='Example: {"Authorization": "Bearer {secret:API_TOKEN}"}.'
    )
    body_mode = forms.ChoiceField(
        choices=[(name, name) for name in http.BODY_MODES],
        widget=UnfoldAdminSelectWidget,
        help_text='"arguments" sends all arguments that are not used elsewhere, as one JSON object.',
    )
    body = JsonTextField(
        kind=None,
        required=False,
        help_text='For the body mode "template": the JSON to send, with placeholders in its strings.',
    )
    max_response_bytes = forms.IntegerField(
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="A longer response is an error. At most this many bytes are read.",
    )
    follow_redirects = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text="Each redirect target is checked again. Secrets are not sent to another origin.",
    )
    input_schema = JsonTextField(
        check=check_tool_arguments,
        rows=14,
        help_text="JSON Schema of the arguments (2020-12 unless $schema says otherwise).",
    )

    def clean(self) -> dict[str, Any] | None:
        """Build and validate the configuration. Raises ValidationError on the invalid field."""
        packed = (*self.request_fields, *self.response_fields)
        if not {*packed, "input_schema"} & self.errors.keys():
            self.config = {name: self.cleaned_data[name] for name in packed}
            self._check(self.config)
        return super().clean()

    def _check(self, config: dict[str, Any]) -> None:
        problem = check_tool_request(config, self.cleaned_data["input_schema"])
        if problem is not None:
            field = problem.field if problem.field in {*config, "input_schema"} else None
            raise ValidationError({field: problem.message} if field else problem.message)


class TrialForm(RequestForm):
    """A definition that is not saved, and the arguments to try it with."""

    name = forms.CharField(required=False, max_length=128)
    timeout_seconds = forms.FloatField(required=False, min_value=0.1, max_value=86_400)
    output_schema = JsonTextField(check=check_schema, required=False)
    result_mask = forms.CharField(required=False, max_length=MAX_MASK_LENGTH, validators=[validate_mask])
    result_items = forms.IntegerField(required=False, min_value=1, max_value=MAX_SHAPING)
    result_bytes = forms.IntegerField(required=False, min_value=MIN_RESULT_BYTES, max_value=MAX_SHAPING)
    arguments = JsonTextField(empty=dict, required=False, max_bytes=MAX_TRIAL_ARGUMENT_BYTES)


class HttpToolForm(RequestForm, ReferencingForm, WrittenToolForm):
    """An HTTP tool: its request and response fields are stored in `Tool.config`."""

    class Media:
        css = {"all": (*ARGUMENT_ROWS_CSS, "tools_app/catalog/http_tool.css")}
        js = (Script("tools_app/catalog/http_tool.js", type="module"),)

    def __init__(self, *args: Any, **options: Any) -> None:
        tool = options.get("instance")
        options["initial"] = {**_config_of(tool), **(options.get("initial") or {})}
        super().__init__(*args, **options)

    def clean(self) -> dict[str, Any] | None:
        """Validate the configuration and what it refers to. Raises ValidationError on the invalid field."""
        cleaned = super().clean()
        if not self.errors:
            for fault, message in self.reference_messages(self.config):
                self.add_error(fault.field, message)
        if not self.errors:
            self.instance.kind, self.instance.config = ToolKind.HTTP, self.config
        return cleaned


def _config_of(tool: Tool | None) -> dict[str, Any]:
    if tool and tool.config:
        return dict(tool.config)
    return {
        "method": "GET",
        "max_response_bytes": DEFAULT_RESPONSE_BYTES,
        "input_schema": {"type": "object", "properties": {}},
    }
