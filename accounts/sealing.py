"""Encrypts what the service must be able to read again, such as a token that a user has entrusted to it.

By XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03), under a key that is derived from `settings.API_KEY_SECRET` by
HMAC-SHA256. So a database that leaks without the secret gives nothing away. If the secret is lost, so is what was
sealed.
"""

import hmac
import secrets
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from Crypto.Cipher.ChaCha20_Poly1305 import ChaCha20Poly1305Cipher

_NONCE_BYTES, _TAG_BYTES = 24, 16
# API keys are derived under the same secret, from 32 bytes each: this text is longer, and so never one of those.
_PURPOSE = b"batch-query-service: key of sealed columns, version 1"


class CantOpen(Exception):
    """It was sealed under another secret, or for another row, or changed since."""


def seal(content: str, row: str) -> bytes:
    """Seal the text for this `row` alone, which is a text that tells it from others: elsewhere it can't be opened."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    cipher = _cipher(nonce, row)
    sealed, tag = cipher.encrypt_and_digest(content.encode())
    return nonce + tag + sealed


def unseal(sealed: bytes, row: str) -> str:
    """Return what `seal` was given. Raises `CantOpen`."""
    nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        cipher = _cipher(nonce, row)
        return cipher.decrypt_and_verify(rest[_TAG_BYTES:], rest[:_TAG_BYTES]).decode()
    except ValueError:
        raise CantOpen from None


def _cipher(nonce: bytes, row: str) -> "ChaCha20Poly1305Cipher":
    """Return a new cipher that is bound to `row`. Raises `ValueError` for a nonce of another length."""
    from Crypto.Cipher import ChaCha20_Poly1305  # noqa: PLC0415 (each command would wait for it, and few seal anything)

    key = hmac.digest(settings.API_KEY_SECRET.encode(), _PURPOSE, "sha256")
    cipher = ChaCha20_Poly1305.new(key=key, nonce=nonce)
    cipher.update(row.encode())
    return cipher
