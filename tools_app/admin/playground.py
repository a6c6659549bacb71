"""The playground: a page that calls tools as a key, through the endpoint itself, and what that page asks of the admin.

The page is a client of the protocol like any other. It carries a pass, which is given here to those who run the key's
tenant; everything else happens between the browser and `/t/SLUG/mcp`.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from tools_app.admin.dashboard import active_keys
from tools_app.admin.reach import reach_of
from tools_app.admin.scoped import MOST_CHOICES
from tools_app.auth import access, call_snippets, passes, snippets
from tools_app.auth.call_snippets import Asked
from tools_app.models import ApiKey, Call, RunningCall, Tool
from tools_app.models.config import config
from tools_app.protocol import jsonrpc
from tools_app.protocol.errors import RpcError
from tools_app.protocol.versions import HANDSHAKE_VERSIONS, LOG_LEVELS, MODERN_VERSIONS

VERSIONS: Final = (*MODERN_VERSIONS, *reversed(HANDSHAKE_VERSIONS))
MOST_RECORDS: Final = 20
# Calls are looked for among those of so long at most: a trace alone has no index.
LOOK_BACK: Final = timedelta(hours=1)
LONGEST_REQUEST: Final = 262_144


class Coded(msgspec.Struct, frozen=True):
    """The request that is to be shown as code."""

    method: Literal["tools/list", "tools/call", "resources/read", "prompts/get"]
    params: dict[str, Any]
    version: Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
    mirrored: dict[str, str] = {}


def urls(site: AdminSite) -> list[URLPattern]:
    """The addresses of the page and of what it asks for."""
    return [
        path("playground/", site.admin_view(_page(site)), name="playground"),
        path("playground/pass/", site.admin_view(require_POST(give_pass)), name="playground_pass"),
        path("playground/code/", site.admin_view(require_POST(write_code)), name="playground_code"),
        path("playground/records/", site.admin_view(require_GET(find_records)), name="playground_records"),
    ]


def _page(site: AdminSite) -> Callable[[HttpRequest], HttpResponse]:
    @require_GET
    def page(request: HttpRequest) -> HttpResponse:
        if not reach_of(request).runs_any:
            raise PermissionDenied
        tool = _chosen_tool(request)
        keys = _keys_run(request)
        context = {
            **site.each_context(request),
            "title": "Playground",
            "is_fullwidth": "1",
            "keys": keys,
            "tool": tool,
            "lacks_key": tool is not None and all(key.tenant_id != tool.tenant_id for key in keys),
            "start": {
                "keys": [_key_facts(key) for key in keys],
                "key": str(_chosen_key(request, keys) or ""),
                "tenant": tool.tenant.slug if tool else "",
                "tool": tool.name if tool else "",
                "versions": VERSIONS,
                "modern": MODERN_VERSIONS,
                "levels": LOG_LEVELS,
                "passUrl": reverse("admin:playground_pass"),
                "codeUrl": reverse("admin:playground_code"),
                "recordsUrl": reverse("admin:playground_records"),
            },
        }
        return TemplateResponse(request, "admin/tools_app/playground.html", context)

    return page


def give_pass(request: HttpRequest) -> HttpResponse:
    """A pass for a key of a tenant that this person runs, and for how many seconds it is good."""
    key = key_run(request, request.POST.get("key"))
    if not ApiKey.objects.filter(active_keys(), pk=key.pk, tenant__is_active=True).exists():
        problem = "This key is not active any more, or its tenant is switched off. Choose another key."
        return JsonResponse({"problem": problem}, status=409)
    try:
        given = passes.issue(key, request.user)
    except passes.NotAllowed as problem:
        raise PermissionDenied from problem
    return JsonResponse({"pass": given, "seconds": passes.SECONDS})


def write_code(request: HttpRequest) -> HttpResponse:
    """A request as curl and as programs, with a placeholder for the key."""
    key = key_run(request, request.POST.get("key"))
    try:
        asked = _asked(request.POST.get("request", ""))
    except (RpcError, msgspec.ValidationError) as problem:
        return JsonResponse({"problem": f"This cannot be written as code: {problem}"}, status=400)
    url = snippets.endpoint(request.build_absolute_uri("/"), key.tenant.slug)
    writers = {"curl": call_snippets.curl, "python": call_snippets.python, "typescript": call_snippets.typescript}
    return JsonResponse({name: write(url, snippets.PLACEHOLDER, asked) for name, write in writers.items()})


def _asked(text: str) -> Asked:
    """Raises RpcError and ValidationError for what is no request."""
    raw = text.encode()
    if len(raw) > LONGEST_REQUEST:
        raise RpcError(0, f"it is longer than {LONGEST_REQUEST} bytes.")
    coded = msgspec.convert(jsonrpc.decode(raw, config.MCPHUB_MAX_JSON_DEPTH), Coded)
    return Asked(coded.method, coded.params, coded.version, coded.mirrored)


def find_records(request: HttpRequest) -> HttpResponse:
    """The records of the calls that were made as a key in one trace, the newest hour's, in their order."""
    key = key_run(request, request.GET.get("key"))
    trace = request.GET.get("trace", "")
    since = max(_moment(request.GET.get("since", "")), timezone.now() - LOOK_BACK)
    wanted = {"tenant": key.tenant_id, "api_key": key.pk, "trace_id": trace, "started_at__gte": since}
    settled = Call.objects.filter(**wanted).order_by("started_at")[:MOST_RECORDS] if trace else []
    running = RunningCall.objects.filter(**wanted).order_by("started_at")[:MOST_RECORDS] if trace else []
    records = [_record(call, "call", call.get_outcome_display()) for call in settled]
    records += [_record(call, "runningcall", "Running") for call in running]
    return JsonResponse({"records": records})


