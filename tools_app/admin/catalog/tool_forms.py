"""Forms of a tool: the editable settings of a Python tool, and the complete definition of an HTTP tool."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from tools_app.admin.base.fields import TOOL_LIMITS, JsonTextField, OfferForm
from tools_app.catalog.kinds import http, python
from tools_app.catalog.kinds.http_config import DEFAULT_RESPONSE_BYTES
from tools_app.catalog.validation.items import check_tool_annotations, check_tool_arguments, check_tool_request
from tools_app.catalog.validation.sizes import MAX_URL_LENGTH
from tools_app.models import Tool, ToolKind
from tools_app.protocol.authoring_schema import check_schema


class PythonToolForm(forms.ModelForm):  # type: ignore[type-arg]
    """The settings of a tool function that are not defined by its code."""

    class Meta:
        model = Tool
        fields = ("enabled", *TOOL_LIMITS)

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


class HttpToolForm(OfferForm):
    """An HTTP tool: its request and response fields are stored in `Tool.config`."""

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
    query = JsonTextField(empty=dict, required=False, rows=4, help_text='E.g. {"q": "{term}", "limit": "{limit}"}.')
    headers = JsonTextField(
        empty=dict, required=False, rows=4, help_text='E.g. {"Authorization": "Bearer {secret:API_TOKEN}"}.'
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
        )

    def __init__(self, *args: Any, **options: Any) -> None:
        tool = options.get("instance")
        options["initial"] = {**_config_of(tool), **(options.get("initial") or {})}
        super().__init__(*args, **options)

    def clean_name(self) -> str:
        """Return the name. Raises ValidationError if another tool of the tenant has it."""
        return self.unique("name")

    def clean(self) -> dict[str, Any] | None:
        """Build and validate the configuration. Raises ValidationError on the invalid field."""
        packed = (*self.request_fields, *self.response_fields)
        if not self.errors:
            config = {name: self.cleaned_data[name] for name in packed}
            self._check(config)
            self.instance.kind, self.instance.config = ToolKind.HTTP, config
        return super().clean()

    def _check(self, config: dict[str, Any]) -> None:
        problem = check_tool_request(config, self.cleaned_data["input_schema"])
        if problem is not None:
            field = problem.field if problem.field in {*config, "input_schema"} else None
            raise ValidationError({field: problem.message} if field else problem.message)


def _config_of(tool: Tool | None) -> dict[str, Any]:
    if tool and tool.config:
        return dict(tool.config)
    return {
        "method": "GET",
        "max_response_bytes": DEFAULT_RESPONSE_BYTES,
        "input_schema": {"type": "object", "properties": {}},
    }
