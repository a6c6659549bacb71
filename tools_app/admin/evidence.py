"""The page that tells whether the audit log can be trusted: how it is signed, and a quick look at its newest records.

Each person sees the chains of one tenant within reach; a superuser may also see all of them, and download the
checkpoints. Verifying everything takes long, and is what `manage.py verify_audit` is for.
"""

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

from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import MOST_CHOICES, by_id, only
from tools_app.audit import signing, statements
from tools_app.audit.verification.report import Finding, Report
from tools_app.audit.verification.verify import Scope, verify
from tools_app.auth import access
from tools_app.models import Call, Checkpoint, Tenant

# What is looked at within a request: about a second's work, and never more than this.
NEWEST = 10_000
SECONDS = 5.0
MOST_SHOWN = 20
MOST_COUNTED = 10_000
MOST_EXPORTED = 20_000


@dataclass(frozen=True)
class State:
    """How the records of a scope stand. Counted are the newest MOST_COUNTED at most."""

    records: int
    chains: int
    last_checkpoint: datetime | None

    @property
    def has_more(self) -> bool:
        """Whether there may be more records than were counted."""
        return self.records == MOST_COUNTED


@dataclass(frozen=True)
class Found:
    """A finding with what the page shows beside it. `link`: there is a page of the record."""

    finding: Finding
    tenant: str
    link: bool


def urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of the page and of its download."""
    return [
        path("evidence/", site.admin_view(_page(site)), name="evidence"),
        path("evidence/checkpoints.jsonl", site.admin_view(require_GET(download)), name="evidence_checkpoints"),
    ]


def _page(site: AdminSite) -> Any:
    @require_http_methods(["GET", "POST"])
    def page(request: HttpRequest) -> HttpResponse:
        tenants = access.tenants_seen_by(request.user).order_by("name")
        sees_all = reach_of(request).everything
        tenant = _chosen(request, tenants)
        is_chosen = tenant is not None or sees_all
        scope = Scope(tenant_id=tenant.pk if tenant else None, newest=NEWEST, seconds=SECONDS)
        report = verify(scope) if is_chosen and request.method == "POST" else None
        context = {
            **site.each_context(request),
            "title": "Evidence",
            "tenant": tenant,
            "tenants": tenants[:MOST_CHOICES],
            "sees_all": sees_all,
            "state": _state(scope) if is_chosen else None,
            "public_key": signing.own_key(),
            "fingerprint": signing.fingerprint(signing.own_key()),
            "report": report,
            "found": _found(report, dict(tenants.values_list("pk", "name"))) if report else [],
            "newest": NEWEST,
            "most_exported": MOST_EXPORTED,
        }
        return TemplateResponse(request, "admin/tools_app/evidence.html", context)

    return page


def download(request: HttpRequest) -> HttpResponse:
    """The newest checkpoints as a file, for superusers: a checkpoint names the chains of every tenant."""
    if not reach_of(request).everything:
        raise PermissionDenied
    lines = statements.exported_lines(newest=MOST_EXPORTED)
    return HttpResponse(
        "".join(f"{line}\n" for line in lines),
        content_type="application/jsonl",
        headers={"Content-Disposition": 'attachment; filename="checkpoints.jsonl"'},
    )


def _chosen(request: HttpRequest, tenants: Any) -> Tenant | None:
    """The tenant that the page is about. Raises Http404 for one that is foreign or missing, which looks the same."""
    wanted = request.GET.get("tenant")
    if not wanted:
        return None if reach_of(request).everything else only(tenants)
    tenant: Tenant | None = by_id(tenants, "pk", wanted).first()
    if tenant is None:
        raise Http404("There is no such tenant.")
    return tenant


def _state(scope: Scope) -> State:
    # By the index at hand: one begins with the tenant, and ids grow with time.
    newest = scope.calls().order_by("-id" if scope.tenant_id is None else "-started_at")
    chains = list(newest.values_list("writer", "tenant_id")[:MOST_COUNTED])
    last = Checkpoint.objects.order_by("-id").values_list("made_at", flat=True).first()
    return State(len(chains), len(set(chains)), last)


def _found(report: Report, names: dict[UUID, str]) -> list[Found]:
    shown = report.findings[:MOST_SHOWN]
    ids = [finding.call_id for finding in shown if finding.call_id]
    there = set(Call.objects.filter(pk__in=ids).values_list("pk", flat=True))
    return [
        Found(finding, names.get(finding.tenant_id, "") if finding.tenant_id else "", finding.call_id in there)
        for finding in shown
    ]
