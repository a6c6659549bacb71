"""The command `doctor`: problems are reported with a fix, and a healthy hub has none."""

import http.server
import json
import math
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.cache.backends.redis import RedisCache
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder
from django.urls import clear_url_caches
from django.utils import timezone
from rest_framework import serializers, throttling, viewsets

from mcphub import urls as urlconf
from tests.audit.chained import forget, record
from tools_app.audit.checkpoints import signer, witness
from tools_app.calls.background import worker_commands
from tools_app.calls.background.tasks import run_call
from tools_app.catalog import authoring
from tools_app.core.notifications.layer import LocalChannelLayer
from tools_app.doctor import configuration, contents, database, endpoint, host, messaging, programs
from tools_app.doctor.checkup import checkup
from tools_app.doctor.endpoint import EndpointChecks
from tools_app.doctor.findings import Status, problem, run_checks
from tools_app.doctor.sign_in import SignInChecks
from tools_app.models import Call, CallPayload, Checkpoint, OAuthClient, RunningCall, Tool, Upstream
from tools_app.tenants import keys
from tools_app.toolkit import viewset_tools
from tools_app.upstreams.isolation import cgroups, launcher

LOCAL = ["localhost", "127.0.0.1"]
OK, WARNING, PROBLEM = Status.OK, Status.WARNING, Status.PROBLEM


def statuses(findings) -> list[tuple[str, Status]]:
    return [(finding.about, finding.status) for finding in findings]


def not_ok(findings):
    """The findings that are not OK; each has a fix."""
    complaints = [finding for finding in findings if finding.status is not OK]
    assert all(finding.fix for finding in complaints)
    return complaints


def finding_about(findings, about):
    (finding_,) = [finding for finding in findings if finding.about == about]
    return finding_


# --- The command ----------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_first_installation_has_no_problem(tmp_path, settings):
    settings.MCPHUB_DATA_DIR = tmp_path
    tmp_path.chmod(0o700)
    User.objects.create_superuser("root", password="x")

    findings = list(checkup())

    # Tests run SQLite without syncing to disk.
    assert [finding.about for finding in findings if finding.status is PROBLEM] == ["durability"]
    assert {"python", "secret key", "disk", "database", "migrations", "tools", "channel layer"} <= {
        finding.about for finding in findings
    }


def run(*arguments: str) -> tuple[int, str]:
    output = StringIO()
    try:
        call_command("doctor", *arguments, stdout=output, no_color=True)
    except SystemExit as end:
        return int(end.code or 0), output.getvalue()
    return 0, output.getvalue()


@pytest.fixture
def findings(monkeypatch):
    """The findings that the command reports."""
    reported = []
    monkeypatch.setattr("tools_app.management.commands.doctor.checkup", lambda *_urls: iter(reported))
    return reported


def test_each_finding_is_a_line_and_what_to_do_another(findings):
    findings += [configuration.ok("disk", "10 GiB free"), configuration.warning("debug", "on", "Unset it.")]

    code, output = run()

    assert code == 0
    assert output.splitlines() == [
        "ok       disk: 10 GiB free",
        "warning  debug: on",
        "         Unset it.",
        "0 problems, 1 warnings, 1 OK.",
    ]


def test_a_problem_is_the_exit_code(findings):
    findings.append(problem("disk", "full", "Make room."))

    assert run()[0] == 1
    assert run("--json")[0] == 1


def test_it_speaks_json(findings):
    findings.append(problem("disk", "full", "Make room."))

    assert json.loads(run("--json")[1]) == {
        "problems": 1,
        "warnings": 0,
        "findings": [{"status": "problem", "about": "disk", "message": "full", "fix": "Make room."}],
    }


@pytest.mark.parametrize(
    "arguments",
    [["--url", "https://hub.example/mcp"], ["--url", "hub.example", "--key", "x"], ["--oauth", "hub.example"]],
)
def test_an_address_needs_a_key_and_a_scheme(arguments, monkeypatch):
    monkeypatch.delenv("MCPHUB_API_KEY", raising=False)
    with pytest.raises(CommandError):
        run(*arguments)


