"""What the settings make on the disk at the first start."""

import os
import stat
import subprocess
import sys

from mcphub import settings


def test_a_secret_is_made_once_and_for_its_owner_only(tmp_path):
    path = tmp_path / "secret.key"

    first = settings.generated_secret(path)

    assert len(first) >= 64
    assert settings.generated_secret(path) == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_an_app_of_the_operators_own_brings_its_tools(tmp_path):
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
    script = "from tools_app.execution.kinds import python; print(*python.all_registered())"

    shell = [sys.executable, "manage.py", "shell", "-v0", "-c", script]
    printed = subprocess.run(
        shell, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, timeout=50, check=True
    )

    assert "greet" in printed.stdout.split()
