"""Typed reading of environment variables. A bad value stops the start with the variable's name, whatever its type."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off", ""}
MAIL_SERVERS = {"smtp", "smtp+tls", "smtp+ssl"}
DATABASES = {"postgres", "postgresql", "sqlite"}
SHORTEST_KEY = 32
PUBLIC_KEY = re.compile("[0-9a-f]{64}")


def text(name: str, default: str = "") -> str:
    """The value of `name`; an empty one counts as unset."""
    return os.environ.get(name) or default


def items(name: str, default: list[str] | None = None) -> list[str]:
    """A comma-separated list, blanks around its entries removed."""
    return [item.strip() for item in text(name).split(",") if item.strip()] or list(default or [])


def key_text(name: str) -> str:
    """A secret that nobody can guess, or an empty text if there is none."""
    value = text(name)
    if value and len(value) < SHORTEST_KEY:
        raise ImproperlyConfigured(f"{name}: write at least {SHORTEST_KEY} characters that nobody can guess.")
    return value


def public_keys(name: str) -> list[str]:
    """A comma-separated list of Ed25519 public keys in hex."""
    keys = [key.lower() for key in items(name)]
    if not all(PUBLIC_KEY.fullmatch(key) for key in keys):
        # Not repeated: it may be a secret that was put here by mistake.
        raise ImproperlyConfigured(f"{name}: a public key has 64 hexadecimal digits.")
    return keys


def flag(name: str) -> bool:
    """A switch that is off unless set: 1, true, yes, on or 0, false, no, off."""
    value = text(name).lower()
    if value not in TRUE | FALSE:
        raise ImproperlyConfigured(f"{name}={value!r}: write 1 or 0.")
    return value in TRUE


def choice(name: str, choices: list[str], default: str) -> str:
    """One of `choices`, which are in upper case; the value need not be."""
    value = text(name, default)
    if value.upper() not in choices:
        raise ImproperlyConfigured(f"{name}={value!r}: write one of {', '.join(choices)}.")
    return value.upper()


def whole(name: str, default: int, least: int = 1) -> int:
    """A whole number of at least `least`."""
    value = text(name, str(default))
    try:
        number = int(value)
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name}={value!r}: write a whole number.") from problem
    if number < least:
        raise ImproperlyConfigured(f"{name}={value!r}: write at least {least}.")
    return number


def email(name: str) -> dict[str, Any]:
    """Django's settings of the mail server at an address such as `smtp+tls://user:password@host:587`; none unset."""
    url = text(name)
    if not url:
        return {}
    if urlsplit(url).scheme not in MAIL_SERVERS:
        # The value may hold a password, so it is not repeated.
        raise ImproperlyConfigured(f"{name}: write smtp+tls://user:password@host:587 or smtp+ssl://user:password@host.")
    try:
        return dict(environ.Env.email_url_config(url))
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name}: {problem}.") from problem


def seconds(name: str, default: float) -> float:
    """A duration above zero, in seconds."""
    value = text(name, str(default))
    try:
        duration = float(value)
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name}={value!r}: write a number of seconds.") from problem
    if not 0 < duration < float("inf"):
        raise ImproperlyConfigured(f"{name}={value!r}: write a number of seconds above zero.")
    return duration


def database(name: str, default: Path) -> dict[str, Any]:
    """The database at an address such as `postgres://user:password@host:5432/name`, or a SQLite file at `default`."""
    url = text(name)
    if not url:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(default)}
    if urlsplit(url).scheme not in DATABASES:
        # The value may hold a password, so it is not repeated.
        raise ImproperlyConfigured(f"{name}: write postgres://user:password@host:5432/name or sqlite:////path.")
    try:
        return dict(environ.Env.db_url_config(url))
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name}: {problem}.") from problem
