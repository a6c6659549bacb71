"""`manage.py up`: set up a new hub if necessary, and run it."""

import errno
import signal
import socket
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from tools_app.catalog import authoring
from tools_app.core import schema_state
from tools_app.core.process.threads import leave_stragglers_behind, start_thread
from tools_app.doctor.configuration import is_embedded
from tools_app.server import first_run, startup_checks, supervisor
from tools_app.server.base import SERVERS, UVICORN, NotListening, bind, inherited_socket, url_of
from tools_app.server.embedded import EmbeddedHub
from tools_app.server.worker import WorkerNotStarted
from tools_app.tenants.keys import WeakKey, check_strength

MAX_PORT = 65_535
WORKERS_APART = "Background tools run in separate workers. Start them with: celery -A mcphub worker --pool threads\n\n"
WORKER_WITHIN = (
    "Background tools run in this process: their running calls are lost if it is killed.\n"
    "To run them separately, use up --no-worker and celery -A mcphub worker --pool threads\n\n"
)


class Command(BaseCommand):
    help = "Migrate the database, create what a first run needs, and serve the hub until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s).")
        parser.add_argument(
            "--port", type=int, default=8000, help="Port to listen on; 0 picks a free one (default: %(default)s)."
        )
        parser.add_argument("--fd", type=int, help="Listen on this inherited socket instead, such as 3 from systemd.")
        parser.add_argument("--no-demo", action="store_true", help="Do not create the demo tenant, tools and key.")
        parser.add_argument(
            "--no-worker", action="store_true", help="Do not run background tools; use separate workers."
        )
        parser.add_argument("--server", choices=SERVERS, default=UVICORN, help="ASGI server (default: %(default)s).")
        parser.add_argument(
            "--processes",
            type=int,
            metavar="N",
            help="Serve with N web processes. SIGHUP replaces them one by one. Use separate workers.",
        )
        parser.add_argument("--supervised", type=int, help=SUPPRESS)

    def handle(self, *, supervised: int | None, processes: int | None, **options: Any) -> None:
        if options["no_worker"] and is_embedded():
            raise CommandError(
                "--no-worker requires CELERY_BROKER_URL or REDIS_URL: separate workers cannot see an in-memory queue."
            )
        if processes is not None and processes < 1:
            raise CommandError("--processes must be at least 1.")
        if processes is not None and not settings.REDIS_URL:
            raise CommandError("--processes requires REDIS_URL: the processes notify each other through Redis.")
        if not 0 <= options["port"] <= MAX_PORT:
            raise CommandError(f"--port {options['port']}: choose a port from 1 to {MAX_PORT}, or 0 for any free one.")
        if supervised is not None:
            self._serve_supervised(socket.socket(fileno=supervised), options)
        elif processes is not None:
            self._supervise(processes, options)
        else:
            self._serve(options)

    def _serve(self, options: dict[str, Any]) -> None:
        """Serve in this process."""
        self._lock_data()
        listener = _listener(options)
        prepared = self._prepare(demo=not options["no_demo"])
        hub = EmbeddedHub(listener, with_worker=not options["no_worker"], server=options["server"])
        _stop_on_signals(hub)
        self._run(hub, lambda: self._announce(hub.url, prepared, options, about_workers(options["no_worker"])))
        self._say("mcphub has stopped.")
        leave_stragglers_behind()

    def _serve_supervised(self, channel: socket.socket, options: dict[str, Any]) -> None:
        """Serve as one of several web processes, prepared by the supervisor."""
        hub = EmbeddedHub(inherited_socket(options["fd"]), with_worker=False, server=options["server"])
        _stop_on_signals(hub)

        def stop_when_alone() -> None:
            # The supervisor has died: no process would restart or stop this one.
            channel.recv(1)
            hub.stop()

        start_thread("supervised", stop_when_alone)
        self._run(hub, lambda: channel.sendall(supervisor.READY))
        leave_stragglers_behind()

    def _run(self, hub: EmbeddedHub, ready: Callable[[], None]) -> None:
        try:
            hub.serve_forever(ready)
        except WorkerNotStarted as problem:
            raise CommandError(str(problem)) from problem

    def _supervise(self, processes: int, options: dict[str, Any]) -> None:
        """Supervise several web processes."""
        listener = _listener(options)
        prepared = self._prepare(demo=not options["no_demo"])
        url = url_of(listener)
        try:
            ended_well = supervisor.Supervisor(listener, processes, self._say).run(
                lambda: self._announce(url, prepared, options, WORKERS_APART)
            )
        except supervisor.ProcessNotStarted as problem:
            raise CommandError(str(problem)) from problem
        if not ended_well:
            raise CommandError("A web process did not stop cleanly.")
        self._say("mcphub has stopped.")

    def _lock_data(self) -> None:
        """Prevent a second embedded hub on the same data. Processes that share a broker may share the data."""
        if not is_embedded():
            return
        try:
            # Held until the process ends.
            self._lock = startup_checks.lock_data(startup_checks.data_path())
        except startup_checks.DataInUse as problem:
            raise CommandError(str(problem)) from problem

    def _prepare(self, *, demo: bool) -> first_run.FirstRun:
        """Prepare the first run. Raises CommandError for an invalid setup, before anything is created."""
        startup_checks.check_servers()
        if too_new := schema_state.newer_migrations():
            raise CommandError(too_new)
        if demo and settings.MCPHUB_DEMO_API_KEY:
            try:
                check_strength(settings.MCPHUB_DEMO_API_KEY)
            except WeakKey as problem:
                raise CommandError(f"MCPHUB_DEMO_API_KEY: {problem}") from problem
        if schema_state.is_behind():
            self._say("Preparing the database. This takes a few seconds.")
        call_command("migrate", interactive=False, verbosity=0)
        prepared = first_run.prepare(demo=demo)
        authoring.sync_code()
        connections.close_all()
        return prepared

    def _announce(self, url: str, prepared: first_run.FirstRun, options: dict[str, Any], more: str = "") -> None:
        self._say(more + first_run.banner(url, prepared, demo=not options["no_demo"]))
        supervisor.notify_ready()

    def _say(self, text: str) -> None:
        # Flushed, because a log collector's pipe would delay it.
        self.stdout.write(text)
        self.stdout.flush()


def about_workers(no_worker: bool) -> str:
    """Return where background tools run, if there is a choice: with a broker, separate workers may run them too."""
    return "" if is_embedded() else WORKERS_APART if no_worker else WORKER_WITHIN


def _listener(options: dict[str, Any]) -> socket.socket:
    host, port = options["host"], options["port"]
    try:
        return bind(host, port) if options["fd"] is None else inherited_socket(options["fd"])
    except NotListening as problem:
        raise CommandError(f"--fd: {problem}") from problem
    except UnicodeError as problem:
        raise CommandError(f"--host {host!r} is not a host name or an IP address.") from problem
    except OSError as problem:
        raise CommandError(_not_listening(host, port, problem)) from problem


def _not_listening(host: str, port: int, problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use. Choose another one with --port."
    if problem.errno == errno.EACCES:
        return (
            f"Port {port} needs privileges that this user does not have. Choose a port above 1023 with --port and put "
            "a proxy in front, or hand over a socket with --fd: see docs/deployment.md."
        )
    return f"Cannot listen on {host}:{port}: {problem.strerror}. Use an address of this machine with --host."


def _stop_on_signals(hub: EmbeddedHub) -> None:
    def stop(_signal: int, _frame: object) -> None:
        # A second Ctrl-C ends the process immediately.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        supervisor.notify_stopping()
        hub.stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
