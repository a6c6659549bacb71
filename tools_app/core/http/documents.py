"""JSON documents of other servers: client metadata, configurations of issuers and their keys, answers to forms.

Redirects are not followed: what a document says counts for its own address only.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from tools_app.core.http.addresses import parse_networks
from tools_app.core.http.client import Outbound, Reply, RequestPolicy, exchange
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.urls import InvalidUrl, Url, parse_url

TIMEOUT_SECONDS: Final = 5.0
OK: Final = 200
HEADERS: Final = (("Accept", "application/json"), ("User-Agent", "mcphub"))


class DocumentError(Exception):
    """A document could not be read, or says something wrong. The message says what."""


async def fetch(
    url: str,
    max_bytes: int,
    *,
    allowed: Sequence[str] | None = None,
    authorization: str = "",
    tenant: Hashable = None,
) -> Reply:
    """Read a document, from a public address or from the `allowed` networks of a tenant (CIDRs). Raises DocumentError.

    None: no tenant is concerned, so that no admin can allow other addresses. `tenant` is as that of RequestPolicy.
    """
    headers = (*HEADERS, *((("Authorization", authorization),) if authorization else ()))
    return await fetch_response(Outbound("GET", _parsed_url(url), headers), max_bytes, allowed, tenant=tenant)


async def post(
    url: str, form: Mapping[str, str], max_bytes: int, *, allowed: Sequence[str] | None = None, authorization: str = ""
) -> Reply:
    """Send a form to the same kinds of addresses. Raises DocumentError."""
    headers = (
        *HEADERS,
        ("Content-Type", "application/x-www-form-urlencoded"),
        *((("Authorization", authorization),) if authorization else ()),
    )
    return await fetch_response(
        Outbound("POST", _parsed_url(url), headers, urlencode(form).encode()), max_bytes, allowed
    )


async def fetch_response(
    request: Outbound, max_bytes: int, allowed: Sequence[str] | None, *, tenant: Hashable = None
) -> Reply:
    """Send any request to the same kinds of addresses, for at most TIMEOUT_SECONDS. Raises DocumentError."""
    if tenant is None and allowed is not None:
        # Of a tenant that the caller does not know: at least not among what strangers ask for.
        tenant = request.url.host
    policy = RequestPolicy(
        parse_networks(allowed or ()), TIMEOUT_SECONDS, max_bytes, public_only=allowed is None, tenant=tenant
    )
    try:
        return await exchange(request, policy)
    except RequestFailed as problem:
        raise DocumentError(str(problem)) from problem


def parsed(reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a successful reply. Raises DocumentError."""
    if reply.status != OK:
        raise DocumentError(f"The server answered with status {reply.status}.")
    return parsed_object(reply.body)


def parsed_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises DocumentError."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise DocumentError("It is not JSON.") from None
    if not isinstance(document, dict):
        raise DocumentError("It is not a JSON object.")
    return document


def _parsed_url(url: str) -> Url:
    try:
        return parse_url(url)
    except InvalidUrl as problem:
        raise DocumentError(str(problem)) from problem
