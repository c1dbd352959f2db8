"""`manage.py make_keystore` writes a usable, private keystore, and overwrites none."""

import getpass
import os
import re
import stat
from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from eth_account import Account

from devnet.devchain import ACCOUNTS
from tests.attesting.process import CONTRACT

pytestmark = pytest.mark.outside

ADDRESS, KEY = ACCOUNTS[2]
CHAINS_TOML = """
[[chains]]
id = 1
name = "Ethereum"
rpc_urls = ["http://127.0.0.1:1"]
[attester]
keystore_file = "secrets/signer.json"
password_file = "secrets/signer.password"
"""


@pytest.fixture
def files(tmp_path):
    return tmp_path / "secrets" / "signer.json", tmp_path / "secrets" / "signer.password"


@pytest.fixture(autouse=True)
def cheap_encryption(monkeypatch):
    """Replace the encryption by a cheap one. The real one takes a second."""
    encrypt = Account.encrypt
    monkeypatch.setattr(Account, "encrypt", lambda key, password: encrypt(key, password, "scrypt", 2))


@pytest.fixture
def signer(settings, tmp_path) -> Callable[[], str]:
    """Return a function that returns the address of the keystore in chains.toml."""

    def sign() -> str:
        (tmp_path / "chains.toml").write_text(CHAINS_TOML)
        settings.CHAINS_FILE = tmp_path / "chains.toml"
        output = StringIO()
        what = {"destination": 10, "contract": CONTRACT, "nonce": 0, "threshold": 1}
        call_command("sign_attester_set", ADDRESS, **what, stdout=output)
        (signer,) = re.findall("The signature of (.*):", output.getvalue())
        return str(signer)

    return sign


def test_a_new_key_is_what_chains_toml_can_name_and_private(files, signer, capsys):
    umask = os.umask(0)
    try:
        call_command("make_keystore", *map(str, files))
    finally:
        os.umask(umask)
    assert capsys.readouterr().out.strip() == signer()
    assert sorted(files[0].parent.iterdir()) == sorted(files)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (files[0].parent, *files)] == [0o700, 0o600, 0o600]


def test_no_two_keys_or_passwords_are_alike(files, capsys):
    call_command("make_keystore", *map(str, files))
    call_command("make_keystore", *(f"{path}.2" for path in files))
    first, second = capsys.readouterr().out.split()
    assert first != second
    assert files[1].read_text() != files[1].with_name("signer.password.2").read_text()


def test_a_key_is_taken_from_the_terminal(files, signer, monkeypatch):
    monkeypatch.setattr(getpass, "getpass", lambda _: f" {KEY}\n")
    call_command("make_keystore", *map(str, files), "--ask")
    assert signer() == ADDRESS
    assert KEY.removeprefix("0x") not in files[0].read_text()


def test_a_key_is_taken_from_the_environment(files, signer, monkeypatch):
    monkeypatch.setenv("OLD_KEY", KEY)
    call_command("make_keystore", *map(str, files), "--key-variable", "OLD_KEY")
    assert signer() == ADDRESS


def test_a_password_that_is_there_is_used_and_left(files, signer):
    files[1].parent.mkdir()
    files[1].write_text("correct horse\n")
    call_command("make_keystore", *map(str, files))
    assert files[1].read_text() == "correct horse\n"
    assert signer()


@pytest.mark.parametrize("key", ["", "0x12", "zz" * 32, "00" * 32])
def test_an_invalid_private_key_makes_no_keystore_and_is_not_printed(files, monkeypatch, key):
    monkeypatch.setenv("OLD_KEY", key)
    with pytest.raises(CommandError) as refused:
        call_command("make_keystore", *map(str, files), "--key-variable", "OLD_KEY")
    assert str(refused.value) == "That is no private key: it must be 32 bytes in hex."
    assert not files[0].parent.exists()


def test_no_keystore_is_replaced(files):
    files[0].parent.mkdir()
    files[0].write_text("the only one")
    with pytest.raises(CommandError, match=r"exists already\. The command does not replace it"):
        call_command("make_keystore", *map(str, files))
    assert list(files[0].parent.iterdir()) == [files[0]]
    assert files[0].read_text() == "the only one"


def test_keystore_and_password_are_two_files(files):
    with pytest.raises(CommandError, match="must be two files"):
        call_command("make_keystore", str(files[0]), str(files[0]))


def test_an_empty_password_makes_no_keystore(files):
    files[1].parent.mkdir()
    files[1].touch()
    with pytest.raises(CommandError, match="is empty"):
        call_command("make_keystore", *map(str, files))
    assert list(files[1].parent.iterdir()) == [files[1]]
