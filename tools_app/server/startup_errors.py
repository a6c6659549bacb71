"""Explanations of startup failures for the command line: what is wrong, then what to do."""

import errno
import os
from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError

from tools_app.core import schema_state
from tools_app.core.telemetry.scrubbing import scrubbed

# The maximum number of exceptions examined in a chain.
MAX_CAUSES = 10
EXTRAS: Final = {"psycopg": "postgres", "redis": "redis", "channels_redis": "redis"}
# Operating system errors of a file or a disk that cannot be used.
FILE_ERRORS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOTDIR, errno.EISDIR}
)
# PostgreSQL error codes: undefined table and column, disk full, read-only transaction.
UNDEFINED, DISK_FULL, READ_ONLY = ("42P01", "42703"), ("53100",), ("25006",)

SQLITE_MESSAGES: Final[tuple[tuple[str, str], ...]] = (
    (
        "unable to open database file",
        "The database {name} cannot be opened. Its directory must exist and be writable for this user.",
    ),
    (
        "readonly database",
        "The database {name} is read-only. This user must be able to write to the file and its directory.",
    ),
    ("is full", "The disk with {name} is full. Free some space, then start again."),
    (
        "disk i/o error",
        ("I/O error on the disk with {name}: it is full, over quota or damaged. See the system log."),
    ),
    (
        "not a database",
        "{name} is not an SQLite database. Restore a backup, or move the file away to start with an empty database.",
    ),
    (
        "malformed",
        "The database {name} is damaged. Restore a backup, or move the file away to start with an empty database.",
    ),
    ("is locked", "The database {name} is locked by another process. Stop that process, then try again."),
)
NOT_MIGRATED = "The database schema does not match this version of the hub. Run python manage.py migrate."


def explain(error: BaseException) -> str | None:
    """Return an explanation of a failure whose cause is outside of the code; None for a possible bug.

    It contains no secret. Queries the migrations of the database if the failure concerns its tables.
    """
    current: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if current is None:
            return None
        for explanation in EXPLANATIONS:
            if (message := explanation(current)) is not None:
                return scrubbed(message)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return None


def _interrupted(error: BaseException) -> str | None:
    if isinstance(error, BrokenPipeError):
        return "The output was closed early."
    return "Interrupted." if isinstance(error, KeyboardInterrupt) else None


def _missing_module(error: BaseException) -> str | None:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    package = error.name.partition(".")[0]
    if package in EXTRAS:
        return f"{package} is not installed. Run pip install -e '.[{EXTRAS[package]}]'."
    app_packages = {app.strip().partition(".")[0] for app in os.environ.get("MCPHUB_APPS", "").split(",")}
    if package in app_packages:
        return f"MCPHUB_APPS: there is no module {error.name}. Check the spelling."
    hub_packages = {app.partition(".")[0] for app in settings.INSTALLED_APPS} if settings.configured else set()
    if package not in hub_packages:
        return None
    return f"{error.name} is required but not installed. Run pip install -e . again."


def _configuration(error: BaseException) -> str | None:
    if not isinstance(error, ImproperlyConfigured):
        return None
    if str(error).startswith("Error loading psycopg"):
        return (
            f"DATABASE_URL requires psycopg, which cannot be loaded ({error.__cause__}). "
            "Run pip install -e '.[postgres]'."
        )
    return str(error)


def _database(error: BaseException) -> str | None:
    if not isinstance(error, DatabaseError):
        return None
    name = str(settings.DATABASES["default"]["NAME"])
    if "sqlite" in str(settings.DATABASES["default"]["ENGINE"]):
        return _sqlite(str(error).lower(), name)
    return _postgresql(error, name)


def _sqlite(message: str, name: str) -> str | None:
    if "no such table" in message or "no such column" in message or "has no column" in message:
        return schema_state.newer_migrations() or NOT_MIGRATED
    return next((template.format(name=name) for part, template in SQLITE_MESSAGES if part in message), None)


def _postgresql(error: BaseException, name: str) -> str | None:
    state = getattr(error.__cause__, "sqlstate", None)
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    if state in UNDEFINED:
        return schema_state.newer_migrations() or NOT_MIGRATED
    if state in DISK_FULL:
        return f"The disk of the PostgreSQL server is full ({first_line}). Free some space, then start again."
    if state in READ_ONLY:
        return (
            f"The database {name!r} is read-only ({first_line}). Set DATABASE_URL to the primary server, with a user "
            "that can write."
        )
    if "FATAL: " in first_line:
        reason = first_line.partition("FATAL: ")[2].strip()
        is_missing = reason.startswith("database ") and reason.endswith("does not exist")
        remedy = "Create it, or correct DATABASE_URL." if is_missing else "Correct DATABASE_URL, or change the server."
        return f"PostgreSQL rejected the connection: {reason}. {remedy}"
    if state is None and type(error).__name__ in {"OperationalError", "ProgrammingError", "InterfaceError"}:
        # The server sent no error code: there is no connection.
        return f"The database is unavailable: {first_line}. Start PostgreSQL, or correct DATABASE_URL."
    return None


def _server(error: BaseException) -> str | None:
    """Redis or a broker; their drivers may not be installed."""
    if type(error).__module__.startswith("redis."):
        return f"Redis is unavailable: {error}. Start it, or correct REDIS_URL (CELERY_BROKER_URL for the broker)."
    if type(error).__module__.startswith(("kombu.", "amqp.")):
        return f"The broker is unavailable: {error}. Start it, or correct CELERY_BROKER_URL."
    return None


def _file(error: BaseException) -> str | None:
    if not isinstance(error, OSError) or error.errno not in FILE_ERRORS:
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        file_text = f" with {error.filename}" if error.filename else ""
        return f"The disk{file_text} is full. Free some space, then try again."
    if not error.filename:
        return None
    return f"{error.filename} cannot be used: {error.strerror}. This user must be able to read and write it."


EXPLANATIONS: Final[tuple[Callable[[BaseException], str | None], ...]] = (
    _interrupted,
    _missing_module,
    _configuration,
    _database,
    _server,
    _file,
)
