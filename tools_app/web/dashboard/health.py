"""Health of the hub's components, loaded by a script so that an unresponsive component does not delay the page."""

from typing import Any, Final

from django.conf import settings
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET

from tools_app.core.telemetry.registry import Snapshot
from tools_app.runtime import hub_stats
from tools_app.tenants.permissions import tenant_permissions_of

NAMES: Final = {"database": "Database", "recorder": "Recorder", "broker": "Broker", "channel_layer": "Channel layer"}
LONG_SECONDS: Final = 60.0
NO_WORKER: Final = (
    "No worker responds; background calls wait. Start one: celery -A mcphub worker --pool threads --concurrency 8."
)


def urls(site: AdminSite) -> list[URLPattern]:
    """Return the URL pattern of the health fragment."""
    return [path("health/", site.admin_view(_health), name="health")]


@require_GET
def _health(request: HttpRequest) -> HttpResponse:
    """Show the state of each component. Superusers only: it covers the whole hub."""
    if not tenant_permissions_of(request).is_superuser:
        raise PermissionDenied("Only superusers can see the health of the hub.")
    workers = None if is_embedded() else hub_stats.workers()
    response = JsonResponse({"parts": parts(hub_stats.snapshot(), workers)})
    response["Cache-Control"] = "no-store"
    return response


def is_embedded() -> bool:
    """Return whether workers and broker run as threads of the web process."""
    return str(settings.CELERY_BROKER_URL).startswith("memory:")


def parts(snapshot: Snapshot, workers: int | None) -> list[dict[str, Any]]:
    """Describe each component from the hub's metrics. `workers` is the number that responded, or None if unknown."""
    gauges = {(name, *labels): value for name, labels, value in snapshot["gauges"]}
    found = []
    for part, name in NAMES.items():
        is_up = bool(gauges.get(("mcphub_part_up", part)))
        found.append((name, "Available" if is_up else "Unavailable. See the log or run manage.py doctor.", is_up))
    if is_embedded():
        found.append(("Workers", f"{settings.MCPHUB_WORKER_THREADS} threads of this process", True))
    elif workers is None:
        found.append(("Workers", "Unknown: the broker is unavailable.", False))
    else:
        found.append(("Workers", f"{workers} available" if workers else NO_WORKER, bool(workers)))
    waiting = gauges.get(("mcphub_queued_calls",))
    if waiting is None:
        found.append(("Queue", "Unknown: the database is unavailable.", False))
    elif not waiting:
        found.append(("Queue", "No calls are waiting", True))
    else:
        seconds = gauges["mcphub_oldest_queued_call_seconds",]
        is_well = seconds < LONG_SECONDS
        advice = "" if is_well else ". Check the workers or start more of them."
        found.append(("Queue", f"{waiting:.0f} calls wait, the oldest for {seconds:.0f} s{advice}", is_well))
    return [{"name": name, "says": says, "is_well": is_well} for name, says, is_well in found]
