"""Building of the request of an operation from the arguments of a call. No I/O."""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from secrets import token_hex
from typing import Any, Final
from urllib.parse import quote

from tools_app.catalog.kinds.http.request import CONTROL, DEFAULT_HEADERS, as_json, header_value
from tools_app.catalog.kinds.openapi import styles
from tools_app.catalog.kinds.openapi.config import VARIABLE, Body, BodyField, OperationConfig, Parameter
from tools_app.catalog.kinds.openapi.styles import encoded, pairs, query_text, scalar
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core.http.client import Outbound
from tools_app.core.http.urls import Url, has_parent_segments, stays_under

_COOKIE_SAFE: Final = "!#$&'()*+-./:<=>?@[]^_`{|}~"
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:; ?[ -~]+)?")
JSON: Final = "application/json"
FILE_KEYS: Final = frozenset({"data", "filename", "media_type"})


@dataclass(frozen=True)
class Credential:
    """A secret and where it is sent: a header, a query parameter, a cookie, or Authorization."""

    kind: str
    name: str
    value: str

    @property
    def header(self) -> tuple[str, str] | None:
        """The header that carries it, unless it is sent elsewhere."""
        match self.kind:
            case "basic":
                return "Authorization", f"Basic {b64encode(self.value.encode()).decode()}"
            case "bearer":
                return "Authorization", f"Bearer {self.value}"
            case "header":
                return self.name, self.value
        return None


def build_operation(
    config: OperationConfig, base: Url, arguments: Mapping[str, Any], credentials: list[Credential]
) -> Outbound:
    """Build the request of one call. Raises ToolError for arguments that do not fit a URL, a header or a body."""
    path = base.path.rstrip("/") + _path(config, arguments)
    query = "&".join(filter(None, (config.fixed_query, query_text(_query(config, arguments, credentials)))))
    url = Url(base.scheme, base.host, base.port, path, query)
    if not stays_under(url, base):
        raise ToolError("The arguments lead outside of the base URL.")
    content_type, body = _body(config.body, arguments)
    headers = _headers(config, arguments, credentials, content_type)
    return Outbound(config.method.upper(), url, headers, body)


def given(parameters: list[Parameter], place: str, arguments: Mapping[str, Any]) -> Iterator[tuple[Parameter, Any]]:
    """Yield the parameters of a place that have a value."""
    for parameter in parameters:
        if parameter.place == place and arguments.get(parameter.argument) is not None:
            yield parameter, arguments[parameter.argument]


# --- URL ---


def _path(config: OperationConfig, arguments: Mapping[str, Any]) -> str:
    by_name = {one.name: one for one in config.parameters if one.place == "path"}
    parts = re.split(VARIABLE, config.path)
    literals = [quote(literal, safe="/%:@!$&'()*+,;=") for literal in parts[::2]]
    values = [_path_value(by_name[name], arguments) for name in parts[1::2]]
    return "".join(part for pair in zip_longest(literals, values, fillvalue="") for part in pair)


def _path_value(parameter: Parameter, arguments: Mapping[str, Any]) -> str:
    value = arguments.get(parameter.argument)
    if value is None or value in ("", [], {}):
        raise ToolError(f"The argument '{parameter.argument}' is required.")
    if parameter.content_type:
        value = _as_content(value, parameter)
    parts = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else [value]
    for text in (scalar(part, parameter.argument) for part in parts):
        if has_parent_segments(text) or CONTROL.search(text):
            raise ToolError(
                f"The argument '{parameter.argument}' is a part of an address: it cannot hold control characters,"
                " or be or contain a '.' or '..' segment."
            )
    encode = styles.reserved_allowed_in_path if parameter.allow_reserved else encoded
    return styles.in_path(value, parameter.name, parameter.style, parameter.explode, encode)


def _query(
    config: OperationConfig, arguments: Mapping[str, Any], credentials: list[Credential]
) -> Iterator[styles.Pair]:
    for parameter, value in given(config.parameters, "query", arguments):
        encode = styles.reserved_allowed if parameter.allow_reserved else encoded
        if parameter.content_type:
            yield encoded(parameter.name), encode(_as_content(value, parameter))
        else:
            yield from pairs(value, parameter.name, parameter.style, parameter.explode, encode)
    for parameter, value in given(config.parameters, "querystring", arguments):
        if isinstance(value, dict):
            for name, item in value.items():
                yield from pairs(item, name, "form", explode=True)
        else:
            raise ToolError(f"The argument '{parameter.argument}' must be an object.")
    for credential in credentials:
        if credential.kind == "query":
            yield encoded(credential.name), encoded(credential.value)


# --- Headers ---


def _headers(
    config: OperationConfig, arguments: Mapping[str, Any], credentials: list[Credential], content_type: str
) -> tuple[tuple[str, str], ...]:
    headers = {name.lower(): (name, value) for name, value in DEFAULT_HEADERS.items()}
    if content_type:
        headers["content-type"] = ("Content-Type", content_type)
    for parameter, value in given(config.parameters, "header", arguments):
        in_style = styles.in_header(value, parameter.name, parameter.explode)
        text = _as_content(value, parameter) if parameter.content_type else in_style
        headers[parameter.name.lower()] = (parameter.name, header_value(parameter.name, text))
    cookies = "; ".join(_cookies(config, arguments, credentials))
    if cookies:
        headers["cookie"] = ("Cookie", header_value("Cookie", cookies))
    for credential in credentials:
        if credential.header is not None:
            name, value = credential.header
            headers[name.lower()] = (name, header_value(name, value))
    return tuple(headers.values())


