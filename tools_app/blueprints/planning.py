"""What would change if a tenant became what a file says, and what is in the way of that."""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Final

from tools_app.auth import access
from tools_app.blueprints import building
from tools_app.blueprints.blueprint import Blueprint, Problem
from tools_app.blueprints.building import Offer
from tools_app.blueprints.describing import described_row, export, settings_of
from tools_app.blueprints.fields import SECTIONS, Row, Section
from tools_app.models import Tenant

SETTINGS: Final = "settings"
SUPERUSERS_DECIDE: Final = "only superusers change this. Take the line out, or ask one of them to apply the file."


class Doing(StrEnum):
    """What becomes of a row."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True)
class Step:
    """One row that changes: what is said of it before and after, None where it is not there.

    `row` is what is to be written or deleted; None for the tenant's own settings.
    """

    doing: Doing
    kind: str
    name: str
    before: Row | None
    after: Row | None
    row: Offer | None = None

    @property
    def sides(self) -> tuple[Row, Row]:
        """Before and after as JSON values to compare: of a file, its length and hash."""
        return _told(self.before), _told(self.after)


@dataclass
class Plan:
    """All that an import would do. `fingerprint` is of the tenant as it was when this was found out.

    `unchanged` rows are as the file says; `kept` are those that it does not name; `missing_secrets` are named by the
    file and not there, so somebody has to set them.
    """

    tenant: Tenant
    fingerprint: str
    steps: list[Step] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unchanged: int = 0
    kept: list[str] = field(default_factory=list)
    missing_secrets: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.steps

    def count(self, doing: str) -> int:
        """How many rows this is done to."""
        return sum(step.doing == doing for step in self.steps)


def plan(tenant: Tenant, blueprint: Blueprint, by: access.Person | None, *, prune: bool = False) -> Plan:
    """What has to be done to `tenant`. `by`: who asks; None for whoever has the command line, who may do anything.

    `prune`: what the sections of the file do not name is deleted; otherwise it is kept.
    """
    made = Plan(tenant, fingerprint(tenant))
    _plan_settings(made, blueprint, by)
    named: set[str] = set(blueprint.secrets or ())
    for section in SECTIONS:
        wanted = blueprint.sections.get(section.name)
        if wanted is not None:
            named |= _plan_section(made, section, wanted, prune=prune)
    there = set(tenant.secrets.values_list("name", flat=True))
    made.missing_secrets.extend(sorted(named - there))
    return made


def fingerprint(tenant: Tenant) -> str:
    """Another one whenever the tenant's configuration is."""
    return sha256(export(tenant).encode()).hexdigest()


def _told(row: Row | None) -> Row:
    return {
        name: f"{len(value)} bytes, SHA-256 {sha256(value).hexdigest()}" if isinstance(value, bytes) else value
        for name, value in (row or {}).items()
    }


def _plan_settings(made: Plan, blueprint: Blueprint, by: access.Person | None) -> None:
    before = settings_of(made.tenant)
    after = {name: value for name, value in blueprint.tenant.items() if value != before[name]}
    if not after:
        return
    if by is not None and not access.is_superuser(by):
        fixed = [name for name in after if name in access.SUPERUSERS_ONLY]
        made.problems.extend(Problem(("tenant", name), SUPERUSERS_DECIDE) for name in fixed)
    changed = copy(made.tenant)
    for name, value in after.items():
        setattr(changed, name, value)
    made.problems.extend(building.tenant_faults(changed))
    told = {name: before[name] for name in after}
    made.steps.append(Step(Doing.CHANGE, SETTINGS, made.tenant.slug, told, after))


def _plan_section(made: Plan, section: Section, wanted: Mapping[str, Row], *, prune: bool) -> set[str]:
    """Plan the rows of a section; the names of the secrets that they use."""
    rows = section.model._default_manager.filter(tenant=made.tenant)
    there: dict[str, Offer] = {getattr(row, section.key): row for row in rows}
    secrets: set[str] = set()
    for name, row in wanted.items():
        old = there.pop(name, None)
        before = described_row(section, old) if old is not None else None
        new = building.build(section, name, row, old or section.model(tenant=made.tenant))
        faults = list(building.faults_of(section, new, (section.name, name)))
        made.problems.extend(faults)
        secrets |= building.secrets_named_by(new)
        after = row if faults else described_row(section, new)
        made.steps.extend(_steps(section, name, before, after, new))
    made.unchanged += len(wanted) - sum(step.kind == section.word for step in made.steps)
    _leave_or_delete(made, section, there, prune=prune)
    return secrets


def _steps(section: Section, name: str, before: Row | None, after: Row, row: Offer) -> Iterator[Step]:
    if before != after:
        yield Step(Doing.CREATE if before is None else Doing.CHANGE, section.word, name, before, after, row)


def _leave_or_delete(made: Plan, section: Section, rest: dict[str, Offer], *, prune: bool) -> None:
    for name in sorted(rest):
        if prune:
            gone = described_row(section, rest[name])
            made.steps.append(Step(Doing.DELETE, section.word, name, gone, None, rest[name]))
        else:
            made.kept.append(f"{section.word} {name}")
