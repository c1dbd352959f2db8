"""A hundred kills of a service at work, web server and workers, at any moment: nothing is lost or done twice."""

import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from os import kill
from pathlib import Path
from typing import Any

import requests
from eth_utils.crypto import keccak

from campaigns.attacks.table import Seen
from campaigns.attacks.target import Target, target
from demo.client import BALANCE, TIMEOUT, ClientError, account_field, submit
from demo.installation import CHAIN_ID

_KILLS = 100
_SECONDS_TO_END = 120
_HEADER_ACCUMULATED = "0x" + keccak(text="HeaderAccumulated(uint256,bytes32)").hex()
_ACCOUNT_PROVEN = "0x" + keccak(text="AccountProven(address,uint256,uint8)").hex()


def run(seed: int) -> Iterator[Seen]:
    chosen = random.Random(seed)
    with target(LEASE_SECONDS="2") as attacked:
        load = _Load(attacked, seed)
        load.start()
        attacked.service.start_worker("second worker")
        began = time.monotonic()
        killed = Counter(_kill_one(attacked, chosen) for _ in range(_KILLS))
        took = time.monotonic() - began
        load.stop()
        yield from _judge(attacked, load, f"{_kinds(killed)} killed in {took:.0f} s")


class _Load(threading.Thread):
    """Submits batches and reads pages without end, whatever becomes of the answers."""

    def __init__(self, attacked: Target, seed: int) -> None:
        super().__init__(daemon=True)
        self._target, self._key, self._stopping = attacked, attacked.key(), threading.Event()
        self._chosen = random.Random(seed + 1)
        # Some hold something, the others nothing.
        self._accounts = [f"0x{self._chosen.getrandbits(160):040x}" for _ in range(12)]
        for account in self._accounts[::2]:
            attacked.chain.rpc("anvil_setBalance", account, hex(self._chosen.getrandbits(80)))
        # What anvil sets is in the next block, and proofs at the present one don't lead to its root any more.
        attacked.chain.mine()
        self._first = attacked.chain.head()
        self.answered: set[str] = set()
        self.asked: Counter[str] = Counter()

    def run(self) -> None:
        while not self._stopping.wait(0.3):
            with suppress(requests.RequestException, ClientError):
                self.asked["batches sent"] += 1
                self.answered.add(submit(self._target.url, self._key, self._request()))
            for path in ("/healthz", "/chain-connections", f"/explorer/query/{next(iter(self.answered), '')}"):
                with suppress(requests.RequestException):
                    requests.get(self._target.url + path, timeout=TIMEOUT)
                    self.asked["pages read"] += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join()

    def _request(self) -> dict[str, object]:
        head = self._target.chain.head()
        accounts = {account: {"props": ["BALANCE"]} for account in self._chosen.sample(self._accounts, 2)}
        # Few blocks, so that batches share them.
        block = max(self._first, head - head % 5 - 5 * self._chosen.randrange(2))
        data = {str(CHAIN_ID): {f"block:{block}": {"accounts": accounts}}}
        return {"destinationChainId": str(CHAIN_ID), "fee": "0", "data": data}


def _kill_one(attacked: Target, chosen: random.Random) -> str:
    """Wait for any moment, kill a process, and start it anew at once; which it was."""
    time.sleep(chosen.uniform(0.1, 1.1))
    service = attacked.service
    # Workers most of all: they have what can be done twice, and a web server that is down brings nothing to do.
    kinds = {"worker": 4, "second worker": 4, "web": 1, "one of web's processes": 1}
    (kind,) = chosen.choices([*kinds], [*kinds.values()])
    if kind == "one of web's processes":
        children = Path(f"/proc/{service.process('web').pid}/task/{service.process('web').pid}/children").read_text()
        for child in children.split()[:1]:
            with suppress(ProcessLookupError):
                kill(int(child), signal.SIGKILL)
        return kind
    service.process(kind).kill()
    if kind == "web":
        service.start_web()
    else:
        service.start_worker(kind)
    return kind


