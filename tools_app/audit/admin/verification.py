"""The evidence page: signing key, checkpoints, and a quick verification of the newest audit records.

Users see the chains of one tenant at a time; superusers may also see all tenants and download the checkpoints.
A full verification takes long; use `manage.py verify_audit` for it.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET, require_http_methods

from tools_app.audit.checkpoints import statements, witness
from tools_app.audit.verification.report import Finding, Report
from tools_app.audit.verification.verify import Scope, verify
from tools_app.models import Call, Checkpoint, Tenant
from tools_app.tenants import permissions
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.web.admin.scoping import MAX_CHOICES, by_id, only

# Limits of a verification within a request, which usually takes about a second.
NEWEST = 10_000
SECONDS = 5.0
MAX_SHOWN = 20
MAX_COUNTED = 10_000
MAX_EXPORTED = 20_000


@dataclass(frozen=True)
class State:
    """The state of a scope's records. At most the newest MAX_COUNTED are counted."""

    records: int
    chains: int
    last_checkpoint: datetime | None

    @property
    def has_more(self) -> bool:
        """Whether there may be more records than were counted."""
        return self.records == MAX_COUNTED


@dataclass(frozen=True)
class Found:
    """A finding as shown on the page. `link`: the record has a page."""

    finding: Finding
    tenant: str
    link: bool


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL patterns of the page and its download."""
    return [
        path("evidence/", site.admin_view(_page(site)), name="evidence"),
        path("evidence/checkpoints.jsonl", site.admin_view(require_GET(download)), name="evidence_checkpoints"),
    ]


def _page(site: AdminSite) -> Any:
    @require_http_methods(["GET", "POST"])
    def page(request: HttpRequest) -> HttpResponse:
        tenants = permissions.tenants_seen_by(request.user).order_by("name")
        sees_all = tenant_permissions_of(request).is_superuser
        tenant = _chosen(request, tenants)
        is_chosen = tenant is not None or sees_all
        scope = Scope(tenant_id=tenant.pk if tenant else None, newest=NEWEST, seconds=SECONDS)
        witnessed: list[str] | None = None
        with suppress(OSError):
            witnessed = witness.lines()
        report = verify(scope, witnessed=witnessed or ()) if is_chosen and request.method == "POST" else None
        context = {
            **site.each_context(request),
            "title": "Evidence",
            "tenant": tenant,
            "tenants": tenants[:MAX_CHOICES],
            "sees_all": sees_all,
            "state": _state(scope) if is_chosen else None,
            "public_key": statements.own_key(),
            "fingerprint": statements.fingerprint(statements.own_key()),
            "report": report,
            "found": _found(report, dict(tenants.values_list("pk", "name"))) if report else [],
            "newest": NEWEST,
            "witness_file": witness.NAME,
            "witnessed": None if witnessed is None else len(witnessed),
            "most_exported": MAX_EXPORTED,
        }
        return TemplateResponse(request, "audit/evidence.html", context)

    return page


def download(request: HttpRequest) -> HttpResponse:
    """Download the newest checkpoints. Superusers only: a checkpoint names the chains of every tenant."""
    if not tenant_permissions_of(request).is_superuser:
        raise PermissionDenied
    lines = statements.exported_lines(newest=MAX_EXPORTED)
    return HttpResponse(
        "".join(f"{line}\n" for line in lines),
        content_type="application/jsonl",
        headers={"Content-Disposition": 'attachment; filename="checkpoints.jsonl"'},
    )


def _chosen(request: HttpRequest, tenants: Any) -> Tenant | None:
    """Return the selected tenant. Raises Http404 alike for a missing tenant and for one the user cannot access."""
    wanted = request.GET.get("tenant")
    if not wanted:
        return None if tenant_permissions_of(request).is_superuser else only(tenants)
    tenant: Tenant | None = by_id(tenants, "pk", wanted).first()
    if tenant is None:
        raise Http404("Tenant not found.")
    return tenant


def _state(scope: Scope) -> State:
    # Ordered to use an index: one begins with the tenant, and ids increase with time.
    newest = scope.calls().order_by("-id" if scope.tenant_id is None else "-started_at")
    chains = list(newest.values_list("writer", "tenant_id")[:MAX_COUNTED])
    last = Checkpoint.objects.order_by("-id").values_list("made_at", flat=True).first()
    return State(len(chains), len(set(chains)), last)


def _found(report: Report, names: dict[UUID, str]) -> list[Found]:
    shown = report.findings[:MAX_SHOWN]
    ids = [finding.call_id for finding in shown if finding.call_id]
    there = set(Call.objects.filter(pk__in=ids).values_list("pk", flat=True))
    return [
        Found(finding, names.get(finding.tenant_id, "") if finding.tenant_id else "", finding.call_id in there)
        for finding in shown
    ]