def test_a_check_that_breaks_is_a_problem_without_a_password_and_the_next_one_is_made():
    def broken():
        raise OSError("no route to postgres://hub:hunter22@db/x")

    first, second = run_checks([("database", broken), ("disk", lambda: [configuration.ok("disk", "fine")])])

    assert (first.status, "hunter22" in first.message, "OSError" in first.message) == (PROBLEM, False, True)
    assert second.status is OK


def test_without_a_database_its_checks_are_left_out_and_the_others_made(monkeypatch):
    def refuse(_connection):
        raise OperationalError("no route")

    monkeypatch.setattr(BaseDatabaseWrapper, "ensure_connection", refuse)

    findings = list(checkup())

    assert finding_about(findings, "database").status is PROBLEM
    assert "channel layer" in {finding.about for finding in findings}
    assert not {"migrations", "tools"} & {finding.about for finding in findings}


# --- Software and settings ------------------------------------------------------------------------------------------


def test_an_old_python_is_a_problem(monkeypatch):
    monkeypatch.setattr(host.sys, "version_info", (3, 10, 1))

    assert statuses(host.python()) == [("python", PROBLEM)]


def test_packages_that_do_not_fit_or_are_missing_are_named(monkeypatch):
    monkeypatch.setattr(host, "requires", lambda _name: ["django>=99", "no-such-package", 'x; extra == "otel"'])

    messages = " ".join(finding.message for finding in not_ok(host.packages()))

    assert "django is" in messages
    assert ">=99" in messages
    assert "no-such-package is not installed" in messages


def test_an_extra_that_the_settings_ask_for_is_missed(settings, monkeypatch):
    settings.REDIS_URL = "redis://redis.example/0"
    monkeypatch.setitem(host.EXTRAS, "redis", "no-such-package")

    (finding,) = not_ok(host.extras())

    assert (finding.status, finding.fix) == (PROBLEM, "pip install -e '.[redis]'")


def test_a_generated_secret_is_a_problem_when_scaled(settings, monkeypatch):
    monkeypatch.delenv("MCPHUB_SECRET_KEY", raising=False)
    assert statuses(configuration.secrets()) == [("secret key", OK)]
    monkeypatch.setattr(configuration, "is_scaled", lambda: True)
    assert statuses(configuration.secrets()) == [("secret key", PROBLEM)]


def test_a_short_secret_is_a_warning_and_never_shown(settings, monkeypatch):
    monkeypatch.setenv("MCPHUB_SECRET_KEY", "short-one")
    settings.SECRET_KEY = "short-one"

    (finding,) = configuration.secrets()

    assert (finding.status, "short-one" in finding.message) == (WARNING, False)


@pytest.mark.parametrize(
    ("debug", "hosts", "status"),
    [(False, LOCAL, OK), (True, LOCAL, WARNING), (True, ["hub.example"], PROBLEM)],
)
def test_debugging_is_a_problem_where_others_reach_it(settings, debug, hosts, status):
    settings.DEBUG, settings.ALLOWED_HOSTS = debug, hosts

    assert statuses(configuration.debugging()) == [("debug", status)]


def test_a_star_among_the_hosts_is_a_problem(settings):
    settings.ALLOWED_HOSTS = ["*"]

    assert statuses(configuration.hosts()) == [("allowed hosts", PROBLEM)]


def test_a_scaled_hub_that_answers_only_here_is_a_warning(settings, monkeypatch):
    settings.ALLOWED_HOSTS = LOCAL
    assert statuses(configuration.hosts()) == [("allowed hosts", OK)]
    monkeypatch.setattr(configuration, "is_scaled", lambda: True)
    assert statuses(configuration.hosts()) == [("allowed hosts", WARNING)]


@pytest.mark.parametrize(
    ("hosts", "https", "proxies", "expected"),
    [
        (LOCAL, False, 0, [("https", OK)]),
        (["hub.example"], False, 0, [("https", WARNING), ("proxies", OK)]),
        (["hub.example"], True, 0, [("https", OK), ("proxies", WARNING)]),
        (["hub.example"], True, 1, [("https", OK), ("proxies", OK)]),
    ],
)
def test_https_and_proxies_are_held_against_each_other(settings, hosts, https, proxies, expected):
    settings.ALLOWED_HOSTS, settings.SECURE_SSL_REDIRECT, settings.MCPHUB_TRUSTED_PROXIES = hosts, https, proxies

    assert statuses(configuration.proxies()) == expected


