"""Real clients over each of their transports: the official SDKs in Python and TypeScript, and the Inspector.

HTTP clients connect to two web processes alternately, so that their POSTs reach another process than the one that
holds their stream.
"""

import asyncio
import itertools
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.documented.blocks import block
from tests.identity.oauth.person import Person, parse_form
from tests.services.conftest import Hub, node_program, started
from tests.services.stack import ROOT, WAIT_SECONDS, Stack, eventually
from tools_app.tenants.snippets import calls, clients
from tools_app.tenants.snippets.calls import SnippetRequest

CLIENTS = ROOT / "tests" / "clients"
PLAY_SECONDS = 60.0
CHUNK_BYTES = 65536
FIXTURE = "tests.conformance.fixture"
OFFERED = ["count", "echo", "test_elicitation", "test_sampling"]
SEED = f"""
from tools_app.catalog import authoring
from tools_app.models import Tenant
tenant = Tenant.objects.get(slug="demo")
tenant.allow_query_key = True
tenant.save()
authoring.add_code_tools(tenant, {OFFERED[2:]!r})
authoring.add_code_resources(tenant, ["test://static-text"])
authoring.add_code_prompts(tenant, ["test_prompt_with_arguments"])
"""
# This client passes only the configured environment to a process.
OF_THE_HUB = ("MCPHUB_", "DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "PATH")
STDIO = [sys.executable, "manage.py", "mcp_stdio"]
# What every client sees, apart from its protocol version.
SEEN = {
    "echo": "hello world",
    "count": "3",
    "progress": [[step, 3, f"Step {step} of 3"] for step in range(3)],
    "resource": "This is the content of the static text resource.",
    "prompt": "Prompt with arguments: arg1='a', arg2='b'",
    "completion": ["paris", "park", "party"],
    "elicited": 'User response: action=accept, content={"username": "Ada", "email": "a@example.com"}',
    "sampled": "LLM response: answer to why",
}


class Balancer(threading.Thread):
    """Distributes connections to several servers in turn."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__(daemon=True)
        self.served: list[int] = []
        self.url = ""
        self._ports = itertools.cycle(ports)
        self._listening = threading.Event()
        self.start()
        assert self._listening.wait(WAIT_SECONDS)

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listening.set()
        await self._stopped.wait()
        server.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self.join(WAIT_SECONDS)

    def skip(self) -> None:
        """Send the next connection to another server."""
        next(self._ports)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = next(self._ports)
        self.served.append(port)
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copied(reader, there_writer), _copied(there_reader, writer))


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                writer.write(data)
                await writer.drain()
    finally:
        writer.close()


@pytest.fixture(scope="module")
def running(stack: Stack) -> Hub:
    """Two web processes and a worker, with the fixture's tools, resources and prompts beside the demo tools."""
    stack.environment["MCPHUB_APPS"] += f",{FIXTURE}"
    stack.shell(SEED)
    return started(stack)


@pytest.fixture(scope="module")
def balancer(running: Hub) -> Iterator[Balancer]:
    balancer = Balancer([urlsplit(web.url).port for web in running.webs])
    yield balancer
    balancer.stop()


Run = Callable[..., Any]


@pytest.fixture
def run(hub: Hub) -> Run:
    """Run a client; return the JSON that it prints."""

    def play(*command: str, **variables: str) -> Any:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**hub.stack.environment, "MCPHUB_API_KEY": hub.stack.key, **variables},
            capture_output=True,
            text=True,
            timeout=PLAY_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
        return json.loads(done.stdout)

    return play


@pytest.fixture
def client_arguments(hub: Hub, balancer: Balancer) -> Callable[[str], list[str]]:
    """The arguments for a client: a URL, or a command."""

    def arguments(how: str) -> list[str]:
        if how == "stdio":
            return STDIO
        if how.startswith("ws"):
            return [hub.webs[int(how.partition("-")[2])].url.replace("http", "ws", 1) + "/ws"]
        return [balancer.url + ("/mcp" if how == "http" else "/t/demo/sse")]

    return arguments


def check(seen: dict[str, Any], version: str) -> None:
    assert seen.pop("version") == version
    assert set(OFFERED) <= set(seen.pop("tools"))
    assert seen == SEEN


@pytest.fixture(autouse=True)
def nothing_is_left(hub: Hub) -> Iterator[None]:
    """Fail if a client leaves calls or messages behind after closing."""
    yield
    eventually(lambda: not hub.stack.rows("SELECT 1 FROM tools_app_runningcall"))
    eventually(lambda: not hub.stack.rows("SELECT 1 FROM tools_app_sessionmessage"))


@pytest.mark.parametrize("how", ["http", "sse", "stdio", "ws-0", "ws-1"])
def test_the_python_sdk_1(run: Run, client_arguments: Callable[[str], list[str]], how: str) -> None:
    python = os.environ.get("MCPHUB_MCP1_PYTHON")
    assert python, "MCPHUB_MCP1_PYTHON must name an interpreter that has `mcp[ws]<2`; `.ci/run` makes one"
    seen = run(python, str(CLIENTS / "everything_v1.py"), how.partition("-")[0], *client_arguments(how))
    check(seen, "2025-11-25")


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
@pytest.mark.parametrize("how", ["http", "sse", "stdio"])
def test_the_python_sdk_2(
    run: Run, client_arguments: Callable[[str], list[str]], how: str, mode: str, version: str
) -> None:
    check(run(sys.executable, str(CLIENTS / "everything_v2.py"), how, mode, *client_arguments(how)), version)


