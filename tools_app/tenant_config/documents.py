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
QUOTES = "Use quotes if YAML reads it as another type."


def described_rows(section: DocumentSection, tenant: Tenant) -> dict[str, Row]:
    """Return the rows of a section by name, sorted by name: all fields that differ from their defaults."""
    rows, documents = section.rows_by_name(tenant), section.serializer(context={"tenant": tenant})
    # Databases differ in their sort order.
    return {name: documents.described_row(rows[name]) for name in sorted(rows)}


def hidden_values(tenant: Tenant) -> list[str]:
    """Return what an export leaves out of the rows, in a fixed order."""
    return sorted(
        f"{section.name} {row.name} {field} {value}"
        for section in DOCUMENT_SECTIONS
        if section.serializer.hidden
        for row in section.serializer.rows(tenant)
        for field in section.serializer.hidden
        if (value := getattr(row, field))
    )


def add_steps(plan: Plan, sections: Sections, *, prune: bool) -> None:
    """Add the changes of all sections to a plan, and the problems that prevent them."""
    context: dict[str, Any] = {"tenant": plan.tenant, "rows": {}}
    for section in DOCUMENT_SECTIONS:
        there, wanted = section.rows_by_name(plan.tenant), sections.get(section.name)
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


def take(step: Step, document: Any, by: User | None) -> None:
    """Apply a step, in the transaction of the import. Fields that a file does not have are not written."""
    document.by = by
    if step.doing == StepAction.DELETE:
        document.delete()
    else:
        document.save()


def _add_row(plan: Plan, section: DocumentSection, document: Any) -> None:
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


def _add_others(plan: Plan, section: DocumentSection, documents: Any, there: Mapping[str, Any], *, prune: bool) -> None:
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
    except ValidationError as problem:
        yield from (Problem(path, message) for message in problem.messages)
    if document.is_valid():
        return
    for field, messages in document.errors.items():
        place = path if field in {"non_field_errors", document.key} else (*path, *document.place_of(field))
        for message in messages:
            is_no_text = message == "Not a valid string."
            yield Problem(place, f"{message} {QUOTES}" if is_no_text else str(message))
