"""Partitions of the audit log, where the database need not have them: see `tests/services/test_partitions.py`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError

from tools_app.audit import partitions

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("is_committed", [True, False])
def test_partitions_whose_creation_is_not_committed_are_not_told(
    monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    @contextmanager
    def lock() -> Iterator[None]:
        yield
        if not is_committed:
            raise OperationalError("the connection broke")

    stand_ins: dict[str, Any] = {
        "in_use": lambda: True,
        "months": list,
        "attached": lambda _cursor: [],
        "_create": lambda _cursor, _month: True,
        "partition_lock": lock,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(partitions, name, stand_in)
    assert len(partitions.create_upcoming()) == (partitions.MONTHS_AHEAD + 1 if is_committed else 0)
