"""The playground: a page that calls tools through the MCP endpoint with a key, and the endpoints that the page uses.

The page is an ordinary MCP client. It authenticates with an impersonation token, issued here to admins of the key's
tenant; everything else happens between the browser and `/t/SLUG/mcp`.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
import orjson
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from tools_app.models import ApiKey, Call, RunningCall, Tool
from tools_app.protocol import jsonrpc
from tools_app.protocol.errors import RpcError
from tools_app.protocol.versions import HANDSHAKE_VERSIONS, LOG_LEVELS, MODERN_VERSIONS
from tools_app.tenants import impersonation, permissions
from tools_app.tenants.keys import valid_keys, without_connections
from tools_app.tenants.permissions import tenant_permissions_of
from tools_app.tenants.snippets import calls, clients
from tools_app.tenants.snippets.calls import SnippetRequest
from tools_app.web.admin.scoping import MAX_CHOICES
from tools_app.web.playground.run_again import run_again_of

VERSIONS: Final = (*MODERN_VERSIONS, *reversed(HANDSHAKE_VERSIONS))
MAX_RECORDS: Final = 20
# Calls are searched only among those of this period, since there is no index by trace alone.
LOOK_BACK: Final = timedelta(hours=1)
MAX_REQUEST: Final = 262_144


class CodeRequest(msgspec.Struct, frozen=True):
    """The request to show as code."""

    method: Literal["tools/list", "tools/call", "resources/read", "prompts/get"]
    params: dict[str, Any]
    version: Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
    mirrored: dict[str, str] = {}


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL patterns of the page and its endpoints."""
    return [
        path("playground/", site.admin_view(_page(site)), name="playground"),
        path("playground/pass/", site.admin_view(require_POST(issue_token)), name="playground_pass"),
        path("playground/code/", site.admin_view(require_POST(write_code)), name="playground_code"),
        path("playground/records/", site.admin_view(require_GET(find_records)), name="playground_records"),
    ]


def _page(site: AdminSite) -> Callable[[HttpRequest], HttpResponse]:
    @require_GET
    def page(request: HttpRequest) -> HttpResponse:
        if not tenant_permissions_of(request).is_admin_anywhere:
            raise PermissionDenied
        tool = _chosen_tool(request)
        again = run_again_of(request, request.GET.get("call"))
        tenants = permissions.tenants_run_by(request.user).filter(is_active=True)
        rows = valid_keys(without_connections(ApiKey.objects.filter(tenant__in=tenants)))
        keys = list(rows.select_related("tenant").order_by("tenant__name", "name")[:MAX_CHOICES])
        again_start: dict[str, Any] = {}
        if again is not None:
            call = again.call
            slug = call.tenant.slug if call.tenant else ""
            again_start = {"tenant": slug, "tool": call.tool_name, "arguments": again.arguments}
            again_start["key"] = str(call.api_key_id or "")
        context = {
            **site.each_context(request),
            "title": "Playground",
            "is_fullwidth": "1",
            "keys": keys,
            "tool": tool,
            "again": again,
            "lacks_key": tool is not None and all(key.tenant_id != tool.tenant_id for key in keys),
            "start": {
                "keys": [
                    {"id": str(key.pk), "name": str(key), "slug": key.tenant.slug, "tenant": key.tenant.name}
                    for key in keys
                ],
                "key": next((str(key.pk) for key in keys if str(key.pk) == request.GET.get("key")), ""),
                "tenant": tool.tenant.slug if tool else "",
                "tool": tool.name if tool else "",
                **again_start,
                "versions": VERSIONS,
                "modern": MODERN_VERSIONS,
                "levels": LOG_LEVELS,
                "passUrl": reverse("admin:playground_pass"),
                "codeUrl": reverse("admin:playground_code"),
                "recordsUrl": reverse("admin:playground_records"),
            },
        }
        return TemplateResponse(request, "web/playground.html", context)

    return page


