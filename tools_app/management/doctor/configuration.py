"""Settings that make sense one by one and not together, or not where others can reach the hub."""

import os
from collections.abc import Iterator

from django.conf import settings

from tools_app.management.doctor.findings import Finding, judged, ok, warning

LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]", "testserver"}
SHORTEST_SECRET = 32


def is_on_sqlite() -> bool:
    """Whether the database is a file."""
    return str(settings.DATABASES["default"]["ENGINE"]).endswith("sqlite3")


def is_embedded() -> bool:
    """Whether the broker is in the memory of one process."""
    return str(settings.CELERY_BROKER_URL).startswith("memory:")


def is_scaled() -> bool:
    """Whether several processes share the stores."""
    return not is_on_sqlite() or not is_embedded()


def is_public() -> bool:
    """Whether the hub answers under other names than this machine's own."""
    return bool(set(settings.ALLOWED_HOSTS) - LOCAL_HOSTS)


def secrets() -> Iterator[Finding]:
    """The secret key."""
    given = bool(os.environ.get("MCPHUB_SECRET_KEY"))
    if not given:
        yield judged(
            "secret key",
            "generated and kept in the data directory" + (", which other hosts do not have" if is_scaled() else ""),
            "Set MCPHUB_SECRET_KEY to the same value in every process; otherwise none opens what others sealed.",
            bad=is_scaled(),
        )
        return
    yield judged(
        "secret key",
        f"given, {len(settings.SECRET_KEY)} characters",
        f"Use at least {SHORTEST_SECRET} random characters, and name the old key in MCPHUB_SECRET_KEY_FALLBACKS.",
        doubtful=len(settings.SECRET_KEY) < SHORTEST_SECRET,
    )


def debugging() -> Iterator[Finding]:
    """MCPHUB_DEBUG."""
    mend = "Unset MCPHUB_DEBUG: error pages show settings and code."
    says = "on" if settings.DEBUG else "off"
    yield judged("debug", says, mend, bad=settings.DEBUG and is_public(), doubtful=settings.DEBUG)


def hosts() -> Iterator[Finding]:
    """MCPHUB_ALLOWED_HOSTS."""
    names = ", ".join(settings.ALLOWED_HOSTS)
    everything = "*" in settings.ALLOWED_HOSTS
    yield judged(
        "allowed hosts",
        f"answers for {names}",
        "Name the hub's own host names in MCPHUB_ALLOWED_HOSTS; a star lets any web page reach it by DNS rebinding."
        if everything
        else "Name the host names under which clients reach the hub in MCPHUB_ALLOWED_HOSTS.",
        bad=everything,
        doubtful=is_scaled() and not is_public(),
    )


def proxies() -> Iterator[Finding]:
    """MCPHUB_HTTPS and MCPHUB_TRUSTED_PROXIES."""
    secure = bool(getattr(settings, "SECURE_SSL_REDIRECT", False))
    if not is_public() and not secure:
        yield ok("https", "off; the hub answers on this machine only")
        return
    yield judged(
        "https",
        "on" if secure else "off, although the hub answers for other machines",
        "Put a proxy that terminates TLS in front and set MCPHUB_HTTPS=1: keys travel in every request.",
        doubtful=not secure,
    )
    count = settings.MCPHUB_TRUSTED_PROXIES
    if secure and not count:
        yield warning(
            "proxies",
            "none is trusted, so every caller seems to have the proxy's address",
            "Set MCPHUB_TRUSTED_PROXIES to the number of proxies in front.",
        )
    else:
        yield ok("proxies", f"{count} trusted")


def stores() -> Iterator[Finding]:
    """Database, broker and channel layer that do not belong together."""
    if is_on_sqlite() and not is_embedded():
        yield warning(
            "stores",
            "SQLite with a broker for several processes: workers on other hosts do not see this file",
            "Set DATABASE_URL to a PostgreSQL, or run every process on this host.",
        )
    elif not is_on_sqlite() and is_embedded():
        yield warning(
            "stores",
            "PostgreSQL with a queue in memory: only this process's own worker runs background tools",
            "Set REDIS_URL, or CELERY_BROKER_URL, when there is more than one process.",
        )
    elif is_scaled() and not settings.REDIS_URL:
        yield warning(
            "stores",
            "no Redis: processes do not ring each other, and each one counts limits for itself",
            "Set REDIS_URL.",
        )
    else:
        yield ok("stores", "they fit together")
