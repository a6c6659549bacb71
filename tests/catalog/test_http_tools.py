import asyncio
import gzip
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tools_app.calls.conversation import Rounds
from tools_app.calls.invocation import FIRST_ROUND
from tools_app.catalog.kinds.http.runner import HttpTool, http_runner, parse_config
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import CallCancelled, ToolError, ToolResult
from tools_app.core.large_work import LARGE_BYTES

Serve = Callable[..., Any]
Http = Callable[..., bytes]
Call = Callable[..., ToolResult]


def text_of(result: ToolResult) -> str:
    return str(result.content[0]["text"])


def test_a_call_becomes_one_request_and_its_answer_the_result(serve: Serve, http: Http, call: Call) -> None:
    service = serve(http(201, b'{"id": 7}', "application/json"))

    result = call(
        {
            "method": "POST",
            "base_url": f"{service.url}/v1",
            "path": "users/{user}/posts",
            "query": {"draft": "{draft}", "tag": "{tags}"},
            "headers": {"Authorization": "Bearer {secret:TOKEN}"},
            "body_mode": "arguments",
        },
        {"user": "a/b", "draft": True, "tags": ["x", "y"], "title": "T"},
        secrets={"TOKEN": "hidden", "UNUSED": "id"},
        output_schema={"type": "object"},
    )

    (request,) = service.received
    assert (request.method, request.target) == ("POST", "/v1/users/a%2Fb/posts?draft=true&tag=x&tag=y")
    assert json.loads(request.body) == {"title": "T"}
    assert request.headers["authorization"] == "Bearer hidden"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["host"] == f"127.0.0.1:{service.port}"
    assert request.headers["accept-encoding"] == "identity"
    assert (text_of(result), result.structured, result.is_error) == ('{"id":7}', {"id": 7}, False)


@pytest.mark.parametrize(("method", "length"), [("POST", "0"), ("PUT", "0"), ("GET", None), ("DELETE", None)])
def test_an_absent_body_is_announced_where_a_service_waits_for_one(
    method: str, length: str | None, serve: Serve, http: Http, call: Call
) -> None:
    service = serve(http(200))

    call({"method": method, "base_url": service.url})

    assert service.received[0].headers.get("content-length") == length


def test_a_head_request_has_an_empty_answer_whatever_its_headers_announce(serve: Serve, http: Http, call: Call) -> None:
    service = serve(http(200, Content_Encoding="gzip").replace(b"Content-Length: 0", b"Content-Length: 99999999"))

    result = call({"method": "HEAD", "base_url": service.url})

    assert text_of(result) == "(empty response, HTTP 200)"


def test_an_argument_that_fits_no_request_is_refused_before_anything_is_sent(
    serve: Serve, http: Http, call: Call
) -> None:
    service = serve(http(200))

    with pytest.raises(ToolError, match="'id'"):
        call({"base_url": service.url, "path": "{id}"}, {"id": "../admin"})
    assert not service.connected.is_set()


def test_a_request_of_large_arguments_is_built_in_a_thread(serve: Serve, http: Http, call: Call) -> None:
    readers: set[threading.Thread] = set()

    class Tags(list[str]):
        def __iter__(self) -> Iterator[str]:
            readers.add(threading.current_thread())
            return super().__iter__()

    for tags, threads in ((["x"], 0), (["x"] * LARGE_BYTES, 1)):
        readers.clear()
        call({"base_url": serve(http(200)).url, "query": {"tag": "{tags}"}}, {"tags": Tags(tags)})
        assert len(readers - {threading.current_thread()}) == threads


def test_an_endless_answer_is_left_at_the_cap(serve: Serve, call: Call) -> None:
    """Regression: a result was read into memory completely before its size was checked."""

    def endless(_: object) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
        while True:
            yield b"x" * 65536

    service = serve(endless)

    result = call({"base_url": service.url, "max_response_bytes": 100_000})

    assert text_of(result) == "The response is larger than the 100000 bytes that this tool accepts."
    assert service.hung_up.wait(10)


def test_an_answer_that_announces_too_much_is_not_read(serve: Serve, http: Http, call: Call) -> None:
    announced = http(200).replace(b"Content-Length: 0", b"Content-Length: 100001")

    def silent(_: object) -> Iterator[bytes]:
        yield announced
        assert service.stopped.wait(10)

    service = serve(silent)

    result = call({"base_url": service.url, "max_response_bytes": 100_000})

    assert "larger than the 100000 bytes" in text_of(result)


