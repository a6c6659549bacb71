"""Documents of API sources: fetched or uploaded, parsed, and stored as revisions.

`read_revision` takes seconds for a large document, and longer for a slow server. A command runs it itself; otherwise
workers do, beside calls, in threads that run none. A revision waits in the database until a process claims it. Slow
servers of a tenant, however many, keep one thread of one process, and no call waits for it.
"""

import hashlib
import logging
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Final
from uuid import UUID

import msgspec
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.db.models import Max
from django.utils import timezone

from tools_app.audit.changes import changes
from tools_app.catalog.kinds.http.response import SUCCESSES
from tools_app.catalog.kinds.openapi.documents.bundle import bundled
from tools_app.catalog.kinds.openapi.documents.operations import Parsed, ParseOptions, parse
from tools_app.catalog.kinds.openapi.documents.reader import MAX_BYTES, TOO_LARGE, UnreadableDocument
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.client import Outbound, RequestPolicy
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.redirects import exchange_following
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.core.process.runtime import Service
from tools_app.core.process.threads import start_thread
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.models import ApiSource, ApiSourceRevision, RevisionState

log = logging.getLogger(__name__)

# Of a document with all that it refers to, and of the silence of a server.
FETCH_TIMEOUT_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 10.0
# A revision that no worker has read for this long counts as failed.
READ_WITHIN: Final = timedelta(minutes=5)
MAX_REVISIONS: Final = 10
POLL_SECONDS: Final = 0.5
MAX_CONCURRENT: Final = 4
# Tenants whose turn is remembered.
MAX_SERVED: Final = 10_000
HEADERS: Final = (
    ("User-Agent", "mcphub"),
    ("Accept", "application/json, application/yaml;q=0.9, */*;q=0.5"),
    ("Accept-Encoding", "gzip"),
)
TOO_SLOW: Final = f"The documents could not be fetched within {FETCH_TIMEOUT_SECONDS:g} seconds."
NOT_READ: Final = "The document was not read. Check that a worker is running, then refresh the source."


def save_source(source: ApiSource) -> ApiSource:
    """Save a source. The caller has validated it."""
    with changes.change_log_transaction():
        source.updated_at = timezone.now()
        source.save()
    return source


def add_revision(source: ApiSource, by: User | None = None, data: bytes | None = None) -> ApiSourceRevision:
    """Add a revision that is to be read, from the source's URL or of an uploaded document.

    Earlier ones that were never applied are removed. Raises UnreadableDocument for an upload that is too large.
    """
    if data is not None and len(data) > MAX_BYTES:
        raise UnreadableDocument(TOO_LARGE)
    with transaction.atomic():
        number = source.revisions.aggregate(last=Max("number"))["last"] or 0
        source.revisions.filter(applied_at=None).delete()
        newest = source.revisions.order_by("-number").values_list("pk", flat=True)[: MAX_REVISIONS - 1]
        source.revisions.exclude(pk__in=list(newest)).exclude(number=source.revision).delete()
        number = max(number, source.revision) + 1
        content = zlib.compress(data) if data is not None else b""
        return ApiSourceRevision.objects.create(
            source=source, number=number, content=content, size=len(data or b""), created_by=by
        )


def read_again(source: ApiSource, by: User | None) -> None:
    """Have the document read again, because it is to be read in another way."""
    data = newest_upload(source)
    if source.url or data is not None:
        add_revision(source, by, data)


def claim(served: Mapping[UUID, float], reading: Collection[UUID]) -> ApiSourceRevision | None:
    """Claim a revision that waits to be read, for this process; None if there is none.

    A tenant has one read at a time in all processes, so that its slow servers delay no other. Tenants that this process
    served longest ago, which `served` tells, come first. `reading` are those that it serves now. A claim of a process
    that died is not taken over, so that a document that kills its reader kills one.
    """
    waiting = ApiSourceRevision.objects.filter(state=RevisionState.PENDING)
    rows = waiting.order_by("created_at").values_list("pk", "source__tenant_id", "claimed_at")
    now = timezone.now()
    busy = {*reading}
    oldest: dict[UUID, UUID] = {}
    for revision_id, tenant_id, claimed_at in rows:
        if claimed_at is None:
            oldest.setdefault(tenant_id, revision_id)
        elif claimed_at > now - READ_WITHIN:
            busy.add(tenant_id)
    for tenant_id in sorted(oldest.keys() - busy, key=lambda tenant_id: served.get(tenant_id, 0.0)):
        if waiting.filter(pk=oldest[tenant_id], claimed_at=None).update(claimed_at=now):
            return ApiSourceRevision.objects.select_related("source__tenant").filter(pk=oldest[tenant_id]).first()
    return None


def unclaim(revision_ids: Collection[UUID]) -> None:
    """Leave what was not read to its end to other processes."""
    ApiSourceRevision.objects.filter(pk__in=revision_ids, state=RevisionState.PENDING).update(claimed_at=None)


