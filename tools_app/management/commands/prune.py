"""`manage.py prune`: delete calls that are older than they are kept, in batches that leave room for calls."""

from argparse import ArgumentParser
from collections import Counter
from time import sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tools_app.audit import partitions, retention
from tools_app.audit.retention import Step
from tools_app.models import Tenant


class Command(BaseCommand):
    help = (
        "Delete calls with their payloads and events, and ended sessions, that are older than their tenant "
        "(or MCPHUB_KEEP_DAYS) keeps them, and make the partitions of the months to come."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="Prune this tenant only.")
        parser.add_argument("--dry-run", action="store_true", help="Tell how many calls there are to prune.")
        parser.add_argument("--batch", type=int, default=retention.BATCH, help="Rows at a time (default: %(default)s).")
        parser.add_argument(
            "--pause",
            type=float,
            default=retention.PAUSE_SECONDS,
            metavar="SECONDS",
            help="Rest between two batches (default: %(default)s).",
        )

    def handle(self, *, tenant: str | None, dry_run: bool, batch: int, pause: float, **options: Any) -> None:
        if not 1 <= batch <= retention.MOST_ROWS:
            raise CommandError(f"--batch: write a number from 1 to {retention.MOST_ROWS}.")
        if not 0 <= pause <= retention.LONGEST_PAUSE_SECONDS:
            raise CommandError(f"--pause: write seconds from 0 to {retention.LONGEST_PAUSE_SECONDS:.0f}.")
        only = _tenant(tenant) if tenant is not None else None
        if dry_run:
            self._count(only)
        else:
            self._prune(only, batch, pause)

    def _count(self, only: Tenant | None) -> None:
        found = retention.due(only)
        for due in found:
            self.stdout.write(f"{due.of}: {due.calls} calls from before {due.before:%Y-%m-%d %H:%M}")
        if not found:
            self.stdout.write("There is nothing to prune.")

    def _prune(self, only: Tenant | None, batch: int, pause: float) -> None:
        for month in partitions.make_ahead():
            self.stdout.write(f"{month}: partitions made")
        done: Counter[tuple[str, str]] = Counter()
        for step in retention.prune(only, batch=batch):
            done[step.of, step.what] += step.rows
            self._tell(step, done[step.of, step.what])
            sleep(pause)
        if not done:
            self.stdout.write("There is nothing to prune.")

    def _tell(self, step: Step, so_far: int) -> None:
        self.stdout.write(f"{step.of}: {so_far} {step.what} pruned, up to {step.until:%Y-%m-%d %H:%M}")
        # Flushed, for whoever watches a long run through a pipe.
        self.stdout.flush()


def _tenant(slug: str) -> Tenant:
    try:
        return Tenant.objects.get(slug=slug)
    except Tenant.DoesNotExist:
        raise CommandError(f"There is no tenant {slug!r}.") from None