@pytest.mark.parametrize(
    ("sqlite", "broker", "redis", "status", "word"),
    [
        (True, "memory://", "", OK, "compatible"),
        (True, "redis://x", "redis://x", WARNING, "SQLite"),
        (False, "memory://", "", WARNING, "in-memory"),
        (False, "amqp://x", "", WARNING, "no Redis"),
        (False, "redis://x", "redis://x", OK, "compatible"),
    ],
)
def test_stores_that_do_not_belong_together_are_named(settings, monkeypatch, sqlite, broker, redis, status, word):
    monkeypatch.setattr(configuration, "is_on_sqlite", lambda: sqlite)
    settings.CELERY_BROKER_URL, settings.REDIS_URL = broker, redis

    (finding,) = configuration.stores()

    assert finding.status is status
    assert word in finding.message


# --- The host -------------------------------------------------------------------------------------------------------


def test_a_secret_file_that_others_may_read_is_a_problem(settings, tmp_path):
    settings.MCPHUB_DATA_DIR = tmp_path
    tmp_path.chmod(0o755)
    secret = tmp_path / "secret.key"
    secret.write_text("s")
    secret.chmod(0o644)

    by_subject = {finding.about: finding for finding in host.data_directory()}

    assert by_subject["data directory"].status in (OK, WARNING)
    assert by_subject["secret.key"].status is PROBLEM
    assert by_subject["secret.key"].fix == f"chmod 600 {secret}"
    tmp_path.chmod(0o700)
    assert finding_about(host.data_directory(), "secret.key").status is OK


@pytest.mark.parametrize(("free", "status"), [(50 * 2**20, PROBLEM), (500 * 2**20, WARNING), (9 * 2**30, OK)])
def test_a_disk_that_fills_up_is_named(monkeypatch, free, status):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))

    assert statuses(host.disk()) == [("disk", status)]


@pytest.mark.parametrize(
    ("kind", "status"), [("nfs4", PROBLEM), ("cifs", PROBLEM), ("fuse.sshfs", PROBLEM), ("ext4", OK), ("xfs", OK)]
)
def test_a_network_file_system_under_sqlite_is_a_problem(monkeypatch, kind, status):
    monkeypatch.setattr(host, "is_on_sqlite", lambda: True)
    monkeypatch.setattr(host, "file_system_of", lambda _path: kind)

    assert statuses(host.file_system()) == [("file system", status)]


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path):
    mounts = tmp_path / "mountinfo"
    lines = ["/ rw - ext4 /dev/a rw", f"{tmp_path} rw - nfs4 host:/x rw", "/elsewhere rw - xfs b rw"]
    mounts.write_text("".join(f"{number} 0 8:1 / {line}\n" for number, line in enumerate(lines)))

    assert host.file_system_of(tmp_path / "data", mounts) == "nfs4"
    assert host.file_system_of(Path("/opt"), mounts) == "ext4"
    assert host.file_system_of(tmp_path, tmp_path / "nothing") == "unknown"


def test_few_open_files_are_a_warning(monkeypatch):
    monkeypatch.setattr(host, "MIN_DESCRIPTORS", 10**9)

    assert statuses(host.descriptors()) == [("open files", WARNING)]


# --- The database ---------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_migration_that_is_missing_is_a_problem():
    assert statuses(database.migrations()) == [("migrations", OK)]
    MigrationRecorder.Migration.objects.filter(app="tools_app").order_by("-name").first().delete()

    (finding,) = not_ok(database.migrations())

    assert finding.status is PROBLEM
    assert "tools_app.00" in finding.message


@pytest.mark.django_db
def test_a_database_of_newer_code_is_a_problem():
    MigrationRecorder.Migration.objects.create(app="tools_app", name="0999_from_the_future")

    (finding,) = not_ok(database.migrations())

    assert "0999_from_the_future" in finding.message


