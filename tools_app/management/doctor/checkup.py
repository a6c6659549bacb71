"""All checks in the order in which their findings are read: what comes first explains what follows."""

from collections.abc import Generator, Iterator
from typing import Final

from tools_app.management.doctor import (
    configuration,
    contents,
    database,
    doorbells,
    machine,
    redis_server,
    software,
    workers,
)
from tools_app.management.doctor.endpoint import Endpoint
from tools_app.management.doctor.findings import Check, Finding, Status, found

HERE: Final[tuple[tuple[str, Check], ...]] = (
    ("python", software.python),
    ("packages", software.packages),
    ("packages", software.extras),
    ("secret key", configuration.secrets),
    ("debug", configuration.debugging),
    ("allowed hosts", configuration.hosts),
    ("https", configuration.proxies),
    ("stores", configuration.stores),
    ("data directory", machine.data_directory),
    ("disk", machine.disk),
    ("file system", machine.file_system),
    ("open files", machine.descriptors),
)
STORES: Final[tuple[tuple[str, Check], ...]] = (
    ("redis", redis_server.servers),
    ("broker", workers.broker),
    ("workers", workers.workers),
    ("channel layer", doorbells.round_trip),
)
# Problems after which the next checks would only repeat them.
STOPPING: Final = frozenset({"database", "migrations"})
# Without a database these only repeat that there is none.
DATABASE: Final[tuple[tuple[str, Check], ...]] = (
    ("migrations", database.migrations),
    ("sqlite", database.sqlite),
    ("postgresql", database.postgresql),
    ("clock", database.clock),
)
# Without its tables these do.
TABLES: Final[tuple[tuple[str, Check], ...]] = (
    ("connections", database.connections),
    ("partitions", database.months_ahead),
    ("writes", database.write_latency),
    ("queued calls", workers.waiting_calls),
    ("tools", contents.tools),
    ("secrets", contents.secrets),
    ("keys", contents.keys),
    ("admins", contents.people),
    ("checkpoints", contents.checkpoints),
)


def checkup(url: str = "", key: str = "") -> Iterator[Finding]:
    """Everything; `url` and `key` for a look from outside."""
    yield from found(HERE)
    database_answers = yield from _passed(("database", database.reachable))
    if database_answers:
        migrated = yield from _passed(*DATABASE)
        if migrated:
            yield from found(TABLES)
    yield from found(STORES)
    if url:
        yield from found([("endpoint", Endpoint(url, key).checks)])


def _passed(*checks: tuple[str, Check]) -> Generator[Finding, None, bool]:
    """The findings; returns whether it makes sense to go on."""
    findings = []
    for finding in found(checks):
        findings.append(finding)
        yield finding
    return not any(finding.status is Status.PROBLEM and finding.about in STOPPING for finding in findings)
