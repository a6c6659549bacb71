"""Members of tenants and, for superusers, user accounts.

Groups and Django's permissions have no effect on the hub (see `tenants.permissions`), so they have no pages.
"""

from contextlib import nullcontext
from typing import Any, ClassVar

from allauth.mfa.models import Authenticator
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminTextInputWidget

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.models import Identity, Membership, Role
from tools_app.tenants.members import DEFAULT_ROLE, IS_MEMBER, LAST_ADMIN, UnknownPerson, is_last_admin, person_named
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import cut_column, full_moment, moment_column, role_badge, yes_no_column, yes_no_filter
from tools_app.web.admin.conflicts import ConflictAdmin
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.scoping import ScopedAdmin, TenantFilter, narrow, without_link_tables
from tools_app.web.admin.site import site

NAME_CHARACTERS = "letters, digits, @, ., +, - and _"


class NewMemberForm(forms.ModelForm):  # type: ignore[type-arg]
    """Adds an existing account. Superusers only: it would reveal which accounts exist. Others send invitations."""

    person = forms.CharField(
        label="Username",
        max_length=254,
        help_text="The full username of an existing account.",
        widget=UnfoldAdminTextInputWidget,
    )

    class Meta:
        model = Membership
        fields = ("tenant", "person", "role")

    def clean_person(self) -> User:
        """Return the account. Raises ValidationError if no user or several users match."""
        try:
            return person_named(self.cleaned_data["person"])
        except UnknownPerson as error:
            raise ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any] | None:
        """Reject a second role. Raises ValidationError."""
        person, tenant = self.cleaned_data.get("person"), self.cleaned_data.get("tenant")
        if person and tenant:
            if Membership.objects.filter(user=person, tenant=tenant).exists():
                raise ValidationError({"person": IS_MEMBER})
            self.instance.user = person
        return super().clean()


class MemberForm(forms.ModelForm):  # type: ignore[type-arg]
    """The role of a member."""

    class Meta:
        model = Membership
        fields = ("role",)

    def clean_role(self) -> str:
        """Return the role. Raises ValidationError if the tenant would have no admin."""
        role: str = self.cleaned_data["role"]
        if role != Role.ADMIN and is_last_admin(self.instance):
            raise ValidationError(LAST_ADMIN)
        return role


@admin.register(Membership, site=site)
class MembershipAdmin(ScopedAdmin):
    """Members of the user's tenants. Admins of a tenant invite people; superusers can also add accounts."""

    empty_hint = "A member sees the tenant as far as the role permits."
    empty_advice = "Invite people, or add existing accounts."
    list_display = (
        "user",
        "email",
        "tenant",
        "role_label",
        "managed_by",
        moment_column("created_at", "created"),
    )
    list_filter = ("role", TenantFilter)
    list_select_related = ("tenant", "user__identity__issuer", "user__identity__directory_user")
    search_fields = ("user__username", "user__email")
    actions_list = ("invite",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Allow superusers only: see NewMemberForm."""
        return tenant_permissions_of(request).is_superuser

    def has_invite_permission(self, request: HttpRequest) -> bool:
        """Return whether this user administers a tenant."""
        return tenant_permissions_of(request).is_admin_anywhere

    @button("Invite", url_path="invite", permissions=["invite"], icon="mail")
    def invite(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the form of a new invitation."""
        return HttpResponseRedirect(reverse("admin:tools_app_invitation_add"))

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        options["form"] = MemberForm if obj else NewMemberForm
        return super().get_form(request, obj, change, **options)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the values of a new member: the role with the fewest permissions, as for an invitation."""
        return {"role": DEFAULT_ROLE, **super().get_changeform_initial_data(request)}

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["tenant", "account", "role", "managed_by"] if obj else ["tenant", "person", "role"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        fixed = super().get_readonly_fields(request, obj)
        return [*fixed, "account", "managed_by"] if obj else fixed

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Protect the last admin from removal except by superusers, since no other member could invite people."""
        if obj is not None and not tenant_permissions_of(request).is_superuser and is_last_admin(obj):
            return False
        return super().has_delete_permission(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Membership]) -> None:
        """Remove members one by one: removing all of them could leave no admin."""
        with change_log_transaction():
            # Read again: the page that lists what is deleted has read them without the lock.
            for member in queryset.all():
                if self.has_delete_permission(request, member):
                    member.delete()

    @column("person")
    def account(self, member: Membership) -> str:
        """The account of the member."""
        name, email = member.user.get_username(), member.user.email
        return f"{name} ({email})" if email else name

    @column("e-mail", ordering="user__email")
    def email(self, member: Membership) -> SafeString:
        return narrow(member.user.email or "-")

    @column("managed by")
    def managed_by(self, member: Membership) -> str:
        """The issuer that decides about the role, and whether its directory (SCIM) does."""
        identity: Identity | None = getattr(member.user, "identity", None)
        if identity is None or identity.issuer.tenant_id != member.tenant_id:
            return "-"
        has_directory = getattr(identity, "directory_user", None) is not None
        return f"{identity.issuer.name} (directory)" if has_directory else identity.issuer.name

    @column("role", ordering="role")
    def role_label(self, member: Membership) -> SafeString:
        return role_badge(member.role)


