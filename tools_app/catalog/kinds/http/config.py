"""The configuration of HTTP tools and its validation.

Everything that is known before a call is validated here, with the name of the field, so that a call fails only for
reasons that depend on the call.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

from tools_app.catalog.kinds import templates
from tools_app.catalog.kinds.templates import BadTemplate, Template
from tools_app.core.http.urls import InvalidUrl, Url, has_parent_segments, parse_url

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
BodyMode = Literal["none", "arguments", "template"]
METHODS: tuple[str, ...] = get_args(Method)
BODY_MODES: tuple[str, ...] = get_args(BodyMode)
BODILESS_METHODS = frozenset({"GET", "HEAD"})

DEFAULT_RESPONSE_BYTES = 1024 * 1024
MAX_RESPONSE_BYTES = 8 * 1024 * 1024

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_TEXT = re.compile(r"[\t -~\xa0-\xff]*")
# These headers frame the message or belong to the connection, so the hub sets them.
RESERVED_HEADERS = frozenset({
    "accept-encoding", "connection", "content-encoding", "content-length", "expect", "host", "http2-settings",
    "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_IN_PATHS = re.compile(r"[?#\\\x00-\x1f\x7f]")


class ConfigProblem(ValueError):
    """An invalid configuration: the field, and how to correct it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class HttpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An HTTP tool as defined by an admin.

    `path` and the values of `query`, `headers` and, in mode `template`, the strings of `body` are templates. Mode
    `arguments` sends the arguments that no other template uses as one JSON object.
    """

    method: Method = "GET"
    base_url: str = ""
    path: str = ""
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body_mode: BodyMode = "none"
    body: Any = None
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    follow_redirects: bool = False


def parse_config(raw: Mapping[str, Any]) -> HttpConfig:
    """Return the validated configuration. Raises ConfigProblem."""
    config = _typed(raw)
    base_of(config)
    _check_path(config.path)
    for name, text in config.query.items():
        if not name:
            raise ConfigProblem("query", "The name of a parameter is empty.")
        _template("query", text, f"{name}: ")
    _check_headers(config)
    _check_body(config)
    if not 0 < config.max_response_bytes <= MAX_RESPONSE_BYTES:
        raise ConfigProblem("max_response_bytes", f"Enter a number from 1 to {MAX_RESPONSE_BYTES}.")
    return config


def with_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with all its fields, as a form stores it; an invalid one is returned unchanged."""
    try:
        full: dict[str, Any] = msgspec.to_builtins(parse_config(raw))
    except ConfigProblem:
        return dict(raw)
    return full


