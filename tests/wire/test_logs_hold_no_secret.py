"""No log line contains a secret, at DEBUG and with every kind of failure, and lines name their call."""

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest
from django.db import OperationalError

from tests.wire.client import RawClient, call_params, message_of
from tools_app.audit.recorder import recorder
from tools_app.catalog import authoring, compiled
from tools_app.core.telemetry.logs import formatter
from tools_app.models import Call, Tenant, Tool
from tools_app.toolkit import tool

ARGUMENT = "argument-hunter22"
DEEP = "deep-argument-hunter22"
STORED = "stored-hunter22"


class Log:
    """All log lines, in the format of the hub's handler."""

    def __init__(self) -> None:
        self._written = io.StringIO()
        self.handler = logging.StreamHandler(self._written)
        self.handler.setFormatter(formatter("JSON"))

    @property
    def text(self) -> str:
        return self._written.getvalue()

    def lines(self, message: str) -> list[dict[str, str]]:
        lines = [json.loads(line) for line in self.text.splitlines()]
        return [line for line in lines if message in line["message"]]


@pytest.fixture
def log() -> Iterator[Log]:
    log, root = Log(), logging.getLogger()
    level = root.level
    root.addHandler(log.handler)
    root.setLevel(logging.DEBUG)
    try:
        yield log
    finally:
        root.removeHandler(log.handler)
        root.setLevel(level)


@pytest.fixture
def failing(registries: None, tenant: Tenant) -> None:
    """Tools that fail with secrets in their errors."""

    @tool
    def leak(password: str, nested: dict[str, str]) -> str:
        logging.getLogger("their.tool").warning("Trying %s with %s", password, nested)
        raise ValueError(f"{password} and {nested['api_token']} were refused")

    @tool(background=True)
    def leak_in_worker(password: str) -> str:
        logging.getLogger("their.tool").warning("Trying %s", password)
        raise ValueError(f"{password} was refused")

    authoring.add_code_tools(tenant, ["leak", "leak_in_worker"])


def test_failing_tools_log_no_argument_that_has_a_secret_name(client: RawClient, failing: None, log: Log) -> None:
    arguments = {"password": ARGUMENT, "nested": {"api_token": DEEP}}
    answers = [client.modern("tools/call", call_params("leak", arguments), id="r-7")]
    answers.append(client.modern("tools/call", call_params("leak_in_worker", {"password": ARGUMENT})))

    assert all(message_of(answer)["result"]["isError"] for answer in answers)
    assert [secret for secret in (ARGUMENT, DEEP) if secret in log.text] == []
    assert len(log.lines("Trying [redacted]")) == 2
    raised = log.lines("Tool leak raised ValueError: [redacted] and [redacted] were refused")[0]
    assert "ValueError: [redacted] and [redacted] were refused" in raised["exception"]


def test_a_failing_tool_is_one_line_and_its_traceback_is_in_the_record(
    client: RawClient, failing: None, log: Log
) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    client.modern("tools/call", call_params("leak", {"password": ARGUMENT, "nested": {"api_token": DEEP}}))

    assert "exception" not in log.lines("Tool leak raised ValueError: [redacted]")[0]
    assert "Traceback" not in log.text
    assert "Traceback" in Call.objects.get(tool_name="leak").cause


@pytest.mark.parametrize("path", ["/favicon.png", "/nothing", "/api/v1/calls/"])
def test_what_any_browser_or_scanner_asks_for_is_not_logged(client: RawClient, log: Log, path: str) -> None:
    logging.getLogger().setLevel(logging.WARNING)

    assert client.http.get(path).status_code in {401, 404}
    assert log.text == ""


def test_a_foreign_host_name_is_one_line(client: RawClient, log: Log) -> None:
    logging.getLogger().setLevel(logging.WARNING)

    assert client.http.get("/admin/", headers={"Host": "evil.example"}).status_code == 400
    assert "exception" not in log.lines("Invalid HTTP_HOST header: 'evil.example'.")[0]


