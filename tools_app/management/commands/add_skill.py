"""`manage.py add_skill`: import a directory with a SKILL.md as a skill of a tenant, file by file."""

import mimetypes
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import transaction

from tools_app.catalog import authoring
from tools_app.catalog.skills import MANIFEST, MAX_BYTES, MAX_FILES, InvalidManifest, frontmatter
from tools_app.catalog.validation.items import resource_faults
from tools_app.management.base import RecordedCommand, tenant_with
from tools_app.models import Resource, ResourceKind, Tenant

SCHEME = "skill://"
KNOWN = ("uri", "name", "kind", "description", "mime_type", "text", "blob", "enabled")


class Command(RecordedCommand):
    help = "Add or update a skill from a directory, with all its files."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "directory", type=Path, help="Directory with a SKILL.md. Its name is the name of the skill."
        )
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument(
            "--prefix", default="", metavar="PATH", help="Path before the skill's name, such as acme/billing."
        )

    def handle(self, *, directory: Path, tenant: str, prefix: str, **options: Any) -> None:
        owner = tenant_with(tenant)
        directory = directory.resolve()
        root = SCHEME + "/".join(
            map(quote, [*prefix.strip("/").split("/"), directory.name] if prefix else [directory.name])
        )
        rows = list(_rows(directory, root, owner))
        with transaction.atomic():
            gone = list(owner.resources.filter(uri__startswith=f"{root}/").exclude(uri__in=[row.uri for row in rows]))
            for row in gone:
                authoring.delete(row)
            changed = sum(_put(row) for row in rows)
        self.stdout.write(f"{root}{MANIFEST}: {len(rows)} files, {changed} new or changed, {len(gone)} removed.")


def _rows(directory: Path, root: str, owner: Tenant) -> Iterator[Resource]:
    """Return the files as resources. Raises CommandError for a directory that is not a skill."""
    manifest = directory / MANIFEST.strip("/")
    if not manifest.is_file():
        raise CommandError(f"{directory} has no SKILL.md.")
    try:
        head = frontmatter(manifest.read_text(encoding="utf-8"), root + MANIFEST)
    except (InvalidManifest, UnicodeDecodeError) as problem:
        raise CommandError(f"{manifest}: {problem}") from problem
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    if len(files) > MAX_FILES or sum(path.stat().st_size for path in files) > MAX_BYTES:
        raise CommandError(f"{directory}: a skill has at most {MAX_FILES} files and {MAX_BYTES} bytes.")
    for path in files:
        row = _row(path, f"{root}/{quote(path.relative_to(directory).as_posix())}", owner)
        if path == manifest:
            row.name, row.description, row.mime_type = head["name"], head["description"], "text/markdown"
        try:
            row.clean_fields(exclude=["config", "tenant"])
        except ValidationError as problem:
            raise CommandError(f"{path}: {'; '.join(problem.messages)}") from problem
        for field, faults in resource_faults(row).items():
            raise CommandError(f"{path}: {field}: {' '.join(faults)}")
        yield row


def _row(path: Path, uri: str, owner: Tenant) -> Resource:
    content = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0]
    row = Resource(tenant=owner, uri=uri, name=path.name)
    text = content.decode(errors="ignore")
    if text.encode() == content and "\x00" not in text:
        row.kind, row.text = ResourceKind.TEXT, text
        row.mime_type = "text/markdown" if path.suffix == ".md" else kind or "text/plain"
    else:
        row.kind, row.blob, row.mime_type = ResourceKind.FILE, content, kind or "application/octet-stream"
    return row


def _put(row: Resource) -> bool:
    """Save a row in place of one with the same URI. Returns False if nothing changes."""
    known = Resource.objects.filter(tenant=row.tenant, uri=row.uri).first()
    if known is not None:
        if all(_plain(getattr(known, field)) == _plain(getattr(row, field)) for field in KNOWN):
            return False
        for field in KNOWN:
            setattr(known, field, getattr(row, field))
    else:
        try:
            row.clean()  # how many a tenant may have
        except ValidationError as problem:
            raise CommandError(problem.message) from problem
    authoring.save_resource(known or row)
    return True


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
