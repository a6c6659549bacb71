"""`manage.py mcp_stdio`: serve a tenant's tools to a client that starts servers as subprocesses."""

import asyncio
import os
import signal
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from tools_app.core.process.threads import leave_stragglers_behind
from tools_app.identity.principal import Credential, Principal, authenticate, operator_principal
from tools_app.models import Tenant
from tools_app.runtime import process
from tools_app.server.worker import EmbeddedWorker, WorkerNotStarted
from tools_app.transport import shutdown, stdio

KEY_VARIABLE = "MCPHUB_API_KEY"
STDIN, STDOUT, STDERR = 0, 1, 2
WORKER_STOP_SECONDS = 3.0

Authenticate = Callable[[], Awaitable[Principal | None]]


class Command(BaseCommand):
    help = "Serve MCP on stdin and stdout, with an API key or for a whole tenant, until stdin is closed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        who = parser.add_mutually_exclusive_group()
        who.add_argument("--key", help=f"API key to use. {KEY_VARIABLE} keeps it out of the process list.")
        who.add_argument("--tenant", metavar="SLUG", help="Serve this tenant without an API key.")

    def handle(self, *, key: str | None, tenant: str | None, **options: Any) -> None:
        key = key or (None if tenant else settings.MCPHUB_API_KEY)
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
            process.stop_recording()
        leave_stragglers_behind()


def _check_database() -> None:
    """Raise CommandError unless the hub's tables exist and are up to date."""
    try:
        executor = MigrationExecutor(connection)
        behind = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as problem:
        raise CommandError(f"The database is unavailable: {problem}") from problem
    if behind:
        raise CommandError("The database is not migrated. Run `manage.py migrate`, or `manage.py up` once.")


def _caller(key: str | None, slug: str | None) -> Authenticate:
    """Return the caller. Checked before each request, because a key may be revoked. Raises CommandError."""
    if key is not None:
        credential = Credential(key)
        if asyncio.run(authenticate(credential)) is None:
            raise CommandError("The API key is unknown, revoked or expired.")
        return lambda: authenticate(credential)
    if slug is None:
        raise CommandError(f"--key, --tenant or the environment variable {KEY_VARIABLE} is required.")
    if not Tenant.objects.filter(slug=slug, is_active=True).exists():
        raise CommandError(f"Unknown or disabled tenant: {slug!r}.")
    return lambda: operator_principal(slug)


def _only_for_messages() -> tuple[int, int]:
    """Reserve the standard input and output for messages.

    All other code reads an empty input, and its output, including that of programs started by tools, goes to the
    standard error.
    """
    source, sink = os.dup(STDIN), os.dup(STDOUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, STDIN)
    os.close(nothing)
    os.dup2(STDERR, STDOUT)
    return source, sink


async def _serve(caller: Authenticate, source: int, sink: int) -> None:
    """Respond until the input ends or a stop signal arrives; calls that still run are recorded as interrupted."""
    serving = asyncio.create_task(stdio.serve(caller, source, sink))
    stopped = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await shutdown.drain(settings.MCPHUB_DRAIN_TIMEOUT if stopped.is_set() else 0.0)
    stopping.cancel()
    serving.cancel()
    await asyncio.gather(serving, stopping, return_exceptions=True)
