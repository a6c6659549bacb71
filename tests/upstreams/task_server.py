"""A modern upstream that answers calls with tasks."""

import json
import threading
from typing import Any

from tests.upstreams.scripted import LOOK, reply, result
from tests.web_services import Received
from tests.wire.client import MODERN
from tests.wire.task_tools import EXTENSION

BROKEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{"


class TaskServer:
    """A modern upstream that makes a task of each call if the client declares the extension. Tests set its state."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.state: dict[str, Any] = {"status": "working", "statusMessage": "Reading"}
        self.answers: list[dict[str, Any]] = []
        self.methods: list[str] = []
        self.declared: list[Any] = []
        self.task_names: list[str] = []
        self.failures_left = 0
        self.requires_tasks = False

    def answer(self, request: Received) -> Any:
        message = json.loads(request.body)
        method, params = message["method"], message.get("params", {})
        with self.lock:
            self.methods.append(method)
            if method.startswith("tasks/"):
                self.task_names.append(request.headers["mcp-name"])
            if method == "tasks/get" and self.failures_left:
                self.failures_left -= 1
                return BROKEN
            response = self._answered(method, params)
            return reply(message["id"], **response)

    def _answered(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        declared = params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", {})
        match method:
            case "server/discover":
                capabilities = {"tools": {}, **EXTENSION}
                return {"result": {"supportedVersions": [MODERN], "capabilities": capabilities}}
            case "tools/list":
                return {"result": {"resultType": "complete", "tools": [LOOK]}}
            case "tools/call":
                self.declared.append(declared)
                if "extensions" not in declared:
                    error = {"code": -32021, "message": "Tasks!", "data": {"requiredCapabilities": EXTENSION}}
                    return {"error": error} if self.requires_tasks else {"result": result("at once")}
                return {"result": self._task() | {"resultType": "task", "status": "working"}}
            case "tasks/update":
                self.answers.append(params["inputResponses"])
                self.state = {"status": "completed", "result": result(json.dumps(params["inputResponses"]))}
                return {"result": {"resultType": "complete"}}
        assert "extensions" in declared
        state = {} if method == "tasks/cancel" else {**self._task(), **self.state}
        return {"result": {"resultType": "complete", **state}}

    def _task(self) -> dict[str, Any]:
        now = "2026-07-28T10:00:00Z"
        return {"taskId": "t/1", "createdAt": now, "lastUpdatedAt": now, "ttlMs": None, "pollIntervalMs": 1}

    def set(self, status: str, **more: Any) -> None:
        with self.lock:
            self.state = {"status": status, **more}
