"""A PostgreSQL database for one measurement, dropped when its block ends."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql


class NoDatabase(Exception):
    """PostgreSQL does not answer."""


@contextmanager
def fresh(server_url: str) -> Iterator[str]:
    """The URL of an empty database on the server. Raises NoDatabase."""
    name = f"mcphub_benchmark_{uuid.uuid4().hex}"
    try:
        server = psycopg.connect(server_url, autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as problem:
        raise NoDatabase(f"PostgreSQL is not there (DATABASE_URL names another one): {problem}") from problem
    with server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