@pytest.mark.parametrize(
    ("journal", "synchronous", "check", "complaints"),
    [
        ("wal", 2, "ok", []),
        ("wal", 3, "ok", []),
        ("wal", 1, "ok", [("durability", PROBLEM)]),
        ("delete", 2, "ok", [("journal", PROBLEM)]),
        ("wal", 2, "page 7 is never used", [("integrity", PROBLEM)]),
    ],
)
def test_sqlite_that_is_not_durable_or_not_sound_is_a_problem(monkeypatch, journal, synchronous, check, complaints):
    # Not with the PRAGMAs themselves: the running hub has the same file open.
    responses = {"journal_mode": journal, "synchronous": synchronous, "quick_check(1)": check}
    monkeypatch.setattr(database, "_row", lambda query: (responses[query.removeprefix("PRAGMA ")],))

    assert statuses(not_ok(database.sqlite())) == complaints


@pytest.mark.django_db
def test_the_tests_own_sqlite_is_seen_as_it_is():
    # It does not sync to disk, which no hub may do.
    assert statuses(not_ok(database.sqlite())) == [("durability", PROBLEM)]


@pytest.mark.django_db
def test_slow_commits_are_a_warning(monkeypatch):
    assert database.SLOW_SECONDS > 0
    monkeypatch.setattr(database, "SLOW_SECONDS", 0.0)

    assert statuses(database.write_latency()) == [("writes", WARNING)]


# --- Workers and doorbells ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("registered", "code", "complaints"),
    [
        (None, "same", [("workers", PROBLEM)]),
        ({"w@a": ["their.task"]}, "same", [("worker tasks", PROBLEM)]),
        ({"w@a": [run_call.name]}, "other", [("worker code", WARNING)]),
        ({"w@a": [run_call.name]}, "same", []),
    ],
    ids=["none", "foreign", "old", "well"],
)
def test_workers_that_do_not_do_their_work_are_named(monkeypatch, registered, code, complaints):
    codes = [{name: worker_commands.code_digest() if code == "same" else "0ld"} for name in registered or {}]
    control = messaging.current_app.control
    monkeypatch.setattr(messaging, "is_embedded", lambda: False)
    monkeypatch.setattr(control, "inspect", lambda **_: SimpleNamespace(registered=lambda: registered))
    monkeypatch.setattr(control, "broadcast", lambda *_, **__: codes)

    assert statuses(not_ok(messaging.workers())) == complaints


def test_a_long_queue_is_a_warning(monkeypatch):
    monkeypatch.setattr(messaging, "is_embedded", lambda: False)
    monkeypatch.setattr(messaging.readiness, "broker", lambda: None)
    monkeypatch.setattr(messaging.hub_stats, "queue_length", lambda: 5000)

    (finding,) = not_ok(messaging.broker())

    assert (finding.about, "5000" in finding.message) == ("queue", True)


@pytest.mark.django_db
def test_a_call_that_nobody_begins_with_is_a_warning(tenant):
    assert statuses(messaging.queued_calls()) == [("queued calls", OK)]
    RunningCall.objects.create(
        tenant=tenant,
        status="queued",
        background=True,
        owner=uuid4(),
        timeout_seconds=1,
        arguments="{}",
        changed_at=timezone.now() - timedelta(minutes=5),
    )

    assert statuses(messaging.queued_calls()) == [("queued calls", WARNING)]


def test_a_channel_layer_that_carries_nothing_is_a_problem(monkeypatch):
    assert statuses(messaging.round_trip()) == [("channel layer", OK)]

    async def drop(*_values):
        """Drop the message."""

    monkeypatch.setattr(LocalChannelLayer, "group_send", drop)
    monkeypatch.setattr(messaging, "ROUND_TRIP_SECONDS", 0.3)
    monkeypatch.setattr(messaging, "RESEND_SECONDS", 0.05)

    assert statuses(messaging.round_trip()) == [("channel layer", PROBLEM)]


REDIS_INFO = {"redis_version": "7.2.1", "used_memory": 2**20, "maxmemory": 0, "rdb_last_bgsave_status": "ok"}


