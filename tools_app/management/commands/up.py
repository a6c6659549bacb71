"""`manage.py up`: from a fresh clone to a running hub, and again later with everything that is there."""

import errno
import os
import signal
import socket
import threading
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from tools_app.auth.keys import WeakKey
from tools_app.execution import authoring
from tools_app.management import first_run
from tools_app.management.banner import banner
from tools_app.management.embedded import EmbeddedHub, bind
from tools_app.management.worker import WorkerNotStarted

STRAGGLER_SECONDS = 2.0


class Command(BaseCommand):
    help = "Prepare the database, make what a first run needs, and serve the hub until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s).")
        parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: %(default)s).")
        parser.add_argument("--no-demo", action="store_true", help="Make no demo tenant, tools and key.")
        parser.add_argument("--no-worker", action="store_true", help="Run background tools in workers elsewhere.")

    def handle(self, *, host: str, port: int, no_demo: bool, no_worker: bool, **options: Any) -> None:
        if no_worker and settings.CELERY_BROKER_URL.startswith("memory:"):
            raise CommandError(
                "--no-worker needs CELERY_BROKER_URL or REDIS_URL: no other process sees this one's queue."
            )
        listener = _bind(host, port)
        made = _prepare(demo=not no_demo)
        hub = EmbeddedHub(listener, with_worker=not no_worker)
        _stop_on_signals(hub)
        try:
            hub.serve_forever(lambda: self._say(banner(hub.url, made, demo=not no_demo)))
        except WorkerNotStarted as problem:
            raise CommandError(str(problem)) from problem
        self._say("mcphub has stopped.")
        _leave_stragglers_behind()

    def _say(self, text: str) -> None:
        # Flushed, because a log collector's pipe would hold it back.
        self.stdout.write(text)
        self.stdout.flush()


def _bind(host: str, port: int) -> socket.socket:
    try:
        return bind(host, port)
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
        hub.stop()

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def _leave_stragglers_behind() -> None:
    """End the process although a tool ignores its cancellation: Python would wait for its thread for ever.

    By now each call is recorded, and nothing is left to write.
    """
    watchdog = threading.Timer(STRAGGLER_SECONDS, os._exit, args=[0])
    watchdog.daemon = True
    watchdog.start()
