"""The command `python -m benchmarks.seed_calls`."""

import re
from argparse import ArgumentParser
from time import monotonic
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import transaction

from benchmarks.seed_calls import fill
from benchmarks.seed_calls.shapes import Owner
from tools_app.management.base import RecordedCommand
from tools_app.models import Tenant
from tools_app.tenants import keys

PREFIX: Final = "seed-"
KEYS: Final = ("laptop", "server", "nightly")
MAX_CALLS, MAX_TENANTS, MAX_DAYS = 1_000_000_000, 1000, 10 * 365


class Command(RecordedCommand):
    help = (
        "Fill the audit log with generated calls for load tests. They belong to separate tenants, "
        f"{PREFIX}1, {PREFIX}2 and so on. --undo deletes these tenants with all their data."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--calls", type=int, default=10_000, metavar="N", help="Number of calls (default: %(default)s)."
        )
        parser.add_argument(
            "--tenants", type=int, default=3, metavar="N", help="Number of tenants (default: %(default)s)."
        )
        parser.add_argument(
            "--days", type=float, default=30, help="Spread over this number of days (default: %(default)s)."
        )
        parser.add_argument(
            "--undo", action="store_true", help="Delete the tenants created by this command, and their calls."
        )

    def handle(self, *, calls: int, tenants: int, days: float, undo: bool, **options: Any) -> None:
        if undo:
            self._undo()
            return
        _check("--calls", calls, 1, MAX_CALLS)
        _check("--tenants", tenants, 1, MAX_TENANTS)
        _check("--days", days, 0.01, MAX_DAYS)
        began = monotonic()
        owners = [_owner(f"{PREFIX}{number}") for number in range(1, tenants + 1)]
        fill.fill(owners, calls, days, lambda done: self._tell(f"{done:,} calls of {calls:,}"))
        self._tell(f"Done in {monotonic() - began:.0f} s. Delete them with `python -m benchmarks.seed_calls --undo`.")

    def _undo(self) -> None:
        ours = [tenant for tenant in Tenant.objects.filter(slug__startswith=PREFIX) if _is_ours(tenant)]
        for tenant in ours:
            gone = fill.remove(tenant.pk)
            with transaction.atomic():
                tenant.delete()
            self._tell(f"Deleted {tenant.slug} with {gone:,} calls.")
        if not ours:
            self._tell("Nothing to delete.")

    def _tell(self, text: str) -> None:
        self.stdout.write(text)
        # Flushed, so that progress is visible through a pipe.
        self.stdout.flush()


def _check(option: str, number: float, least: float, most: float) -> None:
    if not least <= number <= most:
        raise CommandError(f"{option} must be a number from {least} to {most:,}.")


def _name(slug: str) -> str:
    return f"Generated tenant {slug.removeprefix(PREFIX)}"


def _is_ours(tenant: Tenant) -> bool:
    """Whether this command created the tenant: a real tenant may have the same name."""
    return bool(re.fullmatch(rf"{PREFIX}[0-9]+", tenant.slug)) and tenant.name == _name(tenant.slug)


def _owner(slug: str) -> Owner:
    with transaction.atomic():
        tenant, is_new = Tenant.objects.get_or_create(slug=slug, defaults={"name": _name(slug)})
        if not _is_ours(tenant):
            raise CommandError(
                f"The tenant {slug!r} was not created by this command. Rename it, or use fewer --tenants."
            )
        if is_new:
            for name in KEYS:
                # The key itself is discarded.
                keys.issue(tenant, name)
    return Owner(tenant.pk, list(tenant.api_keys.values_list("pk", flat=True)))
