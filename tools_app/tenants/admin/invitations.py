"""Invitations: created by admins of a tenant, links shown once, revocable until accepted."""

from typing import Any, Final
from weakref import WeakKeyDictionary

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET
from unfold.contrib.filters.admin import DropdownFilter

from tools_app.models import Invitation
from tools_app.tenants import invitations
from tools_app.tenants.invitations import InvitationError, State
from tools_app.tenants.members import DEFAULT_ROLE
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin import shown_once
from tools_app.web.admin.columns import cut_column, full_moment, moment_column, role_badge
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter, badge, writer
from tools_app.web.admin.site import site

COLOURS: Final = {
    State.OPEN: "success",
    State.ACCEPTED: "info",
    State.REVOKED: "danger",
    State.EXPIRED: "warning",
    State.VOID: "warning",
}


LINK_PAGE = shown_once.SecretPage(
    "tenants/invitation/link.html",
    noun="link",
    advice="create a new link on the invitation's page.",
    place="the invitation",
)


class InvitationForm(forms.ModelForm):  # type: ignore[type-arg]
    """The invited e-mail address, tenant and role."""

    class Meta:
        model = Invitation
        fields = ("tenant", "email", "role")

    def clean(self) -> dict[str, Any] | None:
        """Reject an address that is a member or invited already. Raises ValidationError."""
        tenant, email = self.cleaned_data.get("tenant"), self.cleaned_data.get("email")
        if tenant and email:
            try:
                invitations.check(tenant, email)
            except InvitationError as error:
                raise ValidationError({"email": str(error)}) from error
        return super().clean()


