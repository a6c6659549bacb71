"""`manage.py mcp_stdio`: a tenant's tools for a client that starts its servers as processes."""

import asyncio
import os
import signal
import threading
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from tools_app.audit import recorder
from tools_app.auth.principal import Credential, Principal, authenticate, operator
from tools_app.management.worker import EmbeddedWorker, WorkerNotStarted
from tools_app.models import Tenant
from tools_app.transport import shutdown, stdio

KEY_VARIABLE = "MCPHUB_KEY"
STDIN, STDOUT, STDERR = 0, 1, 2
WORKER_STOP_SECONDS = 3.0
STRAGGLER_SECONDS = 2.0

Authenticate = Callable[[], Awaitable[Principal | None]]


class Command(BaseCommand):
    help = "Answer MCP messages on the standard streams, as one key or for a whole tenant, until the input ends."

    def add_arguments(self, parser: ArgumentParser) -> None:
        who = parser.add_mutually_exclusive_group()
        who.add_argument("--key", help=f"The API key to act as; {KEY_VARIABLE} keeps it out of the process list.")
        who.add_argument("--tenant", metavar="SLUG", help="Act for this tenant without a key, as its operator.")

    def handle(self, *, key: str | None, tenant: str | None, **options: Any) -> None:
        key = key or (None if tenant else settings.MCPHUB_KEY)
        source, sink = _only_for_messages()
        _check_database()
        caller = _caller(key, tenant)
        worker = EmbeddedWorker() if settings.CELERY_BROKER_URL.startswith("memory:") else None
        try:
            if worker is not None:
                worker.start()
            asyncio.run(_serve(caller, source, sink))
        except WorkerNotStarted as problem:
            raise CommandError(str(problem)) from problem
        finally:
            if worker is not None:
                worker.stop(WORKER_STOP_SECONDS)
            recorder.shutdown()
        _leave_stragglers_behind()


def _check_database() -> None:
    """Raise CommandError unless the hub's tables are there and up to date."""
    try:
        executor = MigrationExecutor(connection)
        behind = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as problem:
        raise CommandError(f"The database does not answer: {problem}") from problem
    if behind:
        raise CommandError("The database is not set up: run `manage.py migrate`, or `manage.py up` once.")


def _caller(key: str | None, slug: str | None) -> Authenticate:
    """Who calls. Asked again before each request, for a key may be revoked. Raises CommandError."""
    if key is not None:
        credential = Credential(key)
        if asyncio.run(authenticate(credential)) is None:
            raise CommandError("This key is unknown, revoked or expired.")
        return lambda: authenticate(credential)
    if slug is None:
        raise CommandError(f"Say who calls: --key, --tenant, or {KEY_VARIABLE} in the environment.")
    if not Tenant.objects.filter(slug=slug, is_active=True).exists():
        raise CommandError(f"There is no active tenant {slug!r}.")
    return lambda: operator(slug)


def _only_for_messages() -> tuple[int, int]:
    """The standard input and output as files of their own, for messages alone.

    Whatever else reads gets nothing, and whatever else prints, programs that a tool starts as well, does so on the
    standard error.
    """
    source, sink = os.dup(STDIN), os.dup(STDOUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    os.dup2(STDERR, STDOUT)
    return source, sink


async def _serve(caller: Authenticate, source: int, sink: int) -> None:
    """Answer until the input ends or somebody says stop; what runs by then is recorded as interrupted."""
    serving = asyncio.create_task(stdio.serve(caller, source, sink))
    stopped = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await shutdown.drain(settings.MCPHUB_DRAIN_SECONDS if stopped.is_set() else 0.0)
    stopping.cancel()
    serving.cancel()
    await asyncio.gather(serving, stopping, return_exceptions=True)


def _leave_stragglers_behind() -> None:
    """End the process although a thread still reads from a standard input that nobody closes."""
    watchdog = threading.Timer(STRAGGLER_SECONDS, os._exit, args=[0])
    watchdog.daemon = True
    watchdog.start()
