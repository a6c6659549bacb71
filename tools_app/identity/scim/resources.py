"""Users and groups as resources (RFC 7643): what is read of them, and their rows as resources.

What the hub has no use for, such as addresses and passwords, is dropped unread: directories send it all the same.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final
from uuid import UUID

import orjson
from pydantic import Field
from scim2_models import (
    URN,
    AuthenticationScheme,
    Bulk,
    CaseExact,
    ChangePassword,
    ComplexAttribute,
    Context,
    ETag,
    Filter,
    InvalidValueException,
    Meta,
    Mutability,
    Patch,
    Reference,
    Required,
    Resource,
    ResourceType,
    Schema,
    ScimPolicy,
    ServiceProviderConfig,
    Sort,
    Uniqueness,
)

from tools_app.core.sanitize import is_storable
from tools_app.identity.models.issuers import MAX_EMAILS, MAX_VALUE
from tools_app.identity.people.provisioning import GroupValues, UserValues
from tools_app.identity.scim.bounds import MAX_PAGE, MAX_RESOURCE_BYTES
from tools_app.models import DirectoryGroup, DirectoryUser

USERS, GROUPS = "Users", "Groups"
MEMBER: Final = frozenset({"value", "$ref", "type"})
# Entra sends attributes and filters that the strict reading refuses, and names members to remove in the value.
POLICY: Final = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)
# Attributes with columns of their own, and those that the hub says.
_APART: Final = frozenset({"schemas", "id", "externalId", "meta", "userName", "active", "groups"})


class Name(ComplexAttribute):
    """The name of a person."""

    formatted: str | None = None
    family_name: str | None = None
    given_name: str | None = None


class Email(ComplexAttribute):
    """An e-mail of a person, in the form that the directory has: nothing is sent there."""

    value: str | None = None
    type: str | None = None
    primary: bool | None = None


class UserGroup(ComplexAttribute):
    """A group of a person."""

    value: Annotated[str | None, Mutability.read_only, CaseExact.true] = None
    display: Annotated[str | None, Mutability.read_only] = None


class User(Resource[Any]):
    """A person (RFC 7643, section 4.1)."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Required.true, Uniqueness.server] = None
    name: Name | None = None
    display_name: str | None = None
    active: bool | None = None
    emails: list[Email] | None = None
    groups: Annotated[list[UserGroup] | None, Mutability.read_only] = None


class Member(ComplexAttribute):
    """A person in a group."""

    value: Annotated[str | None, Mutability.immutable, CaseExact.true] = None
    ref: Annotated[Reference["User"] | None, Mutability.immutable] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )
    type: Annotated[str | None, Mutability.immutable] = Field(None, examples=["User"])


