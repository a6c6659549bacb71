"""Who may enter the API, and how what comes in and goes out is written: the same for each of its views."""

from functools import cached_property
from typing import Any

from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from tools_app.api.v1.logins import TokenLogin
from tools_app.api.v1.parsing import AlwaysJson, JsonParser
from tools_app.api.v1.problems import problem_answer
from tools_app.api.v1.throttling import PerPerson
from tools_app.auth.reach import Reach


class Member(BasePermission):
    """Superusers and members of any tenant."""

    message = "You are a member of no tenant. A tenant's admin can invite you."

    def has_permission(self, request: Request, view: "Entrance") -> bool:
        """Whether the API has anything for this person."""
        return bool(request.user and request.user.is_authenticated) and view.reach.enters


class Entrance:
    """For members, as JSON, and not too often."""

    request: Request
    authentication_classes = (TokenLogin, SessionAuthentication)
    permission_classes: tuple[Any, ...] = (Member,)
    throttle_classes = (PerPerson,)
    parser_classes = (JsonParser,)
    renderer_classes: Any = (JSONRenderer,)
    content_negotiation_class: Any = AlwaysJson
    metadata_class = None

    @cached_property
    def reach(self) -> Reach:
        """What the person behind the request may see and change."""
        return Reach(self.request.user)

    def get_exception_handler(self) -> Any:
        """Errors are problem details."""
        return problem_answer

    def finalize_response(self: Any, request: Request, response: Any, *args: Any, **options: Any) -> Any:
        """Nothing that the API says is for a cache."""
        response = super().finalize_response(request, response, *args, **options)  # type: ignore[misc]
        response.headers.setdefault("Cache-Control", "no-store")
        return response
