"""`manage.py rebuild_figures`: rebuild the dashboard's statistics from the calls in the audit log."""

from argparse import ArgumentParser
from datetime import UTC, datetime, time
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.dateparse import parse_date

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
        records = 0
        for step in rebuild.rebuild(_day(since) if since is not None else None):
            records += step.records
            if step.records:
                self.stdout.write(f"{step.begin:%Y-%m-%d %H:%M}: {step.records} records")
                # Flushed, so that progress is visible through a pipe.
                self.stdout.flush()
        self.stdout.write(f"{records} records counted." if records else "No calls to count.")


def _day(text: str) -> datetime:
    try:
        day = parse_date(text)
    except ValueError:
        day = None
    if day is None:
        raise CommandError("--since must be a date such as 2026-05-04.")
    return datetime.combine(day, time.min, UTC)
