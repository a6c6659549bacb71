"""Redaction of arguments, results and causes in the audit log: no secrets, and a bounded size.

Values are redacted by the name of their key. Names are compared by their letters and digits alone, in any Unicode
spelling, so `apiKey`, `api_key`, `X-Api-Key` and their look-alikes are equal.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import orjson

from tools_app.core.config import config
from tools_app.core.telemetry.scrubbing import scrubbed
from tools_app.protocol import exact_json

HIDDEN: Final = "[redacted]"
# Secret anywhere in a name ("db_password_old").
ANYWHERE: Final = (
    *("password", "passwd", "pwd", "passcode", "passphrase", "secret", "credential", "authorization"),
    *("apikey", "accesskey", "privatekey", "signingkey", "encryptionkey", "masterkey", "sshkey"),
    *("securitycode", "verificationcode", "recoverycode", "pincode", "otpcode", "mfacode"),
)
# Secret only at the end of a name: "access_token" is secret, "max_tokens" and "token_count" are not.
AT_THE_END: Final = (
    *("token", "cookie", "cookies", "bearer", "jwt", "otp", "pin", "cvv", "cvc", "signature", "mnemonic", "seedphrase"),
)
# What may follow such an end: "otp_value", "new_pin_2".
_AFTER: Final = re.compile(r"(?:value|text|plain|raw|old|new|confirm|confirmation|again|[0-9])+\Z")
# Words that end like secrets but are not secret.
_WORDS: Final = re.compile(r"(?:spin|(?:hair|push|king|tail|back|top|terra|clothes)pin)\Z")
# How many characters at the end of a name are compared.
MAX_END: Final = 64
# Deeper values are redacted as a whole, because the result must be serialized as JSON again.
MAX_DEPTH: Final = 200
# Longer names are not cached, to bound memory.
MAX_REMEMBERED: Final = 200
# Up to this many quotation marks, it is faster to find the names first and to search only them.
MAX_FEW_QUOTES: Final = 1000
# The names in JSON without escaped quotation marks.
_NAMES: Final = re.compile(rb'"([^"]*+)(?="\s*+:)')

_LOWER = bytes(range(256)).lower()
_SEPARATORS = bytes(byte for byte in range(128) if not chr(byte).isalnum())
# Separators as JSON escapes that contain a letter.
_ESCAPED = re.compile(rb"\\[bfnrt]")
# What may precede JSON in a text: blanks, control characters and invisible characters.
_JSON = re.compile(
    r"[\s\x00-\x20\x7f-\xa0\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]*([\[{].*)", re.DOTALL
)
# Letters of other scripts that look like Latin ones after case folding; and invisible letters.
_LATIN = str.maketrans("асеорхуіѕԁјһԝктαορτικνıɡ", "aceopxyisdjhwktaoptikvig", "\u115f\u1160\u3164\uffa0")


def for_audit_log(value: Any, more_keys: tuple[str, ...] = ()) -> tuple[str, int]:
    """Return `value` as stored in the audit log, and its size in bytes before redaction.

    `more_keys` are further names that the tenant redacts. A text above MCPHUB_MAX_PAYLOAD_BYTES becomes a JSON object
    that says so, with its beginning.
    """
    return redacted_json(exact_json.dumps(value, default=exact_json.decimal_or_text), more_keys)


def shown(value: Any, more_keys: tuple[str, ...] = ()) -> Any:
    """Return the redacted value: what people other than auditors may see of a tool's output."""
    return exact_json.loads(for_audit_log(value, more_keys)[0])


def redacted_json(raw: bytes, more_keys: tuple[str, ...] = ()) -> tuple[str, int]:
    """Like `for_audit_log`, for a value that is already JSON."""
    # Only the beginning is kept, and a name precedes its value, so the rest need not be searched.
    limit = config.MCPHUB_MAX_PAYLOAD_BYTES
    is_suspect = _is_suspect(raw[:limit], more_keys)
    shown = exact_json.dumps(_redacted(exact_json.loads(raw), more_keys)) if is_suspect else raw
    if len(shown) > limit:
        head = shown[:limit].decode(errors="ignore")
        shown = exact_json.dumps({"truncated": True, "size": len(shown), "head": head})
    return shown.decode(), len(raw)