def test_a_compressed_bomb_is_left_at_the_cap(serve: Serve, http: Http, call: Call) -> None:
    bomb = gzip.compress(b"\x00" * 10_000_000)

    result = call(
        {"base_url": serve(http(200, bomb, "text/plain", Content_Encoding="gzip")).url, "max_response_bytes": 100_000}
    )

    assert "larger than the 100000 bytes" in text_of(result)


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000,
    ],
    ids=["nothing", "another protocol", "half an answer", "endless headers"],
)
def test_an_answer_that_is_no_whole_http_is_an_error(response: bytes, serve: Serve, call: Call) -> None:
    result = call({"base_url": serve(response).url})

    assert (text_of(result), result.is_error) == ("Incomplete HTTP response from the service.", True)
    assert result.cause


@pytest.mark.shows("lifecycle.timeouts")
def test_a_service_that_says_nothing_is_left_in_time(serve: Serve, call: Call) -> None:
    def silent(_: object) -> bytes:
        assert service.stopped.wait(10)
        return b""

    service = serve(silent)

    result = call({"base_url": service.url}, seconds=0.1)

    assert text_of(result) == "The request to the service timed out."


@pytest.mark.shows("cancellation.stops")
def test_a_cancelled_call_leaves_the_service_at_once(serve: Serve, context: ToolContext) -> None:
    def endless(_: object) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        started.set()
        while not service.stopped.wait(0.01):
            yield b"x"

    async def cancel() -> None:
        run = http_runner(parse_config({"base_url": service.url}), {}, ["127.0.0.0/8"], 30.0, None)
        task = asyncio.ensure_future(run({}, context))
        assert await asyncio.to_thread(started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    started = threading.Event()
    service = serve(endless)
    asyncio.run(cancel())

    assert service.hung_up.wait(10)


def test_a_call_that_was_cancelled_before_it_began_sends_nothing(
    serve: Serve, http: Http, context: ToolContext
) -> None:
    service = serve(http(200))
    cancelled = threading.Event()
    cancelled.set()
    run = http_runner(parse_config({"base_url": service.url}), {}, ["127.0.0.0/8"], 5.0, None)

    with pytest.raises(CallCancelled):
        asyncio.run(
            run(
                {},
                ToolContext(
                    context.call_id, context.caller, lambda kind, data: None, cancelled, lambda: Rounds(FIRST_ROUND)
                ),
            )
        )
    assert not service.connected.is_set()


def test_one_runner_serves_several_event_loops_at_once(serve: Serve, http: Http, context: ToolContext) -> None:
    service = serve(http(200, b"ok", "text/plain"))
    run = http_runner(parse_config({"base_url": service.url}), {}, ["127.0.0.0/8"], 10.0, None)
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(text_of(asyncio.run(run({}, context))))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert texts == ["ok"] * 4


def test_nothing_of_the_environment_leads_requests_elsewhere(
    serve: Serve, http: Http, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = serve(http(200, b"proxy", "text/plain"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)

    result = call({"base_url": serve(http(200, b"direct", "text/plain")).url})

    assert text_of(result) == "direct"


def test_no_cookie_is_kept_between_calls(serve: Serve, http: Http, call: Call) -> None:
    service = serve(http(200, b"ok", "text/plain", Set_Cookie="session=1; Path=/"))

    call({"base_url": service.url})
    call({"base_url": service.url})

    assert [request.headers.get("cookie") for request in service.received] == [None, None]


def test_secrets_are_in_no_log_line_however_much_is_logged(
    serve: Serve, http: Http, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service = serve(lambda request: http(200, request.target.encode(), "text/plain", X_Echo=request.headers["x-key"]))

    result = call(
        {"base_url": service.url, "query": {"key": "{secret:KEY}"}, "headers": {"X-Key": "{secret:KEY}"}},
        secrets={"KEY": "hidden-value"},
    )

    assert text_of(result) == "/?key=[redacted]"
    assert "hidden-value" not in caplog.text


def test_secrets_are_in_no_error(call: Call) -> None:
    async def talkative(host: str, port: int) -> list[str]:
        raise OSError("cannot resolve for hidden-value")

    result = call(
        {"base_url": "http://api.example.com", "query": {"key": "{secret:KEY}"}},
        secrets={"KEY": "hidden-value"},
        resolve=talkative,
    )

    assert text_of(result) == "The connection to api.example.com was interrupted."
    assert "[redacted]" in result.cause
    assert "hidden-value" not in result.cause


def test_a_runner_keeps_only_the_secrets_that_its_tool_names() -> None:
    config = parse_config({"base_url": "http://api.example.com", "headers": {"X-A": "{secret:A}"}})

    run = http_runner(config, {"A": "a", "B": "b"}, [], 5.0, None)

    assert isinstance(run, HttpTool)
    assert run.sender.secrets == {"A": "a"}
    assert replace(run) == run
