"""Encryption at rest: what is sealed here can be read by the hub's processes and by nothing else.

AES-256-GCM under a key derived from `SECRET_KEY` (HKDF-SHA256), so that the database alone reveals nothing. Each
use names a purpose, bound as associated data: what was sealed for one tenant's secret does not open as another's.
"""

import os
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

NONCE_BYTES = 12


class Unsealable(Exception):
    """The bytes were sealed under another key or for another purpose, or were changed."""


@lru_cache(maxsize=16)
def _cipher(root: str) -> AESGCM:
    derivation = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"mcphub vault v1")
    return AESGCM(derivation.derive(root.encode()))


def seal(plaintext: bytes, purpose: str) -> bytes:
    """Encrypt `plaintext` for `purpose`: 12 bytes of nonce, the ciphertext, 16 bytes of tag."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(settings.SECRET_KEY).encrypt(nonce, plaintext, purpose.encode())


def unseal(sealed: bytes, purpose: str) -> bytes:
    """Decrypt what `seal` made for the same purpose, under today's key or an earlier one.

    Raises Unsealable.
    """
    nonce, ciphertext = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    for root in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        try:
            return _cipher(root).decrypt(nonce, ciphertext, purpose.encode())
        except (InvalidTag, ValueError):
            continue
    raise Unsealable(f"cannot open what was sealed for {purpose.partition(':')[0]}")
