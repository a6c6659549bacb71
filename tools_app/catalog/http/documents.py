"""JSON documents of other servers: client metadata, configurations of issuers and their keys, answers to forms.

Redirects are not followed: what a document says counts for its own address only.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from tools_app.catalog.http.addresses import parse_networks
from tools_app.catalog.http.client import Outbound, Reply, Terms, exchange
from tools_app.catalog.http.errors import RequestFailed
from tools_app.catalog.http.urls import BadUrl, Url, parse_url

TIMEOUT_SECONDS: Final = 5.0
OK: Final = 200
HEADERS: Final = (("Accept", "application/json"), ("User-Agent", "mcphub"))


class Unreadable(Exception):
    """A document could not be read, or says something wrong. The message says what."""


async def fetch(url: str, max_bytes: int, *, allowed: Sequence[str] = (), authorization: str = "") -> Reply:
    """Read a document, from a public address or from `allowed` networks (CIDRs). Raises Unreadable."""
    headers: tuple[tuple[str, str], ...] = HEADERS
    if authorization:
        headers = (*headers, ("Authorization", authorization))
    return await _exchanged(Outbound("GET", _parsed_url(url), headers), max_bytes, allowed)


async def post(
    url: str, form: Mapping[str, str], max_bytes: int, *, allowed: Sequence[str] = (), authorization: str = ""
) -> Reply:
    """Send a form to the same kinds of addresses. Raises Unreadable."""
    headers: tuple[tuple[str, str], ...] = (*HEADERS, ("Content-Type", "application/x-www-form-urlencoded"))
    if authorization:
        headers = (*headers, ("Authorization", authorization))
    return await _exchanged(Outbound("POST", _parsed_url(url), headers, urlencode(form).encode()), max_bytes, allowed)


def parsed(reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a successful reply. Raises Unreadable."""
    if reply.status != OK:
        raise Unreadable(f"The server answered with status {reply.status}.")
    return parsed_object(reply.body)


def parsed_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises Unreadable."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Unreadable("It is not JSON.") from None
    if not isinstance(document, dict):
        raise Unreadable("It is not a JSON object.")
    return document


def _parsed_url(url: str) -> Url:
    try:
        return parse_url(url)
    except BadUrl as problem:
        raise Unreadable(str(problem)) from problem


async def _exchanged(request: Outbound, max_bytes: int, allowed: Sequence[str]) -> Reply:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await exchange(request, Terms(parse_networks(allowed), TIMEOUT_SECONDS, max_bytes))
    except TimeoutError:
        raise Unreadable(f"No answer within {TIMEOUT_SECONDS:g} seconds.") from None
    except RequestFailed as problem:
        raise Unreadable(str(problem)) from problem