def as_described(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request without fields that have their defaults; an invalid one is returned unchanged."""
    try:
        full = msgspec.to_builtins(parse_config(raw))
    except ConfigProblem:
        return dict(raw)
    plain = msgspec.to_builtins(HttpConfig())
    return {name: value for name, value in full.items() if name in {"method", "base_url"} or value != plain[name]}


def secrets_of(raw: Mapping[str, Any]) -> set[str]:
    """Return the names of the secrets that a request uses; none of an invalid one."""
    try:
        return secret_names(parse_config(raw))
    except ConfigProblem:
        return set()


def placeholders(config: HttpConfig) -> set[str]:
    """Return the names of the arguments that the templates use."""
    return {name for template in (*outer_templates(config), *body_templates(config)) for name in template.arguments}


def secret_names(config: HttpConfig) -> set[str]:
    """Return the names of the secrets that the templates use."""
    return {name for template in (*outer_templates(config), *body_templates(config)) for name in template.secrets}


def outer_templates(config: HttpConfig) -> Iterator[Template]:
    """Return the templates outside of the body."""
    for text in (config.path, *config.query.values(), *config.headers.values()):
        yield templates.parse(text)


def body_templates(config: HttpConfig) -> Iterator[Template]:
    """Return the templates of the body."""
    return (templates.parse(text) for text in _texts(config.body))


def base_of(config: HttpConfig) -> Url:
    """Return the URL that every request of the tool must stay under. Raises ConfigProblem."""
    if "?" in config.base_url or "#" in config.base_url:
        raise ConfigProblem("base_url", "Remove the query and the fragment.")
    if "{" in config.base_url or "}" in config.base_url:
        raise ConfigProblem("base_url", "Use placeholders in the path, not in the base URL.")
    try:
        url = parse_url(config.base_url)
    except InvalidUrl as problem:
        raise ConfigProblem("base_url", f"Invalid URL: {problem}.") from problem
    if has_parent_segments(url.path) or _STRAY_PERCENT.search(url.path):
        raise ConfigProblem("base_url", "The path contains a '.' or '..' segment, or an invalid '%'.")
    return url


def is_header(name: str) -> bool:
    """Whether a definition may set this header: others frame the message, or belong to the connection."""
    is_reserved = name.lower() in RESERVED_HEADERS or name.lower().startswith("proxy-")
    return not is_reserved and _HEADER_NAME.fullmatch(name) is not None


def _typed(raw: Mapping[str, Any]) -> HttpConfig:
    unknown = sorted(set(raw) - set(HttpConfig.__struct_fields__))
    if unknown:
        raise ConfigProblem(unknown[0], "Unknown field.")
    try:
        return msgspec.convert(dict(raw), HttpConfig)
    except msgspec.ValidationError as problem:
        message, _, place = str(problem).partition(" - at `")
        field = re.search(r"\$\.(\w+)", place)
        raise ConfigProblem(field[1] if field else "config", f"{message}.") from problem


def _template(field: str, text: str, prefix: str = "") -> Template:
    try:
        return templates.parse(text)
    except BadTemplate as problem:
        raise ConfigProblem(field, f"{prefix}{problem}.") from problem


def _check_path(path: str) -> None:
    template = _template("path", path)
    if template.secrets:
        raise ConfigProblem("path", "Secrets cannot be used in a path. Use a header.")
    if _NOT_IN_PATHS.search(path):
        raise ConfigProblem(
            "path", "Remove '?', '#', backslashes and control characters. Use the query for parameters."
        )
    if _STRAY_PERCENT.search(path):
        raise ConfigProblem("path", "'%' must be followed by two hexadecimal digits. Use %25 for a literal '%'.")
    if has_parent_segments(path) or "//" in path:
        raise ConfigProblem("path", "The path contains an empty, '.' or '..' segment.")


def _check_headers(config: HttpConfig) -> None:
    seen: set[str] = set()
    for name, text in config.headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigProblem("headers", f"{name!r} is not a valid header name.")
        if not is_header(name):
            raise ConfigProblem("headers", f"{name}: this header is set by the hub.")
        if name.lower() in seen:
            raise ConfigProblem("headers", f"{name} is given twice.")
        seen.add(name.lower())
        _template("headers", text, f"{name}: ")
        if not _HEADER_TEXT.fullmatch(text):
            raise ConfigProblem("headers", f"{name}: must be Latin-1 text without line breaks.")


def _check_body(config: HttpConfig) -> None:
    if config.body_mode != "none" and config.method in BODILESS_METHODS:
        raise ConfigProblem("body_mode", f"{config.method} requests have no body.")
    if config.body_mode != "template" and config.body is not None:
        raise ConfigProblem("body", f"With the body mode '{config.body_mode}' this must be empty.")
    if config.body_mode == "template" and config.body is None:
        raise ConfigProblem("body", "Enter the JSON to send, with placeholders in its strings.")
    try:
        for text in _texts(config.body):
            _template("body", text, f"{text!r}: ")
    except RecursionError as problem:
        raise ConfigProblem("body", "It is nested too deeply.") from problem


def _texts(body: Any) -> Iterator[str]:
    """Yield the strings of a JSON template; its keys are not templates."""
    match body:
        case str():
            yield body
        case dict():
            for item in body.values():
                yield from _texts(item)
        case list():
            for item in body:
                yield from _texts(item)