@pytest.mark.parametrize(
    ("settings", "complaints"),
    [
        ({}, []),
        ({"maxmemory_policy": "noeviction"}, []),
        ({"maxmemory_policy": "allkeys-lru"}, [("redis memory", PROBLEM)]),
        ({"maxmemory": 2**20, "maxmemory_policy": "noeviction"}, [("redis memory", WARNING)]),
        ({"rdb_last_bgsave_status": "err"}, [("redis persistence", WARNING)]),
        ({"rdb_last_bgsave_status": "err", "aof_enabled": 1}, []),
    ],
    ids=str,
)
def test_a_redis_that_forgets_is_named(settings, complaints):
    assert statuses(not_ok(messaging._memory("redis", REDIS_INFO | settings))) == complaints


# --- What the hub offers --------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_tool_without_code_is_a_problem_unless_it_is_disabled(tenant):
    tool = Tool.objects.create(tenant=tenant, name="gone", kind="python", config={"function": "gone"})

    (finding,) = not_ok(contents.tools())
    assert (finding.status, "acme/gone" in finding.message) == (PROBLEM, True)
    tool.enabled = False
    tool.save()
    assert not_ok(contents.tools()) == []


@pytest.mark.django_db
def test_a_tool_whose_schema_cannot_be_used_any_more_is_a_problem(tenant):
    schema = {"type": "object", "properties": {"x": {"pattern": "(?=.*x)z"}}}
    tool = Tool.objects.create(tenant=tenant, name="find", kind="http", input_schema=schema)

    (finding,) = not_ok(contents.tool_schemas())

    assert finding.status is PROBLEM
    assert "not offered to clients: acme/find: properties.x.pattern: '(?=.*x)z' uses look-around" in finding.message
    tool.input_schema = {"type": "object"}
    tool.save()
    assert not_ok(contents.tool_schemas()) == []


@pytest.mark.django_db
def test_a_secret_under_another_key_is_a_problem(tenant, settings):
    authoring.set_secret(tenant, "TOKEN", "hunter22")
    assert not_ok(contents.secrets()) == []
    settings.SECRET_KEY = "another" * 10

    (finding,) = not_ok(contents.secrets())
    assert (finding.status, "acme/TOKEN" in finding.message, "hunter22" in finding.message) == (PROBLEM, True, False)


@pytest.mark.parametrize(
    ("days", "complaints"),
    [(None, []), (-1, [("expired keys", WARNING)]), (3, [("expiring keys", WARNING)]), (90, [])],
)
@pytest.mark.django_db
def test_keys_that_expire_are_named(tenant, days, complaints):
    keys.issue(tenant, "laptop", expires_at=timezone.now() + timedelta(days=days) if days else None)

    findings = not_ok(contents.keys())

    assert statuses(findings) == complaints
    assert all("acme/laptop" in finding.message for finding in findings)


@pytest.mark.django_db
def test_a_hub_without_an_admin_is_a_warning():
    assert statuses(not_ok(contents.people())) == [("admins", WARNING)]


@pytest.mark.parametrize(("minutes", "status"), [(None, WARNING), (60, WARNING), (1, OK)])
@pytest.mark.django_db
def test_records_that_nobody_signed_for_are_a_warning(tenant, minutes, status):
    assert statuses(contents.checkpoints()) == [("checkpoints", OK)]
    now = timezone.now()
    Call.objects.create(tenant=tenant, finished_at=now, duration_us=1, outcome="ok", writer=uuid4())
    if minutes:
        fields = {"writer": uuid4(), "digest": b"", "signature": b"", "public_key": "", "sequence": 1}
        Checkpoint.objects.create(made_at=now - timedelta(minutes=minutes), **fields)

    assert statuses(contents.checkpoints()) == [("checkpoints", status)]


# --- From outside ---------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _any_speed(monkeypatch):
    """A test on a busy machine is not told that its hub is slow."""
    monkeypatch.setattr(endpoint, "SLOW_SECONDS", math.inf)


def check_endpoint(hub, key, path="/mcp"):
    return list(EndpointChecks(f"{hub.url}{path}", key).checks())


def test_a_hub_that_is_well_looks_well_from_outside(hub, key, offer):
    offer("count")

    findings = check_endpoint(hub, key)

    assert [finding.about for finding in findings] == ["endpoint", "session", "caller's address", "stream", "progress"]
    assert not_ok(findings) == []
    assert "5 events" in finding_about(findings, "progress").message


