"""Changes of resources by operations (PATCH, RFC 7644, section 3.5.2), with what Entra and Okta make of them.

The library applies those of users. Those of groups are applied to the rows: a group may have thousands of members, of
whom an operation names a few.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from scim2_models import Context, InvalidPathException, InvalidValueException, MutabilityException, PatchOp
from scim2_models.path import CompareOperator, Comparison

from tools_app.access.issuers import provisioning
from tools_app.access.issuers.provisioning import GroupValues
from tools_app.api.scim.bounds import MAX_OPERATIONS, MAX_PATH
from tools_app.api.scim.resources import Group, User, ids_of, text
from tools_app.models import DirectoryGroup

# Okta repeats these in the value of an operation without a path; they cannot be changed.
_REPEATED: Final = frozenset({"id", "schemas", "meta"})
_SCHEMA: Final = f"{Group.__schema__}:".lower()


def read(said: Mapping[str, Any], model: type[User | Group]) -> "PatchOp[Any]":
    """Return the operations of a request. Raises SCIMException and pydantic's ValidationError."""
    name = next((name for name in said if name.lower() == "operations"), "Operations")
    sent = said.get(name)
    if not isinstance(sent, list) or not 0 < len(sent) <= MAX_OPERATIONS:
        raise InvalidValueException(detail=f"Operations is a list of 1 to {MAX_OPERATIONS} operations.")
    body = {**said, name: [_without_repeated(one) for one in sent]}
    found: PatchOp[Any] = PatchOp[model].model_validate(  # type: ignore[valid-type] # known at run time
        body, scim_ctx=Context.RESOURCE_PATCH_REQUEST
    )
    return found


def _without_repeated(operation: Any) -> Any:
    if not isinstance(operation, dict):
        return operation
    path = operation.get("path")
    if isinstance(path, str) and len(path) > MAX_PATH:
        raise InvalidPathException(detail=f"A path has at most {MAX_PATH} characters.")
    value = operation.get("value")
    if path or not isinstance(value, dict):
        return operation
    if any(len(name) > MAX_PATH for name in value):
        raise InvalidPathException(detail=f"A path has at most {MAX_PATH} characters.")
    return {**operation, "value": {name: one for name, one in value.items() if name not in _REPEATED}}


def change_group(row: DirectoryGroup, said: "PatchOp[Any]") -> None:
    """Apply operations to a group. Raises SCIMException and what provisioning raises."""
    members = set(row.members.values_list("pk", flat=True))
    names = {"displayname": row.display_name, "externalid": row.external_id}
    for operation in said.operations or ():
        path = str(operation.path or "").lower().removeprefix(_SCHEMA)
        if path:
            wanted = {path: operation.value}
        elif isinstance(operation.value, dict):
            wanted = {name.lower().removeprefix(_SCHEMA): value for name, value in operation.value.items()}
        else:
            raise InvalidValueException(detail="An operation without a path has an object as its value.")
        for name, value in wanted.items():
            if name in names:
                names[name] = _name(name, "" if operation.op == "remove" else value)
            elif name.startswith("members"):
                members = _members(members, operation, name, value)
    provisioning.save_group(
        row,
        GroupValues(display_name=names["displayname"], external_id=names["externalid"], members=members),
    )


def _members(now: set[UUID], operation: Any, name: str, value: Any) -> set[UUID]:
    """Return the members after an operation on them."""
    if name != "members":
        one = _filtered(operation)
        if operation.op != "remove":
            raise MutabilityException(detail="The value of a member cannot be changed. Add and remove members.")
        return now - one
    if value is None and operation.op != "add":
        return set()
    said = ids_of(_values(value))
    match str(operation.op):
        case "add":
            return now | said
        case "remove":
            return now - said
    return said


def _filtered(operation: Any) -> set[UUID]:
    """Return the ID in a path such as members[value eq "..."]."""
    found = operation.path.value_filter if operation.path else None
    if (
        not isinstance(found, Comparison)
        or found.op != CompareOperator.eq
        or found.attr_path.attr.lower() != "value"
        or not str(operation.path).endswith("]")
    ):
        raise InvalidPathException(detail='A path to a member is written as members[value eq "id"].')
    return ids_of([found.value])


def _values(value: Any) -> Iterable[Any]:
    said = value if isinstance(value, list) else [value]
    return [one.get("value") if isinstance(one, dict) else one for one in said]


def _name(name: str, value: Any) -> str:
    return text(value, name, required=name == "displayname")
