"""The end of a background call is recorded even if the database was away at that moment."""

import pytest

from tests.audit.test_recorder import saying
from tools_app.audit.recorder import recorder
from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.calls.background import worker
from tools_app.models import CallEvent

AWAY_TIMES = 3


@pytest.mark.django_db(transaction=True)
def test_a_worker_tries_until_the_database_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    real = recorder.current()
    tries = []

    class Sometimes:
        def record(self, entry: object) -> bool:
            tries.append(entry)
            if len(tries) <= AWAY_TIMES:
                raise RecorderUnavailable("away")
            return real.record(entry)

    monkeypatch.setattr(recorder, "current", Sometimes)
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.001)
    worker._record_with_retry(saying())
    assert len(tries) == AWAY_TIMES + 1
    assert CallEvent.objects.count() == 1


def test_a_worker_gives_up_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never:
        def record(self, entry: object) -> bool:
            raise RecorderUnavailable("away")

    monkeypatch.setattr(recorder, "current", Never)
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(worker, "PATIENCE_SECONDS", 0.01)
    with pytest.raises(RecorderUnavailable):
        worker._record_with_retry(saying())
