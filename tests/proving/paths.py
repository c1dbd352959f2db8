"""A block hash source that vouches for few blocks, and the paths to older ones."""

from pathlib import Path

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import Transaction
from tests.service import chains_toml

WINDOW = 10


def connect(chain: DevChain, settings, folder: Path, more: str = "", of_chain: str = "") -> None:
    connection = f"window = {WINDOW}\n{more}"
    settings.CHAINS_FILE = chains_toml(folder, chain.url, connection=connection, chain=of_chain)
    forget_chains()


def extending() -> list[Transaction]:
    return list(Transaction.objects.exclude(extends=None).order_by("pk"))
