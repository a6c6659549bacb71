"""What the load generators send: plain bytes and headers, and how to tell that an answer is the right one."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.servers.look_up import LOOK_UPS

MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
STEPS = 20
# Load generators count on from here: as many digits in every id, and each id once.
FIRST_ID = 100_000_000_000
SESSION = "Mcp-Session-Id"
CLIENT = {"name": "load", "version": "1"}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    CAPABILITIES: {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}


class WrongAnswer(Exception):
    """A server answered something else than what is to be measured."""


@dataclass(frozen=True)
class Request:
    """One HTTP request."""

    body: str
    headers: Mapping[str, str] = field(repr=False)
    verb: str = "POST"
    path: str = "/mcp"


@dataclass(frozen=True)
class Workload:
    """One method with its parameters in one revision. `check` raises WrongAnswer for messages that answer otherwise."""

    name: str
    version: str
    method: str
    params: Mapping[str, Any]
    check: Callable[[list[dict[str, Any]]], None]

    @property
    def is_recorded(self) -> bool:
        """Whether the hub keeps a record of each answer."""
        return self.method == CALL

    def request(self, key: str, session: str = "") -> Request:
        """What to send; `session` is the wire id that revisions with a handshake want."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {key}",
            "MCP-Protocol-Version": self.version,
        }
        params = dict(self.params)
        if self.version == MODERN:
            params["_meta"] = {**META, **params.get("_meta", {})}
            headers["Mcp-Method"] = self.method
            if "name" in params:
                headers["Mcp-Name"] = params["name"]
            elif "taskId" in params:
                headers["Mcp-Name"] = params["taskId"]
        elif session:
            headers[SESSION] = session
        return Request(json.dumps({"jsonrpc": "2.0", "id": FIRST_ID, "method": self.method, "params": params}), headers)


def messages(answer: bytes) -> list[dict[str, Any]]:
    """The JSON-RPC messages of an answer, be it one JSON body or an event stream."""
    if answer.lstrip().startswith(b"{"):
        return [json.loads(answer)]
    lines = (line for line in answer.decode().splitlines() if line.startswith("data: {"))
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def check_echo(answer: list[dict[str, Any]]) -> None:
    """One result that says hello. Raises WrongAnswer."""
    if _texts(answer) != ["hello world"]:
        raise WrongAnswer(f"not the answer of echo: {answer}")


def check_report(answer: list[dict[str, Any]]) -> None:
    """Every progress notification, and then the result. Raises WrongAnswer."""
    progress = [message["params"]["progress"] for message in answer[:-1] if message.get("method") == PROGRESS]
    if progress != list(range(1, STEPS + 1)) or _texts(answer) != [f"{STEPS} steps"]:
        raise WrongAnswer(f"not {STEPS} notifications and a result: {answer}")


def check_task(answer: list[dict[str, Any]]) -> None:
    """A task that ended with its result. Raises WrongAnswer."""
    if answer[-1].get("status") != "completed" or _texts(answer) != [f"{STEPS} steps"]:
        raise WrongAnswer(f"not a task that completed: {answer}")


def check_list(answer: list[dict[str, Any]]) -> None:
    """A hundred tools. Raises WrongAnswer."""
    tools = answer[-1].get("result", {}).get("tools", [])
    if len(tools) != len(LOOK_UPS):
        raise WrongAnswer(f"{len(tools)} tools, not {len(LOOK_UPS)}")


def _texts(answer: list[dict[str, Any]]) -> list[str]:
    return [part.get("text") for part in answer[-1].get("result", {}).get("content", [])] if answer else []


PROGRESS = "notifications/progress"
CALL = "tools/call"
ECHO_PARAMS = {"name": "echo", "arguments": {"message": "world"}}
REPORT_PARAMS = {"name": "report", "arguments": {"steps": STEPS}, "_meta": {"progressToken": 1}}

ECHO = Workload("echo", MODERN, CALL, ECHO_PARAMS, check_echo)
SESSION_ECHO = Workload("echo in a session", HANDSHAKE, CALL, ECHO_PARAMS, check_echo)
LIST = Workload("list", MODERN, "tools/list", {}, check_list)
REPORT = Workload("progress", MODERN, CALL, REPORT_PARAMS, check_report)
REPORT_IN_WORKER = Workload(
    "progress of a background call", MODERN, CALL, {**REPORT_PARAMS, "name": "report_in_worker"}, check_report
)
REPORT_AS_TASK = Workload(
    "task",
    MODERN,
    CALL,
    {"name": "report_as_task", "arguments": {"steps": STEPS}, "_meta": {CAPABILITIES: TASKS}},
    check_task,
)


def poll(task_id: str) -> Workload:
    """The state of a task, with its result once it has one."""
    return Workload("poll", MODERN, "tasks/get", {"taskId": task_id, "_meta": {CAPABILITIES: TASKS}}, check_task)
