"""`manage.py issue_key`: print a new API key on stdout, for scripts."""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.utils import timezone

from tools_app.management.base import RecordedCommand, tenant_with
from tools_app.methods.areas import check_method
from tools_app.models import Membership, Tenant
from tools_app.tenants import keys

MAX_DAYS = 36_500
# Options with another name than the field of the key that they set.
OPTIONS = {"tool_patterns": "tools"}


class Command(RecordedCommand):
    help = "Issue an API key and print only the key. It cannot be shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--name", required=True, help="Name of the key in the admin and the audit log.")
        parser.add_argument(
            "--expires-in-days", type=int, metavar="N", help="Lifetime in days (default: does not expire)."
        )
        parser.add_argument(
            "--tools", nargs="+", default=[], metavar="PATTERN", help="Names and URIs that the key can use."
        )
        parser.add_argument("--methods", nargs="+", default=[], metavar="PATTERN", help='For example "tools/*".')
        parser.add_argument(
            "--networks", nargs="+", default=[], metavar="CIDR", help="Networks from which the key can be used."
        )

        parser.add_argument("--person", metavar="USERNAME", help="For whom tools of Django apps run.")

    def handle(self, *, tenant: str, name: str, expires_in_days: int | None, **options: Any) -> None:
        if not name.strip():
            raise CommandError("--name must not be empty.")
        if expires_in_days is not None and not 0 < expires_in_days <= MAX_DAYS:
            raise CommandError(f"--expires-in-days must be a number from 1 to {MAX_DAYS}.")
        owner = tenant_with(tenant)
        person = _person(options["person"], owner)
        for pattern in options["methods"]:
            try:
                check_method(pattern)
            except ValidationError as error:
                raise CommandError(f"--methods {pattern}: {' '.join(error.messages)}") from error
        try:
            _, key = keys.issue(
                owner,
                name.strip(),
                created_by=person,
                acts_for_creator=person is not None,
                expires_at=None if expires_in_days is None else timezone.now() + timedelta(days=expires_in_days),
                tool_patterns=options["tools"],
                methods=options["methods"],
                networks=options["networks"],
            )
        except ValidationError as error:
            field, messages = next(iter(error.message_dict.items()))
            option = OPTIONS.get(field, field)
            words = name if field == "name" else " ".join(options[option])
            raise CommandError(f"--{option} {words}: {' '.join(messages)}") from error
        self.stdout.write(key)


def _person(username: str | None, tenant: Tenant) -> User | None:
    """Return the account that a key acts for, if any. Raises CommandError unless it may use the tenant."""
    if username is None:
        return None
    person = User.objects.filter(username=username, is_active=True).first()
    if person is None:
        raise CommandError(f"--person {username}: there is no such active account.")
    if not person.is_superuser and not Membership.objects.filter(user=person, tenant=tenant).exists():
        raise CommandError(f"--person {username}: this person is not a member of the tenant.")
    return person
