"""The checklist of the overview: what a tenant needs until its clients and colleagues use it.

It is shown for one tenant, to its admins, until every step is done. A step is done by what exists, so it ticks itself.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django.db.models import Exists, OuterRef, Q
from django.urls import reverse

from tools_app.models import ApiKey, Call, Invitation, Membership, Tenant, Tool

if TYPE_CHECKING:
    from django.db.models import QuerySet

OF_TENANT: Final = {"tenant": OuterRef("pk")}
# What `with_steps` annotates, in the order of the steps after the tenant itself.
DONE: Final = ("has_tool", "has_key", "has_client", "has_call", "has_colleague")


@dataclass(frozen=True)
class Step:
    """One step, done or not, with the page where it is done."""

    label: str
    is_done: bool
    url: str


@dataclass(frozen=True)
class FirstSteps:
    """The steps of a tenant, and pages where more tools come from, each with a sample to try."""

    tenant: Tenant
    steps: list[Step]
    more: list[Step]

    @property
    def done(self) -> int:
        """How many steps are done."""
        return sum(step.is_done for step in self.steps)


def with_steps(tenants: "QuerySet[Tenant]") -> "QuerySet[Any]":
    """Annotate tenants with what the steps depend on, in their own query.

    The last use of a key counts clients only: the playground and the test of the Connect page do not use it.
    """
    keys = ApiKey.objects.filter(**OF_TENANT)
    members = Membership.objects.filter(**OF_TENANT).order_by()
    return tenants.annotate(
        has_tool=Exists(Tool.objects.filter(**OF_TENANT)),
        has_key=Exists(keys.filter(revoked_at=None)),
        has_client=Exists(keys.exclude(last_used_at=None)),
        has_call=Exists(Call.objects.filter(**OF_TENANT).order_by()),
        has_colleague=Exists(members[1:2]) | Exists(Invitation.objects.filter(Q(revoked_at=None), **OF_TENANT)),
    )


def has_steps_left(tenant: Any) -> bool:
    """Return whether a tenant that `with_steps` annotated has a step that is not done."""
    return not all(getattr(tenant, name) for name in DONE)


def first_steps_of(tenant: Any) -> FirstSteps:
    """Return the steps of a tenant that `with_steps` annotated."""
    chosen = {"tenant": tenant.pk}
    steps = [
        Step("Create a tenant", is_done=True, url=reverse("admin:tools_app_tenant_change", args=[tenant.pk])),
        Step("Add a tool", tenant.has_tool, _url("tools_app_tool_changelist", tenant=tenant.pk)),
        Step("Create an API key", tenant.has_key, _url("tools_app_apikey_add", **chosen)),
        Step("Connect a client", tenant.has_client, _url("tools_app_apikey_changelist", **chosen)),
        Step("See the first call", tenant.has_call, _url("tools_app_call_changelist", tenant=tenant.slug)),
        Step("Invite a colleague", tenant.has_colleague, _url("tools_app_invitation_add", **chosen)),
    ]
    more = [
        Step("an OpenAPI document", is_done=False, url=reverse("admin:tools_app_apisource_changelist")),
        Step("another MCP server", is_done=False, url=reverse("admin:tools_app_upstream_changelist")),
    ]
    return FirstSteps(tenant, steps, more)


def _url(page: str, **query: Any) -> str:
    return f"{reverse(f'admin:{page}')}?{urlencode(query)}"
