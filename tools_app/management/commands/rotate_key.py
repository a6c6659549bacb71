"""`manage.py rotate_key`: a new API key in the place of another, on stdout, for scripts."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.db.models import Q

from tools_app.audit import key_changes
from tools_app.auth import keys
from tools_app.management.recorded import RecordedCommand
from tools_app.models import ApiKey, Tenant

USUAL_HOURS = 24.0


class Command(RecordedCommand):
    help = "Issue the key that takes the place of another and print it, and only it. Both work during the overlap."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--key", required=True, help="The old key: its name, its first characters or its id.")
        parser.add_argument(
            "--overlap-hours",
            type=float,
            default=USUAL_HOURS,
            metavar="N",
            help="For how long the old key stays good. 0: it stops now. Default: %(default)s.",
        )

    def handle(self, *, tenant: str, key: str, overlap_hours: float, **options: Any) -> None:
        longest = keys.LONGEST_OVERLAP / timedelta(hours=1)
        if not 0 <= overlap_hours <= longest:
            raise CommandError(f"--overlap-hours takes a number from 0 to {longest:g}.")
        if not Tenant.objects.filter(slug=tenant).exists():
            raise CommandError(f"There is no tenant {tenant!r}.")
        old = _named(tenant, key)
        try:
            _, new = key_changes.rotate(old, timedelta(hours=overlap_hours))
        except keys.NotRotatable as problem:
            raise CommandError(str(problem)) from problem
        self.stdout.write(new)


def _named(slug: str, word: str) -> ApiKey:
    """The key that can be rotated and is called so. Raises CommandError unless there is one."""
    named = Q(name=word) | Q(prefix=word[: keys.PREFIX_LENGTH])
    if (id := _as_id(word)) is not None:
        named |= Q(pk=id)
    rows = ApiKey.objects.filter(named, tenant__slug=slug).select_related("tenant")
    found = list(keys.rotatable(rows)[:2]) or list(rows[:1])
    if not found:
        raise CommandError(f"Tenant {slug} has no key that is called so: write its name, first characters or id.")
    if len(found) > 1:
        raise CommandError("Several keys are called so: write the id, which stands in the address of the key's page.")
    return found[0]


def _as_id(word: str) -> UUID | None:
    try:
        return UUID(word)
    except ValueError:
        return None
