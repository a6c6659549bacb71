"""The configuration of a tool for an operation of an API source: what the parser of its document generates.

Where the API is, and which secrets are sent, are settings of the source, so they are not repeated in each tool.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urljoin
from uuid import UUID

import msgspec

from tools_app.catalog.kinds.http.config import (
    DEFAULT_RESPONSE_BYTES,
    MAX_RESPONSE_BYTES,
    ConfigProblem,
    is_header,
)
from tools_app.core.http.urls import InvalidUrl, Url, has_parent_segments, parse_url

Place = Literal["path", "query", "querystring", "header", "cookie"]
Style = Literal[
    "simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject", "cookie"
]
Mode = Literal["json", "lines", "form", "multipart", "raw", "base64"]

_METHOD: Final = re.compile(r"[A-Za-z]{1,20}")
_MEDIA_TYPE: Final = re.compile(r"[!-~]+/[ -~]+")
_QUERY: Final = re.compile(r"[A-Za-z0-9._~%=&+/:-]*")
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")
# In a path.
VARIABLE: Final = re.compile(r"\{([^{}]+)\}")
NO_SERVER: Final = "The document names no server. Set the base URL of the API source."


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A parameter: the argument that it gets its value from, and how the value is written."""

    argument: str
    name: str
    place: Place
    style: Style
    explode: bool = False
    allow_reserved: bool = False
    content_type: str = ""


class BodyField(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A property of a body that is an argument of its own. `style` is "" for the default of the media type."""

    argument: str
    name: str
    is_file: bool = False
    style: Style | Literal[""] = ""
    explode: bool = False
    content_type: str = ""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A body: one argument, or a field for each of several arguments."""

    media_type: str
    mode: Mode
    argument: str = ""
    fields: list[BodyField] = []
    required: bool = False


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The URL of a server, with variables in braces: the default of each, and the values that it may have."""

    url: str
    variables: dict[str, dict[str, Any]] = {}


class Scheme(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the credential of a security scheme is sent."""

    kind: Literal["header", "query", "cookie", "basic", "bearer"]
    name: str


class OperationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The request of an operation. `security` are alternatives, each a list of schemes.

    `fixed_query` is a part of the path in the document: it is sent as it is.
    """

    method: str
    path: str
    parameters: list[Parameter] = []
    body: Body | None = None
    security: list[list[str]] = []
    server: Server | None = None
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    fixed_query: str = ""


@dataclass(frozen=True)
class SourceSettings:
    """The settings of an API source that its tools use.

    `schemes` are those of the document, `secrets` the names of the tenant's secrets by scheme.
    """

    url: str
    base_url: str
    servers: list[dict[str, Any]]
    variables: Mapping[str, str]
    schemes: Mapping[str, Mapping[str, str]]
    secrets: Mapping[str, str]
    tenant_id: UUID


def parse_operation(raw: Mapping[str, Any]) -> OperationConfig:
    """Return the validated configuration. Raises ConfigProblem."""
    try:
        config = msgspec.convert(dict(raw), OperationConfig)
    except msgspec.ValidationError as problem:
        raise ConfigProblem("operation", f"{problem}.") from problem
    if not _METHOD.fullmatch(config.method):
        raise ConfigProblem("method", "This is no HTTP method.")
    if not config.path.startswith("/") or has_parent_segments(config.path) or any(one in config.path for one in "?#\\"):
        raise ConfigProblem("path", "The path must start with a slash, without a query and '.' or '..' segments.")
    if not _QUERY.fullmatch(config.fixed_query):
        raise ConfigProblem("fixed_query", "The query contains a character that must be percent-encoded.")
    if not 0 < config.max_response_bytes <= MAX_RESPONSE_BYTES:
        raise ConfigProblem("max_response_bytes", f"Enter a number from 1 to {MAX_RESPONSE_BYTES}.")
    if config.body is not None:
        types = (config.body.media_type, *(field.content_type for field in config.body.fields if field.content_type))
        if invalid := next((one for one in types if not _MEDIA_TYPE.fullmatch(one)), None):
            raise ConfigProblem("body", f"{invalid[:100]!r} is no media type.")
    for parameter in config.parameters:
        if parameter.place == "header" and not is_header(parameter.name):
            raise ConfigProblem("parameters", f"{parameter.name[:100]!r} cannot be sent as a header.")
    return config


def check_document(servers: Any, schemes: Any) -> None:
    """Check what a document says of servers and security schemes, as it is stored. Raises ConfigProblem."""
    try:
        msgspec.convert(servers, list[Server])
    except msgspec.ValidationError as problem:
        raise ConfigProblem("servers", f"{problem}.") from problem
    try:
        found = msgspec.convert(schemes, dict[str, Scheme])
    except msgspec.ValidationError as problem:
        raise ConfigProblem("schemes", f"{problem}.") from problem
    for scheme in found.values():
        if scheme.kind == "header" and not is_header(scheme.name):
            raise ConfigProblem("schemes", f"{scheme.name[:100]!r} cannot be sent as a header.")


def base_url_of(config: OperationConfig, source: SourceSettings) -> Url:
    """Return the URL that the requests of a tool must stay under. Raises ConfigProblem.

    The base URL of the source takes precedence over every server that the document names.
    """
    if source.base_url:
        return checked_base(source.base_url)
    server = config.server or next((Server(**one) for one in source.servers), None)
    if server is None:
        raise ConfigProblem("base_url", NO_SERVER)
    try:
        url = urljoin(source.url, expanded(server, source.variables))
    except ValueError:
        raise ConfigProblem("base_url", "Invalid URL: the document names a server whose host is malformed.") from None
    return checked_base(url)


def expanded(server: Server, variables: Mapping[str, str]) -> str:
    """Return the URL of a server with the values of its variables. Raises ConfigProblem."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        known = server.variables.get(name, {})
        chosen = variables.get(name, str(known.get("default", "")))
        if not chosen or (known.get("enum") and chosen not in known["enum"]):
            raise ConfigProblem("server_variables", f"Set a valid value of the server variable {name[:100]!r}.")
        return chosen

    return _VARIABLE.sub(value, server.url)


def checked_base(text: str) -> Url:
    """Return a base URL. Raises ConfigProblem."""
    if not text.startswith(("http://", "https://")):
        raise ConfigProblem("base_url", NO_SERVER)
    if any(one in text for one in "?#{}"):
        raise ConfigProblem("base_url", "Remove the query, the fragment and braces.")
    try:
        url = parse_url(text)
    except InvalidUrl as problem:
        raise ConfigProblem("base_url", f"Invalid URL: {problem}.") from problem
    if has_parent_segments(url.path):
        raise ConfigProblem("base_url", "The path contains a '.' or '..' segment.")
    return url
