"""Forwarding of checkpoints to another machine, by POST or syslog, with retries and without blocking."""

import http.server
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest

from tests.audit.chained import forget, record
from tests.web_services import TlsContexts
from tools_app.audit.checkpoints import forwarding as witness_forwarding
from tools_app.audit.checkpoints import signer, witness
from tools_app.audit.checkpoints.forwarding import Forwarder, NotDelivered, log_to_syslog, post
from tools_app.models import Checkpoint, Tenant

WAIT_SECONDS = 8.0


class Receiver(http.server.ThreadingHTTPServer):
    """A receiver with configurable responses that stores the requests."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/heads"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.server.answers.pop(0) if self.server.answers else 204
        if status == 204:
            self.server.bodies.append(body)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", self.server.url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: Any) -> None:
        """Log no requests."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.django_db(transaction=True)
def test_a_checkpoint_is_posted_as_it_was_signed(
    receiver: Receiver, tenant: Tenant, settings: Any, tmp_path: Any, eventually: Callable[..., object]
) -> None:
    settings.MCPHUB_DATA_DIR = tmp_path
    settings.MCPHUB_AUDIT_CHECKPOINTS_URL = receiver.url
    forget()
    witness_forwarding.start()
    try:
        record(1, tenant.pk)
        signer.sign()
        eventually(lambda: receiver.bodies)
    finally:
        witness_forwarding.forwarder.stop()
        forget()
    (body,) = receiver.bodies
    assert json.loads(body)["signature"] == bytes(Checkpoint.objects.get().signature).hex()
    assert witness._forward == [None]


def test_without_a_url_nothing_is_sent(settings: Any) -> None:
    settings.MCPHUB_AUDIT_CHECKPOINTS_URL = ""
    witness_forwarding.start()
    assert witness._forward == [None]


@pytest.mark.parametrize("status", [302, 404, 500, 503])
def test_whatever_is_no_success_is_no_receipt(receiver: Receiver, status: int) -> None:
    receiver.answers = [status]
    with pytest.raises(NotDelivered, match=str(status)):
        post(receiver.url, "{}")
    assert receiver.bodies == []


def test_a_receiver_that_is_away_is_said_to_be() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for send, scheme in ((post, "http"), (log_to_syslog, "syslog")):
        with pytest.raises(NotDelivered):
            send(f"{scheme}://127.0.0.1:{port}/", "{}")


def test_syslog_gets_one_framed_message() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_SECONDS)
        log_to_syslog(f"syslog://127.0.0.1:{server.getsockname()[1]}", '{"statement": "é"}')
        connection, _ = server.accept()
        with connection:
            connection.settimeout(WAIT_SECONDS)
            raw = b"".join(iter(lambda: connection.recv(4096), b""))
    length, _, message = raw.partition(b" ")
    assert int(length) == len(message)
    assert message.startswith(b"<109>1 - ")
    assert message.endswith(' checkpoint - {"statement": "é"}'.encode())


def test_what_is_not_delivered_is_tried_again_in_its_order(
    monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(witness_forwarding, "FIRST_RETRY_SECONDS", 0.01)
    failures, lines = [NotDelivered("away")] * 3, []

    def send(line: str) -> None:
        if failures:
            raise failures.pop()
        lines.append(line)

    forwarder = Forwarder(send)
    for line in ("1", "2", "3"):
        forwarder.take(line)
    eventually(lambda: len(lines) == 3)
    forwarder.close()
    assert lines == ["1", "2", "3"]
    assert caplog.text.count("cannot be delivered to MCPHUB_AUDIT_CHECKPOINTS_URL") == 1


def test_whatever_a_sender_raises_the_line_is_tried_again_and_the_address_is_not_told(
    monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(witness_forwarding, "FIRST_RETRY_SECONDS", 0.01)
    failures: list[Exception] = [ValueError("https://host/?key=hush"), RuntimeError("no event loop")]
    lines = []

    def send(line: str) -> None:
        if failures:
            raise failures.pop()
        lines.append(line)

    forwarder = Forwarder(send)
    forwarder.take("1")
    eventually(lambda: lines == ["1"])
    forwarder.close()
    assert "RuntimeError" in caplog.text
    assert "hush" not in caplog.text


def test_syslog_over_tls_gets_the_same_message_and_only_from_a_server_that_is_trusted(
    monkeypatch: pytest.MonkeyPatch, certified: Callable[[str], TlsContexts]
) -> None:
    localhost = certified("localhost")
    received: list[bytes] = []

    def serve(server: socket.socket) -> None:
        for _ in range(2):
            connection, _ = server.accept()
            connection.settimeout(WAIT_SECONDS)
            with connection, suppress(OSError), localhost.server.wrap_socket(connection, server_side=True) as sealed:
                received.append(b"".join(iter(lambda: sealed.recv(4096), b"")))

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT_SECONDS)
        serving = threading.Thread(target=serve, args=(server,), daemon=True)
        serving.start()
        url = f"syslog+tls://localhost:{server.getsockname()[1]}"
        with pytest.raises(NotDelivered, match="certificate"):
            log_to_syslog(url, "{}")
        monkeypatch.setattr(witness_forwarding, "trusted_certificates", lambda: localhost.client)
        log_to_syslog(url, '{"statement": 1}')
        serving.join(WAIT_SECONDS)
    (raw,) = received
    length, _, message = raw.partition(b" ")
    assert int(length) == len(message)
    assert message.endswith(b' checkpoint - {"statement": 1}')


def test_a_receiver_that_hangs_holds_nobody_up_and_the_newest_lines_wait() -> None:
    held, began = threading.Event(), monotonic()
    lines: list[str] = []

    def send(line: str) -> None:
        held.wait(WAIT_SECONDS)
        lines.append(line)

    forwarder = Forwarder(send)
    for number in range(witness_forwarding.MAX_WAITING * 2):
        forwarder.take(str(number))
    assert monotonic() - began < WAIT_SECONDS
    held.set()
    forwarder.close()
    assert lines[-witness_forwarding.MAX_WAITING :] == [str(number) for number in range(100, 200)]


def test_who_ends_tries_once_more_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def send(line: str) -> None:
        tried.append(line)
        raise NotDelivered("away")

    forwarder = Forwarder(send)
    forwarder.take("1")
    began = monotonic()
    forwarder.close()
    assert tried
    assert set(tried) == {"1"}
    assert monotonic() - began < witness_forwarding.SEND_SECONDS
