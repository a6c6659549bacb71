"""Charts of the overview as Chart.js data for unfold's components. Colours suit light and dark themes."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from django.utils import timezone

from tools_app.audit.stats.overview import Overview, Period, Point

GREY: Final = "#7c8594"
BLUE, RED, AMBER, VIOLET, TEAL = "#3b82f6", "#dc2626", "#d97706", "#9333ea", "#0d9488"
MILLISECOND: Final = 1000
DAY: Final = timedelta(days=1)


def label(moment: datetime, period: Period) -> str:
    """Return the label of a point: its start in the viewer's time zone, as short as the period allows."""
    local = timezone.localtime(moment)
    if period.length <= DAY:
        return f"{local:%H:%M}"
    return f"{local:%a %H:%M}" if period.step < DAY else f"{local.day} {local:%b}"


def calls_chart(overview: Overview) -> dict[str, str]:
    """Return the chart of successful and failed calls and of denials."""
    statistics = [point.statistics for point in overview.points]
    return _chart(
        overview,
        [
            _bars("OK", BLUE, [one.succeeded for one in statistics]),
            _bars("Errors", RED, [one.errors for one in statistics]),
            _bars("Denials", AMBER, [one.denials for one in statistics]),
        ],
        stacked=True,
    )


def latency_chart(overview: Overview) -> dict[str, str]:
    """Return the chart of call durations."""
    return _chart(
        overview,
        [
            _line("Median (ms)", TEAL, overview.points, lambda point: point.statistics.p50_us),
            _line("p95 (ms)", VIOLET, overview.points, lambda point: point.statistics.p95_us),
        ],
        stacked=False,
    )


def _chart(overview: Overview, datasets: list[dict[str, Any]], *, stacked: bool) -> dict[str, str]:
    labels = [label(point.begins_at, overview.period) for point in overview.points]
    ticks = {"color": GREY, "maxTicksLimit": 8, "maxRotation": 0, "autoSkipPadding": 12}
    key = {"color": GREY, "usePointStyle": True, "boxWidth": 8, "boxHeight": 8}
    options = {
        "animation": False,
        "responsive": True,
        "maintainAspectRatio": False,
        "interaction": {"mode": "index", "intersect": False},
        "plugins": {"legend": {"display": True, "align": "end", "labels": key}},
        "scales": {
            "x": {"stacked": stacked, "grid": {"display": False}, "ticks": ticks},
            "y": {"stacked": stacked, "beginAtZero": True, "grid": {}, "ticks": {**ticks, "precision": 0}},
        },
    }
    return {"data": json.dumps({"labels": labels, "datasets": datasets}), "options": json.dumps(options)}


def _bars(name: str, colour: str, values: list[int]) -> dict[str, Any]:
    return {"label": name, "data": values, "backgroundColor": colour, "maxBarThickness": 24}


def _line(name: str, colour: str, points: list[Point], value: Callable[[Point], float | None]) -> dict[str, Any]:
    values = [value(point) for point in points]
    return {
        "label": name,
        "data": [None if us is None else round(us / MILLISECOND, 2) for us in values],
        "borderColor": colour,
        "backgroundColor": colour,
        "borderWidth": 2,
        "pointRadius": 2,
        "spanGaps": True,
    }
