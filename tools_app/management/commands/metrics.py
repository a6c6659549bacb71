"""`manage.py metrics`: the numbers of this host's processes on stdout, where no web process can be scraped."""

from typing import Any

from django.core.management.base import BaseCommand

from tools_app.execution import measures
from tools_app.telemetry import snapshots
from tools_app.telemetry.exposition import exposed


class Command(BaseCommand):
    help = "Print the metrics of this host's processes, for example for the textfile collector of node_exporter."

    def handle(self, **options: Any) -> None:
        self.stdout.write(exposed(snapshots.gathered(measures.directory())).decode(), ending="")
