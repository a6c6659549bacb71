"""The changes that would make a tenant match a file, the problems that prevent them, and their application."""

from collections.abc import Iterator, Mapping
from copy import copy
from hashlib import sha256
from typing import Final

import orjson
from django.contrib.auth.models import User
from django.db.models import RestrictedError

from tools_app.catalog import authoring
from tools_app.catalog.kinds.openapi.sources.settings import save_source
from tools_app.catalog.toolsets import why_not_deleted
from tools_app.core.documents import Document
from tools_app.models import ApiSource, Prompt, Resource, Tenant, Tool, Toolset, Upstream
from tools_app.tenant_config import builder, documents, upstreams
from tools_app.tenant_config.document import Configuration, Problem
from tools_app.tenant_config.export import described, described_row, own_rows, settings_of
from tools_app.tenant_config.fields import SECTIONS, Offer, Plain, Row, Section
from tools_app.tenant_config.steps import Plan, Step, StepAction
from tools_app.tenants import permissions

SETTINGS: Final = "settings"
OF_AN_UPSTREAM: Final = "an upstream offers this name. Give the row another name, or the upstream another prefix."
SUPERUSER_SETTINGS: Final = "only superusers can change this. Remove the line, or ask a superuser to apply the file."


def plan(tenant: Tenant, configuration: Configuration, by: permissions.Person | None, *, prune: bool = False) -> Plan:
    """Plan the changes to `tenant`. `by` is the person who asks; None for the command line, which may do anything.

    With `prune`, rows that the sections of the file do not name are deleted; otherwise they are kept.
    """
    planned = Plan(tenant, fingerprint(tenant))
    _plan_settings(planned, configuration, by)
    users: dict[str, list[str]] = {name: [] for name in configuration.secrets or ()}
    sources = {source.name: source for source in tenant.api_sources.all()}
    for section in SECTIONS:
        wanted = configuration.sections.get(section.name)
        if wanted is not None:
            for user, names in _plan_section(planned, section, wanted, sources, prune=prune).items():
                for name in names:
                    users.setdefault(name, []).append(user)
    documents.add_steps(planned, configuration.sections, prune=prune)
    there = set(tenant.secrets.values_list("name", flat=True))
    planned.missing_secrets.update({name: users[name] for name in sorted(users.keys() - there)})
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


def _plan_section(
    planned: Plan, section: Section, wanted: Mapping[str, Row], sources: dict[str, ApiSource], *, prune: bool
) -> dict[str, set[str]]:
    """Plan the rows of a section. Return the names of the secrets of each row. New sources are added to `sources`."""
    rows = section.model._default_manager.filter(tenant=planned.tenant)
    described_ones = own_rows(section, rows)
    there: dict[str, Offer] = {getattr(row, section.key): row for row in described_ones}
    foreign = set(rows.exclude(pk__in=described_ones).values_list(section.key, flat=True))
    planned.problems.extend(
        Problem((section.name, name), OF_AN_UPSTREAM) for name in sorted(foreign.intersection(wanted))
    )
    secrets: dict[str, set[str]] = {}
    for name, row in wanted.items():
        old = there.pop(name, None)
        before = described_row(section, old) if old is not None else None
        new = builder.build(section, name, row, old or section.model(tenant=planned.tenant), sources)
        if isinstance(new, ApiSource):
            sources[name] = new
        faults = list(builder.faults_of(section, new, (section.name, name)))
        planned.problems.extend(faults)
        secrets[f"{section.word} {name}"] = builder.secrets_named_by(new)
        after = row if faults else described_row(section, new)
        planned.steps.extend(_steps(section, name, before, after, new))
    planned.unchanged += len(wanted) - sum(step.kind == section.word for step in planned.steps)
    _leave_or_delete(planned, section, there, prune=prune)
    if len(wanted) + (0 if prune else len(there)) > section.most:
        plural = section.model._meta.verbose_name_plural
        planned.problems.append(
            Problem((section.name,), f"A tenant has at most {section.most} {plural}. Delete one first.")
        )
    return secrets


def _steps(section: Section, name: str, before: Row | None, after: Row, row: Offer) -> Iterator[Step]:
    if before != after:
        yield Step(StepAction.CREATE if before is None else StepAction.CHANGE, section.word, name, before, after, row)


def _leave_or_delete(planned: Plan, section: Section, rest: dict[str, Offer], *, prune: bool) -> None:
    for name in sorted(rest):
        if prune:
            if isinstance(row := rest[name], Toolset) and (problem := why_not_deleted(row)):
                planned.problems.append(Problem((section.name, name), problem))
            gone = described_row(section, rest[name])
            planned.steps.append(Step(StepAction.DELETE, section.word, name, gone, None, rest[name]))
        else:
            planned.kept.append(f"{section.word} {name}")


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
        # Sources are written before their tools, and deleted after them.
        for step in sorted(plan.steps, key=lambda step: (step.row is None, _deletes_source(step))):
            try:
                _take(step, tenant, by)
            except RestrictedError as problem:
                raise ApplyError(f"{step.name} is used now. Preview the changes again.") from problem


def _deletes_source(step: Step) -> bool:
    return step.doing == StepAction.DELETE and isinstance(step.row, ApiSource)


def _take(step: Step, tenant: Tenant, by: User | None) -> None:
    row = step.row
    if row is None:
        _write_settings(step, tenant)
    elif isinstance(row, Document):
        documents.take(step, row, by)
    elif isinstance(row, Upstream):
        upstreams.take(step, row)
    elif isinstance(row, Plain):
        _write(step, row)
    elif step.doing == StepAction.DELETE:
        authoring.delete(row)
    else:
        _save(row, by)


def _save(row: ApiSource | Tool | Resource | Prompt, by: User | None) -> None:
    if isinstance(row, ApiSource):
        save_source(row)
    elif isinstance(row, Tool):
        authoring.save_tool(row, by)
    elif isinstance(row, Resource):
        authoring.save_resource(row)
    else:
        authoring.save_prompt(row)


def _write(step: Step, row: Plain) -> None:
    if step.doing == StepAction.DELETE:
        row.delete()
    else:
        row.save()


def _write_settings(step: Step, tenant: Tenant) -> None:
    after = dict(step.after or {})
    for name, value in after.items():
        setattr(tenant, name, value)
    tenant.save(update_fields=list(after))
