"""cURL commands and URLs as people paste them, parsed into a request. No I/O.

The shell's quoting is understood, not its expansions: a variable (`$ID`, `${ID}`) becomes the placeholder `{ID}`. An
option that has no meaning for an HTTP tool is named in a note, so that nothing is lost silently.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final
from urllib.parse import quote_plus

MAX_PASTE_LENGTH: Final = 64 * 1024
MAX_WORDS: Final = 2000

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
_TOKEN = re.compile(
    r"(?P<continued>[\\`^][ \t]*\r?\n)"
    r"|\$'(?P<ansi>(?:[^'\\]|\\.)*)'"
    r"|'(?P<single>[^']*)'"
    r'|"(?P<double>(?:[^"\\]|\\.)*)"'
    r"|\\(?P<escaped>.)"
    r"|\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<variable>[A-Za-z_]\w*))"
    r"|(?P<space>[ \t\r]+)"
    r"|(?P<end>\n|;|\|+|&+)"
    r"|(?P<plain>[^\s\\'\"$;|&`]+|[$`])",
    re.DOTALL,
)
_ANSI = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|(.))", re.DOTALL)
_IN_DOUBLE = re.compile(r'\\(["\\$`])|\\\r?\n|\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))')
_URL_LINE = re.compile(
    r"(?:(?P<method>GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS)\s+)?(?P<url>https?://\S+)", re.IGNORECASE
)
_MAX_CODE_POINT: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


class InvalidPaste(ValueError):
    """The text is neither a cURL command nor a URL. The message says how to correct it."""


@dataclass
class PastedRequest:
    """The request of a command. `notes` are sentences about what was left out or assumed."""

    url: str = ""
    method: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    data: list[str] = field(default_factory=list)
    is_json: bool = False
    data_in_query: bool = False
    user: str = ""
    follow_redirects: bool = False
    timeout_seconds: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def body(self) -> str | None:
        """The data as curl sends it; None without data."""
        if not self.data:
            return None
        return ("" if self.is_json else "&").join(self.data)


def parse_paste(text: str) -> PastedRequest:
    """Return the request of a cURL command or of a URL, with a method before it or not. Raises InvalidPaste."""
    if len(text) > MAX_PASTE_LENGTH:
        raise InvalidPaste(f"The text has {len(text)} characters. The limit is {MAX_PASTE_LENGTH}.")
    text = text.strip().removeprefix("$ ").lstrip()
    if not text:
        raise InvalidPaste("Paste a cURL command or a URL.")
    if line := _URL_LINE.fullmatch(text):
        return PastedRequest(line["url"], (line["method"] or "").upper())
    if not re.match(r"curl(\.exe)?\s", text, re.IGNORECASE):
        raise InvalidPaste("Paste a command that starts with curl, or a URL that starts with http:// or https://.")
    if '^"' in text:
        raise InvalidPaste(
            'This command is quoted for the Windows command prompt. Choose "Copy as cURL (bash)" instead.'
        )
    request = PastedRequest()
    words, complete = _words(text)
    _Options(request, iter(words[1:])).read()
    if not complete:
        request.notes.append("Only the first command is used.")
    if not request.url:
        raise InvalidPaste("The command has no URL. Add one that starts with http:// or https://.")
    if "://" not in request.url:
        request.url = f"https://{request.url}"
        request.notes.append("The URL has no scheme; https:// is assumed.")
    return request


# --- Words of the shell -------------------------------------------------------------------------------------------


def _words(text: str) -> tuple[list[str], bool]:
    """Return the words of the first command, and whether the text ends with it. Raises InvalidPaste."""
    words: list[str] = []
    word: str | None = None
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise InvalidPaste(f"The quotation mark at character {position + 1} is not closed. Copy the whole command.")
        position = token.end()
        if token["space"] or token["continued"] or token["end"]:
            if word is not None:
                words.append(word)
                word = None
            if token["end"]:
                return words, not text[position:].strip()
            continue
        word = (word or "") + _meaning(token)
        if len(words) >= MAX_WORDS:
            raise InvalidPaste(f"The command has more than {MAX_WORDS} words.")
    return (words if word is None else [*words, word]), True


def _meaning(token: re.Match[str]) -> str:
    if token["ansi"] is not None:
        return _ANSI.sub(_ansi, token["ansi"])
    if token["double"] is not None:
        return _IN_DOUBLE.sub(_in_double, token["double"])
    if name := token["braced"] or token["variable"]:
        return f"{{{name}}}"
    literal: str = next(token[kind] for kind in ("single", "escaped", "plain") if token[kind] is not None)
    return literal


def _in_double(match: re.Match[str]) -> str:
    name = match[2] or match[3]
    return f"{{{name}}}" if name else match[1] or ""


def _ansi(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits or match[4]:
        code = int(digits, 16) if digits else int(match[4], 8)
        return chr(code) if code <= _MAX_CODE_POINT and code not in _SURROGATES else "\ufffd"
    return _ESCAPES.get(match[5], match[5])


# --- Options of curl ----------------------------------------------------------------------------------------------

_SHORT: Final = {
    "X": "request", "H": "header", "d": "data", "u": "user", "G": "get", "I": "head", "A": "user-agent",
    "e": "referer", "b": "cookie", "L": "location", "m": "max-time", "k": "insecure", "x": "proxy", "F": "form",
    "T": "upload-file", "E": "cert", "o": "output", "w": "write-out", "K": "config", "D": "dump-header",
    "c": "cookie-jar", "r": "range", "U": "proxy-user", "C": "continue-at", "y": "speed-time", "Y": "speed-limit",
    "z": "time-cond", "Q": "quote", "P": "ftp-port", "t": "telnet-option", "s": "silent", "S": "show-error",
    "v": "verbose", "i": "include", "f": "fail", "g": "globoff", "N": "no-buffer", "#": "progress-bar",
    "O": "remote-name", "J": "remote-header-name", "4": "ipv4", "6": "ipv6", "q": "disable", "n": "netrc",
}  # fmt: skip
# Options without a value that change nothing about the request.
_MEANINGLESS: Final = frozenset({
    "silent", "show-error", "verbose", "include", "fail", "fail-with-body", "globoff", "no-buffer", "progress-bar",
    "remote-name", "remote-header-name", "ipv4", "ipv6", "disable", "compressed", "http1.0", "http1.1", "http2",
    "http2-prior-knowledge", "http3", "no-progress-meter", "tlsv1.2", "tlsv1.3", "path-as-is", "no-keepalive",
})  # fmt: skip
_MEANINGLESS_WITH_VALUE: Final = frozenset({
    "output", "write-out", "dump-header", "cookie-jar", "connect-timeout", "retry", "retry-delay", "retry-max-time",
    "keepalive-time", "trace", "trace-ascii", "stderr", "output-dir", "speed-time", "speed-limit", "limit-rate",
})  # fmt: skip
# Options with a value that an HTTP tool cannot express: the value must not be taken for the URL.
_REFUSED_WITH_VALUE: Final = frozenset({
    "proxy", "proxy-user", "proxy-header", "cert", "cert-type", "key", "key-type", "pass", "cacert", "capath",
    "config", "range", "continue-at", "time-cond", "quote", "ftp-port", "telnet-option", "upload-file", "form",
    "form-string", "resolve", "connect-to", "interface", "unix-socket", "aws-sigv4", "ciphers", "dns-servers",
    "socks5", "socks5-hostname", "socks4", "preproxy", "max-redirs", "max-filesize", "variable", "noproxy",
    "request-target", "pinnedpubkey", "proto", "proto-default", "tls-max", "service-name", "local-port",
    "netrc-file", "etag-save", "etag-compare", "url-query", "parallel-max", "rate", "hostpubmd5",
})  # fmt: skip
_HEADER_OPTIONS: Final = {"user-agent": "User-Agent", "referer": "Referer"}


class _Options:
    """Reads the words of a command, one option after the other, into a request."""

    def __init__(self, request: PastedRequest, words: Iterator[str]) -> None:
        self.request = request
        self.words = words

    def read(self) -> None:
        """Read all words. Raises InvalidPaste."""
        is_option = True
        for word in self.words:
            if is_option and word == "--":
                is_option = False
            elif is_option and word.startswith("--"):
                name, _, value = word[2:].partition("=")
                self._apply(name, word.split("=", 1)[0], value or None)
            elif is_option and word.startswith("-") and len(word) > 1:
                self._read_short(word[1:])
            else:
                self._take_url(word)

    def _read_short(self, letters: str) -> None:
        """Read `-sSLXPOST`: letters without a value, then one that takes the rest of the word, or the next word."""
        for position, letter in enumerate(letters):
            name = _SHORT.get(letter, "")
            if self._apply(name, f"-{letter}", letters[position + 1 :] or None):
                return

    def _apply(self, name: str, written: str, given: str | None) -> bool:
        """Apply one option. Returns whether it took a value."""
        if name in _MEANINGLESS:
            return False
        if self._apply_switch(name):
            return False
        if name in _MEANINGLESS_WITH_VALUE:
            self._value(written, given)
            return True
        if name in _REFUSED_WITH_VALUE:
            self._value(written, given)
            self.request.notes.append(f"{written} is left out: HTTP tools have no such setting.")
            return True
        take = self._takers.get(name)
        if take is None:
            self.request.notes.append(f"{written} is left out: this option is unknown.")
            return False
        take(self, self._value(written, given), name)
        return True

    def _apply_switch(self, name: str) -> bool:
        request = self.request
        match name:
            case "get":
                request.data_in_query = True
            case "head":
                request.method = request.method or "HEAD"
            case "location" | "location-trusted":
                request.follow_redirects = True
            case "insecure":
                request.notes.append("-k is left out: certificates are always verified.")
            case _:
                return False
        return True

    def _value(self, written: str, given: str | None) -> str:
        value = next(self.words, None) if given is None else given
        if value is None:
            raise InvalidPaste(f"{written} has no value. Copy the whole command.")
        return value

    def _take_url(self, url: str, _name: str = "") -> None:
        if self.request.url:
            self.request.notes.append("The command has several URLs. The first one is used.")
        else:
            self.request.url = url

    def _take_method(self, method: str, _name: str) -> None:
        self.request.method = method.upper()

    def _take_header(self, line: str, _name: str) -> None:
        name, colon, value = line.partition(":")
        if colon and value.strip():
            self.request.headers.append((name.strip(), value.strip()))
        elif line.startswith("@"):
            self.request.notes.append("-H @file is left out: the hub cannot read the file.")

    def _take_header_option(self, value: str, name: str) -> None:
        self.request.headers.append((_HEADER_OPTIONS[name], value))

    def _take_cookie(self, value: str, _name: str) -> None:
        if "=" in value:
            self.request.headers.append(("Cookie", value))
        else:
            self.request.notes.append("-b is left out: the hub cannot read the file.")

    def _take_user(self, value: str, _name: str) -> None:
        self.request.user = value

    def _take_bearer(self, value: str, _name: str) -> None:
        self.request.headers.append(("Authorization", f"Bearer {value}"))

    def _take_seconds(self, value: str, _name: str) -> None:
        if re.fullmatch(r"\d{1,6}(\.\d{1,3})?", value):
            self.request.timeout_seconds = float(value)

    def _take_data(self, value: str, name: str) -> None:
        if value.startswith("@") and name != "data-raw":
            self.request.notes.append(f"--{name} @file is left out: the hub cannot read the file. Enter the body.")
            return
        if name == "json":
            self.request.is_json = True
        if name == "data-urlencode":
            # `name=content`, `=content` or `content`.
            field_name, equals, content = value.partition("=")
            prefix = f"{field_name}=" if equals and field_name else ""
            value = prefix + quote_plus(content if equals else value)
        self.request.data.append(value)

    _takers: ClassVar[dict[str, Callable[..., None]]] = {
        "url": _take_url,
        "request": _take_method,
        "header": _take_header,
        "user": _take_user,
        "oauth2-bearer": _take_bearer,
        "cookie": _take_cookie,
        "max-time": _take_seconds,
        "data": _take_data,
        "data-ascii": _take_data,
        "data-binary": _take_data,
        "data-raw": _take_data,
        "data-urlencode": _take_data,
        "json": _take_data,
        "user-agent": _take_header_option,
        "referer": _take_header_option,
    }


def basic_credentials(user: str) -> str:
    """Return the value of `Authorization: Basic` for `user:password`."""
    return b64encode(user.encode()).decode()
