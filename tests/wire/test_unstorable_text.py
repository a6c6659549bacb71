"""U+0000 and lone surrogates in every parameter of every method cause no internal error.

The methods are those of the registry: one that is added needs a request here. `tests/services` runs it on PostgreSQL.
"""

import copy
import json
import logging
from typing import Any

import pytest

from tests.wire import test_fuzz
from tests.wire.client import ACCEPT_BOTH, HANDSHAKES, META, MODERN, NAME_PARAMETERS, SESSION, RawClient, modern_meta
from tests.wire.test_fuzz import CAPABILITIES, FAULTS, NOTIFICATIONS, REQUESTS, Attempt, encoded, places_in, send
from tools_app.methods import registry
from tools_app.protocol.errors import INTERNAL_ERROR, PARSE_ERROR

offers, quick = test_fuzz.offers, test_fuzz.quick

NUL, SURROGATE = "a\0b", "a\ud800b"
RESPONSE = {"id": "00000000-0000-0000-0000-000000000000:name", "result": {"action": "accept", "content": {"x": "y"}}}
# Handled where connections are: they open a session or a stream.
OPENING = {"initialize", "subscriptions/listen"}


ALL = (
    *REQUESTS,
    ("tools/call", {"name": "say", "arguments": {"word": "x"}, "_meta": {}}),
    ("skills/list", {}),
    ("skills/get", {"uri": "skill://one/SKILL.md"}),
    ("resources/directory/read", {"uri": "skill://one"}),
)


def test_every_method_has_a_request() -> None:
    handled = {method for method, _ in registry.handlers}
    assert handled | OPENING <= {method for method, _ in ALL}


def with_text(message: dict[str, Any], text: str) -> list[dict[str, Any]]:
    """The message with `text` in each of its places in turn, as a value and in the place of a name."""
    changed_messages = []
    for number, _ in enumerate(places_in(message)):
        changed = copy.deepcopy(message)
        container, place = list(places_in(changed))[number]
        if place in {"jsonrpc", "io.modelcontextprotocol/protocolVersion"}:
            continue
        container[place] = text
        changed_messages.append(changed)
        if isinstance(container, dict) and place not in {"id", "method", "params", "_meta"}:
            renamed = copy.deepcopy(message)
            container, place = list(places_in(renamed))[number]
            container[text] = container.pop(place)
            changed_messages.append(renamed)
    return changed_messages


def messages(version: str) -> list[dict[str, Any]]:
    """A message of each kind, and of each method."""
    listed: list[dict[str, Any]] = []
    for method, params in ALL:
        message = {"jsonrpc": "2.0", "id": "r", "method": method, "params": copy.deepcopy(params)}
        if version == MODERN:
            message["params"]["_meta"] = {**modern_meta(), META + "clientCapabilities": CAPABILITIES}
        message["params"].setdefault("_meta", {})["progressToken"] = "t"
        listed.append(message)
    listed += [{"jsonrpc": "2.0", "method": method, "params": dict(params)} for method, params in NOTIFICATIONS]
    return [*listed, {"jsonrpc": "2.0", **RESPONSE}]


def attempt(client: RawClient, version: str, session: str, message: dict[str, Any]) -> Attempt:
    fields = {
        "Accept": ACCEPT_BOTH.encode(),
        "Content-Type": b"application/json",
        "Authorization": f"Bearer {client.key}".encode(),
    }
    if version != MODERN:
        fields[SESSION] = session.encode()
    else:
        method, params = message.get("method", ""), message.get("params", {})
        fields |= {"MCP-Protocol-Version": MODERN.encode(), "Mcp-Method": encoded(method)}
        if method in NAME_PARAMETERS and isinstance(params, dict):
            fields["Mcp-Name"] = encoded(str(params.get(NAME_PARAMETERS[method], "")))
        if isinstance(params, dict) and params.get("name") == "mirrors":
            fields["Mcp-Param-Region"] = b"north"
    return Attempt("POST", "/mcp", fields, json.dumps(message).encode(), [])


@pytest.mark.slow
@pytest.mark.postgresql
@pytest.mark.timeout(120)
@pytest.mark.parametrize("version", [HANDSHAKES[-1], MODERN])
def test_no_parameter_with_u_0000_is_a_failure(
    client: RawClient, offers: None, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    opened = client.initialize(capabilities=CAPABILITIES).headers[SESSION]
    codes = set()
    for message in messages(version):
        for sent in with_text(message, NUL):
            status, responses = send(client.http, attempt(client, version, opened, sent), [])
            assert status < 500, sent
            for answer in responses:
                codes.add(code := answer.get("error", {}).get("code"))
                assert code != INTERNAL_ERROR, (sent, answer)
    assert -32602 in codes
    assert [text for text in caplog.messages if any(fault in text for fault in FAULTS)] == []


@pytest.mark.parametrize("version", [HANDSHAKES[-1], MODERN])
def test_a_message_with_half_of_a_surrogate_pair_is_no_json(client: RawClient, offers: None, version: str) -> None:
    opened = client.initialize(capabilities=CAPABILITIES).headers[SESSION]
    for message in messages(version):
        for sent in with_text(message, SURROGATE)[::3]:
            request = attempt(client, version, opened, {**message, "method": message.get("method", "")})
            request.body = json.dumps(sent).encode()
            status, (answer,) = send(client.http, request, [])
            assert (status, answer["error"]["code"]) == (400, PARSE_ERROR), sent
