"""`manage.py import_tenant`: apply a tenant's YAML file after confirmation of its changes."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import transaction

from tools_app.audit.changes import changes
from tools_app.management.base import RecordedCommand
from tools_app.models import Tenant
from tools_app.tenant_config.document import Configuration, InvalidConfiguration, read
from tools_app.tenant_config.plan import ApplyError, apply, plan
from tools_app.tenant_config.reader import MAX_BYTES
from tools_app.tenant_config.steps import Plan, StepAction

SIGNS = {StepAction.CREATE: "+", StepAction.CHANGE: "~", StepAction.DELETE: "-"}
LINE_SIGNS = {"added": "+", "removed": "-", "gap": "…", "same": " "}


class Command(RecordedCommand):
    help = (
        "Apply a YAML file of `export_tenant` to a tenant. Prints the changes and asks for confirmation. Exits with 1 "
        "if nothing was applied, because the file is invalid or the changes were not confirmed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="Slug of the tenant.")
        parser.add_argument("file", help="The YAML file. - reads stdin and requires --yes.")
        parser.add_argument("--dry-run", action="store_true", help="Only print the changes.")
        parser.add_argument(
            "--prune", action="store_true", help="Delete rows that the sections of the file do not contain."
        )
        parser.add_argument("--create", action="store_true", help="Create the tenant if it does not exist.")
        parser.add_argument("--yes", action="store_true", help="Do not ask for confirmation.")

    def handle(
        self, *, slug: str, file: str, dry_run: bool, prune: bool, create: bool, yes: bool, **options: Any
    ) -> None:
        configuration = _read(file)
        if not Tenant.objects.filter(slug=slug).exists() and not create:
            raise CommandError(f"Unknown tenant: {slug!r}. Use --create to create it.")
        with transaction.atomic():
            found = plan(_tenant(slug, configuration), configuration, None, prune=prune)
            transaction.set_rollback(True)
        self._show(found)
        if found.problems:
            raise CommandError("Invalid file. Nothing was changed; fix the file first.")
        is_new = not Tenant.objects.filter(slug=slug).exists()
        if dry_run or (found.is_empty and not is_new):
            return
        if not yes:
            if not sys.stdin.isatty():
                raise CommandError("stdin is not a terminal. Use --yes to apply without confirmation.")
            if input("Apply these changes? [y/N] ").strip().lower() not in {"y", "yes"}:
                raise CommandError("Nothing was changed.")
        try:
            with changes.change_log_transaction():
                tenant = _tenant(slug, configuration)
                apply(plan(tenant, configuration, None, prune=prune) if is_new else found)
        except ApplyError as problem:
            raise CommandError(str(problem)) from problem
        self.stdout.write("Done.")

    def _show(self, found: Plan) -> None:
        for step in found.steps:
            self.stdout.write(f"{SIGNS[step.doing]} {step.kind} {step.name}")
            for line in step.diff if step.doing != StepAction.DELETE else ():
                self.stdout.write(f"    {LINE_SIGNS[line.kind]} {line.text}")
        for problem in found.problems:
            self.stderr.write(f"! {problem}")
        for secret, users in found.missing_secrets.items():
            used = f" It is used by {', '.join(users)}." if users else ""
            self.stdout.write(f"! The secret {secret} is missing. Set its value in the admin.{used}")
        for name in found.missing_urls:
            self.stdout.write(f"! The URL of the webhook {name} is missing. Set it in the admin.")
        for name in found.missing_client_secrets:
            self.stdout.write(
                f"! The issuer {name} has no client secret. Set it in the admin, if the provider gave one."
            )
        for name in found.missing_service_clients:
            self.stdout.write(
                f"! The service client {name} has a secret, so it is not created by a file. Add it in the admin under "
                "this name, which shows its secret, then import again. Or write public_keys for a client that signs."
            )
        for name in found.new_webhooks:
            self.stdout.write(f"! The webhook {name} gets a new signing secret. Rotate it in the admin to see it.")
        if found.kept:
            self.stdout.write(f"{len(found.kept)} rows are not in the file and are kept. Use --prune to delete them.")
        counts = ", ".join(f"{found.count(doing)} to {doing}" for doing in StepAction)
        self.stdout.write(f"{counts}, {found.unchanged} unchanged.")


def _read(file: str) -> Configuration:
    """Read the file. Raises CommandError."""
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as source:
            text = source.read(MAX_BYTES + 1).decode()
        return read(text)
    except OSError as problem:
        raise CommandError(f"{file}: {problem.strerror}.") from problem
    except UnicodeDecodeError as problem:
        raise CommandError(f"{file} is not UTF-8.") from problem
    except InvalidConfiguration as problem:
        raise CommandError(f"{file}:\n{problem}") from problem


def _tenant(slug: str, configuration: Configuration) -> Tenant:
    """Return the tenant; a new one gets the name in the file. Raises CommandError for an invalid slug."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        tenant = Tenant(slug=slug, name=str(configuration.tenant.get("name") or slug))
        try:
            tenant.clean_fields()
        except ValidationError as problem:
            raise CommandError("; ".join(problem.messages)) from problem
        tenant.save()
    return tenant
