"""Startup checks: exclusive use of the data, reachable Redis and broker, matching tables."""

import os
from pathlib import Path
from typing import IO

from celery import current_app
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.files import locks
from django.core.management.base import CommandError
from django.db import connection
from kombu.exceptions import KombuError
from kombu.exceptions import OperationalError as BrokerError

from tools_app.core import schema_state
from tools_app.core.telemetry.scrubbing import scrubbed
from tools_app.doctor import configuration
from tools_app.server import startup_errors

CONNECT_SECONDS = 3


class DataInUse(Exception):
    """Another process uses the data; the message names it."""


def data_path() -> Path:
    """Return the path that an embedded hub needs exclusively: its database file, or a file of its data directory."""
    if configuration.is_on_sqlite():
        return Path(str(settings.DATABASES["default"]["NAME"]))
    return Path(settings.MCPHUB_DATA_DIR) / "hub"


def lock_data(path: Path) -> IO[str]:
    """Lock a file beside `path` until the returned file is closed or the process ends in any way.

    The queue and the notifications of an embedded hub are in the memory of its process: a second hub on the same data
    would not receive cancellations, answers and queued calls of the first.

    Raises DataInUse, and OSError if no file can be written.
    """
    # Not "w", which would truncate a file that names the process holding the lock.
    file = path.with_name(f"{path.name}.lock").open("a+")
    if not locks.lock(file, locks.LOCK_EX | locks.LOCK_NB):
        file.seek(0)
        process_id = file.read(100).strip()
        file.close()
        raise DataInUse(
            f"Another hub{f' (process {process_id})' if process_id.isdigit() else ''} already uses {path}. Stop it, or "
            "set another directory with MCPHUB_DATA_DIR. To run several processes of one hub, set REDIS_URL: "
            "see docs/running-scaled.md."
        )
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def check_servers() -> None:
    """Connect to each server in the settings. Raises CommandError for the first that does not answer."""
    redis_url, broker_url = settings.REDIS_URL, settings.CELERY_BROKER_URL
    if redis_url:
        # Imported here: the embedded hub does not need the extra.
        from redis import Redis, RedisError  # noqa: PLC0415

        timeouts = {"socket_timeout": CONNECT_SECONDS, "socket_connect_timeout": CONNECT_SECONDS}
        try:
            with Redis.from_url(redis_url, **timeouts) as server:
                server.ping()
        except (RedisError, OSError, ValueError) as problem:
            raise CommandError(_unavailable_message("Redis", problem, "REDIS_URL")) from problem
    if broker_url != redis_url and not broker_url.startswith("memory:"):
        try:
            with current_app.connection_for_write(connect_timeout=CONNECT_SECONDS) as broker_connection:
                broker_connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_SECONDS)
        except (KombuError, BrokerError, OSError) as problem:
            raise CommandError(_unavailable_message("The broker", problem, "CELERY_BROKER_URL")) from problem


def _unavailable_message(server_name: str, problem: Exception, variable: str) -> str:
    reason = scrubbed(str(problem).strip().rstrip(".") or type(problem).__name__)
    return f"{server_name} is unavailable ({reason}). Start it, or correct {variable}."


def check_worker() -> None:
    """Check the tables before a Celery worker starts.

    Raises ImproperlyConfigured for tables of another version, and DatabaseError if the database does not answer.
    """
    configuration.log_unknown_variables()
    try:
        connection.ensure_connection()
        if problem := schema_state.newer_migrations() or (
            startup_errors.NOT_MIGRATED if schema_state.is_behind() else None
        ):
            raise ImproperlyConfigured(problem)
    finally:
        connection.close()
