"""Forms of a resource: one for each kind written in the admin, and the settings of functions defined in code."""

from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.utils.html import format_html
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminTextareaWidget

from tools_app.catalog.admin.base import WrittenForm
from tools_app.catalog.kinds.http.admin.references import ReferencingForm
from tools_app.catalog.validation.mime_types import guessed_mime_type
from tools_app.catalog.validation.resources import (
    MAX_BYTES,
    MAX_CHARACTERS,
    check_annotations,
    check_request,
    file_fault,
    uri_fault,
)
from tools_app.models import Resource, ResourceKind
from tools_app.protocol.authoring_schema import SchemaProblem
from tools_app.web.admin.fields import JsonTextField

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


class WrittenResourceForm(WrittenForm):
    """Fields shared by all kinds of resources written in the admin."""

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
        """Return the URI. Raises ValidationError if another resource of the tenant has it."""
        return self.unique("uri")


class TextResourceForm(WrittenResourceForm):
    """A text resource, returned to clients as entered."""

    kind = ResourceKind.TEXT

    text = forms.CharField(
        strip=False, max_length=MAX_FORM_CHARACTERS, widget=UnfoldAdminTextareaWidget(attrs={"rows": 20})
    )

    class Meta(WrittenResourceForm.Meta):
        fields = (*DESCRIBED, "text")

    def clean_text(self) -> str:
        """Return the text with the line endings as typed; browsers submit CRLF."""
        return str(self.cleaned_data["text"]).replace("\r\n", "\n")


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
        """Return the uploaded file, if any. Raises ValidationError if it is too large to be read."""
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
        # An invalid URI has no variables to compare with.
        uri = self.cleaned_data.get("uri", "")
        return check_request(config, None if not uri or uri_fault(uri, template=True) else uri)


WRITTEN: dict[str, type[WrittenResourceForm]] = {
    form.kind.value: form for form in (TextResourceForm, FileResourceForm, HttpResourceForm)
}
