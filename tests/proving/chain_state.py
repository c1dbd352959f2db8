"""What a chain itself says of what was done on it: the tests' independent witness."""

from typing import Any

from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from proving.models import FactsRegistry
from queries.properties import AccountField
from tests.service import SIGNERS

HEADER_ACCUMULATED = "0x" + keccak(text="HeaderAccumulated(uint256,bytes32)").hex()
ACCOUNT_PROVEN = "0x" + keccak(text="AccountProven(address,uint256,uint8)").hex()


def field_on_chain(chain: DevChain, address: str, block: int, field: AccountField, *, source: int = 31337) -> int:
    """`accountField` as a contract would read it; the selector is the one that clients have compiled in."""
    data = f"0x7177899b{int(address, 16):064x}{block:064x}{int(field):064x}"
    return int(chain.rpc("eth_call", {"to": registry(source).address, "data": data}, "latest"), 16)


def registry(source: int = 31337) -> FactsRegistry:
    """The one in use."""
    return FactsRegistry.in_use.get(source_chain_id=source)


def events(chain: DevChain, topic: str) -> list[dict[str, Any]]:
    logs = {"address": registry().address, "topics": [topic], "fromBlock": "0x0"}
    found: list[dict[str, Any]] = chain.rpc("eth_getLogs", logs)
    return found


def signer_nonce(chain: DevChain, block: str = "latest") -> int:
    """Return how many transactions all signers together have sent."""
    return sum(int(chain.rpc("eth_getTransactionCount", address, block), 16) for address in SIGNERS)


def balance_at(chain: DevChain, address: str, block: int) -> int:
    return int(chain.rpc("eth_getBalance", address, hex(block)), 16)
