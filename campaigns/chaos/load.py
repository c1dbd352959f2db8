"""Batches that are submitted during failures, and the check that all of them end as DONE."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import requests
from eth_utils.crypto import keccak

from campaigns.attacks.table import Seen
from campaigns.bodies import balances
from campaigns.chaos.engines import OLD_BLOCKS, Installed
from demo.client import BALANCE, ClientError, account_field, submit

_USERS = 2
_HEADER_ACCUMULATED = "0x" + keccak(text="HeaderAccumulated(uint256,bytes32)").hex()
_ACCOUNT_PROVEN = "0x" + keccak(text="AccountProven(address,uint256,uint8)").hex()


class Load(threading.Thread):
    """A thread that submits batches with a pause after each. A batch is submitted again until it is accepted."""

    def __init__(self, target: Installed, seed: int, *, batches: int, pause: float) -> None:
        super().__init__(daemon=True)
        self._target, self._batches, self._pause = target, batches, pause
        self._keys = [target.key(user) for user in range(_USERS)]
        self._chosen = random.Random(seed)
        self.answered: list[str] = []
        self.refused = Counter[str]()

    def key_of(self, number: int) -> str:
        """Return the API key of the user who submits this batch, counted from 0."""
        return self._keys[number % _USERS]

    def end(self) -> None:
        """Stop submitting."""
        self._batches = 0

    def run(self) -> None:
        while len(self.answered) < self._batches:
            key = self.key_of(len(self.answered))
            try:
                self.answered.append(submit(self._target.base_url, key, self._request()))
            except (requests.RequestException, ClientError) as error:
                self.refused[type(error).__name__] += 1
            time.sleep(self._pause)

    def _request(self) -> dict[str, object]:
        accounts = [f"0x{self._chosen.getrandbits(160):040x}" for _ in range(2)]
        # There are fewer blocks than batches, so some batches share a block.
        return balances([self._chosen.randrange(1, OLD_BLOCKS // 2)], accounts)


def judge(target: Installed, load: Load, tried: str, seconds: float) -> Iterator[Seen]:
    """Yield the results when all batches are DONE, or after `seconds` seconds."""
    began = time.monotonic()
    statuses: dict[str, str] = {}
    codes = ["unknown"]
    while time.monotonic() - began < seconds:
        # A mined block may still be reorganised until a further block follows.
        with suppress(OSError):
            statuses = dict(target.rows("SELECT id, status FROM queries_batch"))
        with suppress(requests.RequestException):
            codes = target.codes()
        if not load.is_alive() and set(statuses.values()) == {"DONE"} and not codes:
            break
        time.sleep(0.5)
    took = time.monotonic() - began
    lost = set(load.answered).difference(statuses)
    health = f"not well: {', '.join(codes)}" if codes else "well"
    yield Seen(
        f"{target.engine}: {tried}",
        "every batch that was answered is DONE, none is lost, and the service is well",
        f"{len(load.answered)} batches answered ({kinds(load.refused) or 'none refused'}), {len(lost)} lost; "
        f"{took:.0f} s later {kinds(Counter(statuses.values()))}; {health}",
        kept=not load.is_alive() and set(statuses.values()) == {"DONE"} and not lost and not codes,
    )
    yield _nonces(target)
    yield from _facts(target)


def _nonces(target: Installed) -> Seen:
    rows = target.rows("SELECT nonce, hash FROM proving_transaction ORDER BY nonce")
    ((signer,),) = target.rows("SELECT address FROM proving_signer")
    used = [int(target.chain.rpc("eth_getTransactionCount", signer, at), 16) for at in ("latest", "pending")]
    on_chain = [target.chain.rpc("eth_getTransactionByHash", tx_hash) for _, tx_hash in rows if tx_hash]
    mined = [int(tx["nonce"], 16) for tx in on_chain if tx and tx["blockNumber"]]
    return Seen(
        f"{target.engine}: the signer's transactions are compared with those on record",
        "each nonce has one transaction, on record and in the chain, without gap",
        f"{len(rows)} on record, {len(mined)} of them in the chain; next nonce {used[0]}, pending {used[1]}",
        kept=[nonce for nonce, _ in rows] == mined == list(range(used[0])) and used[0] == used[1],
    )


def _facts(target: Installed) -> Iterator[Seen]:
    for name, topic in (("header", _HEADER_ACCUMULATED), ("account", _ACCOUNT_PROVEN)):
        logs = target.chain.rpc("eth_getLogs", {"address": target.registry, "topics": [topic], "fromBlock": "0x0"})
        facts = [(*log["topics"], log["data"]) for log in logs]
        yield Seen(
            f"{target.engine}: the registry's events of {name}s are counted",
            "each was paid once",
            f"{len(facts)} events, {len(facts) - len(set(facts))} of them twice",
            kept=0 < len(facts) == len(set(facts)),
        )
    queries = target.rows(
        "SELECT DISTINCT query.address, block.number FROM queries_query query "
        "JOIN queries_block block ON block.id = query.block_id "
        "JOIN queries_batch batch ON batch.id = query.batch_id WHERE batch.status = 'DONE'"
    )
    wrong = 0
    for address, block in queries:
        proven = account_field(target.chain.url, target.registry, address, block, BALANCE)
        wrong += int.from_bytes(proven) != int(target.chain.rpc("eth_getBalance", address, hex(block)), 16)
    yield Seen(
        f"{target.engine}: every value of DONE batches is read back from the registry, and from the state of its block",
        "both are equal",
        f"{len(queries)} values, {wrong} of them different",
        kept=bool(queries) and not wrong,
    )


def kinds(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
