"""Contracts of the OP Stack from the npm package supersim, which its development chains contain at genesis."""

import functools
import json
from collections.abc import Collection, Mapping
from typing import Any

from devnet.devchain import DevChain
from devnet.foreign_contracts import PACKAGES

_PROGRAM = PACKAGES / "supersim/bin/supersim"
L1, L2 = 900, 901
# Slot of a proxy's implementation (EIP-1967).
_IMPLEMENTATION = "0x360894a13ba1a3210667c828492db98dca3e2076cc3735a920a3ca505d382bbc"


@functools.cache
def _accounts(chain_id: int) -> Any:
    """Return a chain's genesis accounts. The program's file contains them as text, and isn't run."""
    program = _PROGRAM.read_bytes()
    start = program.index(b'{\n  "config": {\n    "chainId": %d,' % chain_id)
    return json.loads(program[start : program.index(b"\n}", start) + 2])["alloc"]


def place(chain: DevChain, chain_id: int, addresses: Collection[str], changes: Mapping[str, str]) -> None:
    """Copy contracts of a supersim chain to `chain`, with the implementations of proxies. `changes` replaces words."""
    accounts = _accounts(chain_id)
    behind = [accounts[address].get("storage", {}).get(_IMPLEMENTATION, "")[-40:] for address in addresses]
    text = json.dumps({address: accounts[address] for address in (*addresses, *filter(None, behind))})
    for old, new in changes.items():
        text = text.replace(old, new)
    for address, account in json.loads(text).items():
        chain.rpc("anvil_setCode", "0x" + address, account["code"])
        for slot, value in account.get("storage", {}).items():
            chain.rpc("anvil_setStorageAt", "0x" + address, slot, value)
