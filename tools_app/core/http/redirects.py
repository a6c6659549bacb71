"""Redirects under the hub's own rules (RFC 9110, section 15.4): few, checked one by one, and without secrets.

A redirect target is dialed like any other host, so its addresses are checked again. A request to another origin carries
only what any browser would send.
"""

from dataclasses import replace

from tools_app.core.http.client import Outbound, Reply, RequestPolicy, deadline, exchange
from tools_app.core.http.errors import RequestFailed
from tools_app.core.http.urls import InvalidUrl, Url
from tools_app.core.telemetry.secret_names import Scrubber

MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HARMLESS_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})
_MOVED = frozenset({301, 302})
_SEE_OTHER = 303


async def exchange_following(request: Outbound, policy: RequestPolicy, scrubber: Scrubber) -> Reply:
    """Send `request` and follow its redirects, all within the time of one exchange. Raises RequestFailed."""
    until = deadline(policy)
    for _ in range(MAX_REDIRECTS + 1):
        reply = await exchange(request, policy, until=until)
        if reply.status not in REDIRECTS:
            return reply
        request = redirected(request, reply, scrubber)
    raise RequestFailed(f"The service redirected more than {MAX_REDIRECTS} times.")


def redirected(request: Outbound, reply: Reply, scrubber: Scrubber) -> Outbound:
    """Return the request that follows a redirect. Raises RequestFailed if the hub does not follow it."""
    location = reply.headers.get("location", "")
    try:
        url = request.url.joined(location)
    except InvalidUrl as problem:
        raise RequestFailed(f"The service redirected to an invalid URL: {problem}.") from problem
    following = replace(_method_after_redirect(request, reply.status), url=url)
    if url.origin == request.url.origin:
        return following
    return _to_other_origin(following, request.url, scrubber)


def _method_after_redirect(request: Outbound, status: int) -> Outbound:
    """Return the request with its method and body after a redirect (RFC 9110, sections 15.4.2 to 15.4.9)."""
    becomes_get = status == _SEE_OTHER or (status in _MOVED and request.method == "POST")
    if not becomes_get or request.method == "HEAD":
        return request
    headers = tuple((name, value) for name, value in request.headers if name.lower() != "content-type")
    return replace(request, method="GET", headers=headers, body=None)


def _to_other_origin(request: Outbound, came_from: Url, scrubber: Scrubber) -> Outbound:
    """Return the request without what must stay in its origin. Raises RequestFailed if it would send a secret."""
    if came_from.scheme == "https" and request.url.scheme == "http":
        raise RequestFailed("The service redirected from https to http, which is not followed.")
    if scrubber.finds(str(request.url)) or scrubber.finds(request.body or b""):
        raise RequestFailed("The service redirected a request that contains a secret to another origin.")
    headers = tuple(
        (name, value)
        for name, value in request.headers
        if name.lower() in HARMLESS_HEADERS and not scrubber.finds(value)
    )
    return replace(request, headers=headers)
