"""`manage.py rebuild_figures`: rebuild the dashboard's statistics from the calls in the audit log."""

from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tools_app.audit.stats import rebuild


class Command(BaseCommand):
    help = (
        "Recalculate the dashboard's statistics from the calls in the audit log, up to the current hour. Needed for "
        "calls that were restored or imported. The hub can keep running."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since", metavar="YYYY-MM-DD", help="First day, in UTC (default: the day of the oldest call)."
        )

    def handle(self, *, since: str | None, **options: Any) -> None:
        try:
            day = None if since is None else datetime.strptime(since, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError as error:
            raise CommandError("--since must be a date such as 2026-05-04.") from error
        records = 0
        for step in rebuild.rebuild(day):
            records += step.records
            if step.records:
                self.stdout.write(f"{step.begin:%Y-%m-%d %H:%M}: {step.records} records")
                # Flushed, so that progress is visible through a pipe.
                self.stdout.flush()
        self.stdout.write(f"{records} records counted." if records else "No calls to count.")
