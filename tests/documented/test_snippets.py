"""Every code block of the documentation is run unchanged, or checked with its parser; an unknown kind fails.

Blocks that need PostgreSQL or nginx are run in `tests/services/test_documented_snippets.py`. Commands that are not run
are checked against the files that they name: docker, systemd, useradd and git change the machine, and claude is
third-party.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from argparse import ArgumentError
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, get_commands, load_command_class

from tests.documented.blocks import ROOT, Block, block, blocks
from tests.wire.client import RawClient, call_params
from tools_app.audit.checkpoints import signer, statements
from tools_app.catalog import prompt_functions as prompts
from tools_app.catalog import resource_functions as resources
from tools_app.catalog.kinds.http.config import parse_config
from tools_app.catalog.kinds.python import runner as python
from tools_app.catalog.skills import frontmatter
from tools_app.catalog.validation.shapes import check_prompt_arguments, check_prompt_messages, names_of
from tools_app.core.telemetry.registry import METRICS
from tools_app.identity.models.issuers import validate_rules
from tools_app.server.embedded import EmbeddedHub
from tools_app.tenant_config.document import read as read_tenant_file

LIMIT_SECONDS = 120.0
LANGUAGES = {"sh", "python", "json", "yaml", "toml", "ts", "nginx", "markdown", "text", "mermaid"}
SETTINGS = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/settings.md").read_text(), re.MULTILINE))
# Variables that the page itself uses, or that other programs read.
OTHER_VARIABLES = {"MCPHUB", "TOKEN", "OTEL_EXPORTER_OTLP_ENDPOINT"}
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
# Placeholders in usage lines.
PLACEHOLDERS = {"N": "1", "SLUG": "demo"}


def named(found: list[Block]) -> Any:
    return pytest.mark.parametrize("snippet", found, ids=str)


def test_every_block_has_a_language_that_a_test_knows() -> None:
    assert {str(one): one.language for one in blocks() if one.language not in LANGUAGES} == {}
    assert len(blocks()) > 60


# --- Shells -------------------------------------------------------------------------------------------------------


@named(blocks("sh"))
def test_a_shell_understands_it(snippet: Block) -> None:
    # A usage line with brackets is valid shell, too.
    checked = subprocess.run(["sh", "-n"], input=snippet.text, text=True, capture_output=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stderr


@named(blocks("sh"))
def test_its_commands_exist_with_their_options_and_the_files_that_they_name(snippet: Block) -> None:
    for command in snippet.commands():
        assert command[0] in COMMANDS, f"{snippet}: no test knows what {command[0]} is"
        COMMANDS[command[0]](command[1:])


def a_python(words: list[str]) -> None:
    if words[0] == "-m":
        module = ROOT / words[1].replace(".", "/")
        assert words[1] == "venv" or module.with_suffix(".py").exists() or (module / "__main__.py").exists()
        return
    assert words[0] == "manage.py"
    name = words[1]
    assert name in get_commands()
    arguments = [
        PLACEHOLDERS.get(word.strip("[]"), word.strip("[]")) for word in words[2:] if word not in ("...", "...]")
    ]
    try:
        load_command_class(get_commands()[name], name).create_parser("manage.py", name).parse_args(arguments)
    except (CommandError, ArgumentError) as problem:
        pytest.fail(f"{shlex.join(words)}: {problem}")


def a_pip(words: list[str]) -> None:
    assert words[0] == "install"
    for option, value in pairwise(words):
        if option == "-c":
            assert (ROOT / value).is_file()
        elif option == "-e":
            assert set(re.findall(r"[\w-]+", value)) <= EXTRAS


def a_celery(words: list[str]) -> None:
    options = {"--pool", "--concurrency", "--schedule"}
    assert words[:2] == ["-A", "mcphub"]
    assert words[2] in ("worker", "beat")
    assert {word for word in words if word.startswith("--")} <= options


def a_docker(words: list[str]) -> None:
    if words[0] == "stop":
        return
    assert words[:2] == ["compose", "-f"]
    assert (ROOT / words[2]).is_file()
    assert words[3] in ("up", "build", "run")
    services = {word.partition("=")[0] for word in words[4:] if not word.startswith("-")}
    assert services <= set(COMPOSE)


def a_systemctl(words: list[str]) -> None:
    units = {word.replace("@1", "@") for word in words if word.startswith("mcphub-")}
    assert units <= {path.name for path in (ROOT / "deploy" / "systemd").iterdir()}


def an_export(words: list[str]) -> None:
    assert {word.partition("=")[0] for word in words} <= SETTINGS | OTHER_VARIABLES


def with_files(words: list[str]) -> None:
    for word in words:
        if word.startswith("deploy/") and word != "deploy/mcphub.env":
            assert list(ROOT.glob(word)), word


def a_client(words: list[str]) -> None:
    """Check that a client is given an endpoint and a key, or requests a token. Tests below run it or its equivalent."""
    if "https://your-hub/oauth/token" in words:
        assert "grant_type=" in " ".join(words)  # tested in tests/identity/oauth
        return
    assert re.search(r"http://127\.0\.0\.1:8000/(mcp|sse|message)\b", " ".join(words)) or "$MCPHUB/" in " ".join(words)
    assert "Authorization: Bearer " in " ".join(words)


def any_words(_words: list[str]) -> None:
    """It takes whatever it is given."""


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "python": a_python,
    "python3": a_python,
    "pip": a_pip,
    "venv/bin/pip": a_pip,
    "celery": a_celery,
    "docker": a_docker,
    "systemctl": a_systemctl,
    "export": an_export,
    "cp": with_files,
    "install": with_files,
    "curl": a_client,
    "claude": a_client,
    "npx": a_client,
    **dict.fromkeys(("pytest", ".ci/checks", ".ci/run", ".ci/coverage"), with_files),
    **dict.fromkeys((".", "cd", "git", "useradd", "gzip", "printf"), any_words),
}


@pytest.fixture
def at(hub: EmbeddedHub, key: str, offer: Callable[..., Any]) -> Callable[[Block], str]:
    """Fill in the running hub's URL and a key of a tenant that offers `echo`."""
    offer("echo")
    return lambda snippet: snippet.at(hub.url, key)


