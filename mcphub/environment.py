"""Typed reading of environment variables. An invalid value stops the start with an error that names the variable."""

import os
import re
import shlex
from difflib import get_close_matches
from email.utils import parseaddr
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from kombu.transport import TRANSPORT_ALIASES

TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off", ""}
MAIL_SERVERS = {"smtp", "smtp+tls", "smtp+ssl"}
DATABASES = {"postgres", "postgresql", "sqlite"}
WITNESSES = {"http", "https", "syslog", "syslog+tls"}
REDIS = {"redis", "rediss", "unix"}
# Parameter names that differ between the Redis client and Celery's transport for a UNIX socket.
SOCKET_PARAMETERS = {"db": "virtual_host"}
PREFIX = "MCPHUB_"
MIN_KEY = 32
PUBLIC_KEY = re.compile("[0-9a-f]{64}")
# Larger numbers are typing errors, and some would overflow in additions.
MAX_WHOLE = 2**31 - 1
MAX_SECONDS = 10 * 365 * 24 * 3600.0
HOST = re.compile(r"\*|\.?[\w-]+(\.[\w-]+)*\.?|\[[0-9a-fA-F:.]+\]")
# Similarity (0 to 1) from which a variable name counts as a misspelling of another one.
SIMILAR = 0.7
# Kubernetes sets these for a service named mcphub.
OF_KUBERNETES = re.compile(r"MCPHUB(_\w+)?_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_(ADDR|PORT|PROTO))?)?)")

_read: set[str] = set()


def text(name: str, default: str = "") -> str:
    """Return the value of `name`; an empty value counts as unset."""
    _read.add(name)
    return os.environ.get(name) or default


def unknown() -> dict[str, str]:
    """Return variables that begin with MCPHUB_ and were never read, each with the most similar known name, or ""."""
    names = (name for name in os.environ if name.startswith(PREFIX) and name not in _read)
    return {name: _nearest(name) for name in sorted(names) if not OF_KUBERNETES.fullmatch(name)}


def _nearest(name: str) -> str:
    # Compare without the common prefix, which would make all names similar.
    known = {read.removeprefix(PREFIX): read for read in sorted(_read)}
    nearest = get_close_matches(name.removeprefix(PREFIX), known, n=1, cutoff=SIMILAR)
    return f"Did you mean {known[nearest[0]]}?" if nearest else ""


def directory(name: str, default: Path) -> Path:
    """Return a directory; a missing one is created, accessible to this user only."""
    path = Path(text(name, str(default))).resolve()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise ImproperlyConfigured(
            f"{name}={str(path)!r}: the directory cannot be made ({problem.strerror}). "
            "Name a directory in which this user may write."
        ) from problem
    return path


def needs(name: str, extra: str, *modules: str) -> None:
    """Raise ImproperlyConfigured if the value of `name` needs modules that are not installed."""
    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        raise ImproperlyConfigured(
            f"{name} needs {' and '.join(absent)}, which {verb} not installed. Run pip install -e '.[{extra}]'."
        )


def items(name: str, default: list[str] | None = None) -> list[str]:
    """Return a comma-separated list, with blanks around its entries removed."""
    return [item.strip() for item in text(name).split(",") if item.strip()] or list(default or [])


def command_lines(name: str) -> list[str]:
    """Return a comma-separated list of command lines, quoted as for a shell."""
    entries = items(name)
    for entry in entries:
        try:
            words = shlex.split(entry)
        except ValueError as problem:
            raise ImproperlyConfigured(f"{name}: {entry!r} is not a command line: {problem}.") from problem
        if not words or words[0] == "*":
            raise ImproperlyConfigured(f"{name}: {entry!r} must begin with a program.")
    return entries


def full_paths(name: str) -> list[str]:
    """Return a comma-separated list of full paths."""
    entries = items(name)
    for entry in entries:
        if not Path(entry).is_absolute():
            raise ImproperlyConfigured(f"{name}: {entry!r} is not a full path: it must begin with a slash.")
    return entries


def key_text(name: str) -> str:
    """Return a secret that is hard to guess, or an empty string if unset."""
    value = text(name)
    if value and len(value) < MIN_KEY:
        raise ImproperlyConfigured(f"{name}: write at least {MIN_KEY} characters, generated at random.")
    return value


def public_keys(name: str) -> list[str]:
    """Return a comma-separated list of Ed25519 public keys in hex."""
    keys = [key.lower() for key in items(name)]
    if not all(PUBLIC_KEY.fullmatch(key) for key in keys):
        # Do not repeat the value: it may be a secret set here by mistake.
        raise ImproperlyConfigured(f"{name}: a public key has 64 hexadecimal digits.")
    return keys


def flag(name: str) -> bool:
    """Return a boolean that is false unless set: 1, true, yes, on or 0, false, no, off."""
    value = text(name).lower()
    if value not in TRUE | FALSE:
        raise ImproperlyConfigured(f"{name}={value!r}: write 1 or 0.")
    return value in TRUE


def choice(name: str, choices: list[str], default: str) -> str:
    """Return one of `choices`, which are in upper case; the value is case-insensitive."""
    value = text(name, default)
    if value.upper() not in choices:
        raise ImproperlyConfigured(f"{name}={value!r}: write one of {', '.join(choices)}.")
    return value.upper()


def whole(name: str, default: int, least: int = 1, most: int = MAX_WHOLE) -> int:
    """Return an integer from `least` to `most`."""
    value = text(name, str(default))
    try:
        number = int(value)
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name}={value!r}: write a whole number.") from problem
    if number < least:
        raise ImproperlyConfigured(f"{name}={value!r}: write at least {least}.")
    if number > most:
        raise ImproperlyConfigured(f"{name}={value!r}: write at most {most}.")
    return number


