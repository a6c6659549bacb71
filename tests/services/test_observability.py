"""Observability of a hub at scale: traces across processes, metrics, logs, and the doctor."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import psycopg
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.services.caller import Caller
from tests.services.conftest import Hub, started
from tests.services.stack import THREADS, Stack, eventually

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "00f067aa0ba902b7"
TOKEN = "a-token-for-prometheus"
SERVER, CLIENT, PRODUCER, CONSUMER = 2, 3, 4, 5


class Collector(ThreadingHTTPServer):
    """Receives the spans of OpenTelemetry's exporter."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.spans: list[Any] = []

    def of_trace(self, trace_id: str) -> list[Any]:
        return [span for span in list(self.spans) if span.trace_id.hex() == trace_id]


class _Take(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        sent = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in sent.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_values: object) -> None:
        """Log no requests."""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    server = Collector()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def running(stack: Stack, collector: Collector) -> Hub:
    """Processes with tracing, metrics and JSON logs enabled."""
    stack.environment |= {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "MCPHUB_METRICS_TOKEN": TOKEN,
        "MCPHUB_LOG_FORMAT": "json",
        "MCPHUB_LOG_LEVEL": "DEBUG",
    }
    return started(stack, *THREADS)


def test_client_web_and_worker_are_one_trace_and_the_record_names_it(
    hub: Hub, caller: Caller, collector: Collector
) -> None:
    meta = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    body = {
        "jsonrpc": "2.0",
        "id": 5,
        "method": "tools/call",
        "params": {"name": "count", "arguments": {"n": 2}, "_meta": meta},
    }
    assert caller.post(hub.urls[1], body).status_code == 200

    spans = eventually(lambda: len(found := collector.of_trace(TRACE)) >= 4 and found)
    by_kind = {span.kind: span for span in spans}
    (run,) = [span for span in spans if span.name == "execute_tool count"]
    assert by_kind[SERVER].parent_span_id.hex() == PARENT
    assert by_kind[PRODUCER].parent_span_id == by_kind[SERVER].span_id
    assert by_kind[CONSUMER].parent_span_id == by_kind[PRODUCER].span_id
    assert run.parent_span_id == by_kind[CONSUMER].span_id
    assert hub.stack.rows("SELECT trace_id FROM tools_app_call WHERE tool_name = %s", "count") == [(TRACE,)]


