"""Which process this is, in every record that it writes. A forked child is a process of its own."""

import os
import socket
from uuid import UUID

from tools_app.models import Process
from tools_app.models.ids import new_id

_own: list[UUID] = []
# Every record asks who writes it: forgotten at a fork, so that it need not be compared with the process each time.
os.register_at_fork(after_in_child=_own.clear)


def process_id() -> UUID:
    """The id of this process: the same for as long as it lives."""
    if not _own:
        _own.append(new_id())
    return _own[0]


def row(kind: str) -> Process:
    """The row of this process; `kind` is "web" or "worker"."""
    return Process(id=process_id(), kind=kind, host=socket.gethostname()[:255], pid=os.getpid())
