"""Upstream MCP servers for tests, built with the official SDK on loopback. They speak both eras."""

import asyncio
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPDeprecationWarning, UrlElicitationRequiredError

from tools_app.server.base import bind
from tools_app.upstreams import connections

WAIT_SECONDS = 30.0
MODERN = "2026-07-28"
PAGE = "https://example.com/sign-in"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ASKING = ("ask", "declared", "several")
ECHO = {
    "name": "echo",
    "title": "Echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "outputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "annotations": {"readOnlyHint": True},
    "_meta": {"example.com/shown": "yes"},
}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object"}, **more}


def text_block(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


@dataclass
class SdkServer:
    """A server of the official SDK. `tools` is its list; `called` has the names of the tools called, in order."""

    tools: list[dict[str, Any]] = field(
        default_factory=lambda: [ECHO, tool("count"), tool("wait"), tool("fail"), tool("blocks"), tool("break")]
    )
    called: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    began: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)
    visited: threading.Event = field(default_factory=threading.Event)
    page: str = PAGE
    lists: int = 0
    era: str = ""
    port: int = 0
    app: Any = None
    _loop: asyncio.AbstractEventLoop | None = None
    _patience: asyncio.Timeout | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def lose_patience(self) -> None:
        """End the wait for the answer to the last form that `ask` sent: its call fails."""
        assert self._loop is not None
        assert self._patience is not None
        self._loop.call_soon_threadsafe(self._patience.reschedule, 0.0)

    def new_app(self, **options: Any) -> Any:
        server: Server[Any] = Server(
            "fixture",
            version="1.2",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._resources,
            on_list_resource_templates=self._templates,
            on_read_resource=self._read,
            on_list_prompts=self._prompts,
            on_get_prompt=self._prompt,
            on_completion=self._complete,
        )
        self.app = server.streamable_http_app(**options)
        return self.app

    async def _list(self, _context: Any, _params: Any) -> types.ListToolsResult:
        self.lists += 1
        return types.ListToolsResult(tools=[types.Tool.model_validate(definition) for definition in self.tools])

    async def _call(self, context: Any, params: Any) -> types.CallToolResult:
        self.called.append(params.name)
        request = getattr(context, "request", None)
        if request is not None:
            self.headers.append(dict(request.headers))
        if params.name in ASKING:
            context.state = params.request_state
            return await getattr(self, f"_{params.name}")(context, params.arguments or {}, params.input_responses)
        return await getattr(self, f"_{params.name}")(context, params.arguments or {})

    async def _echo(self, _context: Any, arguments: dict[str, Any]) -> types.CallToolResult:
        structured = {"text": arguments["text"]}
        return types.CallToolResult(content=[text_block(arguments["text"])], structuredContent=structured)

    async def _count(self, context: Any, _arguments: dict[str, Any]) -> types.CallToolResult:
        for step in (1, 2, 3):
            await context.session.report_progress(step, 3, f"Step {step}")
        return types.CallToolResult(content=[text_block("3")])

    async def _wait(self, _context: Any, _arguments: dict[str, Any]) -> types.CallToolResult:
        self.began.set()
        try:
            await asyncio.sleep(WAIT_SECONDS)
        except BaseException:
            self.cancelled.set()
            raise
        return types.CallToolResult(content=[])

    async def _fail(self, _context: Any, _arguments: dict[str, Any]) -> types.CallToolResult:
        return types.CallToolResult(content=[text_block("No such book.")], isError=True)

    async def _blocks(self, _context: Any, _arguments: dict[str, Any]) -> types.CallToolResult:
        link = types.ResourceLink(type="resource_link", uri="docs://guide", name="guide")
        image = types.ImageContent(type="image", data="iVBORw==", mimeType="image/png")
        return types.CallToolResult(content=[link, image])

    async def _ask(self, context: Any, arguments: dict[str, Any], responses: Any = None) -> Any:
        """Elicit a name `times` times in succession, and report progress after each."""
        try:
            return await self._ask_in_turn(context, arguments, responses)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def _ask_in_turn(self, context: Any, arguments: dict[str, Any], responses: Any) -> Any:
        names: list[str] = []
        for number in range(1, arguments.get("times", 1) + 1):
            if context.protocol_version == MODERN:
                names = [
                    *(context.state or "").split(),
                    *(response.content["name"] for response in (responses or {}).values()),
                ]
                if len(names) < number:
                    form = types.ElicitRequestFormParams(message="Who?", requested_schema=NAME)
                    request = types.ElicitRequest(params=form)
                    return types.InputRequiredResult(input_requests={"who": request}, request_state=" ".join(names))
                continue
            field = arguments.get("field", "name")
            form = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
            self._loop = asyncio.get_running_loop()
            async with asyncio.timeout(WAIT_SECONDS) as self._patience:
                response = await context.session.elicit_form("Who?", form, related_request_id=context.request_id)
            names.append(response.content["name"] if response.content else response.action)
            await context.session.report_progress(number, None, f"Answer {number}")
            if arguments.get("then") == "wait":
                await asyncio.sleep(WAIT_SECONDS)
        return types.CallToolResult(content=[text_block(" ".join(names))])

    async def _declared(self, context: Any, _arguments: dict[str, Any], _answers: Any = None) -> Any:
        """Return the capabilities that the client declared."""
        capabilities = context.session.client_capabilities
        text = capabilities.model_dump_json(exclude_none=True, by_alias=True)
        return types.CallToolResult(content=[text_block(text)])

    async def _several(self, context: Any, _arguments: dict[str, Any], responses: Any = None) -> Any:
        """Request sampling, an elicitation by URL and roots at the same time."""
        message = types.SamplingMessage(role="user", content=text_block("Hello?"))
        if context.protocol_version == MODERN:
            if not responses:
                page = types.ElicitRequestURLParams(message="Open", url="https://example.com/x", elicitation_id="e1")
                sampling = types.CreateMessageRequestParams(messages=[message], max_tokens=10)
                requests = {
                    "model": types.CreateMessageRequest(params=sampling),
                    "page": types.ElicitRequest(params=page),
                    "roots": types.ListRootsRequest(),
                }
                return types.InputRequiredResult(input_requests=requests)
            texts = (responses["model"].content.text, responses["page"].action, responses["roots"].roots[0].uri)
        else:
            request_id = context.request_id
            session = context.session
            opened = session.elicit_url("Open", "https://example.com/x", "e1", related_request_id=request_id)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", MCPDeprecationWarning)
                sampled = session.create_message([message], max_tokens=10, related_request_id=request_id)
                listed = session.list_roots()
            model, page, roots = await asyncio.gather(sampled, opened, listed)
            texts = (model.content.text, page.action, roots.roots[0].uri)
        return types.CallToolResult(content=[text_block(" ".join(map(str, texts)))])

    async def _visit(self, context: Any, _arguments: dict[str, Any]) -> types.CallToolResult:
        """Elicit by URL, and send its completion while the call still runs."""
        answer = await context.session.elicit_url("Open", PAGE, "e1", related_request_id=context.request_id)
        for id in ("e1", "unknown"):
            await context.session.send_elicit_complete(id, context.request_id)
        return types.CallToolResult(content=[text_block(answer.action)])

    async def _needs(self, context: Any, _arguments: dict[str, Any]) -> types.CallToolResult:
        """Require an elicitation by URL until `visited` is set."""
        self.began.set()
        self._session, self._loop = context.session, asyncio.get_running_loop()
        if not self.visited.is_set():
            page = types.ElicitRequestURLParams(message="Sign in", url=self.page, elicitation_id="e2")
            raise UrlElicitationRequiredError([page], "Sign in first.")
        return types.CallToolResult(content=[text_block("ran")])

    def complete(self, id: str) -> None:
        """Send a completed elicitation on the session's own stream."""
        future = asyncio.run_coroutine_threadsafe(self._session.send_elicit_complete(id), self._loop)
        future.result(WAIT_SECONDS)

    async def _resources(self, _context: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[types.Resource(uri="docs://guide", name="guide", mimeType="text/plain")]
        )

    async def _templates(self, _context: Any, _params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uriTemplate="docs://page/{number}", name="page")
        return types.ListResourceTemplatesResult(resourceTemplates=[template])

    async def _read(self, _context: Any, params: Any) -> types.ReadResourceResult:
        text = f"Contents of {params.uri}"
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=text)])

    async def _change(self, context: Any, _arguments: dict[str, Any]) -> types.CallToolResult:
        """Change the first tool, and notify on the session's own stream."""
        self.tools[0] = {**self.tools[0], "description": "Something else."}
        await context.session.send_tool_list_changed()
        return types.CallToolResult(content=[])

    async def _complete(self, _context: Any, params: Any) -> types.CompleteResult:
        arguments = params.context.arguments if params.context else {}
        value = f"{params.ref.type}:{params.argument.name}:{params.argument.value}:{arguments}"
        return types.CompleteResult(completion=types.Completion(values=[value, "tea"]))

    async def _prompts(self, _context: Any, _params: Any) -> types.ListPromptsResult:
        argument = types.PromptArgument(name="topic", description="What about.", required=True)
        return types.ListPromptsResult(
            prompts=[types.Prompt(name="explain", description="Explain.", arguments=[argument])]
        )

    async def _prompt(self, _context: Any, params: Any) -> types.GetPromptResult:
        text = text_block(f"Explain {params.arguments['topic']}.")
        return types.GetPromptResult(description="Explain.", messages=[types.PromptMessage(role="user", content=text)])


@pytest.fixture
def sdk_server() -> Iterator[Callable[..., SdkServer]]:
    """Start a server of the official SDK: `sdk_server(json_response=True)`."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(**options: Any) -> SdkServer:
        server_under_test = SdkServer()
        socket = bind("127.0.0.1", 0)
        # Clients may connect before the server accepts.
        socket.listen()
        server_under_test.port = socket.getsockname()[1]
        app = server_under_test.new_app(**options)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[socket])), daemon=True)
        thread.start()
        running.append((server, thread))
        return server_under_test

    yield start
    # Its shutdown would wait for the hub's streams.
    connections.current.stop()
    for server, _ in running:
        server.should_exit = True
    for _, thread in running:
        thread.join(WAIT_SECONDS)
