"""Changes of resources by operations (PATCH, RFC 7644, section 3.5.2), with what Entra and Okta make of them.

The library applies those of users. Those of groups are applied to the rows: a group may have thousands of members, of
whom an operation names a few.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from scim2_models import Context, InvalidPathException, InvalidValueException, MutabilityException, PatchOp
from scim2_models.path import CompareOperator, Comparison

from tools_app.core.sanitize import is_storable
from tools_app.identity.models.issuers import MAX_EMAILS
from tools_app.identity.people import provisioning
from tools_app.identity.people.provisioning import GroupValues
from tools_app.identity.scim.bounds import MAX_OPERATIONS, MAX_PATH, MAX_USER_OPERATIONS
from tools_app.identity.scim.resources import Group, User, check_values, ids_of, text
from tools_app.models import DirectoryGroup

# Okta repeats these in the value of an operation without a path; they cannot be changed.
_REPEATED: Final = frozenset({"id", "schemas", "meta"})
_TEXTS: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_SCHEMA: Final = f"{Group.__schema__}:".lower()


def read(patch: Mapping[str, Any], model: type[User | Group]) -> "PatchOp[Any]":
    """Return the operations of a request. Raises SCIMException and pydantic's ValidationError."""
    name = next((name for name in patch if name.lower() == "operations"), "Operations")
    sent = patch.get(name)
    if not isinstance(sent, list) or not 0 < len(sent) <= MAX_OPERATIONS:
        raise InvalidValueException(detail=f"Operations is a list of 1 to {MAX_OPERATIONS} operations.")
    if model is User and len(sent) > MAX_USER_OPERATIONS:
        raise InvalidValueException(detail=f"A user is changed by at most {MAX_USER_OPERATIONS} operations at a time.")
    for one in sent:
        _check_lists(one, MAX_EMAILS if model is User else provisioning.MAX_MEMBERS)
    body = {**patch, name: [_without_repeated(one) for one in sent]}
    found: PatchOp[Any] = PatchOp[model].model_validate(  # type: ignore[valid-type] # known at run time
        body, scim_ctx=Context.RESOURCE_PATCH_REQUEST
    )
    return found


def _without_repeated(operation: Any) -> Any:
    if not isinstance(operation, dict):
        return operation
    path = operation.get("path")
    if isinstance(path, str):
        _check_path(path)
    value = operation.get("value")
    if path or not isinstance(value, dict):
        return operation
    for name in value:
        _check_path(name)
    return {**operation, "value": {name: one for name, one in value.items() if name not in _REPEATED}}


def _check_path(path: str) -> None:
    if len(path) > MAX_PATH:
        raise InvalidPathException(detail=f"A path has at most {MAX_PATH} characters.")
    # Texts in it are JSON, with escapes.
    with suppress(ValueError):
        if not all(is_storable(json.loads(text)) for text in _TEXTS.findall(path)):
            raise InvalidPathException(detail="Texts in a path cannot contain U+0000 or halves of characters.")


def _check_lists(value: Any, most: int) -> None:
    """Refuse lists of more values than any attribute has. Raises InvalidValueException."""
    if isinstance(value, list) and len(value) > most:
        raise InvalidValueException(detail=f"A list of values has at most {most}.")
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            _check_lists(one, most)


def change_user(resource: User, patch: "PatchOp[Any]") -> None:
    """Apply operations to a user, which is within its bounds after each of them. Raises SCIMException."""
    for operation in patch.operations or ():
        patch.model_copy(update={"operations": [operation]}).patch(resource)
        check_values(resource)


def group_values(row: DirectoryGroup, patch: "PatchOp[Any]") -> GroupValues:
    """Return what operations make of a group. Raises SCIMException and TooMany."""
    members = set(row.members.values_list("pk", flat=True))
    names, is_named = {"displayname": row.display_name, "externalid": row.external_id}, False
    for operation in patch.operations or ():
        path = str(operation.path or "").lower().removeprefix(_SCHEMA)
        if path:
            wanted = {path: operation.value}
        elif isinstance(operation.value, dict):
            wanted = {name.lower().removeprefix(_SCHEMA): value for name, value in operation.value.items()}
        else:
            raise InvalidValueException(detail="An operation without a path has an object as its value.")
        for name, value in wanted.items():
            if name in names:
                is_named = True
                said = "" if operation.op == "remove" else value
                names[name] = text(said, name, required=name == "displayname")
            elif name.startswith("members"):
                members = _members(members, operation, name, value)
                if len(members) > provisioning.MAX_MEMBERS:
                    raise provisioning.TooMany(f"A group has at most {provisioning.MAX_MEMBERS} members.")
    return GroupValues(names["displayname"], names["externalid"], members, names=is_named)


def _members(now: set[UUID], operation: Any, name: str, value: Any) -> set[UUID]:
    """Return the members after an operation on them."""
    if name != "members":
        path = operation.path
        found = path.value_filter if path else None
        if (
            not isinstance(found, Comparison)
            or found.op != CompareOperator.eq
            or found.attr_path.attr.lower() != "value"
            or not str(path).endswith("]")
        ):
            raise InvalidPathException(detail='A path to a member is written as members[value eq "id"].')
        if operation.op != "remove":
            raise MutabilityException(detail="The value of a member cannot be changed. Add and remove members.")
        return now - ids_of([found.value])
    if value is None and operation.op != "add":
        return set()
    values = value if isinstance(value, list) else [value]
    ids = ids_of(entry.get("value") if isinstance(entry, dict) else entry for entry in values)
    match str(operation.op):
        case "add":
            return now | ids
        case "remove":
            return now - ids
    return ids
