"""The steps of an import: the plan of what changes in a tenant, and what each change is."""

from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

from tools_app.core import diff
from tools_app.core.diff import DiffLine
from tools_app.models import Tenant
from tools_app.tenant_config.document import Problem
from tools_app.tenant_config.sections import Row


class StepAction(StrEnum):
    """What happens to a row."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True)
class Step:
    """A change of one row: its description before and after, None where it does not exist.

    `document` writes or deletes the row; None for the tenant's own settings.
    """

    doing: StepAction
    kind: str
    name: str
    before: Row | None
    after: Row | None
    document: Any = None

    @property
    def sides(self) -> tuple[Row, Row]:
        """Return before and after as JSON values for comparison: a file as its length and hash."""
        return _comparable(self.before), _comparable(self.after)

    @property
    def diff(self) -> list[DiffLine]:
        """Return the lines of both sides, with what changed."""
        before, after = self.sides
        if self.doing == StepAction.CREATE:
            return [DiffLine("added", line) for line in diff.formatted_lines(after)]
        if self.doing == StepAction.DELETE:
            return [DiffLine("removed", line) for line in diff.formatted_lines(before)]
        return diff.lines(before, after)


@dataclass
class Plan:
    """All changes of an import. `fingerprint` is that of the tenant when the plan was made.

    `unchanged` rows match the file; `kept` are rows that the file does not name. Somebody has to set the
    `missing_secrets`, which are named in the file, with the rows that use them, the URLs of the webhooks in
    `missing_urls`, and the client secrets of the issuers in `missing_client_secrets`. The `missing_service_clients`
    have a secret, so an import does not create them. The signing secrets of `new_webhooks` have not been shown yet.
    """

    tenant: Tenant
    fingerprint: str
    steps: list[Step] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unchanged: int = 0
    kept: list[str] = field(default_factory=list)
    missing_secrets: dict[str, list[str]] = field(default_factory=dict)
    missing_urls: list[str] = field(default_factory=list)
    missing_client_secrets: list[str] = field(default_factory=list)
    missing_service_clients: list[str] = field(default_factory=list)
    new_webhooks: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there are no changes."""
        return not self.steps

    def count(self, doing: str) -> int:
        """Return the number of rows with this change."""
        return sum(step.doing == doing for step in self.steps)


def _comparable(row: Row | None) -> Row:
    return {
        name: f"{len(value)} bytes, SHA-256 {sha256(value).hexdigest()}" if isinstance(value, bytes) else value
        for name, value in (row or {}).items()
    }
