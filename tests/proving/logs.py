"""Blocks with logs on a development chain."""

import random
from collections.abc import Sequence
from typing import Any

from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from tests.proving.chain_state import call
from tests.users import ALICE

# Emits a log of two topics and a word of data, as many times as it says, and then fails if it says so.
LOG = "60aa5f5260bb60cc60205fa2"
RETURNS, FAILS = "5f5ff3", "5f5ffd"
TOPICS = 3

PROPERTIES = ["STATUS", "TYPE", "CUMULATIVE_GAS_USED", "LOG_COUNT"]
# Selectors of the registry's functions, and the topics of its events.
RECEIPT_FIELD, LOG_HASH, TRANSACTION_HASH = (
    keccak(f"{function}".encode())[:4].hex()
    for function in (
        "receiptField(uint256,uint32,uint8)",
        "logHash(uint256,uint32,uint32)",
        "transactionHash(uint256,uint32)",
    )
)


def hashes_of(chain: DevChain, number: int) -> list[str]:
    hashes: list[str] = chain.rpc("eth_getBlockByNumber", hex(number), False)["transactions"]
    return hashes


def receipt_of(chain: DevChain, number: int, index: int) -> Any:
    return chain.rpc("eth_getTransactionReceipt", hashes_of(chain, number)[index])


def log_hash(log: dict[str, Any]) -> int:
    words = b"".join(bytes.fromhex(part[2:].zfill(64)) for part in (log["address"], *log["topics"]))
    return int.from_bytes(keccak(words + keccak(bytes.fromhex(log["data"][2:]))))


def are_right(
    chain: DevChain, number: int, transactions: dict[str, Any], *, on: DevChain | None = None, source: int = 31337
) -> bool:
    """Return whether the registry holds what is asked of these transactions, as the chain's own node tells it.

    The registry is that of the chain itself, or `on` another chain for the chain with the id `source`.
    """
    hashes, right = hashes_of(chain, number), []

    def held(selector: str, *place: int) -> int:
        return call(on or chain, selector, number, *place, source=source)

    for name, asked in transactions.items():
        index = hashes.index(name) if name.startswith("0x") else int(name)
        receipt = receipt_of(chain, number, index)
        first = int(receipt["logs"][0]["logIndex"], 16) if receipt["logs"] else 0
        told = [int(receipt[key], 16) for key in ("status", "type", "cumulativeGasUsed")] + [len(receipt["logs"])]
        properties = asked.get("props", ())
        if "HASH" in properties:
            right.append(held(TRANSACTION_HASH, index) == int(hashes[index], 16))
        fields = [PROPERTIES.index(name) for name in properties if name != "HASH"]
        right += [held(RECEIPT_FIELD, index, field) == told[field] for field in fields]
        logs = [*map(int, asked.get("logs", ())), *(int(log) - first for log in asked.get("blockLogs", ()))]
        right += [held(LOG_HASH, index, log) == log_hash(receipt["logs"][log]) for log in logs]
    assert right
    return all(right)


def block_with_logs(chain: DevChain) -> int:
    """Return the number of a block whose transactions have one log, none since it fails, and two."""
    return block_of(chain, [LOG + RETURNS, LOG + FAILS, LOG + LOG + RETURNS])


def block_of(chain: DevChain, codes: Sequence[str]) -> int:
    """Return the number of a block whose transactions run these codes. Another block follows it."""
    chain.rpc("evm_setAutomine", False)
    for code in codes:
        chain.rpc("eth_sendTransaction", {"from": ALICE, "data": f"0x{code}", "gas": hex(8_000_000)})
    chain.mine()
    chain.rpc("evm_setAutomine", True)
    number: int = chain.head()
    chain.mine()
    return number


def emitting_empty(count: int) -> str:
    """Return code that emits this number of logs without topics and data, which are the cheapest."""
    # PUSH3 count, JUMPDEST, PUSH0, PUSH0, LOG0, then count down and JUMPI.
    return f"62{count:06x}5b5f5fa060019003806004575f5ff3"


def emitting(*sizes: int) -> str:
    """Return code that emits a log of random data of each size in bytes, with random topics, as tokens do."""
    chance = random.Random(str(sizes))
    size = max(sizes, default=0)
    logs = "".join(
        f"{''.join(f'7f{chance.randbytes(32).hex()}' for _ in range(TOPICS))}61{each:04x}5fa3" for each in sizes
    )
    # PUSH2 size, PUSH2 offset, PUSH0, CODECOPY; the data follows the code.
    length = 8 + len(logs) // 2 + 3
    return f"61{size:04x}61{length:04x}5f39{logs}{RETURNS}{chance.randbytes(size).hex()}"
