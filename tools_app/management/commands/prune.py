"""`manage.py prune`: delete calls beyond their retention period, in batches that let other calls through."""

from argparse import ArgumentParser
from collections import Counter
from time import sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tools_app.audit import partitions, retention
from tools_app.management.base import tenant_with
from tools_app.models import Tenant


class Command(BaseCommand):
    help = (
        "Delete calls, with their payloads and events, and ended sessions that are older than the retention of their "
        "tenant (or MCPHUB_KEEP_DAYS), and create the partitions of the coming months."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="Only this tenant.")
        parser.add_argument("--dry-run", action="store_true", help="Only count the calls that would be deleted.")
        parser.add_argument("--batch", type=int, default=retention.BATCH, help="Rows per batch (default: %(default)s).")
        parser.add_argument(
            "--pause",
            type=float,
            default=retention.PAUSE_SECONDS,
            metavar="SECONDS",
            help="Pause between two batches (default: %(default)s).",
        )

    def handle(self, *, tenant: str | None, dry_run: bool, batch: int, pause: float, **options: Any) -> None:
        if not 1 <= batch <= retention.MAX_ROWS:
            raise CommandError(f"--batch must be a number from 1 to {retention.MAX_ROWS}.")
        if not 0 <= pause <= retention.MAX_PAUSE_SECONDS:
            raise CommandError(f"--pause must be a number of seconds from 0 to {retention.MAX_PAUSE_SECONDS:.0f}.")
        only = tenant_with(tenant) if tenant is not None else None
        if dry_run:
            self._count(only)
        else:
            self._prune(only, batch, pause)

    def _count(self, only: Tenant | None) -> None:
        found = retention.due(only)
        for due in found:
            self.stdout.write(f"{due.of}: {due.calls} calls older than {due.before:%Y-%m-%d %H:%M}")
        if not found:
            self.stdout.write("Nothing to prune.")

    def _prune(self, only: Tenant | None, batch: int, pause: float) -> None:
        for month in partitions.create_upcoming():
            self.stdout.write(f"{month}: partitions created")
        done: Counter[tuple[str, str]] = Counter()
        for step in retention.prune(only, batch=batch):
            done[step.of, step.what] += step.rows
            so_far = done[step.of, step.what]
            self.stdout.write(f"{step.of}: {so_far} {step.what} pruned, up to {step.until:%Y-%m-%d %H:%M}")
            # Flushed, so that progress is visible through a pipe.
            self.stdout.flush()
            sleep(pause)
        if not done:
            self.stdout.write("Nothing to prune.")
