"""What upstreams list, compared with what admins accepted: new, changed and removed items in the database.

A changed definition is only proposed. Its calls are refused, in every process, until somebody accepts it.
"""

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import chain
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import DatabaseError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from tools_app.catalog import versioned
from tools_app.catalog.kinds.upstream.runner import Endpoint, digest_of
from tools_app.catalog.validation.sizes import MAX_JSON_BYTES, json_size_fault
from tools_app.core.database import run_in_db_thread
from tools_app.core.sanitize import for_column, has_nul, sanitized
from tools_app.core.telemetry.logs import first_of
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.models import ItemState, Upstream, UpstreamItem, UpstreamStatus
from tools_app.upstreams.client import ServerInfo
from tools_app.upstreams.warnings import warnings_of

log = logging.getLogger(__name__)

MAX_NAME_LENGTH: Final = 500
MAX_PROBLEM_LENGTH: Final = 1000
# Of one kind.
MAX_LEFT_OUT: Final = 50
MAX_SHOWN_NAME: Final = 200

Definitions = dict[str, dict[str, Any]]


async def observe(upstream_id: UUID, kind: str, definitions: Definitions) -> None:
    """Note the definitions of one kind that an upstream lists. A database that is away is only logged."""
    try:
        await run_in_db_thread(store_listing, upstream_id, kind, definitions)
    except DatabaseError as error:
        log.warning("What an upstream lists could not be stored: %s", error)


async def observe_circuit(endpoint: Endpoint, seconds: float, problem: str) -> None:
    """Note for how long calls of an upstream are refused after failures, or, with 0, that it answers again."""
    now = timezone.now()
    values = (
        {"refused_until": now + timedelta(seconds=seconds)} if seconds else {"refused_until": None, "reached_at": now}
    )
    shown = sanitized(Scrubber(endpoint.secrets).beginning(problem, MAX_PROBLEM_LENGTH))
    try:
        await run_in_db_thread(_store_status, endpoint.id, shown, values)
    except DatabaseError as error:
        log.warning("The state of an upstream could not be stored: %s", error)


def store_listing(upstream_id: UUID, kind: str, definitions: Definitions) -> list[UpstreamItem]:
    """Store what changed since the last listing; returns the changed items. Writes nothing if nothing did."""
    faults = {name: storing_fault(name, definition) for name, definition in definitions.items()}
    _note_left_out(upstream_id, kind, {name: fault for name, fault in faults.items() if fault})
    listed = {name: definition for name, definition in definitions.items() if not faults[name]}
    rows = UpstreamItem.objects.filter(upstream_id=upstream_id, kind=kind)
    differing = [*chain(*_differences(rows, kind, listed))]
    if not differing:
        return []
    names = {item.name for item in differing}
    # Before the transaction, which locks: reading large definitions takes a while.
    known_warnings: dict[str, list[str]] = {}
    _set_warnings(differing, known_warnings)
    with transaction.atomic(), versioned.touch_once():
        upstream = Upstream.objects.filter(pk=upstream_id).first()
        if upstream is None:
            return []
        # Read again: an admin or another process may have written them. Items are locked in the order in which several
        # are accepted, and before the tenant, whose version is increased at the end.
        rows = rows.filter(name__in=names).order_by("name").select_for_update()
        changed, added = _differences(rows, kind, {name: listed[name] for name in names & listed.keys()})
        _set_warnings([*changed, *added], known_warnings)
        written = []
        for item in changed:
            if item.accepted is None and item.proposed is None:
                item.delete()  # it was never accepted, and is gone
                continue
            item.updated_at = timezone.now()
            item.save(update_fields=["state", "proposed", "warnings", "updated_at"])
            written.append(item)
        for item in added:
            item.upstream, item.tenant_id = upstream, upstream.tenant_id
        # Another process may list at the same time.
        UpstreamItem.objects.bulk_create(added, ignore_conflicts=True)
        return [*written, *added]


