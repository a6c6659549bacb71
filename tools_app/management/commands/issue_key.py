"""`manage.py issue_key`: a new API key on stdout, for scripts."""

from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tools_app.auth import keys
from tools_app.models import Tenant

LONGEST_DAYS = 36_500


class Command(BaseCommand):
    help = "Issue an API key and print it, and only it. It cannot be shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--name", required=True, help="What the key is for, as the admin and the audit show it.")
        parser.add_argument("--expires-in-days", type=int, metavar="N", help="Without it the key does not expire.")

    def handle(self, *, tenant: str, name: str, expires_in_days: int | None, **options: Any) -> None:
        if not name.strip():
            raise CommandError("--name is empty.")
        owner = Tenant.objects.filter(slug=tenant).first()
        if owner is None:
            raise CommandError(f"There is no tenant {tenant!r}.")
        _, key = keys.issue(owner, name.strip(), expires_at=_expiry(expires_in_days))
        self.stdout.write(key)


def _expiry(days: int | None) -> datetime | None:
    if days is None:
        return None
    if not 0 < days <= LONGEST_DAYS:
        raise CommandError(f"--expires-in-days takes a number from 1 to {LONGEST_DAYS}.")
    return timezone.now() + timedelta(days=days)
