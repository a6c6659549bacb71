"""Sections of a tenant's file whose rows are read and written by serializers, with the fields of the REST API.

A feature declares its serializers (`core.documents.Document`), and `fields` lists the sections.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from tools_app.models import Tenant
from tools_app.tenant_config.document import Problem
from tools_app.tenant_config.fields import DOCUMENT_SECTIONS, DocumentSection, Row
from tools_app.tenant_config.reader import Path
from tools_app.tenant_config.steps import Plan, Step, StepAction

Sections = Mapping[str, Mapping[str, Row] | None]


def described_rows(section: DocumentSection, tenant: Tenant) -> dict[str, Row]:
    """Return the rows of a section by name, sorted by name: all fields that differ from their defaults."""
    rows, serializer = _rows(section, tenant), section.serializer(context={"tenant": tenant})
    return {name: _described(serializer, rows[name]) for name in sorted(rows)}


def hidden_values(tenant: Tenant) -> list[str]:
    """Return what an export leaves out of the rows, in a fixed order."""
    return sorted(
        f"{section.name} {row.name} {field} {value}"
        for section in DOCUMENT_SECTIONS
        for row in section.serializer.rows(tenant)
        for field in section.serializer.hidden
        if (value := getattr(row, field))
    )


def add_steps(plan: Plan, sections: Sections, *, prune: bool) -> None:
    """Add the changes of all sections to a plan, and the problems that prevent them."""
    toolsets = sections.get("toolsets")
    kept = set() if prune and toolsets is not None else set(plan.tenant.toolsets.values_list("name", flat=True))
    names: dict[str, set[str]] = {"toolsets": kept.union(toolsets or ())}
    for section in DOCUMENT_SECTIONS:
        there, wanted = _rows(section, plan.tenant), sections.get(section.name)
        names[section.name] = set(there) | set(wanted or ())
        if wanted is None:
            continue
        if prune:
            names[section.name] = set(wanted)
        context = {"tenant": plan.tenant, "names": names, "others": []}
        for name, row in wanted.items():
            _add_row(plan, section, row, there.pop(name, None), {**context, "name": name})
        _add_others(plan, section, there, prune=prune)
        plan.kept.extend(f"{section.word} {name}" for name in section.serializer.left_out(plan.tenant))
        if not prune and len(wanted) + len(there) > section.most:
            message = f"A tenant has at most {section.most} {section.words}. Delete one first."
            plan.problems.append(Problem((section.name,), message))


def take(step: Step, document: Any, by: User | None) -> None:
    """Apply a step, in the transaction of the import. Fields that a file does not have are not written."""
    document.context["by"] = by
    if step.doing == StepAction.DELETE:
        document.delete()
    else:
        document.save()


def _rows(section: DocumentSection, tenant: Tenant) -> dict[str, Any]:
    return {getattr(row, section.serializer.key): row for row in section.serializer.rows(tenant)}


def _described(serializer: Any, row: Any) -> Row:
    unusual: Row = serializer.unusual(serializer.to_representation(row))
    return unusual


def _add_row(plan: Plan, section: DocumentSection, row: Row, old: Any, context: dict[str, Any]) -> None:
    """Add the change of one row, if it is not as the file wants it, or its problems."""
    name = context["name"]
    document = section.serializer(old, data=row, context=context)
    problems = [*_problems_of_name(section, name), *_problems(document, (section.name, name))]
    if problems:
        plan.problems.extend(problems)
        return
    context["others"].append(document)
    document.note(plan)
    if not document.can_apply():
        return
    former, latter = document.hidden_changes()
    before = {**_described(document, old), **former} if old is not None else None
    after = {**document.described(), **latter}
    if before == after:
        plan.unchanged += 1
    else:
        doing = StepAction.CREATE if old is None else StepAction.CHANGE
        plan.steps.append(Step(doing, section.word, name, before, after, document))


def _add_others(plan: Plan, section: DocumentSection, there: Mapping[str, Any], *, prune: bool) -> None:
    """Add the rows that the file does not name: deleted, or kept."""
    for name in sorted(there):
        if prune:
            document = section.serializer(there[name], context={"tenant": plan.tenant})
            before = _described(document, there[name])
            plan.steps.append(Step(StepAction.DELETE, section.word, name, before, None, document))
        else:
            plan.kept.append(f"{section.word} {name}")


def _problems_of_name(section: DocumentSection, name: str) -> Iterator[Problem]:
    field = section.serializer.Meta.model._meta.get_field(section.serializer.key)
    try:
        field.clean(name, None)
    except ValidationError as problem:
        yield from (Problem((section.name, name), message) for message in problem.messages)


def _problems(document: Any, path: Path) -> Iterator[Problem]:
    if document.is_valid():
        return
    for field, messages in document.errors.items():
        place = path if field in {"non_field_errors", document.key} else (*path, field)
        yield from (Problem(place, str(message)) for message in messages)
