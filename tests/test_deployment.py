"""The files in deploy/: they parse, refer to existing things, and agree with the hub's limits."""

import configparser
import http.server
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands, load_command_class

from tools_app.server import boundary, supervisor
from tools_app.transport import routing
from tools_app.upstreams.isolation import cgroups
from tools_app.web.documentation import search

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
NGINX = re.sub(r"#.*", "", (DEPLOY / "nginx.conf").read_text())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}
HUB_SERVICES = sorted(name for name, service in COMPOSE["services"].items() if "HUB_IMAGE" in service["image"])
# Variables of other services.
OF_OTHERS = {"POSTGRES_PASSWORD"}
CELERY_OPTIONS = {"--pool", "--concurrency", "--hostname", "--loglevel", "--schedule", "--pidfile"}


def seconds(value: str) -> float:
    """Parse a duration in seconds."""
    number, unit = re.fullmatch(r"(\d+)([a-z]*)", value).groups()
    return int(number) * SECONDS[unit]


def directive(name: str, text: str = NGINX) -> str:
    """The only value of `name` in nginx's configuration `text`."""
    values = set(re.findall(rf"(?:^|[\s{{;]){name}\s+([^;]+);", text))
    assert len(values) == 1, (name, values)
    return values.pop()


def block(opening: str) -> str:
    return NGINX.split(opening, 1)[1].split("}", 1)[0]


def unit(path: Path) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str
    parsed.read_string(path.read_text())
    return parsed


def check_command(words: list[str]) -> None:
    """Fail if the hub has no such command with these options."""
    if words[0].endswith("celery"):
        assert words[1:3] == ["-A", "mcphub"]
        assert words[3] in ("worker", "beat")
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= CELERY_OPTIONS
        return
    assert [Path(words[0]).name, words[1]] == ["python", "manage.py"]
    # Workers are separate: a background call must survive a web process.
    assert words[2] != "up" or "--no-worker" in words
    command = load_command_class(get_commands()[words[2]], words[2])
    command.create_parser("manage.py", words[2]).parse_args(words[3:])


# --- The image ------------------------------------------------------------------------------------------------


def test_the_image_starts_from_exact_versions_and_runs_as_nobody_special():
    froms = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

    assert froms
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", image) for image in froms)
    users = re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)
    assert users == ["mcphub"]
    assert DOCKERFILE.index("\nUSER ") > DOCKERFILE.rindex("\nRUN ")


def test_the_image_has_what_it_copies_and_nothing_else_reaches_the_builder():
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    copied = {source for line in lines for source in line.split()[:-1]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert all((ROOT / source).exists() for source in copied)
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == copied


def image_files() -> dict[str, Path]:
    """The files in the image's working directory: those in git that its last stage copies."""
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    included = [line[1:] for line in ignored if line.startswith("!")]
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    files = {}
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE.split("\nFROM ")[-1], re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            for name in (name for name in tracked if name == source or name.startswith(f"{source}/")):
                assert any(name == entry or name.startswith(f"{entry}/") for entry in included), name
                there = Path(target, Path(name).name) if target == "./" else Path(target + name.removeprefix(source))
                files[there.as_posix()] = ROOT / name
    return files


def test_the_image_has_every_file_that_the_hub_reads():
    folders = ("docs/", "mcphub/", "templates/", "tools_app/")
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    required = {name for name in tracked if name.startswith(folders) and (ROOT / name).exists()}

    assert required | {"manage.py", "README.md", "deploy/healthcheck.py"} <= set(image_files())


def test_the_documentation_is_searched_in_the_image(tmp_path: Path, settings: Any) -> None:
    for name, source in image_files().items():
        if name.endswith(".md"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).symlink_to(source)
    settings.BASE_DIR = tmp_path

    found = {hit.path for hit in search.index.__wrapped__().search("rotate a key")}

    assert {"README.md", "docs/keys.md"} <= found


def test_the_image_holds_no_secret():
    assert not re.search(r"(SECRET|PASSWORD|KEY|TOKEN)\S*[= ]", DOCKERFILE)


def test_the_image_installs_what_was_checked():
    extras = re.search(r"ARG EXTRAS=(\S+)", DOCKERFILE)[1].split(",")
    known = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)

    assert "-c constraints.txt" in DOCKERFILE
    assert {"postgres", "redis"} <= set(extras) <= set(known)


def test_the_image_serves_by_a_command_that_there_is():
    check_command(yaml.safe_load(re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[1]))


