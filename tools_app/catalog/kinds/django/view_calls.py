"""Calls of viewsets of Django REST framework, within the process: arguments to a request, the response to a result.

The view itself runs, with its permissions, throttles, filters, pages, parsers and renderers. Only who makes the request
is decided by the hub: the person for whom the caller acts. Nothing of the MCP request itself is passed on.
"""

from collections.abc import Iterator, Sequence
from io import BytesIO
from time import monotonic
from typing import Any, Final, Literal
from urllib.parse import unquote

import orjson
from django.conf import settings
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.db import connection, transaction
from django.http import HttpResponse, HttpResponseBase
from django.urls import ResolverMatch, URLPattern
from rest_framework.permissions import SAFE_METHODS

from tools_app.audit.changes.changes import Actor, recording_as
from tools_app.audit.changes.signals import RECORDED
from tools_app.catalog.kinds.django.people import person_of
from tools_app.catalog.kinds.http.response import SUCCESSES, to_result
from tools_app.catalog.kinds.openapi.config import OperationConfig
from tools_app.catalog.kinds.openapi.request import build_operation
from tools_app.catalog.kinds.python.runner import in_thread
from tools_app.catalog.tool_api.context import ToolContext
from tools_app.catalog.tool_api.results import CallCancelled, ToolError, ToolResult, embedded, failed
from tools_app.core.config import config
from tools_app.core.http.client import Outbound, Reply
from tools_app.core.http.urls import Url
from tools_app.core.sanitize import is_storable
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.core.urls import DEFAULT_PORTS
from tools_app.models import Via
from tools_app.protocol import exact_json

ACCEPT: Final = "application/json, */*;q=0.1"
BAD_REQUEST, NOT_FOUND, SERVER_ERROR = 400, 404, 500
REDIRECTIONS: Final = range(300, 400)
MAX_LINES: Final = 100
MAX_LINE: Final = 500
MAX_DEPTH: Final = 16
# The key under which Django REST framework reports what belongs to no field.
NO_FIELD: Final = "non_field_errors"
NOTHING_REDACTED: Final = Scrubber(())
EVENT_STREAM: Final = "text/event-stream"


class ViewCall:
    """The runner of one action. `pattern` is its URL, and `operation` says what an argument becomes in a request.

    `timeout_seconds` also ends a stream that the view answers with.
    """

    def __init__(self, name: str, pattern: URLPattern, operation: OperationConfig, timeout_seconds: float) -> None:
        self._name = name
        self._pattern = pattern
        self._operation = operation
        self._timeout_seconds = timeout_seconds
        self._handler = BaseHandler()

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the view in a thread. Raises ToolError for arguments that fit no request, and what the view raises."""
        taken = {"arguments": arguments, "context": context}
        result: ToolResult = await in_thread(self._run, taken, context.caller.tenant_id)
        return result

    def _run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        if not all(map(is_storable, _texts(arguments))):
            raise ToolError("A text contains U+0000 or half of a character, which cannot be stored.")
        # The view may build links with the first host of the hub.
        host = next((one for one in settings.ALLOWED_HOSTS if one != "*"), "localhost").removeprefix(".")
        scheme: Literal["https", "http"] = "https" if settings.SESSION_COOKIE_SECURE else "http"
        base = Url(scheme, host.strip("[]"), DEFAULT_PORTS[scheme])
        outbound = build_operation(self._operation, base, arguments, [])
        path = unquote(outbound.url.path)
        match = self._pattern.resolve(path.removeprefix("/"))
        if match is None:
            return failed("Not found.", f"HTTP {NOT_FOUND}")
        ends = monotonic() + self._timeout_seconds
        person = person_of(context.caller)
        # The thread may have waited, and a view cannot be stopped once it runs.
        if context.cancelled:
            raise CallCancelled
        request = _request(outbound, path, context.caller.remote_address)
        request.user = person
        # What tests of views use: it takes the place of the view's authentication, and of nothing else.
        request._force_auth_user = person  # type: ignore[attr-defined] # noqa: SLF001
        request.mcp_caller = context.caller  # type: ignore[attr-defined]
        request.resolver_match = match
        by = Actor(person, Via.TOOL, context.caller.remote_address)
        try:
            # Outside a transaction, a change cannot be recorded; what an app does then is its own affair.
            with recording_as(lambda: by if connection.in_atomic_block else None):
                response = self._respond(request, match)
            return self._result(response, context, ends)
        finally:
            request.close()

    @property
    def throttles(self) -> Sequence[Any]:
        """The throttles of the view."""
        view: Any = self._pattern.callback
        return tuple(view.initkwargs.get("throttle_classes", view.cls.throttle_classes))

    @property
    def _changes_hub(self) -> bool:
        """Whether it changes rows of the hub itself, which the change log records."""
        view: Any = self._pattern.callback
        rows = getattr(view.cls, "queryset", None)
        return self._operation.method not in SAFE_METHODS and rows is not None and rows.model in RECORDED

    def _respond(self, request: WSGIRequest, match: ResolverMatch) -> HttpResponseBase:
        """Run the view as Django's handler does: in a transaction where ATOMIC_REQUESTS asks for it."""
        view = self._handler.make_view_atomic(match.func)
        if not self._changes_hub:
            return _rendered(view(request, *match.args, **match.kwargs))
        with transaction.atomic():
            response = _rendered(view(request, *match.args, **match.kwargs))
            if response.status_code >= BAD_REQUEST:
                transaction.set_rollback(True)
        return response

    def _result(self, response: HttpResponseBase, context: ToolContext, ends: float) -> ToolResult:
        headers = {name.lower(): value for name, value in response.items()}
        reply = Reply(response.status_code, headers, _body(response, context, ends))
        if reply.status in SUCCESSES:
            media_type = headers.get("content-type", "").partition(";")[0].strip()
            kind = media_type.lower()
            is_shown = kind.startswith(("text/", "image/", "audio/")) or kind.endswith(("json", "xml", "yaml"))
            if not reply.body or is_shown:
                return to_result(reply, None, NOTHING_REDACTED)
            # No other content block can hold it.
            mime_type = media_type[:200] or "application/octet-stream"
            return ToolResult([embedded(f"view://{self._name}", blob=reply.body, mime_type=mime_type)])
        if reply.status in REDIRECTIONS:
            return failed(f"HTTP {reply.status}: the view redirects, which a tool does not follow.")
        message = _problem(reply)
        if reply.status >= SERVER_ERROR:
            return failed(f"An error occurred invoking '{self._name}'.", f"HTTP {reply.status}: {message}")
        if wait := headers.get("retry-after", ""):
            message = (
                f"{message}\nRetry after {wait} seconds."
                if wait.isdecimal()
                else f"{message}\nRetry after: {wait[:100]}"
            )
        return failed(f"HTTP {reply.status}: {message}")


