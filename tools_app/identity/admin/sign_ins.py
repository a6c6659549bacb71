"""The trace of sign-ins: one line for each attempt, with its outcome, its reason where it failed, and its steps."""

from typing import Any, Final

from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter, DropdownFilter
from unfold.views import ChangeList

from tools_app.calls.admin.columns import BoundedPaginator
from tools_app.calls.admin.filters import MomentFilter
from tools_app.core.relations import related
from tools_app.models import ClientPolicy, SignInEvent, SignInStep
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.columns import full_moment, moment_column
from tools_app.web.admin.decorators import column
from tools_app.web.admin.scoping import MAX_CHOICES, LightChangeList, RecordAdmin, TenantFilter, badge, by_id, narrow
from tools_app.web.admin.site import site
from tools_app.web.admin.times import full_text

MAX_STEPS: Final = 50
# The events whose clients a filter offers.
MAX_NEWEST: Final = 1_000

COLOURS = {
    SignInStep.CHALLENGED: "info",
    SignInStep.CLIENT_SEEN: "info",
    SignInStep.ASKED: "info",
    SignInStep.ALLOWED: "success",
    SignInStep.DENIED: "warning",
    SignInStep.ISSUED: "success",
    SignInStep.REFRESHED: "success",
    SignInStep.REPLAYED: "danger",
    SignInStep.REVOKED: "warning",
    SignInStep.REJECTED: "danger",
    SignInStep.SIGNED_IN: "success",
    SignInStep.LEFT: "warning",
}


class AttemptList(LightChangeList):
    """A list with the last step of each attempt, of those that the user may see."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        later = self.root_queryset.order_by().filter(attempt=OuterRef("attempt"), pk__gt=OuterRef("pk"))
        return rows.filter(~Exists(later))

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, and the steps of its attempts at once."""
        super().get_results(request)
        rows: list[SignInEvent] = list(self.result_list)  # type: ignore[has-type] # Django sets it
        found: dict[Any, list[SignInEvent]] = {}
        attempts = {row.attempt for row in rows if row.attempt}
        for step in self.root_queryset.filter(attempt__in=attempts).order_by("at", "id"):
            found.setdefault(step.attempt, []).append(step)
        for row in rows:
            vars(row)["steps_of_attempt"] = found.get(row.attempt, [row])
        self.result_list = rows


class ClientFilter(DropdownFilter):
    """Filter by the name of a client. It offers those of the newest events: to read all takes long."""

    title = "client"
    parameter_name = "client"

    def lookups(self, request: HttpRequest, model_admin: RecordAdmin) -> list[tuple[str, str]]:
        newest = model_admin.get_queryset(request).order_by("-at", "-id").values_list("client_name", flat=True)
        chosen = request.GET.get(self.parameter_name, "")
        names = sorted({*newest[:MAX_NEWEST], chosen} - {""}, key=str.casefold)
        return [(name, name) for name in names[:MAX_CHOICES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[SignInEvent]) -> QuerySet[SignInEvent]:
        return queryset.filter(client_name=self.value()) if self.value() else queryset


class ConnectionFilter(admin.SimpleListFilter):
    """Filter by a connection, from the page of which a link leads here. It offers no choices itself."""

    title = "connection"
    parameter_name = "connection"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        chosen = request.GET.get(self.parameter_name)
        return [(chosen, "Chosen")] if chosen else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[SignInEvent]) -> QuerySet[SignInEvent]:
        return by_id(queryset, "connection_id", self.value())


@admin.register(SignInEvent, site=site)
class SignInAdmin(RecordAdmin):
    """Steps in the user's tenants. Those before a tenant is known are visible to superusers only."""

    list_display = (
        moment_column("at", "time", "at"),
        "step_label",
        "client_shown",
        "person_shown",
        "tenant_name",
        "reason_shown",
        "steps",
    )
    list_filter = (
        ("step", ChoicesDropdownFilter),
        ClientFilter,
        TenantFilter,
        ConnectionFilter,
        ("at", MomentFilter),
    )
    empty_hint = "Every attempt to connect a client by signing in appears here, with the reason where it failed."
    list_select_related = ("tenant",)
    search_fields = ("client_name", "person_name")
    show_full_result_count = False
    paginator = BoundedPaginator
    fields = (
        full_moment("at", "time"),
        "step_label",
        "reason",
        "client_name",
        "client_id",
        "person_shown",
        "tenant_name",
        "host",
        "remote_address",
        "policy",
        "all_steps",
    )

    def get_changelist(self, request: HttpRequest, **options: Any) -> type[ChangeList]:
        return AttemptList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return a step, with those of its attempt that this user may see, and whether they may decide about it."""
        row = super().get_object(request, object_id, from_field)
        steps = self.get_queryset(request).filter(attempt=row.attempt).order_by("at", "id")
        vars(row)["steps_of_attempt"] = list(steps[:MAX_STEPS]) if row.attempt else [row]
        vars(row)["may_decide"] = bool(row.tenant_id) and tenant_permissions_of(request).changes(row.tenant_id)
        return row

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return list(self.fields)

    @column("outcome", ordering="step")
    def step_label(self, row: SignInEvent) -> SafeString:
        step = SignInStep(row.step)
        return badge(str(step.label), COLOURS[step])

    @column("client", ordering="client_name")
    def client_shown(self, row: SignInEvent) -> SafeString:
        return narrow(row.client_name or row.client_id or "-")

    @column("person", ordering="person_name")
    def person_shown(self, row: SignInEvent) -> SafeString:
        return narrow(row.person_name or "-")

    @column("tenant")
    def tenant_name(self, row: SignInEvent) -> str:
        tenant = related(row, "tenant")
        return str(tenant) if tenant else "-"

    @column("reason")
    def reason_shown(self, row: SignInEvent) -> SafeString:
        return format_html('<span class="hub-reason" title="{0}">{0}</span>', row.reason or "-")

    @column("steps")
    def steps(self, row: SignInEvent) -> SafeString | str:
        """The steps of an attempt, behind their number."""
        found: list[SignInEvent] = vars(row)["steps_of_attempt"]
        if len(found) == 1:
            return "1"
        return format_html("<details><summary>{}</summary>{}</details>", len(found), _listed(found))

    @column("steps")
    def all_steps(self, row: SignInEvent) -> SafeString:
        return _listed(vars(row)["steps_of_attempt"])

    @column("policy")
    def policy(self, row: SignInEvent) -> SafeString | str:
        """A link to the policy for the client's host, or to the form of a new one with the host filled in."""
        if not row.host or not vars(row).get("may_decide"):
            return "-"
        known = ClientPolicy.objects.filter(tenant=row.tenant_id, host=row.host).first()
        if known is not None:
            address = reverse("admin:tools_app_clientpolicy_change", args=[known.pk])
            return format_html('<a class="text-link" href="{}">Change the policy for {}</a>', address, row.host)
        query = urlencode({"tenant": str(row.tenant_id), "host": row.host, "decision": "allow"})
        address = f"{reverse('admin:tools_app_clientpolicy_add')}?{query}"
        return format_html('<a class="text-link" href="{}">Decide about {}</a>', address, row.host)


def _listed(steps: list[SignInEvent]) -> SafeString:
    parts = ((step, f": {step.reason}" if step.reason else "") for step in steps)
    rows = ((full_text(step.at), SignInStep(step.step).label, reason) for step, reason in parts)
    return format_html("<ol>{}</ol>", format_html_join("", "<li>{} {}{}</li>", rows))
