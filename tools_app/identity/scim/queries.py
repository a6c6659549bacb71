"""Filters and pages of lists (RFC 7644, section 3.4.2)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Q
from scim2_models import InvalidFilterException, InvalidValueException, ResponseParameters, ScimFilter
from scim2_models.path import (
    AttrPath,
    CompareOperator,
    Comparison,
    FilterNode,
    LogicalExpr,
    LogicalOperator,
    ValuePath,
)

from tools_app.core.sanitize import is_storable
from tools_app.identity.people.provisioning import key_of
from tools_app.identity.scim.bounds import DEFAULT_PAGE, MAX_ATTRIBUTES, MAX_FILTER, MAX_PAGE
from tools_app.identity.scim.resources import MEMBER, Group, User

MAX_DIGITS: Final = 9
SUPPORTED: Final = "A filter compares {} by eq. Several comparisons are joined by and."
Columns = Mapping[str, str]
USER_COLUMNS: Final[Columns] = {
    "username": "user_name_key",
    "externalid": "external_id",
    "id": "pk",
    "emails": "emails_key__contains",
    "emails.value": "emails_key__contains",
    "active": "active",
}
GROUP_COLUMNS: Final[Columns] = {
    "displayname": "display_name_key",
    "externalid": "external_id",
    "id": "pk",
    "members": "members",
    "members.value": "members",
}
NAMES: Final = {
    User: "userName, externalId, id, emails.value and active",
    Group: "displayName, externalId, id and members.value",
}
_KEYS: Final = frozenset({"pk", "members"})


@dataclass(frozen=True)
class Page:
    """The rows that a list shows: from `start`, counted from 1, at most `count`."""

    start: int
    count: int


def page_of(sent: Mapping[str, Any]) -> Page:
    """Return the page that a request asks for. Raises InvalidValueException."""
    start, count = _number(sent, "startIndex", 1), _number(sent, "count", DEFAULT_PAGE)
    return Page(max(start, 1), min(max(count, 0), MAX_PAGE))


def attributes_of(sent: Mapping[str, Any], model: type[User | Group]) -> ResponseParameters[Any]:
    """Return which attributes a request asks for.

    Raises InvalidValueException and pydantic's ValidationError.
    """
    names = {"attributes": "attributes", "excludedAttributes": "excluded_attributes"}
    attributes = {ours: sent[theirs] for theirs, ours in names.items() if sent.get(theirs)}
    if any(len(value) > MAX_ATTRIBUTES for value in attributes.values()):
        raise InvalidValueException(detail=f"The attributes have at most {MAX_ATTRIBUTES} characters.")
    found: ResponseParameters[Any] = ResponseParameters[model].model_validate(attributes)  # type: ignore[valid-type] # known at run time
    return found


def members_of(parameters: ResponseParameters[Any]) -> frozenset[str]:
    """Return the attributes of members that are asked for, in lower case: Entra leaves them out, and they are many."""
    start = f"{Group.__schema__}:".lower()
    wanted = {str(path).lower().removeprefix(start) for path in parameters.attributes or ()}
    unwanted = {str(path).lower().removeprefix(start) for path in parameters.excluded_attributes or ()}
    if "members" in unwanted:
        return frozenset()
    named = {path.removeprefix("members.") for path in wanted if path.startswith("members.")}
    found = MEMBER if not wanted or "members" in wanted else MEMBER & named
    return found - {path.removeprefix("members.") for path in unwanted}


def conditions(text: str, model: type[User | Group]) -> list[Q]:
    """Return a filter as conditions, each for a `filter` of its own: one row of members fits one of them.

    Raises InvalidFilterException.
    """
    if not text:
        return []
    if len(text) > MAX_FILTER:
        raise InvalidFilterException(detail=f"A filter has at most {MAX_FILTER} characters.")
    columns = USER_COLUMNS if model is User else GROUP_COLUMNS
    found = ScimFilter[model](text)  # type: ignore[valid-type] # known at run time
    return list(_conditions(found.ast, columns, str(model.__schema__), SUPPORTED.format(NAMES[model])))


def _conditions(node: FilterNode, columns: Columns, schema: str, supported: str) -> Iterator[Q]:
    match node:
        case LogicalExpr(op=LogicalOperator.and_, terms=terms):
            for term in terms:
                yield from _conditions(term, columns, schema, supported)
            return
        case Comparison(attr_path=path, op=CompareOperator.eq, value=value):
            column = columns.get(_name(path, schema))
            if column is not None:
                yield _comparison(column, value)
                return
        case ValuePath(attr_path=path, val_filter=inner) if _name(path, schema) == "emails" and "emails" in columns:
            condition = _both(inner)
            if condition is not None:
                yield _comparison("emails_key__contains", condition)
                return
    raise InvalidFilterException(detail=supported)


def _both(inner: FilterNode) -> str | None:
    """Return the line that an e-mail has in the row for [type eq "work" and value eq "..."]; None for others."""
    terms = inner.terms if isinstance(inner, LogicalExpr) and inner.op == LogicalOperator.and_ else (inner,)
    conditions = {
        term.attr_path.attr.lower(): str(term.value)
        for term in terms
        if isinstance(term, Comparison) and term.op == CompareOperator.eq and not term.attr_path.sub_attr
    }
    if len(conditions) != len(terms) or "value" not in conditions or not conditions.keys() <= {"type", "value"}:
        return None
    return f"{conditions['type']} {conditions['value']}" if "type" in conditions else conditions["value"]


def _comparison(column: str, value: Any) -> Q:
    if column == "active":
        if not isinstance(value, bool):
            raise InvalidFilterException(detail="active is compared to true or false, without quotation marks.")
        return Q(active=value)
    if column in _KEYS:
        try:
            return Q(**{column: UUID(str(value))})
        except ValueError:
            return Q(pk__in=())
    text = str(value)
    if not is_storable(text) or "\n" in text:
        return Q(pk__in=())
    if column == "emails_key__contains":
        return Q(emails_key__contains=f"\n{key_of(text)}\n")
    return Q(**{column: text if column == "external_id" else key_of(text)})


def _name(path: AttrPath, schema: str) -> str:
    if path.uri is not None and path.uri.lower() != schema.lower():
        return ""
    return f"{path.attr}.{path.sub_attr}".lower() if path.sub_attr else path.attr.lower()


def _number(sent: Mapping[str, Any], name: str, default: int) -> int:
    text = sent.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
        raise InvalidValueException(detail=f"{name} is a whole number.")
    return int(text)