def run(*command: str, stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_calls_a_tool(at: Any) -> None:
    output = run("sh", stdin=at(block("docs/connecting.md", "curl http://127.0.0.1:8000/mcp")))
    assert json.loads(output)["result"]["content"][0]["text"] == "hello world"


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_opens_the_older_stream_and_posts_to_it(at: Any) -> None:
    opening = at(block("docs/transports.md", "curl -N http"))
    posting = at(block("docs/transports.md", "curl 'http://127.0.0.1:8000/message"))
    shown = block("docs/transports.md", "event: endpoint").text.splitlines()
    with subprocess.Popen(["sh", "-c", f"exec {opening}"], stdout=subprocess.PIPE, stderr=-3, text=True) as stream:
        stopping = threading.Timer(LIMIT_SECONDS, stream.kill)
        stopping.start()
        try:
            lines = (line for line in stream.stdout if not line.startswith(":") and line.strip())
            event, data = next(lines), next(lines)
            session = data.partition("sessionId=")[2].strip()
            assert (event.strip(), data.partition("=")[0]) == (shown[0], shown[1].partition("=")[0])
            run("sh", stdin=posting.replace("xk2m...", session))
            message = next(line for line in lines if line.startswith("data: {"))
        finally:
            stopping.cancel()
            stream.kill()
    assert json.loads(message[6:])["result"]["protocolVersion"] == "2024-11-05"


@named([one for one in blocks("sh") if one.text.startswith("claude mcp add --transport http")])
def test_what_claude_is_given_leads_to_the_tools(snippet: Block, at: Any) -> None:
    words = shlex.split(at(snippet))
    assert tools_at(words[words.index("mcphub") + 1], words[-1].removeprefix("Authorization: ")) == ["echo"]


# --- Programs -----------------------------------------------------------------------------------------------------

PROGRAMS = [one for one in blocks("python") if "asyncio.run(" in one.text]
STATEMENTS = [one for one in blocks("python") if "Ed25519PublicKey" in one.text]
# Run by tests/alerts/test_delivery.py.
RECEIVERS = [one for one in blocks("python") if "webhook-signature" in one.text]
# Run by tests/documented/test_django_app.py.
APPS = blocks("python", "docs/django.md")
AUTHORING = [one for one in blocks("python") if one not in [*PROGRAMS, *STATEMENTS, *RECEIVERS, *APPS]]


@named(PROGRAMS)
def test_a_client_in_python_calls_a_tool(snippet: Block, at: Any) -> None:
    assert "hello world" in run(sys.executable, "-", stdin=at(snippet))


@pytest.mark.parametrize("page", sorted({one.page for one in AUTHORING}))
def test_tools_prompts_and_resources_are_registered(page: str, registries: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(resources, "_completers", {}, raising=False)
    before = [set(kind.all_registered()) for kind in (python, prompts, resources)]
    names: dict[str, Any] = {"__name__": "documented"}
    for snippet in (one for one in AUTHORING if one.page == page):
        exec(compile(snippet.text, str(snippet), "exec"), names)

    text = "".join(one.text for one in AUTHORING if one.page == page)
    registered = set(re.findall(r"^@tool\b.*\n(?:async )?def (\w+)", text, re.MULTILINE))
    new = [set(kind.all_registered()) - known for kind, known in zip((python, prompts, resources), before, strict=True)]
    assert new[0] >= registered
    assert any(new)


@named(STATEMENTS)
def test_a_program_checks_exported_checkpoints_without_the_hub(
    snippet: Block, hub: EmbeddedHub, key: str, offer: Any
) -> None:
    offer("echo")
    client = RawClient(hub.url, key)
    with client.http:
        client.modern("tools/call", call_params("echo", {"message": "world"}))
    signer.sign()
    lines = list(statements.exported_lines(None))

    assert lines
    output = run(sys.executable, "-c", snippet.text, stdin="\n".join(lines))
    assert len(output.splitlines()) == len(lines)


# --- Files --------------------------------------------------------------------------------------------------------


@named(blocks("json"))
def test_json_is_what_its_reader_takes(snippet: Block, at: Any, key: str) -> None:
    read = json.loads(at(snippet))
    servers = read.get("mcpServers", read.get("servers")) if isinstance(read, dict) else None
    if servers is not None:
        reach(servers["mcphub"], key)
    elif "base_url" in read:
        parse_config(read)
    elif isinstance(read, list) and "claims" in read[0]:
        validate_rules(read)
    elif isinstance(read, list) and isinstance(read[0], dict):
        example = block("docs/resources-and-prompts.md", '[{"name"')
        arguments = json.loads(example.text)
        assert check_prompt_arguments(arguments) == []
        assert "role" not in read[0] or check_prompt_messages(read, names_of(arguments)) == []


def reach(server: dict[str, Any], key: str) -> None:
    """Send a request like a client with this configuration."""
    if "manage.py" in " ".join(server.get("args", [])):
        assert server["args"][1:] == ["mcp_stdio"]
        assert set(server["env"]) <= SETTINGS
        return
    if "url" in server:
        url, header = server["url"], server["headers"]["Authorization"]
    else:
        url, header = server["args"][2], server["env"]["AUTHORIZATION"]
    assert tools_at(url, re.sub(r"\$\{.+\}", key, header)) == ["echo"]


def tools_at(url: str, authorization: str) -> list[str]:
    base, path = url[: url.index("/", 8)], url[url.index("/", 8) :]
    client = RawClient(base, None, path)
    with client.http:
        response = client.modern("tools/list", headers={"Authorization": authorization})
        return [tool["name"] for tool in response.json()["result"]["tools"]]


@named(blocks("toml"))
def test_toml_leads_to_the_tools(snippet: Block, at: Any, key: str) -> None:
    server = tomllib.loads(at(snippet))["mcp_servers"]["mcphub"]
    assert server["bearer_token_env_var"] in SETTINGS
    assert tools_at(server["url"], f"Bearer {key}") == ["echo"]


@named(blocks("yaml", "docs/observability.md"))
def test_what_prometheus_reads_has_its_form_and_names_metrics_that_exist(snippet: Block) -> None:
    read = yaml.safe_load(snippet.text)
    assert set(read) <= {"scrape_configs", "groups"}
    for rule in (rule for group in read.get("groups", []) for rule in group["rules"]):
        assert set(rule) <= {"alert", "expr", "for"}
        assert set(re.findall(r"mcphub_\w+?(?=_bucket\b|\b(?!_))", rule["expr"])) <= set(METRICS)


@named(blocks("yaml", "docs/toolsets.md"))
def test_a_part_of_a_tenants_file_is_read(snippet: Block) -> None:
    assert read_tenant_file(f"mcphub: 1\n{snippet.text}").sections["toolsets"]


def test_the_other_yaml_is_a_tenants_file_which_has_a_test_of_its_own() -> None:
    tested = {"docs/observability.md", "docs/toolsets.md"}
    assert {one.page for one in blocks("yaml")} == {*tested, "docs/configuration-files.md"}


@named(blocks("markdown"))
def test_a_skill_has_a_head_that_is_read(snippet: Block) -> None:
    assert frontmatter(snippet.text, "skill://refunds/SKILL.md")["name"] == "refunds"


def test_what_other_tests_run_stands_where_they_look_for_it() -> None:
    assert [one.page for one in blocks("ts")] == ["docs/connecting.md"]
    assert [one.page for one in blocks("nginx")] == ["docs/deployment.md"]
    assert [one.page for one in blocks("text")] == ["docs/architecture.md", "docs/transports.md"]
    assert {one.page for one in blocks("mermaid")} == {"docs/architecture.md"}