def read_revision(revision_id: UUID) -> ApiSourceRevision | None:
    """Fetch and parse the document of a pending revision; None if there is none. The reason of a failure is stored."""
    revision = ApiSourceRevision.objects.select_related("source__tenant").filter(pk=revision_id).first()
    if revision is None or revision.state != RevisionState.PENDING:
        return revision
    try:
        data = zlib.decompress(bytes(revision.content)) if revision.content else fetched(revision.source)
        store_parsed(revision, data, parse(data, options_of(revision.source), keys_of(revision.source)))
    except (UnreadableDocument, RequestFailed) as problem:
        revision.state, revision.problem = RevisionState.FAILED, str(problem)
    except Exception:
        log.exception("The document of the API source %s could not be parsed", revision.source_id)
        revision.state, revision.problem = RevisionState.FAILED, "The document could not be parsed. See the log."
    try:
        revision.save(force_update=True)
    except DatabaseError:
        if ApiSourceRevision.objects.filter(pk=revision.pk).exists():
            raise
        return None  # replaced by a later one
    return revision


def store_parsed(revision: ApiSourceRevision, data: bytes, found: Parsed) -> None:
    """Write a document and what was found in it into a revision."""
    revision.state = RevisionState.READY
    revision.content, revision.size, revision.digest = zlib.compress(data), len(data), digest_of(data)
    revision.parsed = zlib.compress(msgspec.json.encode(found))
    revision.title, revision.version = found.title, found.version
    revision.operations, revision.skipped = len(found.operations), len(found.skipped)


def options_of(source: ApiSource) -> ParseOptions:
    """Return how the documents of a source are read."""
    return ParseOptions(source.cycle_depth, source.output_schemas, source.selection)


def keys_of(source: ApiSource) -> list[str]:
    """Return the keys of the operations that are tools: they follow the document, whatever is selected."""
    return list(source.tools.exclude(operation="").values_list("operation", flat=True))


def newest_upload(source: ApiSource) -> bytes | None:
    """Return the newest document of a source without a URL, to read it again; None if there is none."""
    revision = None if source.url else source.revisions.exclude(content=b"").first()
    return zlib.decompress(bytes(revision.content)) if revision is not None else None


def digest_of(data: bytes) -> str:
    """Return the digest by which documents are compared."""
    return hashlib.sha256(data).hexdigest()


def parsed_of(revision: ApiSourceRevision) -> Parsed:
    """Return what the document of a revision contains, which was read."""
    return msgspec.json.decode(zlib.decompress(bytes(revision.parsed)), type=Parsed)


def state_of(revision: ApiSourceRevision) -> tuple[RevisionState, str]:
    """Return the state of a revision, and the reason if it failed."""
    since = revision.claimed_at or revision.created_at
    if revision.state == RevisionState.PENDING and since < timezone.now() - READ_WITHIN:
        return RevisionState.FAILED, NOT_READ
    return RevisionState(revision.state), revision.problem


def fetched(source: ApiSource) -> bytes:
    """Return the document at the source's URL with those that it refers to.

    Raises RequestFailed and UnreadableDocument.
    """
    networks = parse_networks(source.tenant.allowed_networks)
    until = monotonic() + FETCH_TIMEOUT_SECONDS

    def fetch(url: str) -> bytes:
        seconds = until - monotonic()
        if seconds <= 0:
            raise RequestFailed(TOO_SLOW)
        policy = RequestPolicy(networks, seconds, MAX_BYTES, idle_seconds=IDLE_SECONDS, tenant=source.tenant_id)
        return _fetched(url, policy)

    def other(url: str) -> bytes:
        try:
            return fetch(url)
        except RequestFailed as problem:
            raise UnreadableDocument(problem.message) from problem

    return bundled(fetch(source.url), source.url, other)


def _fetched(address: str, policy: RequestPolicy) -> bytes:
    try:
        url = parse_url(address)
    except InvalidUrl as problem:
        raise RequestFailed(f"Invalid URL of the document: {problem}.") from problem
    reply = async_to_sync(exchange_following)(Outbound("GET", url, HEADERS), policy, Scrubber(()))
    if reply.status not in SUCCESSES:
        raise RequestFailed(f"HTTP {reply.status} for the URL of the document.")
    return reply.body


class DocumentReader:
    """Claims the revisions that wait, and reads each in a thread of its own."""

    def __init__(self) -> None:
        # The revisions that are being read, by their tenants, and when a tenant was served last.
        self._reading: dict[UUID, UUID] = {}
        self._served: dict[UUID, float] = {}

    def run(self) -> None:
        """Claim what waits, as far as there are threads for it."""
        while len(self._reading) < MAX_CONCURRENT:
            revision = claim(self._served, list(self._reading))
            if revision is None:
                return
            tenant_id = revision.source.tenant_id
            if len(self._served) >= MAX_SERVED:
                self._served.clear()
            self._served[tenant_id] = monotonic()
            self._reading[tenant_id] = revision.pk
            start_thread("document", partial(self._read, revision))

    def stop(self) -> None:
        """Leave to other processes what is not read yet: a process that ends does not wait for it."""
        with suppress(Exception):
            unclaim(list(self._reading.values()))

    def _read(self, revision: ApiSourceRevision) -> None:
        try:
            read_revision(revision.pk)
        except Exception as problem:  # noqa: BLE001 - the database may be away for a while
            log.warning("The document of the API source %s was not read: %s", revision.source_id, problem)
        finally:
            del self._reading[revision.source.tenant_id]


# The reader of this process, if it is a worker or has one.
reader = Service(DocumentReader, DocumentReader.stop)


def read_waiting() -> None:
    """Read the documents that wait, if this process reads any."""
    running = reader.running()
    if running is not None:
        running.run()
