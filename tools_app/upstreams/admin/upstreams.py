"""Upstream MCP servers: their settings, how the last connection went, and the review of what they offer."""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesDropdownFilter

from tools_app.catalog.admin.samples import SampleAdmin, origin_of
from tools_app.core import diff
from tools_app.core.diff import DiffLine
from tools_app.models import ItemKind, ItemState, Tenant, Upstream, UpstreamItem, UpstreamStatus
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.upstreams import service
from tools_app.upstreams.admin import upstream_health
from tools_app.upstreams.credentials import store
from tools_app.upstreams.errors import UpstreamFailed
from tools_app.upstreams.validation import upstream_faults
from tools_app.web.admin.columns import cut_column
from tools_app.web.admin.decorators import button, column
from tools_app.web.admin.fields import JsonTextField, add_faults
from tools_app.web.admin.scoping import TenantFilter, badge, by_id, writer
from tools_app.web.admin.site import site

SAMPLE: Final = "this-hub"
# More items than this are accepted with the command line.
MAX_SHOWN: Final = 300
ADDRESS: Final = ("transport", "url", "command", "era")
CREDENTIALS: Final = (
    "headers",
    "environment",
    "credential",
    "credential_owner",
    "credential_header",
    "oauth_client_id",
    "oauth_client_secret",
    "oauth_issuer",
    "oauth_scopes",
)
STATES: Final = {
    ItemState.NEW: "info",
    ItemState.ACCEPTED: "success",
    ItemState.CHANGED: "warning",
    ItemState.REMOVED: "danger",
}


def _json_field(name: str, kind: type, rows: int) -> JsonTextField:
    """Return the field of the model with this name, as JSON in several lines."""
    field: Any = Upstream._meta.get_field(name)
    return JsonTextField(kind=kind, empty=kind, required=False, rows=rows, help_text=field.help_text)


class UpstreamForm(forms.ModelForm):  # type: ignore[type-arg]
    """The settings of an upstream, checked by the same rules as in the REST API and the command."""

    # An address of this hub, which cannot be an upstream of itself.
    own_url = ""
    command = _json_field("command", list, 3)
    headers = _json_field("headers", dict, 4)
    environment = _json_field("environment", dict, 4)

    class Meta:
        model = Upstream
        fields = ("tenant", "name", "prefix", *ADDRESS, *CREDENTIALS, "enabled", "timeout_seconds")

    def clean_name(self) -> str:
        """Check the name of an existing row, whose form has no tenant. Raises ValidationError."""
        name: str = self.cleaned_data["name"]
        if Upstream.objects.filter(tenant=self.instance.tenant_id, name=name).exclude(pk=self.instance.pk).exists():
            raise ValidationError("This tenant already has an upstream with this name.")
        return name

    def _post_clean(self) -> None:
        """Check the settings together, once they are in the row."""
        super()._post_clean()  # type: ignore[misc]
        add_faults(self, upstream_faults(self.instance, self.own_url))


@dataclass(frozen=True)
class ReviewRow:
    """An item on the page of a review. `problem` is why it cannot be accepted, `lines` what would change.

    `former` is the name of a removed item that it may have been.
    """

    item: UpstreamItem
    offered_as: str
    state: SafeString
    problem: str
    may_accept: bool
    lines: list[DiffLine]
    former: str = ""

    @property
    def value(self) -> str:
        """What the form sends for it: its id, and the digest of the definition that is shown."""
        return f"{self.item.pk}:{service.proposal_digest(self.item)}"


