"""Reading of the documents of API sources, in threads of a worker process that run no calls.

A revision waits in the database until a process claims it. Slow servers of a tenant, however many, keep one thread of
one process, and no call waits for it.
"""

import logging
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final
from uuid import UUID

from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.core.process.runtime import Service
from tools_app.core.process.threads import start_thread
from tools_app.models import ApiSourceRevision

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5
MAX_CONCURRENT: Final = 4
# Tenants whose turn is remembered.
MAX_SERVED: Final = 10_000


class DocumentReader:
    """Claims the revisions that wait, and reads each in a thread of its own."""

    def __init__(self) -> None:
        # The revisions that are being read, by their tenants, and when a tenant was served last.
        self._reading: dict[UUID, UUID] = {}
        self._served: dict[UUID, float] = {}

    def run(self) -> None:
        """Claim what waits, as far as there are threads for it."""
        while len(self._reading) < MAX_CONCURRENT:
            revision = documents.claim(self._served, list(self._reading))
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
            documents.unclaim(list(self._reading.values()))

    def _read(self, revision: ApiSourceRevision) -> None:
        try:
            documents.read_revision(revision.pk)
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