class AccountForm(UserChangeForm):
    """The settings of an account."""

    class Meta(UserChangeForm.Meta):
        labels: ClassVar = {"email": "E-mail", "is_active": "Active", "is_superuser": "Superuser"}
        help_texts: ClassVar = {
            "username": f"At most 150 characters: {NAME_CHARACTERS}.",
            "is_active": "If off, the user cannot log in, and sessions and personal tokens end. Prefer this to"
            " deleting the account.",
            "is_superuser": "Can do everything in all tenants, and manages accounts and tenants.",
        }

    def clean_is_superuser(self) -> bool:
        """Reject an account that a tenant's issuer decides about. Raises ValidationError."""
        chosen = bool(self.cleaned_data["is_superuser"])
        if chosen and Identity.objects.filter(person=self.instance.pk).exists():
            raise ValidationError("A tenant's sign-in made this account. Make another one for a superuser.")
        return chosen


class NewAccountForm(UserCreationForm):
    """A new account, with a password or without one."""

    class Meta(UserCreationForm.Meta):
        help_texts: ClassVar = {"username": f"At most 150 characters: {NAME_CHARACTERS}."}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        field = self.fields["usable_password"]
        field.label = "Login with a password"
        field.help_text = "If disabled, the user cannot log in until a superuser sets a password."


DATES = (full_moment("last_login", "last login"), full_moment("date_joined", "created"))


@admin.register(User, site=site)
class UserAdmin(ConflictAdmin, DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg, misc]
    """User accounts, for superusers only."""

    form = AccountForm
    add_form = NewAccountForm
    # Django's only says that there are more fields on the page of the account.
    add_form_template = None
    change_form_template = "admin/tools_app/change_form.html"
    change_password_form = AdminPasswordChangeForm
    list_display = (
        cut_column("username", "username"),
        cut_column("email", "e-mail"),
        yes_no_column("is_active", "active"),
        yes_no_column("is_superuser", "superuser"),
        moment_column("last_login", "last login"),
    )
    list_filter = (("is_active", yes_no_filter("active")), ("is_superuser", yes_no_filter("superuser")))
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("username", "password", "first_name", "last_name", "email")}),
        ("Access", {"fields": ("is_active", "is_superuser")}),
        ("Dates", {"fields": DATES}),
    )
    readonly_fields = DATES
    actions_detail = ("remove_factors",)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Save only the changed fields, so that a login or a deactivation meanwhile is not undone."""
        if not change:
            obj.save()
        elif form.changed_data:
            obj.save(update_fields=form.changed_data)

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[str]]:
        """Return what is deleted with a user, without tables that only link."""
        deleted, counts, lacking, protected = super().get_deleted_objects(objs, request)
        return *without_link_tables(deleted, counts), lacking, protected

    @button(
        "Remove second factors",
        url_path="remove-factors",
        permissions=["remove_factors"],
        icon="lock_reset",
        danger=True,
    )
    def remove_factors(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Remove all second factors of somebody who lost them. Each removal is recorded."""
        person = self.get_object(request, object_id)
        if person is None:
            raise Http404("Not found.")
        if request.method == "POST":
            with transaction.atomic():
                Authenticator.objects.filter(user=person).delete()
            self.message_user(request, f"{person} logs in with the password alone now.", messages.SUCCESS)
            return HttpResponseRedirect(reverse("admin:auth_user_change", args=[person.pk]))
        return self.page(request, "tenants/remove_factors.html", title="Remove second factors", person=person)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return super().changelist_view(request, {"title": "Users", **(extra_context or {})})

    def _is_superuser(self, request: HttpRequest, obj: Any = None) -> bool:
        return tenant_permissions_of(request).is_superuser

    has_module_permission = has_view_permission = has_add_permission = _is_superuser
    has_change_permission = has_delete_permission = has_remove_factors_permission = _is_superuser

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        """Set a user's password. The whole account is saved, so it is locked from when it is read."""
        with change_log_transaction() if request.method == "POST" else nullcontext():
            return super().user_change_password(request, id, form_url)
