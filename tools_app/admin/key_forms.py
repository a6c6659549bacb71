"""What is typed on the pages of keys: scopes, one a line, and for how long a key that is replaced stays good."""

from datetime import timedelta
from typing import Final

from django import forms
from unfold.widgets import UnfoldAdminRadioSelectWidget

from tools_app.admin.lines_field import LinesField
from tools_app.auth.keys import LIMITS, SCOPES
from tools_app.methods.scopes import check_method, check_network, check_pattern
from tools_app.models import ApiKey

OVERLAPS: Final = {
    "now": ("The old key stops now", timedelta()),
    "hour": ("1 hour", timedelta(hours=1)),
    "day": ("1 day", timedelta(days=1)),
    "week": ("7 days", timedelta(days=7)),
    "month": ("30 days", timedelta(days=30)),
}
USUAL_OVERLAP: Final = "day"


class ApiKeyForm(forms.ModelForm):  # type: ignore[type-arg]
    """A key's settings."""

    tool_patterns = LinesField(
        label="Names",
        check=check_pattern,
        required=False,
        placeholder="Everything that the tenant offers",
        help_text="Tools, prompts and resources that the key may use: names or URIs, one a line, * for anything,"
        " such as search_* or docs://handbook/*. Empty: all, and what is added later.",
    )
    methods = LinesField(
        label="Methods",
        check=check_method,
        required=False,
        placeholder="Every method",
        help_text="What the key may be used for, one a line: tools/* for tools alone, tools/list, resources/*,"
        " prompts/*, tasks/*, subscriptions/* for news of changes. Empty: everything.",
    )
    networks = LinesField(
        label="Networks",
        check=check_network,
        required=False,
        placeholder="Anywhere",
        help_text="Where the key may be used from, one a line: 203.0.113.0/24, 203.0.113.7, 2001:db8::/32. Behind a"
        " proxy, MCPHUB_TRUSTED_PROXIES must be set. Empty: anywhere.",
    )

    class Meta:
        model = ApiKey
        fields = ("tenant", "name", "expires_at", *SCOPES, *LIMITS)


class PreviewForm(forms.Form):
    """A tenant, and patterns that somebody is typing."""

    tenant = forms.UUIDField()
    patterns = LinesField(check=check_pattern, required=False)


class OverlapForm(forms.Form):
    """For how long a key that is replaced stays good."""

    overlap = forms.ChoiceField(
        label="Both keys are good for",
        choices=[(name, label) for name, (label, _) in OVERLAPS.items()],
        initial=USUAL_OVERLAP,
        widget=UnfoldAdminRadioSelectWidget,
    )

    @property
    def chosen(self) -> timedelta:
        """The overlap of a valid form."""
        return OVERLAPS[self.cleaned_data["overlap"]][1]