class Answering(http.server.BaseHTTPRequestHandler):
    """Responds to the health check of one host."""

    def do_GET(self) -> None:
        good = (self.path, self.headers["Host"]) == ("/healthz", "hub.example")
        self.send_response(200 if good else 400)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("hosts", "code"), [("hub.example,other.example", 0), (".hub.example", 0), ("other.example", 1), ("*", 1)]
)
def test_the_health_check_asks_under_a_name_that_the_hub_answers_for(port: int, hosts: str, code: int) -> None:
    environment = {"PORT": str(port), "MCPHUB_ALLOWED_HOSTS": hosts}
    assert subprocess.call([sys.executable, DEPLOY / "healthcheck.py"], env=environment, timeout=120) == code


def test_the_health_check_fails_where_nothing_listens():
    assert subprocess.call([sys.executable, DEPLOY / "healthcheck.py"], env={"PORT": "1"}, timeout=120) == 1


# --- Containers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_a_container_has_an_exact_version_and_comes_back(name: str) -> None:
    service = COMPOSE["services"][name]
    image = re.sub(r"\$\{\w+:-(.+)\}", r"\1", service["image"])

    assert re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?(-\w+)?", image), image
    assert service["restart"] in ("unless-stopped", "on-failure")
    assert "healthcheck" in service or name == "web"  # which the image sets itself


def test_all_parts_are_there():
    assert HUB_SERVICES == ["beat", "migrate", "web", "worker"]
    assert set(COMPOSE["services"]) == {*HUB_SERVICES, "nginx", "postgres", "redis"}


@pytest.mark.parametrize("name", HUB_SERVICES)
def test_a_container_of_the_hub_runs_a_command_that_there_is(name: str) -> None:
    command = [re.sub(r"\$\{\w+:-(.+)\}", r"\1", word) for word in COMPOSE["services"][name]["command"]]
    if command[:2] == ["sh", "-c"]:
        for part in command[2].split(" && "):
            check_command(part.split())
    else:
        check_command(command)


@pytest.mark.parametrize("name", HUB_SERVICES)
def test_a_container_of_the_hub_may_do_little(name: str) -> None:
    service = COMPOSE["services"][name]

    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", sorted(set(HUB_SERVICES) - {"migrate"}))
def test_nothing_serves_before_the_migrations(name: str) -> None:
    assert COMPOSE["services"][name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_a_web_container_has_the_time_to_drain():
    assert seconds(COMPOSE["services"]["web"]["stop_grace_period"]) >= settings.MCPHUB_DRAIN_TIMEOUT + 15


def test_redis_keeps_what_is_queued():
    command = COMPOSE["services"]["redis"]["command"]

    assert command[command.index("--appendonly") + 1] == "yes"
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


def test_each_mounted_file_and_volume_exists():
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).is_file(), volume


# --- Settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(path for path in DEPLOY.rglob("*") if path.is_file()), ids=lambda p: p.name)
def test_a_file_names_only_settings_that_exist(path: Path) -> None:
    known = set(re.findall(r'env\.\w+\(\s*"(\w+)"', (ROOT / "mcphub" / "settings.py").read_text()))

    assert set(re.findall(r"\b(?:MCPHUB_\w+|DATABASE_URL|REDIS_URL)\b", path.read_text())) <= known


