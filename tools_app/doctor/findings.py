"""Findings of checks: the status, what was found, and what to do about it."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tools_app.core.telemetry.scrubbing import scrubbed

log = logging.getLogger(__name__)


class Status(StrEnum):
    """The severity. A problem breaks a guarantee of the hub or prevents it from working."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    status: Status
    about: str
    message: str
    fix: str = ""


Check = Callable[[], Iterable[Finding]]


def ok(about: str, message: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(Status.OK, about, scrubbed(message))


def warning(about: str, message: str, fix: str) -> Finding:
    """Return a finding that needs attention."""
    return Finding(Status.WARNING, about, scrubbed(message), scrubbed(fix))


def problem(about: str, message: str, fix: str) -> Finding:
    """Return a finding that must be fixed."""
    return Finding(Status.PROBLEM, about, scrubbed(message), scrubbed(fix))


def grade(about: str, message: str, fix: str, *, is_problem: bool = False, is_warning: bool = False) -> Finding:
    """Return a problem if `is_problem`, a warning if `is_warning`, otherwise OK."""
    if is_problem:
        return problem(about, message, fix)
    return warning(about, message, fix) if is_warning else ok(about, message)


def run_checks(checks: Iterable[tuple[str, Check]]) -> Iterator[Finding]:
    """Yield the findings of the checks in order. An exception in a check is a problem; the next check still runs."""
    for about, check in checks:
        try:
            yield from check()
        except Exception as broken:  # the report goes on
            log.debug("The check of %s broke", about, exc_info=broken)
            yield problem(
                about, f"could not be checked: {type(broken).__name__}: {broken}", "Fix the error and run doctor again."
            )