def store_status(upstream_id: UUID, server: ServerInfo | None, problem: str = "") -> None:
    """Store how the last connection went: what the server said about itself, or the problem."""
    values: dict[str, Any] = {}
    if server is not None:
        values = {
            "refused_until": None,
            "reached_at": timezone.now(),
            "era": server.era,
            "version": server.version,
            "server_name": server.title or server.name,
            "server_version": server.server_version,
            "makes_tasks": server.makes_tasks,
        }
    _store_status(upstream_id, problem, values)


def _store_status(upstream_id: UUID, problem: str, values: Mapping[str, Any]) -> None:
    values = {"checked_at": timezone.now(), "problem": problem[:MAX_PROBLEM_LENGTH], **values}
    if Upstream.objects.filter(pk=upstream_id).exists():
        UpstreamStatus.objects.update_or_create(upstream_id=upstream_id, defaults=values)


def storing_fault(name: str, definition: dict[str, Any]) -> str:
    """Return why a definition cannot be stored, so that it is not offered; "" if it can."""
    if not name:
        return "It has no name."
    if len(name) > MAX_NAME_LENGTH:
        return f"Its name is longer than {MAX_NAME_LENGTH} characters."
    if fault := json_size_fault(definition, MAX_JSON_BYTES):
        return fault
    if "\0" in name or has_nul(definition, orjson.dumps(definition)):
        return "It contains the character U+0000, which cannot be stored."
    return ""


def _note_left_out(upstream_id: UUID, kind: str, faults: Mapping[str, str]) -> None:
    """Store which definitions of one kind are not offered, and why. Writes nothing if that is known."""
    named = [
        {"kind": kind, "name": for_column(sanitized(name), MAX_SHOWN_NAME), "reason": reason}
        for name, reason in sorted(faults.items())[:MAX_LEFT_OUT]
    ]
    known = UpstreamStatus.objects.filter(pk=upstream_id).values_list("left_out", flat=True).first() or []
    if [one for one in known if one["kind"] == kind] == named:
        return
    if named:
        shown = first_of([f"{one['name']}: {one['reason']}" for one in named])
        log.warning("%d of an upstream's %ss are not offered: %s", len(faults), kind, shown)
    with transaction.atomic():
        # Locked: kinds are listed at the same time.
        if not Upstream.objects.select_for_update().filter(pk=upstream_id).exists():
            return
        status, _ = UpstreamStatus.objects.get_or_create(upstream_id=upstream_id)
        status.left_out = [one for one in status.left_out if one["kind"] != kind] + named
        status.save(update_fields=["left_out"])


def _differences(
    rows: "QuerySet[UpstreamItem]", kind: str, listed: Definitions
) -> tuple[list[UpstreamItem], list[UpstreamItem]]:
    """Return the items that a listing changes, with their new states, and those that it adds; none of them saved."""
    existing = {item.name: item for item in rows}
    changed = [item for item in existing.values() if _compare(item, listed.get(item.name))]
    added = sorted(listed.keys() - existing.keys())
    return changed, [UpstreamItem(kind=kind, name=name, proposed=listed[name]) for name in added]


def _set_warnings(items: Iterable[UpstreamItem], known: dict[str, list[str]]) -> None:
    """Set the warnings of items for what an admin is shown; `known` has those of definitions, by their digests."""
    for item in items:
        shown = item.proposed if item.proposed is not None else item.accepted
        digest = digest_of(shown or {})
        if digest not in known:
            known[digest] = warnings_of(shown)
        item.warnings = known[digest]


def _compare(item: UpstreamItem, listed: dict[str, Any] | None) -> bool:
    """Set the state of an item by what the upstream lists now. Returns whether it changed."""
    before = (item.state, item.proposed)
    if listed is None:
        item.proposed = None
        if item.accepted is not None:
            item.state = ItemState.REMOVED
    elif item.accepted is None:
        item.proposed = listed
    elif digest_of(listed) == item.digest:
        item.state, item.proposed = ItemState.ACCEPTED, None
    else:
        item.state, item.proposed = ItemState.CHANGED, listed
    return before != (item.state, item.proposed)
