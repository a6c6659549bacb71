"""Limits on request bodies for Django's paths: Django reads a whole body before it authenticates the sender.

Anonymous clients may send as much as a login form needs. Larger bodies are accepted only where logged-in users may
upload, and the user is authenticated before the body is read.
"""

import asyncio
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any, Final
from uuid import UUID

import orjson
from django.conf import settings
from django.contrib.auth import get_user
from django.db import Error
from django.http import HttpRequest

from tools_app.core import request_memory
from tools_app.core.config import config
from tools_app.core.database import run_in_db_thread
from tools_app.identity import personal_tokens as tokens
from tools_app.identity.people import directory
from tools_app.transport.request import (
    Application,
    AsgiRequest,
    BodyRefused,
    BodyTooLarge,
    BodyTooSlow,
    Disconnected,
    Fault,
    Receive,
    Scope,
    Send,
)
from tools_app.transport.responses import Reply, send_reply

MAX_FORM_BYTES: Final = 64 * 1024
# Uploads in the admin: a resource's file (5 MB) or a tenant's configuration, in a form.
MAX_UPLOAD_BYTES: Final = 8 * 1024 * 1024
ADMIN, API, LOGIN, DIRECTORY = "/admin/", "/api/", "/admin/login/", "/scim/v2/"
DISCONNECT: Final = {"type": "http.disconnect"}


async def serve_page(pages: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """Let `pages` answer a request, whose body is limited by what its sender may send."""
    http_request = AsgiRequest(scope, receive)
    if http_request.is_complete:
        await pages(scope, receive, send)
        return
    bounded = _BoundedBody(http_request, receive)
    try:
        await bounded.check_declared()
        await pages(scope, bounded.receive, send)
    except BodyRefused as problem:
        bounded.fault = Fault(problem.status, str(problem))
    if bounded.fault is not None:
        await reject(http_request, send, bounded.fault)


async def reject(http_request: AsgiRequest, send: Send, fault: Fault) -> None:
    """Reject a request, in JSON for the REST API, otherwise in plain text."""
    if http_request.path.startswith(API):
        problem = {"type": "about:blank", "title": fault.message, "status": fault.status, "detail": fault.message}
        kind, content = b"application/problem+json", orjson.dumps(problem)
    else:
        kind, content = b"text/plain; charset=utf-8", fault.message.encode()
    await send_reply(http_request, send, Reply(content, fault.status, content_type=kind))


class _BoundedBody:
    """The limited body that Django receives. `fault` is set when the body is too large or too slow: Django then gets a
    disconnect, the only way to make it stop.
    """

    def __init__(self, http_request: AsgiRequest, receive: Receive) -> None:
        self._request = http_request
        self._receive = receive
        self._end = 0.0
        self.limit = MAX_FORM_BYTES
        self.fault: Fault | None = None

    async def check_declared(self) -> None:
        """Raise BodyTooLarge if the Content-Length exceeds what the sender may send."""
        if self._request.declared > self.limit:
            await self._ask_for_more(self._request.declared)
        self._end = asyncio.get_running_loop().time() + request_memory.seconds_for(self.limit)

    async def receive(self) -> Mapping[str, Any]:
        """Return the next ASGI event: a chunk of the body, or after the body, a disconnect."""
        if self._request.is_complete:
            return await self._receive()
        if self.fault is not None:
            return DISCONNECT
        try:
            piece = await self._next()
        except BodyRefused as problem:
            self.fault = Fault(problem.status, str(problem))
            return DISCONNECT
        except Disconnected:
            return DISCONNECT
        return {"type": "http.request", "body": piece, "more_body": not self._request.is_complete}

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout_at(self._end):
                piece = await self._request.next()
        except TimeoutError:
            raise BodyTooSlow from None
        if self._request.received > self.limit:
            await self._ask_for_more(self._request.received)
            self._end += request_memory.seconds_for(self.limit)
        return piece

    async def _ask_for_more(self, size: int) -> None:
        """Raise the limit if the path accepts uploads and the sender is logged in. Raises BodyTooLarge."""
        most = upload_limit(self._request.path)
        if size > most or self.limit == most or not await _is_known(self._request):
            raise BodyTooLarge(self.limit)
        self.limit = most


def upload_limit(path: str) -> int:
    """Return how many bytes a logged-in user, or a directory with its token, may send to a path."""
    if path.startswith(API):
        return int(config.MCPHUB_MAX_BODY_BYTES)
    if path.startswith(DIRECTORY):
        return directory.MAX_REQUEST_BYTES
    return MAX_UPLOAD_BYTES if path.startswith(ADMIN) and path != LOGIN else MAX_FORM_BYTES


async def _is_known(http_request: AsgiRequest) -> bool:
    """Return whether a request has the session or token of an active user, or the token of the path's directory.

    False if the database is unavailable.
    """
    path, headers = http_request.path, http_request.headers
    scheme, _, token = headers.get("authorization", "").partition(" ")
    cookie = _session_cookie(headers.get("cookie", ""))
    try:
        if path.startswith(DIRECTORY):
            return scheme.lower() == "bearer" and await run_in_db_thread(
                _is_directory, path, token.strip(), http_request.remote_address
            )
        if scheme.lower() == "bearer":
            return await run_in_db_thread(tokens.find, token.strip()) is not None
        return bool(cookie) and await run_in_db_thread(_is_logged_in, cookie)
    except Error:
        return False


def _is_directory(path: str, token: str, address: str) -> bool:
    try:
        issuer = UUID(path.removeprefix(DIRECTORY).partition("/")[0])
        return directory.admit(issuer, token, address) is not None
    except (ValueError, directory.TooManyFailures):
        return False


def _session_cookie(header: str) -> str:
    try:
        morsel = SimpleCookie(header).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _is_logged_in(session_key: str) -> bool:
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = get_user(request)
    return user.is_authenticated and user.is_active
