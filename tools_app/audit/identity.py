"""Which process this is, in every record that it writes. A forked child is a process of its own."""

import os
import socket
from uuid import UUID

from tools_app.models import Process
from tools_app.models.ids import new_id

_known: dict[int, UUID] = {}


def process_id() -> UUID:
    """The id of this process: the same for as long as it lives."""
    pid = os.getpid()
    if pid not in _known:
        _known[pid] = new_id()
    return _known[pid]


def row(kind: str) -> Process:
    """The row of this process; `kind` is "web" or "worker"."""
    return Process(id=process_id(), kind=kind, host=socket.gethostname()[:255], pid=os.getpid())
