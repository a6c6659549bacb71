"""Invitations: created by admins of a tenant, links shown once, revocable until accepted."""

from typing import Any, ClassVar, Final
from weakref import WeakKeyDictionary

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import DropdownFilter

from tools_app.access import invitation_mail, invitations
from tools_app.access.invitations import NotInvited, State
from tools_app.access.members import ROLES_MEAN
from tools_app.admin.base.decorators import button, column
from tools_app.admin.base.permissions import tenant_permissions_of
from tools_app.admin.base.scoping import ScopedAdmin, TenantFilter, badge, writer
from tools_app.admin.base.site import site
from tools_app.audit.changes import invitations as invitation_changes
from tools_app.models import Invitation

COLOURS: Final = {
    State.OPEN: "success",
    State.ACCEPTED: "info",
    State.REVOKED: "danger",
    State.EXPIRED: "warning",
    State.VOID: "warning",
}
NOT_ANY_MORE = "This invitation has already been accepted or revoked."


class InvitationForm(forms.ModelForm):  # type: ignore[type-arg]
    """The invited e-mail address, tenant and role."""

    class Meta:
        model = Invitation
        fields = ("tenant", "email", "role")
        help_texts: ClassVar = {"role": ROLES_MEAN}

    def clean(self) -> dict[str, Any] | None:
        """Reject an address that is a member or invited already. Raises ValidationError."""
        tenant, email = self.cleaned_data.get("tenant"), self.cleaned_data.get("email")
        if tenant and email:
            try:
                invitations.check(tenant, email)
            except NotInvited as problem:
                raise ValidationError({"email": str(problem)}) from problem
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
    list_display = ("email", "tenant", "role", "status", "invited_by", "created_at", "expires_at")
    list_filter = (OpenFilter, "role", TenantFilter)
    list_select_related = ("tenant", "invited_by", "accepted_by")
    search_fields = ("email",)
    actions = None
    actions_detail = ("renew_link", "revoke_invitation")
    readonly_fields = ("status", "invited_by", "created_at", "expires_at", "accepted_by", "accepted_at", "revoked_at")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # The secret of the new link, held only until its request is answered.
        self._made: WeakKeyDictionary[HttpRequest, str] = WeakKeyDictionary()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows with the data that determines whether they are still valid."""
        return super().get_queryset(request).prefetch_related("invited_by__memberships")

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
        row, self._made[request] = invitations.make(obj.tenant, obj.email, obj.role, by)
        for field in Invitation._meta.concrete_fields:
            setattr(obj, field.attname, getattr(row, field.attname))

    def response_add(self, request: HttpRequest, obj: Invitation, post_url_continue: str | None = None) -> HttpResponse:
        """Show the link in the response, and send it by e-mail if the hub can.

        The page is rendered after the transaction, so a slow mail server does not hold locks.
        """
        return self._shown_once(request, obj, self._made.pop(request))

    @button("New link", url_path="renew", permissions=["answer"], icon="link")
    def renew_link(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Create a new link after confirmation. The previous link becomes invalid."""
        row = self._unanswered(request, object_id)
        if request.method != "POST":
            return self._ask(request, row, "New link")
        by = writer(request)
        token = invitation_changes.renew(row, by) if by else None
        return self._shown_once(request, row, token) if token else self._gone(request, row)

    @button("Revoke", url_path="revoke", permissions=["answer"], icon="block", danger=True)
    def revoke_invitation(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Revoke the invitation after confirmation."""
        row = self._unanswered(request, object_id)
        if request.method != "POST":
            return self._ask(request, row, "Revoke")
        if not invitation_changes.revoke(row):
            return self._gone(request, row)
        self.message_user(request, f"The invitation of {row.email} was revoked.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tools_app_invitation_changelist"))

    def _unanswered(self, request: HttpRequest, object_id: str) -> Invitation:
        row: Invitation = self.get_object(request, object_id)
        if not self.has_answer_permission(request, object_id):
            raise PermissionDenied
        return row

    def _gone(self, request: HttpRequest, row: Invitation) -> HttpResponse:
        self.message_user(request, NOT_ANY_MORE, messages.ERROR)
        return HttpResponseRedirect(reverse("admin:tools_app_invitation_change", args=[row.pk]))

    def _ask(self, request: HttpRequest, row: Invitation, verb: str) -> TemplateResponse:
        title = "Revoke invitation?" if verb == "Revoke" else "Create a new link?"
        page = {"title": title, "invitation": row, "verb": verb, "opts": self.opts}
        return TemplateResponse(
            request, "admin/tools_app/invitation/ask.html", {**self.admin_site.each_context(request), **page}
        )

    def _shown_once(self, request: HttpRequest, row: Invitation, token: str) -> TemplateResponse:
        link, mailed = (
            request.build_absolute_uri(reverse("invitation", args=[text]))
            for text in (token, invitations.mailed(row, token))
        )
        page = {"title": "Copy the link now", "invitation": row, "link": link, "opts": self.opts}
        return TemplateResponse(
            request,
            "admin/tools_app/invitation/link.html",
            {**self.admin_site.each_context(request), **page, "mail": SimpleLazyObject(lambda: _sent(row, mailed))},
            headers={"Cache-Control": "no-store"},
        )

    @column("status")
    def status(self, row: Invitation) -> SafeString:
        state = invitations.state_of(row)
        return badge(state.value, COLOURS[state])


def _sent(row: Invitation, link: str) -> dict[str, str]:
    """Send the link by e-mail. Returns the result as a message."""
    if not invitation_mail.is_possible():
        return {"problem": "Email is not configured (MCPHUB_EMAIL_URL). Send the link to the person yourself."}
    try:
        invitation_mail.send(row, link)
    except invitation_mail.NotSent as problem:
        return {"problem": f"{problem}. Send the link to the person yourself."}
    return {"sent": f"The link was also sent to {row.email}."}
