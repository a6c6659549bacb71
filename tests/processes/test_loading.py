"""The modules that a process of the hub loads, without warnings."""

import os
import subprocess
import sys
from pathlib import Path

from tests.processes.hub import ROOT


def test_nothing_of_opentelemetry_is_imported_where_no_traces_are_wanted() -> None:
    script = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'mcphub.settings'; django.setup(); "
        "import mcphub.asgi, mcphub.celery, tools_app.runtime.tasks; from tools_app.core.telemetry import tracing; "
        "tracing.start('1'); print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)

    assert printed.stdout.strip() == "[]"


def test_an_app_of_the_operators_own_brings_its_tools(tmp_path: Path) -> None:
    app = tmp_path / "greeting"
    app.mkdir()
    (app / "__init__.py").touch()
    lines = ["from tools_app.toolkit import tool", "@tool", "def greet(name: str) -> str:", "    return name"]
    (app / "mcp_tools.py").write_text("\n".join(lines))
    environment = {
        **os.environ,
        "MCPHUB_APPS": "greeting",
        "PYTHONPATH": str(tmp_path),
        "MCPHUB_DATA_DIR": str(tmp_path),
    }
    script = "from tools_app.catalog.kinds.python import runner as python; print(*python.all_registered())"

    shell = [sys.executable, "manage.py", "shell", "-v0", "-c", script]
    printed = subprocess.run(shell, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=True)

    assert "greet" in printed.stdout.split()


def test_a_static_file_is_sent_without_a_warning_on_the_terminal(tmp_path: Path) -> None:
    """In a process of its own: tests have filters of their own."""
    script = """
import asyncio
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application

async def status():
    scope = {"type": "http", "method": "GET", "path": "/favicon.ico", "query_string": b"", "headers": []}
    scope["headers"].append((b"host", b"localhost"))
    client = ApplicationCommunicator(get_asgi_application(), scope)
    await client.send_input({"type": "http.request", "body": b""})
    answer = await client.receive_output(30)
    while (await client.receive_output(30)).get("more_body"):
        pass
    return answer["status"]

print(asyncio.run(status()))
"""
    environment = {
        "PATH": os.environ["PATH"],
        "DJANGO_SETTINGS_MODULE": "mcphub.settings",
        "MCPHUB_DATA_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout.strip(), done.stderr) == ("200", "")
