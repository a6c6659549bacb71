"""How the parts of the hub are, for the first page: asked by its script, so that a part that hangs holds up no page."""

from typing import Any, Final

from django.conf import settings
from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.views.decorators.http import require_GET

from tools_app.admin.reach import reach_of
from tools_app.execution import hub_numbers
from tools_app.telemetry.tallies import Snapshot

NAMES: Final = {"database": "Database", "broker": "Broker", "channel_layer": "Channel layer"}
LONG_SECONDS: Final = 60.0


def urls(site: AdminSite) -> list[URLPattern]:
    """Where the script asks."""
    return [path("health/", site.admin_view(_health), name="health")]


@require_GET
def _health(request: HttpRequest) -> HttpResponse:
    """Each part with what it says. It tells of the whole hub, so it is for superusers."""
    if not reach_of(request).everything:
        raise PermissionDenied("Only superusers see how the parts of the hub are.")
    workers = None if is_embedded() else hub_numbers.workers()
    response = JsonResponse({"parts": parts(hub_numbers.snapshot(), workers)})
    response["Cache-Control"] = "no-store"
    return response


def is_embedded() -> bool:
    """Whether the workers are threads of the web process, and so is their broker."""
    return str(settings.CELERY_BROKER_URL).startswith("memory:")


def parts(snapshot: Snapshot, workers: int | None) -> list[dict[str, Any]]:
    """What the hub's own numbers say of its parts, in words. `workers` answered; None if there are none to ask."""
    told = {(name, *labels): value for name, labels, value in snapshot["gauges"]}
    return [
        *(_reached(told, part, name) for part, name in NAMES.items()),
        _workers(workers),
        _queue(told),
    ]


def _part(name: str, says: str, *, is_well: bool) -> dict[str, Any]:
    return {"name": name, "says": says, "is_well": is_well}


def _reached(told: dict[Any, float], part: str, name: str) -> dict[str, Any]:
    if told.get(("mcphub_part_up", part)):
        return _part(name, "Answers", is_well=True)
    return _part(name, "Does not answer. The log says why; so does manage.py doctor.", is_well=False)


def _workers(count: int | None) -> dict[str, Any]:
    if is_embedded():
        return _part("Workers", f"{settings.MCPHUB_WORKER_THREADS} threads of this process", is_well=True)
    if count is None:
        return _part("Workers", "Not known: the broker does not answer.", is_well=False)
    start = "None answers: background calls wait. Start one: celery -A mcphub worker --pool threads --concurrency 8."
    return _part("Workers", f"{count} answer" if count else start, is_well=bool(count))


def _queue(told: dict[Any, float]) -> dict[str, Any]:
    waiting = told.get(("mcphub_queued_calls",))
    if waiting is None:
        return _part("Queue", "Not known: the database does not answer.", is_well=False)
    if not waiting:
        return _part("Queue", "No call waits", is_well=True)
    seconds = told["mcphub_oldest_queued_call_seconds",]
    says = f"{waiting:.0f} calls wait, the oldest for {seconds:.0f} s"
    is_well = seconds < LONG_SECONDS
    return _part("Queue", says if is_well else f"{says}. See to the workers, or start more.", is_well=is_well)
