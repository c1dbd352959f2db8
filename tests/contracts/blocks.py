"""Blocks of transactions with their receipts: recorded ones and random ones, and what is true of them."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rlp
from eth_utils.crypto import keccak

from chains.encoding import read_data, read_quantity
from chains.tries.packed_entries import root
from tests.contracts import tries
from tests.contracts.decoder import Receipt, TransactionFacts
from tests.fixtures_folder import load_fixture, unhex

Log = tuple[bytes, Sequence[bytes], bytes]
"""Emitter, topics and data."""

# Fields of a recorded header in the order of its RLP.
_BEFORE_NUMBER = (
    "parentHash",
    "sha3Uncles",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "logsBloom",
    "difficulty",
)
_BEHIND_NUMBER = (
    "gasLimit",
    "gasUsed",
    "timestamp",
    "extraData",
    "mixHash",
    "nonce",
    "baseFeePerGas",
    "withdrawalsRoot",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "requestsHash",
)
_HEADER = (*_BEFORE_NUMBER, "number", *_BEHIND_NUMBER)
_QUANTITIES = {"difficulty", "number", "gasLimit", "gasUsed", "timestamp"} | {
    "baseFeePerGas",
    "blobGasUsed",
    "excessBlobGas",
}


@dataclass(frozen=True)
class Outcome:
    """A receipt before it is encoded."""

    status: int | bytes
    type: int
    gas: int
    logs: Sequence[Log]
    more: Sequence[int | bytes] = ()
    """Strings behind the logs. Numbers are encoded without leading zeros."""

    def encode(self) -> bytes:
        """Return the trie's value."""
        fields = [self.status, self.gas, bloom(self.logs), [[a, list(t), d] for a, t, d in self.logs], *self.more]
        return (bytes([self.type]) if self.type else b"") + tries.encode(fields)

    @property
    def facts(self) -> Receipt:
        status = None if isinstance(self.status, bytes) else self.status
        return Receipt(status, self.type, self.gas, len(self.logs))


@dataclass(frozen=True)
class Block:
    receipts: Sequence[Outcome]
    transactions: Sequence[bytes]
    header: bytes
    roots: tuple[bytes, bytes]
    """The header's roots of transactions and receipts."""

    @property
    def number(self) -> int:
        return int.from_bytes(rlp.decode(self.header, strict=False)[8])

    @property
    def values(self) -> list[bytes]:
        return [receipt.encode() for receipt in self.receipts]

    def agrees(self, facts: TransactionFacts) -> bool:
        """Return whether the facts are true of the block."""
        return (
            all(
                receipt == (self.receipts[index].facts if index < len(self.receipts) else None)
                for index, receipt in facts.receipts.items()
            )
            and all(digest == log_hash(self.receipts[at].logs[log]) for (at, log), digest in facts.logs.items())
            and all(digest == keccak(self.transactions[index]) for index, digest in facts.hashes.items())
        )


def log_hash(log: Log) -> bytes:
    """Return the hash of a log as README.md of the contracts tells."""
    emitter, topics, data = log
    return keccak(bytes(12) + emitter + b"".join(topics) + keccak(data))


def bloom(logs: Iterable[Log]) -> bytes:
    """Return the bloom of logs (Yellow Paper, 4.3.1)."""
    bits = bytearray(256)
    for emitter, topics, _ in logs:
        for digest in map(keccak, (emitter, *topics)):
            for at in (0, 2, 4):
                bit = int.from_bytes(digest[at : at + 2]) & 2047
                bits[255 - bit // 8] |= 1 << bit % 8
    return bytes(bits)


def recorded(name: str) -> Block:
    """Return a block of the recorded ones."""
    return block_of(load_fixture(f"receipts/{name}.json"))


def block_of(fixture: Mapping[str, Any]) -> Block:
    header = fixture["header"]
    raw = [unhex(each) for each in fixture["transactions"] or []] if _has_raw(fixture) else []
    fields = [_field(header, key) for key in _HEADER if key in header]
    roots = unhex(header.get("transactionsRoot", "0x" + "11" * 32)), unhex(header["receiptsRoot"])
    # Two sources have no header, but the roots.
    is_whole = "parentHash" in header
    encoded = tries.encode(fields) if is_whole else tries.header(1, b"\1" * 32, roots=roots)
    return Block([_outcome(each, fixture) for each in fixture["receipts"]], raw, encoded, roots)


def _has_raw(fixture: Mapping[str, Any]) -> bool:
    return any(isinstance(each, str) and len(each) > 66 for each in fixture["transactions"] or [])


def _field(header: Mapping[str, Any], key: str) -> bytes | int:
    return read_quantity(header[key]) if key in _QUANTITIES else read_data(header[key])


def _outcome(receipt: Mapping[str, Any], fixture: Mapping[str, Any]) -> Outcome:
    logs = [
        (unhex(log["address"]), [unhex(each) for each in log["topics"]], unhex(log["data"])) for log in receipt["logs"]
    ]
    status = unhex(receipt["root"]) if "root" in receipt else int(receipt["status"], 16)
    type_ = int(receipt.get("type") or "0x0", 16)
    more: tuple[int, ...] = ()
    if type_ == 0x7E and "6 items" in fixture["trieReceipt"]:
        more = (int(receipt["depositNonce"], 16), int(receipt["depositReceiptVersion"], 16))
    return Outcome(status, type_, int(receipt["cumulativeGasUsed"], 16), logs, more)


# --- Random blocks ----------------------------------------------------------------------------------------------------

# Every receipt type that a chain is known to have, besides 0.
TYPES = (1, 2, 3, 4, 0x64, 0x65, 0x66, 0x68, 0x69, 0x6A, 0x78, 0x7B, 0x7E, 0x7F)


def random_block(chance: random.Random, count: int) -> Block:
    """Return a block of so many transactions."""
    receipts = [_random_outcome(chance) for _ in range(count)]
    transactions = [_transaction(chance) for _ in range(count)]
    roots = root(transactions), root([receipt.encode() for receipt in receipts])
    number = chance.getrandbits(chance.choice([4, 16, 62]))
    return Block(receipts, transactions, tries.header(number, chance.randbytes(32), roots=roots), roots)


def _transaction(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([32, 33, 55, 56, 110, 255, 256, 300]))


def _random_outcome(chance: random.Random) -> Outcome:
    type_ = chance.choice((0, 0, 1, 2, 2, 3, 4, *TYPES))
    status: int | bytes = chance.choice([0, 1, 1])
    if not type_ and chance.random() < 0.2:
        status = chance.randbytes(32)
    gas = chance.choice([0, 1, 127, 128, 21_000, 2**64 - 1])
    logs = [random_log(chance) for _ in range(chance.choice([0, 0, 1, 1, 2, 5]))]
    count = {0x7B: 1, 0x7E: 2}.get(type_, 0) if chance.random() < 0.5 else 0
    more = [chance.choice([0, 5, 2**63]) for _ in range(count)]
    return Outcome(status, type_, gas, logs, more)


def random_log(chance: random.Random) -> Log:
    size = chance.choice([0, 1, 1, 31, 32, 54, 55, 56, 64, 255, 256, 300])
    data = chance.choice([chance.randbytes(size), bytes(size), b"\x7f"])
    return chance.randbytes(20), [chance.randbytes(32) for _ in range(chance.randrange(5))], data
