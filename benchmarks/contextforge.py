"""ContextForge as a proxy of an upstream: in an environment of its own, on SQLite, with an admin's token."""

import http.client
import json
import os
import subprocess
from pathlib import Path

from benchmarks.contestants import UVICORN, Contestant, NotInstalled
from benchmarks.processes import HOST
from benchmarks.workloads import CALL, ECHO_PARAMS, HANDSHAKE, Workload, WrongAnswer, check_echo

PYTHON = "CONTEXTFORGE_PYTHON"
PACKAGE = "mcp-contextforge-gateway"
NAME = "fast"
ADMIN = "admin@example.com"
SECRET = "a benchmark has no secrets, but its keys need a length"  # noqa: S105 - of a server that lives for a minute
# A session is not needed for a call.
ECHO_OF_UPSTREAM = Workload("echo of an upstream", HANDSHAKE, CALL, {**ECHO_PARAMS, "name": f"{NAME}-echo"}, check_echo)
SECONDS = 60.0


class ContextForge:
    """The gateway, with its data in `folder`. Raises NotInstalled where CONTEXTFORGE_PYTHON names no Python with it."""

    def __init__(self, folder: Path) -> None:
        self._python = os.environ.get(PYTHON, "")
        if not self._python:
            raise NotInstalled(f"{PYTHON} names no Python that has {PACKAGE}")
        self._environment = {
            **os.environ,
            "DATABASE_URL": f"sqlite:///{folder / 'gateway.db'}",
            "AUTH_REQUIRED": "true",
            "PLATFORM_ADMIN_EMAIL": ADMIN,
            "PLATFORM_ADMIN_PASSWORD": SECRET,
            "JWT_SECRET_KEY": SECRET,
            "AUTH_ENCRYPTION_SECRET": SECRET,
            "MCPGATEWAY_UI_ENABLED": "false",
            # The upstream is on this machine.
            "SSRF_PROTECTION_ENABLED": "false",
            # By default, it takes a hundred calls a minute.
            "RATE_LIMITING_ENABLED": "false",
            "TOOL_RATE_LIMIT": "1000000",
            "LOG_LEVEL": "ERROR",
        }
        installed = self._run("-c", f"from importlib.metadata import version; print(version('{PACKAGE}'))")
        self.label = f"ContextForge {installed}"

    def contestant(self) -> Contestant:
        """Return the command of one process, with uvicorn as for the others."""
        return Contestant(self.label, [self._python, *UVICORN, "mcpgateway.main:app"], self._environment)

    def register(self, port: int, url: str) -> str:
        """Add the upstream at `url`; returns the token of calls. Raises WrongAnswer if it is refused."""
        token = self._run("-m", "mcpgateway.utils.create_jwt_token", "--username", ADMIN, "--admin", "--secret", SECRET)
        token = token.splitlines()[-1]
        body = json.dumps({"name": NAME, "url": url, "transport": "STREAMABLEHTTP"})
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        connection = http.client.HTTPConnection(HOST, port, timeout=SECONDS)
        try:
            connection.request("POST", "/gateways", body, headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise WrongAnswer(f"the gateway did not add the upstream: {response.read()!r}")
        finally:
            connection.close()
        return token

    def _run(self, *arguments: str) -> str:
        result = subprocess.run(
            [self._python, *arguments], env=self._environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise NotInstalled(result.stderr.strip().splitlines()[-1])
        return result.stdout.strip()
