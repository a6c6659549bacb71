"""What the audit log keeps of arguments and results: JSON text without secrets, and not too much of it.

Values are hidden by the name of their key: a name counts as secret by its letters and digits alone, so that
`apiKey`, `api_key` and `X-Api-Key` are one.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import orjson

from tools_app.models.config import config

HIDDEN: Final = "[redacted]"
# Secret wherever they stand in a name ("db_password_old") …
ANYWHERE: Final = ("password", "passwd", "secret", "credential", "authorization", "apikey", "privatekey")
# … or at its end only: "access_token" is one, "max_tokens" and "token_count" are not.
AT_THE_END: Final = ("token", "cookie", "passphrase", "pin")

_NOT_A_WORD = re.compile(r"[^a-z0-9]")
_LOWER = bytes(range(256)).lower()
_SEPARATORS = bytes(byte for byte in range(128) if not chr(byte).isalnum())


def kept(value: Any, more_keys: tuple[str, ...] = ()) -> tuple[str, int]:
    """`value` as the audit log keeps it, and its size in bytes before anything was taken away.

    `more_keys` are names that the tenant wants hidden too. A text above MCPHUB_PAYLOAD_BYTES becomes a JSON object
    that says so, with its beginning.
    """
    return kept_json(orjson.dumps(value, default=str), more_keys)


def shown(value: Any, more_keys: tuple[str, ...] = ()) -> Any:
    """The same as a value: what others than the auditor may see of what a tool says."""
    return orjson.loads(kept(value, more_keys)[0])


def kept_json(raw: bytes, more_keys: tuple[str, ...] = ()) -> tuple[str, int]:
    """The same for a value that is JSON already."""
    shown = orjson.dumps(_redacted(orjson.loads(raw), more_keys)) if _is_suspect(raw, more_keys) else raw
    return _capped(shown), len(raw)


def _capped(shown: bytes) -> str:
    limit = config.MCPHUB_PAYLOAD_BYTES
    if len(shown) <= limit:
        return shown.decode()
    head = shown[:limit].decode(errors="ignore")
    return orjson.dumps({"truncated": True, "size": len(shown), "head": head}).decode()


def _redacted(value: Any, more_keys: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {
            key: HIDDEN if is_secret(str(key), more_keys) else _redacted(item, more_keys) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_redacted(item, more_keys) for item in value]
    return _redacted_text(value, more_keys) if isinstance(value, str) else value


def _redacted_text(value: str, more_keys: tuple[str, ...]) -> str:
    """A text that is itself a JSON object or list, as tools give it beside structured content, hides nothing less."""
    if value[:1] not in ("{", "[") or not _is_suspect(value.encode(errors="replace"), more_keys):
        return value
    try:
        inner = orjson.loads(value)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return value
    return orjson.dumps(_redacted(inner, more_keys)).decode()


@lru_cache(maxsize=4096)
def is_secret(name: str, more_keys: tuple[str, ...] = ()) -> bool:
    """Whether the value under such a name is hidden; `more_keys` are names that the tenant wants hidden too."""
    plain = _plain(name)
    if any(word in plain for word in ANYWHERE):
        return True
    return plain.endswith((*AT_THE_END, *_plains(more_keys)))


def _is_suspect(text: bytes, more_keys: tuple[str, ...]) -> bool:
    """Whether a JSON text may hold a secret key name: most hold none and need not be walked through."""
    letters = text.translate(_LOWER, _SEPARATORS)
    for word in _words(more_keys):  # noqa: SIM110 - every call comes by here twice, and `any` costs it thrice as much
        if word in letters:
            return True
    return False


@lru_cache(maxsize=1024)
def _words(more_keys: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in (*ANYWHERE, *AT_THE_END, *_plains(more_keys)))


def _plains(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(plain for plain in map(_plain, names) if plain)


def _plain(name: str) -> str:
    return _NOT_A_WORD.sub("", name.lower())
