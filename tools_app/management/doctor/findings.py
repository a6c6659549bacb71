"""What a check finds: whether a thing is well, what was seen, and what to do about it."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tools_app.telemetry.scrubbing import scrubbed

log = logging.getLogger(__name__)


class Status(StrEnum):
    """How bad it is. A problem breaks a promise of the hub or keeps it from working."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    status: Status
    about: str
    says: str
    mend: str = ""


Check = Callable[[], Iterable[Finding]]


def ok(about: str, says: str) -> Finding:
    """A thing that is well."""
    return Finding(Status.OK, about, scrubbed(says))


def warning(about: str, says: str, mend: str) -> Finding:
    """A thing to look at."""
    return Finding(Status.WARNING, about, scrubbed(says), scrubbed(mend))


def problem(about: str, says: str, mend: str) -> Finding:
    """A thing to mend."""
    return Finding(Status.PROBLEM, about, scrubbed(says), scrubbed(mend))


def judged(about: str, says: str, mend: str, *, bad: bool = False, doubtful: bool = False) -> Finding:
    """A problem if it is `bad`, a warning if it is `doubtful`, else well."""
    if bad:
        return problem(about, says, mend)
    return warning(about, says, mend) if doubtful else ok(about, says)


def found(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """What the checks find, one after the other. A check that breaks is a problem, and the next one is made."""
    for about, check in checks:
        try:
            yield from check()
        except Exception as broken:  # the report goes on
            log.debug("The check of %s broke", about, exc_info=broken)
            yield problem(about, f"could not be checked: {type(broken).__name__}: {broken}", "See the message.")
