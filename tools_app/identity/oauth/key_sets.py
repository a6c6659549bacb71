"""Public keys of issuers and of clients that sign in place of sending a secret (RFC 7517), and their algorithms."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

import orjson
from django.core.exceptions import ValidationError
from joserfc.errors import JoseError
from joserfc.jwa import EdDSAAlgorithm, JWSAlgModel
from joserfc.jwk import Key, KeySet, import_key
from joserfc.jws import JWSRegistry

from tools_app.core.sanitize import sanitized_json

MAX_KEYS: Final = 10
MAX_KEYS_BYTES: Final = 64 * 1024
KEY_TYPES: Final = ("RSA", "EC", "OKP")
# None with a shared secret, and none without a signature. Ed25519 is the name of EdDSA with that curve since RFC 9864;
# both names are accepted, because many issuers still use the older one.
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")


class _EdDSA(EdDSAAlgorithm):
    """EdDSA without the library's warning that the name is deprecated: that is for those who sign."""

    security_warning = None  # type: ignore[assignment] # a text in the base class


class _Registry(JWSRegistry):
    algorithms: ClassVar[dict[str, JWSAlgModel]] = {**JWSRegistry.algorithms, "EdDSA": _EdDSA()}  # type: ignore[misc]


REGISTRY: Final = _Registry(algorithms=ALGORITHMS)


def checked(public_keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return a set of public keys (RFC 7517) from a set or a single key. Raises ValidationError."""
    found = public_keys.get("keys", [public_keys])
    if not isinstance(found, list) or not 0 < len(found) <= MAX_KEYS or not all(isinstance(key, dict) for key in found):
        raise ValidationError(f"Paste a JSON Web Key Set: an object with 1 to {MAX_KEYS} keys.")
    if len(orjson.dumps(found)) > MAX_KEYS_BYTES:
        raise ValidationError(f"The keys have more than {MAX_KEYS_BYTES} bytes. Paste public keys only.")
    for key in found:
        if key.get("kty") not in KEY_TYPES:
            raise ValidationError(f"The type (kty) of a key is one of {', '.join(KEY_TYPES)}.")
        if {"d", "p", "q", "k"} & key.keys():
            raise ValidationError("This is a private key. Keep it where it is used, and paste its public part only.")
    stored: dict[str, Any] = {"keys": found}
    if sanitized_json(stored) != stored:
        raise ValidationError("The keys contain the character NUL, which cannot be stored.")
    try:
        KeySet.import_key_set(stored)  # type: ignore[arg-type] # checked by this
    except (JoseError, ValueError, TypeError, KeyError) as problem:
        raise ValidationError("A key cannot be read as a JSON Web Key.") from problem
    return stored


def imported(public_keys: Mapping[str, Any]) -> KeySet:
    """Return those keys of another server's set that can be read. Others are ignored (RFC 7517, section 5)."""
    entries = public_keys.get("keys")
    keys: list[Key] = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("kty") in KEY_TYPES:
            with suppress(JoseError, ValueError, TypeError, KeyError, AttributeError):
                keys.append(import_key(entry))
    return KeySet(keys)
