"""Properties of the protocol's pure functions: no input makes them fail.

The examples are the same in each run. Each test names the property, and Hypothesis looks for what breaks it.
"""

import base64
import json
import re
import string
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote
from uuid import UUID

import orjson
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tools_app.calls import conversation
from tools_app.catalog import uri_templates
from tools_app.core import encryption
from tools_app.identity.principal import Principal
from tools_app.protocol import inbound, jsonrpc, mirrored, sse
from tools_app.protocol.errors import RpcError
from tools_app.protocol.inbound import CAPABILITIES_META, CLIENT_META, LOG_META, VERSION_META, Handshake, Modern
from tools_app.protocol.jsonrpc import Malformed, Notification, Request, Response
from tools_app.protocol.mirrored import Mirrored
from tools_app.protocol.versions import HANDSHAKE_VERSIONS, LOG_LEVELS, MODERN_VERSIONS

same_each_time = settings(
    derandomize=True, database=None, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)

VERSIONS = st.sampled_from([*HANDSHAKE_VERSIONS, *MODERN_VERSIONS, "2099-01-01", ""])
METHODS = st.sampled_from(["tools/call", "prompts/get", "resources/read", "tasks/get", "ping", "initialize", ""])
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.sampled_from(["_meta", "name", "uri", "taskId", "id", "method", "params", "type"]) | st.text(max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)