@pytest.mark.parametrize("how", ["http", "sse", "stdio", "ws-0", "ws-1"])
def test_the_typescript_sdk_1(run: Run, node: Path, client_arguments: Callable[[str], list[str]], how: str) -> None:
    seen = run(node_program(node), str(node / "v1.mjs"), how.partition("-")[0], *client_arguments(how))
    check(seen, "2025-11-25")


@pytest.mark.parametrize(("mode", "version"), [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
@pytest.mark.parametrize("how", ["http", "sse", "stdio"])
def test_the_typescript_sdk_2(
    run: Run, node: Path, client_arguments: Callable[[str], list[str]], how: str, mode: str, version: str
) -> None:
    check(run(node_program(node), str(node / "v2.mjs"), how, mode, *client_arguments(how)), version)


@pytest.mark.parametrize("how", ["http", "sse", "stdio"])
def test_the_inspector(
    run: Run, hub: Hub, node: Path, client_arguments: Callable[[str], list[str]], tmp_path: Path, how: str
) -> None:
    def inspect(*arguments: str) -> Any:
        target = client_arguments(how) if how == "stdio" else [client_arguments(how)[0], "--transport", how]
        command = [node_program(node), str(node / "node_modules" / ".bin" / "mcp-inspector"), "--cli", *target]
        return run(*command, *credentials, *patience, *arguments, HOME=str(tmp_path))

    # Its default of 15 seconds is too short for a hub that starts while other tests run.
    patience = ["--connect-timeout", str(int(PLAY_SECONDS * 1000))]
    credentials = ["--header", f"Authorization: Bearer {hub.stack.key}"]
    if how == "stdio":
        own = {name: value for name, value in hub.stack.environment.items() if name.startswith(OF_THE_HUB)}
        own["MCPHUB_API_KEY"] = hub.stack.key
        credentials = [word for name, value in own.items() for word in ("-e", f"{name}={value}")]

    assert set(OFFERED) <= {tool["name"] for tool in inspect("--method", "tools/list")["tools"]}
    echoed = inspect("--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=world")
    assert echoed["content"] == [{"type": "text", "text": SEEN["echo"]}]
    counted = inspect("--method", "tools/call", "--tool-name", "count", "--tool-arg", "n=3")
    assert counted["content"][0]["text"] == SEEN["count"]
    read = inspect("--method", "resources/read", "--uri", "test://static-text")
    assert read["contents"][0]["text"] == SEEN["resource"]
    about = ["--prompt-name", "test_prompt_with_arguments", "--prompt-args", "arg1=a", "arg2=b"]
    assert inspect("--method", "prompts/get", *about)["messages"][0]["content"]["text"] == SEEN["prompt"]


class LineProcess:
    """A program that writes lines of JSON, and reads lines."""

    def __init__(self, hub: Hub, *command: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=hub.stack.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self._timer = threading.Timer(PLAY_SECONDS, self.process.kill)
        self._timer.start()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        message: dict[str, Any] = json.loads(line)
        return message

    def send(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.receive()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._timer.cancel()


CLIENT_DOCUMENT = """
from django.contrib.auth.models import User
from django.utils import timezone
from tools_app.models import ClientSource, Membership, OAuthClient, Role, Tenant
tenant = Tenant.objects.get(slug="demo")
for name in {}:
    person = User.objects.create_user(name, password="correct horse battery")
    Membership.objects.create(user=person, tenant=tenant, role=Role.OPERATOR)
# Read a moment ago: the document is not at a public address, as it would have to be.
OAuthClient.objects.create(
    client_id="https://client.example/metadata.json", source=ClientSource.DOCUMENT, name="By document",
    redirect_uris=["http://localhost:33418/callback"], grant_types=["authorization_code", "refresh_token"],
    auth_method="none", fetched_at=timezone.now(),
)
"""
PROGRAMS = ["typescript-1", "typescript-2", "python-1", "python-2"]
ALLOWED = {"tools": ["echo"], "text": SEEN["echo"]}


@pytest.fixture(scope="module")
def people(running: Hub) -> None:
    """Create a member of the tenant for each program, and the client with a metadata document."""
    running.stack.shell(CLIENT_DOCUMENT.format(PROGRAMS))


def status_of(base: str, token: str) -> int:
    """The status of a request with a token."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    return httpx.post(f"{base}/mcp", json=body, headers=headers, trust_env=False).status_code


@contextmanager
def signing_in(
    hub: Hub, balancer: Balancer, node: Path, program: str, *document: str
) -> Iterator[tuple[LineProcess, Person]]:
    """Run a program with the endpoint's URL, and optionally its document's, and a user for it."""
    url = f"{balancer.url}/t/demo/mcp"
    script = str(node / "sign_in.mjs")
    command = {
        "typescript-1": [node_program(node), script, "v1"],
        "typescript-2": [node_program(node), script, "v2"],
        "python-1": [os.environ["MCPHUB_MCP1_PYTHON"], str(CLIENTS / "sign_in_v1.py")],
        "python-2": [sys.executable, str(CLIENTS / "sign_in_v2.py")],
    }[program]
    process = LineProcess(hub, *command, url, *document)
    with closing(Person(balancer.url, program, "correct horse battery")) as person:
        try:
            yield process, person
        finally:
            process.end()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_client_that_knows_nothing_but_the_url(
    hub: Hub, balancer: Balancer, node: Path, people: None, program: str
) -> None:
    """It registers, signs in, refreshes its tokens, and asks for consent again when the connection was ended."""
    with signing_in(hub, balancer, node, program) as (process, person):
        assert process.send(person.connect(process.receive()["open"], ["echo"])) == ALLOWED
        hub.stack.execute("UPDATE tools_app_accesstoken SET expires_at = now()")
        assert process.send("expired") == ALLOWED
        token = process.send("token")["token"]
        ended = person.browser.post("/connections", data=parse_form(person.open("/connections").text).fields)
        assert ended.status_code == 302
        eventually(lambda: {status_of(web.url, token) for web in hub.webs} == {401})
        assert process.send(person.connect(process.send("again")["open"], ["echo"])) == ALLOWED


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_client_with_a_metadata_document_asks_for_more_when_its_token_permits_too_little(
    hub: Hub, balancer: Balancer, node: Path, people: None, program: str
) -> None:
    """It has a metadata document, so it does not register. It may only read at first: the call is rejected with 403.

    The TypeScript client 1.x refreshes such a token instead of asking for more scope, so it may do everything at once.
    """
    registered = hub.stack.rows("SELECT count(*) FROM tools_app_oauthclient")
    with signing_in(hub, balancer, node, program, "https://client.example/metadata.json") as (process, person):
        url = process.receive()["open"]
        if program != "typescript-1":
            url = process.send(person.connect(url.replace("+mcp%3Acall", ""), ["echo"]))["open"]
            assert "mcp%3Acall" in url
        assert process.send(person.connect(url, ["echo"])) == ALLOWED
    assert hub.stack.rows("SELECT count(*) FROM tools_app_oauthclient") == registered


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
def test_what_the_admin_shows_as_typescript(hub: Hub, node: Path, version: str) -> None:
    request = SnippetRequest("tools/call", {"name": "echo", "arguments": {"message": 'it\'s "ü" $HOME'}}, version)
    program = node / "snippet.mjs"
    program.write_text(calls.typescript(hub.urls[0], hub.stack.key, request))
    assert json.loads(output_of([node_program(node), str(program)]))["content"][0]["text"] == 'hello it\'s "ü" $HOME'
    program.write_text(calls.typescript(hub.urls[0], hub.stack.key, SnippetRequest(version=version)))
    assert set(OFFERED) <= set(output_of([node_program(node), str(program)]).split())


def test_the_documented_program_in_typescript(hub: Hub, node: Path) -> None:
    program = node / "documented.mjs"
    program.write_text(block("docs/connecting.md", "import { Client").at(hub.webs[0].url, hub.stack.key))
    assert SEEN["echo"] in output_of([node_program(node), str(program)])


def test_the_documented_command_of_the_inspector(hub: Hub, node: Path) -> None:
    (words,) = block("docs/connecting.md", "npx -y @modelcontextprotocol/inspector").commands()
    inspector = str(node / "node_modules" / ".bin" / "mcp-inspector")
    command = [
        word.replace("http://127.0.0.1:8000", hub.webs[0].url).replace("YOUR_API_KEY", hub.stack.key) for word in words
    ]
    listed = json.loads(output_of([node_program(node), inspector, *command[3:]], HOME=str(node)))
    assert set(OFFERED) <= {tool["name"] for tool in listed["tools"]}


def test_what_the_admin_shows_for_the_inspector(hub: Hub, node: Path) -> None:
    words = shlex.split(clients.inspector(hub.urls[0], hub.stack.key))
    assert words[:3] == ["npx", "-y", "@modelcontextprotocol/inspector"]
    inspector = str(node / "node_modules" / ".bin" / "mcp-inspector")
    listed = json.loads(output_of([node_program(node), inspector, *words[3:]], HOME=str(node)))
    assert set(OFFERED) <= {tool["name"] for tool in listed["tools"]}


def output_of(command: list[str], **variables: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=PLAY_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_stream_is_in_one_process_and_its_messages_come_to_the_other(
    run: Run, hub: Hub, balancer: Balancer, client_arguments: Callable[[str], list[str]]
) -> None:
    for _ in hub.webs:
        before = len(balancer.served)
        check(
            run(sys.executable, str(CLIENTS / "everything_v2.py"), "sse", "legacy", *client_arguments("sse")),
            "2025-11-25",
        )
        assert len(set(balancer.served[before : before + 2])) == 2
        balancer.skip()
