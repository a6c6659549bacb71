"""Users, groups and what the hub can do, as a company's directory asks for it and changes it (RFC 7644)."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, RawPostDataException
from django.urls import reverse
from pydantic import ValidationError
from scim2_models import (
    Context,
    Error,
    InvalidSyntaxException,
    InvalidValueException,
    ListResponse,
    NotFoundException,
    PayloadTooLargeException,
    SCIMException,
    UniquenessException,
)

from tools_app.audit.changes.changes import change_log_transaction
from tools_app.core.sanitize import is_storable
from tools_app.identity.people import directory, provisioning
from tools_app.identity.scim import bounds, operations, queries, resources
from tools_app.identity.scim.entry import MEDIA_TYPE, SEARCH, error
from tools_app.identity.scim.resources import GROUPS, POLICY, USERS, Group, User
from tools_app.models import DirectoryGroup, DirectoryUser, Issuer

CREATED, NO_CONTENT = 201, 204
NOT_POSSIBLE: Final = (provisioning.TooMany, provisioning.UnknownMember)
# Resources are answered with everything that may be shown (RFC 7644, section 3.9).
SHOWN: Final = Context.RESOURCE_QUERY_RESPONSE


class DirectoryRequest:
    """One request of a directory."""

    def __init__(self, request: HttpRequest, issuer: Issuer) -> None:
        self.request = request
        self.issuer = issuer
        # What is asked of the answer: of a search in its body, otherwise in the query of the URL.
        self.parameters: Mapping[str, str] = request.GET
        self.base = request.build_absolute_uri(reverse("scim", args=[issuer.pk])).rstrip("/")

    # --- What the hub can do ----------------------------------------------------------------------------------

    def configuration(self) -> HttpResponse:
        """GET /ServiceProviderConfig."""
        return _shown(resources.configuration(self.base))

    def resource_types(self, name: str = "") -> HttpResponse:
        """GET /ResourceTypes."""
        return self._described(resources.resource_types(self.base), name)

    def schemas(self, name: str = "") -> HttpResponse:
        """GET /Schemas."""
        return self._described(resources.schemas(self.base), name)

    def _described(self, known: list[Any], name: str) -> HttpResponse:
        if name:
            found = next((one for one in known if str(one.id) == name), None)
            if found is None:
                raise NotFoundException(detail="There is no such description.")
            return _shown(found)
        response = ListResponse[type(known[0])](  # type: ignore[misc, operator] # known at run time
            total_results=len(known), start_index=1, items_per_page=len(known), resources=known
        )
        return _shown(response)

    # --- Users ------------------------------------------------------------------------------------------------

    def users(self) -> HttpResponse:
        """GET /Users, and POST /Users/.search."""
        return self._listed(self._users(), User, lambda row: resources.user_of(row, self.base))

    def create_user(self) -> HttpResponse:
        """POST /Users."""
        user = User.model_validate(self._body(), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
        values = resources.values_of_user(user, active=True)
        with change_log_transaction():
            return self._user(provisioning.create_user(self.issuer, values), status=CREATED)

    def user(self, key: str) -> HttpResponse:
        """GET /Users/ID."""
        return self._user(self._get_user(key))

    def replace_user(self, key: str) -> HttpResponse:
        """PUT /Users/ID."""
        user = User.model_validate(self._body(), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
        with change_log_transaction():
            row = self._get_user(key)
            provisioning.save_user(row, resources.values_of_user(user, active=row.active))
            return self._user(row)

    def change_user(self, key: str) -> HttpResponse:
        """PATCH /Users/ID."""
        patch = operations.read(self._body(), User)
        # Before others have to wait, unless the person changes meanwhile.
        before = self._get_user(key)
        values = self._changed_user(before, patch)
        with change_log_transaction():
            row = self._get_user(key)
            if row.changed_at != before.changed_at:
                values = self._changed_user(row, patch)
            provisioning.save_user(row, values)
            return self._user(row)

    def _changed_user(self, row: DirectoryUser, patch: Any) -> provisioning.UserValues:
        resource = resources.user_of(row, self.base)
        operations.change_user(resource, patch)
        # Who is no longer said to be active is not.
        return resources.values_of_user(resource, active=False)

    def delete_user(self, key: str) -> HttpResponse:
        """DELETE /Users/ID."""
        with change_log_transaction():
            provisioning.delete_user(self._get_user(key))
        return HttpResponse(status=NO_CONTENT)

    def _users(self) -> QuerySet[DirectoryUser]:
        rows = DirectoryUser.objects.filter(issuer=self.issuer)
        return rows.select_related("issuer__tenant", "identity__person", "identity__issuer").prefetch_related("groups")

    def _get_user(self, key: str) -> DirectoryUser:
        row: DirectoryUser = _found(self._users(), key)
        return row

    def _user(self, row: DirectoryUser, status: int = 200) -> HttpResponse:
        # Its groups may have been read before they changed.
        found = resources.user_of(self._users().get(pk=row.pk), self.base)
        return _shown(found, queries.attributes_of(self.parameters, User), status)

    # --- Groups -----------------------------------------------------------------------------------------------

    def groups(self) -> HttpResponse:
        """GET /Groups, and POST /Groups/.search."""
        return self._listed(self._groups(), Group, lambda row: resources.group_of(row, self.base))

    def create_group(self) -> HttpResponse:
        """POST /Groups."""
        group = Group.model_validate(self._body(), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
        values = resources.values_of_group(group)
        with change_log_transaction():
            row, parts = provisioning.create_group(self.issuer, values)
            answered = self._group(row, status=CREATED)
        return self._finished(row, parts, CREATED) or answered

    def group(self, key: str) -> HttpResponse:
        """GET /Groups/ID."""
        return self._group(_found(self._groups(), key))

    def replace_group(self, key: str) -> HttpResponse:
        """PUT /Groups/ID. Without `members`, they stay: a directory that renames a group may leave them out."""
        group = Group.model_validate(self._body(), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
        values = resources.values_of_group(group)
        with change_log_transaction():
            row = _found(self._groups(), key)
            parts = provisioning.save_group(row, values)
            answered = self._group(row)
        return self._finished(row, parts) or answered

    def change_group(self, key: str) -> HttpResponse:
        """PATCH /Groups/ID."""
        patch = operations.read(self._body(), Group)
        with change_log_transaction():
            row = _found(self._groups(), key)
            parts = provisioning.save_group(row, operations.group_values(row, patch))
            answered = self._group(row)
        return self._finished(row, parts) or answered

    def delete_group(self, key: str) -> HttpResponse:
        """DELETE /Groups/ID."""
        with change_log_transaction():
            row = _found(self._groups(), key)
            parts = provisioning.shrink_group(row)
            is_deleted = not parts
            left = provisioning.delete_group(row) if is_deleted else []
        self._do(row, parts)
        if not is_deleted:
            with change_log_transaction():
                left = provisioning.delete_group(_found(self._groups(), key))
        self._do(row, left)
        return HttpResponse(status=NO_CONTENT)

    def _do(self, row: DirectoryGroup, parts: list[provisioning.Part]) -> None:
        """Do the parts of a change that are left, and let others change something in between."""
        for part in parts:
            with change_log_transaction():
                provisioning.do_part(row, part)

    def _finished(self, row: DirectoryGroup, parts: list[provisioning.Part], status: int = 200) -> HttpResponse | None:
        """Do the parts that are left, and answer with the group; None if none is left."""
        if not parts:
            return None
        self._do(row, parts[:-1])
        with change_log_transaction():
            provisioning.do_part(row, parts[-1])
            return self._group(row, status)

    def _groups(self) -> QuerySet[DirectoryGroup]:
        return DirectoryGroup.objects.filter(issuer=self.issuer).select_related("issuer__tenant")

    def _group(self, row: DirectoryGroup, status: int = 200) -> HttpResponse:
        found, attributes = resources.group_of(row, self.base), queries.attributes_of(self.parameters, Group)
        body = found.model_dump(scim_ctx=SHOWN, response_parameters=attributes)
        self._add_members([body], [row.pk], queries.members_of(attributes))
        answered = HttpResponse(orjson.dumps(body), status=status, content_type=MEDIA_TYPE)
        if status == CREATED and found.meta is not None:
            answered.headers["Location"] = str(found.meta.location)
        return answered

    def _add_members(self, bodies: list[dict[str, Any]], keys: list[UUID], wanted: frozenset[str]) -> None:
        """Add the members to groups, in one query for all; `wanted`: the attributes of members that are asked for."""
        if not wanted:
            return
        found: dict[UUID, list[UUID]] = {}
        links = DirectoryGroup.members.through.objects.filter(directorygroup__in=keys).order_by("pk")
        for group, member in links.values_list("directorygroup", "directoryuser"):
            found.setdefault(group, []).append(member)
        for one, key in zip(bodies, keys, strict=True):
            if key in found:
                one["members"] = resources.members_of(found[key], self.base, wanted)

    # --- What both share --------------------------------------------------------------------------------------

    def _listed(self, rows: QuerySet[Any], model: type[User | Group], shown: Callable[[Any], Any]) -> HttpResponse:
        attributes, page = queries.attributes_of(self.parameters, model), queries.page_of(self.parameters)
        for condition in queries.conditions(self.parameters.get("filter", ""), model):
            rows = rows.filter(condition)
        wanted = queries.members_of(attributes) if model is Group else resources.MEMBER
        every = list(rows.values_list("pk", flat=True)[page.start - 1 : page.start - 1 + page.count])
        keys = _shortened(every, model) if wanted else every
        shown_rows = [shown(row) for row in rows.filter(pk__in=keys)]
        response = ListResponse[model](  # type: ignore[valid-type] # known at run time
            total_results=rows.count(), start_index=page.start, items_per_page=len(shown_rows), resources=shown_rows
        )
        if model is User:
            return _shown(response, attributes)
        dumped = response.model_dump(scim_ctx=SHOWN, response_parameters=attributes)
        self._add_members(dumped.get("Resources") or [], [UUID(row.id) for row in shown_rows], wanted)
        return HttpResponse(orjson.dumps(dumped), content_type=MEDIA_TYPE)

    def search(self) -> None:
        """Read what is asked from the body (RFC 7644, section 3.4.3)."""
        body = self._body()
        lists = {name: ",".join(map(str, value)) for name, value in body.items() if isinstance(value, list)}
        self.parameters = {name: str(value) for name, value in {**body, **lists}.items() if value is not None}

    def _body(self) -> dict[str, Any]:
        try:
            body = self.request.body
            if len(body) > directory.MAX_REQUEST_BYTES:
                raise PayloadTooLargeException(detail=f"A request has at most {directory.MAX_REQUEST_BYTES} bytes.")
            decoded = orjson.loads(body)
        except (orjson.JSONDecodeError, RawPostDataException):
            raise InvalidSyntaxException(detail="The body is no JSON.") from None
        if not isinstance(decoded, dict):
            raise InvalidSyntaxException(detail="The body is a JSON object.")
        _check_json(decoded)
        return decoded


# What is answered at a path without and with an ID, by method.
PATHS: Final[dict[str, dict[str, Callable[[DirectoryRequest], HttpResponse]]]] = {
    USERS: {"GET": DirectoryRequest.users, "POST": DirectoryRequest.create_user},
    GROUPS: {"GET": DirectoryRequest.groups, "POST": DirectoryRequest.create_group},
    "ServiceProviderConfig": {"GET": DirectoryRequest.configuration},
    "ResourceTypes": {"GET": DirectoryRequest.resource_types},
    "Schemas": {"GET": DirectoryRequest.schemas},
}
ID_PATHS: Final[dict[str, dict[str, Callable[[DirectoryRequest, str], HttpResponse]]]] = {
    USERS: {
        "GET": DirectoryRequest.user,
        "PUT": DirectoryRequest.replace_user,
        "PATCH": DirectoryRequest.change_user,
        "DELETE": DirectoryRequest.delete_user,
    },
    GROUPS: {
        "GET": DirectoryRequest.group,
        "PUT": DirectoryRequest.replace_group,
        "PATCH": DirectoryRequest.change_group,
        "DELETE": DirectoryRequest.delete_group,
    },
    "ResourceTypes": {"GET": DirectoryRequest.resource_types},
    "Schemas": {"GET": DirectoryRequest.schemas},
}


def answer(request: HttpRequest, issuer: Issuer, path: str) -> HttpResponse:
    """Answer a request of an issuer's directory, whose token was checked."""
    place, _, key = path.strip("/").partition("/")
    method, is_search = str(request.method), key == SEARCH and place in {USERS, GROUPS}
    known: Any = (ID_PATHS if key and not is_search else PATHS).get(place)
    allowed = {"POST"} if is_search else set(known or ())
    if known is None:
        return error(404, "There is no such endpoint. Use /Users and /Groups.")
    if method not in allowed:
        refused = error(405, f"{method} is not supported here.")
        refused.headers["Allow"] = ", ".join(sorted(allowed))
        return refused
    try:
        with POLICY:
            asking = DirectoryRequest(request, issuer)
            if is_search:
                asking.search()
                answered: HttpResponse = known["GET"](asking)
            else:
                answered = known[method](asking, key) if key else known[method](asking)
    except (SCIMException, ValidationError, provisioning.NotUnique, *NOT_POSSIBLE) as problem:
        answered = _error(problem)
    return answered


