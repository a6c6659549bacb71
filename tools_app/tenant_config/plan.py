"""The changes that would make a tenant match a file, the problems that prevent them, and their application."""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Final

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from tools_app.access import permissions
from tools_app.catalog import authoring
from tools_app.models import Prompt, Resource, Tenant, Tool
from tools_app.models.versioned import check_count
from tools_app.tenant_config import builder
from tools_app.tenant_config.builder import Offer
from tools_app.tenant_config.document import Blueprint, Problem
from tools_app.tenant_config.export import described_row, export, settings_of
from tools_app.tenant_config.fields import SECTIONS, Row, Section

SETTINGS: Final = "settings"
SUPERUSERS_DECIDE: Final = "only superusers can change this. Remove the line, or ask a superuser to apply the file."


class Doing(StrEnum):
    """What happens to a row."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True)
class Step:
    """A change of one row: its description before and after, None where it does not exist.

    `row` is the row to write or delete; None for the tenant's own settings.
    """

    doing: Doing
    kind: str
    name: str
    before: Row | None
    after: Row | None
    row: Offer | None = None

    @property
    def sides(self) -> tuple[Row, Row]:
        """Return before and after as JSON values for comparison: a file as its length and hash."""
        return _told(self.before), _told(self.after)


@dataclass
class Plan:
    """All changes of an import. `fingerprint` is that of the tenant when the plan was made.

    `unchanged` rows match the file; `kept` are rows that the file does not name; `missing_secrets` are named in the
    file but do not exist, so somebody has to set them.
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
        """Whether there are no changes."""
        return not self.steps

    def count(self, doing: str) -> int:
        """Return the number of rows with this change."""
        return sum(step.doing == doing for step in self.steps)


def plan(tenant: Tenant, blueprint: Blueprint, by: permissions.Person | None, *, prune: bool = False) -> Plan:
    """Plan the changes to `tenant`. `by` is the person who asks; None for the command line, which may do anything.

    With `prune`, rows that the sections of the file do not name are deleted; otherwise they are kept.
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
    """Return a hash of the tenant's configuration."""
    return sha256(export(tenant).encode()).hexdigest()


def _told(row: Row | None) -> Row:
    return {
        name: f"{len(value)} bytes, SHA-256 {sha256(value).hexdigest()}" if isinstance(value, bytes) else value
        for name, value in (row or {}).items()
    }


def _plan_settings(made: Plan, blueprint: Blueprint, by: permissions.Person | None) -> None:
    before = settings_of(made.tenant)
    after = {name: value for name, value in blueprint.tenant.items() if value != before[name]}
    if not after:
        return
    if by is not None and not permissions.is_superuser(by):
        fixed = [name for name in after if name in permissions.SUPERUSERS_ONLY]
        made.problems.extend(Problem(("tenant", name), SUPERUSERS_DECIDE) for name in fixed)
    changed = copy(made.tenant)
    for name, value in after.items():
        setattr(changed, name, value)
    made.problems.extend(builder.tenant_faults(changed))
    told = {name: before[name] for name in after}
    made.steps.append(Step(Doing.CHANGE, SETTINGS, made.tenant.slug, told, after))


def _plan_section(made: Plan, section: Section, wanted: Mapping[str, Row], *, prune: bool) -> set[str]:
    """Plan the rows of a section. Return the names of the secrets that they use."""
    rows = section.model._default_manager.filter(tenant=made.tenant)
    there: dict[str, Offer] = {getattr(row, section.key): row for row in rows}
    secrets: set[str] = set()
    for name, row in wanted.items():
        old = there.pop(name, None)
        before = described_row(section, old) if old is not None else None
        new = builder.build(section, name, row, old or section.model(tenant=made.tenant))
        faults = list(builder.faults_of(section, new, (section.name, name)))
        made.problems.extend(faults)
        secrets |= builder.secrets_named_by(new)
        after = row if faults else described_row(section, new)
        made.steps.extend(_steps(section, name, before, after, new))
    made.unchanged += len(wanted) - sum(step.kind == section.word for step in made.steps)
    _leave_or_delete(made, section, there, prune=prune)
    try:
        check_count(section.model, len(wanted) + (0 if prune else len(there)))
    except ValidationError as problem:
        made.problems.append(Problem((section.name,), problem.messages[0]))
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


class NotApplied(Exception):
    """Nothing was changed; the message says why."""


def apply(plan: Plan, by: User | None = None) -> None:
    """Apply the plan in one transaction. Raises NotApplied."""
    if plan.problems:
        raise NotApplied("The file is invalid. Fix the problems first.")
    with authoring.one_touch():
        # The change log is locked, so there are no other changes. The tenant's own row is not locked, and is written
        # last: new sessions of the tenant refer to it.
        tenant = Tenant.objects.filter(pk=plan.tenant.pk).first()
        if tenant is None or fingerprint(tenant) != plan.fingerprint:
            raise NotApplied("The tenant has changed since the preview. Preview the changes again, then apply them.")
        for step in sorted(plan.steps, key=lambda step: step.row is None):
            _take(step, tenant, by)


def _take(step: Step, tenant: Tenant, by: User | None) -> None:
    row = step.row
    if row is None:
        _write_settings(step, tenant)
    elif step.doing == Doing.DELETE:
        authoring.delete(row)
    elif isinstance(row, Tool):
        authoring.save_tool(row, by)
    elif isinstance(row, Resource):
        authoring.save_resource(row)
    elif isinstance(row, Prompt):
        authoring.save_prompt(row)


def _write_settings(step: Step, tenant: Tenant) -> None:
    after = dict(step.after or {})
    for name, value in after.items():
        setattr(tenant, name, value)
    tenant.save(update_fields=list(after))
