"""The forms of a tool: what may be changed of a Python tool, and the whole definition of an HTTP tool."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from tools_app.admin.icons import icons_field
from tools_app.admin.json_field import JsonTextField
from tools_app.admin.limit_fields import OF_TOOL
from tools_app.execution.checks.tools import check_annotations, check_arguments, check_request
from tools_app.execution.kinds import http, python
from tools_app.execution.kinds.http_config import DEFAULT_RESPONSE_BYTES
from tools_app.models import Tool, ToolKind
from tools_app.protocol.authoring_schema import check_schema


class PythonToolForm(forms.ModelForm):  # type: ignore[type-arg]
    """What an admin decides about a function whose code says the rest."""

    class Meta:
        model = Tool
        fields = ("enabled", *OF_TOOL)

    def clean(self) -> dict[str, Any] | None:
        """Refuse to save a tool that cannot run. Raises ValidationError."""
        try:
            python.registered(self.instance.config.get("function", ""))
        except python.UnknownFunction as problem:
            raise ValidationError(
                f"No installed app registers the function {problem} any more: this tool can be switched off, in the"
                " list of tools, or deleted."
            ) from problem
        return super().clean()


class HttpToolForm(forms.ModelForm):  # type: ignore[type-arg]
    """An HTTP tool: its request and response fields are packed into `Tool.config`."""

    request_fields = ("method", "base_url", "path", "query", "headers", "body_mode", "body")
    response_fields = ("max_response_bytes", "follow_redirects")

    method = forms.ChoiceField(choices=[(name, name) for name in http.METHODS], widget=UnfoldAdminSelectWidget)
    base_url = forms.CharField(
        label="Base URL",
        widget=UnfoldAdminTextInputWidget,
        help_text="Requests never leave it, e.g. https://api.example.com/v1.",
    )
    path = forms.CharField(
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text="Below the base URL; {name} is replaced by that argument, e.g. users/{id}.",
    )
    query = JsonTextField(empty=dict, required=False, rows=4, help_text='E.g. {"q": "{term}", "limit": "{limit}"}.')
    headers = JsonTextField(
        empty=dict, required=False, rows=4, help_text='E.g. {"Authorization": "Bearer {secret:API_TOKEN}"}.'
    )
    body_mode = forms.ChoiceField(
        choices=[(name, name) for name in http.BODY_MODES],
        widget=UnfoldAdminSelectWidget,
        help_text='"arguments" sends those that nothing else uses, as one JSON object.',
    )
    body = JsonTextField(
        kind=None,
        required=False,
        help_text='For the mode "template": the JSON that is sent, with placeholders in its texts.',
    )
    max_response_bytes = forms.IntegerField(
        widget=UnfoldAdminIntegerFieldWidget, help_text="A longer answer is an error; no more than this is ever read."
    )
    follow_redirects = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text="Each target is checked again; secrets are not sent to another origin.",
    )
    input_schema = JsonTextField(
        check=check_arguments, rows=14, help_text="JSON Schema of the arguments (2020-12 unless $schema says else)."
    )
    output_schema = JsonTextField(
        check=check_schema, required=False, help_text="JSON Schema of the structured result. Empty: none is promised."
    )
    annotations = JsonTextField(
        empty=dict,
        check=check_annotations,
        required=False,
        rows=4,
        help_text=Tool._meta.get_field("annotations").help_text,
    )
    icons = icons_field()

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
            *OF_TOOL,
        )

    def __init__(self, *args: Any, **options: Any) -> None:
        tool = options.get("instance")
        options["initial"] = {**_config_of(tool), **(options.get("initial") or {})}
        super().__init__(*args, **options)

    def clean_name(self) -> str:
        """The name. Raises ValidationError if another tool of the same tenant has it."""
        name: str = self.cleaned_data["name"]
        # The tenant of a tool that exists is no field of the form, so the model does not look.
        tool = self.instance
        if tool.tenant_id and Tool.objects.filter(tenant=tool.tenant_id, name=name).exclude(pk=tool.pk).exists():
            raise ValidationError("This tenant has another tool of this name.")
        return name

    def clean(self) -> dict[str, Any] | None:
        """Pack and check the configuration. Raises ValidationError on the field that is at fault."""
        packed = (*self.request_fields, *self.response_fields)
        if not self.errors:
            config = {name: self.cleaned_data[name] for name in packed}
            self._check(config)
            self.instance.kind, self.instance.config = ToolKind.HTTP, config
        return super().clean()

    def _check(self, config: dict[str, Any]) -> None:
        problem = check_request(config, self.cleaned_data["input_schema"])
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
