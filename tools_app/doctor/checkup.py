"""All checks in the order of the report: earlier findings explain later ones."""

from collections.abc import Generator, Iterator
from typing import Final

from tools_app.doctor import configuration, contents, database, host, messaging
from tools_app.doctor.endpoint import Endpoint
from tools_app.doctor.findings import Check, Finding, Status, found
from tools_app.doctor.sign_in import SignIn

HERE: Final[tuple[tuple[str, Check], ...]] = (
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
STORES: Final[tuple[tuple[str, Check], ...]] = (
    ("redis", messaging.redis_servers),
    ("broker", messaging.broker),
    ("workers", messaging.workers),
    ("channel layer", messaging.round_trip),
)
# Problems that make the next checks redundant.
STOPPING: Final = frozenset({"database", "migrations"})
# These fail without a database.
DATABASE: Final[tuple[tuple[str, Check], ...]] = (
    ("migrations", database.migrations),
    ("sqlite", database.sqlite),
    ("postgresql", database.postgresql),
    ("clock", database.clock),
)
# These fail without its tables.
TABLES: Final[tuple[tuple[str, Check], ...]] = (
    ("connections", database.connections),
    ("partitions", database.months_ahead),
    ("writes", database.write_latency),
    ("queued calls", messaging.waiting_calls),
    ("tools", contents.tools),
    ("saml", contents.saml),
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
    yield from found(HERE)
    database_answers = yield from _passed(("database", database.reachable))
    if database_answers:
        migrated = yield from _passed(*DATABASE)
        if migrated:
            yield from found(TABLES)
    yield from found(STORES)
    if url:
        yield from found([("endpoint", Endpoint(url, key).checks)])
    if sign_in_url:
        yield from found([("sign-in", SignIn(sign_in_url).checks)])


def _passed(*checks: tuple[str, Check]) -> Generator[Finding, None, bool]:
    """Yield the findings; returns whether the remaining checks are useful."""
    findings = []
    for finding in found(checks):
        findings.append(finding)
        yield finding
    return not any(finding.status is Status.PROBLEM and finding.about in STOPPING for finding in findings)
