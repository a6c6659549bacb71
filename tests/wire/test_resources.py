"""`resources/list`, `resources/templates/list` and `resources/read` (resources)."""

import base64
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import pytest

from tests.wire.client import Peer, RawClient, error_of, message_of
from tests.wire.valid import check_valid
from tools_app.catalog import authoring
from tools_app.models import ApiKey, Call, Resource, ResourceKind, Tenant
from tools_app.toolkit import ProtocolError, ResourceNotFound, ResourceResult, ToolError, contents, resource

URIS = ["docs://all", "docs://facts", "docs://guide", "docs://logo", "docs://pages/{page}", "repo://{owner}/{+path}"]
EVERY_BYTE = bytes(range(256))
INSIDE = "the password is hunter2"

OfferResources = Callable[..., list[Resource]]


@pytest.fixture
def library(registries: None, offer_resources: OfferResources) -> list[Resource]:
    """Resources of each kind of value, and two templates."""

    @resource("docs://guide", title="The guide", mime_type="text/markdown", annotations={"priority": 0.8})
    def guide() -> str:
        """Read the guide."""
        return "# Guide"

    @resource("docs://logo")
    async def logo() -> bytes:
        return EVERY_BYTE

    @resource("docs://facts")
    def facts() -> dict[str, int]:
        return {"pages": 3}

    @resource("docs://all")
    def everything() -> ResourceResult:
        return ResourceResult([contents("docs://guide", "# Guide"), contents("docs://logo", b"\x89", "image/png")])

    @resource("docs://pages/{page}")
    def page(page: str) -> str:
        if page == "lost":
            raise ResourceNotFound
        return page

    @resource("repo://{owner}/{+path}")
    def file(owner: str, path: str) -> str:
        return f"{path} of {owner}"

    return offer_resources(*URIS)


def list_resources(peer: Peer, method: str = "resources/list") -> Any:
    result = message_of(peer.request(method))["result"]
    check_valid(method, peer.version, result)
    (field,) = {"resources", "resourceTemplates"} & result.keys()
    return result[field]


def read(peer: Peer, uri: object) -> Any:
    return peer.request("resources/read", {"uri": uri}, headers=named(uri) if peer.is_modern else None)


def named(uri: object) -> dict[str, str | None]:
    """The header with a URI that must be encoded."""
    if not isinstance(uri, str) or (uri.isascii() and uri.isprintable()):
        return {}
    return {"Mcp-Name": f"=?base64?{base64.b64encode(uri.encode()).decode()}?="}


def contents_of(peer: Peer, uri: str) -> list[dict[str, Any]]:
    response = read(peer, uri)
    assert response.status_code == 200, response.text
    result = message_of(response)["result"]
    check_valid("resources/read", peer.version, result)
    return list(result["contents"])


def is_not_found(peer: Peer, uri: str) -> bool:
    """Whether the response is the error of this revision for an unknown URI."""
    response = read(peer, uri)
    status, code = (400, -32602) if peer.is_modern else (200, -32002)
    error = {"code": code, "message": "Resource not found", "data": {"uri": uri}}
    return (response.status_code, error_of(response)) == (status, error)


def test_resources_and_templates_come_in_the_order_of_their_uris(peer: Peer, library: list[Resource]) -> None:
    assert [one["uri"] for one in list_resources(peer)] == URIS[:4]
    assert [one["uriTemplate"] for one in list_resources(peer, "resources/templates/list")] == URIS[4:]


def test_each_revision_gets_the_fields_that_it_knows(peer: Peer, library: list[Resource]) -> None:
    expected = {
        "uri": "docs://guide",
        "name": "guide",
        "title": "The guide",
        "description": "Read the guide.",
        "mimeType": "text/markdown",
        "annotations": {"priority": 0.8},
    }
    if peer.version < "2025-06-18":
        del expected["title"]
    assert list_resources(peer)[2] == expected


