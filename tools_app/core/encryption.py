"""Encryption at rest: only the hub's processes can decrypt the data.

AES-256-GCM with a key derived from `SECRET_KEY` (HKDF-SHA256), so that the database alone reveals nothing. Each use
names a purpose, bound as associated data: data sealed for one tenant's secret cannot be decrypted as another's.
"""

import os
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

NONCE_BYTES = 12


class DecryptionError(Exception):
    """The bytes were sealed with another key or for another purpose, or were modified."""


@lru_cache(maxsize=16)
def _cipher(root: str) -> AESGCM:
    derivation = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"mcphub vault v1")
    return AESGCM(derivation.derive(root.encode()))


def seal(plaintext: bytes, purpose: str) -> bytes:
    """Encrypt `plaintext` for `purpose`. Return a 12-byte nonce, the ciphertext and a 16-byte tag."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(settings.SECRET_KEY).encrypt(nonce, plaintext, purpose.encode())


def unseal(sealed: bytes, purpose: str) -> bytes:
    """Decrypt the output of `seal` for the same purpose, with SECRET_KEY or one of SECRET_KEY_FALLBACKS.

    Raises DecryptionError.
    """
    nonce, ciphertext = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    for root in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        try:
            return _cipher(root).decrypt(nonce, ciphertext, purpose.encode())
        except (InvalidTag, ValueError):
            continue
    raise DecryptionError(f"cannot open what was sealed for {purpose.partition(':')[0]}")
