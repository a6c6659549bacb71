"""`manage.py verify_audit`: verify that the audit log is unchanged since it was written."""

import re
from argparse import ArgumentParser
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from tools_app.audit.checkpoints import statements, witness
from tools_app.audit.verification.report import Finding, Report
from tools_app.audit.verification.verify import Scope, verify
from tools_app.management.base import tenant_with
from tools_app.models import Tenant

# The maximum size of an auditor's copy of public keys.
MAX_KEY_BYTES = 64 * 1024
KEY = re.compile(r"[0-9a-f]{64}")


class Command(BaseCommand):
    help = (
        "Verify the records and changes in the audit log, their chains and their checkpoints. Exits with 1 if "
        "anything is invalid."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="Verify only the records of this tenant.")
        parser.add_argument(
            "--since", metavar="TIME", help="Verify each chain only from its first record since then: 2026-05-04."
        )
        parser.add_argument("--checkpoints", metavar="FILE", help="Also verify a file of `export_checkpoints`.")
        parser.add_argument(
            "--heads",
            metavar="FILE",
            action="append",
            default=[],
            help="The witness file (audit.heads) of another host. The one of this host is always read.",
        )
        parser.add_argument(
            "--public-key",
            metavar="KEY",
            action="append",
            help="Trusted public key in hex, or a file with one per line. Other signatures are rejected.",
        )

    def handle(
        self,
        *,
        tenant: str | None,
        since: str | None,
        checkpoints: str | None,
        heads: list[str],
        public_key: list[str] | None,
        **options: Any,
    ) -> None:
        try:
            moment = None if since is None else datetime.fromisoformat(since)
        except ValueError as error:
            raise CommandError(
                f"--since {since!r} must be a time such as 2026-05-04 or 2026-05-04T12:00:00Z."
            ) from error
        if moment is not None and moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        names = dict(Tenant.objects.values_list("pk", "slug"))
        scope = Scope(
            tenant_id=None if tenant is None else tenant_with(tenant).pk,
            since=moment,
            keys=statements.known_keys() if public_key is None else frozenset(_keys(public_key)),
        )
        if missing := [name for name in heads if not Path(name).is_file()]:
            raise CommandError(f"--heads {missing[0]}: file not found.")
        try:
            witnessed = [line for path in (witness.path(), *map(Path, heads)) for line in witness.lines(path)]
            with Path(checkpoints).open(encoding="utf-8") if checkpoints else nullcontext(()) as export:
                report = verify(scope, export, witnessed)
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise CommandError(f"{checkpoints} is not an export of checkpoints.") from error
        for finding in report.findings:
            self.stdout.write(_line(finding, names))
        for line in _figures(report):
            self.stdout.write(line)
        if not report.is_clean:
            raise CommandError("Verification of the audit log failed.")


def _keys(given: list[str]) -> set[str]:
    keys: set[str] = set()
    for text in given:
        found = [text]
        if not KEY.fullmatch(text):
            try:
                with Path(text).open(encoding="ascii") as file:
                    found = file.read(MAX_KEY_BYTES).split()
            except (OSError, ValueError):
                found = []
        if not found or not all(map(KEY.fullmatch, found)):
            raise CommandError(f"--public-key {text!r} must be 64 hexadecimal digits, or a file with one key per line.")
        keys |= set(found)
    return keys


def _line(finding: Finding, names: dict[UUID, str]) -> str:
    """Return one line for the report: what is wrong, in which record, and why."""
    parts = [finding.problem.value.upper()]
    if finding.is_change:
        parts.append(f"change {finding.change_id or ''}".strip())
    if finding.call_id:
        parts.append(f"call {finding.call_id}")
    if finding.position:
        parts.append(f"position {finding.position}")
    if finding.tenant_id:
        parts.append(f"tenant {names.get(finding.tenant_id, finding.tenant_id)}")
    if finding.writer:
        parts.append(f"process {finding.writer}")
    if finding.at:
        parts.append(f"{finding.at:%Y-%m-%d %H:%M:%S} UTC")
    return f"{', '.join(parts)}: {finding.message}"


def _figures(report: Report) -> list[str]:
    lines = [
        f"{report.records} records in {report.chains} chains, {report.checkpoints} checkpoints.",
        f"{report.unsigned} records are not signed yet.",
    ]
    if report.tails:
        oldest = min(tail.at for tail in report.tails)
        writers = len({tail.writer for tail in report.tails})
        lines.append(
            f"{writers} processes were killed before they signed their newest records, from "
            f"{oldest:%Y-%m-%d %H:%M:%S} UTC on. A running hub signs these records within a minute of its first "
            "request. They cannot be verified before that."
        )
    if report.changes:
        lines.append(f"{report.changes} changes by people.")
    if report.exported:
        lines.append(f"{report.exported} exported checkpoints.")
    if report.witnessed:
        lines.append(f"{report.witnessed} checkpoints witnessed outside the database.")
    if report.skipped:
        lines.append(f"{report.skipped} older records were skipped.")
    if report.more_findings:
        lines.append(f"{report.more_findings} more problems are not listed.")
    lines.append("No problems found." if report.is_clean else "")
    return [line for line in lines if line]