def _rendered(response: Any) -> HttpResponseBase:
    if not getattr(response, "is_rendered", True):
        response = response.render()
    assert isinstance(response, HttpResponseBase), "the view returned no response"
    return response


def _request(outbound: Outbound, path: str, address: str) -> WSGIRequest:
    """Return the request as a server would receive it. It has no cookie, no session and no credential."""
    body = outbound.body or b""
    url = outbound.url
    environ: dict[str, Any] = {
        "REQUEST_METHOD": outbound.method,
        "SCRIPT_NAME": "",
        # As WSGI asks for: bytes of UTF-8, each as one character.
        "PATH_INFO": path.encode().decode("latin-1"),
        "QUERY_STRING": url.query,
        "CONTENT_LENGTH": str(len(body)),
        "SERVER_NAME": url.host,
        "SERVER_PORT": str(url.port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": address,
        "HTTP_HOST": url.authority,
        "wsgi.url_scheme": url.scheme,
        "wsgi.input": BytesIO(body),
    }
    for name, value in outbound.headers:
        header = name.upper().replace("-", "_")
        environ["CONTENT_TYPE" if header == "CONTENT_TYPE" else f"HTTP_{header}"] = value
    environ["HTTP_ACCEPT"] = ACCEPT
    return WSGIRequest(environ)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text of a JSON value, the names in it too."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one


def _body(response: HttpResponseBase, context: ToolContext, ends: float) -> bytes:
    """Return the whole body, of a stream too. Raises ToolError for one that is larger than a result may be.

    Raises ToolError also for a stream that is not read at the monotonic time `ends`, and CallCancelled.
    """
    most = config.MCPHUB_MAX_RESULT_BYTES
    whole = response.content if isinstance(response, HttpResponse) else _streamed(response, most, context, ends)
    if len(whole) > most:
        raise ToolError(f"The response is larger than {most} bytes (MCPHUB_MAX_RESULT_BYTES).")
    return whole


def _streamed(response: Any, most: int, context: ToolContext, ends: float) -> bytes:
    """Read a stream until it ends, is too large or takes too long, and close it."""
    parts = bytearray()
    try:
        if response.is_async:
            raise ToolError("The view answers with an asynchronous stream, which a tool cannot return.")
        if response.get("content-type", "").partition(";")[0].strip().lower() == EVENT_STREAM:
            raise ToolError("The view answers with an event stream, which has no end that a tool could wait for.")
        for part in response.streaming_content:
            if context.cancelled:
                raise CallCancelled
            if monotonic() > ends:
                raise ToolError("The view did not end its stream in time.")
            parts += part
            if len(parts) > most:
                break
    finally:
        response.close()
    return bytes(parts)


def _problem(reply: Reply) -> str:
    """Return what an error says: the messages by the paths of their fields, as lines."""
    try:
        body = exact_json.loads(reply.body)
    except orjson.JSONDecodeError:
        return "The view gives no reason."
    lines: list[str] = []
    for line in _messages(body, "", 0):
        if len(lines) == MAX_LINES:
            lines.append("…")
            break
        lines.append(line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…")
    return "\n".join(lines) or "The view gives no reason."


def _messages(value: Any, path: str, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            is_own = name == NO_FIELD or (not path and name == "detail")
            yield from _messages(inner, path if is_own else f"{path}.{name}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            # A list of texts holds the messages of one field; one of objects, the rows of a nested serializer.
            yield from _messages(inner, path if isinstance(inner, str) else f"{path}[{at}]", depth + 1)
    elif value not in (None, ""):
        text = value if isinstance(value, str) else exact_json.dumps(value).decode()
        yield f"{path}: {text}" if path else text
