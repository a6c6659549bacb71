"""`manage.py export_tenant`: export the configuration of a tenant as one YAML file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tools_app.management.base import tenant_with
from tools_app.tenant_config.export import export


class Command(BaseCommand):
    help = "Export the configuration of a tenant as YAML, for `import_tenant`. Values of secrets are not exported."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="Slug of the tenant.")
        parser.add_argument("--output", type=Path, metavar="FILE", help="Output file (default: stdout).")

    def handle(self, *, slug: str, output: Path | None, **options: Any) -> None:
        text = export(tenant_with(slug))
        if output is None:
            self.stdout.write(text, ending="")
            return
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as problem:
            raise CommandError(f"{output}: {problem.strerror}.") from problem
