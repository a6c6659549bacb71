"""Validation of upstreams that people write, by field: the same in the admin, REST, tenants' files and commands.

Programs of stdio upstreams are those that the operator of the hub listed or added, and nothing else. `manage.py
add_upstream` approves the command that it is given, for this upstream and to the letter. An entry of
MCPHUB_UPSTREAM_COMMANDS is a command line. It is matched word by word; `*` as its last word stands for any further
arguments. So `uvx mcp-server-time` allows this server only, and `uvx *` allows everything that uvx can run.
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tools_app.catalog.kinds import templates
from tools_app.catalog.kinds.http.config import RESERVED_HEADERS
from tools_app.catalog.kinds.templates import BadTemplate
from tools_app.core.config import config
from tools_app.core.http.urls import InvalidUrl, parse_url
from tools_app.models import Upstream, UpstreamTransport
from tools_app.upstreams.credentials.discovery import valid_scopes

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

NOT_ALLOWED: Final = (
    "The operator of the hub does not allow this command. Allowed command lines are listed in MCPHUB_UPSTREAM_COMMANDS,"
    " and the operator can add others by manage.py add_upstream."
)
LOCALHOST: Final = "localhost"
LOOPBACK: Final = frozenset({LOCALHOST, "127.0.0.1", "::1"})
ENDPOINTS: Final = frozenset({"/mcp", "/sse"})
TENANT_ENDPOINT_PREFIX: Final = "/t/"
OWN_ENDPOINT: Final = (
    "This is an endpoint of this hub. A hub that is its own upstream would call itself in a circle, so it refuses such "
    "requests. Enter the URL of another server."
)


def upstream_faults(upstream: Upstream, hub_url: str = "") -> dict[str, list[str]]:
    """Return the errors of an upstream, by field, besides those that the validators of its fields find.

    `hub_url` is an address of this hub, where the caller knows one besides MCPHUB_PUBLIC_URL.
    """
    faults: defaultdict[str, list[str]] = defaultdict(list)
    for field, message in _faults(upstream):
        faults[field].append(message)
    addresses = (hub_url, config.MCPHUB_PUBLIC_URL)
    if not faults and upstream.url and any(each and is_own_endpoint(upstream.url, each) for each in addresses):
        return {"url": [OWN_ENDPOINT]}
    return dict(faults)


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


def is_allowed_command(command: Sequence[str]) -> bool:
    """Whether an entry of MCPHUB_UPSTREAM_COMMANDS matches a command."""
    words = list(command)
    for entry in map(shlex.split, config.MCPHUB_UPSTREAM_COMMANDS):
        start = entry[:-1]
        if (start and words[: len(start)] == start) if entry[-1:] == ["*"] else entry == words:
            return True
    return False


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


def _faults(upstream: Upstream) -> Iterator[tuple[str, str]]:
    others = Upstream.objects.filter(tenant=upstream.tenant_id)
    if not others.filter(pk=upstream.pk).exists() and others.count() >= MAX_UPSTREAMS:
        yield "name", f"A tenant has at most {MAX_UPSTREAMS} upstreams. Delete one first."
    if upstream.transport == UpstreamTransport.STDIO:
        yield from _program_faults(upstream)
    else:
        if upstream.command:
            yield "command", "Only an upstream with the transport stdio has a command."
        yield from _url_faults("url", upstream.url)
    yield from _credential_faults(upstream)
    yield from _text_map_faults("headers", upstream.headers, _header_fault)
    yield from _text_map_faults("environment", upstream.environment, variable_fault)


def _program_faults(upstream: Upstream) -> Iterator[tuple[str, str]]:
    if upstream.url:
        yield "url", "An upstream with the transport stdio has no URL."
    if upstream.credential:
        yield "credential", "A program gets its credentials as environment variables."
    command = upstream.command
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        yield "command", 'Enter the program and its arguments as a list, such as ["npx", "-y", "some-server"].'
    elif len(command) > MAX_WORDS or any("\0" in word or len(word) > MAX_TEXT_LENGTH for word in command):
        yield "command", f"Enter at most {MAX_WORDS} words of at most {MAX_TEXT_LENGTH} characters."
    elif not (upstream.is_command_approved or is_allowed_command(command)):
        yield "command", NOT_ALLOWED


def _credential_faults(upstream: Upstream) -> Iterator[tuple[str, str]]:
    if fault := _header_fault(upstream.credential_header):
        yield "credential_header", fault.capitalize()
    if not _HEADER_TEXT.fullmatch(upstream.oauth_client_id):
        yield "oauth_client_id", "Enter ASCII characters."
    if upstream.oauth_client_secret and not upstream.oauth_client_id:
        yield "oauth_client_secret", "A secret belongs to an OAuth client ID. Enter that too."
    if upstream.oauth_issuer:
        yield from _url_faults("oauth_issuer", upstream.oauth_issuer)
    elif upstream.oauth_client_secret:
        yield "oauth_issuer", "Enter the issuer that gave out the secret: it is sent to no other server."
    if upstream.oauth_scopes and not valid_scopes(upstream.oauth_scopes):
        yield "oauth_scopes", "Enter scopes with spaces between them."


def _url_faults(field: str, url: str) -> Iterator[tuple[str, str]]:
    try:
        parse_url(url)
    except InvalidUrl as error:
        yield field, f"Invalid URL: {error}."


def _text_map_faults(field: str, value: Any, name_fault: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        yield field, "Enter an object of texts, such as {}."
        return
    if len(value) > MAX_ENTRIES:
        yield field, f"Enter at most {MAX_ENTRIES}."
    for name, text in value.items():
        if fault := name_fault(name):
            yield field, f"{name[:100]}: {fault}"
        if len(text) > MAX_TEXT_LENGTH or not _HEADER_TEXT.fullmatch(text):
            yield field, f"{name[:100]}: must be ASCII text without line breaks, at most {MAX_TEXT_LENGTH} characters."
        try:
            if templates.parse(text).arguments:
                yield field, f"{name[:100]}: only {{secret:NAME}} is possible here; double other braces."
        except BadTemplate as error:
            yield field, f"{name[:100]}: {error}."


def _header_fault(name: str) -> str:
    lower = name.lower()
    if not _HEADER_NAME.fullmatch(name):
        return "is not a valid header name."
    if lower in RESERVED_HEADERS | _HUB_HEADERS or lower.startswith(("proxy-", "mcp-")):
        return "this header is set by the hub."
    return ""