def hosts(name: str, default: list[str]) -> list[str]:
    """Return a comma-separated list of host names, as in ALLOWED_HOSTS."""
    names = items(name, default)
    for host in names:
        if not HOST.fullmatch(host):
            raise ImproperlyConfigured(
                f"{name}: {host!r} is not a host name. Write names such as hub.example, without scheme, port or path."
            )
    return names


def origins(name: str) -> list[str]:
    """Return a comma-separated list of web origins (RFC 6454)."""
    entries = items(name)
    for origin in entries:
        parts = _parts(name, origin)
        if not (parts.scheme and parts.hostname) or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
            raise ImproperlyConfigured(
                f"{name}: {origin!r} is not an origin. Write scheme, host and port only, such as https://app.example."
            )
    return entries


def origin(name: str) -> str:
    """Return one web origin, without a slash at its end; "" if unset."""
    entries = origins(name)
    if len(entries) > 1:
        raise ImproperlyConfigured(f"{name}: write one origin, such as https://hub.example.")
    return entries[0] if entries else ""


def apps(name: str) -> list[str]:
    """Return a comma-separated list of importable Django apps."""
    entries = items(name)
    for entry in entries:
        package = entry.partition(".")[0]
        if not package.isidentifier() or find_spec(package) is None:
            raise ImproperlyConfigured(
                f"{name}: there is no package {package!r} here. Check the spelling, or install it in this environment."
            )
    return entries


def sender(name: str, default: str) -> str:
    """Return an e-mail address, with or without a display name."""
    value = text(name, default)
    if "@" not in parseaddr(value)[1] or not value.isprintable():
        raise ImproperlyConfigured(f"{name}={value!r}: write an e-mail address, such as hub@example.com.")
    return value


def redis(name: str) -> str:
    """Return the URL of a Redis server, or an empty string if unset."""
    url = text(name)
    # Do not repeat values: they may hold a password.
    if url and _parts(name, url).scheme not in REDIS:
        raise ImproperlyConfigured(f"{name}: write redis://host:6379/0, rediss:// for TLS, or unix:///path.")
    if url:
        needs(name, "redis", "redis", "channels_redis")
    return url


def broker(name: str, default: str) -> str:
    """Return the URL of Celery's broker."""
    url = text(name, default)
    if url.startswith("unix:"):
        # Celery's transport uses another scheme for what the Redis client calls `unix`.
        parts = _parts(name, url)
        query = [(SOCKET_PARAMETERS.get(key, key), value) for key, value in parse_qsl(parts.query)]
        url = f"redis+socket://{parts.netloc}{parts.path}" + (f"?{urlencode(query)}" if query else "")
    scheme = _parts(name, url).scheme.partition("+")[0]
    if scheme not in TRANSPORT_ALIASES:
        raise ImproperlyConfigured(f"{name}: write amqp://user:password@host:5672// or redis://host:6379/0.")
    if scheme in REDIS:
        needs(name, "redis", "redis")
    return url


def _parts(name: str, url: str) -> SplitResult:
    """Split a URL and check that its port is a number."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        # Its message is not repeated: what follows a colon may be a part of the password.
        raise ImproperlyConfigured(
            f"{name}: the host or the port is not valid. Percent-encode the special characters of a password."
        ) from None
    return parts


def witness(name: str) -> str:
    """Return the URL that receives a copy of each checkpoint: http, https or a syslog server."""
    value = text(name)
    parts = _parts(name, value)
    if value and (parts.scheme not in WITNESSES or not parts.hostname or "@" in parts.netloc):
        # The value may hold a password, so it is not repeated.
        raise ImproperlyConfigured(
            f"{name}: write https://host/path, or syslog+tls://host:6514 for a syslog server"
            " (syslog://host:514 without TLS)."
        )
    return value


def email(name: str) -> dict[str, Any]:
    """Return Django's mail settings for a URL such as `smtp+tls://user:password@host:587`; none if unset."""
    url = text(name)
    if not url:
        return {}
    # The value may hold a password, so it is not repeated.
    if _parts(name, url).scheme not in MAIL_SERVERS:
        raise ImproperlyConfigured(f"{name}: write smtp+tls://user:password@host:587 or smtp+ssl://user:password@host.")
    return dict(environ.Env.email_url_config(url))


def seconds(name: str, default: float) -> float:
    """Return a positive duration in seconds."""
    value = text(name, str(default))
    try:
        duration = float(value)
    except ValueError as problem:
        raise ImproperlyConfigured(f"{name}={value!r}: write a number of seconds.") from problem
    if not 0 < duration < float("inf"):
        raise ImproperlyConfigured(f"{name}={value!r}: write a number of seconds above zero.")
    if duration > MAX_SECONDS:
        raise ImproperlyConfigured(f"{name}={value!r}: write at most {MAX_SECONDS:.0f} seconds.")
    return duration


def database(name: str, default: Path) -> dict[str, Any]:
    """Return the database at a URL such as `postgres://user:password@host:5432/name`, or a SQLite file at `default`."""
    url = text(name)
    if not url:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(default)}
    # The value may hold a password, so it is not repeated.
    if _parts(name, url).scheme not in DATABASES:
        raise ImproperlyConfigured(f"{name}: write postgres://user:password@host:5432/name or sqlite:////path.")
    config = dict(environ.Env.db_url_config(url))
    if config["NAME"] in ("", ":memory:"):
        # Each connection of a process would open a separate in-memory database.
        raise ImproperlyConfigured(
            f"{name} names no database: write postgres://user:password@host:5432/name or sqlite:////path."
        )
    if config["ENGINE"].endswith("postgresql"):
        needs(name, "postgres", "psycopg")
    return config
