"""Make the secrets of deploy/compose.yml, for `make secrets`. A file that exists is kept, and no secret is printed.

`chains.toml` is one of them, because URLs of nodes hold providers' keys. It is that of Sepolia and OP Sepolia.
"""

import json
import os
import re
import secrets
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from eth_account import Account

from config.private_files import new_private_file

PROJECT = Path(__file__).resolve().parents[2]
# The image's user, to whom files that root makes are given.
_IMAGE_USER = 10001
# The lines of chains.sepolia.toml that name files, which have other names in a container.
_NAMES = {"testnet.json": "signer_keystore", "testnet.password": "signer_password"}
_VARIABLE = re.compile(r'"\$\{(\w+)\}"')


class SecretFiles:
    """The folder of secrets. Each file has mode 0600, and belongs to the user that runs the containers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owner = os.geteuid() or _IMAGE_USER

    def make(self, name: str, content: Callable[[], str]) -> bool:
        """Make a file unless it exists, and say so. Return whether it was made."""
        path = self.folder / name
        if path.exists():
            print(f"kept  {path}")
            return False
        with new_private_file(path) as draft:
            draft.write_text(content())
            os.chown(draft, self.owner, -1)
        print(f"made  {path}")
        return True

    def read(self, name: str) -> str:
        return (self.folder / name).read_text().strip()


def main(deploy: Path) -> None:
    files = SecretFiles(deploy / "secrets")
    for name in (
        "secret_key",
        "api_key_secret",
        "metrics_token",
        "grafana_password",
        "database_password",
        "signer.password",
    ):
        files.make(name, lambda: secrets.token_hex(32))
    files.make("operator_webhook_secret", lambda: f"whsec_{b64encode(secrets.token_bytes(32)).decode()}")
    files.make("database_url", lambda: f"postgresql://service:{files.read('database_password')}@postgres/service")
    files.make("chains.toml", _chains)
    account = Account.create()
    if files.make("signer.json", lambda: json.dumps(Account.encrypt(account.key, files.read("signer.password")))):
        print(f"The signer is {account.address}: send it test money.")
    SecretFiles(deploy).make(".env", lambda: f"BASE_URL=http://127.0.0.1:8000\nSECRETS_OWNER={files.owner}\n")
    if missing := _VARIABLE.findall(files.read("chains.toml")):
        print(
            f"{files.folder / 'chains.toml'} lacks URLs of nodes: write them there instead of {' and '.join(missing)}."
        )


def _chains() -> str:
    """Return the chains of the test networks, with the URLs of the environment."""
    text = (PROJECT / "dev/tools/chains.sepolia.toml").read_text()
    for file, name in _NAMES.items():
        text = re.sub(rf'"[^"]*{re.escape(file)}"', f'"{name}"', text)
    return _VARIABLE.sub(lambda match: json.dumps(os.environ[match[1]]) if match[1] in os.environ else match[0], text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / "deploy")
