"""Issuers: the identity providers of the user's tenants, a trial of their rules on a token, and their directories.

The page of an issuer has the address of its directory (SCIM), its token, which is shown once, and what it said.
"""

from typing import Any, ClassVar

from allauth.core import context
from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms import Script
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.views.decorators.http import require_GET
from unfold.widgets import UnfoldAdminPasswordWidget

from tools_app.identity.issuers import setup, tokens
from tools_app.identity.models.issuers import MAX_CLIENT_SECRET, WRITTEN_FIELDS
from tools_app.identity.people import directory
from tools_app.models import Issuer, IssuerUse
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin import shown_once
from tools_app.web.admin.columns import cut_column, moment_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.fields import JsonTextField
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter, badge, json_block
from tools_app.web.admin.site import site

USES: dict[str, str] = {IssuerUse.PEOPLE: "People", IssuerUse.WORKLOADS: "Workloads", IssuerUse.DIRECT: "Direct tokens"}

# The addresses of the hub for a SAML identity provider.
ADDRESSES = ("answer_url", "metadata_address")
SAML_FIELDS = (
    "metadata_url",
    "metadata",
    "certificates",
    "subject_attribute",
    "email_attribute",
    "groups_attribute",
    "allows_unasked",
)


DIRECTORY_FIELDS = ("directory_url", "directory_state", "directory_claim", "directory_only")
DIRECTORY_FACTS = DIRECTORY_FIELDS[:2]
NEW, WITHDRAW = "Create directory token", "Withdraw directory token"


TOKEN_PAGE = shown_once.SecretPage(
    "identity/issuer/directory_issued.html",
    noun="token",
    advice="create another one on the page of the issuer.",
    place="the issuer",
)


class IssuerForm(forms.ModelForm):  # type: ignore[type-arg]
    """Accepts a client secret and never displays one."""

    secret = forms.CharField(
        label="Client secret",
        required=False,
        strip=False,
        max_length=MAX_CLIENT_SECRET,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "off"}, render_value=False),
        help_text="For people. Leave it empty to keep the stored one. It is encrypted and cannot be read back.",
    )

    rules = JsonTextField(
        kind=list,
        empty=list,
        required=False,
        help_text=Issuer._meta.get_field("rules").help_text,
    )

    # See ConflictForm.
    WRITE_ONLY: ClassVar = {"secret": "ciphertext"}

    class Meta:
        model = Issuer
        fields = WRITTEN_FIELDS

    def clean(self) -> dict[str, Any] | None:
        """Check the issuer with its provider. Raises ValidationError."""
        values = super().clean()
        if self.errors or not values:
            return values
        row = Issuer(**{name: value for name, value in values.items() if name != "secret"})
        row.pk = self.instance.pk
        if not self.instance._state.adding:
            row.tenant = self.instance.tenant
        setup.check(row, values.get("secret", ""))
        return values


