"""The changes that a revision of an API source would make, as a three-way difference, and their application.

For each field of a tool there are three values: what the document made of it at the last import, what it is now, and
what the document makes of it. A field that somebody overrode keeps its value; any other one follows the document.
Where requests are sent, and how, always follows the document.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any

import orjson
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from tools_app.catalog import authoring, compiled
from tools_app.catalog.kinds.openapi.documents import naming
from tools_app.catalog.kinds.openapi.documents.operations import Operation, Skipped
from tools_app.catalog.kinds.openapi.kind import GENERATED, OVERRIDABLE, OperationKind
from tools_app.catalog.kinds.openapi.sources.documents import parsed_of, save_source
from tools_app.catalog.validation.reserved import reserved_names
from tools_app.catalog.versioned import check_count
from tools_app.models import ApiSource, ApiSourceRevision, RevisionState, Tool


class OperationChange(StrEnum):
    """What a revision means for an operation."""

    NEW = "new"
    CHANGED = "changed"
    REMOVED = "removed"
    SAME = "same"


@dataclass(frozen=True)
class FieldChange:
    """A field that the document changes: at the last import, now, and in the new revision."""

    name: str
    base: Any
    ours: Any
    theirs: Any

    @property
    def is_kept(self) -> bool:
        """Whether the value stays, because somebody overrode it."""
        return self.name in OVERRIDABLE and self.ours != self.base


@dataclass(frozen=True)
class Entry:
    """An operation of the revision, of the catalog, or of both."""

    key: str
    doing: OperationChange
    name: str
    operation: Operation | None
    tool: Tool | None
    changes: tuple[FieldChange, ...] = ()
    overridden: tuple[str, ...] = ()

    @property
    def own_server(self) -> dict[str, Any] | None:
        """The server that the document names for this operation alone."""
        return self.operation.definition["config"].get("server") if self.operation else None

    @property
    def applied(self) -> tuple[str, ...]:
        """The fields that get another value."""
        return tuple(change.name for change in self.changes if not change.is_kept)


@dataclass(frozen=True)
class OperationFilter:
    """Which operations are shown: by tag, beginning of the path, method, and words."""

    tag: str = ""
    path: str = ""
    method: str = ""
    search: str = ""

    def finds(self, entry: Entry) -> bool:
        """Whether an operation is shown. One that the document does not have has no tags."""
        operation = entry.operation
        about = (
            f"{operation.operation_id} {operation.definition['title']} {operation.definition['description']}"
            if operation
            else ""
        )
        text = f"{entry.name} {entry.key} {about}".lower()
        method, _, path = entry.key.partition(" ")
        return (
            (not self.tag or (operation is not None and self.tag in operation.tags))
            and path.startswith(self.path)
            and self.method in {"", method}
            and all(word in text for word in self.search.lower().split())
        )


@dataclass
class Plan:
    """The changes of a revision. `fingerprint` is that of the source and its tools when the plan was made.

    `unselected` operations of the document are not selected.
    """

    source: ApiSource
    revision: ApiSourceRevision
    entries: list[Entry]
    skipped: list[Skipped]
    servers: list[dict[str, Any]]
    schemes: dict[str, dict[str, str]]
    fingerprint: str
    unselected: int = 0

    def of(self, doing: str) -> list[Entry]:
        """Return the entries with this change."""
        return [entry for entry in self.entries if entry.doing == doing]

    @property
    def changes_servers(self) -> bool:
        """Whether requests, with their credentials, may be sent elsewhere than before."""
        if not self.source.revision or self.source.base_url:
            return False
        return self.servers != self.source.servers or bool(self.redirected)

    @cached_property
    def redirected(self) -> list[Entry]:
        """The operations with a server of their own that they did not have; of new ones, those with an unknown one."""
        if not self.source.revision or self.source.base_url:
            return []
        tools = [entry.tool for entry in self.entries if entry.tool]
        known = {
            _described_server(one) for one in (*self.source.servers[:1], *(tool.config.get("server") for tool in tools))
        }
        return [
            entry
            for entry in self.entries
            if entry.operation is not None
            and (
                entry.own_server != entry.tool.config.get("server")
                if entry.tool is not None
                else entry.own_server is not None and _described_server(entry.own_server) not in known
            )
        ]

    @property
    def changes_schemes(self) -> bool:
        """Whether credentials are sent in another way than before."""
        return bool(self.source.revision) and self.schemes != self.source.schemes


@dataclass
class AppliedCounts:
    """What was done."""

    imported: list[Entry] = field(default_factory=list)
    enabled: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    removed: list[Entry] = field(default_factory=list)


class ApplyError(Exception):
    """Nothing was changed; the message says why."""


def plan(source: ApiSource, revision: ApiSourceRevision) -> Plan:
    """Return the changes that a revision that was read would make."""
    found = parsed_of(revision)
    tools = list(source.tools.exclude(operation="").order_by("operation"))
    there = {tool.operation: tool for tool in tools}
    taken = set(source.tenant.tools.values_list("name", flat=True)) | reserved_names(source.tenant)
    entries = []
    for operation in found.operations:
        tool = there.pop(operation.key, None)
        if tool is not None:
            entries.append(_entry_of(operation, tool))
            continue
        name = naming.unique_name(operation.name, taken)
        taken.add(name)
        entries.append(Entry(operation.key, OperationChange.NEW, name, operation, None))
    gone = (
        Entry(key, OperationChange.REMOVED if tool.enabled else OperationChange.SAME, tool.name, None, tool)
        for key, tool in there.items()
    )
    entries += [entry for entry in gone if entry.doing == OperationChange.REMOVED]
    state = fingerprint(source, tools)
    return Plan(source, revision, entries, found.skipped, found.servers, found.schemes, state, found.unselected)


def not_offered(source: ApiSource) -> list[tuple[str, str]]:
    """Return the enabled tools of a source that clients are not offered, by name, with the reason of each."""
    reasons = compiled.of_tenant(source.tenant).not_offered
    found = source.tools.filter(pk__in=list(reasons)).order_by("name").values_list("name", "pk")
    return [(name, reasons[pk]) for name, pk in found]


def _described_server(server: Any) -> bytes:
    return orjson.dumps(server, option=orjson.OPT_SORT_KEYS)


def fingerprint(source: ApiSource, tools: Collection[Tool]) -> str:
    """Return a hash of a source and its tools as they are."""
    state = [source.updated_at, source.revision, sorted((str(tool.pk), tool.updated_at) for tool in tools)]
    return sha256(orjson.dumps(state)).hexdigest()


def _entry_of(operation: Operation, tool: Tool) -> Entry:
    base: Mapping[str, Any] = tool.generated
    changes = tuple(
        FieldChange(name, base.get(name), getattr(tool, name), operation.definition.get(name))
        for name in GENERATED
        if operation.definition.get(name) != (base.get(name) if name in OVERRIDABLE else getattr(tool, name))
    )
    overridden = tuple(name for name in OVERRIDABLE if getattr(tool, name) != base.get(name))
    doing = OperationChange.CHANGED if changes else OperationChange.SAME
    return Entry(operation.key, doing, tool.name, operation, tool, changes, overridden)


def apply(
    planned: Plan,
    by: User | None = None,
    *,
    wanted: Collection[str] | None = None,
    enabled: Collection[str] = frozenset(),
) -> AppliedCounts:
    """Apply a plan in one transaction. Raises ApplyError.

    `wanted` are the keys of the new operations to import, None for all; `enabled` those whose tools are enabled. A tool
    that somebody disabled stays so. Tools of operations that the document no longer has are disabled, and kept.
    """
    if planned.revision.state != RevisionState.READY:
        raise ApplyError("The document of this revision was not read.")
    done = AppliedCounts()
    with authoring.single_version_bump():
        source = ApiSource.objects.select_related("tenant").filter(pk=planned.source.pk).first()
        if source is None or fingerprint(source, source.tools.exclude(operation="")) != planned.fingerprint:
            raise ApplyError("The source or its tools have changed since the preview. Preview the changes again.")
        new = [entry for entry in planned.of(OperationChange.NEW) if wanted is None or entry.key in wanted]
        try:
            check_count(Tool, source.tenant.tools.count() + len(new))
        except ValidationError as problem:
            raise ApplyError(problem.messages[0]) from problem
        authoring.create_tools([_tool(source, entry, enabled=entry.key in enabled) for entry in new], by)
        done.imported.extend(new)
        for entry in planned.entries:
            if entry.tool is not None:
                _renew(entry, entry.tool, by, done, enabled=entry.key in enabled)
        # What the applied document says of servers and credentials.
        values = {"servers": planned.servers, "schemes": planned.schemes, "revision": planned.revision.number}
        if any(getattr(source, name) != value for name, value in values.items()):
            for name, value in values.items():
                setattr(source, name, value)
            save_source(source)
        ApiSourceRevision.objects.filter(pk=planned.revision.pk, applied_at=None).update(applied_at=timezone.now())
    return done


def _tool(source: ApiSource, entry: Entry, *, enabled: bool) -> Tool:
    """Return the tool of a new operation."""
    assert entry.operation is not None
    definition = {name: entry.operation.definition.get(name) for name in GENERATED}
    return Tool(
        tenant=source.tenant,
        name=entry.name,
        kind=OperationKind.name,
        enabled=enabled,
        source=source,
        operation=entry.key,
        generated={**definition, "enabled": enabled},
        **definition,
    )


def _renew(entry: Entry, tool: Tool, by: User | None, done: AppliedCounts, *, enabled: bool) -> None:
    """Bring a tool up to date: the fields that were not overridden, and whether it is enabled."""
    if entry.doing == OperationChange.REMOVED:
        authoring.set_enabled(tool, False)
        done.removed.append(entry)
        return
    if entry.operation is None:
        return
    is_switched = enabled and not tool.enabled and tool.generated.get("enabled") is not True
    if not entry.changes and not is_switched:
        return
    for change in entry.changes:
        if not change.is_kept:
            setattr(tool, change.name, change.theirs)
    theirs = {name: entry.operation.definition.get(name) for name in GENERATED}
    tool.generated = {**tool.generated, **theirs, **({"enabled": True} if is_switched else {})}
    tool.enabled = tool.enabled or is_switched
    authoring.save_tool(tool, by)
    (done.enabled if is_switched else done.changed).append(entry)
