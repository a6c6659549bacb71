"""Control commands of Celery workers: the digest of a worker's code, and the end of the process that runs a call.

Celery's own `revoke` would remember the call in every worker, and look for its result. Two parts are not public API
(`tests/server/test_contracts.py`): `active_requests` of `celery.worker.state`, and `terminate` of a request.
"""

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from celery.concurrency import prefork
from celery.worker import state as worker_state
from celery.worker.control import control_command, inspect_command

from tools_app.calls.background.queue import END_CALL

CODE = "mcphub_code"


@cache
def code_digest() -> str:
    """Return a digest of the hub's code on disk at the time of the first call."""
    root = Path(__file__).resolve().parents[2]
    digest = sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


# Computed at import: later the files may be newer than the running code.
code_digest()


@inspect_command(name=CODE)
def tell_code(_state: object) -> str:
    """The digest of this worker's code."""
    return code_digest()


@control_command(name=END_CALL)
def end_call(state: Any, call_id: str) -> None:
    """End the process of a prefork pool that runs a call, which was settled without it."""
    pool = state.consumer.pool
    if not isinstance(pool, prefork.TaskPool):
        return
    for request in tuple(worker_state.active_requests):
        if request.id == call_id:
            # A tool may catch what SIGTERM raises. Its call is recorded: the process has nothing else to write.
            request.terminate(pool, signal="KILL")