def redacted_cause(text: str, more_keys: tuple[str, ...] = ()) -> str:
    """Return an error text without credentials and without values of secret names; above 64 KiB its beginning."""
    text = scrubbed(text)
    pattern = _after_names(more_keys)
    return pattern.sub(rf"\1{HIDDEN}", text) if pattern else text


@lru_cache(maxsize=256)
def _after_names(more_keys: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return a pattern for the value after one of these names: quoted, or up to a blank or the end of a list.

    An unclosed quotation mark redacts the rest of the line.
    """
    if not any(map(_plain, more_keys)):
        return None
    names = "|".join(r"[\W_]?".join(map(re.escape, plain)) for plain in _plains(more_keys))
    value = r"""(?:"(?:[^"\\\n]++|\\++.)*+"?|'(?:[^'\\\n]++|\\++.)*+'?|[^\s,;&}\])]++)"""
    return re.compile(rf"""((?:{names})\\{{0,4}}["']?\s{{0,5}}[:=]\s{{0,5}}){value}""", re.IGNORECASE | re.DOTALL)


def _redacted(value: Any, more_keys: tuple[str, ...], depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        return HIDDEN
    if isinstance(value, dict):
        return {
            key: HIDDEN if is_secret(key, more_keys) else _redacted(item, more_keys, depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_redacted(item, more_keys, depth + 1) for item in value]
    return _redacted_text(value, more_keys) if isinstance(value, str) else value


def _redacted_text(value: str, more_keys: tuple[str, ...]) -> str:
    """Redact a text that is itself a JSON object or list, as tools return it beside structured content."""
    found = _JSON.match(value)
    if found is None or not _is_suspect(value.encode(errors="replace"), more_keys):
        return value
    try:
        inner = exact_json.loads(found[1].rstrip("\x00\ufeff"))
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return value
    return exact_json.dumps(_redacted(inner, more_keys)).decode()


def is_secret(name: str, more_keys: tuple[str, ...] = ()) -> bool:
    """Return whether the value under this name is redacted; `more_keys` are further names that the tenant redacts."""
    return (_remembered if len(name) <= MAX_REMEMBERED else _is_secret)(name, more_keys)


def _is_secret(name: str, more_keys: tuple[str, ...]) -> bool:
    plain = _plain(name)
    if any(word in plain for word in ANYWHERE) or plain.endswith(_plains(more_keys)):
        return True
    end = plain[-MAX_END:]
    return any(one.endswith(AT_THE_END) and not _WORDS.search(one) for one in (end, _AFTER.sub("", end)))


_remembered = lru_cache(maxsize=4096)(_is_secret)


def _is_suspect(text: bytes, more_keys: tuple[str, ...]) -> bool:
    """Return whether a JSON text may contain a secret key name: most contain none and need not be parsed."""
    if not text.isascii() or b"\\u" in text:
        return True  # non-ASCII or escaped letters
    if b'\\"' not in text and len(text.split(b'"', MAX_FEW_QUOTES)) <= MAX_FEW_QUOTES:
        text = b" ".join(_NAMES.findall(text))
    letters = text.translate(_LOWER, _SEPARATORS)
    if b"\\" in text:
        letters += b" " + _ESCAPED.sub(b"", text).translate(_LOWER, _SEPARATORS)
    for word in _words(more_keys):  # noqa: SIM110 - a generator is called once for each word
        if word in letters:
            return True
    return False


@lru_cache(maxsize=1024)
def _words(more_keys: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in (*ANYWHERE, *AT_THE_END, *_plains(more_keys)))


def _plains(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(plain for plain in map(_plain, names) if plain)


def _plain(name: str) -> str:
    """Return the letters and digits of a name in lower case, without accents; look-alikes become Latin letters."""
    if name.isascii():
        return "".join(filter(str.isalnum, name)).lower()
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold()).translate(_LATIN)
    return "".join(filter(str.isalnum, folded))
