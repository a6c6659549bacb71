"""`manage.py accept_restore`: record that an older state of the database was restored on purpose."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction

from tools_app.audit.changes import changes
from tools_app.audit.checkpoints import statements, witness
from tools_app.audit.verification.claims import missing_from
from tools_app.audit.verification.report import Report
from tools_app.management.base import RecordedCommand
from tools_app.models import Action, Checkpoint


class Command(RecordedCommand):
    help = (
        "Accept a backup that was restored on purpose: record as a change which records are missing and why. From then "
        "on verify_audit compares with the restored state."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--reason", required=True, help="Reason for the auditor: which backup was restored, and why."
        )

    def handle(self, *, reason: str, **options: Any) -> None:
        if not reason.strip():
            raise CommandError("--reason must not be empty. State which backup was restored, and why.")
        try:
            missing = missing_from(witness.lines(), statements.known_keys(), Report())
            if not missing.numbers:
                self.stdout.write("No witnessed records are missing. There is nothing to accept.")
                return
            with transaction.atomic():
                after = {
                    "reason": reason,
                    "missing_records": missing.records,
                    "missing_changes": missing.changes,
                    "witnessed_until": str(missing.last),
                }
                changes.record(
                    Action.RESTORED, Checkpoint(), kind="database", name="audit log", tenant_id=None, after=after
                )
                aside = witness.move_aside(missing.numbers)
        except OSError as problem:
            raise CommandError(f"{witness.path()}: {problem.strerror}.") from problem
        self.stdout.write(f"Accepted: {missing.records} records and {missing.changes} changes are missing.")
        self.stdout.write(f"Their checkpoints were moved to {aside}. Keep this file for the auditor.")
