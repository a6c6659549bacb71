"""`manage.py up`: from a fresh clone to a running hub, and again later with everything that is there."""

import errno
import os
import signal
import socket
import threading
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from tools_app.auth.keys import WeakKey
from tools_app.execution import authoring
from tools_app.management import first_run, notify, servers, supervisor
from tools_app.management.banner import banner
from tools_app.management.embedded import EmbeddedHub
from tools_app.management.listening import NotListening, bind, inherited, url_of
from tools_app.management.worker import WorkerNotStarted

STRAGGLER_SECONDS = 2.0
WORKERS_APART = "Background tools run in workers, which you start apart: celery -A mcphub worker --pool threads\n\n"


class Command(BaseCommand):
    help = "Prepare the database, make what a first run needs, and serve the hub until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s).")
        parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: %(default)s).")
        parser.add_argument("--fd", type=int, help="Listen on this inherited socket, such as systemd's 3, instead.")
        parser.add_argument("--no-demo", action="store_true", help="Make no demo tenant, tools and key.")
        parser.add_argument("--no-worker", action="store_true", help="Run background tools in workers elsewhere.")
        parser.add_argument(
            "--server", choices=servers.SERVERS, help="Default: uvicorn where `.[fast]` is installed, else daphne."
        )
        parser.add_argument(
            "--processes",
            type=int,
            metavar="N",
            help="Serve by N web processes, which SIGHUP replaces one after the other. Workers run elsewhere.",
        )
        parser.add_argument("--supervised", type=int, help=SUPPRESS)

    def handle(self, *, supervised: int | None, processes: int | None, **options: Any) -> None:
        _check(no_worker=options["no_worker"], processes=processes, server=options["server"])
        if supervised is not None:
            self._serve_supervised(socket.socket(fileno=supervised), options)
        elif processes is not None:
            self._supervise(processes, options)
        else:
            self._serve(options)

    def _serve(self, options: dict[str, Any]) -> None:
        """All in this process."""
        listener = _listener(options)
        made = _prepare(demo=not options["no_demo"])
        hub = EmbeddedHub(listener, with_worker=not options["no_worker"], server=options["server"])
        _stop_on_signals(hub)
        self._run(hub, lambda: self._announce(hub.url, made, options))
        self._say("mcphub has stopped.")
        _leave_stragglers_behind()

    def _serve_supervised(self, channel: socket.socket, options: dict[str, Any]) -> None:
        """One of several web processes: the supervisor has prepared everything."""
        hub = EmbeddedHub(inherited(options["fd"]), with_worker=False, server=options["server"])
        _stop_on_signals(hub)
        threading.Thread(target=_stop_when_alone, args=[hub, channel], name="supervised", daemon=True).start()
        self._run(hub, lambda: channel.sendall(supervisor.READY))
        _leave_stragglers_behind()

    def _run(self, hub: EmbeddedHub, ready: Callable[[], None]) -> None:
        try:
            hub.serve_forever(ready)
        except WorkerNotStarted as problem:
            raise CommandError(str(problem)) from problem

    def _supervise(self, processes: int, options: dict[str, Any]) -> None:
        """Others do the work."""
        listener = _listener(options)
        made = _prepare(demo=not options["no_demo"])
        url = url_of(listener)
        try:
            ended_well = supervisor.Supervisor(listener, processes, self._say).run(
                lambda: self._announce(url, made, options, WORKERS_APART)
            )
        except supervisor.NotStarted as problem:
            raise CommandError(str(problem)) from problem
        if not ended_well:
            raise CommandError("A web process did not end properly.")
        self._say("mcphub has stopped.")

    def _announce(self, url: str, made: first_run.FirstRun, options: dict[str, Any], more: str = "") -> None:
        self._say(more + banner(url, made, demo=not options["no_demo"]))
        notify.ready()

    def _say(self, text: str) -> None:
        # Flushed, because a log collector's pipe would hold it back.
        self.stdout.write(text)
        self.stdout.flush()


def _check(*, no_worker: bool, processes: int | None, server: str | None) -> None:
    """Raise CommandError for what cannot work."""
    if absent := servers.missing(server or servers.DAPHNE):
        raise CommandError(f"--server {server} needs {', '.join(absent)}: pip install -e '.[fast]' brings all of it.")
    if no_worker and settings.CELERY_BROKER_URL.startswith("memory:"):
        raise CommandError("--no-worker needs CELERY_BROKER_URL or REDIS_URL: no other process sees this one's queue.")
    if processes is None:
        return
    if processes < 1:
        raise CommandError("--processes needs at least 1.")
    if not settings.REDIS_URL:
        raise CommandError("--processes needs REDIS_URL: without it no process hears of what another one does.")


def _listener(options: dict[str, Any]) -> socket.socket:
    host, port = options["host"], options["port"]
    try:
        return bind(host, port) if options["fd"] is None else inherited(options["fd"])
    except NotListening as problem:
        raise CommandError(f"--fd: {problem}") from problem
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise CommandError(f"Port {port} on {host} is in use. Choose another one with --port.") from problem
        raise CommandError(f"Cannot listen on {host}:{port}: {problem.strerror}.") from problem


def _prepare(*, demo: bool) -> first_run.FirstRun:
    call_command("migrate", interactive=False, verbosity=0)
    try:
        made = first_run.prepare(demo=demo)
    except WeakKey as problem:
        raise CommandError(f"MCPHUB_DEMO_API_KEY: {problem}") from problem
    authoring.sync_code()
    connections.close_all()
    return made


def _stop_on_signals(hub: EmbeddedHub) -> None:
    def stop(_signal: int, _frame: object) -> None:
        # A second Ctrl-C is for somebody who does not want to wait.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        notify.stopping()
        hub.stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def _stop_when_alone(hub: EmbeddedHub, channel: socket.socket) -> None:
    """Stop when the supervisor has died: nobody would restart or stop this process."""
    channel.recv(1)
    hub.stop()


def _leave_stragglers_behind() -> None:
    """End the process although a tool ignores its cancellation: Python would wait for its thread for ever.

    By now each call is recorded, and nothing is left to write.
    """
    watchdog = threading.Timer(STRAGGLER_SECONDS, os._exit, args=[0])
    watchdog.daemon = True
    watchdog.start()
