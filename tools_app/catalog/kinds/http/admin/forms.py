"""The forms of an HTTP tool: its request, its response and its arguments as fields."""

from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.forms import Script
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from tools_app.catalog.admin.tool_pages import WrittenToolForm
from tools_app.catalog.kinds.http import config as http
from tools_app.catalog.kinds.http.admin.references import ReferencingForm
from tools_app.catalog.kinds.http.kind import HttpKind, request_problem
from tools_app.catalog.shaping import SHAPING_FIELDS
from tools_app.catalog.validation.items import check_tool_arguments
from tools_app.catalog.validation.sizes import MAX_URL_LENGTH
from tools_app.models import Tool
from tools_app.protocol.authoring_schema import check_schema
from tools_app.web.admin.fields import ARGUMENT_ROWS_CSS, JsonTextField

MAX_TRIAL_ARGUMENT_BYTES: Final = 256 * 1024


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
        problem = request_problem(config, self.cleaned_data["input_schema"])
        if problem is not None:
            field = problem.field if problem.field in {*config, "input_schema"} else None
            raise ValidationError({field: problem.message} if field else problem.message)


class TrialForm(RequestForm, forms.ModelForm):  # type: ignore[type-arg]
    """A definition that is not saved, and the arguments to try it with."""

    name = forms.CharField(required=False, max_length=128)
    output_schema = JsonTextField(check=check_schema, required=False)
    arguments = JsonTextField(empty=dict, required=False, max_bytes=MAX_TRIAL_ARGUMENT_BYTES)

    class Meta:
        model = Tool
        fields = ("timeout_seconds", *SHAPING_FIELDS)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["timeout_seconds"].required = False


class HttpToolForm(RequestForm, ReferencingForm, WrittenToolForm):
    """An HTTP tool: its request and response fields are stored in `Tool.config`."""

    class Media:
        css = {"all": (*ARGUMENT_ROWS_CSS, "tools_app/catalog/http_tool.css")}
        js = (Script("tools_app/catalog/http_tool.js", type="module"),)

    def __init__(self, *args: Any, **options: Any) -> None:
        tool = options.get("instance")
        new = {
            "method": "GET",
            "max_response_bytes": http.DEFAULT_RESPONSE_BYTES,
            "input_schema": {"type": "object", "properties": {}},
        }
        config = tool.config if tool and tool.config else new
        options["initial"] = {**config, **(options.get("initial") or {})}
        super().__init__(*args, **options)

    def clean(self) -> dict[str, Any] | None:
        """Validate the configuration and what it refers to. Raises ValidationError on the invalid field."""
        cleaned = super().clean()
        if not self.errors:
            for fault, message in self.reference_messages(self.config):
                self.add_error(fault.field, message)
        if not self.errors:
            self.instance.kind, self.instance.config = HttpKind.name, self.config
        return cleaned
