"""Numbers pass unchanged from the client to a tool and back, and into the record, however long they are."""

import json
import threading
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import JsonValue

from tests.upstreams import scripted
from tests.upstreams.conftest import add_upstream, fresh_connections, loopback_tenant
from tests.web_services import Received, Service, http_response, serve
from tests.wire.client import Peer, RawClient, error_of, rpc
from tools_app.calls import pipeline
from tools_app.calls.background.payload import CallPayload
from tools_app.catalog import authoring
from tools_app.catalog.kinds.python.signature import Signature
from tools_app.catalog.tool_api.results import size_of
from tools_app.core.large_work import LARGE_BYTES
from tools_app.models import Call, Tenant, Tool
from tools_app.protocol.schema import CompiledSchema
from tools_app.toolkit import tool

__all__ = ["add_upstream", "fresh_connections", "loopback_tenant", "serve"]

# As they are written in JSON.
INTEGER, DECIMAL, SMALL = "123456789012345678901234567890", "-0.12345678901234567890123", "-0.0"
NUMBERS = f"[{INTEGER},{DECIMAL},{SMALL},5.0,9007199254740993]"


@pytest.fixture
def functions(registries: None, offer: Callable[..., list[Tool]]) -> None:
    @tool(read_only=True)
    def types(
        whole: int,
        choice: Literal[5],
        near: float,
        exact: Decimal,
        others: list[Any],
        by_date: dict[date, Any],
        json: dict[date, JsonValue],
        either: dict[date, int | float],
    ) -> list[str]:
        """Tell what a function receives."""
        nested = [next(iter(value.values())) for value in (by_date, json, either)]
        return [repr(value) for value in (whole, choice, near, exact, others, *nested)]

    @tool(output_schema={"type": "object"}, background=True)
    def pass_on(numbers: list[int | float | Decimal]) -> dict[str, Any]:
        """Return numbers from a worker."""
        return {"numbers": numbers}

    offer("types", "pass_on")


@pytest.fixture
def services(add_upstream: Any, serve: Callable[..., Service], loopback_tenant: Tenant) -> list[bytes]:
    """An upstream, `books_look`, and an HTTP tool, `api`, that answer with the numbers; what the upstream received."""
    received: list[bytes] = []
    result = f'{{"content":[],"structuredContent":{{"numbers":{NUMBERS}}},"resultType":"complete"}}'

    def answer(request: Received, message: dict[str, Any]) -> bytes:
        received.append(request.body)
        body = f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{result}}}'
        return http_response(200, body.encode(), "application/json", Connection="close")

    add_upstream(serve(scripted.modern(answer)).url)
    api = serve(http_response(200, f'{{"numbers":{NUMBERS}}}'.encode(), "application/json"))
    authoring.save_tool(
        Tool(
            tenant=loopback_tenant,
            name="api",
            kind="http",
            config={"method": "GET", "base_url": api.url},
            output_schema={"type": "object", "properties": {"numbers": {"items": {"type": "number"}}}},
        )
    )
    return received


def call(peer: Peer, name: str, arguments: str) -> str:
    """Call a tool with arguments as JSON text, and return the response as text."""
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": 0}})
    response = peer.client.post(request.replace('"arguments": 0', f'"arguments": {arguments}').encode(), peer.headers())
    assert response.status_code == 200, response.text
    return response.text


def test_functions_get_the_number_that_was_sent_in_the_type_of_the_hint(functions: None, client: RawClient) -> None:
    text = call(
        client.handshake(),
        "types",
        f'{{"whole":5.0,"choice":5.0,"near":{DECIMAL},"exact":{DECIMAL},"others":[{INTEGER},{DECIMAL}],'
        f'"by_date":{{"2026-01-01":[{INTEGER},{DECIMAL}]}},"json":{{"2026-01-01":[{INTEGER},{DECIMAL}]}},'
        f'"either":{{"2026-01-01":{INTEGER}}}}}',
    )
    nearest = repr(float(DECIMAL))
    many = f"[{INTEGER}, {nearest}]"
    expected = ["5", "5", nearest, f"Decimal('{DECIMAL}')", many, many, many, INTEGER]
    assert json.loads(text)["result"]["structuredContent"] == {"result": expected}


@pytest.mark.parametrize("name", ["pass_on", "books_look", "api"])
def test_results_and_records_hold_what_was_sent(
    functions: None, services: list[bytes], client: RawClient, name: str
) -> None:
    # A name that is redacted has the record parsed and written again.
    arguments = "{}" if name == "api" else f'{{"numbers":{NUMBERS}}}'
    if name == "books_look":
        arguments = f'{{"numbers":{NUMBERS},"password":"p"}}'
    sent = '"numbers":' + NUMBERS
    assert sent in call(client.handshake(), name, arguments)
    recorded = Call.objects.get(tool_name=name).payload.texts()
    assert sent in recorded.result
    assert name == "api" or sent in recorded.arguments
    assert name != "books_look" or (sent.encode() in services[0] and '"p"' not in recorded.arguments)


@pytest.mark.parametrize("number", ["1e400", "1e-400", "1" * 400])
def test_a_number_beyond_the_range_of_a_float_is_refused(functions: None, client: RawClient, number: str) -> None:
    peer = client.handshake()
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"types","arguments":{"near":%b}}}'
    assert error_of(peer.client.post(body % number.encode(), peer.headers()))["code"] == -32700


def test_ids_and_capabilities_with_numbers_beyond_64_bits_are_refused(client: RawClient) -> None:
    assert "an integer of at most 64 bits" in error_of(client.post(rpc("ping", id=int(INTEGER))))["message"]
    error = error_of(client.initialize(capabilities={"experimental": {"x": {"size": int(INTEGER)}}}))
    assert "capabilities holds a number of more digits than 64 bits hold" in error["message"]


@pytest.mark.parametrize(
    ("name", "argument"), [("here", "numbers"), ("later", "numbers"), ("here", "other"), ("unknown", "numbers")]
)
def test_large_arguments_are_recorded_validated_and_converted_in_a_thread(
    registries: None,
    offer: Callable[..., Any],
    client: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    argument: str,
) -> None:
    threads: dict[str, str] = {}

    def watch(owner: Any, function: str) -> None:
        original = getattr(owner, function)

        def watched(*args: Any, **options: Any) -> Any:
            if size_of(args) > LARGE_BYTES:
                threads[function] = threading.current_thread().name
            return original(*args, **options)

        monkeypatch.setattr(owner, function, watched)

    watch(pipeline, "new_record_builder")
    watch(CompiledSchema, "accepts")
    watch(CompiledSchema, "problems")
    watch(CallPayload, "sealed")
    watch(Signature, "bind")

    @tool(read_only=True)
    async def here(numbers: list[Any]) -> int:
        return len(numbers)

    @tool(background=True)
    async def later(numbers: list[Any]) -> int:
        return len(numbers)

    offer("here", "later")
    call(client.handshake(), name, f'{{"{argument}":[{",".join([DECIMAL] * 10_000)}]}}')
    work = {
        "later": {"accepts", "sealed", "bind"},
        "here": {"accepts", "bind" if argument == "numbers" else "problems"},
    }
    assert threads.keys() == {"new_record_builder", *work.get(name, ())}
    assert all(thread.startswith("large-work") for thread in threads.values())
