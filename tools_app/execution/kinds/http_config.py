"""What an admin writes to define an HTTP tool, and the check of it.

Everything that can be known before a call is refused here, with the name of the field, so that a call only fails for
reasons of its own.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

from tools_app.execution.kinds import templates
from tools_app.execution.kinds.templates import BadTemplate, Template
from tools_app.execution.outgoing.urls import BadUrl, Url, climbs, parse_url

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
BodyMode = Literal["none", "arguments", "template"]
METHODS: tuple[str, ...] = get_args(Method)
BODY_MODES: tuple[str, ...] = get_args(BodyMode)
BODILESS_METHODS = frozenset({"GET", "HEAD"})

DEFAULT_RESPONSE_BYTES = 1024 * 1024
MOST_RESPONSE_BYTES = 8 * 1024 * 1024

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_TEXT = re.compile(r"[\t -~\xa0-\xff]*")
# They frame the message or belong to the connection, which is the hub's business.
_RESERVED_HEADERS = frozenset({
    "accept-encoding", "connection", "content-encoding", "content-length", "expect", "host", "http2-settings",
    "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_IN_PATHS = re.compile(r"[?#\\\x00-\x1f\x7f]")


class ConfigProblem(ValueError):
    """A configuration that cannot work: the field at fault, and what to write instead."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class HttpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An HTTP tool as its admin defines it.

    `path` and the values of `query`, `headers` and, in mode `template`, the texts of `body` are templates. Mode
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
    """The checked configuration. Raises ConfigProblem."""
    config = _typed(raw)
    base_of(config)
    _check_path(config.path)
    _check_query(config)
    _check_headers(config)
    _check_body(config)
    if not 0 < config.max_response_bytes <= MOST_RESPONSE_BYTES:
        raise ConfigProblem("max_response_bytes", f"Write a number from 1 to {MOST_RESPONSE_BYTES}.")
    return config


def placeholders(config: HttpConfig) -> set[str]:
    """The names of the arguments that the templates use."""
    return {name for template in (*outer_templates(config), *body_templates(config)) for name in template.arguments}


def secret_names(config: HttpConfig) -> set[str]:
    """The names of the secrets that the templates use."""
    return {name for template in (*outer_templates(config), *body_templates(config)) for name in template.secrets}


def outer_templates(config: HttpConfig) -> Iterator[Template]:
    """The templates outside the body."""
    for text in (config.path, *config.query.values(), *config.headers.values()):
        yield templates.parse(text)


def body_templates(config: HttpConfig) -> Iterator[Template]:
    """The templates of the body."""
    return (templates.parse(text) for text in _texts(config.body))


def base_of(config: HttpConfig) -> Url:
    """The URL that every request of the tool stays under. Raises ConfigProblem."""
    if "?" in config.base_url or "#" in config.base_url:
        raise ConfigProblem("base_url", "Write no query and no fragment here.")
    if "{" in config.base_url or "}" in config.base_url:
        raise ConfigProblem("base_url", "Write placeholders into the path, not here.")
    try:
        url = parse_url(config.base_url)
    except BadUrl as problem:
        raise ConfigProblem("base_url", f"This is no URL that can be called: {problem}.") from problem
    if climbs(url.path) or _STRAY_PERCENT.search(url.path):
        raise ConfigProblem("base_url", "Its path has a '.' or '..' segment or a stray '%'.")
    return url


def _typed(raw: Mapping[str, Any]) -> HttpConfig:
    unknown = sorted(set(raw) - set(HttpConfig.__struct_fields__))
    if unknown:
        raise ConfigProblem(unknown[0], "There is no such field.")
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
        raise ConfigProblem("path", "A secret does not belong in a path; put it into a header.")
    if _NOT_IN_PATHS.search(path):
        raise ConfigProblem("path", "Write no '?', '#', backslash or control character; parameters go into the query.")
    if _STRAY_PERCENT.search(path):
        raise ConfigProblem("path", "A '%' is followed by two hexadecimal digits; write %25 for the sign itself.")
    if climbs(path) or "//" in path:
        raise ConfigProblem("path", "It has an empty, '.' or '..' segment.")


def _check_query(config: HttpConfig) -> None:
    for name, text in config.query.items():
        if not name:
            raise ConfigProblem("query", "A parameter has no name.")
        _template("query", text, f"{name}: ")


def _check_headers(config: HttpConfig) -> None:
    seen: set[str] = set()
    for name, text in config.headers.items():
        _check_header_name(name, seen)
        seen.add(name.lower())
        _template("headers", text, f"{name}: ")
        if not _HEADER_TEXT.fullmatch(text):
            raise ConfigProblem("headers", f"{name}: write no line breaks, and only characters of Latin-1.")


def _check_header_name(name: str, seen: set[str]) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise ConfigProblem("headers", f"{name!r} is no name of a header.")
    if name.lower() in _RESERVED_HEADERS or name.lower().startswith("proxy-"):
        raise ConfigProblem("headers", f"{name}: the hub sets this header itself.")
    if name.lower() in seen:
        raise ConfigProblem("headers", f"{name} is there twice.")


def _check_body(config: HttpConfig) -> None:
    if config.body_mode != "none" and config.method in BODILESS_METHODS:
        raise ConfigProblem("body_mode", f"A {config.method} request has no body.")
    if config.body_mode != "template" and config.body is not None:
        raise ConfigProblem("body", f"With the body mode '{config.body_mode}' there is no template: leave this empty.")
    if config.body_mode == "template" and config.body is None:
        raise ConfigProblem("body", "Write the JSON that is sent, with placeholders in its texts.")
    try:
        for text in _texts(config.body):
            _template("body", text, f"{text!r}: ")
    except RecursionError as problem:
        raise ConfigProblem("body", "It is nested too deep.") from problem


def _texts(body: Any) -> Iterator[str]:
    """The texts of a JSON template; its keys are no templates."""
    match body:
        case str():
            yield body
        case dict():
            for item in body.values():
                yield from _texts(item)
        case list():
            for item in body:
                yield from _texts(item)
