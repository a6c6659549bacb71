import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

import httpcore2
import pytest

from tests.web_services import WAIT_SECONDS
from tools_app.catalog.tool_api.results import ToolResult
from tools_app.core.http import network as module
from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.errors import AddressBlocked, NameNotResolved
from tools_app.core.http.network import NAME_THREADS, CheckedNetwork, system_addresses

LOCAL = parse_networks(["127.0.0.0/8"])
UNUSED = "2001:4860:4860::8888"


class Names:
    """A resolver that returns its answers in order, and counts the look-ups."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.lookups: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append(host)
        return self._answers[min(len(self.lookups), len(self._answers)) - 1]


def text_of(result: ToolResult) -> str:
    return str(result.content[0]["text"])


def addresses(names: Names, host: str = "api.example.com") -> list[str]:
    return [str(address) for address in asyncio.run(CheckedNetwork(LOCAL, names).addresses(host, 80))]


def test_every_address_of_a_name_is_checked() -> None:
    assert addresses(Names(["8.8.8.8", UNUSED, "8.8.8.8"])) == ["8.8.8.8", UNUSED]
    with pytest.raises(AddressBlocked, match=r"api.example.com: 10.0.0.1 is private"):
        addresses(Names(["8.8.8.8", "10.0.0.1"]))


def test_an_address_in_place_of_a_name_is_checked_without_a_look_up() -> None:
    names = Names(["8.8.8.8"])

    assert addresses(names, "127.0.0.1") == ["127.0.0.1"]
    with pytest.raises(AddressBlocked):
        addresses(names, "::ffff:127.0.0.1")
    assert names.lookups == []


def test_a_name_without_addresses_is_told_apart() -> None:
    with pytest.raises(NameNotResolved):
        addresses(Names([]))


def test_the_system_resolver_answers_for_this_machine_and_fails_clearly() -> None:
    assert "127.0.0.1" in asyncio.run(system_addresses("127.0.0.1", 80))
    for name in ("name.invalid", "a" * 64 + ".invalid"):
        with pytest.raises(NameNotResolved):
            asyncio.run(system_addresses(name, 80))


def test_a_tenant_whose_name_servers_are_silent_leaves_the_names_of_others_to_be_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_over = threading.Event()

    def resolve(host: str, port: int, **_options: Any) -> Any:
        if host == "silent.example":
            assert is_over.wait(WAIT_SECONDS)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", port))]

    async def scenario() -> None:
        silent = [asyncio.create_task(system_addresses("silent.example", 80, "acme")) for _ in range(2 * NAME_THREADS)]
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(WAIT_SECONDS / 2):
                assert await system_addresses("api.example.com", 80, "rival") == ["8.8.8.8"]
        finally:
            is_over.set()
            await asyncio.gather(*silent)

    monkeypatch.setattr(module.socket, "getaddrinfo", resolve)
    asyncio.run(scenario())


def test_a_name_that_changes_its_address_after_the_check_changes_nothing(
    serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    """DNS rebinding: there is only one look-up, and its address is the one connected to."""
    service = serve(http(200, b"here", "text/plain"))
    names = Names(["127.0.0.1"], ["169.254.169.254"])

    result = call({"base_url": f"http://api.example.com:{service.port}"}, resolve=names)

    assert text_of(result) == "here"
    assert names.lookups == ["api.example.com"]
    assert service.received[0].headers["host"] == f"api.example.com:{service.port}"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "2002:7f00:1::1", "64:ff9b::7f00:1",
     "fec0::1", "fd00::1"],
)  # fmt: skip
def test_a_name_of_a_forbidden_address_is_not_called(
    address: str, serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    """CVE-2026-44430: an address check bypassed with 6to4, NAT64 or site-local addresses."""
    service = serve(http(200, b"here", "text/plain"))

    result = call({"base_url": f"http://api.example.com:{service.port}"}, allowed=(), resolve=Names([address]))

    assert result.is_error
    assert text_of(result).startswith("Cannot call api.example.com: its address is private or reserved.")
    assert f"api.example.com: {ip_address(address)} is" in result.cause
    assert not service.connected.is_set()


def test_a_literal_address_that_is_forbidden_is_not_called_and_not_repeated(
    serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    service = serve(http(200))

    result = call({"base_url": service.url}, allowed=())

    assert text_of(result).startswith("Cannot call the service: its address is private or reserved.")
    assert not service.connected.is_set()


def test_the_next_address_is_dialed_when_the_first_refuses(
    serve: Callable[..., Any], http: Callable[..., bytes], call: Callable[..., ToolResult]
) -> None:
    service = serve(http(200, b"second", "text/plain"))

    result = call({"base_url": f"http://api.example.com:{service.port}"}, resolve=Names(["127.1.2.3", "127.0.0.1"]))

    assert text_of(result) == "second"


async def peer_of(network: CheckedNetwork, port: int) -> object:
    stream = await network.connect_tcp("api.example.com", port)
    await stream.start_tls(None)  # type: ignore[arg-type] # opens it without TLS
    try:
        return stream.get_extra_info("peername")
    finally:
        await stream.aclose()


@pytest.mark.parametrize("others", [["127.1.2.3"], ["127.1.2.3", "127.1.2.4"]])
def test_the_first_address_that_answers_is_taken(others: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for names in (["127.0.0.1", *others], [*others, "127.0.0.1"], [others[0], "127.0.0.1", *others[1:]]):
            assert asyncio.run(peer_of(CheckedNetwork(LOCAL, Names(names)), port)) == ("127.0.0.1", port)


def test_an_address_that_does_not_answer_leaves_time_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    dialed: list[tuple[str, float]] = []

    async def dial(address: Any, port: int, seconds: float) -> Any:
        dialed.append((str(address), seconds))
        raise httpcore2.ConnectTimeout(str(address))

    monkeypatch.setattr(module, "_dialed", dial)
    addresses = [f"8.8.8.{number}" for number in range(6)]
    with pytest.raises(httpcore2.ConnectTimeout):
        asyncio.run(CheckedNetwork(LOCAL, Names(addresses)).connect_tcp("api.example.com", 80, 8.0))
    assert dialed == [("8.8.8.0", 2.0), ("8.8.8.1", 2.0), ("8.8.8.2", 2.0), ("8.8.8.3", 8.0)]


def test_tls_verifies_the_name_though_an_address_is_dialed(
    serve: Callable[..., Any],
    http: Callable[..., bytes],
    call: Callable[..., ToolResult],
    certified: Callable[..., Any],
) -> None:
    both = certified("api.example.com")
    asked_for: list[str | None] = []
    both.server.sni_callback = lambda connection, name, context: asked_for.append(name)
    service = serve(http(200, b"safe", "text/plain"), tls=both.server)
    policy = {"resolve": Names(["127.0.0.1"]), "certificates": lambda: both.client}

    right = call({"base_url": f"https://api.example.com:{service.port}"}, **policy)
    wrong = call({"base_url": f"https://evil.example.com:{service.port}"}, **policy)

    assert text_of(right) == "safe"
    assert text_of(wrong) == "Could not reach evil.example.com: the certificate is not trusted."
    assert asked_for == ["api.example.com", "evil.example.com"]
    assert len(service.received) == 1


def test_a_certificate_that_nobody_vouches_for_is_refused(
    serve: Callable[..., Any],
    http: Callable[..., bytes],
    call: Callable[..., ToolResult],
    certified: Callable[..., Any],
) -> None:
    service = serve(http(200), tls=certified("api.example.com").server)

    result = call({"base_url": f"https://api.example.com:{service.port}"}, resolve=Names(["127.0.0.1"]))

    assert text_of(result) == "Could not reach api.example.com: the certificate is not trusted."
    assert "CERTIFICATE_VERIFY_FAILED" in result.cause


def test_a_service_that_speaks_no_tls_is_told_apart(call: Callable[..., ToolResult]) -> None:
    def answer_in_plain_text() -> None:
        with listening.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.settimeout(5)
            connection.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        answering = threading.Thread(target=answer_in_plain_text)
        answering.start()
        result = call({"base_url": f"https://127.0.0.1:{listening.getsockname()[1]}"})
        answering.join(5)

    assert text_of(result) == "Could not reach the service: TLS failed."


def test_a_closed_port_is_told_as_refused(call: Callable[..., ToolResult]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        result = call({"base_url": f"http://api.example.com:{unused.getsockname()[1]}"}, resolve=Names(["127.0.0.1"]))

    assert text_of(result) == "Could not reach api.example.com: connection refused."
    assert "127.0.0.1" not in text_of(result)


def test_a_name_that_does_not_resolve_is_told_so(call: Callable[..., ToolResult]) -> None:
    result = call({"base_url": "http://name.invalid"})

    assert text_of(result) == "Could not reach name.invalid: the host name cannot be resolved."


def test_a_resolver_that_hangs_ends_with_the_time_to_connect(call: Callable[..., ToolResult]) -> None:
    async def hanging(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    result = call({"base_url": "http://api.example.com"}, resolve=hanging, seconds=0.05)

    assert text_of(result) == "Could not reach api.example.com: the connection timed out."
