"""Bodies and heads of requests to every path: how much the hub reads, and how it rejects more."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.wire.client import head_of, raw_connection, rpc
from tools_app.core import request_memory
from tools_app.identity import personal_tokens as tokens
from tools_app.models import Membership, Role, Tenant
from tools_app.server.embedded import EmbeddedHub
from tools_app.transport import page_guard, request

FORM = "application/x-www-form-urlencoded"
ENDLESS = {"Transfer-Encoding": "chunked"}
HUGE = {"Content-Length": str(200 * 1024 * 1024)}
PATHS = ("/mcp", "/t/acme/mcp", "/message", "/admin/login/", "/admin/tools_app/tool/", "/api/v1/tools/", "/nowhere")


def answer_of(connection: socket.socket, method: str = "POST") -> tuple[int, dict[str, str], bytes]:
    """The next response on a connection: its status, headers and body."""
    response = HTTPResponse(connection, method=method)
    response.begin()
    body = response.read()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, body


@contextmanager
def send_head(hub: EmbeddedHub, path: str, headers: dict[str, str], method: str = "POST") -> Iterator[socket.socket]:
    """Open a connection and send the head of a request."""
    with raw_connection(hub.url) as connection:
        connection.sendall(head_of(hub.url, method, [*headers.items()], path))
        yield connection


def sent_until_closed(connection: socket.socket, most: int = 32 * 1024 * 1024) -> int:
    """The number of bytes of a chunked body that the hub reads before it closes the connection."""
    piece, sent = b"10000\r\n%b\r\n" % (b"x" * 0x10000), 0
    try:
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
    except OSError:
        return sent
    return sent


@pytest.fixture
def admin(tenant: Tenant) -> User:
    person = User.objects.create_user("admin", password="correct horse")
    Membership.objects.create(user=person, tenant=tenant, role=Role.ADMIN)
    return person


@pytest.fixture
def token(admin: User) -> str:
    return tokens.issue(admin, "test")[1]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", [HUGE, ENDLESS], ids=["declared", "endless"])
def test_a_large_body_without_a_key_is_rejected_unread(
    hub: EmbeddedHub, tenant: Tenant, path: str, size: dict[str, str]
) -> None:
    kind = FORM if path.startswith("/admin") else "application/json"
    with send_head(hub, path, {"Content-Type": kind, **size}) as connection:
        taken = sent_until_closed(connection) if size is ENDLESS else 0
        if size is HUGE:
            status, headers, _ = answer_of(connection)
            assert status in ({401, 404} if path in PATHS[:3] else {413})
            assert headers["connection"] == "close"
            taken = sent_until_closed(connection)
    # What the kernels on both sides hold is taken too.
    assert taken < 16 * 1024 * 1024


@pytest.mark.parametrize("path", ["/mcp", "/admin/login/", "/api/v1/tools/"])
def test_a_client_that_is_still_sending_gets_the_response(hub: EmbeddedHub, path: str) -> None:
    with send_head(hub, path, ENDLESS) as connection:
        for _ in range(4):
            connection.sendall(b"8000\r\n%b\r\n" % (b"x" * 0x8000))
        status, headers, _ = answer_of(connection)
        assert (status, headers["connection"]) == (401 if path == "/mcp" else 413, "close")


@pytest.mark.parametrize("size", [page_guard.MAX_FORM_BYTES, page_guard.MAX_FORM_BYTES + 1])
def test_a_login_takes_64_kib(hub: EmbeddedHub, size: int) -> None:
    body = b"username=x&password=".ljust(size, b"y")
    with send_head(hub, "/admin/login/", {"Content-Type": FORM, "Content-Length": str(size)}) as connection:
        connection.sendall(body)
        # There is no CSRF token in it.
        assert answer_of(connection)[0] == (403 if size == page_guard.MAX_FORM_BYTES else 413)


def test_whoever_may_change_something_may_send_more_to_the_api(hub: EmbeddedHub, token: str, settings: Any) -> None:
    settings.MCPHUB_MAX_BODY_BYTES = 200_000
    for credential, size, status in (
        (token, 200_000, 400),
        (token, 200_001, 413),
        ("mcphubt_wrong", 100_000, 413),
        ("mcphubt_wrong", 1_000, 401),
    ):
        headers = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json"}
        with send_head(hub, "/api/v1/tools/", {**headers, "Content-Length": str(size)}) as connection:
            if status != 413:
                connection.sendall(b"{}".ljust(size))
            received_status, fields, body = answer_of(connection)
        assert received_status == status
        assert fields["content-type"] == "application/problem+json"
        assert json.loads(body)["status"] == status


@pytest.mark.parametrize("sends_length", [True, False])
def test_a_person_may_upload_in_the_admin_and_nobody_else(
    hub: EmbeddedHub, admin: User, tenant: Tenant, sends_length: bool
) -> None:
    admin.is_superuser = True
    admin.save()
    browser = Client()
    browser.force_login(admin)
    body = b"a=" + b"x" * 1_000_000
    for cookie, status in ((browser.cookies["sessionid"].value, 403), ("nobody", 413)):
        size = {"Content-Length": str(len(body))} if sends_length else ENDLESS
        headers = {"Content-Type": FORM, "Cookie": f"sessionid={cookie}", **size}
        with send_head(hub, "/admin/tools_app/tool/add/", headers) as connection:
            try:
                connection.sendall(body if sends_length else b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            except OSError:
                assert status == 413
            # It came without a CSRF token, which is found out once all of it is read.
            assert answer_of(connection)[0] == status


def test_100_continue_is_sent_only_with_a_valid_key(hub: EmbeddedHub, key: str) -> None:
    body = json.dumps(rpc("initialize", {"protocolVersion": "2025-11-25"})).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Expect": "100-continue"}
    with send_head(hub, "/mcp", {**headers, "Authorization": f"Bearer {key}"}) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert answer_of(connection)[0] == 200
    with send_head(hub, "/mcp", headers) as connection:
        status, fields, _ = answer_of(connection)
        assert (status, fields["connection"]) == (401, "close")


def test_a_connection_goes_on_after_a_short_body_was_refused(hub: EmbeddedHub, key: str) -> None:
    body = json.dumps(rpc("initialize", {"protocolVersion": "2025-11-25"})).encode()
    common = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    with send_head(hub, "/mcp", common) as connection:
        connection.sendall(body[:10])
        connection.sendall(body[10:])
        status, fields, _ = answer_of(connection)
        assert (status, fields.get("connection")) == (401, None)
        connection.sendall(
            head_of(hub.url, "POST", [*common.items(), ("Authorization", f"Bearer {key}")], "/mcp") + body
        )
        assert answer_of(connection)[0] == 200


@pytest.mark.parametrize("path", ["/mcp", "/admin/login/"])
def test_a_body_that_comes_too_slowly_is_given_up(
    hub: EmbeddedHub, key: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_memory, "BODY_SECONDS", 0.1)
    monkeypatch.setattr(request_memory, "BYTES_PER_SECOND", 1024**3)
    headers = {"Content-Type": "application/json", "Content-Length": "1000", "Authorization": f"Bearer {key}"}
    with send_head(hub, path, headers) as connection:
        connection.sendall(b"{")
        assert answer_of(connection)[0] == 408


# --- Heads --------------------------------------------------------------------------------------------------------


def test_two_hosts_are_refused_on_every_path(hub: EmbeddedHub, key: str) -> None:
    own = urlsplit(hub.url).netloc
    for path in ("/mcp", "/admin/login/", "/healthz", "/api/v1/me/"):
        for others in ([own], ["evil.example"]):
            lines = [f"GET {path} HTTP/1.1", f"Host: {own}", *(f"Host: {other}" for other in others), "", ""]
            with raw_connection(hub.url) as connection:
                connection.sendall("\r\n".join(lines).encode())
                status, _, body = answer_of(connection, "GET")
                assert (status, b"Host" in body) == (400, True)


@pytest.mark.parametrize(
    "lengths",
    ["Content-Length: 2\r\nContent-Length: 3", "Content-Length: 2\r\nTransfer-Encoding: chunked", "Content-Length: x"],
)
def test_lengths_that_disagree_are_refused(hub: EmbeddedHub, lengths: str) -> None:
    with raw_connection(hub.url) as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\nHost: {urlsplit(hub.url).netloc}\r\n{lengths}\r\n\r\n{{}}".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("path", ["/mcp", "/admin/login/", "/api/v1/tools/"])
def test_a_head_beyond_its_bounds_is_refused(hub: EmbeddedHub, path: str) -> None:
    for more, headers, status in [
        ("?x=" + "y" * request.MAX_QUERY_BYTES, 0, 414),
        ("?x=%00", 0, 400),
        ("x" * request.MAX_PATH_BYTES, 0, 414),
        ("%00", 0, 400),
        ("", request.MAX_HEADERS, 431),
    ]:
        fields = [(f"X-{number}", "y") for number in range(headers)]
        with raw_connection(hub.url) as connection:
            connection.sendall(head_of(hub.url, "GET", fields, path + more))
            assert answer_of(connection, "GET")[0] == status, (more[:20], headers)