def test_texts_values_and_results_are_read_as_they_are(peer: Peer, library: list[Resource]) -> None:
    guide = {"uri": "docs://guide", "mimeType": "text/markdown", "text": "# Guide"}
    facts = {"uri": "docs://facts", "mimeType": "application/json", "text": '{"pages":3}'}
    image = {"uri": "docs://logo", "mimeType": "image/png", "blob": "iQ=="}
    assert contents_of(peer, "docs://guide") == [guide]
    assert contents_of(peer, "docs://facts") == [facts]
    assert contents_of(peer, "docs://all") == [{"uri": "docs://guide", "text": "# Guide"}, image]


@pytest.mark.shows("resources.binary")
def test_bytes_come_back_as_they_were(peer: Peer, library: list[Resource]) -> None:
    (logo,) = contents_of(peer, "docs://logo")
    assert logo.keys() == {"uri", "mimeType", "blob"}
    assert logo["mimeType"] == "application/octet-stream"
    assert base64.b64decode(logo["blob"], validate=True) == EVERY_BYTE


DECODED = {
    "docs://pages/intro": "intro",
    "docs://pages/two%20words": "two words",
    "docs://pages/%C3%A4%2Fb": "ä/b",
    "docs://pages/100%25": "100%",
    "repo://ada/src/main.py": "src/main.py of ada",
    "repo://ada/a?b=c#d": "a?b=c#d of ada",
}


def test_the_values_of_a_template_arrive_decoded(peer: Peer, library: list[Resource]) -> None:
    for uri, value in DECODED.items():
        assert contents_of(peer, uri) == [{"uri": uri, "mimeType": "text/plain", "text": value}]


def test_a_resource_of_just_this_uri_comes_before_any_template(
    client: RawClient, library: list[Resource], tenant: Tenant
) -> None:
    authoring.save_resource(
        Resource(tenant=tenant, uri="docs://pages/intro", name="intro", kind=ResourceKind.TEXT, text="its own")
    )
    assert contents_of(client.handshake(), "docs://pages/intro")[0]["text"] == "its own"


NOTHING = (
    "docs://nothing",
    "docs://pages/",
    "docs://pages/a/b",
    "docs://pages/lost",
    "DOCS://guide",
    "docs://guide\n",
    "docs://guide/../guide",
    "ftp://guide",
    "no uri",
    "",
    "\x00",
    "docs://pages/" + "x" * 9000,
)


@pytest.mark.shows("resources.errors", "resources.uris")
def test_a_uri_that_names_nothing_is_not_found(peer: Peer, library: list[Resource]) -> None:
    assert [uri for uri in NOTHING if not is_not_found(peer, uri)] == []


@pytest.mark.shows("resources.access")
def test_disabled_and_foreign_resources_look_like_unknown_ones(
    peer: Peer, library: list[Resource], other_tenant: Tenant
) -> None:
    foreign = {"tenant": other_tenant, "name": "x", "kind": ResourceKind.TEXT}
    authoring.save_resource(Resource(uri="rival://plans", text="secret", **foreign))
    for one in library:
        authoring.set_enabled(one, enabled=False)
    assert all(is_not_found(peer, uri) for uri in ("rival://plans", "docs://guide", "docs://pages/intro"))
    assert (list_resources(peer), list_resources(peer, "resources/templates/list")) == ([], [])


CLIMBING = (
    "../etc/passwd",
    "a/../../etc/passwd",
    "..",
    "./x",
    "a/.",
    "%2e%2e/etc/passwd",
    "..%2Fetc/passwd",
    "%2E%2E%2Fetc",
    "..%5Cetc",
    "/etc/passwd",
    "%2Fetc/passwd",
    "a%00b",
)


@pytest.mark.shows("resources.paths")
def test_no_path_climbs_out_of_a_template(peer: Peer, registries: None, offer_resources: OfferResources) -> None:
    opened: list[str] = []

    @resource("file:///docs/{+path}")
    def file(path: str) -> str:
        opened.append(path)
        return path

    offer_resources("file:///docs/{+path}")
    assert [path for path in CLIMBING if not is_not_found(peer, f"file:///docs/{path}")] == []
    assert opened == []
    assert contents_of(peer, "file:///docs/a..b/.c/..d")[0]["text"] == "a..b/.c/..d"


