"""Whoever is logged in acts: what a request of the admin or of the REST API changes is recorded as that person's."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from tools_app.audit.changes import Actor, acting
from tools_app.auth.proxies import address_of
from tools_app.models import Via

API = "/api/"


@sync_and_async_middleware
def acting_person(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Run each request as its person's. Who that is, is asked when there is something to record."""
    if iscoroutinefunction(get_response):

        async def respond_later(request: HttpRequest) -> HttpResponse:
            with acting(lambda: actor_of(request)):
                response: Awaitable[HttpResponse] = get_response(request)
                return await response

        return respond_later

    def respond(request: HttpRequest) -> HttpResponse:
        with acting(lambda: actor_of(request)):
            response: HttpResponse = get_response(request)
            return response

    return respond


def actor_of(request: HttpRequest) -> Actor | None:
    """Who is logged in on a request, by a session or, on the REST API, by a token; None for nobody."""
    # Whoever came with a token is known to the request once its view has looked at that.
    person = getattr(request, "user", None)
    if not isinstance(person, User) or not person.is_authenticated:
        return None
    via = Via.API if request.path_info.startswith(API) else Via.ADMIN
    return Actor(person, via, address_of(request))