def test_the_demo_tool_is_not_needed(hub, key):
    assert not_ok(check_endpoint(hub, key)) == []


@pytest.mark.parametrize(
    ("key_", "path", "word"), [("mcphub_wrong", "/mcp", "expired or revoked"), (None, "/nothing", "ends in /mcp")]
)
def test_a_bad_key_and_a_bad_path_are_told_apart(hub, key, key_, path, word):
    (finding,) = check_endpoint(hub, key_ or key, path)

    assert finding.status is PROBLEM
    assert word in finding.fix
    assert key not in f"{finding}"


def test_an_address_where_nobody_is_is_a_problem(key):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    (finding,) = EndpointChecks(f"http://user:hunter22@127.0.0.1:{port}/mcp", key).checks()

    assert (finding.status, "is unreachable" in finding.message, "hunter22" in finding.message) == (
        PROBLEM,
        True,
        False,
    )


def test_a_hub_that_believes_anybody_about_addresses_is_a_problem(hub, key, settings):
    settings.MCPHUB_TRUSTED_PROXIES = 1

    finding = finding_about(check_endpoint(hub, key), "caller's address")

    assert finding.status is PROBLEM
    assert "MCPHUB_TRUSTED_PROXIES (now 1)" in finding.fix


def test_a_proxy_that_hides_the_caller_is_a_warning(hub, key, monkeypatch):
    monkeypatch.setattr("tools_app.doctor.endpoint._is_local_url", lambda _url: False)

    assert finding_about(check_endpoint(hub, key), "caller's address").status is WARNING


class BufferingProxy(http.server.BaseHTTPRequestHandler):
    """A proxy that buffers responses, and gives up on long ones."""

    protocol_version = "HTTP/1.1"
    target: str

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        try:
            response = httpx.request(
                self.command, f"{self.target}{self.path}", content=body, headers=headers, timeout=2, trust_env=False
            )
        except httpx.ReadTimeout:
            self.close_connection = True
            threading.Event().wait(1)
            return
        self.send_response(response.status_code)
        for name, value in response.headers.items():
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "server", "date"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.content)))
        self.end_headers()
        self.wfile.write(response.content)

    do_DELETE = do_GET = do_OPTIONS = do_POST  # noqa: N815 - the library's names

    def log_message(self, *_values: object) -> None:
        """Log no requests."""


@pytest.fixture
def buffering_proxy(hub) -> Iterator[SimpleNamespace]:
    """The hub behind a proxy that buffers streams."""
    handler = type("Handler", (BufferingProxy,), {"target": hub.url})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_a_proxy_that_holds_streams_back_is_a_problem(buffering_proxy, key, offer, monkeypatch):
    offer("count")
    monkeypatch.setattr("tools_app.doctor.endpoint.TIMEOUT_SECONDS", 1.5)

    findings = check_endpoint(buffering_proxy, key)

    assert statuses(not_ok(findings)) == [("stream", PROBLEM), ("progress", PROBLEM)]
    assert "proxy_buffering off" in finding_about(findings, "stream").fix


# --- Signing in, as clients do it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mcp", "/t/acme/mcp", "/t/acme/mcp/"])
def test_all_is_well_where_clients_can_sign_in(hub, path):
    findings = list(SignInChecks(f"{hub.url}{path}").checks())

    assert not not_ok(findings)
    assert [finding.about.removeprefix("sign-in: ") for finding in findings] == [
        "https", "challenge", "header", "firewall", "resource", "slash", "server", "openid", "unknown", "features",
        "browsers", "registration", "token", "page",
    ]  # fmt: skip
    assert not OAuthClient.objects.exists()


def test_a_proxy_that_hides_the_host_of_the_clients_is_a_problem(buffering_proxy):
    findings = not_ok(list(SignInChecks(f"{buffering_proxy.url}/mcp").checks()))

    assert [finding.about for finding in findings][:2] == ["sign-in: challenge", "sign-in: resource"]
    assert "Host" in findings[0].fix


@pytest.mark.parametrize("path", ["/mcp", "/t/acme/mcp"])
def test_a_tenant_that_is_open_to_everybody_is_well_too(hub, tenant, path):
    tenant.is_public = True
    tenant.save()

    assert not not_ok(list(SignInChecks(f"{hub.url}{path}").checks()))


