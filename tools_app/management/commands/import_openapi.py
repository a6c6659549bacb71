"""`manage.py import_openapi`: import the operations of an OpenAPI document as tools."""

from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import transaction

from tools_app.audit.changes import changes
from tools_app.catalog.kinds.http.config import ConfigProblem
from tools_app.catalog.kinds.openapi.config import OperationConfig, base_url_of
from tools_app.catalog.kinds.openapi.documents.bundle import bundled
from tools_app.catalog.kinds.openapi.documents.operations import Parsed, TooManyOperations, parse
from tools_app.catalog.kinds.openapi.documents.reader import MAX_BYTES, TOO_LARGE, UnreadableDocument
from tools_app.catalog.kinds.openapi.documents.selection import Selection, faults_of
from tools_app.catalog.kinds.openapi.models import MAX_CYCLE_DEPTH
from tools_app.catalog.kinds.openapi.runner import settings_of
from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.catalog.kinds.openapi.sources.documents import save_source
from tools_app.catalog.kinds.openapi.sources.plan import AppliedCounts, ApplyError, OperationChange, Plan, apply, plan
from tools_app.catalog.validation.sizes import MAX_URL_LENGTH
from tools_app.core.http.errors import RequestFailed
from tools_app.management.base import RecordedCommand, tenant_with
from tools_app.models import ApiSource, ApiSourceRevision, RevisionState, Tenant


