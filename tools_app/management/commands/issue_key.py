"""`manage.py issue_key`: a new API key on stdout, for scripts."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from tools_app.auth import keys
from tools_app.models import Tenant


class Command(BaseCommand):
    help = "Issue an API key and print it, and only it. It cannot be shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--name", required=True, help="What the key is for, as the admin and the audit show it.")
        parser.add_argument("--expires-in-days", type=float, metavar="N", help="Without it the key does not expire.")

    def handle(self, *, tenant: str, name: str, expires_in_days: float | None, **options: Any) -> None:
        if expires_in_days is not None and expires_in_days <= 0:
            raise CommandError("--expires-in-days needs a number above zero.")
        owner = Tenant.objects.filter(slug=tenant).first()
        if owner is None:
            raise CommandError(f"There is no tenant {tenant!r}.")
        expires_at = timezone.now() + timedelta(days=expires_in_days) if expires_in_days else None
        _, key = keys.issue(owner, name, expires_at=expires_at)
        self.stdout.write(key)