def issue_token(request: HttpRequest) -> HttpResponse:
    """Return an impersonation token for a key of a tenant that this user administers, and its lifetime in seconds."""
    key = key_run(request, request.POST.get("key"))
    if not valid_keys(without_connections(ApiKey.objects.filter(pk=key.pk, tenant__is_active=True))).exists():
        problem = "This key is no longer active, or its tenant is disabled. Choose another key."
        return JsonResponse({"problem": problem}, status=409)
    try:
        given = impersonation.issue(key, request.user)
    except impersonation.NotAllowed as error:
        raise PermissionDenied from error
    return JsonResponse({"pass": given, "seconds": impersonation.LIFETIME_SECONDS})


def write_code(request: HttpRequest) -> HttpResponse:
    """Return a request as curl and as programs, with a placeholder for the key."""
    key = key_run(request, request.POST.get("key"))
    try:
        raw = request.POST.get("request", "").encode()
        if len(raw) > MAX_REQUEST:
            raise RpcError(0, f"the request has more than {MAX_REQUEST} bytes.")
        coded = msgspec.convert(jsonrpc.decode(raw, loads=orjson.loads), CodeRequest)
    except (RpcError, msgspec.ValidationError) as error:
        return JsonResponse({"problem": f"Cannot be shown as code: {error}"}, status=400)
    snippet_request = SnippetRequest(coded.method, coded.params, coded.version, coded.mirrored)
    url = clients.endpoint(request.build_absolute_uri("/"), key.tenant.slug)
    writers = {"curl": calls.curl, "python": calls.python, "typescript": calls.typescript}
    return JsonResponse({name: write(url, clients.PLACEHOLDER, snippet_request) for name, write in writers.items()})


def find_records(request: HttpRequest) -> HttpResponse:
    """Return the records of the last hour's calls made with a key in one trace, in order."""
    key = key_run(request, request.GET.get("key"))
    trace = request.GET.get("trace", "")
    since = timezone.now() - LOOK_BACK
    with suppress(ValueError, OverflowError, OSError):
        # Milliseconds since 1970.
        since = max(since, datetime.fromtimestamp(int(request.GET.get("since", "")[:16]) / 1000, UTC))
    wanted = {"tenant": key.tenant_id, "api_key": key.pk, "trace_id": trace, "started_at__gte": since}
    settled = Call.objects.filter(**wanted).order_by("started_at")[:MAX_RECORDS] if trace else []
    running = RunningCall.objects.filter(**wanted).order_by("started_at")[:MAX_RECORDS] if trace else []
    records = [_record(call, "call", call.get_outcome_display()) for call in settled]
    records += [_record(call, "runningcall", "Running") for call in running]
    return JsonResponse({"records": records})


def _record(call: Call | RunningCall, page: str, says: str) -> dict[str, str]:
    return {"url": reverse(f"admin:tools_app_{page}_change", args=[call.pk]), "says": says, "page": page}


def key_run(request: HttpRequest, key_id: str | None) -> ApiKey:
    """Return a key that this user administers. Raises Http404 if not accessible, PermissionDenied if read-only."""
    key: ApiKey = _row(ApiKey, key_id)
    tenant_permissions_of(request).require_change(key.tenant_id)
    return key


def _chosen_tool(request: HttpRequest) -> Tool | None:
    """Return the linked tool. Raises Http404 if not accessible, PermissionDenied if its tenant is read-only."""
    wanted = request.GET.get("tool")
    if not wanted:
        return None
    tool: Tool = _row(Tool, wanted)
    tenant_permissions_of(request).require_change(tool.tenant_id)
    return tool


def _row(model: Any, row_id: str | None) -> Any:
    try:
        return model.objects.select_related("tenant").get(pk=UUID(row_id or ""))
    except (ValueError, model.DoesNotExist):
        raise Http404("Not found.") from None
