"""The check of what a campaign leaves: every batch, nonce, cost and fact is right."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import requests
from eth_utils.crypto import keccak

from campaigns.attacks.table import Seen
from campaigns.chaos.engines import Installed
from campaigns.chaos.load import Load, kinds
from demo.client import BALANCE, ClientError, account_field

_HEADER_ACCUMULATED = "0x" + keccak(text="HeaderAccumulated(uint256,bytes32)").hex()
_ACCOUNT_PROVEN = "0x" + keccak(text="AccountProven(address,uint256,uint8)").hex()
# The load cancels some batches. Nothing else is a reason to reject one of its batches.
_TRUE_REASONS = {"", "cancelled_by_user"}
_ENDED = "SELECT id, status, rejection_code FROM queries_batch WHERE status IN ('DONE', 'REJECTED')"
_PENDING = "SELECT id FROM proving_transaction WHERE state IN ('PENDING', 'MINED')"
_VERSIONS = "SELECT transaction_id, hash FROM proving_signedtransaction WHERE hash IS NOT NULL"


@dataclass
class Expected:
    """Losses by an older backup, as documented: batches, and transactions that were stored before broadcast."""

    lost: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)

    def forget(self, target: Installed) -> None:
        """Note the transactions, before an older backup is restored."""
        self.forgotten |= {tx_hash for _, tx_hash in target.rows(_VERSIONS)}

    def lose(self, target: Installed, load: Load) -> None:
        """Note the batches that are unknown, after an older backup was restored."""
        self.lost |= set(load.answered).difference(name for (name,) in target.rows("SELECT id FROM queries_batch"))


def judge(
    target: Installed, load: Load, tried: str, seconds: float, expected: Expected | None = None
) -> Iterator[Seen]:
    """Yield the results when all batches have ended, or after `seconds` seconds."""
    expected = expected or Expected()
    began = time.monotonic()
    ended, codes = dict[str, tuple[str, str]](), ["unknown"]
    is_over, pending = False, list[tuple[Any, ...]]()
    while not is_over and time.monotonic() - began < seconds:
        # A mined block may still be reorganised until a further block follows.
        with suppress(OSError):
            pending = target.rows(_PENDING)
            ended = {name: (status, code) for name, status, code in target.rows(_ENDED)}
        with suppress(requests.RequestException):
            codes = target.codes()
        is_over = not (load.is_alive() or codes or pending or set(load.answered).difference(ended, expected.lost))
        time.sleep(0.5)
    known = set(load.answered) - expected.lost
    statuses = Counter(" ".join(ended[name]).strip() if name in ended else "OPEN" for name in known)
    took = time.monotonic() - began
    unknown = set(load.answered).difference(name for (name,) in target.rows("SELECT id FROM queries_batch"))
    health = f"not well: {', '.join(codes)}" if codes else "well"
    yield Seen(
        f"{target.engine}: {tried}",
        "every batch that was answered is DONE, or cancelled by its user; none is lost, but those after a backup; and "
        "the service is well",
        f"{len(load.answered)} batches answered ({kinds(load.refused) or 'none refused'}), {len(unknown)} lost, "
        f"{len(expected.lost)} of them after a backup; {took:.0f} s later {kinds(statuses)}; {health}",
        kept=is_over and unknown == expected.lost and {code for _, code in ended.values()} <= _TRUE_REASONS,
    )
    yield _nonces(target, expected)
    yield _costs(target)
    yield from _facts(target)


def _nonces(target: Installed, expected: Expected) -> Seen:
    ((signer,),) = target.rows("SELECT address FROM proving_signer")
    used = [int(target.chain.rpc("eth_getTransactionCount", signer, at), 16) for at in ("latest", "pending")]
    known = {tx_hash for _, tx_hash in target.rows(_VERSIONS)}
    on_chain = [target.chain.rpc("eth_getTransactionByHash", tx_hash) for tx_hash in known | expected.forgotten]
    mined = [(int(tx["nonce"], 16), tx["hash"]) for tx in on_chain if tx and tx["blockNumber"]]
    recorded = {nonce for (nonce,) in target.rows("SELECT nonce FROM proving_transaction")}
    unrecorded = {nonce for nonce, tx_hash in mined if tx_hash not in known}
    return Seen(
        f"{target.engine}: the signer's transactions are compared with those on record",
        "each nonce has one transaction, on record, or stored after a backup, and in the chain, without gap",
        f"{len(recorded)} on record, {len(mined)} stored ones in the chain, {len(unrecorded)} of them after a backup; "
        f"next nonce {used[0]}, pending {used[1]}",
        kept=sorted(nonce for nonce, _ in mined) == sorted(recorded | unrecorded) == list(range(used[0]))
        and used[0] == used[1],
    )


def _costs(target: Installed) -> Seen:
    paid = Counter[int]()
    for transaction, tx_hash in target.rows(_VERSIONS):
        if receipt := target.chain.rpc("eth_getTransactionReceipt", tx_hash):
            paid[transaction] += int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
    shares = defaultdict[int, list[int]](list)
    for transaction, wei in target.rows("SELECT transaction_id, wei FROM proving_share"):
        shares[transaction].append(int(wei, 16))
    rows = target.rows("SELECT id, state, gas_used, gas_price FROM proving_transaction")
    wrong = unequal = 0
    for transaction, _, gas, hex_price in rows:
        price, own = int(hex_price, 16), shares[transaction]
        wrong += gas * price != paid[transaction]
        # Each share is rounded down to gas.
        unequal += bool(own) and not 0 <= gas * price - sum(own) <= len(own) * (price + 1)
    return Seen(
        f"{target.engine}: the cost of every transaction is compared with its receipt, and with its batches' shares",
        "all are equal",
        f"{kinds(Counter(row[1] for row in rows))}; {wrong} differ from the receipt, {unequal} from the shares",
        kept=bool(rows) and not wrong and not unequal,
    )


def _facts(target: Installed) -> Iterator[Seen]:
    registries = [address for (address,) in target.rows("SELECT address FROM proving_factsregistry ORDER BY id DESC")]
    for registry in registries:
        for name, topic in (("header", _HEADER_ACCUMULATED), ("account", _ACCOUNT_PROVEN)):
            logs = target.chain.rpc("eth_getLogs", {"address": registry, "topics": [topic], "fromBlock": "0x0"})
            facts = [(*log["topics"], log["data"]) for log in logs]
            yield Seen(
                f"{target.engine}: the events of {name}s of the registry {registry} are counted",
                "each was paid once",
                f"{len(facts)} events, {len(facts) - len(set(facts))} of them twice",
                kept=0 < len(facts) == len(set(facts)),
            )
    queries = target.rows(
        "SELECT DISTINCT query.address, block.number FROM queries_query query "
        "JOIN queries_block block ON block.id = query.block_id "
        "JOIN queries_batch batch ON batch.id = query.batch_id WHERE batch.status = 'DONE'"
    )
    unproven = wrong = 0
    for address, block in queries:
        proven = [value for registry in registries if (value := _proven(target, registry, address, block)) is not None]
        balance = int(target.chain.rpc("eth_getProof", address, [], hex(block))["balance"], 16)
        unproven += not proven
        wrong += any(value != balance for value in proven)
    yield Seen(
        f"{target.engine}: every value of DONE batches is read back from its registry, and by `eth_getProof`",
        "both are equal",
        f"{len(queries)} values, {unproven} of them not in a registry, {wrong} different",
        kept=bool(queries) and not wrong and not unproven,
    )


def _proven(target: Installed, registry: str, address: str, block: int) -> int | None:
    """Return a proven balance. None if the registry doesn't hold it."""
    try:
        return int.from_bytes(account_field(target.chain.url, registry, address, block, BALANCE))
    except ClientError:
        return None
