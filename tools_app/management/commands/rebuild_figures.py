"""`manage.py rebuild_figures`: make the dashboard's figures anew from the calls in the log."""

from argparse import ArgumentParser
from datetime import UTC, datetime, time
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.dateparse import parse_date

from tools_app.audit import figures_rebuilt


class Command(BaseCommand):
    help = (
        "Make the figures of the dashboard anew from the calls in the log, up to the hour that runs: for calls that "
        "were recorded before there were figures, or that were brought in otherwise. The hub may run meanwhile."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since", metavar="YYYY-MM-DD", help="The first day, in UTC (default: that of the oldest call)."
        )

    def handle(self, *, since: str | None, **options: Any) -> None:
        records = 0
        for step in figures_rebuilt.rebuild(_day(since) if since is not None else None):
            records += step.records
            if step.records:
                self.stdout.write(f"{step.begin:%Y-%m-%d %H:%M}: {step.records} records")
                # Flushed, for whoever watches a long run through a pipe.
                self.stdout.flush()
        self.stdout.write(f"{records} records counted." if records else "There are no calls to count.")


def _day(text: str) -> datetime:
    try:
        day = parse_date(text)
    except ValueError:
        day = None
    if day is None:
        raise CommandError("--since: write a day as YYYY-MM-DD.")
    return datetime.combine(day, time.min, UTC)
