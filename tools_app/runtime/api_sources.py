"""Reading of API sources in workers: a revision is added, and a worker fetches and parses its document."""

from functools import partial
from typing import Final

from celery import current_app
from django.contrib.auth.models import User
from django.db import transaction
from kombu import Connection

from tools_app.calls.background import broker
from tools_app.calls.background.queue import CONFIRM_SECONDS
from tools_app.catalog.sources import documents
from tools_app.models import ApiSource, ApiSourceRevision, RevisionState

READ: Final = "tools_app.read_api_source"
BROKER_AWAY: Final = "The broker is unavailable, so no worker can read the document. Refresh the source in a moment."


def refresh(source: ApiSource, by: User | None, data: bytes | None = None) -> ApiSourceRevision:
    """Add a revision of an uploaded document, or of the one at the source's URL, and have a worker read it.

    Raises Unreadable for an upload that is too large.
    """
    revision = documents.add_revision(source, by, data)
    transaction.on_commit(partial(_enqueue, revision))
    return revision


def read_again(source: ApiSource, by: User | None) -> None:
    """Have a worker read the document again, because it is to be read in another way."""
    data = documents.newest_upload(source)
    if source.url or data is not None:
        refresh(source, by, data)


def _enqueue(revision: ApiSourceRevision) -> None:
    try:
        broker.current().call(partial(_send, str(revision.pk)))
    except broker.BrokerUnavailable:
        waiting = ApiSourceRevision.objects.filter(pk=revision.pk, state=RevisionState.PENDING)
        waiting.update(state=RevisionState.FAILED, problem=BROKER_AWAY)


def _send(revision_id: str, link: Connection) -> None:
    queue = current_app.conf.task_default_queue
    current_app.send_task(
        READ, (revision_id,), queue=queue, retry=False, confirm_timeout=CONFIRM_SECONDS, connection=link
    )
