"""The Ed25519 key that signs statements about the audit log, and the trusted public keys.

The private key is not in the database, so write access to the records is not enough to sign them.
"""

from functools import lru_cache
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings

KEY_BYTES = 32
FINGERPRINT_LETTERS = 16


def sign(statement: str) -> bytes:
    """Return this hub's signature of a text."""
    return _private_key(settings.MCPHUB_AUDIT_KEY).sign(statement.encode())


def own_key() -> str:
    """Return this hub's public key, in hex."""
    key = _private_key(settings.MCPHUB_AUDIT_KEY).public_key()
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def known_keys() -> frozenset[str]:
    """Return the trusted public keys: this hub's own and the configured ones."""
    return frozenset({own_key(), *settings.MCPHUB_AUDIT_PUBLIC_KEYS})


def is_signed(statement: str, signature: bytes, public_key: str) -> bool:
    """Return whether `signature` of a text was made by the owner of `public_key`."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(signature, statement.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def is_public_key(text: str) -> bool:
    """Return whether `text` is a public key in hex."""
    try:
        return len(bytes.fromhex(text)) == KEY_BYTES and text == text.lower().strip()
    except ValueError:
        return False


def fingerprint(public_key: str) -> str:
    """Return the fingerprint that people compare: the beginning of the SHA-256 of a public key."""
    return sha256(public_key.encode()).hexdigest()[:FINGERPRINT_LETTERS]


@lru_cache(maxsize=4)
def _private_key(secret: str) -> Ed25519PrivateKey:
    derivation = HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=b"mcphub audit log v1")
    return Ed25519PrivateKey.from_private_bytes(derivation.derive(secret.encode()))
