"""Time and memory of facts about a block with many transactions, which a node on this machine answers.

Seconds are those of a processor, and memory is the most that Python holds at a time.
"""

import cProfile
import json
import random
import time
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import rlp
from eth_utils.crypto import keccak

from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.nodes.rpc import RpcClient
from chains.prices import OSAKA
from chains.tries.header import Header
from chains.tries.packed_entries import root
from devnet.devchain import ACCOUNTS
from proving.packing import packs
from proving.reading.block_contents import NamedEntry, find
from proving.reconcile import proofs
from queries.columns import EntryField
from queries.models import Block, Query, QueryKind
from tests.chains.lying_node import Raw, is_chain_id, lying_node, result
from tests.headers import PRAGUE, encode

# Data of a transaction and of a log in bytes, logs of a receipt, and topics of a log: about those of mainnet.
_CALLDATA, _LOG_DATA, _LOGS, _TOPICS = 300, 64, 3, 3
_CHAIN_ID = 31337


class LargeBlock:
    """A block with transactions of type 2, each with logs. Their signatures are random."""

    def __init__(self, count: int) -> None:
        chance = random.Random(count)
        transactions, receipts = ([make(chance, at) for at in range(count)] for make in (_transaction, _receipt))
        of_entries, of_receipts = ([raw for raw, _ in values] for values in (transactions, receipts))
        self.hashes = [hex_data(keccak(raw)) for raw in of_entries]
        roots = {"transactionsRoot": root(of_entries), "receiptsRoot": root(of_receipts)}
        self.header = Header.decode(encode(PRAGUE, **roots))
        full = [told | {"hash": tx_hash} for (_, told), tx_hash in zip(transactions, self.hashes, strict=True)]
        told = [told | {"transactionHash": name} for (_, told), name in zip(receipts, self.hashes, strict=True)]
        self._answers = {
            "eth_getBlockByHash": json.dumps({"hash": hex_data(self.header.hash), "transactions": full}).encode(),
            "eth_getBlockReceipts": json.dumps(told).encode(),
        }

    @property
    def bytes(self) -> int:
        """Return the size of the answers."""
        return sum(map(len, self._answers.values()))

    def node(self) -> AbstractContextManager[str]:
        """Serve the block. Yield the URL."""
        return lying_node(self._answer)

    def _answer(self, body: Any) -> Any:
        if is_chain_id(body):
            return result(body, hex(_CHAIN_ID))
        begin = json.dumps({"jsonrpc": "2.0", "id": body["id"]}).encode().removesuffix(b"}")
        return Raw(begin + b', "result": ' + self._answers[body["method"]] + b"}")


def _transaction(chance: random.Random, at: int) -> tuple[bytes, dict[str, Any]]:
    """Return a transaction as its trie has it, and as nodes answer it."""
    to, data, r, s = (chance.randbytes(size) for size in (20, _CALLDATA, 31, 31))
    fields = [_CHAIN_ID, at + 1, 1, 10**9, 10**6, to, 0, data, [], 1, b"\1" + r, b"\1" + s]
    names = ("chainId", "nonce", "maxPriorityFeePerGas", "maxFeePerGas", "gas", "to", "value", "input")
    told = dict(zip((*names, "accessList", "yParity", "r", "s"), map(_told, fields), strict=True))
    return b"\2" + rlp.encode(fields), told | {"type": "0x2", "from": ACCOUNTS[0][0], "v": "0x1"}


def _receipt(chance: random.Random, at: int) -> tuple[bytes, dict[str, Any]]:
    """Return a receipt as its trie has it, and as nodes answer it."""
    logs = [
        [chance.randbytes(20), [chance.randbytes(32) for _ in range(_TOPICS)], chance.randbytes(_LOG_DATA)]
        for _ in range(_LOGS)
    ]
    fields = [1, 10**6 * (at + 1), bytes(256), logs]
    told_logs = [
        dict(zip(("address", "topics", "data"), map(_told, log), strict=True))
        | {"logIndex": hex(_LOGS * at + place), "transactionIndex": hex(at), "removed": False}
        for place, log in enumerate(logs)
    ]
    told = dict(zip(("status", "cumulativeGasUsed", "logsBloom"), map(_told, fields[:3]), strict=True))
    return b"\2" + rlp.encode(fields), told | {"type": "0x2", "transactionIndex": hex(at), "logs": told_logs}


def _told(value: Any) -> Any:
    match value:
        case bytes():
            return hex_data(value)
        case int():
            return hex(value)
    return list(map(_told, value))


@dataclass(frozen=True)
class Measure:
    """The processor seconds, function calls and memory in MiB that a part of the work takes."""

    part: str
    seconds: float
    calls: int
    mebibytes: float

    def __str__(self) -> str:
        return f"{self.part:<42} {self.seconds:>6.2f} s {self.calls:>11,} calls {self.mebibytes:>6.1f} MiB"


def measured(block: LargeBlock, count: int) -> list[Measure]:
    """Measure the work for `count` transactions all over a block, half of them by their hashes."""
    every = len(block.hashes) // count
    asked = [
        NamedEntry(
            block.hashes[at] if at % 2 else at,
            (EntryField.STATUS, EntryField.HASH),
            block_logs=tuple(_LOGS * at + place for place in range(_LOGS)),
        )
        for at in range(every - 1, len(block.hashes), every)
    ]
    row = Block(pk=1, number=block.header.number, header_rlp=block.header.encode())
    queries = [
        Query(
            pk=pk,
            kind=QueryKind.ENTRY,
            transaction_name=str(each.name),
            fields=sum(1 << field for field in each.fields),
            block_logs=[*each.block_logs],
        )
        for pk, each in enumerate(asked)
    ]
    with block.node() as url:

        def client() -> RpcClient:
            """Return a client for which nothing is kept."""
            return RpcClient(Chain(id=_CHAIN_ID, name="A chain with large blocks", rpc_urls=(url,)))

        def check() -> None:
            entries = find(client(), block.header, asked)
            assert entries.contents
            entries.contents.size({entry.index for entry in entries.found.values()})

        def prove() -> None:
            subject = proofs.Subject(row, QueryKind.ENTRY, "", queries)
            *_, part = proofs.fetch(client(), proofs.Waiting([subject], {}, set()), lambda: False)
            assert len(part[row.pk].complete) == count

        entries = find(client(), block.header, asked)
        assert entries.contents
        contents = entries.contents
        facts = list(chain.from_iterable(entry.facts for entry in entries.found.values()))
        parts: dict[str, Callable[[], None]] = {"the check of the batch": check, "its proofs": prove}
        measures = [_measure(f"{part}, {count} of its transactions", act) for part, act in parts.items()]

    def pack() -> None:
        for each in packs.packs_of_entries(facts, lambda fact: len(contents.tries[fact.root][fact.entry]), OSAKA):
            each.values = contents.tries[each.root]
            each.encode(block.header.number)

    return [*measures, _measure(f"their packing, {count} of its transactions", pack)]


def _measure(part: str, act: Callable[[], None]) -> Measure:
    """Act three times, because counting takes time."""
    began = time.thread_time()
    act()
    seconds = time.thread_time() - began
    with cProfile.Profile(builtins=False) as profile:
        act()
    calls = sum(entry.callcount for entry in profile.getstats())
    tracemalloc.start()
    act()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Measure(part, seconds, calls, most / 2**20)
