"""The audit records of calls of every revision pass verification."""

from collections.abc import Callable

import pytest

from tests.wire.client import Peer, RawClient, call_params
from tools_app.audit.checkpoints import signer
from tools_app.audit.verification.report import Problem
from tools_app.audit.verification.verify import Scope, verify
from tools_app.models import Call, CallEvent
from tools_app.runtime import housekeeping


@pytest.fixture(autouse=True)
def demo(offer: Callable[..., object]) -> None:
    offer("count", "echo", "test_throw")


def test_calls_events_failures_and_denials_verify(
    peer: Peer, make_client: Callable[..., RawClient], eventually: Callable[..., object]
) -> None:
    assert make_client("nobody's key").initialize().status_code == 401
    peer.request("tools/call", call_params("echo", {"message": "héllo \u2028 \U0001f600"}))
    peer.request("tools/call", call_params("test_throw", {}))
    peer.request("tools/call", call_params("nothing of this name", {}))
    with peer.stream("tools/call", call_params("count", {"n": 3}, {"progressToken": 1}), id=7) as stream:
        list(stream)
    eventually(lambda: Call.objects.filter(outcome="denied").exists())
    signer.sign()

    report = verify(Scope())
    assert (report.findings, report.records, report.unsigned) == ([], Call.objects.count(), 0)
    assert report.chains == 2

    counted = Call.objects.get(tool_name="count")
    assert CallEvent.objects.filter(call_id=counted.pk, sequence=2).update(data="{}") == 1
    (finding,) = verify(Scope()).findings
    assert (finding.problem, finding.call_id) == (Problem.CHANGED, counted.pk)


def test_every_process_signs_each_minute() -> None:
    assert (60.0, signer.sign) in housekeeping.periodic_tasks()
