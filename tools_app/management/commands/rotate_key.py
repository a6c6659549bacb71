"""`manage.py rotate_key`: print a new API key that replaces another, for scripts."""

from argparse import ArgumentParser
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.db.models import Q

from tools_app.management.base import RecordedCommand, tenant_with
from tools_app.models import ApiKey, Tenant
from tools_app.tenants import keys

USUAL_HOURS = 24.0


class Command(RecordedCommand):
    help = "Replace an API key and print only the new key. Both keys work during the overlap."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--key", required=True, help="The old key: its name, its first characters or its ID.")
        parser.add_argument(
            "--overlap-hours",
            type=float,
            default=USUAL_HOURS,
            metavar="N",
            help="Hours for which the old key stays valid. 0: revoke it now. Default: %(default)s.",
        )

    def handle(self, *, tenant: str, key: str, overlap_hours: float, **options: Any) -> None:
        longest = keys.MAX_OVERLAP / timedelta(hours=1)
        if not 0 <= overlap_hours <= longest:
            raise CommandError(f"--overlap-hours must be a number from 0 to {longest:g}.")
        old = _named(tenant_with(tenant), key)
        try:
            _, new = keys.rotate(old, timedelta(hours=overlap_hours))
        except keys.NotRotatable as problem:
            raise CommandError(str(problem)) from problem
        self.stdout.write(new)


def _named(tenant: Tenant, word: str) -> ApiKey:
    """Return the key with this name that can be rotated. Raises CommandError unless there is one."""
    named = Q(name=word) | Q(prefix=word[: keys.PREFIX_LENGTH])
    with suppress(ValueError):
        named |= Q(pk=UUID(word))
    rows = keys.without_connections(ApiKey.objects.filter(named, tenant=tenant).select_related("tenant"))
    found = list(keys.rotatable_keys(rows)[:2]) or list(rows[:1])
    if not found:
        raise CommandError(f"Tenant {tenant.slug} has no such key. Use the key's name, first characters or ID.")
    if len(found) > 1:
        raise CommandError("Several keys match. Use the ID from the URL of the key's page in the admin.")
    return found[0]
