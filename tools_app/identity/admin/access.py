"""The form by which an admin changes what a connection may use: names, methods, networks, limits and expiry."""

from typing import Any, Final

from django import forms
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from tools_app.models import Connection
from tools_app.tenants.admin.key_forms import ApiKeyForm
from tools_app.tenants.keys import LIMITS, SETTINGS
from tools_app.web.admin.conflicts import ConflictForm

FIELDS: Final = ("expires_at", *SETTINGS)


class MomentInput(forms.DateTimeInput):
    """A field for a date and a time, to the second, so that what is not touched is not changed."""

    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__(attrs={**UnfoldAdminTextInputWidget().attrs, "step": "1"}, format="%Y-%m-%dT%H:%M:%S")


class AccessForm(ConflictForm, ApiKeyForm):
    """The settings of the key behind a connection. What somebody else saved meanwhile is noticed."""

    expires_at = forms.DateTimeField(
        label="Ends",
        required=False,
        widget=MomentInput(),
        help_text="Empty: it ends when the person leaves the tenant or somebody ends it.",
    )

    class Meta(ApiKeyForm.Meta):
        fields = FIELDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        names = self.fields["tool_patterns"]
        names.help_text = (
            "Names or URIs of the tools, prompts and resources that the client can use, one per line. * matches"
            " anything. tool=search is exactly the tool search, and so are prompt= and resource=. Empty: all. When the"
            " client asks for access again, the person can choose other names; methods and limits stay."
        )
        for name in ("toolset", "presentation"):
            choices = self.fields[name].choices  # type: ignore[attr-defined] # both are fields with choices
            self.fields[name].widget = UnfoldAdminSelectWidget(choices=choices)
        for name in LIMITS:
            self.fields[name].widget = UnfoldAdminIntegerFieldWidget(attrs={"min": "0"})

    @property
    def recorded_row(self) -> Connection:
        """The connection."""
        return Connection.objects.get(key=self.instance.pk)

    @property
    def changes(self) -> dict[str, Any]:
        """The fields that were changed, with their new values."""
        return {name: self.cleaned_data[name] for name in self.changed_data}