@pytest.mark.shows("resources.uris")
def test_a_uri_that_is_no_text_is_refused(peer: Peer, library: list[Resource]) -> None:
    refusal = {"code": -32602, "message": "params.uri must be a string.", "data": {"field": "uri"}}
    for uri in (None, 5, True, ["docs://guide"], {"uri": "docs://guide"}):
        response = read(peer, uri)
        assert response.status_code == (400 if peer.is_modern else 200)
        assert error_of(response) == refusal


@pytest.mark.shows("resources.errors")
def test_of_a_function_that_breaks_the_client_learns_only_that_it_did(
    peer: Peer, registries: None, offer_resources: OfferResources
) -> None:
    @resource("docs://broken")
    def broken() -> str:
        raise RuntimeError(INSIDE)

    offer_resources("docs://broken")
    response = read(peer, "docs://broken")
    assert response.status_code == 200
    assert error_of(response) == {"code": -32603, "message": "An error occurred invoking 'docs://broken'."}
    call = Call.objects.get()
    assert (call.outcome, call.rpc_error) == ("tool_error", -32603)
    assert f"RuntimeError: {INSIDE}" in call.cause


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ToolError("The shelf is empty."), {"code": -32603, "message": "The shelf is empty."}),
        (ProtocolError("Closed.", 7, {"until": 9}), {"code": 7, "message": "Closed.", "data": {"until": 9}}),
    ],
)
def test_a_function_may_raise_an_error_for_its_client(
    peer: Peer, registries: None, offer_resources: OfferResources, problem: Exception, expected: object
) -> None:
    @resource("docs://closed")
    async def closed() -> str:
        raise problem

    offer_resources("docs://closed")
    assert error_of(read(peer, "docs://closed")) == expected


def test_a_reading_that_takes_too_long_is_given_up(
    client: RawClient, registries: None, offer_resources: OfferResources
) -> None:
    released = threading.Event()

    @resource("docs://slow", timeout=0.1)
    def slow() -> str:
        released.wait(10)
        return "late"

    offer_resources("docs://slow")
    error = error_of(read(client.handshake(), "docs://slow"))
    released.set()
    assert (error["code"], "did not finish within 0.1 seconds" in error["message"]) == (-32603, True)
    assert Call.objects.get().outcome == "timeout"


def test_a_reading_is_recorded_like_a_call(peer: Peer, library: list[Resource], tenant: Tenant) -> None:
    read(peer, "docs://pages/intro")
    call = Call.objects.get()
    assert (call.method, call.tool_name, call.tool) == ("resources/read", "docs://pages/intro", None)
    assert (call.tenant, call.outcome, call.http_status, call.rpc_error) == (tenant, "ok", 200, None)
    assert call.protocol_version == peer.version
    assert orjson.loads(call.payload.texts().arguments) == {"page": "intro"}
    assert orjson.loads(call.payload.texts().result)["contents"][0]["text"] == "intro"


@pytest.mark.parametrize("uri", ["docs://nothing", "docs://pages/lost"])
def test_a_reading_of_nothing_is_recorded_as_rejected(peer: Peer, library: list[Resource], uri: str) -> None:
    read(peer, uri)
    call = Call.objects.get()
    assert (call.method, call.tool_name, call.outcome) == ("resources/read", uri, "rejected")
    assert call.rpc_error == (-32602 if peer.is_modern else -32002)


def test_a_reading_takes_from_the_limits(client: RawClient, library: list[Resource]) -> None:
    ApiKey.objects.update(calls_per_minute=1)
    peer = client.handshake()
    assert read(peer, "docs://guide").status_code == 200
    response = read(peer, "docs://guide")
    assert (response.status_code, error_of(response)["data"]["scope"]) == (429, "key")


def test_contents_are_fresh_only_when_they_arrive(peer: Peer, library: list[Resource]) -> None:
    result = message_of(read(peer, "docs://guide"))["result"]
    hints = {name: result[name] for name in ("resultType", "ttlMs", "cacheScope") if name in result}
    own = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    assert hints == (own if peer.is_modern else {})


# --- What an admin writes ---------------------------------------------------------------------------------------------


