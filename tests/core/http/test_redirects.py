from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tools_app.catalog.tool_api.results import ToolResult
from tools_app.core.http.client import Outbound, Reply
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.redirects import redirected
from tools_app.core.http.urls import parse_url
from tools_app.core.telemetry.secret_names import Scrubber

HOME = parse_url("https://api.example.com/v1/x")
HEADERS = (
    ("Accept", "application/json"),
    ("Content-Type", "application/json"),
    ("Authorization", "Bearer written-out"),
    ("Cookie", "a=b"),
    ("X-Api-Key", "hidden"),
    ("User-Agent", "mcphub hidden"),
)
SECRETS = Scrubber(["hidden"])


def follow(status: int, location: str, method: str = "POST", body: bytes | None = b"{}") -> Outbound:
    return redirected(Outbound(method, HOME, HEADERS, body), Reply(status, {"location": location}, b""), SECRETS)


def text_of(result: ToolResult) -> str:
    return str(result.content[0]["text"])


@pytest.mark.parametrize(
    ("status", "method", "becomes", "keeps_body"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (303, "PUT", "GET", False),
        (303, "HEAD", "HEAD", True),
        (301, "PUT", "PUT", True),
        (302, "DELETE", "DELETE", True),
        (307, "POST", "POST", True),
        (308, "PATCH", "PATCH", True),
        (302, "GET", "GET", True),
    ],
)
def test_the_status_decides_on_method_and_body(status: int, method: str, becomes: str, keeps_body: bool) -> None:
    following = follow(status, "/y", method)

    assert (following.method, following.body is not None) == (becomes, keeps_body)
    assert ("Content-Type" in dict(following.headers)) == keeps_body


def test_the_same_origin_gets_the_same_headers() -> None:
    following = follow(307, "../y?z=1")

    assert str(following.url) == "https://api.example.com/y?z=1"
    assert following.headers == HEADERS


@pytest.mark.parametrize(
    "location",
    ["https://other.example/y", "//other.example/y", "https://api.example.com:8443/y", "https://api.example.com.evil/"],
)
def test_another_origin_gets_no_credentials_and_no_secret(location: str) -> None:
    following = follow(307, location)

    assert dict(following.headers) == {"Accept": "application/json", "Content-Type": "application/json"}
    assert following.body == b"{}"


def test_a_body_with_a_secret_is_not_forwarded_to_another_origin() -> None:
    assert follow(307, "/y", body=b'{"key":"hidden"}').body == b'{"key":"hidden"}'
    assert follow(303, "https://other.example/y", body=b'{"key":"hidden"}').body is None
    with pytest.raises(RequestFailed, match="that contains a secret to another origin"):
        follow(307, "https://other.example/y", body=b'{"key":"hidden"}')


def test_a_secret_that_the_service_put_into_the_target_is_not_forwarded() -> None:
    with pytest.raises(RequestFailed, match="that contains a secret to another origin") as refusal:
        follow(302, "https://other.example/y?key=hidden")

    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize("location", ["http://other.example/y", "http://api.example.com/v1/x"])
def test_https_is_not_left_for_http(location: str) -> None:
    with pytest.raises(RequestFailed, match="from https to http"):
        follow(302, location)


@pytest.mark.parametrize("location", ["", "ftp://x.example/", "file:///etc/passwd", "https://u:p@x.example/", "/\x00"])
def test_a_target_that_is_no_clean_http_url_is_refused(location: str) -> None:
    with pytest.raises(RequestFailed, match="invalid URL"):
        follow(302, location)


def test_a_redirect_without_a_target_is_refused() -> None:
    with pytest.raises(RequestFailed, match="invalid URL"):
        redirected(Outbound("GET", HOME), Reply(302, {}, b""), SECRETS)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_off_unless_the_tool_follows_them(
    status: int, serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    elsewhere = serve(http(200))
    service = serve(http(status, Location=f"{elsewhere.url}/y"))

    result = call({"base_url": service.url})

    assert result.is_error
    assert text_of(result) == f"HTTP {status} from the service: a redirect, and this tool does not follow redirects."
    assert not elsewhere.connected.is_set()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_when_the_tool_says_so(
    status: int, serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    elsewhere = serve(http(200, b"there", "text/plain"))
    service = serve(http(status, Location=f"{elsewhere.url}/y?z"))

    result = call(
        {"base_url": service.url, "headers": {"X-Key": "{secret:KEY}"}, "follow_redirects": True},
        secrets={"KEY": "hidden"},
    )

    assert text_of(result) == "there"
    assert service.received[0].headers["x-key"] == "hidden"
    assert elsewhere.received[0].target == "/y?z"
    assert "x-key" not in elsewhere.received[0].headers
    assert elsewhere.received[0].headers["host"] == f"127.0.0.1:{elsewhere.port}"


def test_headers_that_were_dropped_do_not_come_back_with_the_origin(
    serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    home = serve(lambda request: http(302, Location=elsewhere.url) if request.target == "/" else http(200))
    elsewhere = serve(lambda request: http(302, Location=f"{home.url}/back"))

    call({"base_url": home.url, "headers": {"Authorization": "x"}, "follow_redirects": True})

    assert [("authorization" in request.headers) for request in home.received] == [True, False]


def test_a_redirect_to_a_forbidden_address_is_not_followed(
    serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    """CVE-2026-44430: an address check bypassed with a redirect."""

    async def names(host: str, port: int) -> Sequence[str]:
        return {"public.example": ["127.0.0.1"], "inside.example": ["10.0.0.1"]}[host]

    service = serve(lambda request: http(302, Location=targets[int(request.target[1:])]))
    targets = ["http://inside.example/", "http://169.254.169.254/latest/meta-data", "http://[::1]/", "http://[fec0::1]"]
    results = [
        call(
            {"base_url": f"http://public.example:{service.port}", "path": str(number), "follow_redirects": True},
            resolve=names,
        )
        for number in range(len(targets))
    ]

    assert all("its address is private or reserved" in text_of(result) for result in results)
    assert "10.0.0.1 is private" in results[0].cause
    assert "169.254" not in text_of(results[1])


def test_a_redirect_without_end_is_left_after_five(
    serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    service = serve(http(302, Location="/again"))

    result = call({"base_url": service.url, "follow_redirects": True})

    assert text_of(result) == "The service redirected more than 5 times."
    assert len(service.received) == 6


def test_another_3xx_is_an_error_though_redirects_are_on(
    serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    result = call({"base_url": serve(http(304, Location="/y")).url, "follow_redirects": True})

    assert text_of(result) == "HTTP 304 from the service: (empty response)"
    assert result.is_error