def mostly(likely: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A strategy for the expected value, or sometimes any other."""
    return likely | likely | JSON


METAS = st.fixed_dictionaries(
    {},
    optional={
        VERSION_META: mostly(VERSIONS),
        CAPABILITIES_META: mostly(OBJECTS),
        CLIENT_META: mostly(OBJECTS),
        LOG_META: mostly(st.sampled_from(LOG_LEVELS)),
        "progressToken": mostly(st.text() | st.integers()),
    },
)
PARAMS = st.fixed_dictionaries({}, optional={"_meta": mostly(METAS), "name": mostly(st.text()), "uri": JSON})
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": mostly(st.just("2.0"))},
    optional={
        "id": mostly(st.integers() | st.text()),
        "method": mostly(METHODS),
        "params": mostly(PARAMS),
        "result": JSON,
        "error": JSON,
    },
)
LATIN = st.text(st.characters(max_codepoint=255), max_size=12)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        inbound.VERSION_HEADER: VERSIONS | LATIN,
        inbound.METHOD_HEADER: METHODS | LATIN,
        inbound.NAME_HEADER: LATIN | LATIN.map(lambda text: f"=?base64?{text}?="),
        inbound.SESSION_HEADER: LATIN,
    },
)


@st.composite
def modern(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, Any]]:
    """A valid request of the modern era with its headers; sometimes one part is replaced."""
    method = draw(METHODS)
    meta = {VERSION_META: MODERN_VERSIONS[0], CAPABILITIES_META: draw(OBJECTS)}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, "uri": "a", "name": "a"}}
    headers = {inbound.VERSION_HEADER: MODERN_VERSIONS[0], inbound.METHOD_HEADER: method, inbound.NAME_HEADER: "a"}
    for changed in draw(st.sampled_from([[], [], [headers], [meta], [message]])):
        changed[draw(st.sampled_from(sorted(changed)))] = draw(st.text() if changed is headers else JSON)
    return headers, message


def tried(refusal: type[Exception], function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result, or its error: any other exception fails the test."""
    try:
        return function(*arguments)
    except refusal as problem:
        return problem


def tellable(refusal: RpcError) -> bool:
    """Whether an error can be sent to the client."""
    return bool(orjson.loads(jsonrpc.error_message("id", refusal))["error"]["code"] == refusal.code)


# --- Messages -----------------------------------------------------------------------------------------------------


@same_each_time
@given(body=st.binary() | JSON.map(lambda value: json.dumps(value).encode()) | st.text().map(str.encode))
@example(b'"\\ud800"')
@example(b"\xff")
@example(b"1" * 5000)
@example(b"[" * 100_000)
def test_a_body_is_json_or_refused(body: bytes) -> None:
    value = tried(RpcError, jsonrpc.decode, body, 64)
    if isinstance(value, RpcError):
        assert value.code == -32700
        assert tellable(value)
    else:
        assert orjson.loads(orjson.dumps(value)) == value


@same_each_time
@given(value=JSON)
def test_what_is_json_is_read_as_every_other_reader_reads_it(value: Any) -> None:
    assert jsonrpc.decode(json.dumps(value).encode(), 64) == value


def depth_of(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(depth_of, children), default=0)


@same_each_time
@given(value=JSON, around=st.lists(st.booleans(), max_size=9), most=st.integers(0, 9))
def test_what_is_nested_deeper_than_the_limit_is_refused_and_nothing_else(
    value: Any, around: list[bool], most: int
) -> None:
    for as_list in around:
        value = [value] if as_list else {"a": value}
    body = orjson.dumps(value)
    if depth_of(value) > most:
        with pytest.raises(RpcError, match=f"deeper than {most} levels"):
            jsonrpc.decode(body, most)
    else:
        assert jsonrpc.decode(body, most) == orjson.loads(body)


@same_each_time
@given(value=MESSAGES | JSON)
def test_every_value_is_a_message_of_one_kind_with_parts_of_the_right_types(value: Any) -> None:
    message = jsonrpc.message(value)
    match message:
        case Malformed(error=refusal, id=id):
            assert refusal.code == -32600
            assert tellable(refusal)
            assert id is None or type(id) in (str, int)
        case Request(id=id, method=method, params=params):
            assert (value["jsonrpc"], value["id"], value["method"]) == ("2.0", id, method)
            assert type(id) in (str, int)
            assert isinstance(params, dict)
        case Notification(method=method, params=params):
            assert "id" not in value
            assert isinstance(method, str)
            assert isinstance(params, dict)
        case Response(id=id, result=result, error=error):
            assert type(id) in (str, int)
            assert ("result" in value) != ("error" in value)
            assert (value.get("result"), value.get("error")) == (result, error)


# --- Which era ----------------------------------------------------------------------------------------------------


@same_each_time
@given(sent=st.tuples(HEADERS, MESSAGES) | modern())
def test_every_message_has_a_route_or_a_refusal_that_fits_its_era(sent: tuple[dict[str, str], Any]) -> None:
    headers, message = sent[0], jsonrpc.message(sent[1])
    is_modern, route = inbound.is_modern(headers, message), inbound.classify(headers, message)
    match route:
        case Modern(version=version, client=client, capabilities=capabilities):
            assert is_modern
            assert headers[inbound.VERSION_HEADER] == version == MODERN_VERSIONS[0]
            assert isinstance(client, dict)
            assert isinstance(capabilities, dict)
            if isinstance(message, Request):
                assert headers[inbound.METHOD_HEADER] == message.method
        case Handshake():
            assert not is_modern
            assert headers.get(inbound.VERSION_HEADER) in (None, *HANDSHAKE_VERSIONS)
        case RpcError(code=code):
            assert code in ({-32602, -32020, -32022} if is_modern else {-32022})
            assert tellable(route)


@same_each_time
@given(sent=st.tuples(HEADERS, MESSAGES) | modern())
def test_a_request_that_comes_without_headers_has_a_route_or_a_refusal_too(sent: tuple[dict[str, str], Any]) -> None:
    message = jsonrpc.message(sent[1])
    assume(isinstance(message, Request))
    assert isinstance(message, Request)
    route = inbound.classify(None, message)
    assert isinstance(route, Handshake) == (not inbound.is_modern({}, message))
    assert isinstance(route, Modern | Handshake) or tellable(route)


@same_each_time
@given(params=PARAMS)
def test_metadata_of_every_kind_is_read_or_refused(params: dict[str, Any]) -> None:
    request = jsonrpc.message({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assume(isinstance(request, Request))
    assert isinstance(request, Request)
    assert type(inbound.progress_token(request)) in (str, int, type(None))
    level = tried(RpcError, inbound.log_level, request)
    assert level.code == -32602 if isinstance(level, RpcError) else level in (None, *LOG_LEVELS)


@same_each_time
@given(value=st.text() | st.text().map(lambda text: f"=?base64?{text}?="))
@example("=?base64?\x80?=")
def test_a_header_value_is_always_decoded_to_a_text_or_to_nothing(value: str) -> None:
    assert isinstance(inbound.decoded(value), str | None)


# --- Server-sent events -------------------------------------------------------------------------------------------


def events_in(stream: bytes) -> Iterator[tuple[str, str, str]]:
    """Type, data and ID of each event, as browsers parse them (WHATWG HTML, §9.2.6)."""
    kind, data, last_id = "", [], ""
    for line in re.split("\r\n|\n|\r", stream.decode()):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield kind or "message", "\n".join(data), last_id
            kind, data = "", []
        elif name == "data":
            data.append(value)
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            last_id = value


IDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)


@same_each_time
@given(messages=st.lists(st.tuples(JSON, IDS), max_size=5))
def test_a_stream_is_read_back_as_it_was_written(messages: list[tuple[Any, str]]) -> None:
    frames = [sse.Frame(orjson.dumps(value), id) for value, id in messages]
    stream = sse.priming("0") + b"".join(sse.event(frame) + sse.KEEPALIVE for frame in frames)
    received, last_id = list(events_in(stream)), "0"
    assert received[:1] == [("message", "", "0")]
    for (value, id), (kind, data, received_id) in zip(messages, received[1:], strict=True):
        last_id = id or last_id
        assert (kind, orjson.loads(data), received_id) == ("message", value, last_id)


# --- Parameters in headers ----------------------------------------------------------------------------------------

PATHS = st.lists(KEYS, min_size=1, max_size=3).map(tuple)
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {}, optional={"type": mostly(st.sampled_from(mirrored.TYPES)), mirrored.KEYWORD: mostly(st.just("X"))}
    ),
    lambda inner: st.fixed_dictionaries(
        {}, optional={"properties": mostly(st.dictionaries(KEYS, inner, max_size=3)), "items": inner, "anyOf": JSON}
    ),
    max_leaves=6,
)