def example() -> dict[str, str]:
    lines = (DEPLOY / "mcphub.env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_example_of_the_settings_has_no_secret_to_forget_in_it():
    secrets = {name: value for name, value in example().items() if re.search("SECRET|KEY|PASSWORD", name)}

    assert set(secrets) == {"MCPHUB_SECRET_KEY", "MCPHUB_AUDIT_KEY", "MCPHUB_ADMIN_PASSWORD", "POSTGRES_PASSWORD"}
    assert set(secrets.values()) == {""}


def test_the_example_reaches_the_services_of_the_compose_file():
    database = example()["DATABASE_URL"]
    postgres = COMPOSE["services"]["postgres"]["environment"]

    assert database.endswith(f"@postgres:5432/{postgres['POSTGRES_DB']}")
    assert database.startswith(f"postgres://{postgres['POSTGRES_USER']}:")
    assert example()["REDIS_URL"] == "redis://redis:6379/0"
    names = {name for name in example() if not name.startswith("MCPHUB_")}
    assert names == OF_OTHERS | {"DATABASE_URL", "REDIS_URL"}


# --- nginx ----------------------------------------------------------------------------------------------------


def test_nginx_takes_bodies_as_large_as_the_hub_does():
    size = re.fullmatch(r"(\d+)m", directive("client_max_body_size"))

    assert int(size[1]) * 1024 * 1024 == settings.MCPHUB_MAX_BODY_BYTES


def test_nginx_closes_idle_connections_before_the_hub_does():
    upstream = block("upstream mcphub {")

    # Daphne closes them after 60 seconds.
    assert seconds(directive("keepalive_timeout", upstream)) <= min(boundary.IDLE_SECONDS, 60.0) / 2
    assert directive("proxy_http_version") == "1.1"


def test_nginx_bounds_what_only_a_proxy_can():
    assert directive("large_client_header_buffers") == "4 8k"
    assert directive("limit_conn") == "addresses 2000"
    assert max(seconds(directive(f"{name}_timeout")) for name in ("client_header", "client_body", "send")) <= 60


def test_nginx_never_sends_a_call_twice():
    assert directive("proxy_next_upstream") == "error timeout"
    assert "non_idempotent" not in NGINX


def locations() -> dict[str, str]:
    return {pattern: block(f"location ~ {pattern} {{") for pattern in re.findall(r"location ~ (\S+) \{", NGINX)}


@pytest.mark.parametrize("prefix", ["/", "/t/acme/"])
@pytest.mark.parametrize("end", ["", "/"])
@pytest.mark.parametrize("name", sorted({*routing.HTTP_CONSUMERS, *routing.SOCKET_CONSUMERS}))
def test_nginx_knows_each_path_of_the_protocol(name: str, prefix: str, end: str) -> None:
    (found,) = [text for pattern, text in locations().items() if re.search(pattern, f"{prefix}{name}{end}")]

    assert seconds(directive("proxy_read_timeout", found)) > settings.MCPHUB_ELICITATION_TIMEOUT
    assert ("proxy_buffering off" in found) == (name in routing.HTTP_CONSUMERS)
    assert ("Upgrade $http_upgrade" in found) == (name in routing.SOCKET_CONSUMERS)


@pytest.mark.parametrize("path", ["/admin/", "/mcp/more", "/t/acme/admin", "/xmcp", "/mcpx"])
def test_nginx_takes_nothing_else_for_the_protocol(path: str) -> None:
    assert not [pattern for pattern in locations() if re.search(pattern, path)]


def test_headers_for_the_hub_are_set_wherever_one_is():
    common = {"Host $http_host", "X-Forwarded-For $proxy_add_x_forwarded_for", "X-Forwarded-Proto $scheme"}
    blocks = [NGINX.split("server {")[1].split("location")[0], *locations().values()]
    sets = [set(re.findall(r"proxy_set_header\s+([^;]+);", text)) for text in blocks]

    assert all(not headers or common <= headers for headers in sets)
    assert common <= sets[0]


def test_nginx_logs_no_query():
    form = re.search(r"log_format hub ([^;]+);", NGINX)[1]

    assert not re.search(r"\$(request|request_uri|args|query_string|arg_\w+|http_\w+)\b", form)
    assert directive("access_log").endswith(" hub")
    assert all("error.log crit" in text for text in locations().values())


# --- systemd --------------------------------------------------------------------------------------------------


def test_the_units_are_there():
    names = [unit.name for unit in UNITS]

    assert names == ["mcphub-beat.service", "mcphub-web.service", "mcphub-web.socket", "mcphub-worker@.service"]


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_unit_runs_a_command_that_there_is(path: Path) -> None:
    words = shlex.split(unit(path)["Service"]["ExecStart"])

    assert words[0].startswith("/srv/mcphub/venv/bin/")
    check_command([Path(words[0]).name, *words[1:]])


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_unit_may_do_little(path: Path) -> None:
    service = unit(path)["Service"]

    assert service["User"] == "mcphub"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["StateDirectory"] == "mcphub"
    assert service["CapabilityBoundingSet"] == ""
    assert service["KillSignal"] == "SIGTERM"


def test_the_web_unit_takes_its_socket_reloads_has_control_groups_and_the_time_to_drain():
    web = unit(DEPLOY / "systemd" / "mcphub-web.service")
    service = web["Service"]

    assert web["Unit"]["Requires"] == "mcphub-web.socket"
    assert "--fd 3 " in service["ExecStart"]
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert {"memory", "pids", "cpu"} == set(service["Delegate"].split())
    assert (service["DelegateSubgroup"], service["ProtectControlGroups"]) == (cgroups.OWN, "no")
    assert seconds(service["TimeoutStopSec"]) > settings.MCPHUB_DRAIN_TIMEOUT + supervisor.KILL_SECONDS


# --- The page -------------------------------------------------------------------------------------------------


def test_the_page_names_each_file():
    page = (ROOT / "docs" / "deployment.md").read_text()
    files = {path.name for path in DEPLOY.iterdir()} - {"healthcheck.py", "systemd"}

    assert {name for name in files if not name.startswith("nginx-upstream")} <= set(re.findall(r"[\w.-]+", page))
    assert "nginx-upstream*.conf" in page
    assert "systemd/" in page