def scrape(url: str) -> dict[str, float]:
    response = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=20)
    assert response.status_code == 200, response.text
    lines = [line for line in response.text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_either_web_process_tells_the_numbers_of_all_and_of_the_workers(hub: Hub, caller: Caller) -> None:
    for url in hub.urls:
        caller.call(url, "echo", {"message": "x"})
    caller.call(hub.urls[0], "count", {"n": 1})
    calls = 'mcphub_calls_total{method="tools/call",mode="%s",outcome="ok",revision="2025-11-25"}'

    for web in hub.webs:
        eventually(lambda url=web.url: scrape(url).get(calls % "inline", 0) >= 2)
        eventually(lambda url=web.url: scrape(url).get(calls % "background", 0) >= 1)
        numbers = scrape(web.url)
        kinds = {name.split('kind="')[1].split('"')[0] for name in numbers if name.startswith("mcphub_processes{")}
        assert kinds == {"web", "worker"}
        assert numbers['mcphub_part_up{part="broker"}'] == 1
        assert numbers["mcphub_broker_queue_messages"] == 0
        assert numbers["mcphub_call_queue_seconds_count"] >= 1


def test_what_a_process_counted_outlives_it(hub: Hub, caller: Caller) -> None:
    calls = 'mcphub_calls_total{method="tools/call",mode="background",outcome="ok",revision="2025-11-25"}'
    caller.call(hub.urls[0], "count", {"n": 1})
    before = eventually(lambda: scrape(hub.webs[0].url).get(calls))
    hub.worker.terminate()
    hub.restart_worker()
    caller.call(hub.urls[0], "count", {"n": 1})

    eventually(lambda: scrape(hub.webs[0].url)[calls] > before)


def test_no_process_logs_a_secret_and_each_line_is_json(hub: Hub, caller: Caller) -> None:
    secret = "hunter22-secret"
    httpx.post(f"{hub.urls[0]}?api_key={hub.stack.key}", json={}, trust_env=False)
    for url in hub.urls:
        caller.call(url, "echo", {"message": "x", "password": secret})
        caller.call(url, "test_throw", {})
        httpx.get(url.replace("/mcp", f"/nothing?token={secret}"), trust_env=False)

    for process in hub.stack.started:
        output = process.output()
        hidden = (secret, hub.stack.key, caller.wire_id, hub.stack.environment["MCPHUB_SECRET_KEY"])
        assert [word for word in hidden if word in output] == []
    lines = [json.loads(line) for line in hub.webs[1].output().splitlines() if line.startswith("{")]
    thrown = [line for line in lines if line["message"].startswith("Tool test_throw raised")]
    assert len({line["call_id"] for line in thrown}) == len(thrown) == 1
    assert thrown[0]["tenant"] == "demo"


# --- The doctor -----------------------------------------------------------------------------------------------------


def examined(stack: Stack, *arguments: str) -> dict[str, tuple[str, str]]:
    """The doctor's findings by subject; the last one counts."""
    code = "from django.core.management import call_command\ntry:\n    call_command('doctor', '--json', *%r)\n"
    printed = stack.shell(code % (arguments,) + "except SystemExit:\n    pass\n")
    report = json.loads(printed[printed.index("{\n") :])
    return {finding["about"]: (finding["status"], finding["message"]) for finding in report["findings"]}


def test_the_doctor_finds_a_hub_at_scale_well(hub: Hub) -> None:
    caller = Caller(hub.stack.key).open(hub.urls[0])
    caller.call(hub.urls[0], "count", {"n": 1})

    found = examined(hub.stack, "--url", hub.urls[0], "--key", hub.stack.key)

    # The server of a test run may sync nothing to disk.
    assert {about for about, (status, _) in found.items() if status == "problem"} <= {"durability"}
    well = {"workers", "worker code", "worker tasks", "redis", "broker", "migrations", "clock"}
    well |= {"connections", "partitions", "endpoint", "session", "stream", "progress", "transactions"}
    assert {about: found[about] for about in well if found[about][0] != "ok"} == {}
    # How soon depends on the machine's load.
    assert found["channel layer"][1].startswith("a notification arrives after")


def test_the_doctor_names_a_server_that_lets_callers_forge_their_address(hub: Hub) -> None:
    # By default, it trusts X-Forwarded-For from this machine.
    url = f"{hub.stack.web('uvicorn by hand').url}/mcp"
    code = "from tools_app.doctor.endpoint import EndpointChecks\n"
    code += f"print([f.fix for f in EndpointChecks({url!r}, {hub.stack.key!r}).checks() if f.status == 'problem'])"

    assert "--no-proxy-headers" in hub.stack.shell(code)


def test_the_doctor_names_a_database_that_forgets(hub: Hub) -> None:
    code = """
import json
from django.db import connection
from tools_app.doctor.database import postgresql
found = {}
for value in ("on", "off"):
    connection.cursor().execute(f"SET synchronous_commit = {value}")
    found |= {finding.message: finding.status for finding in postgresql() if finding.about == "durability"}
print(json.dumps(found))
"""
    found = json.loads(hub.stack.shell(code))
    for name in ("fsync", "full_page_writes"):
        ((value,),) = hub.stack.rows("SELECT current_setting(%s)", name)
        assert found.pop(f"{name} is {value}") == ("problem" if value == "off" else "ok")
    assert found == {"synchronous_commit is on": "ok", "synchronous_commit is off": "problem"}


def test_the_doctor_names_transactions_that_are_left_open(hub: Hub) -> None:
    with psycopg.connect(hub.stack.database_url) as connection:
        connection.execute("SELECT 1")
        code = "from tools_app.doctor import database\ndatabase.IDLE_SECONDS = 0\n"
        code += "print([(str(f.status), f.message) for f in database.postgresql() if f.about == 'transactions'])"
        assert "('warning', '1 idle" in hub.stack.shell(code)


def test_the_doctor_names_months_without_partitions(hub: Hub) -> None:
    (name,) = hub.stack.rows("SELECT max(relname) FROM pg_class WHERE relname ~ '^tools_app_call_[0-9]{4}_[0-9]{2}$'")[
        0
    ]
    with psycopg.connect(hub.stack.database_url) as connection:
        connection.execute(f'DROP TABLE "{name}"')

    assert examined(hub.stack)["partitions"][0] == "warning"


def test_the_doctor_names_missing_workers(hub: Hub) -> None:
    hub.worker.terminate()
    try:
        assert examined(hub.stack)["workers"] == ("problem", "no worker responds")
    finally:
        hub.restart_worker()
