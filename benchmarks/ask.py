"""One request at a time over HTTP: to open sessions, and to see that what is measured is the right answer."""

import http.client

from benchmarks.processes import HOST
from benchmarks.workloads import CLIENT, HANDSHAKE, SESSION, Request, Workload, WrongAnswer, messages

SECONDS = 30.0
INITIALIZE = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT}


def post(port: int, request: Request) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (names in lower case) and body of the answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=SECONDS)
    try:
        connection.request("POST", "/mcp", request.body, dict(request.headers))
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def check(port: int, workload: Workload, request: Request) -> None:
    """Ask once. Raises WrongAnswer if that is not what the workload measures."""
    status, _, body = post(port, request)
    if status != http.HTTPStatus.OK:
        raise WrongAnswer(f"{workload.name}: {status} {body!r}")
    workload.check(messages(body))


def open_session(port: int, key: str) -> str:
    """The wire id of a new session, initialized. Raises WrongAnswer."""
    request = Workload("initialize", HANDSHAKE, "initialize", INITIALIZE, lambda _: None).request(key)
    status, headers, body = post(port, request)
    if SESSION.lower() not in headers:
        raise WrongAnswer(f"initialize: {status} {body!r}")
    session_id = headers[SESSION.lower()]
    notification = '{"jsonrpc": "2.0", "method": "notifications/initialized"}'
    post(port, Request(notification, {**request.headers, SESSION: session_id}))
    return session_id
