"""Attacks over WebSockets: unbounded parts of RFC 6455, and clients that do not read."""

import json
import socket
import time
from contextlib import suppress

from websockets.sync.client import connect

from tests.abuse.attacks import MODERN, SENDERS, WAIT_SECONDS, at_once, attack, sockets
from tests.abuse.hub import MEGABYTE, Hub
from tests.server.frames import CONTINUATION, PING, TEXT, frame, handshake


@attack
def websocket_floods(hub: Hub, deadline: float) -> None:
    url = f"{hub.url.replace('http', 'ws')}/ws"
    ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {**MODERN, "x": "y" * 60_000}}})

    def flood() -> None:
        headers = {"Authorization": f"Bearer {hub.key}"}
        with (
            suppress(Exception),
            connect(url, additional_headers=headers, subprotocols=["mcp"], open_timeout=WAIT_SECONDS) as talk,  # type: ignore[list-item]
        ):
            # Responses are not read.
            for _ in range(1000):
                if time.monotonic() > deadline:
                    return
                talk.send(ping)

    at_once(deadline, [flood] * SENDERS)


def over_websockets(hub: Hub, deadline: float, count: int, data: bytes, turns: int = 1) -> None:
    """Send the same bytes repeatedly over this many WebSockets, without reading."""
    with sockets(hub, count) as connections:
        for connection in connections:
            handshake(connection, "/ws", f"Authorization: Bearer {hub.key}")
            connection.settimeout(0.05)

        def work(part: list[socket.socket]) -> None:
            for _ in range(turns):
                for connection in part:
                    if time.monotonic() > deadline:
                        return
                    with suppress(OSError):
                        connection.sendall(data)

        at_once(deadline, [lambda part=part: work(connections[part::SENDERS]) for part in range(SENDERS)])  # type: ignore[misc]
        time.sleep(max(deadline - time.monotonic(), 0))


@attack
def websocket_fragments(hub: Hub, deadline: float) -> None:
    over_websockets(hub, deadline, 20, frame(TEXT, fin=False) + frame(CONTINUATION, fin=False) * 500_000)


@attack
def websocket_pings(hub: Hub, deadline: float) -> None:
    over_websockets(hub, deadline, 20, frame(PING, b"x" * 125) * 50_000)


@attack
def websocket_small_messages(hub: Hub, deadline: float) -> None:
    over_websockets(hub, deadline, 20, frame(TEXT, b"{}") * 500_000, 20)


@attack
def websocket_messages_that_do_not_end(hub: Hub, deadline: float) -> None:
    # What has not arrived completely is kept by the server, for each connection.
    over_websockets(hub, deadline, 50, frame(TEXT, b" " * (4 * MEGABYTE - 1000))[:-1], 100)


@attack
def websocket_results_that_are_not_read(hub: Hub, deadline: float) -> None:
    message = {"name": "echo", "arguments": {"message": "x" * 500_000}, "_meta": MODERN}
    calls = [{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": message} for number in range(20)]
    over_websockets(hub, deadline, 100, b"".join(frame(TEXT, json.dumps(call).encode()) for call in calls), 20)
