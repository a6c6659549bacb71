"""The schema of a database, without the order of columns, generated names and the partitions of months."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg

# The suffix of a generated name of an index or a check.
AUTOMATIC = re.compile(r"_[0-9a-f]{8}(_\w+)?$|_check\d*$")
# What PostgreSQL writes in another way when it has read its own text of a condition.
REWRITTEN = re.compile(r"::(?:character varying|text)(?:\[\])?|[()]")
# A partition of a month, which depends on when the database was created.
MONTH = re.compile(r"_\d{4}_\d{2}$")
POSTGRESQL = (
    (
        "SELECT table_name, '', concat_ws(' ', column_name, data_type, is_nullable, column_default,"
        " character_maximum_length, is_identity, collation_name)"
        " FROM information_schema.columns WHERE table_schema = 'public'"
    ),
    "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    (
        "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace"
    ),
    "SELECT inhrelid::regclass::text, '', inhparent::regclass::text FROM pg_inherits",
)


def of_postgresql(url: str) -> list[tuple[str, str, str]]:
    """Each column, index, constraint and partition: its table, its name and its definition."""
    with psycopg.connect(url) as connection:
        rows = [row for query in POSTGRESQL for row in connection.execute(query)]
        return sorted(_named(*row[:2], REWRITTEN.sub("", row[2])) for row in rows if not MONTH.search(row[0]))


def of_sqlite(path: Path) -> list[tuple[str, str, str]]:
    """The same for SQLite, where constraints are part of a table's definition."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT tbl_name, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    parts = [
        (table, "" if table == name else name, part)
        for table, name, sql in rows
        for part in (_parts(sql) if table == name else [sql])
    ]
    return sorted(_named(*row) for row in parts)


def _named(table: str, name: str, definition: str) -> tuple[str, str, str]:
    if not AUTOMATIC.search(name):
        return table, name, definition
    return table, "", definition.replace(name, "")


def _parts(sql: str) -> Iterator[str]:
    """Yield the columns and constraints between the outer brackets, and what is around them."""
    begin, end = sql.index("("), sql.rindex(")")
    yield sql[:begin] + sql[end:]
    depth, part = 0, ""
    for character in sql[begin + 1 : end]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += character
    yield part.strip()
