"""Control commands of workers: the digest of their code."""

from pathlib import Path

import pytest
from django.conf import settings

from tools_app.calls.background import worker_commands


def test_the_digest_of_the_code_covers_the_whole_app(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or b"")
    worker_commands.code_digest.__wrapped__()
    assert set(read) == set((Path(settings.BASE_DIR) / "tools_app").rglob("*.py"))