@same_each_time
@given(schema=SCHEMAS | OBJECTS)
def test_the_marks_of_every_schema_are_found_or_refused(schema: dict[str, Any]) -> None:
    found = tried(mirrored.InvalidMirror, mirrored.mirrored, schema)
    assert isinstance(found, mirrored.InvalidMirror) or len({one.header for one in found}) == len(found)


@same_each_time
@given(
    parameters=st.lists(st.builds(Mirrored, PATHS, st.sampled_from(["mcp-param-a", "mcp-param-b"])), max_size=3),
    headers=st.dictionaries(st.sampled_from(["mcp-param-a", "mcp-param-b"]), LATIN | st.integers().map(str)),
    arguments=OBJECTS,
)
def test_headers_of_every_kind_agree_with_the_arguments_or_are_refused(
    parameters: list[Mirrored], headers: dict[str, str], arguments: dict[str, Any]
) -> None:
    refusal = mirrored.check(parameters, headers, arguments)
    assert refusal is None or (refusal.code == -32020 and tellable(refusal))


REPEATED = st.integers(-mirrored.MAX_NUMBER, mirrored.MAX_NUMBER) | st.booleans() | st.text(max_size=9)


def as_header(value: Any) -> str:
    """A value as clients encode it (2026-07-28, Streamable HTTP, §Value Encoding)."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if re.fullmatch(r"[\x20-\x7e]*", text) and text == text.strip() and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@same_each_time
@given(value=REPEATED, other=REPEATED)
def test_a_value_that_is_repeated_as_the_specification_says_agrees_and_another_one_does_not(
    value: Any, other: Any
) -> None:
    parameters = [Mirrored(("p",), "mcp-param-p")]
    assert mirrored.check(parameters, {"mcp-param-p": as_header(value)}, {"p": value}) is None
    assert mirrored.check(parameters, {}, {"p": value}) is not None
    assume(type(other) is type(value) and other != value)
    assert mirrored.check(parameters, {"mcp-param-p": as_header(other)}, {"p": value}) is not None


# --- Templates of URIs --------------------------------------------------------------------------------------------

TEMPLATES = st.text(st.sampled_from("ab/{}+:._%?*($\n"), max_size=20) | st.text(max_size=20)


@same_each_time
@given(template=TEMPLATES | TEMPLATES.map(lambda text: f"{text}{{a}}/{{+b}}"), uri=TEMPLATES)
def test_every_template_is_read_or_refused_and_matches_without_failing(template: str, uri: str) -> None:
    read = tried(uri_templates.BadTemplate, uri_templates.parse, template)
    if isinstance(read, uri_templates.BadTemplate):
        assert str(read)
        return
    for candidate in (uri, template, template.replace("{a}", uri).replace("{+b}", uri)):
        values = read.match(candidate)
        assert values is None or set(values) == set(read.variables)
    if not read.variables:
        assert read.match(template) == {}


SEGMENTS = st.text(st.characters(exclude_characters="/\\\0", exclude_categories=["Cs"]), min_size=1, max_size=9)
VALUES = SEGMENTS.filter(lambda value: value not in {".", ".."})
LITERALS = st.lists(st.from_regex(r"[a-z(.*]{1,5}", fullmatch=True), max_size=3)


@same_each_time
@given(values=st.lists(VALUES, min_size=1, max_size=4), literals=LITERALS)
def test_what_a_template_was_filled_with_is_found_again(values: list[str], literals: list[str]) -> None:
    names = [f"v{number}" for number in range(len(values))]
    template = uri_templates.parse("docs://" + "/".join([*literals, *(f"{{{name}}}" for name in names)]))
    filled = "docs://" + "/".join([*literals, *(quote(value, safe="") for value in values)])
    assert template.match(filled) == dict(zip(names, values, strict=True))


# --- Seals --------------------------------------------------------------------------------------------------------


BASE64 = "+-/=_" + string.ascii_letters + string.digits


def sealed(answers: dict[str, Any]) -> str:
    return conversation._encrypted(conversation._RequestState(2.0**40, answers, {}), "a purpose")


@same_each_time
@given(answers=OBJECTS)
def test_a_state_comes_back_as_it_was_given_and_for_its_purpose_only(answers: dict[str, Any]) -> None:
    state = sealed(answers)
    assert conversation._decrypted(state, "a purpose").answers == answers
    with pytest.raises(RpcError):
        conversation._decrypted(state, "another purpose")


@same_each_time
@given(answers=OBJECTS, where=st.integers(-100, 100), character=st.characters(codec="ascii") | st.just("é"))
def test_a_state_with_one_character_changed_is_refused(answers: dict[str, Any], where: int, character: str) -> None:
    state = sealed(answers)
    where %= len(state)
    assume(state[where] != character)
    for forged in (state[:where] + character + state[where + 1 :], state[:where] + character + state[where:]):
        with pytest.raises(RpcError) as refusal:
            conversation._decrypted(forged, "a purpose")
        assert refusal.value.code == -32602


@pytest.mark.parametrize("length", range(3))
def test_a_state_is_taken_in_its_one_spelling_only(length: int) -> None:
    state = sealed({"a": "x" * length})
    spellings = {state[:where] + other + state[where + 1 :] for where in range(len(state)) for other in BASE64}
    for forged in spellings - {state}:
        assert isinstance(tried(RpcError, conversation._decrypted, forged, "a purpose"), RpcError), forged


@same_each_time
@given(state=JSON | st.text())
def test_whatever_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(RpcError) as refusal:
        conversation._decrypted(state, "a purpose")
    assert refusal.value.code == -32602


@same_each_time
@given(plaintext=st.binary(), where=st.integers(0, 10_000), change=st.integers(1, 255), cut=st.integers(1, 40))
def test_sealed_bytes_open_only_as_they_are(plaintext: bytes, where: int, change: int, cut: int) -> None:
    whole = encryption.seal(plaintext, "a purpose")
    assert encryption.unseal(whole, "a purpose") == plaintext
    forged = bytearray(whole)
    forged[where % len(whole)] ^= change
    for broken in (bytes(forged), whole[:-cut], whole[cut:], whole + b"\0"):
        with pytest.raises(encryption.DecryptionError):
            encryption.unseal(broken, "a purpose")


def without_meta(params: dict[str, Any]) -> bytes:
    rest = {name: value for name, value in params.items() if name != "_meta"}
    return orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)


@same_each_time
@given(tenant=st.uuids(), key=st.uuids() | st.none(), params=OBJECTS, other=OBJECTS)
def test_a_state_is_for_one_caller_and_one_request(
    tenant: UUID, key: UUID | None, params: dict[str, Any], other: dict[str, Any]
) -> None:
    caller, neighbour = (Principal(key, id, "acme", ()) for id in (tenant, UUID(int=tenant.int ^ 1)))
    purpose = conversation._purpose(caller, "tools/call", params)
    again = {**params, "requestState": "s", "inputResponses": {}, "_meta": {"progressToken": 1}}
    assert conversation._purpose(caller, "tools/call", again) == purpose
    assert conversation._purpose(caller, "prompts/get", params) != purpose
    assert conversation._purpose(neighbour, "tools/call", params) != purpose
    same = without_meta(other) == without_meta(params)
    assert (conversation._purpose(caller, "tools/call", other) == purpose) == same