def _found(rows: QuerySet[Any], key: str) -> Any:
    try:
        row = rows.filter(pk=UUID(key)).first()
    except ValueError:
        row = None
    if row is None:
        raise NotFoundException(detail="The directory has no resource with this id.")
    return row


def _shortened(keys: list[UUID], model: type[User | Group]) -> list[UUID]:
    """Return the first rows of a page that have no more members, or groups, than an answer may have; at least one."""
    links, name = DirectoryGroup.members.through.objects, "directoryuser" if model is User else "directorygroup"
    counted = links.filter(**{f"{name}__in": keys}).order_by().values_list(name).annotate(number=Count("pk"))
    numbers, total = dict(counted), 0
    for position, key in enumerate(keys):
        total += numbers.get(key, 0)
        if total > bounds.MAX_PAGE_MEMBERS and position:
            return keys[:position]
    return keys


def _check_json(value: Any, depth: int = 1) -> None:
    """Refuse what no column accepts, and nesting that no resource has. Raises InvalidSyntaxException."""
    if depth > bounds.MAX_DEPTH:
        raise InvalidSyntaxException(detail=f"The body is nested deeper than {bounds.MAX_DEPTH} levels.")
    if isinstance(value, str) and not is_storable(value):
        raise InvalidSyntaxException(detail="Texts cannot contain U+0000.")
    if isinstance(value, dict):
        for name, one in value.items():
            _check_json(name, depth)
            _check_json(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _check_json(one, depth + 1)


def _error(problem: Exception) -> HttpResponse:
    match problem:
        case SCIMException():
            scim_error = problem.to_error()
        case ValidationError():
            scim_error = Error.from_validation_errors(problem)[0]
        case provisioning.NotUnique():
            scim_error = UniquenessException(detail=str(problem)).to_error()
        case _:
            scim_error = InvalidValueException(detail=str(problem)).to_error()
    return error(scim_error.status or 400, scim_error.detail or "", scim_error.scim_type or "")


def _shown(resource: Any, attributes: Any = None, status: int = 200) -> HttpResponse:
    found = HttpResponse(
        resource.model_dump_json(scim_ctx=SHOWN, response_parameters=attributes), status=status, content_type=MEDIA_TYPE
    )
    if status == CREATED:
        found.headers["Location"] = str(resource.meta.location)
    return found
