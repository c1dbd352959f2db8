"""Encrypts what the service must be able to read again, such as a token that a user has entrusted to it.

By XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03), under a key that is derived from `settings.API_KEY_SECRET` by
HMAC-SHA256. So a database that leaks without the secret gives nothing away. If the secret is lost, so is what was
sealed.
"""

import hmac
import secrets

from Crypto.Cipher import ChaCha20_Poly1305
from django.conf import settings

_NONCE_BYTES, _TAG_BYTES = 24, 16
# API keys are derived under the same secret, from 32 bytes each: this text is longer, and so never one of those.
_PURPOSE = b"batch-query-service: key of sealed columns, version 1"


class CantOpen(Exception):
    """It was sealed under another secret, or for another row, or changed since."""


def seal(content: str, row: str) -> bytes:
    """Sealed for this `row` alone, which is a text that tells it from others: elsewhere it can't be opened."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    cipher = ChaCha20_Poly1305.new(key=_key(), nonce=nonce)
    cipher.update(row.encode())
    sealed, tag = cipher.encrypt_and_digest(content.encode())
    return nonce + tag + sealed


def unseal(sealed: bytes, row: str) -> str:
    """What `seal` was given. Raises `CantOpen`."""
    nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        cipher = ChaCha20_Poly1305.new(key=_key(), nonce=nonce)
        cipher.update(row.encode())
        return cipher.decrypt_and_verify(rest[_TAG_BYTES:], rest[:_TAG_BYTES]).decode()
    except ValueError:
        raise CantOpen from None


def _key() -> bytes:
    return hmac.digest(settings.API_KEY_SECRET.encode(), _PURPOSE, "sha256")
