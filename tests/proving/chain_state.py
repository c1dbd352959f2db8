"""Read the registry and the signers' nonces from the chain, without the service."""

from enum import IntEnum
from typing import Any

from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from devnet.execution_client import ExecutionClient
from proving.models import FactsRegistry
from tests.service import SIGNERS

HEADER_ACCUMULATED = "0x" + keccak(text="HeaderAccumulated(uint256,bytes32)").hex()
ACCOUNT_PROVEN = "0x" + keccak(text="AccountProven(address,uint256,uint8)").hex()
# Names of fields in requests, with their numbers in the contract.
AccountField = IntEnum("AccountField", "NONCE BALANCE STORAGE_ROOT CODE_HASH", start=0)
HeaderField = IntEnum(
    "HeaderField",
    "PARENT_HASH UNCLES_HASH COINBASE STATE_ROOT TRANSACTIONS_ROOT RECEIPTS_ROOT LOGS_BLOOM DIFFICULTY BLOCK_NUMBER "
    "GAS_LIMIT GAS_USED TIMESTAMP EXTRA_DATA MIX_HASH NONCE BASE_FEE_PER_GAS WITHDRAWALS_ROOT BLOB_GAS_USED "
    "EXCESS_BLOB_GAS PARENT_BEACON_BLOCK_ROOT REQUESTS_HASH BLOCK_ACCESS_LIST_HASH SLOT_NUMBER",
    start=0,
)


def field_on_chain(chain: DevChain, address: str, block: int, field: int, *, source: int = 31337) -> int:
    """Call `accountField` with a fixed selector, as contracts that read facts do."""
    return call(chain, "0x7177899b", int(address, 16), block, field, source=source)


def header_on_chain(chain: DevChain, block: int, field: int, *, source: int = 31337) -> int:
    """Call `headerField` with a fixed selector, as contracts that read facts do."""
    selector = "0x" + keccak(text="headerField(uint256,uint8)")[:4].hex()
    return call(chain, selector, block, field, source=source)


def call(chain: DevChain, selector: str, *words: int, source: int = 31337) -> int:
    data = selector + "".join(f"{word:064x}" for word in words)
    return int(chain.rpc("eth_call", {"to": registry(source).address, "data": data}, "latest"), 16)


def registry(source: int = 31337) -> FactsRegistry:
    """Return the registry in use."""
    return FactsRegistry.in_use.get(source_chain_id=source)


def events(chain: DevChain, topic: str) -> list[dict[str, Any]]:
    logs = {"address": registry().address, "topics": [topic], "fromBlock": "0x0"}
    events_found: list[dict[str, Any]] = chain.rpc("eth_getLogs", logs)
    return events_found


def signer_nonce(chain: DevChain | ExecutionClient, block: str = "latest") -> int:
    """Return the number of transactions that all signers have sent."""
    return sum(int(chain.rpc("eth_getTransactionCount", address, block), 16) for address in SIGNERS)


def balance_at(chain: DevChain, address: str, block: int) -> int:
    return int(chain.rpc("eth_getBalance", address, hex(block)), 16)
