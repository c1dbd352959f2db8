"""`manage.py make_keystore <keystore> <password file>`."""

import getpass
import json
import os
import secrets
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from eth_account import Account

from config.private_files import new_private_file


class Command(BaseCommand):
    help = (
        "Makes an encrypted keystore (Web3 Secret Storage) for a signer or an attester, and prints its address. The "
        "key is new unless an option gives one. Both files get mode 0600. The command never replaces an existing "
        "keystore."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("keystore", type=Path, help="the file to make")
        parser.add_argument(
            "password_file",
            type=Path,
            help="the file with its password; a missing file is created with a random password",
        )
        key = parser.add_mutually_exclusive_group()
        key.add_argument("--ask", action="store_true", help="ask for the private key on the terminal")
        key.add_argument("--key-variable", metavar="NAME", help="the environment variable that holds the private key")

    def handle(self, *, keystore: Path, password_file: Path, ask: bool, key_variable: str | None, **_: Any) -> None:
        if keystore.absolute() == password_file.absolute():
            raise CommandError("The keystore and its password must be two files.")
        account = _account(ask=ask, variable=key_variable)
        try:
            with new_private_file(keystore) as draft:
                password = _password(password_file)
                draft.write_text(json.dumps(Account.encrypt(account.key, password)))
        except FileExistsError as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"{error.filename} can't be used: {error.strerror}.") from None
        self.stdout.write(account.address)


def _account(*, ask: bool, variable: str | None) -> Any:
    if variable is not None:
        key = os.environ.get(variable, "")
    elif ask:
        key = getpass.getpass("Private key, 32 bytes in hex: ")
    else:
        return Account.create()
    try:
        return Account.from_key(key.strip())
    except Exception:  # noqa: BLE001 (eth_account raises many kinds, and their messages may hold the key)
        raise CommandError("That is no private key: it must be 32 bytes in hex.") from None


def _password(path: Path) -> str:
    if not os.path.lexists(path):
        with new_private_file(path) as draft:
            draft.write_text(secrets.token_urlsafe())
    password = path.read_text().rstrip("\r\n")
    if not password:
        raise CommandError(f"{path} is empty: it must hold a password.")
    return password
