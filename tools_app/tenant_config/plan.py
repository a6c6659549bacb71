"""The changes that would make a tenant match a file, the problems that prevent them, and their application."""

from collections.abc import Mapping
from copy import copy
from hashlib import sha256
from typing import Final

import orjson
from django.contrib.auth.models import User
from django.db.models import QuerySet, RestrictedError

from tools_app.catalog import authoring
from tools_app.core.documents import Document
from tools_app.models import Tenant
from tools_app.tenant_config import builder, documents, upstreams
from tools_app.tenant_config.document import Configuration, Problem
from tools_app.tenant_config.export import described, described_row, settings_of
from tools_app.tenant_config.fields import SECTIONS, Plain, Row, Section
from tools_app.tenant_config.steps import Plan, Step, StepAction
from tools_app.tenants import permissions

SETTINGS: Final = "settings"
SUPERUSER_SETTINGS: Final = "only superusers can change this. Remove the line, or ask a superuser to apply the file."


def plan(tenant: Tenant, configuration: Configuration, by: permissions.Person | None, *, prune: bool = False) -> Plan:
    """Plan the changes to `tenant`. `by` is the person who asks; None for the command line, which may do anything.

    With `prune`, rows that the sections of the file do not name are deleted; otherwise they are kept.
    """
    planned = Plan(tenant, fingerprint(tenant))
    _plan_settings(planned, configuration, by)
    users = planned.missing_secrets = {name: [] for name in configuration.secrets or ()}
    documents.add_steps(planned, configuration.sections, prune=prune)
    for section in SECTIONS:
        wanted = configuration.sections.get(section.name)
        if wanted is not None:
            _plan_section(planned, section, wanted, prune=prune)
    there = set(tenant.secrets.values_list("name", flat=True))
    planned.missing_secrets = {name: users[name] for name in sorted(users.keys() - there)}
    return planned


def fingerprint(tenant: Tenant) -> str:
    """Return a hash of the tenant's configuration, with what a file does not contain but may change.

    It writes no file, which may have thousands of tools.
    """
    return sha256(orjson.dumps([described(tenant), documents.hidden_values(tenant)], default=bytes.hex)).hexdigest()


def _plan_settings(planned: Plan, configuration: Configuration, by: permissions.Person | None) -> None:
    before = settings_of(planned.tenant)
    after = {name: value for name, value in configuration.tenant.items() if value != before[name]}
    if not after:
        return
    if by is not None and not permissions.is_superuser(by):
        fixed = [name for name in after if name in permissions.SUPERUSERS_ONLY]
        planned.problems.extend(Problem(("tenant", name), SUPERUSER_SETTINGS) for name in fixed)
    changed = copy(planned.tenant)
    for name, value in after.items():
        setattr(changed, name, value)
    planned.problems.extend(builder.tenant_faults(changed))
    values_before = {name: before[name] for name in after}
    planned.steps.append(Step(StepAction.CHANGE, SETTINGS, planned.tenant.slug, values_before, after))


def _plan_section(planned: Plan, section: Section, wanted: Mapping[str, Row], *, prune: bool) -> None:
    rows: QuerySet[Plain] = section.model._default_manager.filter(tenant=planned.tenant)
    there = {getattr(row, section.key): row for row in rows}
    for name, row in wanted.items():
        old = there.pop(name, None)
        before = described_row(section, old) if old is not None else None
        new = builder.build(section, name, row, old or section.model(tenant=planned.tenant))
        faults = list(builder.faults_of(section, new, (section.name, name)))
        planned.problems.extend(faults)
        for secret in upstreams.secrets_named_by(new):
            planned.missing_secrets.setdefault(secret, []).append(f"{section.word} {name}")
        after = row if faults else described_row(section, new)
        if before != after:
            doing = StepAction.CREATE if before is None else StepAction.CHANGE
            planned.steps.append(Step(doing, section.word, name, before, after, new))
    planned.unchanged += len(wanted) - sum(step.kind == section.word for step in planned.steps)
    for name in sorted(there):
        if prune:
            gone = described_row(section, there[name])
            planned.steps.append(Step(StepAction.DELETE, section.word, name, gone, None, there[name]))
        else:
            planned.kept.append(f"{section.word} {name}")
    if len(wanted) + (0 if prune else len(there)) > section.most:
        plural = section.model._meta.verbose_name_plural
        planned.problems.append(
            Problem((section.name,), f"A tenant has at most {section.most} {plural}. Delete one first.")
        )


class ApplyError(Exception):
    """Nothing was changed; the message says why."""


def apply(plan: Plan, by: User | None = None) -> None:
    """Apply the plan in one transaction. Raises ApplyError."""
    if plan.problems:
        raise ApplyError("The file is invalid. Fix the problems first.")
    with authoring.single_version_bump():
        # The change log is locked, so there are no other changes. The tenant's own row is not locked, and is written
        # last: new sessions of the tenant refer to it.
        tenant = Tenant.objects.filter(pk=plan.tenant.pk).first()
        if tenant is None or fingerprint(tenant) != plan.fingerprint:
            raise ApplyError("The tenant has changed since the preview. Preview the changes again, then apply them.")
        # API sources are written before their tools, and deleted after them.
        for step in sorted(plan.steps, key=lambda step: (step.row is None, _is_last(step))):
            try:
                _take(step, tenant, by)
            except RestrictedError as problem:
                raise ApplyError(f"{step.name} is used now. Preview the changes again.") from problem


def _is_last(step: Step) -> bool:
    return step.doing == StepAction.DELETE and isinstance(step.row, Document) and step.row.deleted_last


def _take(step: Step, tenant: Tenant, by: User | None) -> None:
    row = step.row
    if row is None:
        after = dict(step.after or {})
        for name, value in after.items():
            setattr(tenant, name, value)
        tenant.save(update_fields=list(after))
    elif isinstance(row, Document):
        documents.take(step, row, by)
    else:
        upstreams.take(step, row)
