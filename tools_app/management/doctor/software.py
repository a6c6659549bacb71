"""Python, the packages that the hub needs, and those that its settings ask for."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from django.conf import settings
from packaging.requirements import Requirement

from tools_app.execution.measures import hub_version
from tools_app.management.doctor.findings import Finding, judged, ok, problem
from tools_app.telemetry import tracing

OLDEST_PYTHON = (3, 11)
EXTRAS = {"postgres": "psycopg", "redis": "channels_redis", "otel": "opentelemetry-sdk"}


def python() -> Iterator[Finding]:
    """The interpreter."""
    running = f"Python {platform.python_version()}, mcphub {hub_version()}"
    oldest = ".".join(map(str, OLDEST_PYTHON))
    too_old = tuple(sys.version_info) < OLDEST_PYTHON
    yield judged("python", running, f"Run it with Python {oldest} or newer.", bad=too_old)


def packages() -> Iterator[Finding]:
    """What is installed against what is required."""
    wrong = [said for text in _required() if (said := _against(Requirement(text)))]
    for said in wrong:
        yield problem("packages", said, "Install the hub anew: pip install -c constraints.txt -e .")
    if not wrong:
        yield ok("packages", "every required package is there in a fitting version")


def _required() -> list[str]:
    return [text for text in requires("mcphub") or [] if "extra ==" not in text]


def _against(required: Requirement) -> str:
    """What speaks against what is installed; "" for nothing."""
    if required.marker is not None and not required.marker.evaluate():
        return ""
    try:
        installed = version(required.name)
    except PackageNotFoundError:
        return f"{required.name} is not installed"
    if required.specifier.contains(installed, prereleases=True):
        return ""
    return f"{required.name} is {installed}, the hub needs {required.specifier}"


def extras() -> Iterator[Finding]:
    """The extras that the settings make necessary."""
    wanted = {
        "postgres": settings.DATABASES["default"]["ENGINE"].endswith("postgresql"),
        "redis": bool(settings.REDIS_URL),
        "otel": tracing.is_wanted(),
    }
    for extra, is_wanted in wanted.items():
        if is_wanted:
            yield judged(
                "packages",
                f"the extra {extra} is {'there' if _is_there(extra) else 'missing, and the settings ask for it'}",
                f"pip install -e '.[{extra}]'",
                bad=not _is_there(extra),
            )


def _is_there(extra: str) -> bool:
    try:
        version(EXTRAS[extra])
    except PackageNotFoundError:
        return False
    return True