@admin.register(Issuer, site=site)
class IssuerAdmin(ScopedAdmin):
    """The issuers of the user's tenants."""

    form = IssuerForm

    class Media:
        js = (Script("tools_app/web/copy.js", type="module"),)

    list_display = (
        cut_column("name", "name"),
        "tenant",
        "use_label",
        cut_column("issuer", "issuer URL"),
        "state",
        "people",
        moment_column("created_at", "created"),
    )
    list_filter = ("use", TenantFilter)
    list_select_related = ("tenant",)
    search_fields = ("name", "issuer")
    empty_hint = "People log in with the account of their company, and programs connect with tokens of their platform."
    actions_detail = ("try_token", "directory_token", "withdraw_directory")
    fieldsets = (
        (None, {"fields": ("tenant", "name", "use", "protocol", "issuer", "rules", "is_active")}),
        (
            "People",
            {"fields": ("callback", "client_id", "secret", "accepts_assertions", "recheck_hours", "sign_in_minutes")},
        ),
        ("SAML 2.0", {"fields": (*ADDRESSES, *SAML_FIELDS)}),
        ("Directory (SCIM)", {"fields": DIRECTORY_FIELDS}),
        ("Workloads and direct tokens", {"fields": ("audience",)}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*super().get_readonly_fields(request, obj), "callback", *ADDRESSES, *DIRECTORY_FACTS]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields, without the write-only secret for those who only read."""
        if self.has_change_permission(request, obj):
            return self.fieldsets
        return [
            (title, {"fields": tuple(name for name in group["fields"] if name != "secret")})
            for title, group in self.fieldsets
        ]

    def save_model(self, request: HttpRequest, obj: Issuer, form: Any, change: bool) -> None:
        changed = [name for name in form.changed_data if name != "secret"]
        setup.save(obj, secret=form.cleaned_data["secret"], fields=changed if change else None)

    def delete_model(self, request: HttpRequest, obj: Issuer) -> None:
        setup.delete(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Issuer]) -> None:
        for row in queryset:
            setup.delete(row)

    def has_try_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may try a token."""
        return self.has_change_permission(request, self.get_object(request, object_id) if object_id else None)

    @button("Try a token", url_path="try", permissions=["try"], icon="science")
    def try_token(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what the rules make of a token, which is not stored."""
        row = self.get_object(request, object_id)
        if not self.has_change_permission(request, row):
            raise Http404("Not found.")
        trial, problem, token = None, "", request.POST.get("token", "")
        if request.method == "POST":
            try:
                trial = setup.try_rules(row, token, request.build_absolute_uri("/").rstrip("/"))
            except tokens.InvalidToken as invalid:
                problem = str(invalid)
        shown = {
            **self.admin_site.each_context(request),
            "title": f"Try a token of {row.name}",
            "opts": self.opts,
            "original": row,
            "trial": trial,
            "claims": json_block(trial.claims) if trial else "",
            "problem": problem,
        }
        return TemplateResponse(request, "identity/issuer/try.html", shown)

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin and of the page of a new token."""
        issued = self.admin_site.admin_view(require_GET(self.directory_issued))
        name = "tools_app_issuer_directory_issued"
        return [path("<path:object_id>/directory-issued/", issued, name=name), *super().get_urls()]

    def has_directory_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may create the token of this issuer's directory."""
        row = self.get_object(request, object_id) if object_id else None
        return self.has_change_permission(request, row) and (row is None or row.use == IssuerUse.PEOPLE)

    def has_withdraw_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may withdraw the token of this issuer's directory, which has one."""
        row = self.get_object(request, object_id) if object_id else None
        is_connected = row is None or directory.state_of(row).connected
        return self.has_change_permission(request, row) and is_connected

    @button(NEW, url_path="directory-token", permissions=["directory"], icon="sync")
    def directory_token(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Create a token after confirmation, and redirect to the page that shows it once."""
        row = self._of_people(request, object_id)
        if request.method != "POST":
            return self._ask_directory(request, row, NEW)
        shown_once.store(request, row, {"token": directory.issue(row)})
        return HttpResponseRedirect(reverse("admin:tools_app_issuer_directory_issued", args=[row.pk]))

    @button(WITHDRAW, url_path="withdraw-directory", permissions=["withdraw"], icon="sync_disabled", danger=True)
    def withdraw_directory(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Withdraw the token after confirmation."""
        row = self._of_people(request, object_id)
        if request.method != "POST":
            return self._ask_directory(request, row, WITHDRAW)
        if directory.withdraw(row):
            self.message_user(request, f"The directory of {row.name} is disconnected.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_issuer_change", args=[row.pk]))

    def directory_issued(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a new token once, and say afterwards that it was shown."""
        row = self._of_people(request, object_id)
        page = {"title": "Copy the token now", "row": row, "url": _url(request, row)}
        return TOKEN_PAGE.response(request, self, row, lambda values: {**page, "token": values["token"]})

    def _of_people(self, request: HttpRequest, object_id: str) -> Issuer:
        row: Issuer = self.get_object(request, object_id)
        if not tenant_permissions_of(request).changes(row.tenant_id) or row.use != IssuerUse.PEOPLE:
            raise PermissionDenied
        return row

    def _ask_directory(self, request: HttpRequest, row: Issuer, action: str) -> HttpResponse:
        page = {
            "title": f"{action}?",
            "is_new": action == NEW,
            "row": row,
            "opts": self.opts,
            "connected": directory.state_of(row).connected,
        }
        whole = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "identity/issuer/directory_ask.html", whole)

    @column("SCIM base URL")
    def directory_url(self, row: Issuer) -> SafeString:
        """Show the address to enter in the directory."""
        if row._state.adding:
            return format_html("{}", "Save the issuer first: then it is shown here.")
        return format_html("<code>{}</code>", _url(context.request, row))

    @column("state")
    def directory_state(self, row: Issuer) -> str:
        """Say whether the directory is connected, when it last asked, and how much it has said."""
        if row._state.adding:
            return "Not connected."
        state = directory.state_of(row)
        text = f"{state.users} people and {state.groups} groups."
        if not state.connected:
            return f"Not connected. {text}" if state.users else "Not connected."
        used = f"last request {timesince(state.last_used_at)} ago" if state.last_used_at else "no request yet"
        return f"Connected with the token {state.token_prefix}…, {used}. {text}"

    @column("use", ordering="use")
    def use_label(self, row: Issuer) -> str:
        return USES[row.use]

    @column("status", ordering="is_active")
    def state(self, row: Issuer) -> SafeString:
        return badge("Active", "success") if row.is_active else badge("Off", "warning")

    @column("people")
    def people(self, row: Issuer) -> str:
        return str(row.identities.filter(ended_at=None).count())

    @column("redirect URI")
    def callback(self, row: Issuer) -> SafeString:
        """Show the address to register with the provider."""
        return _address("sign-in-callback", row)

    @column("ACS URL")
    def answer_url(self, row: Issuer) -> SafeString:
        """Show where a SAML identity provider sends its answers."""
        return _address("sign-in-saml", row)

    @column("metadata URL of the hub, and its entity ID")
    def metadata_address(self, row: Issuer) -> SafeString:
        """Show what a SAML identity provider reads about the hub."""
        return _address("sign-in-saml-metadata", row)


def _address(name: str, row: Issuer) -> SafeString:
    if row._state.adding:
        return format_html("{}", "Save the issuer first, not active yet: then it is shown here.")
    address = context.request.build_absolute_uri(reverse(name, args=[row.pk]))
    return format_html(
        '<code id="address-{}">{}</code> <button type="button" class="text-link" data-copy="address-{}">Copy</button>',
        name,
        address,
        name,
    )


def _url(request: HttpRequest, row: Issuer) -> str:
    return request.build_absolute_uri(reverse("scim", args=[row.pk])).rstrip("/")
