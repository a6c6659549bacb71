"""`manage.py export_calls`: export a search of the audit log as JSON lines or CSV, to a file or a pipe."""

import sys
from argparse import ArgumentParser
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError
from django.db import transaction
from django.utils import timezone

from tools_app.audit.export import ExportProgress, pieces, record_export
from tools_app.audit.search.query import PARAMETERS, BadQuery, CallQuery
from tools_app.audit.search.scope import whole
from tools_app.management.base import RecordedCommand
from tools_app.models import Export, ExportFormat


class Command(RecordedCommand):
    help = (
        "Export calls of the audit log to a file, newest first. The filters are those of the list in the admin: "
        "--tenant acme --outcome tool_error --since 2026-05-01."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--format", choices=ExportFormat.values, default=ExportFormat.JSONL.value)
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="Output file, which must not exist (default: stdout)."
        )
        parser.add_argument(
            "--with-payloads", action="store_true", help="Include arguments, results, causes and events."
        )
        narrow = parser.add_argument_group("filters")
        for name in PARAMETERS:
            narrow.add_argument(f"--{name.replace('_', '-')}", metavar="X", action="append")

    def handle(self, *, output: Path | None, with_payloads: bool, **options: Any) -> None:
        try:
            query = CallQuery.from_params({name: options[name] for name in PARAMETERS}).at(timezone.now())
        except BadQuery as problem:
            advices = "\n".join(f"--{name.replace('_', '-')}: {advice}" for name, advice in problem.errors.items())
            raise CommandError(advices) from None
        if query.tenant and not whole(query).tenants:
            raise CommandError(f"Unknown tenant: {query.tenant!r}.")
        export = Export(query=query.to_string(), format=options["format"], with_payloads=with_payloads)
        with transaction.atomic():
            record_export(export, whole(query))
        counted, form = ExportProgress(), ExportFormat(export.format)
        try:
            with output.open("xb") if output else nullcontext(sys.stdout.buffer) as file:
                file.writelines(pieces(query, lambda: whole(query), form, with_payloads=with_payloads, counted=counted))
        except FileExistsError:
            raise CommandError(f"{output} already exists. Choose another file name.") from None
        except OSError as problem:
            raise CommandError(f"Cannot write the file: {problem}.") from None
        self.stderr.write(f"{counted.calls:,} calls, {counted.bytes:,} bytes.")