class Group(Resource[Any]):
    """A group (RFC 7643, section 4.2)."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:Group")

    display_name: Annotated[str | None, Required.true] = None
    members: list[Member] | None = None


# --- From a resource ------------------------------------------------------------------------------------------


def values_of_user(user: User, *, active: bool) -> UserValues:
    """Return what a resource says of a person. `active`: what counts if it does not say.

    Raises InvalidValueException.
    """
    check_values(user)
    everything = user.model_dump(scim_ctx=Context.DEFAULT)
    others = {name: value for name, value in everything.items() if name not in _APART}
    if len(orjson.dumps(others)) > MAX_RESOURCE_BYTES:
        raise InvalidValueException(detail=f"The attributes of a user have at most {MAX_RESOURCE_BYTES} bytes.")
    return UserValues(
        user_name=text(user.user_name, "userName"),
        external_id=text(user.external_id, "externalId", required=False),
        active=active if user.active is None else user.active,
        others=others,
    )


def check_values(user: User) -> None:
    """Check the number of e-mails, and the texts that have no column of their own. Raises InvalidValueException."""
    emails, name = user.emails or [], user.name or Name()
    if len(emails) > MAX_EMAILS:
        raise InvalidValueException(detail=f"A user has at most {MAX_EMAILS} e-mails.")
    for email in emails:
        text(email.value, "emails.value", required=False)
        text(email.type, "emails.type", required=False)
    for one in (user.display_name, name.formatted, name.given_name, name.family_name):
        if one is not None and (len(one) > MAX_RESOURCE_BYTES or not is_storable(one)):
            raise InvalidValueException(detail="A name is too long, or has U+0000 or half of a character.")


def values_of_group(group: Group) -> GroupValues:
    """Return what a resource says of a group. Raises InvalidValueException."""
    members = None if group.members is None else ids_of(member.value for member in group.members)
    name, external_id = text(group.display_name, "displayName"), text(group.external_id, "externalId", required=False)
    return GroupValues(display_name=name, external_id=external_id, members=members)


def text(value: object, name: str, *, required: bool = True) -> str:
    """Return a text that fits its column. Raises InvalidValueException."""
    shown = "" if value is None else value
    if not isinstance(shown, str) or len(shown) > MAX_VALUE or not is_storable(shown) or not shown.isprintable():
        raise InvalidValueException(detail=f"{name} is a text of at most {MAX_VALUE} printable characters.")
    if required and not shown.strip():
        raise InvalidValueException(detail=f"{name} must not be empty.")
    return shown


def ids_of(values: Iterable[object]) -> set[UUID]:
    """Return the IDs of users. Raises InvalidValueException."""
    try:
        return {UUID(str(value)) for value in values}
    except ValueError:
        raise InvalidValueException(detail="The value of a member is the id of a user of this directory.") from None


# --- To a resource --------------------------------------------------------------------------------------------


def user_of(row: DirectoryUser, base: str) -> User:
    """Return a person as a resource. `base` is the URL of the directory."""
    body = {"schemas": [str(User.__schema__)], "userName": row.user_name, "active": row.active, **row.resource}
    found = User.model_validate(body)
    found.id, found.external_id = str(row.pk), row.external_id or None
    found.meta = _meta(row, "User", f"{base}/{USERS}/{row.pk}")
    groups = [UserGroup(value=str(group.pk), display=group.display_name) for group in row.groups.all()]
    found.groups = groups or None
    return found


def group_of(row: DirectoryGroup, base: str) -> Group:
    """Return a group as a resource without its members."""
    found = Group(display_name=row.display_name)
    found.id, found.external_id = str(row.pk), row.external_id or None
    found.meta = _meta(row, "Group", f"{base}/{GROUPS}/{row.pk}")
    return found


def members_of(keys: Iterable[UUID], base: str, wanted: frozenset[str]) -> list[dict[str, str]]:
    """Return members as JSON, with these attributes: without the library, since there may be thousands."""
    known = ({"value": str(key), "$ref": f"{base}/{USERS}/{key}", "type": "User"} for key in keys)
    return [{name: value for name, value in member.items() if name.lower() in wanted} for member in known]


def _meta(row: DirectoryUser | DirectoryGroup, kind: str, location: str) -> Meta:
    return Meta(resource_type=kind, created=row.created_at, last_modified=row.changed_at, location=location)


# --- What the hub can do (RFC 7643, sections 5 to 7) ----------------------------------------------------------


def configuration(base: str) -> ServiceProviderConfig:
    """Return what this service supports."""
    return ServiceProviderConfig(
        patch=Patch(supported=True),
        bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=Filter(supported=True, max_results=MAX_PAGE),
        change_password=ChangePassword(supported=False),
        sort=Sort(supported=False),
        etag=ETag(supported=False),
        authentication_schemes=[
            AuthenticationScheme(
                type=AuthenticationScheme.Type.oauthbearertoken,
                name="Token",
                description="The token of the directory, from the page of its issuer.",
                primary=True,
            )
        ],
        meta=Meta(resource_type="ServiceProviderConfig", location=f"{base}/ServiceProviderConfig"),
    )


def resource_types(base: str) -> list[ResourceType]:
    """Return the kinds of resources."""
    found = [ResourceType.from_resource(User), ResourceType.from_resource(Group)]
    for one in found:
        one.meta = Meta(resource_type="ResourceType", location=f"{base}/ResourceTypes/{one.id}")
    return found


def schemas(base: str) -> list[Schema]:
    """Return the schemas of the resources."""
    found = [User.to_schema(), Group.to_schema()]
    for one in found:
        one.meta = Meta(resource_type="Schema", location=f"{base}/Schemas/{one.id}")
    return found