class ModifyingProxy(BufferingProxy):
    """A proxy that keeps the host and drops, replaces or rejects what a test configures."""

    agents: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()

    def do_POST(self) -> None:
        agent = self.headers.get("User-Agent", "")
        if any(agent.startswith(one) for one in self.agents):
            self._respond(403, b"Forbidden")
            return
        if any(self.path.startswith(one) for one in self.pages):
            self._respond(200, b"<!doctype html><title>App</title>")
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in self.drops}
        response = httpx.request(
            self.command, f"{self.target}{self.path}", content=body, headers=headers, timeout=10, trust_env=False
        )
        self.send_response(response.status_code)
        for name in ("WWW-Authenticate", "Content-Type", "Access-Control-Allow-Origin"):
            if name in response.headers:
                self.send_header(name, response.headers[name])
        self.send_header("Content-Length", str(len(response.content)))
        self.end_headers()
        self.wfile.write(response.content)

    do_DELETE = do_GET = do_OPTIONS = do_POST  # noqa: N815 - the library's names

    def _respond(self, status: int, text: bytes) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.mark.parametrize(
    ("changes", "about", "message"),
    [
        ({}, [], ""),
        ({"drops": ("authorization",)}, ["sign-in: header"], "HTTP 401, as if there were none"),
        ({"agents": ("Claude-User", "node")}, ["sign-in: firewall"], "Claude-User (HTTP 403), node (HTTP 403)"),
        (
            {"pages": ("/.well-known/openid-configuration",)},
            ["sign-in: openid"],
            "is answered with HTTP 200 and other metadata",
        ),
        (
            {"pages": ("/.well-known/oauth-authorization-server/",)},
            ["sign-in: unknown"],
            "metadata that does not exist is answered with HTTP 200",
        ),
    ],
    ids=["nothing", "no Authorization", "firewall by name", "page for OpenID", "page for everything"],
)
def test_what_a_proxy_changes_on_the_way_is_named(hub, changes, about, message):
    handler = type("Handler", (ModifyingProxy,), {"target": hub.url, **changes})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        findings = not_ok(list(SignInChecks(f"http://127.0.0.1:{server.server_port}/mcp").checks()))
    finally:
        server.shutdown()
        server.server_close()

    assert [finding.about for finding in findings] == about
    assert not about or message in findings[0].message


def test_a_proxy_that_lets_only_the_endpoint_through_is_a_problem(hub, monkeypatch):
    monkeypatch.setattr(urlconf, "urlpatterns", [])
    clear_url_caches()
    try:
        findings = not_ok(list(SignInChecks(f"{hub.url}/mcp").checks()))
    finally:
        monkeypatch.undo()
        clear_url_caches()

    assert [finding.about for finding in findings] == ["sign-in: resource", "sign-in: slash", "sign-in: server"]
    assert "/.well-known/" in findings[0].fix


def test_an_address_that_clients_refuse_is_a_problem():
    findings = list(SignInChecks("http://hub.invalid/mcp").checks())

    assert statuses(findings) == [("sign-in: https", PROBLEM), ("sign-in", PROBLEM)]


# --- As people run it -----------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_an_audit_log_that_ends_before_what_was_witnessed_is_named(settings, tmp_path):
    settings.MCPHUB_DATA_DIR = tmp_path
    forget()
    assert statuses(contents.witness_file()) == [("witness file", OK)]
    record(2)
    signer.sign()
    assert statuses(contents.witness_file()) == [("witness file", OK)]
    witness.path().rename(tmp_path / "away")
    assert statuses(contents.witness_file()) == [("witness file", WARNING)]
    (tmp_path / "away").rename(witness.path())
    for model in (CallPayload, Call, Checkpoint):
        model.objects.all().delete()
    (run_checks,) = contents.witness_file()
    assert (run_checks.status, "2 records" in run_checks.message, "accept_restore" in run_checks.fix) == (
        PROBLEM,
        True,
        True,
    )
    forget()
    witness.path().mkdir()
    assert statuses(contents.witness_file()) == [("witness file", PROBLEM)]


