"""Accounts from encrypted key files (Web3 Secret Storage)."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_MAX_BYTES = 64 * 1024


def open_keystore(path: Path, password_file: Path | None) -> "LocalAccount":
    """Decrypt a keystore. Ask for the password if there is no password file. Raises `click.UsageError`."""
    from eth_account import Account  # noqa: PLC0415 (slow to load, and few commands need it)

    if path.stat().st_size > _MAX_BYTES:
        raise click.UsageError(f"{path} is no key file.")
    content = _text(path)
    if password_file is None:
        password = click.prompt(f"Password of {path.name}", hide_input=True, err=True)
    else:
        password = _text(password_file).rstrip("\r\n")
    try:
        account: LocalAccount = Account.from_key(Account.decrypt(content, password))
    except Exception as error:  # noqa: BLE001 (eth-account raises many kinds of exceptions for malformed content)
        wrong = "MAC" in str(error)
        raise click.UsageError(
            f"This is not the password of {path}." if wrong else f"{path} is no key file (Web3 Secret Storage)."
        ) from None
    return account


def _text(path: Path) -> str:
    """Return a file's text without a byte order mark. Raises `click.UsageError`."""
    text = path.read_bytes()[:_MAX_BYTES].decode("utf-8-sig", errors="replace")
    if "\0" in text or "\ufffd" in text:
        raise click.UsageError(f"{path} is not UTF-8 text: save it as UTF-8.")
    return text
