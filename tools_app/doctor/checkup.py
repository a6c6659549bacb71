"""All checks in the order of the report: earlier findings explain later ones."""

from collections.abc import Generator, Iterator
from typing import Final

from tools_app.doctor import configuration, contents, database, host, messaging, programs
from tools_app.doctor.endpoint import EndpointChecks
from tools_app.doctor.findings import Check, Finding, Status, run_checks
from tools_app.doctor.sign_in import SignInChecks

LOCAL_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("python", host.python),
    ("packages", host.packages),
    ("packages", host.extras),
    ("secret key", configuration.secrets),
    ("variables", configuration.variables),
    ("debug", configuration.debugging),
    ("allowed hosts", configuration.hosts),
    ("https", configuration.proxies),
    ("stores", configuration.stores),
    ("data directory", host.data_directory),
    ("disk", host.disk),
    ("file system", host.file_system),
    ("open files", host.descriptors),
)
STORE_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("redis", messaging.redis_servers),
    ("broker", messaging.broker),
    ("workers", messaging.workers),
    ("channel layer", messaging.round_trip),
)
# Problems that make the next checks redundant.
BLOCKING: Final = frozenset({"database", "migrations"})
# These fail without a database.
DATABASE_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("migrations", database.migrations),
    ("sqlite", database.sqlite),
    ("postgresql", database.postgresql),
    ("clock", database.clock),
)
# These fail without its tables.
TABLE_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("connections", database.connections),
    ("partitions", database.months_ahead),
    ("writes", database.write_latency),
    ("queued calls", messaging.queued_calls),
    ("tools", contents.tools),
    ("saml", contents.saml),
    ("upstream programs", programs.upstream_programs),
    ("upstream reach", programs.upstream_reach),
    ("throttles", contents.throttles),
    ("tool schemas", contents.tool_schemas),
    ("secrets", contents.secrets),
    ("keys", contents.keys),
    ("admins", contents.people),
    ("checkpoints", contents.checkpoints),
    ("witness file", contents.witness_file),
)


def checkup(url: str = "", key: str = "", sign_in_url: str = "") -> Iterator[Finding]:
    """Run all checks; `url` and `key` add a check of the endpoint, `sign_in_url` one of signing in at it."""
    yield from run_checks(LOCAL_CHECKS)
    is_database_reachable = yield from _run_until_blocked(("database", database.reachable))
    if is_database_reachable:
        is_migrated = yield from _run_until_blocked(*DATABASE_CHECKS)
        if is_migrated:
            yield from run_checks(TABLE_CHECKS)
    yield from run_checks(STORE_CHECKS)
    if url:
        yield from run_checks([("endpoint", EndpointChecks(url, key).checks)])
    if sign_in_url:
        yield from run_checks([("sign-in", SignInChecks(sign_in_url).checks)])


def _run_until_blocked(*checks: tuple[str, Check]) -> Generator[Finding, None, bool]:
    """Yield the findings; returns whether the remaining checks are useful."""
    findings = []
    for finding in run_checks(checks):
        findings.append(finding)
        yield finding
    return not any(finding.status is Status.PROBLEM and finding.about in BLOCKING for finding in findings)