def test_throttles_that_count_in_each_process_alone_are_a_warning_when_scaled(settings, monkeypatch, registries):
    class Often(throttling.UserRateThrottle):
        rate = "2/day"

    class View(viewsets.ViewSet):
        serializer_class = serializers.Serializer
        throttle_classes = (Often,)

        def list(self, request):
            """List."""

    assert not list(contents.throttles())
    viewset_tools(View, actions=["list"], name="throttled")
    assert statuses(contents.throttles()) == [("throttles", OK)]
    monkeypatch.setattr(configuration, "is_scaled", lambda: True)
    (finding,) = contents.throttles()
    assert (finding.status, "throttled_list" in finding.message) == (WARNING, True)
    Often.cache = RedisCache("redis://localhost", {})
    assert statuses(contents.throttles()) == [("throttles", OK)]


@pytest.mark.django_db
def test_how_programs_of_upstreams_are_isolated_is_told(tenant, monkeypatch, tmp_path):
    monkeypatch.setattr(launcher, "landlock_version", lambda: 7)
    monkeypatch.setattr(launcher, "has_seccomp", lambda: True)
    monkeypatch.setattr(cgroups, "delegated", lambda: tmp_path)
    (finding,) = programs.upstream_programs()
    assert finding.status is OK
    assert finding.message == f"Landlock (version 7), seccomp, resource limits, control groups below {tmp_path}"

    def none():
        raise cgroups.NotDelegated("systemd delegates none to this process (Delegate=)")

    monkeypatch.setattr(cgroups, "delegated", none)
    monkeypatch.setattr(launcher, "landlock_version", lambda: 0)
    (finding,) = programs.upstream_programs()
    assert finding.status is OK
    assert (
        "no Landlock, seccomp, resource limits, no control groups from here: systemd delegates none" in finding.message
    )
    Upstream.objects.create(tenant=tenant, name="time", transport="stdio", command=["time"])
    assert statuses(programs.upstream_programs()) == [("upstream programs", WARNING)]
    monkeypatch.setattr(launcher, "landlock_version", lambda: 7)
    monkeypatch.setattr(launcher, "has_seccomp", lambda: False)
    (finding,) = programs.upstream_programs()
    assert (finding.status, "no seccomp" in finding.message) == (WARNING, True)


@pytest.mark.django_db
def test_what_a_program_of_an_upstream_can_reach_is_told(tenant, monkeypatch, settings, tmp_path):
    assert not list(programs.upstream_reach())
    Upstream.objects.create(tenant=tenant, name="time", transport="stdio", command=["time"])
    with closing(socket.create_server(("127.0.0.1", 0))) as server, closing(socket.socket(socket.AF_UNIX)) as local:
        local.bind(str(tmp_path / "db"))
        local.listen()
        targets = [
            ("database", "tcp", server.getsockname()),
            ("socket", "unix", str(tmp_path / "db")),
            ("absent", "unix", str(tmp_path / "none")),
            ("loopback by UDP", "udp", ("127.0.0.1", 9)),
        ]
        monkeypatch.setattr(programs, "_targets", lambda: iter(targets))
        if launcher.has_seccomp():
            assert statuses(programs.upstream_reach()) == [("upstream reach", OK)]
        settings.MCPHUB_UPSTREAM_NETWORK = True
        (finding,) = programs.upstream_reach()
    assert (finding.status, finding.message) == (WARNING, "programs can reach database, socket, loopback by UDP")
    assert "MCPHUB_UPSTREAM_NETWORK" in finding.fix


def test_programs_try_to_reach_the_servers_of_the_hub_and_the_metadata_service(settings, monkeypatch):
    settings.REDIS_URL = "redis://:x@redis.example:6380/0"
    monkeypatch.setitem(connection.settings_dict, "HOST", "/run/pg")
    monkeypatch.setitem(connection.settings_dict, "PORT", "5433")
    targets = list(programs._targets())
    assert ("Redis of the hub", "tcp", ("redis.example", 6380)) in targets
    assert ("the database of the hub", "unix", "/run/pg/.s.PGSQL.5433") in targets
    assert ("the metadata service of the cloud", "tcp", ("169.254.169.254", 80)) in targets
