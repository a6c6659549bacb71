"""Middleware that runs each request in a context."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

Respond = Callable[[HttpRequest], Any]


def in_context(context_of: Callable[[HttpRequest], AbstractContextManager[object]]) -> Callable[[Respond], Respond]:
    """Return middleware, sync and async, that responds to each request within `context_of` it."""

    @sync_and_async_middleware
    def middleware(get_response: Respond) -> Respond:
        if iscoroutinefunction(get_response):

            async def respond_later(request: HttpRequest) -> HttpResponse:
                with context_of(request):
                    response: Awaitable[HttpResponse] = get_response(request)
                    return await response

            return respond_later

        def respond(request: HttpRequest) -> HttpResponse:
            with context_of(request):
                response: HttpResponse = get_response(request)
                return response

        return respond

    return middleware
