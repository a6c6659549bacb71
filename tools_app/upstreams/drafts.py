"""Validation of upstreams that people write, by field: the same in the admin, the REST API and commands."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tools_app.catalog.kinds import templates
from tools_app.catalog.kinds.http.config import RESERVED_HEADERS
from tools_app.catalog.kinds.templates import BadTemplate
from tools_app.core.config import config
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.models import Upstream, UpstreamTransport
from tools_app.upstreams import commands
from tools_app.upstreams.credentials.discovery import valid_scopes
from tools_app.upstreams.credentials.tokens import MAX_CLIENT_ID
from tools_app.upstreams.models import MAX_ISSUER

MAX_UPSTREAMS: Final = 100
MAX_ENTRIES: Final = 20
MAX_TEXT_LENGTH: Final = 4096
MAX_WORDS: Final = 50
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_TEXT = re.compile(r"[\t -~]*")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# The hub sets these itself.
_HUB_HEADERS: Final = frozenset({"accept", "content-type", "last-event-id", "x-mcphub-path"})
# Those that the sandbox sets.
_HUB_VARIABLES: Final = frozenset({"HOME", "PATH", "TMPDIR"})
# Variables of loaders, interpreters and package managers: with them, an allowed command would run another program.
_LOADING_PREFIXES: Final = (
    *("LD_", "DYLD_", "GCONV_", "GLIBC_", "LC_", "XDG_", "SSL_", "OPENSSL_", "BASH", "GIT_"),
    *("PYTHON", "UV_", "PIP_", "NODE_", "NPM_", "PERL", "RUBY", "JAVA_", "_JAVA_", "JDK_"),
)
_LOADING_VARIABLES: Final = frozenset(
    {"ENV", "SHELLOPTS", "LOCPATH", "NLSPATH", "BROWSER", "EDITOR", "PAGER", "CLASSPATH", "IFS"}
)

LOCALHOST: Final = "localhost"
LOOPBACK: Final = frozenset({LOCALHOST, "127.0.0.1", "::1"})
ENDPOINTS: Final = frozenset({"/mcp", "/sse"})
TENANT_ENDPOINT_PREFIX: Final = "/t/"
OWN_ENDPOINT: Final = (
    "This is an endpoint of this hub. A hub that is its own upstream would call itself in a circle, so it refuses such "
    "requests. Enter the URL of another server."
)

FieldFaults = Iterator[tuple[str, str]]


def upstream_faults(upstream: Upstream, hub_url: str = "") -> dict[str, list[str]]:
    """Return the errors of an upstream, by field.

    `hub_url` is an address of this hub, where the caller knows one besides MCPHUB_PUBLIC_URL.
    """
    faults: dict[str, list[str]] = {}
    for field, message in _faults(upstream):
        faults.setdefault(field, []).append(message)
    addresses = (hub_url, config.MCPHUB_PUBLIC_URL)
    if not faults and upstream.url and any(each and is_own_endpoint(upstream.url, each) for each in addresses):
        faults["url"] = [OWN_ENDPOINT]
    return faults


def is_own_endpoint(url: str, hub_url: str) -> bool:
    """Whether a valid URL is an MCP endpoint of the hub at `hub_url`, as far as the addresses tell.

    Other names of the hub show when it is called: see `core.hub_path`.
    """
    try:
        upstream_url, parsed_hub_url = parse_url(url), parse_url(hub_url)
    except InvalidUrl:
        return False
    hosts = {LOCALHOST if parsed.host in LOOPBACK else parsed.host for parsed in (upstream_url, parsed_hub_url)}
    is_endpoint = upstream_url.path.rstrip("/") in ENDPOINTS or upstream_url.path.startswith(TENANT_ENDPOINT_PREFIX)
    return len(hosts) == 1 and upstream_url.port == parsed_hub_url.port and is_endpoint


def _faults(upstream: Upstream) -> FieldFaults:
    others = Upstream.objects.filter(tenant=upstream.tenant_id)
    if not others.filter(pk=upstream.pk).exists() and others.count() >= MAX_UPSTREAMS:
        yield "name", f"A tenant has at most {MAX_UPSTREAMS} upstreams. Delete one first."
    if upstream.transport == UpstreamTransport.STDIO:
        yield from _command_faults(upstream)
    else:
        yield from _url_faults(upstream)
    yield from _credential_faults(upstream)
    yield from _text_map_faults("headers", upstream.headers, _header_fault)
    yield from _text_map_faults("environment", upstream.environment, variable_fault)


def _url_faults(upstream: Upstream) -> FieldFaults:
    if upstream.command:
        yield "command", "Only an upstream with the transport stdio has a command."
    try:
        parse_url(upstream.url)
    except InvalidUrl as problem:
        yield "url", f"Invalid URL: {problem}."


def _credential_faults(upstream: Upstream) -> FieldFaults:
    if upstream.credential and upstream.transport == UpstreamTransport.STDIO:
        yield "credential", "A program gets its credentials as environment variables."
    if fault := _header_fault(upstream.credential_header):
        yield "credential_header", fault.capitalize()
    if len(upstream.oauth_client_id) > MAX_CLIENT_ID or not _HEADER_TEXT.fullmatch(upstream.oauth_client_id):
        yield "oauth_client_id", f"Enter ASCII characters, at most {MAX_CLIENT_ID}."
    if upstream.oauth_client_secret and not upstream.oauth_client_id:
        yield "oauth_client_secret", "A secret belongs to an OAuth client ID. Enter that too."
    if upstream.oauth_client_secret and not upstream.oauth_issuer:
        yield "oauth_issuer", "Enter the issuer that gave out the secret: it is sent to no other server."
    if upstream.oauth_issuer and (fault := _issuer_fault(upstream.oauth_issuer)):
        yield "oauth_issuer", fault
    if upstream.oauth_scopes and not valid_scopes(upstream.oauth_scopes):
        yield "oauth_scopes", "Enter scopes with spaces between them."


def _issuer_fault(issuer: str) -> str:
    try:
        parse_url(issuer)
    except InvalidUrl as problem:
        return f"Invalid URL: {problem}."
    return "" if len(issuer) <= MAX_ISSUER else f"Enter at most {MAX_ISSUER} characters."


def _command_faults(upstream: Upstream) -> FieldFaults:
    if upstream.url:
        yield "url", "An upstream with the transport stdio has no URL."
    command = upstream.command
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        yield "command", 'Enter the program and its arguments as a list, such as ["npx", "-y", "some-server"].'
    elif len(command) > MAX_WORDS or any("\0" in word or len(word) > MAX_TEXT_LENGTH for word in command):
        yield "command", f"Enter at most {MAX_WORDS} words of at most {MAX_TEXT_LENGTH} characters."
    elif not (upstream.is_command_approved or commands.is_allowed(command)):
        yield "command", commands.NOT_ALLOWED


def _text_map_faults(field: str, value: Any, name_fault: Any) -> FieldFaults:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        yield field, "Enter an object of texts, such as {}."
        return
    if len(value) > MAX_ENTRIES:
        yield field, f"Enter at most {MAX_ENTRIES}."
    for name, text in value.items():
        if fault := name_fault(name):
            yield field, f"{name[:100]}: {fault}"
        if len(text) > MAX_TEXT_LENGTH or "\0" in text or not _HEADER_TEXT.fullmatch(text):
            yield field, f"{name[:100]}: must be ASCII text without line breaks, at most {MAX_TEXT_LENGTH} characters."
        try:
            if templates.parse(text).arguments:
                yield field, f"{name[:100]}: only {{secret:NAME}} is possible here; double other braces."
        except BadTemplate as problem:
            yield field, f"{name[:100]}: {problem}."


def _header_fault(name: str) -> str:
    lower = name.lower()
    if not _HEADER_NAME.fullmatch(name):
        return "is not a valid header name."
    if lower in RESERVED_HEADERS | _HUB_HEADERS or lower.startswith(("proxy-", "mcp-")):
        return "this header is set by the hub."
    return ""


def variable_fault(name: str) -> str:
    """Return why the environment of a program cannot have a variable of this name; "" if it can."""
    upper = name.upper()
    if not _VARIABLE_NAME.fullmatch(name):
        return "is not a valid name of an environment variable."
    if upper in _HUB_VARIABLES or upper.startswith("MCPHUB_"):
        return "this variable is set by the hub."
    if upper in _LOADING_VARIABLES or upper.startswith(_LOADING_PREFIXES):
        return "this variable changes what the program runs."
    return ""
