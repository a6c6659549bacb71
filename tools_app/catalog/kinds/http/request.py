"""Building of an HTTP tool's request from the arguments of a call. No I/O.

Arguments are encoded for their position, and the final URL is checked again to lie under the configured one.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from tools_app.catalog.kinds import templates
from tools_app.catalog.kinds.http.config import HttpConfig, base_of, body_templates, outer_templates
from tools_app.catalog.kinds.templates import Argument, Template, Values, as_text, rendered
from tools_app.catalog.tool_api.results import ToolError
from tools_app.core.http.client import Outbound
from tools_app.core.http.urls import Url, has_parent_segments, stays_under
from tools_app.protocol import exact_json

DEFAULT_HEADERS = {
    "User-Agent": "mcphub",
    "Accept": "application/json, text/*;q=0.9, */*;q=0.5",
    # An uncompressed body cannot be a bomb; `bodies` decompresses responses of services that ignore this.
    "Accept-Encoding": "identity",
}

# The total length of arguments in all positions of a request.
MAX_REPEATED: Final = 4 * 1024 * 1024

_PATH_CHARACTERS = "/%:@!$&'()*+,;="
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HEADER_VALUE = re.compile(r"[\t -~\xa0-\xff]*")


class _Absent:
    """Marks a part of a body that is left out."""


ABSENT: Final = _Absent()


def build_request(config: HttpConfig, values: Values) -> Outbound:
    """Build the request of one call. Raises ToolError for arguments that do not fit a URL, header or body."""
    _check_size(config, values)
    body = _body(config, values)
    headers = _headers(config, values, has_body=body is not None)
    base = base_of(config)
    query = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in _query(config, values))
    url = Url(base.scheme, base.host, base.port, _path(base, templates.parse(config.path), values), query)
    if not stays_under(url, base):
        raise ToolError("The arguments lead outside of the tool's base URL.")
    return Outbound(config.method, url, headers, body)


def _check_size(config: HttpConfig, values: Values) -> None:
    """Check the expanded size of the arguments before templates are rendered. Raises ToolError."""
    used = Counter(
        part.name
        for template in (*outer_templates(config), *body_templates(config))
        for part in template.parts
        if isinstance(part, Argument)
    )
    repeated = {name: count for name, count in used.items() if count > 1 and values.arguments.get(name) is not None}
    size = sum(count * len(as_text(values.arguments[name], name)) for name, count in repeated.items())
    if size > MAX_REPEATED:
        raise ToolError(
            f"The request would repeat its arguments in more than {MAX_REPEATED} characters: send shorter arguments."
        )


def _path(base: Url, template: Template, values: Values) -> str:
    if not template.parts:
        return base.path
    for name in sorted(template.arguments):
        value = values.arguments.get(name)
        if value is None:
            raise ToolError(f"The argument '{name}' is required.")
        text = as_text(value, name)
        if not text or has_parent_segments(text) or CONTROL.search(text):
            raise ToolError(
                f"The argument '{name}' is a part of an address: it cannot be empty, hold control characters,"
                " or be or contain a '.' or '..' segment."
            )
    below = rendered(template, values, value=_encoded, literal=lambda text: quote(text, safe=_PATH_CHARACTERS))
    return f"{base.path.rstrip('/')}/{below.removeprefix('/')}"


def _encoded(text: str) -> str:
    return quote(text, safe="")


def _query(config: HttpConfig, values: Values) -> Iterator[tuple[str, str]]:
    """Return the query parameters: a list repeats its parameter, and one without its argument is left out."""
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
            headers[name.lower()] = (name, header_value(name, rendered(template, values)))
    return tuple(headers.values())


def header_value(name: str, value: str) -> str:
    """Return a valid header value. Raises ToolError, without the value, which may be a secret."""
    stripped = value.strip(" \t")
    if not _HEADER_VALUE.fullmatch(stripped):
        raise ToolError(
            f"The value for the header {name} contains line breaks or characters that are not allowed in headers."
        )
    return stripped


def _body(config: HttpConfig, values: Values) -> bytes | None:
    match config.body_mode:
        case "none":
            return None
        case "arguments":
            used = {name for template in outer_templates(config) for name in template.arguments}
            return as_json({name: value for name, value in values.arguments.items() if name not in used})
        case "template":
            filled = _filled(config.body, values)
            return None if filled is ABSENT else as_json(filled)


def _filled(body: Any, values: Values) -> Any:
    """Render a JSON template; a part without its argument is ABSENT, and left out of its object or list."""
    match body:
        case str():
            template = templates.parse(body)
            if template.sole_argument is not None:
                return values.arguments.get(template.sole_argument, ABSENT)
            return rendered(template, values) if values.has(template) else ABSENT
        case dict():
            items = {name: _filled(item, values) for name, item in body.items()}
            return {name: item for name, item in items.items() if item is not ABSENT}
        case list():
            return [item for item in (_filled(item, values) for item in body) if item is not ABSENT]
        case _:
            return body


def as_json(value: Any) -> bytes:
    """Return arguments as JSON, with exact numbers. Raises ToolError."""
    try:
        return exact_json.dumps(exact_json.with_decimals(value))
    except (TypeError, ValueError, RecursionError) as problem:
        raise ToolError("The arguments cannot be serialized as JSON.") from problem
