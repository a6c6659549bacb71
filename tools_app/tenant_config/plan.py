"""The changes that would make a tenant match a file, the problems that prevent them, and their application."""

from collections.abc import Iterator, Mapping
from copy import copy
from hashlib import sha256
from typing import Any, Final

import orjson
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import RestrictedError

from tools_app.catalog import authoring
from tools_app.models import Tenant
from tools_app.tenant_config.document import TENANT_FIELDS, Configuration, Problem
from tools_app.tenant_config.export import described, settings_of
from tools_app.tenant_config.reader import Path
from tools_app.tenant_config.sections import SECTIONS, Section
from tools_app.tenant_config.steps import Plan, Step, StepAction
from tools_app.tenants import permissions

SETTINGS: Final = "settings"
QUOTES: Final = "Use quotes if YAML reads it as another type."
SUPERUSER_SETTINGS: Final = "only superusers can change this. Remove the line, or ask a superuser to apply the file."


def plan(tenant: Tenant, configuration: Configuration, by: permissions.Person | None, *, prune: bool = False) -> Plan:
    """Plan the changes to `tenant`. `by` is the person who asks; None for the command line, which may do anything.

    With `prune`, rows that the sections of the file do not name are deleted; otherwise they are kept.
    """
    planned = Plan(tenant, fingerprint(tenant))
    _plan_settings(planned, configuration, by)
    users = planned.missing_secrets = {name: [] for name in configuration.secrets or ()}
    _plan_rows(planned, configuration, prune=prune)
    there = set(tenant.secrets.values_list("name", flat=True))
    planned.missing_secrets = {name: users[name] for name in sorted(users.keys() - there)}
    return planned


def fingerprint(tenant: Tenant) -> str:
    """Return a hash of the tenant's configuration, with what a file does not contain but may change.

    It writes no file, which may have thousands of tools.
    """
    hidden = sorted(
        f"{section.name} {row.name} {field} {value}"
        for section in SECTIONS
        if section.serializer.hidden
        for row in section.serializer.rows(tenant)
        for field in section.serializer.hidden
        if (value := getattr(row, field))
    )
    return sha256(orjson.dumps([described(tenant), hidden], default=bytes.hex)).hexdigest()


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
    try:
        changed.clean_fields(exclude={field.name for field in changed._meta.concrete_fields} - {*TENANT_FIELDS})
    except ValidationError as error:
        for field, messages in error.message_dict.items():
            planned.problems.extend(Problem(("tenant", field), message) for message in messages)
    values_before = {name: before[name] for name in after}
    planned.steps.append(Step(StepAction.CHANGE, SETTINGS, planned.tenant.slug, values_before, after))


def _plan_rows(plan: Plan, configuration: Configuration, *, prune: bool) -> None:
    """Add the changes of all sections to a plan, and the problems that prevent them."""
    context: dict[str, Any] = {"tenant": plan.tenant, "rows": {}}
    for section in SECTIONS:
        there, wanted = section.rows(plan.tenant), configuration.sections.get(section.name)
        context["rows"][section.name] = rows = {} if prune and wanted is not None else dict(there)
        if wanted is None:
            continue
        taken = section.serializer.taken_names(plan.tenant, wanted.keys() - there.keys())
        plan.problems.extend(Problem((section.name, name), why) for name, why in sorted(taken))
        documents = section.serializer(context={**context, "others": []})
        for name, row in wanted.items():
            document = documents.of_row(name, there.pop(name, None), row)
            _add_row(plan, section, document)
            rows[name] = document.row or section.serializer.Meta.model(tenant=plan.tenant)
        _add_others(plan, section, documents, there, prune=prune)
        plan.kept.extend(f"{section.word} {name}" for name in section.serializer.left_out(plan.tenant))
        if not prune and len(wanted) + len(there) > section.most:
            message = f"A tenant has at most {section.most} {section.words}. Delete one first."
            plan.problems.append(Problem((section.name,), message))


def _add_row(plan: Plan, section: Section, document: Any) -> None:
    """Add the change of one row, if it is not as the file wants it, or its problems."""
    name, old = document.row_name, document.instance
    problems = list(_problems(document, (section.name, name)))
    if problems:
        plan.problems.extend(problems)
        return
    document.context["others"].append(document)
    document.note(plan)
    if not document.can_apply():
        return
    former, latter = document.hidden_changes()
    before = {**document.described_row(old), **former} if old is not None else None
    after = {**document.described(), **latter}
    if before == after:
        plan.unchanged += 1
    else:
        doing = StepAction.CREATE if old is None else StepAction.CHANGE
        plan.steps.append(Step(doing, section.word, name, before, after, document))


def _add_others(plan: Plan, section: Section, documents: Any, there: Mapping[str, Any], *, prune: bool) -> None:
    """Add the rows that the file does not name: deleted, or kept."""
    for name in sorted(there):
        if not prune:
            plan.kept.append(f"{section.word} {name}")
            continue
        document = documents.of_row(name, there[name], None)
        if why := document.why_not_deleted():
            plan.problems.append(Problem((section.name, name), why))
        before = documents.described_row(there[name])
        plan.steps.append(Step(StepAction.DELETE, section.word, name, before, None, document))


def _problems(document: Any, path: Path) -> Iterator[Problem]:
    """Yield the problems of a row's name and of its fields."""
    try:
        document.Meta.model._meta.get_field(document.key).clean(document.row_name, None)
    except ValidationError as error:
        yield from (Problem(path, message) for message in error.messages)
    if document.is_valid():
        return
    for field, messages in document.errors.items():
        place = path if field in {"non_field_errors", document.key} else (*path, *document.place_of(field))
        for message in messages:
            is_no_text = message == "Not a valid string."
            yield Problem(place, f"{message} {QUOTES}" if is_no_text else str(message))


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
        for step in sorted(plan.steps, key=lambda step: (step.document is None, _is_last(step))):
            try:
                if step.document is None:
                    after = dict(step.after or {})
                    for name, value in after.items():
                        setattr(tenant, name, value)
                    tenant.save(update_fields=list(after))
                    continue
                # Fields that a file does not have are not written.
                step.document.by = by
                if step.doing == StepAction.DELETE:
                    step.document.delete()
                else:
                    step.document.save()
            except RestrictedError as error:
                raise ApplyError(f"{step.name} is used now. Preview the changes again.") from error


def _is_last(step: Step) -> bool:
    return step.doing == StepAction.DELETE and step.document is not None and step.document.deleted_last
