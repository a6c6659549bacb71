"""Alert destinations and rules in a tenant's file: described, planned, validated and applied.

The URL of a webhook is never exported, because its path is often a credential, nor is its signing secret. A file may
contain the URL all the same; without it, that of an existing destination is kept.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError

from tools_app.alerts import destinations
from tools_app.core.urls import split_url
from tools_app.models import AlertDestination, AlertRule, DestinationKind, Tenant
from tools_app.tenant_config.document import Problem
from tools_app.tenant_config.fields import ALERT_SECTIONS, DESTINATIONS, RULES, AlertSection, Row, default_of
from tools_app.tenant_config.reader import Path
from tools_app.tenant_config.steps import Plan, Step, StepAction

AlertRow = AlertDestination | AlertRule
Sections = Mapping[str, Mapping[str, Row] | None]

FIXED: Final = "this cannot be changed. Use another name."
# Not columns that a file describes.
OTHERS: Final = frozenset({"url", "destinations"})


def described_rows(section: AlertSection, tenant: Tenant) -> dict[str, Row]:
    """Return the rows of a section by name, sorted by name: all fields that differ from their defaults."""
    rows = _rows(section, tenant)
    return {name: _described(section, rows[name], _recipients(rows[name])) for name in sorted(rows)}


def urls_of(tenant: Tenant) -> list[str]:
    """Return the URLs of a tenant's webhooks, in a fixed order."""
    rows = tenant.alert_destinations.exclude(url="")
    return sorted(f"{name} {url}" for name, url in rows.values_list("name", "url"))


def add_steps(plan: Plan, sections: Sections, *, prune: bool) -> None:
    """Add the changes of destinations and rules to a plan, and the problems that prevent them."""
    names = {row.name for row in _rows(DESTINATIONS, plan.tenant).values()}
    wanted = sections.get(DESTINATIONS.name)
    if wanted is not None:
        names = set(wanted) if prune else names | set(wanted)
    for section in ALERT_SECTIONS:
        rows = sections.get(section.name)
        if rows is not None:
            _add_section(plan, section, rows, prune=prune)
    for name, rule in (sections.get(RULES.name) or {}).items():
        unknown = sorted(set(rule.get("destinations", ())) - names)
        if unknown:
            message = f"there is no alert destination with the name {', '.join(map(repr, unknown))}."
            plan.problems.append(Problem((RULES.name, name, "destinations"), message))


def take(step: Step, row: AlertRow) -> None:
    """Apply a step to its row, in the transaction of the import. A new webhook gets its signing secret."""
    if step.doing == StepAction.DELETE:
        row.delete()
        return
    if step.doing == StepAction.CREATE:
        if isinstance(row, AlertDestination) and row.kind == DestinationKind.WEBHOOK:
            destinations.add_secret(row)
        row.save()
    else:
        # Not its secret, which may have been rotated since the plan was made.
        row.save(update_fields=_written(row))
    if isinstance(row, AlertRule):
        names = (step.after or {}).get("destinations", [])
        destinations.set_recipients(row, list(AlertDestination.objects.filter(tenant=row.tenant_id, name__in=names)))


def _written(row: AlertRow) -> list[str]:
    if isinstance(row, AlertDestination):
        return [*DESTINATIONS.fields, "disabled_reason"]
    return [name for name in RULES.fields if name not in OTHERS]


def _rows(section: AlertSection, tenant: Tenant) -> dict[str, AlertRow]:
    if section is RULES:
        return {rule.name: rule for rule in AlertRule.objects.filter(tenant=tenant).prefetch_related("destinations")}
    return {row.name: row for row in AlertDestination.objects.filter(tenant=tenant)}


def _recipients(row: AlertRow) -> list[str]:
    return sorted(one.name for one in row.destinations.all()) if isinstance(row, AlertRule) else []


def _described(section: AlertSection, row: AlertRow, recipients: list[str]) -> Row:
    fields = {name: getattr(row, name) for name in section.fields if name not in OTHERS}
    changed = {name: value for name, value in fields.items() if value != default_of(section.model, name)}
    return {**changed, "destinations": recipients} if recipients else changed