class Command(RecordedCommand):
    help = (
        "Import the operations of an OpenAPI document (2.0 to 3.2, JSON or YAML) as tools, or bring them up to date. "
        "Tools keep what was overridden. Prints a line for each operation that was imported, changed or skipped."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("document", metavar="FILE_OR_URL", help="The document: a file, or an http or https URL.")
        parser.add_argument("--tenant", required=True, metavar="SLUG", help="Slug of the tenant.")
        parser.add_argument("--name", required=True, help="Name of the API source. An existing one is refreshed.")
        parser.add_argument("--base-url", metavar="URL", help="Where requests are sent, instead of the server named.")
        parser.add_argument(
            "--include",
            action="append",
            metavar="GLOB",
            help="Import the operations whose tool name, operationId, /path, METHOD /path or tag:NAME matches, and "
            "enable them. Can be repeated. Without it, all are imported as disabled tools. Of a document with too many "
            "operations, it also selects those that are read.",
        )
        parser.add_argument(
            "--select",
            action="append",
            metavar="GLOB",
            help="Read only the operations that match, as for --include. Can be repeated. Default: all, or as the "
            "source is set. Operations that are tools are read in any case.",
        )
        parser.add_argument(
            "--output-schemas",
            action=BooleanOptionalAction,
            help="Import the schemas of responses too. Default: no, or as the source is set.",
        )
        parser.add_argument(
            "--cycle-depth",
            type=int,
            metavar="N",
            help=f"Cut schemas that refer to themselves after N levels, at most {MAX_CYCLE_DEPTH}; 0 keeps the "
            "references. Default: 0, or as the source is set.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Only print what would be done.")

    def handle(
        self,
        *,
        document: str,
        tenant: str,
        name: str,
        base_url: str | None,
        include: list[str] | None,
        dry_run: bool,
        **options: Any,
    ) -> None:
        owner = tenant_with(tenant)
        given = {"base_url": base_url, "selection": options["select"]}
        given |= {option: options[option] for option in ("output_schemas", "cycle_depth")}
        source, is_changed = _source(owner, name, document, given, include)
        try:
            data = documents.fetched(source) if _is_url(document) else _file_with_others(document)
        except RequestFailed as problem:
            raise CommandError(problem.message) from problem
        except UnreadableDocument as problem:
            raise CommandError(str(problem)) from problem
        selected = source.selection
        # Parsed before the transaction, which keeps others from writing.
        same = _same(source, data)
        found = None if same else _parsed(source, data, include)
        with changes.change_log_transaction():
            if is_changed or (found is not None and found.options.selection != selected):
                save_source(source)
            if found is None:
                assert same is not None
                revision = same
            else:
                revision = documents.add_revision(source)
                documents.store_parsed(revision, data, found)
                revision.save()
            planned = plan(source, revision)
            try:
                # Whether the document tells where requests are sent.
                base_url_of(OperationConfig("GET", "/"), settings_of(source, planned.servers, planned.schemes))
            except ConfigProblem as problem:
                raise CommandError(f"{problem.message} Use --base-url.") from problem
            wanted = None if include is None else _matching(planned, include)
            try:
                done = apply(planned, wanted=wanted, enabled=wanted or frozenset())
            except ApplyError as problem:
                raise CommandError(str(problem)) from problem
            self._show(planned, done)
            transaction.set_rollback(dry_run)

    def _show(self, planned: Plan, done: AppliedCounts) -> None:
        for entry in done.imported:
            self.stdout.write(f"+ {entry.name} {entry.key}")
        for entry in done.enabled:
            self.stdout.write(f"~ {entry.name} {entry.key}: enabled")
        for entry in done.changed:
            overridden = [change.name for change in entry.changes if change.is_kept]
            fields = [*entry.applied, *(f"{name} (overridden, kept)" for name in overridden)]
            self.stdout.write(f"~ {entry.name} {entry.key}: {', '.join(fields)}")
        for entry in done.removed:
            self.stdout.write(f"- {entry.name} {entry.key}: not in the document, disabled")
        for skipped in planned.skipped:
            self.stdout.write(f"! {skipped.key}: {skipped.reason} ({skipped.pointer})")
        for entry in planned.entries:
            for note in entry.operation.notes if entry.operation else ():
                self.stdout.write(f"* {entry.key}: {note}")
        same = len(planned.of(OperationChange.SAME))
        if same or done.changed or done.enabled or done.removed:
            changed = len(done.changed) + len(done.enabled)
            self.stdout.write(f"{changed} changed, {len(done.removed)} removed, {same} unchanged")
        not_selected = f", {planned.unselected} not selected" if planned.unselected else ""
        self.stdout.write(f"{len(done.imported)} imported, {len(planned.skipped)} skipped{not_selected}")


def _matching(planned: Plan, include: Sequence[str]) -> set[str]:
    """Return the keys of the operations that match one of the patterns."""
    selection = Selection(include)
    return {
        entry.key
        for entry in planned.entries
        if selection.includes(
            entry.key,
            (entry.name, entry.operation.operation_id if entry.operation else ""),
            entry.operation.tags if entry.operation else (),
        )
    }


def _source(
    tenant: Tenant, name: str, document: str, given: Mapping[str, Any], include: list[str] | None
) -> tuple[ApiSource, bool]:
    """Return the source of this name with the given settings, and whether it has to be saved. Raises CommandError.

    A setting of None is as before. What is to be imported is added to what a source selects.
    """
    stored = ApiSource.objects.filter(tenant=tenant, name=name).first()
    source = stored or ApiSource(tenant=tenant, name=name)
    settings = {"url": document if _is_url(document) else "", **given}
    if selected := settings["selection"] or source.selection:
        settings["selection"] = list(dict.fromkeys([*selected, *(include or ())]))
    changed = {name: value for name, value in settings.items() if value is not None and value != getattr(source, name)}
    if stored and not changed:
        return source, False
    for setting, value in changed.items():
        setattr(source, setting, value)
    try:
        source.clean_fields()
        source.clean()
    except ValidationError as problem:
        faults = (f"{field}: {message}" for field, messages in problem.message_dict.items() for message in messages)
        raise CommandError("; ".join(faults)) from problem
    return source, True


def _parsed(source: ApiSource, data: bytes, include: list[str] | None) -> Parsed:
    """Return what the document contains. Of too many operations, the source selects those that are to be imported."""
    kept = documents.keys_of(source) if not source._state.adding else ()  # noqa: SLF001 - documented
    try:
        try:
            return parse(data, documents.options_of(source), kept)
        except TooManyOperations:
            if not include or source.selection:
                raise
            if fault := faults_of(include):
                raise CommandError(fault) from None
            source.selection = include
            return parse(data, documents.options_of(source), kept)
    except UnreadableDocument as problem:
        raise CommandError(str(problem)) from problem


def _same(source: ApiSource, data: bytes) -> ApiSourceRevision | None:
    """Return the applied revision if it is of the same document, read in the same way."""
    if source.revision == 0:
        return None
    digest = documents.digest_of(data)
    applied = source.revisions.filter(number=source.revision, digest=digest, state=RevisionState.READY).first()
    return applied if applied and documents.parsed_of(applied).options == documents.options_of(source) else None


def _is_url(document: str) -> bool:
    return document.lower().startswith(("http://", "https://")) and len(document) <= MAX_URL_LENGTH


def _file_with_others(document: str) -> bytes:
    """Return the document of a file with those that it refers to: files of its directory, and of those below it."""
    place = Path(document).resolve()

    def other(url: str) -> bytes:
        path = Path(unquote(urlsplit(url).path)).resolve()
        if not url.startswith("file:") or not path.is_relative_to(place.parent):
            raise UnreadableDocument("A file may only refer to files of its directory, and of those below it.")
        try:
            return _file(str(path))
        except CommandError as problem:
            raise UnreadableDocument(str(problem)) from problem

    return bundled(_file(document), place.as_uri(), other)


def _file(document: str) -> bytes:
    try:
        with Path(document).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise CommandError(f"{document}: {problem.strerror}.") from problem
    if len(data) > MAX_BYTES:
        raise CommandError(TOO_LARGE)
    return data
