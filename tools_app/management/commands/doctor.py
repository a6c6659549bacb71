"""`manage.py doctor`: check a deployment and report what to fix."""

import json
import os
from argparse import ArgumentParser
from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tools_app.doctor.checkup import checkup
from tools_app.doctor.findings import Finding, Status

COLOURS = {Status.OK: "SUCCESS", Status.WARNING: "WARNING", Status.PROBLEM: "ERROR"}


class Command(BaseCommand):
    help = "Check this deployment and report problems with their fixes. Exits with 1 if there is a problem."
    # The checks report errors of the database and the settings.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print the findings as one JSON object.")
        parser.add_argument("--url", default="", help="Also check this endpoint from outside: https://hub.example/mcp.")
        parser.add_argument(
            "--oauth", default="", metavar="URL", help="Also check signing in at this endpoint, as clients do it."
        )
        parser.add_argument("--key", default="", help="API key for --url. Default: MCPHUB_API_KEY.")

    def handle(self, *, url: str, oauth: str, key: str, **options: Any) -> None:
        as_json: bool = options["json"]
        key = key or os.environ.get("MCPHUB_API_KEY", "")
        if url and not key:
            raise CommandError("--url requires --key or MCPHUB_API_KEY.")
        for option, value in (("--url", url), ("--oauth", oauth)):
            if value and not value.startswith(("http://", "https://")):
                raise CommandError(f"{option} must be a URL such as https://hub.example/mcp.")
        findings = []
        for finding in checkup(url, key, oauth):
            findings.append(finding)
            if not as_json:
                self._say(finding)
        self._sum_up(findings, as_json=as_json)

    def _say(self, finding: Finding) -> None:
        style = getattr(self.style, COLOURS[finding.status])
        self.stdout.write(f"{style(f'{finding.status.value:<8}')} {finding.about}: {finding.message}")
        if finding.status is not Status.OK:
            self.stdout.write(f"         {finding.fix}")
        self.stdout.flush()

    def _sum_up(self, findings: list[Finding], *, as_json: bool) -> None:
        counts = Counter(finding.status for finding in findings)
        problems, warnings = counts[Status.PROBLEM], counts[Status.WARNING]
        if as_json:
            rows = [{name: getattr(one, name) for name in ("status", "about", "message", "fix")} for one in findings]
            self.stdout.write(json.dumps({"problems": problems, "warnings": warnings, "findings": rows}, indent=2))
        else:
            self.stdout.write(f"{problems} problems, {warnings} warnings, {counts[Status.OK]} OK.")
        if problems:
            raise SystemExit(1)
