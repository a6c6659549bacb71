"""`manage.py metrics`: print the metrics of this host's processes, for hosts without a web process to scrape."""

from typing import Any

from django.core.management.base import BaseCommand

from tools_app.core.telemetry import snapshots
from tools_app.core.telemetry.exposition import exposed
from tools_app.runtime import metrics_publisher


class Command(BaseCommand):
    help = "Print the metrics of this host's processes, for example for the textfile collector of node_exporter."

    def handle(self, **options: Any) -> None:
        self.stdout.write(exposed(snapshots.current_snapshots(metrics_publisher.directory())).decode(), ending="")
