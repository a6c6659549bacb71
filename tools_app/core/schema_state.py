"""Comparison of the database's applied migrations with those of this code."""

from importlib.resources import files

from django.db import DatabaseError, connection
from django.db.migrations.recorder import MigrationRecorder

APP = "tools_app"


def unknown_migrations() -> list[str]:
    """Return the hub's applied migrations that this code lacks, oldest first. Raises DatabaseError."""
    return sorted(_applied_migrations() - _known_migrations())


def is_behind() -> bool:
    """Return whether this code has unapplied migrations. Raises DatabaseError."""
    return bool(_known_migrations() - _applied_migrations())


def _known_migrations() -> set[str]:
    names = (path.name for path in files(f"{APP}.migrations").iterdir())
    return {name.removesuffix(".py") for name in names if name[0].isdigit() and name.endswith(".py")}


def _applied_migrations() -> set[str]:
    return {name for app, name in MigrationRecorder(connection).applied_migrations() if app == APP}


def newer_migrations() -> str | None:
    """Return an error message if the database is newer than this code; None if not, or if it is unavailable."""
    try:
        names = unknown_migrations()
    except DatabaseError:
        return None
    if not names:
        return None
    return (
        f"The database was migrated by a newer version of the hub ({', '.join(names)}). "
        "Run that version, or restore a backup from before the upgrade."
    )
