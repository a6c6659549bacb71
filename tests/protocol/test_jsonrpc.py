"""JSON-RPC messages from bytes to values and back."""

import orjson
import pytest

from tools_app.protocol import jsonrpc
from tools_app.protocol.errors import RpcError
from tools_app.protocol.jsonrpc import Malformed, Notification, Request, Response


@pytest.mark.parametrize("depth", [1, 2, 10])
def test_the_deepest_value_that_is_allowed_is_read(depth: int) -> None:
    body = b"[" * depth + b"]" * depth
    assert orjson.dumps(jsonrpc.decode(body, depth)) == body
    with pytest.raises(RpcError, match=f"nested deeper than {depth - 1} levels"):
        jsonrpc.decode(body, depth - 1)


def test_brackets_in_strings_are_neither_objects_nor_lists() -> None:
    text = '[{\\"' * jsonrpc.MAX_CONTAINERS
    body = orjson.dumps([text, "}", "\\"])
    assert jsonrpc.decode(body, 2) == [text, "}", "\\"]
    with pytest.raises(RpcError, match="objects and lists"):
        jsonrpc.decode(b"[%b0]" % (b'"\\"",[],' * jsonrpc.MAX_CONTAINERS), 2)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert jsonrpc.decode(b"[[],[],[],[]]", 2) == [[], [], [], []]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"id": 1, "method": "m"}, Request(1, "m", {})),
        ({"id": "a", "method": "m", "params": {"x": 1}}, Request("a", "m", {"x": 1})),
        ({"method": "m"}, Notification("m", {})),
        ({"id": 1, "result": 5}, Response(1, 5, None)),
        ({"id": 1, "error": {"code": 1}}, Response(1, None, {"code": 1})),
    ],
)
def test_a_message_is_what_its_members_say(value: dict[str, object], expected: object) -> None:
    assert jsonrpc.message({"jsonrpc": "2.0", **value}) == expected


@pytest.mark.parametrize("value", [{"id": 1, "method": 1}, {"id": 1}, {"id": None, "method": "m"}, {"result": 1}])
def test_anything_else_is_malformed(value: dict[str, object]) -> None:
    assert isinstance(jsonrpc.message({"jsonrpc": "2.0", **value}), Malformed)


@pytest.mark.shows("base.error-members", "base.result-or-error", "base.unreadable-id")
def test_an_error_without_a_known_id_has_none() -> None:
    error = RpcError(-32700, "Parse error")
    assert orjson.loads(jsonrpc.error_message(None, error)) == {
        "jsonrpc": "2.0",
        "error": {"code": -32700, "message": "Parse error"},
    }
    assert orjson.loads(jsonrpc.error_message("a", error))["id"] == "a"


@pytest.mark.shows("base.result-or-error")
def test_a_result_is_spliced_in_as_it_is() -> None:
    assert jsonrpc.result_message('"', b'{"a":1}') == b'{"jsonrpc":"2.0","id":"\\"","result":{"a":1}}'
