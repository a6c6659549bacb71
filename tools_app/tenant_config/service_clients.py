"""Service clients in a tenant's file: described, planned, validated and applied.

A file never contains a secret. A client that signs is described whole, because its keys are public. A client that has a
secret can only be changed by a file: it is created in the admin or the REST API, which show its secret once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from tools_app.identity.oauth import key_sets, service_clients
from tools_app.identity.oauth import service_client_changes as recorded
from tools_app.models import ServiceClient, Tenant, Toolset
from tools_app.tenant_config.document import Problem
from tools_app.tenant_config.fields import CLIENT_FIELDS, SERVICE_CLIENTS, Row, default_of
from tools_app.tenant_config.reader import Path
from tools_app.tenant_config.steps import Plan, Step, StepAction
from tools_app.tenants import keys

WORD: Final = "service client"
# Fields of the file that are no columns with the same value.
OTHERS: Final = frozenset({"public_keys", "expires_at", "toolset"})
COLUMNS: Final = tuple(name for name in CLIENT_FIELDS if name not in OTHERS)
KEYS_NOT_ALLOWED: Final = "this client has a secret and no keys. Remove the field, or use another name."
KEYS_MISSING: Final = "this client signs its requests: its public keys are missing. Write them, or use another name."
SEVERAL: Final = "several service clients have this name. Rename all but one in the admin first."
BAD_TIME: Final = "must be a time with its offset from UTC, such as '2030-01-31T12:00:00+00:00'."


def described_rows(tenant: Tenant) -> dict[str, Row]:
    """Return the service clients that are not revoked by name, sorted by name, without those that share a name."""
    rows, _ = _by_name(tenant)
    return {name: _described(rows[name]) for name in sorted(rows)}


def shared_names(tenant: Tenant) -> list[str]:
    """Return the names that several service clients have, which a file can therefore not describe."""
    return _by_name(tenant)[1]


def add_steps(plan: Plan, sections: Mapping[str, Mapping[str, Row] | None], *, prune: bool) -> None:
    """Add the changes of service clients to a plan, and the problems that prevent them."""
    wanted = sections.get(SERVICE_CLIENTS)
    if wanted is None:
        return
    there, shared = _by_name(plan.tenant)
    toolsets = _toolsets(plan.tenant, sections.get("toolsets"), prune=prune)
    for name, row in wanted.items():
        path = (SERVICE_CLIENTS, name)
        if name in shared:
            plan.problems.append(Problem(path, SEVERAL))
            continue
        faults = list(_faults(plan.tenant, name, row, toolsets))
        plan.problems.extend(faults)
        if not faults:
            _add(plan, name, row, there.pop(name, None))
        else:
            there.pop(name, None)
    for name in sorted(there):
        if prune:
            plan.steps.append(Step(StepAction.DELETE, WORD, name, _described(there[name]), None, there[name]))
        else:
            plan.kept.append(f"{WORD} {name}")
    plan.kept.extend(f"{WORD} {name}" for name in shared if name not in wanted)


def take(step: Step, row: ServiceClient, by: User | None) -> None:
    """Apply a step to its client, in the transaction of the import. One that the file no longer has is revoked."""
    if step.doing == StepAction.DELETE:
        recorded.revoke(row)
        return
    after = step.after or {}
    named = after.get("toolset")
    toolset = Toolset.objects.get(tenant=row.tenant_id, name=named) if named else None
    if step.doing == StepAction.CREATE:
        service_clients.create(
            row.tenant,
            row.name,
            public_keys=after["public_keys"],
            expires_at=row.expires_at,
            created_by=by,
            **{**{name: getattr(row, name) for name in keys.SETTINGS}, "toolset": toolset},
        )
        return
    row.toolset = toolset
    before = step.before or {}
    changed = [name for name in CLIENT_FIELDS if before.get(name) != after.get(name)]
    if columns := [name for name in changed if name != "public_keys"]:
        row.save(update_fields=columns)
    if "public_keys" in changed:
        recorded.replace_keys(row, after["public_keys"])


def _add(plan: Plan, name: str, row: Row, old: ServiceClient | None) -> None:
    """Add the change of one valid row to a plan."""
    path = (SERVICE_CLIENTS, name)
    if old is None and "public_keys" not in row:
        plan.missing_service_clients.append(name)
        return
    before = _described(old) if old is not None else None
    if before is not None and ("public_keys" in before) != ("public_keys" in row):
        is_signer = "public_keys" in before
        plan.problems.append(Problem((*path, "public_keys"), KEYS_MISSING if is_signer else KEYS_NOT_ALLOWED))
        return
    into = old if old is not None else ServiceClient(tenant=plan.tenant, name=name)
    _write(row, into)
    after = {**_columns(into), **_other_fields(row)}
    if before == after:
        plan.unchanged += 1
    else:
        plan.steps.append(
            Step(StepAction.CREATE if old is None else StepAction.CHANGE, WORD, name, before, after, into)
        )


def _by_name(tenant: Tenant) -> tuple[dict[str, ServiceClient], list[str]]:
    """Return the clients that are not revoked by name, and the names that several of them have."""
    rows = ServiceClient.objects.filter(
        tenant=tenant, connection__isnull=False, connection__person=None, connection__client__source="service"
    )
    found = list(rows.filter(revoked_at=None).select_related("tenant", "toolset", "connection__client"))
    count = Counter(row.name for row in found)
    return {row.name: row for row in found if count[row.name] == 1}, sorted(n for n, many in count.items() if many > 1)


def _toolsets(tenant: Tenant, wanted: Mapping[str, Row] | None, *, prune: bool) -> set[str]:
    """Return the names of the toolsets that the tenant will have."""
    if wanted is not None and prune:
        return set(wanted)
    return set(Toolset.objects.filter(tenant=tenant).values_list("name", flat=True)).union(wanted or ())


def _described(row: ServiceClient) -> Row:
    """Return a client as a file describes it: the fields that differ from their defaults, its keys last."""
    described: dict[str, Any] = dict(_columns(row))
    if row.toolset is not None:
        described["toolset"] = row.toolset.name
    if row.expires_at is not None:
        described["expires_at"] = row.expires_at.astimezone(UTC).isoformat()
    if row.connection.client.jwks:
        described["public_keys"] = row.connection.client.jwks
    return described


def _columns(row: ServiceClient) -> Row:
    values = {name: getattr(row, name) for name in COLUMNS}
    return {name: value for name, value in values.items() if value != default_of(ServiceClient, name)}


def _other_fields(row: Row) -> Row:
    """Return the fields of a valid row that are no columns, in their one form."""
    values: dict[str, Any] = {}
    if row.get("toolset"):
        values["toolset"] = row["toolset"]
    if row.get("expires_at"):
        values["expires_at"] = _time(row["expires_at"]).isoformat()
    if "public_keys" in row:
        values["public_keys"] = key_sets.checked(row["public_keys"])
    return values


def _write(row: Row, into: ServiceClient) -> None:
    """Write the columns of a row; fields that are left out get their defaults. Does not save."""
    for name in COLUMNS:
        setattr(into, name, row[name] if name in row else default_of(ServiceClient, name))
    into.expires_at = _time(row["expires_at"]) if row.get("expires_at") else None


def _time(text: str) -> datetime:
    """Return a time in UTC. Raises ValueError or OverflowError."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError
    return found.astimezone(UTC)


def _faults(tenant: Tenant, name: str, row: Row, toolsets: set[str]) -> Iterator[Problem]:
    path: Path = (SERVICE_CLIENTS, name)
    try:
        _time(row["expires_at"]) if row.get("expires_at") else None
    except (ValueError, OverflowError):
        yield Problem((*path, "expires_at"), BAD_TIME)
        return
    built = ServiceClient(tenant=tenant, name=name)
    _write(row, built)
    checked = {"name", "expires_at", *COLUMNS}
    try:
        built.clean_fields(exclude={field.name for field in built._meta.concrete_fields} - checked)
    except ValidationError as problem:
        for field, messages in problem.message_dict.items():
            place = path if field == "name" else (*path, field)
            yield from (Problem(place, message) for message in messages)
    if row.get("toolset") and row["toolset"] not in toolsets:
        yield Problem((*path, "toolset"), f"there is no toolset with the name {row['toolset']!r}.")
    if "public_keys" in row:
        try:
            key_sets.checked(row["public_keys"])
        except ValidationError as problem:
            yield from (Problem((*path, "public_keys"), message) for message in problem.messages)
