"""The draft of an HTTP tool, made of a pasted cURL command or URL. No I/O.

A credential of the command never becomes a part of the draft: `{secret:NAME}` takes its place, and the credential is
listed, so that an admin can store it. Placeholders as documentation writes them (`{id}`, `<id>`, `:id`, `$ID`) become
the placeholders of tools; other braces are doubled.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

from tools_app.catalog.kinds.http.config import BODILESS_METHODS, METHODS, RESERVED_HEADERS
from tools_app.catalog.kinds.http.curl import InvalidPaste, PastedRequest, basic_credentials, parse_paste

MAX_VALUES: Final = 50
MAX_NOTES: Final = 20
MAX_DEPTH: Final = 40
MAX_TIMEOUT_SECONDS: Final = 86_400.0
MIN_TIMEOUT_SECONDS: Final = 0.1

# What a browser adds to each of its requests says nothing about the service.
_BROWSER_HEADERS = re.compile(
    r"sec-.*|accept-language|user-agent|referer|origin|priority|dnt|pragma|cache-control|upgrade-insecure-requests",
    re.IGNORECASE,
)
_CREDENTIAL_NAME = re.compile(
    r"auth|api[-_.]?key|apikey|access[-_.]?key|private[-_.]?key|token|secret|passw|pwd|cookie|session|signature|"
    r"^key$|^sig$",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?P<scheme>Bearer|Basic|Token|ApiKey|Digest|Key)\s+(?P<value>\S.*)", re.IGNORECASE | re.DOTALL)
_PLACEHOLDER = re.compile(r"\{(?P<name>[A-Za-z_$][A-Za-z0-9_$.-]*)\}")
_BRACE = re.compile(rf"(?P<placeholder>{_PLACEHOLDER.pattern})|[{{}}]")
_ANGLE = re.compile(r"<([A-Za-z_][A-Za-z0-9_-]*)>")
_COLON = re.compile(r"(?<=/):([A-Za-z_][A-Za-z0-9_-]*)")
_URL = re.compile(
    r"(?P<origin>[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?", re.DOTALL
)
# A credential that stands for the reader's own: YOUR_API_KEY, <token>, xxxx, ...
_EXAMPLE = re.compile(
    r"\{[^{}]*\}|<[^<>]*>|[.…*x•]{3,}|(?:[a-z]{1,20}[-_ ]){0,3}(?:your|my)[-_ ][\w -]{1,40}", re.IGNORECASE
)
_VERBS: Final = {"GET": "get", "HEAD": "check", "POST": "post", "PUT": "put", "PATCH": "update", "DELETE": "delete"}


@dataclass(frozen=True)
class Credential:
    """A credential of a command: where it is, a name for its secret, and its value ("" if it is an example)."""

    place: str
    name: str
    value: str = field(repr=False)


@dataclass(frozen=True)
class ConstantValue:
    """A value of the query or of the body that the user may turn into an argument."""

    where: str
    name: str
    value: Any


@dataclass
class Draft:
    """The fields of a new tool, and what to tell the user."""

    fields: dict[str, Any]
    credentials: list[Credential] = field(default_factory=list)
    values: list[ConstantValue] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def draft_of(text: str) -> Draft:
    """Return the draft of a tool. Raises InvalidPaste."""
    request = parse_paste(text)
    return _Drafting(request).draft()


class _Drafting:
    """The state of one conversion."""

    def __init__(self, request: PastedRequest) -> None:
        self.request = request
        self.notes = request.notes
        self.credentials: list[Credential] = []
        self.values: list[ConstantValue] = []
        self.host = ""

    def draft(self) -> Draft:
        """Return the draft. Raises InvalidPaste."""
        request = self.request
        match = _URL.fullmatch(_ANGLE.sub(r"{\1}", request.url))
        if match is None or match["origin"].partition("://")[0].lower() not in {"http", "https"}:
            raise InvalidPaste("The URL must start with http:// or https://.")
        origin = self._origin(match["origin"])
        path = _COLON.sub(r"{\1}", match["path"] or "")
        query = self._query(match["query"] or "")
        headers = self._headers()
        body_mode, body = self._body(query)
        method = self._method(body_mode)
        if body_mode == "template" and method in BODILESS_METHODS:
            self.notes.append(f"The body is left out: {method} requests have no body.")
            body_mode, body = "none", None
        name = _name_of(method, path, self.host)
        fields = {
            "name": name,
            "title": name.replace("_", " ").capitalize(),
            "method": method,
            "base_url": origin,
            "path": _escaped(quote(path, safe="/%:@!$&'()*+,;={}-._~").removeprefix("/")),
            "query": query,
            "headers": headers,
            "body_mode": body_mode,
            "body": body,
            "follow_redirects": request.follow_redirects,
        }
        if request.timeout_seconds:
            fields["timeout_seconds"] = min(max(request.timeout_seconds, MIN_TIMEOUT_SECONDS), MAX_TIMEOUT_SECONDS)
        return Draft(fields, self.credentials, self.values[:MAX_VALUES], list(dict.fromkeys(self.notes))[:MAX_NOTES])

    def _origin(self, origin: str) -> str:
        scheme, _, authority = origin.partition("://")
        user, at, host = authority.rpartition("@")
        if at:
            self.request.user = self.request.user or unquote(user)
        if not host or "{" in host:
            raise InvalidPaste("The host of the URL is a variable. Replace it with the name of the host.")
        self.host = host.partition(":")[0].lower()
        return f"{scheme.lower()}://{host}"

    def _method(self, body_mode: str) -> str:
        method = self.request.method or ("GET" if body_mode == "none" else "POST")
        if method in METHODS:
            return method
        self.notes.append(f"The method {method[:20]} is not supported. Choose one of {', '.join(METHODS)}.")
        return "GET" if body_mode == "none" else "POST"

    # --- Query and headers ----------------------------------------------------------------------------------------

    def _query(self, text: str) -> dict[str, str]:
        pairs = parse_qsl(text, keep_blank_values=True)
        if self.request.data_in_query and self.request.body is not None:
            pairs += parse_qsl(self.request.body, keep_blank_values=True)
        query: dict[str, str] = {}
        for name, value in pairs:
            if name in query:
                self.notes.append(f"The query has {name} several times. The first value is used.")
                continue
            query[name] = self._text("query", name, _ANGLE.sub(r"{\1}", value))
        return query

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        left_out: list[str] = []
        for name, value in self.request.headers:
            if self._is_set_elsewhere(name, headers):
                left_out.append(name)
            elif name.lower() == "content-type" and "json" in value.lower():
                continue  # the hub sends it with each body
            elif name.lower() == "content-type" and self.request.data:
                left_out.append(name)
            else:
                headers[name] = self._header(name, value)
        if self.request.user and "authorization" not in {name.lower() for name in headers}:
            value = "" if _EXAMPLE.fullmatch(self.request.user) else basic_credentials(self.request.user)
            headers["Authorization"] = f"Basic {self._secret('Authorization', value)}"
        if left_out:
            self.notes.append(f"Left out, because the hub or a browser sets them: {', '.join(left_out)[:500]}.")
        return headers

    def _is_set_elsewhere(self, name: str, headers: dict[str, str]) -> bool:
        """Whether the hub sets this header, it is a repetition, or a browser added it."""
        lower = name.lower()
        if lower in RESERVED_HEADERS or lower.startswith("proxy-") or lower in {one.lower() for one in headers}:
            return True
        is_of_browser = any(one.lower().startswith("sec-") for one, _ in self.request.headers)
        return bool(_BROWSER_HEADERS.fullmatch(name)) and is_of_browser

    def _header(self, name: str, value: str) -> str:
        if not _CREDENTIAL_NAME.search(name):
            return _escaped(_ANGLE.sub(r"{\1}", value))
        scheme = _SCHEME.fullmatch(value)
        if scheme:
            return f"{scheme['scheme']} {self._secret(name, scheme['value'])}"
        return self._secret(name, value)

    def _text(self, where: str, name: str, value: str) -> str:
        """Return the template of a value of the query; a constant is listed."""
        if value and _CREDENTIAL_NAME.search(name):
            return self._secret(name, value)
        if not _PLACEHOLDER.search(value):
            self.values.append(ConstantValue(where, name, value))
        return _escaped(value)

    def _secret(self, place: str, value: str) -> str:
        """List a credential, and return what takes its place."""
        for known in self.credentials:
            if value and known.value == value:
                return f"{{secret:{known.name}}}"
        name = self._secret_name(place)
        self.credentials.append(Credential(place, name, "" if _EXAMPLE.fullmatch(value) else value))
        return f"{{secret:{name}}}"

    def _secret_name(self, place: str) -> str:
        labels = [label for label in self.host.split(".") if label not in {"api", "www"}]
        is_name = len(labels) > 1 and not labels[-1].isdecimal()
        service = labels[-2] if is_name else "api"
        kind = "TOKEN" if place.lower() == "authorization" else re.sub(r"^x[-_]", "", place, flags=re.IGNORECASE)
        name = re.sub(r"[^A-Z0-9]+", "_", f"{service}_{kind}".upper()).strip("_")[:60] or "API_TOKEN"
        taken = {one.name for one in self.credentials}
        return next(one for one in (name, *(f"{name}_{n}" for n in range(2, 1000))) if one not in taken)

    # --- Body -----------------------------------------------------------------------------------------------------

    def _body(self, query: dict[str, str]) -> tuple[str, Any]:
        """Return the mode and the template of the body."""
        text = self.request.body
        if text is None or (self.request.data_in_query and query is not None):
            return "none", None
        value = _json_of(text)
        if value is None:
            pairs = parse_qsl(text, keep_blank_values=True)
            if not pairs:
                self.notes.append("The body is left out: HTTP tools send JSON, and this is neither JSON nor a form.")
                return "none", None
            self.notes.append("The body is a form. HTTP tools send JSON: check that the service accepts it.")
            value = dict(pairs)
        if isinstance(value, dict):
            self._list_values(value)
        return "template", _mapped(value, self._body_text)

    def _list_values(self, body: dict[str, Any]) -> None:
        for name, value in body.items():
            scalar = value is not None and not isinstance(value, dict | list)
            if (
                scalar
                and not _CREDENTIAL_NAME.search(name)
                and not (isinstance(value, str) and _PLACEHOLDER.search(value))
            ):
                self.values.append(ConstantValue("body", name, value))

    def _body_text(self, name: str, value: str) -> str:
        if value and _CREDENTIAL_NAME.search(name):
            return self._secret(name, value)
        return _escaped(_ANGLE.sub(r"{\1}", value))


def _json_of(text: str) -> Any:
    """Return the JSON value of a text; None if it has none. A bare placeholder (`"id": {ID}`) is quoted."""
    for candidate in (text, re.sub(rf"(?<=[:\[,\s]){_PLACEHOLDER.pattern}(?=\s*[,\]}}])", r'"\g<0>"', text)):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return value if _depth_of(value) <= MAX_DEPTH else None
    return None


def _depth_of(value: Any) -> int:
    """Return how deep a value is nested, without recursion."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def _mapped(value: Any, text: Callable[[str, str], str], name: str = "") -> Any:
    """Return `value` with each string replaced; `text` is called with the string's name in its object."""
    match value:
        case str():
            return text(name, value)
        case dict():
            return {key: _mapped(item, text, key) for key, item in value.items()}
        case list():
            return [_mapped(item, text, name) for item in value]
        case _:
            return value


def _escaped(text: str) -> str:
    """Return a template with the placeholders of `text`, and with its other braces doubled."""
    return _BRACE.sub(lambda match: match[0] if match["placeholder"] else match[0] * 2, text)


def _name_of(method: str, path: str, host: str) -> str:
    """Return a name for the tool: a verb, and the last parts of the path that are words."""
    words = [
        part.removesuffix(".json")
        for part in unquote(path).split("/")
        if "{" not in part and re.fullmatch(r"[A-Za-z][A-Za-z_.-]*", part) and part.lower() != "api"
    ]
    labels = [label for label in host.split(".") if label not in {"www", "api"} and not label.isdecimal()]
    subject = "_".join(words[-2:]) or (labels[0] if labels else "request")
    name = re.sub(r"[^a-z0-9]+", "_", f"{_VERBS[method]}_{subject}".lower()).strip("_")
    return name[:64]
