"""Checks of settings that conflict with each other, or are unsafe for a public hub."""

import logging
import os
from collections.abc import Iterator

from django.conf import settings

from tools_app.doctor.findings import Finding, grade, ok, warning

logger = logging.getLogger(__name__)

LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]", "testserver"}
MIN_SECRET_LENGTH = 32


def is_on_sqlite() -> bool:
    """Whether the database is SQLite."""
    return "sqlite" in str(settings.DATABASES["default"]["ENGINE"])


def is_embedded() -> bool:
    """Whether the broker is in the memory of one process."""
    return str(settings.CELERY_BROKER_URL).startswith("memory:")


def is_scaled() -> bool:
    """Whether several processes share the stores."""
    return not is_on_sqlite() or not is_embedded()


def is_public() -> bool:
    """Whether the hub answers under other host names than the local ones."""
    return bool(set(settings.ALLOWED_HOSTS) - LOCAL_HOSTS)


def unknown_variables() -> list[str]:
    """Return a message for each environment variable that looks like a setting of the hub but is unknown."""
    return [
        f"{name} is not a setting of the hub. {hint}".rstrip()
        for name, hint in settings.MCPHUB_UNKNOWN_VARIABLES.items()
    ]


def log_unknown_variables() -> None:
    """Log the variables that are probably misspelt."""
    for message in unknown_variables():
        logger.warning(message)


def secrets() -> Iterator[Finding]:
    """Check the secret key."""
    is_set = bool(os.environ.get("MCPHUB_SECRET_KEY"))
    if not is_set:
        yield grade(
            "secret key",
            "generated and stored in the data directory" + (", which other hosts do not share" if is_scaled() else ""),
            "Set MCPHUB_SECRET_KEY to the same value in every process, so that each one can decrypt the others' data.",
            is_problem=is_scaled(),
        )
        return
    yield grade(
        "secret key",
        f"set, {len(settings.SECRET_KEY)} characters",
        f"Use at least {MIN_SECRET_LENGTH} random characters, and add the old key to MCPHUB_SECRET_KEY_FALLBACKS.",
        is_warning=len(settings.SECRET_KEY) < MIN_SECRET_LENGTH,
    )


def variables() -> Iterator[Finding]:
    """Check for unknown variables."""
    for message in unknown_variables():
        yield warning("variables", message, "Correct or unset it. Variables of your own must not start with MCPHUB_.")
    if not settings.MCPHUB_UNKNOWN_VARIABLES:
        yield ok("variables", "all MCPHUB_ variables are known settings")


def debugging() -> Iterator[Finding]:
    """Check MCPHUB_DEBUG."""
    fix = "Unset MCPHUB_DEBUG: error pages expose settings and code."
    state = "on" if settings.DEBUG else "off"
    yield grade("debug", state, fix, is_problem=settings.DEBUG and is_public(), is_warning=settings.DEBUG)


def hosts() -> Iterator[Finding]:
    """Check MCPHUB_ALLOWED_HOSTS."""
    names = ", ".join(settings.ALLOWED_HOSTS)
    allows_all = "*" in settings.ALLOWED_HOSTS
    yield grade(
        "allowed hosts",
        f"allowed: {names}",
        "List the hub's host names in MCPHUB_ALLOWED_HOSTS. With * any web page can reach the hub by DNS rebinding."
        if allows_all
        else "List the host names under which clients reach the hub in MCPHUB_ALLOWED_HOSTS.",
        is_problem=allows_all,
        is_warning=is_scaled() and not is_public(),
    )


def proxies() -> Iterator[Finding]:
    """Check MCPHUB_HTTPS and MCPHUB_TRUSTED_PROXIES."""
    is_https = bool(getattr(settings, "SECURE_SSL_REDIRECT", False))
    if not is_public() and not is_https:
        yield ok("https", "off; only this machine can reach the hub")
        return
    yield grade(
        "https",
        "on" if is_https else "off, although other machines can reach the hub",
        "Put a TLS proxy in front and set MCPHUB_HTTPS=1: each request contains an API key.",
        is_warning=not is_https,
    )
    count = settings.MCPHUB_TRUSTED_PROXIES
    if is_https and not count:
        yield warning(
            "proxies",
            "none trusted: all clients appear with the proxy's address",
            "Set MCPHUB_TRUSTED_PROXIES to the number of proxies in front.",
        )
    else:
        yield ok("proxies", f"{count} trusted")


def stores() -> Iterator[Finding]:
    """Check that database, broker and channel layer fit together."""
    if is_on_sqlite() and not is_embedded():
        yield warning(
            "stores",
            "SQLite with a broker: workers on other hosts cannot read the database file",
            "Set DATABASE_URL to a PostgreSQL database, or run all processes on this host.",
        )
    elif not is_on_sqlite() and is_embedded():
        yield warning(
            "stores",
            "PostgreSQL with an in-memory queue: only the worker in this process runs background tools",
            "Set REDIS_URL or CELERY_BROKER_URL to run more than one process.",
        )
    elif is_scaled() and not settings.REDIS_URL:
        yield warning(
            "stores",
            "no Redis: processes cannot notify each other, and rate limits are counted per process",
            "Set REDIS_URL.",
        )
    else:
        yield ok("stores", "compatible")
