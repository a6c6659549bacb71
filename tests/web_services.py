"""Fixtures of the tests of HTTP tools: local web services that respond with exact bytes."""

import asyncio
import datetime as dt
import ipaddress
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tools_app.calls.conversation import Rounds
from tools_app.calls.invocation import FIRST_ROUND
from tools_app.catalog.kinds.http import runner as http_tools
from tools_app.catalog.tool_api.context import Caller, Cancellation, ToolContext
from tools_app.catalog.tool_api.results import ToolResult

WAIT_SECONDS = 10.0


@dataclass(frozen=True)
class Received:
    """A received request. Header names are lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Received], bytes | Iterable[bytes]]


def http_response(status: int, body: bytes = b"", content_type: str = "", **headers: str) -> bytes:
    """A complete HTTP response. Underscores in the names of `headers` become hyphens."""
    fields = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    if content_type:
        fields["Content-Type"] = content_type
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Status\r\n{lines}\r\n".encode("latin-1") + body


@pytest.fixture
def http() -> Callable[..., bytes]:
    """Make a response: `http(200, b"{}", "application/json", X_Header="y")`."""
    return http_response


@dataclass
class Service:
    """A running service: its response, the received requests, and whether a client disconnected."""

    answer: Answer
    port: int = 0
    scheme: str = "http"
    received: list[Received] = field(default_factory=list)
    connected: threading.Event = field(default_factory=threading.Event)
    hung_up: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


class _Handler(socketserver.StreamRequestHandler):
    timeout = WAIT_SECONDS

    def handle(self) -> None:
        service: Service = self.server.service  # type: ignore[attr-defined]
        service.connected.set()
        try:
            request = self._read()
            service.received.append(request)
            answer = service.answer(request)
            for chunk in [answer] if isinstance(answer, bytes) else answer:
                self.wfile.write(chunk)
        except OSError:
            service.hung_up.set()

    def _read(self) -> Received:
        method, target, _ = self.rfile.readline().decode("latin-1").split(" ", 2)
        headers = {}
        while line := self.rfile.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return Received(method, target, headers, self.rfile.read(int(headers.get("content-length", "0"))))


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, service: Service, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = service
        self._tls = tls

    def get_request(self) -> tuple[object, object]:
        connection, address = super().get_request()
        connection.settimeout(WAIT_SECONDS)
        return (self._tls.wrap_socket(connection, server_side=True) if self._tls else connection), address


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    """Start a service: `serve(answer)`, where the answer is bytes or a function of the request."""
    running: list[tuple[Service, _Server, threading.Thread]] = []

    def start(answer: Answer | bytes, tls: ssl.SSLContext | None = None) -> Service:
        service = Service((lambda _: answer) if isinstance(answer, bytes) else answer)
        server = _Server(service, tls)
        service.port = server.server_address[1]
        service.scheme = "https" if tls else "http"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((service, server, thread))
        return service

    yield start
    for service, server, thread in running:
        service.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join(WAIT_SECONDS)


@pytest.fixture
def context() -> ToolContext:
    """The context that a tool gets."""
    caller = Caller(uuid4(), "acme", "127.0.0.1", "client", "1", "2026-07-28", {})
    return ToolContext(uuid4(), caller, lambda kind, data: None, Cancellation(), lambda: Rounds(FIRST_ROUND))


@pytest.fixture
def call(context: ToolContext) -> Callable[..., ToolResult]:
    """Call an HTTP tool: `call({"base_url": ...}, {"id": 1}, secrets={...})`. Other keywords change its policy."""

    def run(
        config: dict[str, Any],
        arguments: dict[str, Any] | None = None,
        secrets: dict[str, str] | None = None,
        output_schema: dict[str, Any] | None = None,
        allowed: Sequence[str] = ("127.0.0.0/8",),
        **changes: Any,
    ) -> ToolResult:
        tool = http_tools.http_runner(
            http_tools.parse_config(config), secrets or {}, allowed, WAIT_SECONDS, output_schema
        )
        assert isinstance(tool, http_tools.HttpTool)
        tool = replace(tool, sender=replace(tool.sender, policy=replace(tool.sender.policy, **changes)))
        return asyncio.run(asyncio.wait_for(tool(arguments or {}, context), 2 * WAIT_SECONDS))

    return run


@dataclass(frozen=True)
class TlsContexts:
    """TLS contexts for one name: the server's, and a client's that trusts only its certificate."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture
def certified(tmp_path: Path) -> Callable[[str], TlsContexts]:
    """Create a certificate for a host name or an IP address: `certified("api.example.com")`."""

    def make(name: str) -> TlsContexts:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        now = dt.datetime.now(dt.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([_general_name(name)]), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        chain = tmp_path / "chain.pem"
        chain.write_bytes(private + pem)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(chain)
        return TlsContexts(server, ssl.create_default_context(cadata=pem.decode()))

    return make


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
