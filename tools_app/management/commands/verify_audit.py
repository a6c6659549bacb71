"""`manage.py verify_audit`: whether the audit log says what it said when it was written."""

from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from tools_app.audit import signing
from tools_app.audit.verification.report import Finding, Report
from tools_app.audit.verification.verify import Scope, verify
from tools_app.models import Tenant

# What an auditor's own copy of public keys may be long.
MOST_KEY_BYTES = 64 * 1024


class Command(BaseCommand):
    help = (
        "Verify the records of the audit log, what people changed, their chains and the checkpoints; exit with 1 if "
        "anything is wrong."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help="Only the records of this tenant.")
        parser.add_argument(
            "--since", metavar="TIME", help="Of each chain only from its first record on that ended then: 2026-05-04."
        )
        parser.add_argument(
            "--checkpoints", metavar="FILE", help="Checkpoints that `export_checkpoints` wrote, kept elsewhere."
        )
        parser.add_argument(
            "--public-key",
            metavar="KEY",
            action="append",
            help="A public key in hex, or a file with one in each line. Only what these signed counts then.",
        )

    def handle(
        self,
        *,
        tenant: str | None,
        since: str | None,
        checkpoints: str | None,
        public_key: list[str] | None,
        **options: Any,
    ) -> None:
        names = dict(Tenant.objects.values_list("pk", "slug"))
        scope = Scope(
            tenant_id=None if tenant is None else _tenant(tenant),
            since=None if since is None else _moment(since),
            keys=signing.known_keys() if public_key is None else frozenset(_keys(public_key)),
        )
        with ExitStack() as files:
            export: Iterable[str] = files.enter_context(_opened(checkpoints)) if checkpoints else ()
            try:
                report = verify(scope, export)
            except UnicodeDecodeError as problem:
                raise CommandError(f"{checkpoints} is no export of checkpoints.") from problem
        for finding in report.findings:
            self.stdout.write(_line(finding, names))
        for line in _figures(report):
            self.stdout.write(line)
        if not report.is_clean:
            raise CommandError("The audit log is not as it was written.")


def _tenant(slug: str) -> UUID:
    found = Tenant.objects.filter(slug=slug).values_list("pk", flat=True).first()
    if found is None:
        raise CommandError(f"There is no tenant {slug!r}.")
    return found


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as problem:
        raise CommandError(f"--since {text!r}: write a time such as 2026-05-04 or 2026-05-04T12:00:00Z.") from problem
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _keys(given: list[str]) -> set[str]:
    keys: set[str] = set()
    for text in given:
        found = [text] if signing.is_public_key(text) else _keys_in(Path(text))
        if not found or not all(map(signing.is_public_key, found)):
            raise CommandError(f"--public-key {text!r}: write 64 hexadecimal digits, or name a file with such lines.")
        keys |= set(found)
    return keys


def _keys_in(path: Path) -> list[str]:
    try:
        with path.open(encoding="ascii") as file:
            return file.read(MOST_KEY_BYTES).split()
    except (OSError, ValueError):
        return []


def _opened(path: str) -> Any:
    try:
        return Path(path).open(encoding="utf-8")
    except OSError as problem:
        raise CommandError(f"{path}: {problem.strerror}.") from problem


def _line(finding: Finding, names: dict[UUID, str]) -> str:
    """One line for a person: what is wrong, with which record, and why."""
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
    return f"{', '.join(parts)}: {finding.says}"


def _figures(report: Report) -> list[str]:
    lines = [
        f"{report.records} records in {report.chains} chains, {report.checkpoints} checkpoints.",
        f"{report.unsigned} records are not signed yet.",
    ]
    if report.changes:
        lines.append(f"{report.changes} changes by people.")
    if report.exported:
        lines.append(f"{report.exported} exported checkpoints.")
    if report.skipped:
        lines.append(f"{report.skipped} older records were passed over.")
    if report.unchained:
        lines.append(f"{report.unchained} records have no chain: they are older than chains are, and prove nothing.")
    if report.more_findings:
        lines.append(f"{report.more_findings} more problems are not listed.")
    lines.append("Nothing is wrong." if report.is_clean else "")
    return [line for line in lines if line]
