"""`manage.py seed_calls`: fill the audit log with made-up calls of tenants made for them, and take them away again."""

import re
from argparse import ArgumentParser
from time import monotonic
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import transaction

from tools_app.audit.seeding import filling
from tools_app.audit.seeding.shapes import Owner
from tools_app.auth import keys
from tools_app.management.recorded import RecordedCommand
from tools_app.models import Tenant

PREFIX: Final = "seed-"
KEYS: Final = ("laptop", "server", "nightly")
MOST_CALLS, MOST_TENANTS, MOST_DAYS = 1_000_000_000, 1000, 10 * 365


class Command(RecordedCommand):
    help = (
        "Fill the audit log with made-up calls, to see how the hub is with many of them. They belong to tenants of "
        f"their own, {PREFIX}1, {PREFIX}2 and so on; --undo deletes these with all that is theirs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--calls", type=int, default=10_000, metavar="N", help="How many (default: %(default)s).")
        parser.add_argument("--tenants", type=int, default=3, metavar="N", help="Of how many (default: %(default)s).")
        parser.add_argument("--days", type=float, default=30, help="In the last so many days (default: %(default)s).")
        parser.add_argument(
            "--undo", action="store_true", help="Delete the tenants made by this command, and their calls."
        )

    def handle(self, *, calls: int, tenants: int, days: float, undo: bool, **options: Any) -> None:
        if undo:
            self._undo()
            return
        _check("--calls", calls, 1, MOST_CALLS)
        _check("--tenants", tenants, 1, MOST_TENANTS)
        _check("--days", days, 0.01, MOST_DAYS)
        began = monotonic()
        owners = [_owner(f"{PREFIX}{number}") for number in range(1, tenants + 1)]
        filling.fill(owners, calls, days, lambda done: self._tell(f"{done:,} calls of {calls:,}"))
        self._tell(f"Done in {monotonic() - began:.0f} s. `manage.py seed_calls --undo` takes them away again.")

    def _undo(self) -> None:
        ours = [tenant for tenant in Tenant.objects.filter(slug__startswith=PREFIX) if _is_ours(tenant)]
        for tenant in ours:
            gone = filling.remove(tenant.pk)
            with transaction.atomic():
                tenant.delete()
            self._tell(f"{tenant.slug} is gone with {gone:,} calls.")
        if not ours:
            self._tell("There is nothing of this command's to delete.")

    def _tell(self, text: str) -> None:
        self.stdout.write(text)
        # Flushed, for whoever watches a long run through a pipe.
        self.stdout.flush()


def _check(option: str, number: float, least: float, most: float) -> None:
    if not least <= number <= most:
        raise CommandError(f"{option}: write a number from {least} to {most:,}.")


def _name(slug: str) -> str:
    return f"Made-up tenant {slug.removeprefix(PREFIX)}"


def _is_ours(tenant: Tenant) -> bool:
    """Whether this command made it: somebody may have called a tenant of his own alike."""
    return bool(re.fullmatch(rf"{PREFIX}[0-9]+", tenant.slug)) and tenant.name == _name(tenant.slug)


def _owner(slug: str) -> Owner:
    with transaction.atomic():
        tenant, is_new = Tenant.objects.get_or_create(slug=slug, defaults={"name": _name(slug)})
        if not _is_ours(tenant):
            raise CommandError(
                f"The tenant {slug!r} was not made by this command, so it gets no made-up calls. "
                f"Rename it, or ask for fewer --tenants."
            )
        if is_new:
            for name in KEYS:
                # Nobody learns the key itself.
                keys.issue(tenant, name)
    return Owner(tenant.pk, list(tenant.api_keys.values_list("pk", flat=True)))