def test_no_record_keeps_in_its_cause_what_it_hides_in_its_arguments(client: RawClient, failing: None) -> None:
    arguments = {"password": ARGUMENT, "nested": {"api_token": DEEP}}
    client.modern("tools/call", call_params("leak", arguments))
    client.modern("tools/call", call_params("leak_in_worker", {"password": ARGUMENT}))

    causes = list(Call.objects.order_by("id").values_list("cause", flat=True))
    assert [secret for secret in (ARGUMENT, DEEP) if secret in "".join(causes)] == []
    assert "ValueError: [redacted] and [redacted] were refused" in causes[0]
    assert "ValueError: [redacted] was refused" in causes[1]


def test_lines_name_the_call_that_they_are_about_in_the_hub_its_threads_and_its_workers(
    client: RawClient, failing: None, log: Log
) -> None:
    client.modern("tools/call", call_params("leak", {"password": ARGUMENT, "nested": {"api_token": DEEP}}), id="r-7")
    client.modern("tools/call", call_params("leak_in_worker", {"password": ARGUMENT}), id="r-8")

    for name, request_id in (("leak", '"r-7"'), ("leak_in_worker", '"r-8"')):
        call = Call.objects.get(tool_name=name)
        wanted = {
            "call_id": str(call.pk),
            "tenant": "acme",
            "method": "tools/call",
            "request_id": request_id,
        }
        log_lines = log.lines(f"Tool {name} raised") + [
            line for line in log.lines("Trying") if line["call_id"] == str(call.pk)
        ]
        assert len(log_lines) == 2
        assert all(wanted.items() <= line.items() for line in log_lines)


def test_a_line_of_a_session_names_it(client: RawClient, failing: None, log: Log) -> None:
    client.handshake().call("leak", {"password": ARGUMENT, "nested": {"api_token": DEEP}})

    assert log.lines("Tool leak raised")[0]["session_id"] == str(Call.objects.get(tool_name="leak").session_id)


def test_keys_in_headers_and_addresses_are_not_logged(
    client: RawClient, key: str, tenant: Tenant, log: Log, make_client: Callable[..., RawClient]
) -> None:
    tenant.allow_query_key = True
    tenant.save()
    wrong = "mcphub_" + "w" * 43
    for bare in (make_client(None, f"/mcp?api_key={key}"), make_client(None, f"/mcp?api_key={wrong}")):
        bare.modern("ping")
    make_client(wrong).modern("ping")
    client.post(b"{", {"X-Api-Key": key, "Cookie": f"sessionid={wrong}"})
    client.http.get(f"/nothing?api_key={key}", headers={"Authorization": f"Bearer {key}"})
    client.http.get(f"/admin/login/?token={wrong}")
    session = client.handshake()
    session.delete()

    assert session.session_id is not None
    assert [secret for secret in (key, wrong, session.session_id) if secret in log.text] == []


def test_a_store_that_fails_tells_no_password(
    client: RawClient, offer: Callable[..., object], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer("echo")

    def refuse(_entries: object) -> None:
        raise OperationalError("connection to postgres://hub:hunter22@db failed: password=hunter22 is wrong")

    monkeypatch.setattr(recorder, "write", refuse)
    answer = client.modern("tools/call", call_params("echo", {"message": "x"}))

    assert answer.status_code == 503
    assert log.lines("could not be written")
    assert "hunter22" not in log.text


def test_a_secret_of_an_http_tool_is_not_logged(client: RawClient, tenant: Tenant, log: Log) -> None:
    authoring.set_secret(tenant, "TOKEN", STORED)
    config = {
        "base_url": "http://127.0.0.1:9",
        "path": "x",
        "query": {"key": "{secret:TOKEN}"},
        "headers": {"X-Thing": "{secret:TOKEN}"},
    }
    Tool.objects.create(tenant=tenant, name="fetch", kind="http", config=config)
    compiled.forget_all()
    answer = client.modern("tools/call", call_params("fetch"))

    assert message_of(answer)["result"]["isError"] is True
    assert STORED not in log.text