@admin.register(Upstream, site=site)
class UpstreamAdmin(SampleAdmin):
    """Upstreams of the user's tenants."""

    form = UpstreamForm
    list_display = (cut_column("name", "name"), "tenant", "transport", "health", "waiting", "enabled")
    list_filter = (("transport", ChoicesDropdownFilter), "enabled", TenantFilter)
    list_select_related = ("tenant", "status")
    search_fields = ("name", "prefix")
    empty_hint = "An upstream is another MCP server, whose tools, resources and prompts are accepted one by one."
    actions_list = ("show_health",)
    actions_detail = ("review",)
    sample_label = "Add this hub's own endpoint"
    sample_hint = "To see how the hub protects itself from circles, add its own endpoint as an upstream: it is refused."
    fieldsets = (
        (None, {"fields": ("tenant", "name", "prefix", "enabled")}),
        ("Server", {"fields": ADDRESS}),
        ("Credentials", {"fields": CREDENTIALS}),
        ("Calls", {"fields": ("timeout_seconds",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Upstream]:
        """Return the rows with whether items changed or are new."""
        waiting = UpstreamItem.objects.filter(upstream=OuterRef("pk"), state__in=[ItemState.NEW, ItemState.CHANGED])
        rows: QuerySet[Upstream] = super().get_queryset(request).annotate(has_waiting=Exists(waiting))
        return rows

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        """Return the form, which knows the address under which this user reaches the hub."""
        form = super().get_form(request, obj, change, **options)
        return type(form.__name__, (form,), {"own_url": origin_of(request)})

    def add_sample(self, request: HttpRequest, tenant: Tenant) -> HttpResponse:
        """Check the tenant's own endpoint like any other, and say why it cannot be added."""
        origin = origin_of(request)
        upstream = Upstream(tenant=tenant, name=SAMPLE, url=f"{origin}/t/{tenant.slug}/mcp")
        faults = [message for found in upstream_faults(upstream, origin).values() for message in found]
        self.message_user(request, f"{upstream.url} was not added. {' '.join(faults)}", messages.ERROR)
        return HttpResponseRedirect(reverse("admin:tools_app_upstream_changelist"))

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """Continue with the review: nothing is offered before it."""
        self.message_user(request, f"{obj} was added. Connect to see what it offers.", messages.SUCCESS)
        return HttpResponseRedirect(_review_of(obj))

    def delete_model(self, request: HttpRequest, obj: Upstream) -> None:
        service.delete(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Upstream]) -> None:
        for upstream in queryset:
            service.delete(upstream)

    def has_run_permission(self, request: HttpRequest) -> bool:
        """Allow the admins of any tenant to see the health of its upstreams."""
        return tenant_permissions_of(request).is_admin_anywhere

    @button("Health", url_path="health", permissions=["run"], icon="monitor_heart")
    def show_health(self, request: HttpRequest) -> HttpResponse:
        """Show how all upstreams are, with their problems."""
        return upstream_health.page(self, request)

    def has_review_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Allow users who can view the upstream to see what it offers."""
        return self.has_view_permission(request, self.get_object(request, object_id) if object_id else None)

    @button("Review", url_path="review", permissions=["review"], icon="fact_check")
    def review(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what the upstream offers, with what changed. A POST connects, accepts, or removes what is gone."""
        upstream = self.get_object(request, object_id)
        if request.method == "POST":
            if not self.has_change_permission(request, upstream):
                raise PermissionDenied
            self._act(request, upstream)
            return HttpResponseRedirect(_review_of(upstream))
        offered = upstream.items.select_related("upstream", "tool", "resource", "prompt")
        items = list(offered.order_by("kind", "name")[: MAX_SHOWN + 1])
        _, bad = service.partition_acceptable(items[:MAX_SHOWN])
        former = service.former_names(items[:MAX_SHOWN])
        rows = [_row(upstream, item, bad.get(item, ""), former.get(item, "")) for item in items[:MAX_SHOWN]]
        page = {
            "title": f"What {upstream} offers",
            "upstream": upstream,
            "original": upstream,
            "status": UpstreamStatus.objects.filter(upstream=upstream).first(),
            "groups": [
                (kind.label, of_kind)
                for kind in ItemKind
                if (of_kind := [one for one in rows if one.item.kind == kind])
            ],
            "has_more": len(items) > MAX_SHOWN,
            "may_accept": any(row.may_accept for row in rows),
            "may_change": self.has_change_permission(request, upstream),
            "credentials": upstream.credentials.select_related("key", "person")[:MAX_SHOWN],
            "sign_in": store.credential_url(upstream.pk, store.TENANT, origin_of(request))
            if upstream.credential
            else "",
            "opts": self.opts,
        }
        context = {**self.admin_site.each_context(request), **page}
        return TemplateResponse(request, "upstreams/review.html", context)

    def _act(self, request: HttpRequest, upstream: Upstream) -> None:
        data = request.POST
        if "accept" in data:
            self._accept(request, upstream)
        elif "remove_credential" in data:
            row = by_id(upstream.credentials.all(), "pk", data["remove_credential"] or "-").first()
            if row is not None:
                store.delete(row)
                self.message_user(request, f"The credential of {row.owner_name} was removed.", messages.SUCCESS)
        elif "forget" in data:
            item = by_id(upstream.items.filter(state=ItemState.REMOVED), "pk", data["forget"] or "-").first()
            if item is not None:
                service.delete_item(item)
                self.message_user(request, f"{item} was removed.", messages.SUCCESS)
        else:
            try:
                offered = service.discover(upstream, request.user.pk)
            except UpstreamFailed as error:
                self.message_user(request, f"Cannot connect: {error.message}", messages.ERROR)
            else:
                self.message_user(request, f"Connected. It offers {offered.summary}.", messages.SUCCESS)

    def _accept(self, request: HttpRequest, upstream: Upstream) -> None:
        """Accept the selected items, as they were shown: what changed since then is shown again."""
        shown = dict(one.partition(":")[::2] for one in request.POST.getlist("item"))
        items = list(_named(upstream, list(shown)).select_related("upstream", "tool", "resource", "prompt"))
        same = [item for item in items if service.proposal_digest(item) == shown.get(str(item.pk))]
        good, bad = service.partition_acceptable(same)
        try:
            service.accept(good, by=writer(request))
        except service.NotAcceptable as error:
            self.message_user(request, str(error), messages.ERROR)
            return
        for problem in bad.values():
            self.message_user(request, problem, messages.ERROR)
        if len(same) < len(items):
            self.message_user(request, "Some definitions changed meanwhile. Review them again.", messages.WARNING)
        self.message_user(request, f"Accepted: {len(good)}.", messages.SUCCESS if good else messages.WARNING)

    @column("status")
    def health(self, upstream: Upstream) -> SafeString:
        status = getattr(upstream, "status", None)
        if status is None:
            return badge("Not connected yet", "info")
        return badge("Failing", "danger") if status.problem else badge("OK", "success")

    @column("to review", ordering="has_waiting", boolean=True)
    def waiting(self, upstream: Any) -> bool:
        return bool(upstream.has_waiting)


def _review_of(upstream: Upstream) -> str:
    return reverse("admin:tools_app_upstream_review", args=[upstream.pk])


def _named(upstream: Upstream, ids: list[str]) -> QuerySet[UpstreamItem]:
    """Return the items of an upstream with these ids; what is no id names none."""
    known = []
    for one in ids[:MAX_SHOWN]:
        try:
            known.append(UUID(one))
        except ValueError:
            continue
    return upstream.items.filter(pk__in=known)


def _row(upstream: Upstream, item: UpstreamItem, problem: str, former: str) -> ReviewRow:
    state = ItemState(item.state)
    waits = service.is_pending(item)
    named = item.kind in {ItemKind.TOOL, ItemKind.PROMPT}
    return ReviewRow(
        item=item,
        offered_as=service.offered_name(upstream, item.name) if named else item.name,
        state=badge(state.label, STATES[state]),
        problem=problem,
        may_accept=waits and not problem,
        lines=diff.lines(item.accepted or {}, service.proposal_of(item)) if waits else [],
        former=former,
    )