def _cookies(config: OperationConfig, arguments: Mapping[str, Any], credentials: list[Credential]) -> Iterator[str]:
    for parameter, value in given(config.parameters, "cookie", arguments):
        if parameter.content_type:
            yield f"{encoded(parameter.name)}={encoded(_as_content(value, parameter))}"
            continue
        for name, text in pairs(value, parameter.name, "form", parameter.explode, _cookie_text):
            yield f"{name}={text}"
    for credential in credentials:
        if credential.kind == "cookie":
            yield f"{encoded(credential.name)}={_cookie_text(credential.value)}"


def _cookie_text(text: str) -> str:
    """Encode what RFC 6265 does not allow in the value of a cookie."""
    return quote(text, safe=_COOKIE_SAFE)


# --- Body ---


def _body(body: Body | None, arguments: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """Return the content type and the bytes of the body; None without a body."""
    if body is None:
        return "", None
    names = [body.argument] if body.argument else [one.argument for one in body.fields]
    if not any(name in arguments for name in names) and (body.argument or not body.required):
        return "", None
    fields = [(one, arguments[one.argument]) for one in body.fields if one.argument in arguments]
    whole = arguments[body.argument] if body.argument else {one.name: item for one, item in fields}
    if body.argument and body.mode in {"form", "multipart"}:
        fields = list(_dynamic_fields(whole, body))
    match body.mode:
        case "multipart":
            parts = [part for one, value in fields if value is not None for part in _parts(one, value)]
            boundary = token_hex(16)
            written = b"".join(b"--%b\r\n%b\r\n" % (boundary.encode(), part) for part in parts)
            essence = body.media_type.partition(";")[0].strip()
            return f"{essence}; boundary={boundary}", written + b"--%b--\r\n" % boundary.encode()
        case "form":
            content = query_text(_form(fields))
        case "lines":
            content = _lines(whole, body)
        case "base64" if not isinstance(whole, dict | list):
            return body.media_type, _from_base64(whole, body.argument)
        case "json" | "base64":
            content = _json_text(whole)
        case _:
            content = whole if isinstance(whole, str) else _json_text(whole)
    try:
        return body.media_type, content.encode()
    except UnicodeEncodeError as problem:
        raise ToolError("The arguments are not valid Unicode text.") from problem


def _lines(whole: Any, body: Body) -> str:
    """Return JSON values one after another, each on a line; in a sequence (RFC 7464) each after a separator."""
    if isinstance(whole, str):
        return whole if whole.endswith("\n") or not whole else f"{whole}\n"
    separator = "\x1e" if "json-seq" in body.media_type else ""
    return "".join(f"{separator}{_json_text(one)}\n" for one in (whole if isinstance(whole, list) else [whole]))


def _dynamic_fields(whole: Any, body: Body) -> Iterator[tuple[BodyField, Any]]:
    """Yield the fields of a body whose document names none; in multipart, an object with `data` is a file."""
    if not isinstance(whole, dict):
        raise ToolError(f"The argument '{body.argument}' must be an object.")
    for name, value in whole.items():
        is_file = body.mode == "multipart" and isinstance(value, dict) and "data" in value and value.keys() <= FILE_KEYS
        yield BodyField(body.argument, name, is_file=is_file), value


def _form(fields: list[tuple[BodyField, Any]]) -> Iterator[styles.Pair]:
    for one, value in fields:
        if value is None:
            continue
        if one.style:
            yield from pairs(value, one.name, one.style, one.explode)
        elif isinstance(value, list):
            for item in value:
                yield encoded(one.name), encoded(_field_text(item, one))
        else:
            yield encoded(one.name), encoded(_field_text(value, one))


def _field_text(value: Any, one: BodyField) -> str:
    is_json = one.content_type.startswith(JSON) or isinstance(value, dict | list)
    return _json_text(value) if is_json else scalar(value, one.name)


def _parts(one: BodyField, value: Any) -> Iterator[bytes]:
    for item in value if isinstance(value, list) else [value]:
        name = _quoted(one.name)
        if one.is_file:
            if not isinstance(item, dict):
                raise ToolError(f"The argument '{one.argument}' must be an object with data, as base64.")
            kind = str(item.get("media_type") or one.content_type or "application/octet-stream")
            if not _TOKEN.fullmatch(kind):
                raise ToolError(f"The media_type of the argument '{one.argument}' is invalid.")
            data = _from_base64(item.get("data"), one.argument)
            filename = _quoted(str(item.get("filename") or one.name))
            about = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"\r\nContent-Type: {kind}'
        else:
            data = _field_text(item, one).encode()
            kind = one.content_type or (JSON if isinstance(item, dict | list) else "")
            about = f'Content-Disposition: form-data; name="{name}"' + (f"\r\nContent-Type: {kind}" if kind else "")
        yield about.encode() + b"\r\n\r\n" + data


def _quoted(text: str) -> str:
    """Return a name as browsers write it in a header of a part (HTML, §multipart/form-data encoding)."""
    cleaned = text.encode(errors="replace").decode()
    return CONTROL.sub(lambda found: f"%{ord(found[0]):02X}", cleaned).replace('"', "%22")


def _from_base64(value: Any, argument: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError) as problem:
        raise ToolError(f"The argument '{argument}' is not valid base64.") from problem


def _as_content(value: Any, parameter: Parameter) -> str:
    """Return the value of a parameter that has a media type: JSON, or of another one the text as it is."""
    is_json = "json" in parameter.content_type or "*" in parameter.content_type
    return value if isinstance(value, str) and not is_json else _json_text(value)


def _json_text(value: Any) -> str:
    return as_json(value).decode()
