"""A client's trace continues in the hub, its workers and the services that tools call (SEP-414)."""

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.wire.client import Peer, RawClient, call_params, message_of
from tools_app.catalog import compiled
from tools_app.core.telemetry import tracing
from tools_app.core.telemetry.spans import OtelSpans
from tools_app.models import Call, Tenant, Tool

IDS = "0af7651916cd43dd8448eb211c80319c"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{IDS}-{PARENT}-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SECRET = "hunter22-secret"

Spans = Callable[[], list[Any]]


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Enable traces. The function that is returned gives the finished spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(OtelSpans(provider, "0"))
    try:
        yield lambda: list(exporter.get_finished_spans())
    finally:
        tracing.use(None)


def recorded_trace(tool: str) -> str:
    return Call.objects.get(tool_name=tool).trace_id


def span_named(spans: list[Any], name: str) -> Any:
    (named_span,) = [span for span in spans if span.name == name]
    return named_span


def traces(spans: list[Any]) -> set[str]:
    return {f"{span.context.trace_id:032x}" for span in spans}


# --- Without OpenTelemetry ------------------------------------------------------------------------------------------


def test_a_record_names_the_trace_of_meta(peer: Peer, offer: Callable[..., object]) -> None:
    offer("echo")
    peer.call("echo", {"message": "x"}, meta={"traceparent": TRACEPARENT}, headers={"traceparent": OTHER})

    assert recorded_trace("echo") == IDS


def test_a_record_names_the_trace_of_the_header(peer: Peer, offer: Callable[..., object]) -> None:
    offer("echo")
    peer.call("echo", {"message": "x"}, headers={"traceparent": TRACEPARENT})

    assert recorded_trace("echo") == IDS


@pytest.mark.parametrize("traceparent", ["garbage", "", 7, None, TRACEPARENT.upper()], ids=str)
def test_a_call_with_a_bad_trace_is_a_call_without_one(
    client: RawClient, offer: Callable[..., object], traceparent: Any
) -> None:
    offer("echo")
    answer = client.modern("tools/call", call_params("echo", {"message": "x"}, {"traceparent": traceparent}))

    assert answer.status_code == 200
    assert recorded_trace("echo") == ""


def test_a_background_call_keeps_its_trace(
    client: RawClient, offer: Callable[..., object], eventually: Callable[..., object]
) -> None:
    offer("count")
    client.modern("tools/call", call_params("count", {"n": 1}, {"traceparent": TRACEPARENT}))

    assert eventually(lambda: recorded_trace("count")) == IDS


# --- With OpenTelemetry --------------------------------------------------------------------------------------------


def test_an_inline_call_is_one_trace_with_the_clients_span_above_it(
    client: RawClient, offer: Callable[..., object], spans: Spans
) -> None:
    offer("echo")
    client.modern("tools/call", call_params("echo", {"message": SECRET}, {"traceparent": TRACEPARENT}), id="r-1")

    done = spans()
    server, run, record = (span_named(done, name) for name in ("tools/call echo", "execute_tool echo", "record"))
    assert traces(done) == {IDS}
    assert f"{server.parent.span_id:016x}" == PARENT
    assert run.parent.span_id == record.parent.span_id == server.context.span_id
    assert server.kind.name == "SERVER"
    assert dict(server.attributes) == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "network.transport": "tcp",
        "mcphub.tenant": "acme",
        "jsonrpc.request.id": '"r-1"',
        "gen_ai.tool.name": "echo",
        "gen_ai.operation.name": "execute_tool",
    }
    assert recorded_trace("echo") == IDS


def test_without_a_clients_trace_the_hub_begins_one_and_records_it(
    client: RawClient, offer: Callable[..., object], spans: Spans
) -> None:
    offer("echo")
    for _ in range(2):
        client.modern("tools/call", call_params("echo", {"message": "x"}))

    assert traces(spans()) == set(Call.objects.values_list("trace_id", flat=True))
    assert len(traces(spans())) == 2


def test_a_background_call_is_one_trace_through_the_queue(
    client: RawClient, offer: Callable[..., object], spans: Spans, eventually: Callable[..., object]
) -> None:
    offer("count")
    client.modern("tools/call", call_params("count", {"n": 1}, {"traceparent": TRACEPARENT, "baggage": "who=eve"}))
    eventually(lambda: any(span.kind.name == "CONSUMER" for span in spans()))

    done = spans()
    by_kind = {span.kind.name: span for span in done}
    assert traces(done) == {IDS}
    assert by_kind["CONSUMER"].parent.span_id == by_kind["PRODUCER"].context.span_id
    assert span_named(done, "execute_tool count").parent.span_id == by_kind["CONSUMER"].context.span_id


def test_a_failed_tool_a_refusal_and_an_unknown_tool_are_failed_spans(
    client: RawClient, offer: Callable[..., object], spans: Spans
) -> None:
    offer("test_throw", "echo")
    client.modern("tools/call", call_params("test_throw"))
    client.modern("tools/call", call_params("nothing"))
    client.modern("prompts/get", {"name": "nothing"})

    failed = {span.name: span.attributes["error.type"] for span in spans() if span.status.status_code.name == "ERROR"}
    assert failed == {
        "execute_tool test_throw": "tool_error",
        "tools/call test_throw": "tool_error",
        "tools/call nothing": "-32602",
        "prompts/get nothing": "-32602",
    }


def test_no_span_holds_an_argument_a_result_or_a_key(
    client: RawClient, key: str, offer: Callable[..., object], spans: Spans
) -> None:
    offer("test_throw", "echo")
    client.modern("tools/call", call_params("echo", {"message": SECRET}))
    client.modern("resources/read", {"uri": f"docs://x?api_key={SECRET}"})
    client.handshake().call("echo", {"message": SECRET})

    exported = " ".join(span.to_json() for span in spans())
    assert "echo" in exported
    assert [secret for secret in (SECRET, key) if secret in exported] == []


class _Service(HTTPServer):
    request_headers: dict[str, str]


class _Handler(BaseHTTPRequestHandler):
    server: _Service

    def do_GET(self) -> None:
        self.server.request_headers = {name.lower(): value for name, value in self.headers.items()}
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_values: object) -> None:
        """Nothing."""


@pytest.fixture
def service() -> Iterator[_Service]:
    """A web service that remembers the headers of its last request."""
    server = _Service(("127.0.0.1", 0), _Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_service_that_a_tool_calls_goes_on_with_the_trace_and_learns_nothing_else(
    client: RawClient, tenant: Tenant, service: _Service, spans: Spans
) -> None:
    tenant.allowed_networks = ["127.0.0.0/8"]
    tenant.save()
    config = {"base_url": f"http://127.0.0.1:{service.server_port}", "path": "weather"}
    Tool.objects.create(tenant=tenant, name="weather", kind="http", config=config)
    compiled.forget_all()
    meta = {"traceparent": TRACEPARENT, "tracestate": "vendor=secret", "baggage": "user=eve"}
    answer = client.modern("tools/call", call_params("weather", {}, meta))

    assert message_of(answer)["result"]["isError"] is False, answer.text
    sent = span_named(spans(), "GET")
    assert service.request_headers["traceparent"] == f"00-{IDS}-{sent.context.span_id:016x}-01"
    assert not {"tracestate", "baggage"} & set(service.request_headers)
    assert (sent.attributes["http.response.status_code"], sent.attributes["server.address"]) == (200, "127.0.0.1")
    assert "weather" not in " ".join(map(str, sent.attributes.values()))