def _record(call: Call | RunningCall, page: str, says: str) -> dict[str, str]:
    return {"url": reverse(f"admin:tools_app_{page}_change", args=[call.pk]), "says": says, "page": page}


def _moment(milliseconds: str) -> datetime:
    """A moment that a browser tells in milliseconds since 1970; the oldest there is for anything else."""
    try:
        return datetime.fromtimestamp(int(milliseconds[:16]) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.min.replace(tzinfo=UTC)


def key_run(request: HttpRequest, key_id: str | None) -> ApiKey:
    """A key of a tenant that this person runs. Raises Http404 if it is foreign, PermissionDenied if only read."""
    key = _row(ApiKey, key_id)
    if key is None or not reach_of(request).sees(key.tenant_id):
        raise Http404("There is no such key.")
    if not reach_of(request).changes(key.tenant_id):
        raise PermissionDenied
    found: ApiKey = key
    return found


def _chosen_tool(request: HttpRequest) -> Tool | None:
    """The tool that a link asks for. Raises Http404 if it is foreign, PermissionDenied if its tenant is only read."""
    wanted = request.GET.get("tool")
    if not wanted:
        return None
    tool: Tool | None = _row(Tool, wanted)
    if tool is None or not reach_of(request).sees(tool.tenant_id):
        raise Http404("There is no such tool.")
    if not reach_of(request).changes(tool.tenant_id):
        raise PermissionDenied
    return tool


def _chosen_key(request: HttpRequest, keys: list[ApiKey]) -> UUID | None:
    """The key that a link asks for, if it is one to choose."""
    wanted = request.GET.get("key")
    return next((key.pk for key in keys if str(key.pk) == wanted), None)


def _row(model: Any, row_id: str | None) -> Any:
    try:
        return model.objects.select_related("tenant").filter(pk=UUID(row_id or "")).first()
    except ValueError:
        return None


def _keys_run(request: HttpRequest) -> list[ApiKey]:
    tenants = access.tenants_run_by(request.user).filter(is_active=True)
    keys = ApiKey.objects.filter(active_keys(), tenant__in=tenants).select_related("tenant")
    return list(keys.order_by("tenant__name", "name")[:MOST_CHOICES])


def _key_facts(key: ApiKey) -> Mapping[str, str]:
    return {"id": str(key.pk), "name": str(key), "slug": key.tenant.slug, "tenant": key.tenant.name}
