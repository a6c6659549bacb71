"""`manage.py export_checkpoints`: export signed checkpoints, to be stored outside the database owner's control."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tools_app.audit.checkpoints import statements
from tools_app.management.base import tenant_with


class Command(BaseCommand):
    help = "Export the checkpoints of the audit log as JSON lines, each with its signature and public key."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--out", metavar="FILE", help="Output file, which must not exist (default: stdout).")
        parser.add_argument("--tenant", metavar="SLUG", help="Only checkpoints of this tenant's chains.")
        parser.add_argument("--public-key", action="store_true", help="Print only the public key of this hub.")

    def handle(self, *, out: str | None, tenant: str | None, public_key: bool, **options: Any) -> None:
        if public_key:
            self.stdout.write(statements.own_key())
            return
        lines = statements.exported_lines(tenant_with(tenant) if tenant is not None else None)
        if out is None:
            for line in lines:
                self.stdout.write(line)
            return
        try:
            # An existing file is evidence and is not overwritten.
            with Path(out).open("x", encoding="utf-8") as file:
                count = sum(bool(file.write(f"{line}\n")) for line in lines)
        except OSError as problem:
            raise CommandError(f"{out}: {problem.strerror}.") from problem
        self.stdout.write(f"{count} checkpoints written to {out}.")
