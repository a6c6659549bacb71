"""Users, groups and what the hub can do, as a company's directory asks for it and changes it (RFC 7644)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import QuerySet
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

from tools_app.access.issuers import directory, provisioning
from tools_app.api.scim import bounds, operations, queries, resources
from tools_app.api.scim.entry import MEDIA_TYPE, error
from tools_app.api.scim.resources import GROUPS, POLICY, USERS, Group, User
from tools_app.audit.changes.changes import change_log_transaction
from tools_app.core.sanitize import is_storable
from tools_app.models import DirectoryGroup, DirectoryUser, Issuer

SEARCH: Final = ".search"
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
        self.asked: Mapping[str, str] = request.GET
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
        said = ListResponse[type(known[0])](  # type: ignore[misc, operator] # known at run time
            total_results=len(known), start_index=1, items_per_page=len(known), resources=known
        )
        return _shown(said)

    # --- Users ------------------------------------------------------------------------------------------------

    def users(self) -> HttpResponse:
        """GET /Users, and POST /Users/.search."""
        rows = self._users().filter(queries.condition(self.asked.get("filter", ""), User))
        return self._listed(rows, User, lambda row: resources.user_of(row, self.base))

    def create_user(self) -> HttpResponse:
        """POST /Users."""
        said = User.model_validate(self._body(), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
        values = resources.values_of_user(said, active=True)
        with _changing():
            row = provisioning.create_user(self.issuer, values)
        return self._user(row, status=CREATED)

    def user(self, key: str) -> HttpResponse:
        """GET /Users/ID."""
        return self._user(self._get_user(key))

    def replace_user(self, key: str) -> HttpResponse:
        """PUT /Users/ID."""
        said = User.model_validate(self._body(), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
        with _changing():
            row = self._get_user(key)
            provisioning.save_user(row, resources.values_of_user(said, active=row.active))
        return self._user(row)

    def change_user(self, key: str) -> HttpResponse:
        """PATCH /Users/ID."""
        said = operations.read(self._body(), User)
        with _changing():
            row = self._get_user(key)
            resource = resources.user_of(row, self.base)
            said.patch(resource)
            # Who is no longer said to be active is not.
            provisioning.save_user(row, resources.values_of_user(resource, active=False))
        return self._user(row)

    def delete_user(self, key: str) -> HttpResponse:
        """DELETE /Users/ID."""
        with _changing():
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
        return _shown(found, queries.attributes_of(self.asked, User), status)

    # --- Groups -----------------------------------------------------------------------------------------------

    def groups(self) -> HttpResponse:
        """GET /Groups, and POST /Groups/.search."""
        rows = self._groups().filter(queries.condition(self.asked.get("filter", ""), Group))
        members = self._wants_members()
        return self._listed(rows, Group, lambda row: resources.group_of(row, self.base, members=members))

    def create_group(self) -> HttpResponse:
        """POST /Groups."""
        said = Group.model_validate(self._body(), scim_ctx=Context.RESOURCE_CREATION_REQUEST)
        with _changing():
            row = provisioning.create_group(self.issuer, resources.values_of_group(said))
        return self._group(row, status=CREATED)

    def group(self, key: str) -> HttpResponse:
        """GET /Groups/ID."""
        return self._group(_found(self._groups(), key))

    def replace_group(self, key: str) -> HttpResponse:
        """PUT /Groups/ID. Without `members`, they stay: a directory that renames a group may leave them out."""
        said = Group.model_validate(self._body(), scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
        with _changing():
            row = _found(self._groups(), key)
            provisioning.save_group(row, resources.values_of_group(said))
        return self._group(row)

    def change_group(self, key: str) -> HttpResponse:
        """PATCH /Groups/ID."""
        said = operations.read(self._body(), Group)
        with _changing():
            row = _found(self._groups(), key)
            operations.change_group(row, said)
        return self._group(row)

    def delete_group(self, key: str) -> HttpResponse:
        """DELETE /Groups/ID."""
        with _changing():
            provisioning.delete_group(_found(self._groups(), key))
        return HttpResponse(status=NO_CONTENT)

    def _groups(self) -> QuerySet[DirectoryGroup]:
        return DirectoryGroup.objects.filter(issuer=self.issuer).select_related("issuer__tenant")

    def _group(self, row: DirectoryGroup, status: int = 200) -> HttpResponse:
        found = resources.group_of(row, self.base, members=self._wants_members())
        return _shown(found, queries.attributes_of(self.asked, Group), status)

    def _wants_members(self) -> bool:
        """Whether the members are asked for: Entra leaves them out, and they are many."""
        asked = queries.attributes_of(self.asked, Group)
        wanted = {str(path).lower() for path in asked.attributes or ()}
        unwanted = {str(path).lower() for path in asked.excluded_attributes or ()}
        return "members" not in unwanted and (not wanted or any("members" in path for path in wanted))

    # --- What both share --------------------------------------------------------------------------------------

    def _listed(self, rows: QuerySet[Any], model: type[User | Group], shown: Callable[[Any], Any]) -> HttpResponse:
        asked, page = queries.attributes_of(self.asked, model), queries.page_of(self.asked)
        found = [shown(row) for row in rows[page.start - 1 : page.start - 1 + page.count]]
        said = ListResponse[model](  # type: ignore[valid-type] # known at run time
            total_results=rows.count(), start_index=page.start, items_per_page=len(found), resources=found
        )
        return _shown(said, asked)

    def search(self) -> None:
        """Read what is asked from the body (RFC 7644, section 3.4.3)."""
        said = self._body()
        lists = {name: ",".join(map(str, value)) for name, value in said.items() if isinstance(value, list)}
        self.asked = {name: str(value) for name, value in {**said, **lists}.items() if value is not None}

    def _body(self) -> dict[str, Any]:
        try:
            body = self.request.body
            if len(body) > directory.MAX_REQUEST_BYTES:
                raise PayloadTooLargeException(detail=f"A request has at most {directory.MAX_REQUEST_BYTES} bytes.")
            said = orjson.loads(body)
        except (orjson.JSONDecodeError, RawPostDataException):
            raise InvalidSyntaxException(detail="The body is no JSON.") from None
        if not isinstance(said, dict):
            raise InvalidSyntaxException(detail="The body is a JSON object.")
        _check_json(said)
        return said


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


@contextmanager
def _changing() -> Iterator[None]:
    """Change rows in a transaction that waits for others of the change log, so that none overwrites another."""
    with change_log_transaction():
        yield


def _found(rows: QuerySet[Any], key: str) -> Any:
    try:
        row = rows.filter(pk=UUID(key)).first()
    except ValueError:
        row = None
    if row is None:
        raise NotFoundException(detail="The directory has no resource with this id.")
    return row


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
            said = problem.to_error()
        case ValidationError():
            said = Error.from_validation_errors(problem)[0]
        case provisioning.NotUnique():
            said = UniquenessException(detail=str(problem)).to_error()
        case _:
            said = InvalidValueException(detail=str(problem)).to_error()
    return error(said.status or 400, said.detail or "", said.scim_type or "")


def _shown(resource: Any, asked: Any = None, status: int = 200) -> HttpResponse:
    found = HttpResponse(
        resource.model_dump_json(scim_ctx=SHOWN, response_parameters=asked), status=status, content_type=MEDIA_TYPE
    )
    if status == CREATED:
        found.headers["Location"] = str(resource.meta.location)
    return found
