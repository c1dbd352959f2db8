"""A block hash source that vouches for few blocks, and paths to older ones."""

import random
from pathlib import Path

import requests

from devnet.devchain import DevChain
from proving.models import FactsRegistry, Transaction
from tests.deployed import deploy
from tests.service import chains_toml, reconfigure

WINDOW = 10
# EIP-2935's contract, and the number of hashes it holds.
HISTORY, _HASHES = "0x0000F90827F1C53a10cb7A02335B175320002935", 8191


def connect(chain: DevChain, settings, folder: Path, more: str = "", of_chain: str = "") -> None:
    connection = f"window = {WINDOW}\n{more}"
    settings.CHAINS_FILE = chains_toml(folder, chain.url, connection=connection, chain=of_chain)


def extending() -> list[Transaction]:
    return list(Transaction.objects.exclude(extends=None).order_by("pk"))


def old_block(chain: DevChain, settings, depth: int = 120) -> int:
    """Deploy a registry whose source vouches for 40 blocks. Return a block `depth` blocks below the newest."""
    reconfigure(settings, 'block_hash_source = "native"', 'block_hash_source = "native"\nwindow = 40')
    chain.rpc("evm_setAutomine", True)
    FactsRegistry.objects.all().delete()
    deploy(31337, 31337)
    Transaction.objects.all().delete()
    chain.mine(60)
    block: int = chain.head()
    chain.mine(depth)
    chain.rpc("evm_setAutomine", False)
    return block


def rewrite_history(chain: DevChain, **slots: int) -> None:
    """Change the history contract's numbers of slots: its `limit`, and the ring sizes that it `reads` and `writes`."""
    code = chain.rpc("eth_getCode", HISTORY, "latest")
    parts = {"limit": "611fff81430311", "reads": "611fff9006", "writes": "611fff6001430306"}
    for part, number in slots.items():
        old = parts[part]
        assert code.count(old) == 1
        code = code.replace(old, f"61{number:04x}{old[6:]}")
    chain.rpc("anvil_setCode", HISTORY, code)


def fill_history(chain: DevChain) -> None:
    """Fill all slots of the history contract, as on an old chain."""
    words = random.Random(17)
    for slots in (range(first, min(first + 500, _HASHES)) for first in range(2_000, _HASHES, 500)):
        body = [
            {
                "jsonrpc": "2.0",
                "id": slot,
                "method": "anvil_setStorageAt",
                "params": [HISTORY, f"0x{slot:064x}", f"0x{words.randrange(1, 2**256):064x}"],
            }
            for slot in slots
        ]
        assert requests.post(chain.url, json=body, timeout=60).ok
