"""Forms of a resource: one for each kind written in the admin, and the settings of functions defined in code."""

from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.utils.html import format_html
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminTextareaWidget

from tools_app.catalog import resource_functions as resources
from tools_app.catalog.kinds.http.admin.references import ReferencingForm
from tools_app.catalog.validation.mime_types import guessed_mime_type, mime_type_fault
from tools_app.catalog.validation.resources import (
    MAX_BYTES,
    MAX_CHARACTERS,
    check_annotations,
    check_request,
    file_fault,
    text_fault,
    uri_fault,
)
from tools_app.models import Resource, ResourceKind
from tools_app.protocol.authoring_schema import SchemaProblem
from tools_app.web.admin.fields import JsonTextField, OfferForm

# Browsers submit line endings as CRLF; the length is checked after they are normalized.
MAX_FORM_CHARACTERS = 2 * MAX_CHARACTERS
NEW_REQUEST = {"method": "GET", "base_url": "", "path": "", "query": {}, "headers": {}}

DESCRIBED: tuple[str, ...] = (
    "tenant",
    "uri",
    "name",
    "title",
    "description",
    "mime_type",
    "enabled",
    "annotations",
    "icons",
)


class UpstreamResourceForm(forms.ModelForm):  # type: ignore[type-arg]
    """The settings of a resource of an upstream, whose definition is reviewed with the upstream."""

    class Meta:
        model = Resource
        fields = ("enabled",)


class PythonResourceForm(forms.ModelForm):  # type: ignore[type-arg]
    """The settings of a resource function that are not defined by its code."""

    class Meta:
        model = Resource
        fields = ("enabled",)

    def clean(self) -> dict[str, Any] | None:
        """Reject a resource that cannot be read. Raises ValidationError."""
        function = self.instance.config.get("function", "")
        if function not in resources.all_registered():
            raise ValidationError(
                f"No installed app registers the resource {function} any more. Disable it in the list of resources, or"
                " delete it."
            )
        return super().clean()


class WrittenResourceForm(OfferForm):
    """Fields shared by all kinds of resources written in the admin."""

    kind: ClassVar[ResourceKind]

    annotations = JsonTextField(
        empty=dict,
        check=check_annotations,
        required=False,
        rows=4,
        help_text='Example: {"audience": ["user"], "priority": 0.8, "lastModified": "2026-01-31T12:00:00Z"}.',
    )

    class Meta:
        model = Resource
        fields: tuple[str, ...] = DESCRIBED

    def clean_uri(self) -> str:
        """Return the URI. Raises ValidationError if it is invalid or another resource of the tenant has it."""
        uri: str = self.cleaned_data["uri"]
        if fault := uri_fault(uri, template=self.kind == ResourceKind.HTTP):
            raise ValidationError(fault)
        return self.unique("uri")

    def clean_mime_type(self) -> str:
        """Return the MIME type, which is optional. Raises ValidationError."""
        mime_type: str = self.cleaned_data["mime_type"]
        if fault := mime_type_fault(mime_type):
            raise ValidationError(fault)
        return mime_type

    def clean(self) -> dict[str, Any] | None:
        """Set the kind of this form."""
        self.instance.kind = self.kind
        return super().clean()


class TextResourceForm(WrittenResourceForm):
    """A text resource, returned to clients as entered."""

    kind = ResourceKind.TEXT

    text = forms.CharField(
        strip=False, max_length=MAX_FORM_CHARACTERS, widget=UnfoldAdminTextareaWidget(attrs={"rows": 20})
    )

    class Meta(WrittenResourceForm.Meta):
        fields = (*DESCRIBED, "text")

    def clean_text(self) -> str:
        """Return the text with the line endings as typed; browsers submit CRLF. Raises ValidationError."""
        text = str(self.cleaned_data["text"]).replace("\r\n", "\n")
        if fault := text_fault(text, self.cleaned_data.get("uri", "")):
            raise ValidationError(fault)
        return text


class FileResourceForm(WrittenResourceForm):
    """An uploaded file."""

    kind = ResourceKind.FILE
    # See ConflictForm.
    WRITE_ONLY: ClassVar = {"upload": "blob"}

    upload = forms.FileField(label="File", widget=UnfoldAdminFileFieldWidget)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        upload, stored = self.fields["upload"], not self.instance._state.adding
        upload.required = not stored
        upload.help_text = f"At most {MAX_BYTES // 1024**2} MB.{' Replaces the stored file.' if stored else ''}"

    def clean_upload(self) -> "UploadedFile[Any] | None":
        """Return the uploaded file, if any. Raises ValidationError if it is too large."""
        upload: UploadedFile[Any] | None = self.cleaned_data["upload"]
        if upload and (fault := file_fault(upload.size or 0)):
            raise ValidationError(fault)
        return upload

    def clean(self) -> dict[str, Any] | None:
        """Store the uploaded file, and guess the MIME type if it is missing."""
        cleaned = super().clean()
        if not self.errors:
            upload = self.cleaned_data["upload"]
            named = upload.name if upload else self.cleaned_data["uri"]
            self.cleaned_data["mime_type"] = self.cleaned_data["mime_type"] or guessed_mime_type(named)
            if upload:
                self.instance.blob = upload.read()
        return cleaned


class HttpResourceForm(ReferencingForm, WrittenResourceForm):
    """An HTTP request that is sent when a client reads the resource."""

    kind = ResourceKind.HTTP

    config = JsonTextField(
        label="Request",
        rows=14,
        help_text="The fields of an HTTP tool. {name} is a variable of the URI, {secret:NAME} a secret. Example for"
        ' docs://{page}: {"base_url": "https://api.example.com", "path": "pages/{page}"}.',
    )

    class Meta(WrittenResourceForm.Meta):
        fields = (*DESCRIBED, "config", "timeout_seconds")
        labels: ClassVar = {"timeout_seconds": "Timeout in seconds"}

    def __init__(self, *args: Any, **options: Any) -> None:
        if not options.get("instance"):
            options["initial"] = {"config": NEW_REQUEST, **(options.get("initial") or {})}
        super().__init__(*args, **options)
        self.fields["config"].check = self._check_config  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any] | None:
        """Validate what the request refers to. Raises ValidationError on the request."""
        cleaned = super().clean()
        if not self.errors:
            for fault, message in self.reference_messages(self.cleaned_data["config"]):
                self.add_error("config", format_html("{}: {}", fault.field, message))
        return cleaned

    def _check_config(self, config: dict[str, Any]) -> list[SchemaProblem]:
        # The URI has been validated; an invalid one has no variables to compare with.
        return check_request(config, self.cleaned_data.get("uri"))


WRITTEN: dict[str, type[WrittenResourceForm]] = {
    form.kind.value: form for form in (TextResourceForm, FileResourceForm, HttpResourceForm)
}
