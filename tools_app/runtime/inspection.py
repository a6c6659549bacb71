"""Celery inspect command that returns the digest of a worker's code, to check that all workers run the same code."""

from functools import cache
from hashlib import sha256
from pathlib import Path

from celery.worker.control import inspect_command

CODE = "mcphub_code"


@cache
def code_digest() -> str:
    """Return a digest of the hub's code on disk at the time of the first call."""
    root = Path(__file__).resolve().parents[1]
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
