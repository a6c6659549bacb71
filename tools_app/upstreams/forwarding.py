"""Forwarding of calls to upstreams: events on the way, results, and errors as the hub's own.

The call runs on the event loop of the connections, or on its own (`exchanges/direct.py`). Its events are handed to the
loop on which the hub runs the call, in order and before its result. Cancelling the call cancels the upstream's.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from tools_app.audit.recorder.recorder import RecorderUnavailable
from tools_app.catalog.completion import MAX_VALUES
from tools_app.catalog.kinds.upstream import runner as upstream
from tools_app.catalog.kinds.upstream.runner import Endpoint, Pin
from tools_app.catalog.tool_api.context import CapabilityMissing, ToolContext
from tools_app.catalog.tool_api.elicitation import declares
from tools_app.catalog.tool_api.results import (
    CallCancelled,
    PromptResult,
    ProtocolError,
    ResourceNotFound,
    ResourceResult,
    ToolError,
    ToolResult,
    failed,
    size_of,
)
from tools_app.core import large_work
from tools_app.core.fair_scheduler import LARGE_BYTES
from tools_app.core.sanitize import sanitized
from tools_app.core.telemetry.secret_names import Scrubber
from tools_app.models import ItemKind
from tools_app.protocol import exact_json
from tools_app.protocol import mirrored as mirroring
from tools_app.protocol.errors import (
    CAPABILITY_MISSING,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    JSON_RPC,
    RESERVED,
    RESOURCE_NOT_FOUND,
)
from tools_app.protocol.inbound import encoded
from tools_app.protocol.jsonrpc import MAX_COMPLETED_LENGTH
from tools_app.protocol.mirrored import Mirrored
from tools_app.protocol.versions import LOG_LEVELS
from tools_app.upstreams import connections
from tools_app.upstreams.client import TASKS_CAPABILITY, Message
from tools_app.upstreams.connections import Connection
from tools_app.upstreams.credentials import resolve
from tools_app.upstreams.errors import MAX_ERROR_LENGTH, ErrorResponse, Refused, TaskFailed, UpstreamFailed
from tools_app.upstreams.exchanges import tasks
from tools_app.upstreams.exchanges.exchange import Exchange, ForwardedRequest
from tools_app.upstreams.sessions import CAPABILITY_PATHS

# Events of one call. Further ones are dropped: an upstream decides how many it sends.
MAX_EVENTS: Final = 10_000
MAX_LOGGER_LENGTH: Final = 200
MAX_MESSAGE_LENGTH: Final = 10_000
TOO_LONG: Final = f"[A log message of more than {LARGE_BYTES} bytes is left out.]"


T = TypeVar("T")
# Makes a result of what an upstream returned.
Convert = Callable[[Mapping[str, Any]], T]


class NotificationForwarder:
    """Hands the notifications of one call to its context, on the loop of the call."""

    def __init__(self, context: ToolContext, scrubber: Scrubber) -> None:
        self._context = context
        self._scrubber = scrubber
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._count = 0
        self._handlers: dict[str, Callable[[dict[str, Any]], None]] = {
            "notifications/progress": self._progress,
            tasks.TASK_CREATED: lambda _params: context.begin_task(),
        }

    def listen(self, message: Message) -> None:
        """Take a notification; called on the loop of the connections, or on that of the call."""
        self._count += 1
        params = message.get("params")
        if self._count > MAX_EVENTS or not isinstance(params, dict):
            return
        handler = self._handlers.get(message["method"], self._log)
        if threading.get_ident() == self._thread:
            # At once: the result may have come with it.
            self._call_handler(handler, params)
            return
        with suppress(RuntimeError):  # the loop of the call has ended
            self._loop.call_soon_threadsafe(self._call_handler, handler, params)

    def _call_handler(self, handler: Callable[[dict[str, Any]], None], params: dict[str, Any]) -> None:
        # Where nothing can be recorded, the end of the call says so.
        with suppress(CallCancelled, RecorderUnavailable):
            handler(params)

    def _progress(self, params: dict[str, Any]) -> None:
        progress, total, message = (params.get(name) for name in ("progress", "total", "message"))
        done = exact_json.number(progress)
        if done is None:
            return
        self._context.progress(
            done,
            exact_json.number(total),
            self._scrubber.beginning(message, MAX_MESSAGE_LENGTH) if isinstance(message, str) else None,
        )

    def _log(self, params: dict[str, Any]) -> None:
        level, logger = params.get("level"), params.get("logger")
        if level in LOG_LEVELS:
            logger_name = self._scrubber.beginning(logger, MAX_LOGGER_LENGTH) if isinstance(logger, str) else None
            data = params.get("data")
            # The loop reads on after it, so that its size is bounded.
            data = TOO_LONG if size_of(data) > LARGE_BYTES else self._scrubber.value(data)
            self._context.log(level, data, logger_name)


class ConnectionForwarder:
    """Forwards through the connections of this process."""

    async def call_tool(
        self,
        endpoint: Endpoint,
        pin: Pin,
        arguments: dict[str, Any],
        context: ToolContext,
        mirrored: tuple[Mirrored, ...],
        *,
        as_task: bool,
    ) -> ToolResult:
        """Call a tool. Raises ToolError and CallCancelled."""
        headers = {parameter.header: encoded(text) for parameter, text in mirroring.texts(mirrored, arguments)}
        request = ForwardedRequest("tools/call", {"name": pin.name, "arguments": arguments}, headers, as_task)
        try:
            return await self._forward(endpoint, pin, request, context, _tool_result)
        except UpstreamFailed as error:
            return failed(error.message, error.cause)

    async def read_resource(self, endpoint: Endpoint, pin: Pin, uri: str, context: ToolContext) -> ResourceResult:
        """Read a resource. Raises ToolError, ResourceNotFound and CallCancelled."""
        request = ForwardedRequest("resources/read", {"uri": uri})
        return await self._forward(
            endpoint, pin, request, context, lambda result: ResourceResult(_objects(result, "contents"))
        )

    async def get_prompt(
        self, endpoint: Endpoint, pin: Pin, arguments: dict[str, Any], context: ToolContext
    ) -> PromptResult:
        """Render a prompt. Raises ToolError and CallCancelled."""
        request = ForwardedRequest("prompts/get", {"name": pin.name, "arguments": arguments})
        return await self._forward(endpoint, pin, request, context, _prompt_result)

    async def complete(
        self, endpoint: Endpoint, pin: Pin, argument: str, value: str, known_arguments: Mapping[str, str]
    ) -> list[str]:
        """Return suggestions; none if the upstream makes none. Raises ToolError."""
        reference = (
            {"type": "ref/prompt", "name": pin.name}
            if pin.kind == ItemKind.PROMPT
            else {"type": "ref/resource", "uri": pin.name}
        )
        params: dict[str, Any] = {"ref": reference, "argument": {"name": argument, "value": value}}
        if known_arguments:
            params["context"] = {"arguments": dict(known_arguments)}

        async def work(connection: Connection) -> dict[str, Any]:
            client = await connection.client()
            if not client.offers("completions"):
                return {}
            await connection.check(pin)
            return await client.request("completion/complete", params)

        # The caller is not known here, so that only the tenant's credential can be used.
        credentialed = await resolve.endpoint_for_tenant(endpoint)
        if credentialed is None:
            return []
        pool, scrubber = connections.current(), Scrubber(credentialed.secrets)
        try:
            result = await asyncio.wrap_future(pool.submit(pool.use(credentialed, work)))
        except (ErrorResponse, UpstreamFailed) as error:
            message = sanitized(scrubber.beginning(error.message, MAX_ERROR_LENGTH))
            # Without the error itself, whose texts are the upstream's.
            raise ToolError(f"The upstream '{endpoint.name}' completes nothing: {message}") from None
        completion = result.get("completion")
        values = completion.get("values") if isinstance(completion, dict) else None
        suggestions = [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
        return [scrubber.beginning(text, MAX_COMPLETED_LENGTH) for text in suggestions[:MAX_VALUES]]

    async def _forward(
        self, endpoint: Endpoint, pin: Pin, request: ForwardedRequest, context: ToolContext, convert: Convert[T]
    ) -> T:
        """Send a request with the credential of its call. One that the upstream refused is sent with a new token."""
        endpoint = await resolve.endpoint_for_call(endpoint, context)
        is_renewed = False
        while True:
            try:
                return await self._send(endpoint, pin, request, context, convert)
            except Refused as error:
                if endpoint.sign_in is None:
                    raise _failed(endpoint, error) from error
                owner = resolve.owner_of(endpoint.sign_in, context.caller)
                renewed = None if is_renewed else await resolve.endpoint_after_refusal(endpoint, owner, error)
                if renewed is None:
                    message = await resolve.explain_refusal(endpoint, owner, error)
                    raise (ToolError(message) if message else _failed(endpoint, error)) from error
            endpoint, is_renewed = renewed, True

    async def _send(
        self, endpoint: Endpoint, pin: Pin, request: ForwardedRequest, context: ToolContext, convert: Convert[T]
    ) -> T:
        scrubber = Scrubber(endpoint.secrets)
        notification_forwarder = NotificationForwarder(context, scrubber)
        try:
            result = await Exchange(endpoint, pin, request, context, scrubber).run(notification_forwarder.listen)
        except ErrorResponse as error:
            # The code of an unknown resource changed with 2026-07-28.
            names_uri = isinstance(error.data, dict) and "uri" in error.data
            is_unknown = error.code == RESOURCE_NOT_FOUND or (error.code == INVALID_PARAMS and names_uri)
            if request.method == "resources/read" and is_unknown:
                raise ResourceNotFound from error
            if path := _missing_capability(error):
                raise CapabilityMissing(path) from error
            text = sanitized(scrubber.beginning(error.message, MAX_ERROR_LENGTH))
            if isinstance(error, TaskFailed) and context.supports(TASKS_CAPABILITY):
                code = error.code if error.code not in RESERVED or error.code in JSON_RPC else INTERNAL_ERROR
                raise ProtocolError(f"The upstream '{endpoint.name}' failed: {text}", code) from error
            raise ToolError(f"The upstream '{endpoint.name}' returned error {error.code}: {text}") from error
        except Refused:
            raise
        except UpstreamFailed as error:
            raise _failed(endpoint, error) from error
        except ToolError as error:
            raise ToolError(sanitized(scrubber.beginning(str(error), LARGE_BYTES))) from error

        return await large_work.run(
            size_of(result), lambda: convert(scrubber.value(result) if endpoint.secrets else result)
        )


def _failed(endpoint: Endpoint, error: UpstreamFailed) -> UpstreamFailed:
    scrubber = Scrubber(endpoint.secrets)
    message = f"Upstream '{endpoint.name}': {scrubber.beginning(error.message, MAX_ERROR_LENGTH)}"
    return UpstreamFailed(message, scrubber.beginning(error.cause, MAX_ERROR_LENGTH))


def register_forwarder() -> None:
    """Let the catalog's runners forward through the connections of their process."""
    upstream.register(ConnectionForwarder())


def _missing_capability(error: ErrorResponse) -> str:
    """Return the capability that a modern upstream misses, if the client could declare it; otherwise nothing."""
    required = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    if error.code != CAPABILITY_MISSING or not isinstance(required, dict):
        return ""
    return next((path for path in (*reversed(CAPABILITY_PATHS), TASKS_CAPABILITY) if declares(required, path)), "")


def _tool_result(result: Mapping[str, Any]) -> ToolResult:
    structured = result.get("structuredContent")
    content = _objects(result, "content", required=structured is None)
    return ToolResult(content=content, structured=structured, is_error=result.get("isError") is True)


def _prompt_result(result: Mapping[str, Any]) -> PromptResult:
    description = result.get("description")
    return PromptResult(_objects(result, "messages"), description if isinstance(description, str) else "")


def _objects(result: Mapping[str, Any], name: str, *, required: bool = True) -> list[dict[str, Any]]:
    """Return a list of objects; null is an empty one. Raises ToolError for anything else."""
    value = result.get(name, "" if required else [])
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ToolError(f"The upstream returned an invalid result: its '{name}' is not a list of objects.")
    return value
