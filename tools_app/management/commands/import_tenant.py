"""`manage.py import_tenant`: a tenant becomes what a YAML file says, once somebody has seen what that means."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import transaction

from tools_app.admin.configuration import diff_of
from tools_app.audit import changes
from tools_app.blueprints.applying import NotApplied, apply
from tools_app.blueprints.blueprint import BadBlueprint, Blueprint, read
from tools_app.blueprints.planning import Doing, Plan, Step, plan
from tools_app.blueprints.reading import MOST_BYTES
from tools_app.management.recorded import RecordedCommand
from tools_app.models import Tenant

SIGNS = {Doing.CREATE: "+", Doing.CHANGE: "~", Doing.DELETE: "-"}
LINE_SIGNS = {"added": "+", "removed": "-", "gap": "…", "same": " "}


class Command(RecordedCommand):
    help = (
        "Make a tenant what a YAML file of `export_tenant` says. It prints what would change and asks before it does "
        "that. Exit status 1: nothing was done, because the file is wrong or nobody said yes."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("slug", help="The tenant.")
        parser.add_argument("file", help="The YAML file; - reads it from stdin, and then --yes is needed.")
        parser.add_argument("--dry-run", action="store_true", help="Only print what would change.")
        parser.add_argument("--prune", action="store_true", help="Delete what the sections of the file do not name.")
        parser.add_argument("--create", action="store_true", help="Make the tenant if there is none.")
        parser.add_argument("--yes", action="store_true", help="Do not ask.")

    def handle(
        self, *, slug: str, file: str, dry_run: bool, prune: bool, create: bool, yes: bool, **options: Any
    ) -> None:
        blueprint = _read(file)
        if not Tenant.objects.filter(slug=slug).exists() and not create:
            raise CommandError(f"There is no tenant {slug!r}. With --create it is made.")
        with transaction.atomic():
            found = plan(_tenant(slug, blueprint), blueprint, None, prune=prune)
            transaction.set_rollback(True)
        self._show(found)
        if found.problems:
            raise CommandError("Nothing was changed: mend the file first.")
        is_new = not Tenant.objects.filter(slug=slug).exists()
        if dry_run or (found.is_empty and not is_new):
            return
        if not yes and not _agreed():
            raise CommandError("Nothing was changed.")
        try:
            with changes.in_turn():
                tenant = _tenant(slug, blueprint)
                apply(plan(tenant, blueprint, None, prune=prune) if is_new else found)
        except NotApplied as problem:
            raise CommandError(str(problem)) from problem
        self.stdout.write("Done.")

    def _show(self, found: Plan) -> None:
        for step in found.steps:
            self.stdout.write(f"{SIGNS[step.doing]} {step.kind} {step.name}")
            for line in _lines(step):
                self.stdout.write(f"    {line}")
        for problem in found.problems:
            self.stderr.write(f"! {problem}")
        for secret in found.missing_secrets:
            self.stdout.write(f"! Set the secret {secret} in the admin: its value is in no file.")
        if found.kept:
            self.stdout.write(f"{len(found.kept)} that the file does not name are kept; --prune deletes them.")
        counts = ", ".join(f"{found.count(doing)} to {doing}" for doing in Doing)
        self.stdout.write(f"{counts}, {found.unchanged} unchanged.")


def _read(file: str) -> Blueprint:
    """What the file says. Raises CommandError."""
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as source:
            text = source.read(MOST_BYTES + 1).decode()
        return read(text)
    except OSError as problem:
        raise CommandError(f"{file}: {problem.strerror}.") from problem
    except UnicodeDecodeError as problem:
        raise CommandError(f"{file} is not UTF-8.") from problem
    except BadBlueprint as problem:
        raise CommandError(f"{file}:\n{problem}") from problem


def _tenant(slug: str, blueprint: Blueprint) -> Tenant:
    """The tenant; a new one is named as the file says. Raises CommandError for a slug that is none."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        tenant = Tenant(slug=slug, name=str(blueprint.tenant.get("name") or slug))
        try:
            tenant.clean_fields()
        except ValidationError as problem:
            raise CommandError("; ".join(problem.messages)) from problem
        tenant.save()
    return tenant


def _lines(step: Step) -> list[str]:
    if step.doing == Doing.DELETE:
        return []
    return [f"{LINE_SIGNS[line.kind]} {line.text}" for line in diff_of(step)]


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise CommandError("Nobody is there to ask: run it again with --yes.")
    return input("Apply this? [y/N] ").strip().lower() in {"y", "yes"}
