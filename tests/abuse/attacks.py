"""Attacks: each is bounded in count, and stops at its deadline."""

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from tests.abuse.hub import MEGABYTE, PASSWORD, Hub

SECONDS = 2.0
SENDERS = 8
WAIT_SECONDS = 10.0
META = "io.modelcontextprotocol/"
MODERN = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}}
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
BOTH = "application/json, text/event-stream"

Attack = Callable[[Hub, float], None]
ATTACKS: dict[str, Attack] = {}
GONE = (OSError, http.client.HTTPException)


def attack(function: Attack) -> Attack:
    """Register a function as an attack."""
    ATTACKS[function.__name__] = function
    return function


class Sender:
    """An attacker with one connection at a time, who ignores responses."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.http = http.client.HTTPConnection(*hub.address, timeout=WAIT_SECONDS)
        self.headers: dict[str, str] = {}

    def send(self, verb: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Send a request; return its response, or None."""
        try:
            self.http.request(verb, path, body, {**self.headers, **(headers or {})})
            response = self.http.getresponse()
            response.text = response.read()  # type: ignore[attr-defined]
            if response.status == 500:
                self.hub.internal_errors.append(f"{verb} {path}")
        except GONE:
            self.http.close()
            return None
        return response

    def rpc(self, method: str, params: dict[str, Any], path: str = "/mcp", **headers: str) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        return self.send("POST", path, body, {"Content-Type": JSON, "Accept": BOTH, **headers})

    def modern(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request of 2026-07-28."""
        name = str(params.get("name", params.get("uri", "")))
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
        return self.rpc(method, {**params, "_meta": MODERN}, **headers)

    def session(self, version: str = "2025-11-25", path: str = "/mcp") -> None:
        """Open a session for all further requests."""
        opened = self.rpc("initialize", {"protocolVersion": version, "capabilities": {}}, path)
        if opened is not None and opened.headers["Mcp-Session-Id"]:
            self.headers |= {"Mcp-Session-Id": opened.headers["Mcp-Session-Id"], "MCP-Protocol-Version": version}


def with_key(hub: Hub) -> Sender:
    sender = Sender(hub)
    sender.headers["Authorization"] = f"Bearer {hub.key}"
    return sender


def with_token(hub: Hub) -> Sender:
    sender = Sender(hub)
    sender.headers["Authorization"] = f"Bearer {hub.token}"
    return sender


def logged_in(hub: Hub) -> Sender:
    """Log in, so that forms are accepted."""
    sender = Sender(hub)
    page = sender.send("GET", "/admin/login/")
    token = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page.text)[1].decode()
    sender.headers["Cookie"] = page.headers["Set-Cookie"].partition(";")[0]
    form = {"username": "mallory", "password": PASSWORD, "csrfmiddlewaretoken": token, "next": "/admin/"}
    response = sender.send("POST", "/admin/login/", urlencode(form), {"Content-Type": FORM, "Referer": hub.url})
    cookies = [value.partition(";")[0] for value in response.headers.get_all("Set-Cookie", [])]
    sender.headers["Cookie"] = "; ".join(cookies)
    return sender


def by_many(make: Callable[[], Sender], deadline: float, each: Callable[[Sender, int], None], most: int = 2000) -> None:
    """Repeat an action with several senders."""

    def work(number: int) -> None:
        sender = make()
        try:
            for turn in range(number, most, SENDERS):
                if time.monotonic() > deadline:
                    return
                each(sender, turn)
        finally:
            sender.http.close()

    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(work, range(SENDERS)))


@contextmanager
def sockets(hub: Hub, count: int) -> Iterator[list[socket.socket]]:
    """Open this many TCP connections."""
    connections: list[socket.socket] = []
    try:
        connections.extend(socket.create_connection(hub.address, WAIT_SECONDS) for _ in range(count))
        yield connections
    finally:
        for one in connections:
            one.close()


def head_of(hub: Hub, length: int, *more: str) -> bytes:
    """The headers of a request to the endpoint with this Content-Length."""
    lines = [
        "POST /mcp HTTP/1.1",
        f"Host: {hub.address[0]}:{hub.address[1]}",
        f"Authorization: Bearer {hub.key}",
        f"Content-Type: {JSON}",
        f"Content-Length: {length}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def pour(hub: Hub, head: Iterable[str], piece: bytes, deadline: float, most: int) -> None:
    """Send headers and then pieces, until `most` bytes are sent or the hub closes the connection."""
    lines = [*head, f"Host: {hub.address[0]}:{hub.address[1]}", "", ""]
    with suppress(OSError), socket.create_connection(hub.address, WAIT_SECONDS) as connection:
        connection.sendall("\r\n".join(lines).encode())
        for _ in range(most // len(piece)):
            if time.monotonic() > deadline:
                return
            connection.sendall(piece)


def at_once(deadline: float, works: Iterable[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0) + WAIT_SECONDS)


# --- What is slow to match or to parse ----------------------------------------------------------------------------


@attack
def uri_templates(hub: Hub, deadline: float) -> None:
    uris = ["x://" + "a" * 410 + "/end!", "x://" + "a/" * 4000]
    by_many(
        lambda: with_key(hub), deadline, lambda one, turn: one.modern("resources/read", {"uri": uris[turn % 2]}), 40
    )


@attack
def schema_patterns(hub: Hub, deadline: float) -> None:
    texts = {"ahead": "a" * 60_000, "behind": "a" * 60_000, "twice": "a" * 60_000 + "b"}
    names = list(texts)

    def call(sender: Sender, turn: int) -> None:
        name = names[turn % 3]
        sender.modern("tools/call", {"name": name, "arguments": {"q": texts[name]}})

    by_many(lambda: with_key(hub), deadline, call, 48)


@attack
def deep_json(hub: Hub, deadline: float) -> None:
    bodies = [b"[" * 1_000_000, b'{"a":' * 500_000, b"[" * 60 + b"]" * 60, b"[" + b"[]," * 1_000_000 + b"[]]"]
    headers = {"Content-Type": JSON, "Accept": BOTH}
    by_many(lambda: with_key(hub), deadline, lambda one, turn: one.send("POST", "/mcp", bodies[turn % 4], headers), 64)


@attack
def yaml_bombs(hub: Hub, deadline: float) -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
    )
    sender = logged_in(hub)
    page = sender.send("GET", "/admin/tools_app/tenant/")
    found = re.search(rb"/admin/tools_app/tenant/([0-9a-f-]{36})/", page.text)
    assert found is not None
    path = f"/admin/tools_app/tenant/{found[1].decode()}/import/"
    form = sender.send("GET", path)
    assert form.status == 200
    token = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', form.text)[1].decode()  # type: ignore[index]
    for text in (bomb, "[" * 60_000, "a: " + "!" * 500_000, "- x\n" * 400_000, "{" * 100_000):
        if time.monotonic() < deadline:
            sent = urlencode({"text": text, "csrfmiddlewaretoken": token})
            sender.send("POST", path, sent, {"Content-Type": FORM, "Referer": hub.url})
    sender.http.close()


@attack
def searches(hub: Hub, deadline: float) -> None:
    texts = ["(a+)+$", "%" * 100, "_" * 100, "*" * 100, ".*" * 50, "a" * 200]

    def search(sender: Sender, turn: int) -> None:
        text = texts[turn % len(texts)]
        sender.send("GET", f"/api/v1/calls/?{urlencode({'text': text})}")
        sender.send("GET", f"/api/v1/tools/?{urlencode({'search': text})}")

    by_many(lambda: with_token(hub), deadline, search, 200)


# --- What is large ------------------------------------------------------------------------------------------------


@attack
def large_initializes(hub: Hub, deadline: float) -> None:
    large = {"protocolVersion": "2025-11-25", "capabilities": {"experimental": {"x": "y" * (3 * MEGABYTE)}}}
    full = {"protocolVersion": "2025-11-25", "capabilities": {"experimental": {"x": "y" * 16_000}}}
    by_many(lambda: Sender(hub), deadline, lambda one, turn: one.rpc("initialize", large, "/t/open/mcp"), 30)
    by_many(lambda: with_key(hub), deadline, lambda one, turn: one.rpc("initialize", full), 300)


@attack
def session_lists(hub: Hub, deadline: float) -> None:
    by_many(lambda: with_token(hub), deadline, lambda one, turn: one.send("GET", "/api/v1/sessions/?limit=200"), 100)


@attack
def subscriptions(hub: Hub, deadline: float) -> None:
    def make() -> Sender:
        sender = with_key(hub)
        sender.session()
        return sender

    uris = ["x://" + "a" * (39 * MEGABYTE // 10), "docs://" + "a" * 8000]
    by_many(make, deadline, lambda one, turn: one.rpc("resources/subscribe", {"uri": f"{uris[turn % 2]}{turn}"}), 100)


@attack
def large_bodies_of_strangers(hub: Hub, deadline: float) -> None:
    size = 200 * MEGABYTE
    paths = ("/mcp", "/t/open/mcp", "/message", "/admin/login/", "/api/v1/tools/", "/nowhere", "/admin/", "/sse")
    heads = [[f"POST {path} HTTP/1.1", f"Content-Type: {JSON}", f"Content-Length: {size}"] for path in paths]
    at_once(deadline, [lambda head=head: pour(hub, head, b"x" * 65_536, deadline, size) for head in heads])  # type: ignore[misc]


@attack
def endless_bodies(hub: Hub, deadline: float) -> None:
    piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    keyed = f"Authorization: Bearer {hub.key}"
    paths = ("/mcp", "/t/open/mcp", "/message", "/admin/login/", "/api/v1/tools/", "/nowhere", "/healthz", "/metrics")
    heads = [
        [f"{verb} {path} HTTP/1.1", f"Content-Type: {JSON}", "Transfer-Encoding: chunked", keyed]
        for path in paths
        for verb in ("POST", "GET")
    ]
    at_once(deadline, [lambda head=head: pour(hub, head, piece, deadline, 200 * MEGABYTE) for head in heads])  # type: ignore[misc]


@attack
def large_bodies_with_a_key(hub: Hub, deadline: float) -> None:
    text = "x" * (4 * MEGABYTE - 1000)
    large = {"name": "echo", "arguments": {"message": text}}
    by_many(lambda: with_key(hub), deadline, lambda one, turn: one.modern("tools/call", large), 40)


@attack
def batches(hub: Hub, deadline: float) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    bodies = [json.dumps([ping] * size) for size in (50, 10_000)]

    def make() -> Sender:
        sender = with_key(hub)
        sender.session("2025-03-26")
        return sender

    headers = {"Content-Type": JSON, "Accept": BOTH}
    by_many(make, deadline, lambda one, turn: one.send("POST", "/mcp", bodies[turn % 2], headers), 200)


@attack
def headers(hub: Hub, deadline: float) -> None:
    many = {f"X-{number}": "y" * 20 for number in range(90)}
    by_many(lambda: Sender(hub), deadline, lambda one, turn: one.send("GET", "/healthz", headers=many), 200)


# --- What an upstream of the attacker sends ------------------------------------------------------------------------


FORWARDED = (f"Accept: {BOTH}", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call")


def forwarded(hub: Hub, deadline: float, tools: Sequence[str], count: int) -> None:
    """Make this many concurrent calls of the attacker's own upstream, with all its notifications enabled."""
    capabilities = {"elicitation": {}, "sampling": {}, "roots": {}}
    meta = {**MODERN, META + "clientCapabilities": capabilities, META + "logLevel": "debug"}
    with sockets(hub, count) as connections:
        for number, connection in enumerate(connections):
            name = f"up_{tools[number % len(tools)]}"
            params = {"name": name, "arguments": {}, "_meta": {**meta, "progressToken": number}}
            body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
            head = head_of(hub, len(body), *FORWARDED, f"Mcp-Name: {name}")
            connection.sendall(head + body.encode())
            connection.settimeout(0.01)
        while time.monotonic() < deadline:
            for connection in connections:
                with suppress(OSError):
                    connection.recv(65_536)


@attack
def floods_of_an_upstream(hub: Hub, deadline: float) -> None:
    forwarded(hub, deadline, ("progress", "logs", "no_end_of_line"), 12)


@attack
def large_results_of_an_upstream(hub: Hub, deadline: float) -> None:
    forwarded(hub, deadline, ("large_result", "many_pieces"), 100)


@attack
def calls_that_wait_for_an_upstream(hub: Hub, deadline: float) -> None:
    forwarded(hub, deadline, ("silence", "questions"), 200)


# --- What is many, or slow ----------------------------------------------------------------------------------------


@attack
def slow_bodies(hub: Hub, deadline: float) -> None:
    with sockets(hub, 100) as connections:
        for connection in connections:
            connection.sendall(head_of(hub, 100_000) + b"{")
        while time.monotonic() < deadline:
            for connection in connections:
                with suppress(OSError):
                    connection.sendall(b" ")
            time.sleep(0.1)


@attack
def large_bodies_that_do_not_end(hub: Hub, deadline: float) -> None:
    size = 4 * MEGABYTE - 1000
    piece = head_of(hub, size) + b" " * (size - 1)

    def hold(connections: list[socket.socket]) -> None:
        for connection in connections:
            connection.settimeout(0.5)
            if time.monotonic() < deadline:
                with suppress(OSError):
                    connection.sendall(piece)

    with sockets(hub, 200) as connections:
        at_once(deadline, [lambda part=part: hold(connections[part::SENDERS]) for part in range(SENDERS)])  # type: ignore[misc]
        time.sleep(max(deadline - time.monotonic(), 0))


@attack
def idle_connections(hub: Hub, deadline: float) -> None:
    with sockets(hub, 400) as connections:
        for connection in connections[::2]:
            connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: ")
        time.sleep(max(deadline - time.monotonic(), 0))


@attack
def unknown_keys(hub: Hub, deadline: float) -> None:
    def send_key(sender: Sender, turn: int) -> None:
        sender.headers["Authorization"] = f"Bearer mcphub_{turn % 50:043d}"
        sender.rpc("ping", {})

    by_many(lambda: Sender(hub), deadline, send_key)


@attack
def bad_logins(hub: Hub, deadline: float) -> None:
    def make() -> Sender:
        sender = Sender(hub)
        page = sender.send("GET", "/admin/login/")
        if page is not None:
            token = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page.text)[1].decode()  # type: ignore[index]
            sender.headers["Cookie"] = page.headers["Set-Cookie"].partition(";")[0]
            sender.headers["X-CSRFToken"] = token
        return sender

    form = urlencode({"username": "nobody", "password": "x" * 4000})
    kind = {"Content-Type": FORM, "Referer": hub.url}
    by_many(make, deadline, lambda one, turn: one.send("POST", "/admin/login/", form, kind), 80)


@attack
def lists(hub: Hub, deadline: float) -> None:
    methods = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
    by_many(lambda: with_key(hub), deadline, lambda one, turn: one.modern(methods[turn % 4], {}))


@attack
def rest_pages(hub: Hub, deadline: float) -> None:
    names = ("calls", "tools", "keys", "members", "changes", "tenants", "running-calls")
    by_many(
        lambda: with_token(hub),
        deadline,
        lambda one, turn: one.send("GET", f"/api/v1/{names[turn % len(names)]}/?limit=200"),
        300,
    )


@attack
def streams_opened_and_closed(hub: Hub, deadline: float) -> None:
    listen = {"notifications": {"toolsListChanged": True}, "_meta": MODERN}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen})
    fields = {
        "Authorization": f"Bearer {hub.key}",
        "Content-Type": JSON,
        "Accept": BOTH,
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "subscriptions/listen",
    }

    def open_and_close(sender: Sender, turn: int) -> None:
        with suppress(*GONE):
            sender.http.request("POST", "/mcp", body, fields) if turn % 2 else sender.http.request(
                "GET", "/sse", headers=fields
            )
            sender.http.getresponse().read(10)
        sender.http.close()

    by_many(lambda: Sender(hub), deadline, open_and_close, 400)
