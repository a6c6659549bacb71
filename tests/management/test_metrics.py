"""The command `metrics`, for hosts without a web process."""

from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import call_command

from tools_app.core.telemetry.registry import MetricRegistry
from tools_app.core.telemetry.snapshots import Publisher


def test_it_prints_what_the_processes_of_this_host_counted(settings: Any, tmp_path: Path) -> None:
    settings.MCPHUB_DATA_DIR = tmp_path
    metrics_registry = MetricRegistry()
    metrics_registry.add("mcphub_denials_total", 3, ("401",))
    Publisher(tmp_path / "metrics", metrics_registry).publish()
    out = StringIO()

    call_command("metrics", stdout=out)

    assert 'mcphub_denials_total{status="401"} 3.0\n' in out.getvalue()