def _judge(attacked: Target, load: _Load, tried: str) -> Iterator[Seen]:
    database = attacked.service.folder / "db.sqlite3"
    began = time.monotonic()
    statuses: dict[str, str] = {}
    while time.monotonic() - began < _SECONDS_TO_END:
        statuses = dict(_rows(database, "SELECT id, status FROM queries_batch"))
        if set(statuses.values()) == {"DONE"} and attacked.service.is_healthy():
            break
        time.sleep(0.5)
    took = time.monotonic() - began
    lost = load.answered.difference(statuses)
    why = "SELECT DISTINCT last_error FROM queries_step WHERE status = 'IN_PROGRESS' AND last_error != ''"
    state = ["well" if attacked.service.is_healthy() else "not well", *(error for (error,) in _rows(database, why))]
    yield Seen(
        tried,
        "every batch that was stored is DONE, none that was answered is lost, and the service is well",
        f"{_kinds(load.asked)}; {len(load.answered)} answered, {len(lost)} of them lost; after {took:.0f} s "
        f"{_kinds(Counter(statuses.values()))}; {'; '.join(state)}",
        kept=bool(statuses) and set(statuses.values()) == {"DONE"} and not lost and attacked.service.is_healthy(),
    )
    yield _nonces(attacked, database)
    yield from _facts(attacked, database)


def _nonces(attacked: Target, database: Path) -> Seen:
    kept = _rows(database, "SELECT nonce, hash, state, succeeded FROM proving_transaction ORDER BY nonce")
    (signer,), *_ = _rows(database, "SELECT address FROM proving_signer")
    used = [int(attacked.chain.rpc("eth_getTransactionCount", signer, block), 16) for block in ("latest", "pending")]
    on_chain = [attacked.chain.rpc("eth_getTransactionByHash", tx_hash) for _, tx_hash, _, _ in kept]
    as_kept = [
        tx is not None and int(tx["nonce"], 16) == nonce and tx["from"].lower() == signer.lower()
        for tx, (nonce, *_) in zip(on_chain, kept, strict=True)
    ]
    succeeded = sum(bool(row[3]) for row in kept)
    return Seen(
        "the chain's transactions are compared with those on record",
        "each nonce has one transaction, on record and on the chain, without gap",
        f"{len(kept)} on record, {sum(as_kept)} of them on the chain, {succeeded} succeeded; next nonce {used[0]}, "
        f"pending {used[1]}",
        kept=all(as_kept) and [nonce for nonce, *_ in kept] == list(range(used[0])) and used[0] == used[1],
    )


def _facts(attacked: Target, database: Path) -> Iterator[Seen]:
    (registry,), *_ = _rows(database, "SELECT address FROM proving_factsregistry WHERE replaced_at IS NULL")
    chain = attacked.chain
    for name, topic in (("header", _HEADER_ACCUMULATED), ("account", _ACCOUNT_PROVEN)):
        wanted = {"address": registry, "topics": [topic], "fromBlock": "0x0"}
        logs = [(*log["topics"], log["data"]) for log in chain.rpc("eth_getLogs", wanted)]
        yield Seen(
            f"the registry's events of {name}s are counted",
            "each fact is stored once",
            f"{len(logs)} events, {len(logs) - len(set(logs))} of them twice",
            kept=0 < len(logs) == len(set(logs)),
        )
    asked = _rows(
        database,
        "SELECT DISTINCT query.address, block.number FROM queries_query query "
        "JOIN queries_block block ON block.id = query.block_id",
    )
    wrong = 0
    for address, block in asked:
        proven = account_field(chain.url, registry, address, block, BALANCE)
        wrong += int.from_bytes(proven, "big") != int(chain.rpc("eth_getBalance", address, hex(block)), 16)
    yield Seen(
        "every value is read back from the registry, and from the state of its block",
        "both are equal",
        f"{len(asked)} values, {wrong} of them different",
        kept=bool(asked) and not wrong,
    )


def _rows(database: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=20)) as connection:
        return connection.execute(statement).fetchall()


def _kinds(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
