"""The length of a call's path through the code, as counted by `python -m benchmarks.path`."""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks import path, workloads
from benchmarks.in_process import Driver
from benchmarks.path import Tracer
from tools_app.audit.recorder import recorder
from tools_app.core.process.runtime import HubRuntime
from tools_app.identity.issuers import direct
from tools_app.models import Issuer, Tenant
from tools_app.transport.routing import mcp_application

WAIT_SECONDS = 40.0
# Lower these when the path becomes shorter.
MAX_CALLS = 108
MAX_FILES = 37


@pytest.fixture
def tracer(new_chains: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tracer]:
    """A tracer, started before the recorder whose calls it counts."""
    monkeypatch.setattr("tools_app.transport.state.process.start", lambda _: None)
    monkeypatch.setattr("tools_app.core.notifications.listener.TopicListener.start", lambda _: None)
    tracer = Tracer()
    with HubRuntime():
        tracer.install()
        yield tracer
        tracer.remove()
        recorder.current.stop()


async def pages(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("a call is no page")


def test_a_call_runs_through_few_functions_in_few_files(tracer: Tracer, key: str, offer: Callable[..., Any]) -> None:
    offer("echo")
    driver = Driver(mcp_application(pages), workloads.ECHO.request(key))

    calls = asyncio.run(asyncio.wait_for(path.shortest(driver, tracer), WAIT_SECONDS))

    walk = path.render("echo", calls)
    assert {"transport/routing.py", "audit/recorder/recorder.py"} <= {call.file for call in calls}, walk
    assert len(calls) <= MAX_CALLS, walk
    assert path.files(calls) <= MAX_FILES, walk


def test_a_token_of_an_issuer_runs_through_as_little_as_a_key(
    tracer: Tracer, tenant: Tenant, offer: Callable[..., Any]
) -> None:
    """It was verified on its first use, by this process or another."""
    offer("echo")
    issuer = Issuer.objects.create(tenant=tenant, name="x", use="direct", rules=[{"claims": {"sub": ["ann"]}}])
    direct._store(issuer, token := f"eyJ{'x' * 1000}", {"sub": "ann", "exp": time.time() + 60}, "127.0.0.1")
    driver = Driver(mcp_application(pages), workloads.ECHO.request(token))

    calls = asyncio.run(asyncio.wait_for(path.shortest(driver, tracer), WAIT_SECONDS))

    walk = path.render("echo", calls)
    assert not [call for call in calls if call.file.startswith("issuers/")], walk
    assert len(calls) <= MAX_CALLS, walk
