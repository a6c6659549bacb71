"""From the arguments of a call to the request that an HTTP tool sends. No I/O.

Whatever comes from an argument is encoded for its place, and the finished URL is checked once more to lie under the
configured one.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from tools_app.execution.kinds import templates
from tools_app.execution.kinds.http_config import HttpConfig, base_of, outer_templates
from tools_app.execution.kinds.templates import Template, Values, as_text, rendered
from tools_app.execution.outgoing.exchange import Outbound
from tools_app.execution.outgoing.urls import Url, climbs, stays_under
from tools_app.execution.results import ToolError

DEFAULT_HEADERS = {
    "User-Agent": "mcphub",
    "Accept": "application/json, text/*;q=0.9, */*;q=0.5",
    # A body that is not compressed cannot be a bomb; `bodies` unpacks what services send nevertheless.
    "Accept-Encoding": "identity",
}

_PATH_CHARACTERS = "/%:@!$&'()*+,;="
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_VALUE = re.compile(r"[\t -~\xa0-\xff]*")


class _Absent:
    """Stands for a part of a body that is left out."""


ABSENT: Final = _Absent()


def build_request(config: HttpConfig, values: Values) -> Outbound:
    """The request for one call. Raises ToolError for arguments that fit no URL, header or body."""
    body = _body(config, values)
    headers = _headers(config, values, has_body=body is not None)
    return Outbound(config.method, _url(config, values), headers, body)


def _url(config: HttpConfig, values: Values) -> Url:
    base = base_of(config)
    query = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in _query(config, values))
    url = Url(base.scheme, base.host, base.port, _path(base, templates.parse(config.path), values), query)
    if not stays_under(url, base):
        raise ToolError("The arguments would lead out of the address that this tool is for.")
    return url


def _path(base: Url, template: Template, values: Values) -> str:
    if not template.parts:
        return base.path
    _check_path_arguments(template, values)
    below = rendered(template, values, value=_encoded, literal=lambda text: quote(text, safe=_PATH_CHARACTERS))
    return f"{base.path.rstrip('/')}/{below.removeprefix('/')}"


def _check_path_arguments(template: Template, values: Values) -> None:
    for name in sorted(template.arguments):
        value = values.arguments.get(name)
        if value is None:
            raise ToolError(f"The argument '{name}' is needed.")
        text = as_text(value, name)
        if not text or climbs(text) or _CONTROL.search(text):
            raise ToolError(
                f"The argument '{name}' is a part of an address: it cannot be empty, hold control characters,"
                " or be or contain a '.' or '..' segment."
            )


def _encoded(text: str) -> str:
    return quote(text, safe="")


def _query(config: HttpConfig, values: Values) -> Iterator[tuple[str, str]]:
    """The parameters: a list repeats its parameter, and what lacks an argument is left out."""
    for name, text in config.query.items():
        template = templates.parse(text)
        if not values.has(template):
            continue
        argument = template.sole_argument
        if argument is not None and isinstance(values.arguments[argument], list):
            for item in values.arguments[argument]:
                yield name, as_text(item, argument)
        else:
            yield name, rendered(template, values)


def _headers(config: HttpConfig, values: Values, *, has_body: bool) -> tuple[tuple[str, str], ...]:
    headers = {name.lower(): (name, value) for name, value in DEFAULT_HEADERS.items()}
    if has_body:
        headers["content-type"] = ("Content-Type", "application/json")
    for name, text in config.headers.items():
        template = templates.parse(text)
        if values.has(template):
            headers[name.lower()] = (name, _header_value(name, rendered(template, values)))
    return tuple(headers.values())


def _header_value(name: str, value: str) -> str:
    """A value that a header can carry; the value itself is not told, for it may be a secret. Raises ToolError."""
    stripped = value.strip(" \t")
    if not _HEADER_VALUE.fullmatch(stripped):
        raise ToolError(f"The value for the header {name} has line breaks or characters that no header can carry.")
    return stripped


def _body(config: HttpConfig, values: Values) -> bytes | None:
    match config.body_mode:
        case "none":
            return None
        case "arguments":
            used = {name for template in outer_templates(config) for name in template.arguments}
            return _json({name: value for name, value in values.arguments.items() if name not in used})
        case "template":
            filled = _filled(config.body, values)
            return None if filled is ABSENT else _json(filled)


def _filled(body: Any, values: Values) -> Any:
    """A JSON template with its values; what lacks an argument is ABSENT, and left out of its object or list."""
    match body:
        case str():
            return _filled_text(templates.parse(body), values)
        case dict():
            items = {name: _filled(item, values) for name, item in body.items()}
            return {name: item for name, item in items.items() if item is not ABSENT}
        case list():
            return [item for item in (_filled(item, values) for item in body) if item is not ABSENT]
        case _:
            return body


def _filled_text(template: Template, values: Values) -> Any:
    if template.sole_argument is not None:
        return values.arguments.get(template.sole_argument, ABSENT)
    return rendered(template, values) if values.has(template) else ABSENT


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as problem:
        raise ToolError("The arguments cannot be written as JSON.") from problem
