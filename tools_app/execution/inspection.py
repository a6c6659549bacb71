"""What a worker tells when it is asked: which code it runs. Whoever deploys sees whether all run the same."""

from functools import cache
from hashlib import sha256
from pathlib import Path

from celery.worker.control import inspect_command

CODE = "mcphub_code"


@cache
def code_digest() -> str:
    """A digest of the hub's code as it lies on the disk when it is first asked for."""
    root = Path(__file__).resolve().parents[1]
    digest = sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


# Now, and not when it is asked: by then the files may be newer than what runs.
code_digest()


@inspect_command(name=CODE)
def tell_code(_state: object) -> str:
    """The digest of this worker's code."""
    return code_digest()
