"""Where signers' keys are stored, and how they are read. No `repr`, `str` or error message shows a key."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, model_validator

from chains.file_values import VARIABLE, FilePath, Table, variable

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

    from chains.transaction_fields import TransactionFields

_KEY = re.compile(r"(?:0x)?[0-9a-fA-F]{64}")


class SignerError(Exception):
    """The signer's key can't be read. The message is one sentence without a secret."""


def _environment_reference(written: str) -> str:
    if not VARIABLE.fullmatch(written):
        raise ValueError('must be "${NAME}", so that the key itself is not in this file (it is not shown)')
    return written


def _key_bytes(written: str) -> bytes:
    """Return the key's 32 bytes.

    Empty if the text is no key, because eth_account silently pads a key that lost a digit.
    """
    return bytes.fromhex(written.strip()[-64:]) if _KEY.fullmatch(written.strip()) else b""


Reference = Annotated[str, AfterValidator(_environment_reference)]


class SignerKey(Table):
    """The location of a signer's key: an encrypted keystore with a password, a key file, or a variable.

    `account()` reads the key at its first call, so a process that signs nothing needs no key.
    """

    keystore_file: FilePath | None = Field(default=None, repr=False)
    password_file: FilePath | None = Field(default=None, repr=False)
    key_file: FilePath | None = Field(default=None, repr=False)
    key: Reference | None = Field(default=None, repr=False)

    _environ: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _account: "LocalAccount | None" = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _one_way(self, info: ValidationInfo) -> Self:
        fields = {name for name in type(self).model_fields if getattr(self, name) is not None}
        if fields not in ({"keystore_file", "password_file"}, {"key_file"}, {"key"}):
            raise ValueError("must have keystore_file and password_file, or key_file alone, or key alone")
        self._environ = (info.context or {}).get("environ", {})
        return self

    @property
    def address(self) -> str:
        """Return the signer's address. Raises `SignerError`."""
        address: str = self.account().address
        return address

    def sign(self, transactions: "Sequence[TransactionFields]") -> list[bytes]:
        """Return the signed transactions in the same order. Raises `SignerError`.

        The same fields are signed with the same bytes (RFC 6979).
        """
        account = self.account()
        return [bytes(account.sign_transaction(dict(each.for_account())).raw_transaction) for each in transactions]

    def account(self) -> "LocalAccount":
        """Return the signer's account, read once. Raises `SignerError`."""
        if self._account is None:
            self._account = self._read_account()
        return self._account

    def _read_account(self) -> "LocalAccount":
        from eth_account import Account  # noqa: PLC0415 (slow to load, and `manage.py stop` reads no key)

        if self.keystore_file is not None and self.password_file is not None:
            keystore, password = _read(self.keystore_file), _read(self.password_file).rstrip("\r\n")
            try:
                key: Any = Account.decrypt(json.loads(keystore), password)
            except Exception:  # noqa: BLE001 - any library error may quote the file.
                raise SignerError(
                    f"The signer's keystore {self.keystore_file} can't be decrypted with its password."
                ) from None
            where = str(self.keystore_file)
        elif self.key_file is not None:
            key, where = _key_bytes(_read(self.key_file)), str(self.key_file)
        else:
            assert self.key is not None
            name = self.key[2:-1]
            try:
                key, where = _key_bytes(variable(name, self._environ)), name
            except ValueError as error:
                raise SignerError(f"The signer's key is missing: {error}.") from None
        try:
            account: LocalAccount = Account.from_key(key)
        except Exception:  # noqa: BLE001 - the message of eth_account may quote the key.
            raise SignerError(f"The signer's key in {where} is not a private key of 32 bytes in hex.") from None
        return account


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise SignerError(f"The signer's file {path} can't be read.") from None