class OpenFilter(DropdownFilter):
    """Filter by the state of an invitation."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: ScopedAdmin) -> list[tuple[str, str]]:
        return [("open", "Open"), ("accepted", "Accepted"), ("revoked", "Revoked"), ("expired", "Expired")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Invitation]) -> QuerySet[Invitation]:
        unanswered = queryset.filter(accepted_at=None, revoked_at=None)
        match self.value():
            case "open":
                return unanswered.filter(expires_at__gt=timezone.now())
            case "accepted":
                return queryset.exclude(accepted_at=None)
            case "revoked":
                return queryset.exclude(revoked_at=None)
            case "expired":
                return unanswered.filter(expires_at__lte=timezone.now())
        return queryset


@admin.register(Invitation, site=site)
class InvitationAdmin(ScopedAdmin):
    """Invitations to the user's tenants. They are revoked, never changed or deleted."""

    form = InvitationForm
    list_display = (
        cut_column("email", "e-mail"),
        "tenant",
        "role_label",
        "status",
        "invited_by",
        moment_column("created_at", "created"),
        moment_column("expires_at", "expires"),
    )
    list_filter = (OpenFilter, "role", TenantFilter)
    list_select_related = ("tenant", "invited_by", "accepted_by")
    search_fields = ("email",)
    empty_hint = "A person who opens the link of an invitation becomes a member."
    actions = None
    actions_detail = ("renew_link", "revoke_invitation")
    readonly_fields = (
        "status",
        "invited_by",
        full_moment("created_at", "created"),
        full_moment("expires_at", "expires"),
        "accepted_by",
        full_moment("accepted_at", "accepted"),
        full_moment("revoked_at", "revoked"),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The new row and the secret of its link, held only until the request is answered.
        self._issued: WeakKeyDictionary[HttpRequest, tuple[Invitation, str]] = WeakKeyDictionary()

    def get_urls(self) -> list[Any]:
        """Return the URLs of the admin and of the page of a new link."""
        view = self.admin_site.admin_view(require_GET(self.link_page))
        return [path("<path:object_id>/link/", view, name="tools_app_invitation_link"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows with the data that determines whether they are still valid."""
        return super().get_queryset(request).prefetch_related("invited_by__memberships")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the values of a new invitation: the role with the fewest permissions, unless the address names one."""
        return {"role": DEFAULT_ROLE, **super().get_changeform_initial_data(request)}

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[tuple[str | None, dict[str, Any]]]:
        who = (None, {"fields": InvitationForm.Meta.fields})
        return [who, ("Facts", {"fields": self.readonly_fields})] if obj else [who]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any) -> Any:
        """Show the form with a single button, since the link is shown next."""
        context.update(show_save_and_add_another=False, show_save_and_continue=False)
        return super().render_change_form(request, context, *args, **options)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_answer_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Return whether this user may revoke the invitation or create a new link for it."""
        row = self.get_object(request, object_id) if object_id else None
        unanswered = row is None or (row.accepted_at is None and row.revoked_at is None)
        return self._changes(tenant_permissions_of(request), row) and unanswered

    def save_model(self, request: HttpRequest, obj: Invitation, form: Any, change: bool) -> None:
        """Create the invitation."""
        by = writer(request)
        assert by is not None, "the view requires a login"
        row, token = invitations.create(obj.tenant, obj.email, obj.role, by)
        self._issued[request] = row, token
        for field in Invitation._meta.concrete_fields:
            setattr(obj, field.attname, getattr(row, field.attname))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Create an invitation, and send its link by e-mail if the hub can.

        It is sent after the transaction, so a slow mail server does not hold locks.
        """
        page: HttpResponse = super().add_view(request, form_url, extra_context)
        if issued := self._issued.pop(request, None):
            self._send(request, *issued)
        return page

    def response_add(self, request: HttpRequest, obj: Invitation, post_url_continue: str | None = None) -> HttpResponse:
        """Redirect to the page that shows the link once."""
        return _to_link(obj)

    @button("New link", url_path="renew", permissions=["answer"], icon="link")
    def renew_link(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Create a new link after confirmation. The previous link becomes invalid."""
        row = self._unanswered(request, object_id)
        if request.method != "POST":
            return self._confirm(request, row, "New link")
        by = writer(request)
        token = invitations.renew(row, by) if by else None
        if token is None:
            return self._gone(request, row)
        self._send(request, row, token)
        return _to_link(row)

    @button("Revoke", url_path="revoke", permissions=["answer"], icon="block", danger=True)
    def revoke_invitation(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Revoke the invitation after confirmation."""
        row = self._unanswered(request, object_id)
        if request.method != "POST":
            return self._confirm(request, row, "Revoke")
        if not invitations.revoke(row):
            return self._gone(request, row)
        self.message_user(request, f"The invitation of {row.email} was revoked.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_invitation_changelist"))

    def _unanswered(self, request: HttpRequest, object_id: str) -> Invitation:
        row: Invitation = self.get_object(request, object_id)
        if not self.has_answer_permission(request, object_id):
            raise PermissionDenied
        return row

    def _gone(self, request: HttpRequest, row: Invitation) -> HttpResponse:
        self.message_user(request, invitations.ANSWERED, messages.ERROR)
        return HttpResponseRedirect(reverse("admin:tools_app_invitation_change", args=[row.pk]))

    def _confirm(self, request: HttpRequest, row: Invitation, verb: str) -> TemplateResponse:
        title = "Revoke invitation?" if verb == "Revoke" else "Create a new link?"
        return self.page(request, "tenants/invitation/ask.html", title=title, invitation=row, verb=verb)

    def _send(self, request: HttpRequest, row: Invitation, token: str) -> None:
        """Send the link by e-mail, and keep it for the page that shows it once."""
        base_url = request.build_absolute_uri("/")
        mail = f"The link was also sent to {row.email}."
        try:
            invitations.send(row, token, base_url)
        except invitations.NotSent as error:
            mail = f"{error}. Send the link to the person yourself."
        shown_once.store(request, row, {"link": invitations.link_of(token, base_url), "mail": mail})

    def link_page(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show a new link once, and say afterwards that it was shown."""
        row = self.get_object(request, object_id)
        if not self._changes(tenant_permissions_of(request), row):
            raise PermissionDenied
        page = {"title": "Copy the link now", "invitation": row}
        return LINK_PAGE.response(request, self, row, lambda values: {**page, **values})

    @column("role", ordering="role")
    def role_label(self, row: Invitation) -> SafeString:
        return role_badge(row.role)

    @column("status")
    def status(self, row: Invitation) -> SafeString:
        state = invitations.state_of(row)
        return badge(state.value, COLOURS[state])


def _to_link(row: Invitation) -> HttpResponse:
    return HttpResponseRedirect(reverse("admin:tools_app_invitation_link", args=[row.pk]))