def _add_section(plan: Plan, section: AlertSection, wanted: Mapping[str, Row], *, prune: bool) -> None:
    there = _rows(section, plan.tenant)
    for name, row in wanted.items():
        step = _step(plan, section, name, row, there.pop(name, None))
        if step is None:
            plan.unchanged += 1
        else:
            plan.steps.append(step)
    for name in sorted(there):
        if prune:
            gone = _described(section, there[name], _recipients(there[name]))
            plan.steps.append(Step(StepAction.DELETE, section.word, name, gone, None, there[name]))
        else:
            plan.kept.append(f"{section.word} {name}")
    if not prune and len(wanted) + len(there) > section.max_rows:
        message = f"A tenant has at most {section.max_rows} {section.word}s. Delete one first."
        plan.problems.append(Problem((section.name,), message))


def _step(plan: Plan, section: AlertSection, name: str, row: Row, old: AlertRow | None) -> Step | None:
    """Return the change of one row, None if it is as the file wants it; add its problems to the plan."""
    before = _described(section, old, _recipients(old)) if old is not None else None
    former_url = old.url if isinstance(old, AlertDestination) else ""
    path = (section.name, name)
    if old is not None and row["kind"] != old.kind:
        plan.problems.append(Problem((*path, "kind"), FIXED))
        return None
    new = _built(section, name, row, old if old is not None else section.model(tenant=plan.tenant))
    plan.problems.extend(_faults(section, new, path))
    after = _described(section, new, sorted(set(row.get("destinations", ()))))
    if isinstance(new, AlertDestination) and new.kind == DestinationKind.WEBHOOK:
        if not new.url:
            plan.missing_urls.append(name)
        if old is None:
            plan.new_webhooks.append(name)
        if new.url != former_url:
            after = {**after, "url": f"{_origin(new.url)} (new)"}
            before = {**before, "url": _origin(former_url)} if before is not None else None
    if before == after:
        return None
    return Step(StepAction.CREATE if old is None else StepAction.CHANGE, section.word, name, before, after, new)


def _built(section: AlertSection, name: str, row: Row, into: AlertRow) -> AlertRow:
    """Write a row of the file into a model instance; fields that are left out get their defaults. Does not save it."""
    into.name = name
    for field in section.fields:
        if field not in OTHERS:
            setattr(into, field, row[field] if field in row else default_of(section.model, field))
    if isinstance(into, AlertDestination):
        into.url = str(row.get("url") or into.url)
        if into.enabled:
            into.disabled_reason = ""
    return into


def _faults(section: AlertSection, row: AlertRow, path: Path) -> Iterator[Problem]:
    faults: dict[str, list[str]] = {}
    checked = {"name", *section.fields}
    try:
        row.clean_fields(exclude={field.name for field in row._meta.concrete_fields} - checked)
    except ValidationError as problem:
        faults |= problem.message_dict
    for check in (_check_destination,) if isinstance(row, AlertDestination) else (_check_rule,):
        try:
            check(row)
        except ValidationError as problem:
            faults = {**problem.message_dict, **faults}
    for field, messages in faults.items():
        place = path if field == "name" else (*path, field)
        yield from (Problem(place, message) for message in messages)


def _check_rule(row: Any) -> None:
    row.clean()


def _check_destination(row: Any) -> None:
    if row.kind == DestinationKind.WEBHOOK and row.email:
        raise ValidationError({"email": "Webhooks have no e-mail address. Remove the field."})
    if row.kind == DestinationKind.EMAIL and row.url:
        raise ValidationError({"url": "E-mail destinations have no URL. Remove the field."})
    if row.kind == DestinationKind.EMAIL or row.url:
        row.clean()
        destinations.check_url(row)


def _origin(url: str) -> str:
    """Return a URL without its path, which is often a credential."""
    parts = split_url(url) if url else None
    return f"{parts.scheme}://{parts.netloc}/…" if parts else ""
