"""Shell commands in the documentation for operators, run unchanged on PostgreSQL and Redis."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.documented.blocks import ROOT, block
from tests.services.stack import Stack, free_port
from tests.services.test_behind_nginx import rendered

LIMIT_SECONDS = 100.0
PAGE_DATE = "2026-05-04"
ACME = """
from tools_app.catalog import authoring
from tools_app.models import Tenant
tenant, _ = Tenant.objects.get_or_create(slug="acme", defaults={"name": "Acme"})
authoring.add_code_tools(tenant, ["echo"])
"""

Shell = Callable[[str], str]


@pytest.fixture(scope="module")
def acme(stack: Stack) -> Stack:
    stack.shell(ACME)
    return stack


@pytest.fixture
def shell(acme: Stack, tmp_path: Path) -> Shell:
    """Run lines of shell in a directory with `manage.py`, and return their output. The first failing line fails."""
    (tmp_path / "manage.py").symlink_to(ROOT / "manage.py")
    path = f"{Path(sys.executable).parent}{os.pathsep}{acme.environment['PATH']}"

    def run(lines: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", lines],
            cwd=tmp_path,
            env=acme.environment | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_calls_are_exported(shell: Shell, tmp_path: Path) -> None:
    shell(block("docs/audit.md", "python manage.py export_calls").text)

    assert (tmp_path / "calls.csv").read_text().count("\n") == 1
    assert (tmp_path / "calls.jsonl.gz").exists()


def test_checkpoints_are_exported_and_verified(shell: Shell) -> None:
    lines = block("docs/audit.md", "python manage.py export_checkpoints").text

    shell(lines.replace(PAGE_DATE, "$(date +%F)"))


def test_a_tenant_is_exported_and_imported(shell: Shell, tmp_path: Path) -> None:
    shell(block("docs/configuration-files.md", "python manage.py export_tenant").text)

    assert "echo" in (tmp_path / "acme.yaml").read_text()


def test_a_skill_is_added(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "refunds").mkdir()
    (tmp_path / "refunds" / "SKILL.md").write_text(block("docs/skills.md", "---").text)

    output = shell(block("docs/skills.md", "python manage.py add_skill").text)

    assert output.startswith("skill://acme/billing/refunds/SKILL.md: 1 files, 1 new")


def test_pruning_is_tried(shell: Shell) -> None:
    trial, _usage = block("docs/retention.md", "python manage.py prune").text.splitlines()

    shell(trial)


def test_a_conversation_is_printed_into_a_pipe(shell: Shell) -> None:
    output = shell(block("docs/transports.md", "printf").text)

    responses = [json.loads(line) for line in output.splitlines()]
    assert [message["id"] for message in responses] == [1, 2]
    assert responses[1]["result"]["content"][0]["text"] == "hello world"


def test_the_database_is_migrated_and_tools_are_synchronized_as_the_page_says(shell: Shell) -> None:
    lines = block("docs/running-scaled.md", "pip install -e '.[postgres").text.splitlines()

    shell("\n".join(line for line in lines if "migrate" in line or "sync_tools" in line))


def test_the_doctor_looks(shell: Shell) -> None:
    # Its exit code reports problems, and no worker is running here.
    output = shell(f"{block('docs/observability.md', 'python manage.py doctor').text.splitlines()[0]} || test $? = 1")

    assert "database: PostgreSQL" in output


def certificate(home: Path) -> tuple[Path, Path]:
    """A self-signed certificate, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub.example")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (home / "hub.crt").write_bytes(signed.public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (home / "hub.key").write_bytes(secret)
    return home / "hub.crt", home / "hub.key"


def test_nginx_takes_the_lines_for_https(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    port = free_port()
    listening = f"listen 127.0.0.1:{port}"
    lines = block("docs/deployment.md", "listen 443 ssl").text.replace("listen 443", listening)
    if version(nginx) < (1, 25, 1):
        comment = "  # before nginx 1.25.1: `"
        start, older = lines.index("http2 on;"), lines.split(comment)[1].split("`")[0].replace("listen 443", listening)
        lines = lines[: lines.index(listening)] + older + lines[lines.index("\n", start) :]
    for path in certificate(tmp_path):
        assert f"/etc/nginx/{path.name}" in lines
        lines = lines.replace(f"/etc/nginx/{path.name}", str(path))
    (tmp_path / "nginx.conf").write_text(rendered(tmp_path, port).replace(f"{listening} default_server;", lines))
    (tmp_path / "mcphub-upstream.conf").write_text("server 127.0.0.1:1;\n")
    (tmp_path / "mime.types").write_text("types {}\n")

    command = [nginx, "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)

    assert done.returncode == 0, done.stderr


def version(nginx: str) -> tuple[int, ...]:
    output = subprocess.run([nginx, "-v"], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True).stderr
    return tuple(int(part) for part in output.partition("nginx/")[2].split()[0].split("."))
