"""The forms of a resource: one for each kind that is written in the admin, and the little that code leaves open."""

import mimetypes
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminTextareaWidget

from tools_app.admin.icons import icons_field
from tools_app.admin.json_field import JsonTextField
from tools_app.execution.checks.resources import (
    MOST_BYTES,
    check_annotations,
    check_request,
    file_fault,
    mime_type_fault,
    text_fault,
    uri_fault,
)
from tools_app.execution.offers import resources
from tools_app.models import Resource, ResourceKind
from tools_app.protocol.authoring_schema import SchemaProblem

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


class PythonResourceForm(forms.ModelForm):  # type: ignore[type-arg]
    """What an admin decides about a function whose code says the rest."""

    class Meta:
        model = Resource
        fields = ("enabled",)

    def clean(self) -> dict[str, Any] | None:
        """Refuse to save a resource that cannot be read. Raises ValidationError."""
        function = self.instance.config.get("function", "")
        if function not in resources.all_registered():
            raise ValidationError(
                f"No installed app registers the resource {function} any more: it can be switched off, in the list of"
                " resources, or deleted."
            )
        return super().clean()


class WrittenResourceForm(forms.ModelForm):  # type: ignore[type-arg]
    """What resources of every kind have that an admin writes."""

    kind: ClassVar[ResourceKind]

    annotations = JsonTextField(
        empty=dict,
        check=check_annotations,
        required=False,
        rows=4,
        help_text='E.g. {"audience": ["user"], "priority": 0.8, "lastModified": "2026-01-31T12:00:00Z"}.',
    )

    icons = icons_field()

    class Meta:
        model = Resource
        fields: tuple[str, ...] = DESCRIBED

    def clean_uri(self) -> str:
        """The URI. Raises ValidationError if it is no template or another resource of the same tenant has it."""
        uri: str = self.cleaned_data["uri"]
        if fault := uri_fault(uri, template=self.kind == ResourceKind.HTTP):
            raise ValidationError(fault)
        # The tenant of a resource that exists is no field of the form, so the model does not look.
        row = self.instance
        if row.tenant_id and Resource.objects.filter(tenant=row.tenant_id, uri=uri).exclude(pk=row.pk).exists():
            raise ValidationError("This tenant has another resource of this URI.")
        return uri

    def clean_mime_type(self) -> str:
        """The MIME type, which may be left out. Raises ValidationError."""
        mime_type: str = self.cleaned_data["mime_type"]
        if fault := mime_type_fault(mime_type):
            raise ValidationError(fault)
        return mime_type

    def clean(self) -> dict[str, Any] | None:
        """Mark the resource as one of this form's kind."""
        self.instance.kind = self.kind
        return super().clean()


class TextResourceForm(WrittenResourceForm):
    """A text that clients read as it was typed."""

    kind = ResourceKind.TEXT

    text = forms.CharField(strip=False, widget=UnfoldAdminTextareaWidget(attrs={"rows": 20}))

    class Meta(WrittenResourceForm.Meta):
        fields = (*DESCRIBED, "text")

    def clean_text(self) -> str:
        """The text, with the line ends that were typed: browsers send others. Raises ValidationError."""
        text = str(self.cleaned_data["text"]).replace("\r\n", "\n")
        if fault := text_fault(text, self.cleaned_data.get("uri", "")):
            raise ValidationError(fault)
        return text


class FileResourceForm(WrittenResourceForm):
    """A file that an admin uploads."""

    kind = ResourceKind.FILE

    upload = forms.FileField(label="File", widget=UnfoldAdminFileFieldWidget)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        upload, stored = self.fields["upload"], not self.instance._state.adding
        upload.required = not stored
        upload.help_text = f"At most {MOST_BYTES // 1024**2} MB.{' Replaces what is stored.' if stored else ''}"

    def clean_upload(self) -> "UploadedFile[Any] | None":
        """The file, if there is one. Raises ValidationError if it is too large."""
        upload: UploadedFile[Any] | None = self.cleaned_data["upload"]
        if upload and (fault := file_fault(upload.size or 0)):
            raise ValidationError(fault)
        return upload

    def clean(self) -> dict[str, Any] | None:
        """Take what was uploaded, and guess a MIME type that was left out."""
        cleaned = super().clean()
        if not self.errors:
            upload = self.cleaned_data["upload"]
            named = upload.name if upload else self.cleaned_data["uri"]
            self.cleaned_data["mime_type"] = self.cleaned_data["mime_type"] or guessed_type(named)
            if upload:
                self.instance.blob = upload.read()
        return cleaned


class HttpResourceForm(WrittenResourceForm):
    """A request that is sent when a client reads the resource."""

    kind = ResourceKind.HTTP

    config = JsonTextField(
        label="Request",
        rows=14,
        help_text="The fields of an HTTP tool. {name} stands for a variable of the URI, {secret:NAME} for a secret, as"
        ' in {"base_url": "https://api.example.com", "path": "pages/{page}"} for docs://{page}.',
    )

    class Meta(WrittenResourceForm.Meta):
        fields = (*DESCRIBED, "config", "timeout_seconds")

    def __init__(self, *args: Any, **options: Any) -> None:
        if not options.get("instance"):
            options["initial"] = {"config": NEW_REQUEST, **(options.get("initial") or {})}
        super().__init__(*args, **options)
        self.fields["config"].check = self._check_config  # type: ignore[attr-defined]

    def _check_config(self, config: dict[str, Any]) -> list[SchemaProblem]:
        # The URI was checked before; one that is wrong has no variables to compare with.
        return check_request(config, self.cleaned_data.get("uri"))


WRITTEN: dict[str, type[WrittenResourceForm]] = {
    form.kind.value: form for form in (TextResourceForm, FileResourceForm, HttpResourceForm)
}


def guessed_type(name: str) -> str:
    """The MIME type that a file of this name has."""
    return mimetypes.guess_type(name)[0] or "application/octet-stream"
