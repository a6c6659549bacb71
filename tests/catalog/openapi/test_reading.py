"""Documents of API sources are read by the hub's worker, beside its calls."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.catalog.openapi.documents import document, get
from tests.web_services import WAIT_SECONDS, Received, Service, http_response, serve
from tests.wire.client import RawClient
from tools_app.catalog.kinds.openapi.sources import documents
from tools_app.core.process.runtime import HubRuntime
from tools_app.models import ApiSource, ApiSourceRevision, RevisionState, Tenant
from tools_app.server.embedded import EmbeddedHub

__all__ = ["serve"]

LOOPBACK = ["127.0.0.0/8"]


@pytest.fixture
def worker(hub: EmbeddedHub) -> str:
    """The URL of a hub whose worker reads documents: housekeeping starts with the first request."""
    assert httpx.get(f"{hub.url}/docs/", timeout=WAIT_SECONDS).status_code
    return hub.url


@pytest.fixture
def dripping(serve: Callable[..., Service]) -> Service:
    """A service whose response has a byte every moment, and no end."""

    def drip(_request: Received) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
        while not service.stopped.wait(0.02):
            yield b" "

    service = serve(drip)
    return service


def source_of(tenant: Tenant, url: str, name: str = "api") -> ApiSource:
    Tenant.objects.filter(pk=tenant.pk).update(allowed_networks=LOOPBACK)
    return ApiSource.objects.create(tenant=tenant, name=name, url=url)


def read(revision: ApiSourceRevision) -> ApiSourceRevision | None:
    return ApiSourceRevision.objects.filter(pk=revision.pk).exclude(state=RevisionState.PENDING).first()


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (http_response(200, orjson.dumps(document({"/a": get()})), "application/json"), ("ready", "", 1, "T")),
        (http_response(404), ("failed", "HTTP 404 for the URL of the document.", 0, "")),
    ],
)
def test_a_worker_fetches_and_reads_the_document_or_tells_why_not(
    worker: str,
    tenant: Tenant,
    serve: Callable[..., Service],
    eventually: Callable[..., Any],
    answer: bytes,
    result: tuple[Any, ...],
) -> None:
    revision = documents.add_revision(source_of(tenant, f"{serve(answer).url}/openapi.json"))
    found = eventually(lambda: read(revision))
    assert (found.state, found.problem, found.operations, found.title) == result


def test_servers_that_drip_hold_up_neither_calls_nor_the_documents_of_others(
    worker: str,
    tenant: Tenant,
    other_tenant: Tenant,
    key: str,
    offer: Callable[..., object],
    dripping: Service,
    serve: Callable[..., Service],
    eventually: Callable[..., Any],
) -> None:
    offer("count")
    slow = [documents.add_revision(source_of(other_tenant, dripping.url, f"api{number}")) for number in range(10)]
    eventually(lambda: dripping.received)
    other = serve(http_response(200, orjson.dumps(document({"/a": get()})), "application/json"))
    revision = documents.add_revision(source_of(tenant, other.url))

    client = RawClient(worker, key)
    with client.http:
        answer = client.modern("tools/call", {"name": "count", "arguments": {"n": 0}})
    assert not answer.json()["result"].get("isError"), answer.text
    assert eventually(lambda: read(revision)).state == RevisionState.READY
    # One of a tenant at a time: the others wait.
    assert len(dripping.received) == 1
    assert not any(map(read, slow))
    ApiSource.objects.filter(tenant=other_tenant).delete()


def test_a_document_has_a_limit_in_total_however_steadily_its_servers_send(
    tenant: Tenant, dripping: Service, serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    referring = document({"/a": get({"$ref": f"{dripping.url}/b#/c"})})
    refers = serve(http_response(200, orjson.dumps(referring), "application/json"))
    moved = serve(http_response(302, Location=dripping.url))
    total = documents.FETCH_TIMEOUT_SECONDS
    for number, (url, state) in enumerate([(dripping.url, "failed"), (moved.url, "failed"), (refers.url, "ready")]):
        # The clock when the limit is set, and before each document.
        clock = iter([0.0, total - 0.3] if state == "failed" else [0.0, 0.0, total - 0.3])
        monkeypatch.setattr(documents, "monotonic", clock.__next__)
        revision = documents.read_revision(documents.add_revision(source_of(tenant, url, f"api{number}")).pk)
        assert revision
        assert revision.state == state
        problem = revision.problem or documents.parsed_of(revision).skipped[0].reason
        assert "timed out" in problem


def test_tenants_take_turns_and_a_process_that_stops_leaves_its_documents_to_others(
    tenant: Tenant, other_tenant: Tenant
) -> None:
    first, second = (documents.add_revision(source_of(tenant, "https://api.example", name)) for name in "ab")
    other = documents.add_revision(source_of(other_tenant, "https://api.example"))
    served = {tenant.pk: 1.0}

    claimed = [documents.claim(served, []) for _ in range(3)]

    assert claimed == [other, first, None]  # of each tenant one at a time, and who was served last is last
    documents.unclaim([first.pk])
    assert documents.claim(served, []) == first
    # Whoever claimed it has died: it counts as failed, and its tenant has the next one read.
    ApiSourceRevision.objects.filter(pk=first.pk).update(claimed_at=first.created_at - documents.READ_WITHIN)
    first.refresh_from_db()
    assert documents.state_of(first) == (RevisionState.FAILED, documents.NOT_READ)
    assert documents.claim(served, [tenant.pk]) is None
    assert documents.claim(served, []) == second


def test_a_process_that_runs_no_background_calls_reads_no_documents(tenant: Tenant) -> None:
    documents.add_revision(source_of(tenant, "https://api.example"))
    with HubRuntime():
        documents.read_waiting()
    assert ApiSourceRevision.objects.get().claimed_at is None
