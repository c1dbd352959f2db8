"""Addresses of users and signers, and API keys of users."""

import hashlib
import hmac
import secrets
import string
from typing import Any

from django.conf import settings

from accounts.models import ApiKey, User
from devnet.devchain import ACCOUNTS

ALICE, BOB, CHARLIE, SIGNER = (address for address, _ in ACCOUNTS)
SIGNER_KEY = ACCOUNTS[3][1]
# The mnemonic's next account.
SECOND_SIGNER = "0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65"
SECOND_SIGNER_KEY = "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a"
SIGNERS = {SIGNER: SIGNER_KEY, SECOND_SIGNER: SECOND_SIGNER_KEY}


def a_key(address: str = ALICE, name: str = "default") -> ApiKey:
    """Return a new API key of a user, made without signing in. `tests/accounts` makes keys as people do."""
    return ApiKey.objects.create(user=User.objects.for_address(address), name=name, **key_columns())


def key_columns() -> dict[str, Any]:
    """Return the columns that a new key stores."""
    salt = secrets.token_bytes(32)
    text = _derived(salt)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"salt": salt, "key_hash": digest, "prefix": text[:8], "last_four": text[-4:]}


def secret_of(key: ApiKey) -> str:
    """Return a key's text."""
    return _derived(bytes(key.salt))


def _derived(salt: bytes) -> str:
    """Return the key's text for a salt: 43 digits of base 62, the lowest first."""
    number = int.from_bytes(hmac.digest(settings.API_KEY_SECRET.encode(), salt, "sha256"))
    alphabet = string.digits + string.ascii_letters
    return "bqs_" + "".join(alphabet[number // 62**digit % 62] for digit in range(43))


def header(key: ApiKey) -> dict[str, str]:
    """Return the request header that contains the key."""
    return {"api-key": secret_of(key)}