def create_resource(tenant: Tenant, kind: ResourceKind, uri: str = "docs://own", **fields: Any) -> Resource:
    return authoring.save_resource(Resource(tenant=tenant, uri=uri, name="own", kind=kind, **fields))


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (ResourceKind.TEXT, {"text": "Zürich\n"}, {"mimeType": "text/plain", "text": "Zürich\n"}),
        (ResourceKind.TEXT, {"text": "<p>", "mime_type": "text/html"}, {"mimeType": "text/html", "text": "<p>"}),
        (ResourceKind.FILE, {"blob": b"\x89", "mime_type": "image/png"}, {"mimeType": "image/png", "blob": "iQ=="}),
        (ResourceKind.FILE, {"blob": b""}, {"mimeType": "application/octet-stream", "blob": ""}),
    ],
)
def test_a_text_and_a_file_are_read_as_they_were_stored(
    peer: Peer, tenant: Tenant, kind: ResourceKind, fields: dict[str, Any], expected: dict[str, str]
) -> None:
    create_resource(tenant, kind, **fields)
    assert contents_of(peer, "docs://own") == [{"uri": "docs://own", **expected}]


class Service(ThreadingHTTPServer):
    """Responds with `status`, `kind` and `body`, and records the path and the authorization of each request."""

    daemon_threads = True
    status, kind, body = 200, "text/plain", b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.received: list[tuple[str, str | None]] = []


class Answering(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.server.received.append((self.path, self.headers["Authorization"]))
        self.send_response(self.server.status)
        self.send_header("Content-Type", self.server.kind)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    """A web service on loopback."""
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


@pytest.fixture
def remote(tenant: Tenant, service: Service) -> Resource:
    """A template whose contents come from the service, with a secret."""
    Tenant.objects.filter(pk=tenant.pk).update(allowed_networks=["127.0.0.0/8"])
    authoring.set_secret(tenant, "TOKEN", "hunter2")
    config = {
        "base_url": f"http://127.0.0.1:{service.server_port}/v1",
        "path": "pages/{page}",
        "headers": {"Authorization": "Bearer {secret:TOKEN}"},
    }
    return create_resource(tenant, ResourceKind.HTTP, "api://{page}", config=config)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (("text/plain", b"words"), {"mimeType": "text/plain", "text": "words"}),
        (("application/json; charset=utf-8", b'{"a": 1}'), {"mimeType": "application/json", "text": '{"a":1}'}),
        (("image/png", b"\x89"), {"mimeType": "image/png", "blob": "iQ=="}),
        (("text/plain", b"Bearer hunter2"), {"mimeType": "text/plain", "text": "Bearer [redacted]"}),
    ],
)
def test_a_resource_has_the_response_of_the_service_without_secrets(
    peer: Peer, remote: Resource, service: Service, answer: tuple[str, bytes], expected: dict[str, str]
) -> None:
    service.kind, service.body = answer
    assert contents_of(peer, "api://a%20b") == [{"uri": "api://a%20b", **expected}]
    assert service.received == [("/v1/pages/a%20b", "Bearer hunter2")]


@pytest.mark.parametrize("status", [404, 410])
def test_a_404_of_the_service_is_not_found(peer: Peer, remote: Resource, service: Service, status: int) -> None:
    service.status, service.body = status, b"nothing of that name"
    assert is_not_found(peer, "api://nothing")
    assert len(service.received) == 1


@pytest.mark.parametrize("status", [302, 401, 500])
def test_any_other_status_is_an_error_without_secrets(
    peer: Peer, remote: Resource, service: Service, status: int
) -> None:
    service.status, service.body = status, b"bad token hunter2"
    response = read(peer, "api://a")
    error = error_of(response)
    assert (response.status_code, error["code"]) == (200, -32603)
    assert error["message"].startswith(f"HTTP {status} from the service: ")
    call = Call.objects.get()
    assert (call.outcome, call.rpc_error) == ("tool_error", -32603)
    assert "hunter2" not in response.text + call.cause + call.payload.texts().result


def test_a_request_reaches_no_address_that_its_tenant_was_not_given(
    peer: Peer, remote: Resource, service: Service, tenant: Tenant
) -> None:
    Tenant.objects.filter(pk=tenant.pk).update(allowed_networks=[])
    authoring.save_resource(remote)
    error = error_of(read(peer, "api://a"))
    assert error["code"] == -32603
    assert str(service.server_port) not in error["message"]
    assert service.received == []
