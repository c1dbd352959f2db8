"""A service that spends real money, and events in any order.

`Machine.run` takes a sequence of words and does what each word says. After each word it checks signatures, sent
transactions and the chain against all promises about money. At the end nodes are honest again, and all batches must
end.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from itertools import chain as chained
from itertools import combinations
from pathlib import Path
from typing import Any

import requests
from django.core.management import call_command
from django.db import connection
from django.db.models import F, Q
from django.test import Client
from eth_utils.crypto import keccak

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import FactsRegistry, SignedTransaction, Transaction, TransactionState
from queries.models import Batch, BatchStatus, Query, Sender
from tests.chains.lying_node import lying_node
from tests.deployed import deploy_on
from tests.proving import dear_registry
from tests.proving.money_node import FINAL_DEPTH, GWEI, LIES, STALE_BLOCKS, Node, Version
from tests.proving.transactions import send_from_elsewhere
from tests.service import asking, balances, chains_toml, expire_leases, submit, waiting, work
from tests.users import ALICE, BOB, SECOND_SIGNER, SIGNER, a_key, header

ETHER = 10**18
ACCOUNT_PROVEN = "0x" + keccak(text="AccountProven(address,uint256,uint8)").hex()
# Unit of limits in wei. A transaction for one account costs at most about four units at 1 gwei.
UNIT = 10**14
# Gas that the registry takes in a dear block beside the usual. It is more than any limit has as margin, also after
# three failures, and less than four times a limit.
_MORE_GAS = 250_000
DAY = timedelta(hours=25)
# Known gap: a transaction that a false nonce has displaced doesn't count against its batch's fee until it fills the
# gap.
FALSE_NONCE = "ahead"
SETTINGS = {"ALLOWED_ADDRESSES": ["*"], "MAX_BATCHES_PER_MINUTE": 10**6}
# A batch may still wait at the end if reverts have used up its fee, or if there were too many.
MAY_WAIT = "The batch's fee leaves|sends no more of them"
_OTHER_WORDS = """
work work work work mine mine mine age final tomorrow stop resume crash drop broken elsewhere honest
reorg:1 reorg:2 reorg:3 cancel:0 cancel:1 cancel:2 dear cap:1 cap:3 cap:200 gwei:1 gwei:2 gwei:5 gwei:30
"""
# The words that `make attack` combines.
WORDS = (
    *_OTHER_WORDS.split(),
    *(f"{who}:{number}" for who in ("alice", "bob", "self") for number in range(4)),
    *(f"{limit}:{units}" for limit in ("day", "user") for units in (0, 4, 5, 8, 12, 20, 1000)),
    *(f"lie:{lie}" for lie in ("stale", "lost", *(lie for lie, _ in LIES))),
    *(f"kill:{statement}" for statement in range(0, 60, 3)),
)


class Killed(BaseException):
    pass


@dataclass(frozen=True)
class Cost:
    """The cost of a nonce in wei, or its maximum if the cost isn't known yet."""

    batches: frozenset[str]
    users: frozenset[int]
    today: int
    for_facts: int
    """The cost on any day, without the cost of a cancellation, which the operator pays."""
    lost: int
    """The cost of running out of gas, which the operator pays once more than the fee, if the fee is `auto`."""
    is_dearer: bool
    """True if a version signed now can cost more. `is_dearer_for_facts` is the same without cancellations."""
    is_dearer_for_facts: bool


@dataclass(frozen=True)
class Seen:
    """The state after a word, and the changes by that word."""

    new: list[Version]
    sent: Collection[str]
    """Hashes of the transactions that the node received."""
    receipts: dict[str, Any]
    """Receipts of the service's transactions by hash."""
    costs: list[Cost]


class Machine:
    """The service with the keys of two users, behind a node. The chain mines only on request."""

    def __init__(self, chain: DevChain, node: Node, write_chains: Callable[[str], object]) -> None:
        """Start with an empty database. `write_chains` writes the chains file, given lines for the chain's table."""
        self._chain, self._node, self._write_chains = chain, node, write_chains
        node.lie = ""
        self._limits = {"max_fee_per_gas_gwei": 200.0, "daily_limit": 100 * ETHER, "daily_limit_per_user": 100 * ETHER}
        self._write_limits()
        self._gwei, self._is_stopped = 1, False
        chain.rpc("anvil_setBalance", SIGNER, hex(1000 * ETHER))
        self._mine()
        deploy_on(chain)
        Transaction.objects.all().delete()
        chain.rpc("evm_setAutomine", False)
        # Blocks of a stale node must contain the registry. No test reads states of the head, which `_do_broken`
        # changes.
        self._mine(STALE_BLOCKS + 2)
        node.sent.clear()
        self._base = chain.head() - 1
        registry = FactsRegistry.in_use.get()
        self._registry = registry.address
        contracts = (registry.address, registry.block_hash_source, registry.multicall)
        self._codes = {address: chain.rpc("eth_getCode", address, "latest") for address in contracts}
        self._keys = {"alice": a_key(ALICE), "bob": a_key(BOB)}
        self._batches: list[Batch] = []
        self._versions: dict[str, Version] = {}
        self._sent: dict[str, bytes] = {}
        self._yesterday: set[tuple[str, str]] = set()
        self._told: set[str] = set()
        self._dear: set[int] = set()
        """Numbers of the blocks in which the registry took more gas."""

    def run(self, sequence: str) -> None:
        for word in sequence.split():
            self._do(word)
            self._judge(word)
        self._settle()

    def _do(self, word: str) -> None:
        name, _, number = word.partition(":")
        plain: dict[str, Callable[..., None]] = {"work": work, "mine": self._mine}
        (plain.get(name) or getattr(self, f"_do_{name}"))(*([number] if number else []))

    # --- Events -------------------------------------------------------------------------------------------------------

    def _do_alice(self, number: str) -> None:
        """Submit a batch of an account at one block, with a high fee."""
        self._submit("alice", balances([self._base - int(number)]), fee=str(ETHER // 50))

    def _do_bob(self, number: str) -> None:
        """Submit a batch of the same account at two blocks, with a fee that is just enough."""
        self._submit("bob", balances(self._base - int(number) - more for more in (0, 1)), fee="auto")

    def _do_self(self, number: str) -> None:
        self._submit("alice", balances([self._base - int(number)], SECOND_SIGNER), fee="0", sender="self")

    def _submit(self, user: str, blocks: dict[str, Any], **more: str) -> None:
        self._batches.append(submit(self._keys[user], asking(blocks) | more))

    def _do_cancel(self, number: str) -> None:
        for batch in self._batches[int(number) : int(number) + 1]:
            key = next(key for key in self._keys.values() if key.user_id == batch.user_id)
            answer = Client().post(f"/batch-queries/{batch.pk}/cancel", headers=header(key))
            assert answer.status_code in {200, 409}, answer.text

    def _do_kill(self, statement: str) -> None:
        """Kill a worker before a writing statement, given by its number."""
        statements_left = int(statement)

        def is_due(sql: str) -> bool:
            nonlocal statements_left
            statements_left -= sql.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE"))
            return statements_left < 0

        self._work_until(is_due)

    def _do_crash(self) -> None:
        """Kill a worker as soon as it has sent a transaction."""
        sent = len(self._node.sent)
        self._work_until(lambda _: len(self._node.sent) > sent)

    def _work_until(self, is_due: Any) -> None:
        def execute(execute: Any, sql: str, *others: Any) -> Any:
            # Django rolls back after an exception. The database does it for a client that died.
            if not sql.startswith(("ROLLBACK", "RELEASE")) and (self._node.is_silent or is_due(sql)):
                self._node.is_silent = True
                raise Killed
            return execute(sql, *others)

        try:
            with connection.execute_wrapper(execute):
                work()
        except Killed:
            expire_leases()
        self._node.is_silent = False

    def _mine(self, blocks: int = 1) -> None:
        """Mine blocks. The last one has the configured gas price."""
        if blocks > 1:
            self._chain.mine(blocks - 1)
        self._chain.rpc("anvil_setNextBlockBaseFeePerGas", hex(self._gwei * GWEI))
        self._chain.mine()

    def _do_final(self) -> None:
        self._mine(FINAL_DEPTH + 1)

    def _do_gwei(self, price: str) -> None:
        self._gwei = int(price)
        self._mine()

    def _do_broken(self) -> None:
        """Mine a block in which the registry reverts every call."""
        dear_registry.mine_broken(self._chain, self._mine)

    def _do_dear(self) -> None:
        """Mine a block in which the registry takes more gas than what was simulated, and than any limit so far."""
        dear_registry.mine_dear(self._chain, _MORE_GAS, self._mine)
        self._dear.add(self._chain.head())

    def _do_reorg(self, depth: str) -> None:
        self._chain.rpc("anvil_reorg", int(depth), [])
        # The reorg may restore the code of `_do_broken`, and anvil sometimes loses contracts' code.
        for address, code in self._codes.items():
            self._chain.rpc("anvil_setCode", address, code)
        self._mine()

    def _do_drop(self) -> None:
        self._chain.rpc("anvil_dropAllTransactions")

    def _do_elsewhere(self) -> None:
        """Use the next nonce with another program."""
        send_from_elsewhere(self._chain, self._nonce())
        self._mine()

    def _do_age(self) -> None:
        """Make all signed, sent and refused transactions look old."""
        times = ("created_at", "broadcast_at", "refused_at")
        SignedTransaction.objects.update(**{time: F(time) - DAY for time in times})

    def _do_tomorrow(self) -> None:
        """Let a day pass, after which mined transactions no longer count."""
        self._yesterday |= {(hash_, receipt["blockHash"]) for hash_, receipt in self._receipts().items()}
        Transaction.objects.update(spent_at=F("spent_at") - DAY, created_at=F("created_at") - DAY)
        self._do_age()

    def _do_lie(self, lie: str) -> None:
        self._node.lie = lie
        self._told.add(lie)

    def _do_honest(self) -> None:
        self._node.lie = ""

    def _do_stop(self) -> None:
        call_command("stop", "31337", stdout=StringIO())
        self._is_stopped = True

    def _do_resume(self) -> None:
        call_command("resume", "31337", stdout=StringIO())
        self._is_stopped = False

    def _do_day(self, units: str) -> None:
        self._write_limits(daily_limit=int(units) * UNIT)

    def _do_user(self, units: str) -> None:
        self._write_limits(daily_limit_per_user=int(units) * UNIT)

    def _do_cap(self, gwei: str) -> None:
        self._write_limits(max_fee_per_gas_gwei=float(gwei))

    def _write_limits(self, **changed: float) -> None:
        self._limits |= changed
        lines = [f"max_fee_per_gas_gwei = {self._limits['max_fee_per_gas_gwei']}"]
        lines += [f"{name} = '{self._limits[name] / ETHER:.6f}'" for name in ("daily_limit", "daily_limit_per_user")]
        self._write_chains("\n".join(["test_network = false", "minimum_signer_balance = '0'", *lines]))

    # --- Promises -----------------------------------------------------------------------------------------------------

    def _judge(self, word: str) -> None:
        seen = self._look()
        for promise in PROMISES:
            assert promise(self, seen), f"after {word}: not so that {promise.__doc__}"

    def _look(self) -> Seen:
        before = dict(self._versions)
        stored = SignedTransaction.objects.values_list("hash", "raw", "transaction")
        self._versions |= {
            stored_hash: Version.of(bytes(raw), pk)
            for stored_hash, raw, pk in stored
            if stored_hash and stored_hash not in before
        }
        sent, self._sent = self._sent, {"0x" + keccak(raw).hex(): raw for raw in self._node.sent}
        new = [version for version_hash, version in self._versions.items() if version_hash not in before]
        receipts = self._receipts()
        return Seen(new, self._sent.keys() - sent.keys(), receipts, list(self._costs(before, receipts)))

    def _receipts(self) -> dict[str, Any]:
        """Return the receipts of the service's mined transactions by hash."""
        hashes = list({*self._versions, *self._sent})
        body = [
            {"jsonrpc": "2.0", "id": index, "method": "eth_getTransactionReceipt", "params": [tx_hash]}
            for index, tx_hash in enumerate(hashes)
        ]
        answers = requests.post(self._chain.url, json=body, timeout=10).json() if body else []
        return {hashes[answer["id"]]: answer["result"] for answer in answers if answer["result"]}

    def _costs(self, before: Collection[str], receipts: Mapping[str, Any]) -> Iterator[Cost]:
        of_batches: dict[int, dict[str, int]] = defaultdict(dict)
        asking = Transaction.queries.through.objects.values_list("transaction", "query__batch", "query__batch__user")
        for pk, batch, user in asking:
            of_batches[pk][batch] = user
        auto = set(Batch.objects.filter(fee_is_estimate=True).values_list("pk", flat=True))
        used, final = self._nonce(), self._chain.head() - FINAL_DEPTH
        by_transaction: dict[int, dict[str, Version]] = defaultdict(dict)
        for version_hash, version in self._versions.items():
            by_transaction[version.transaction][version_hash] = version
        for pk, versions in by_transaction.items():
            facts = [version for version in versions.values() if not version.is_cancellation]
            today, for_facts, lost = _worst(versions.values()), _worst(facts), 0
            old = [version for version_hash, version in versions.items() if version_hash in before]
            dearer = (
                today > _worst(old),
                for_facts > _worst(version for version in old if not version.is_cancellation),
            )
            if mined := next((version_hash for version_hash in versions if version_hash in receipts), None):
                paid, block = _paid(receipts[mined]), receipts[mined]["blockHash"]
                for_facts = 0 if versions[mined].is_cancellation else paid
                is_final = int(receipts[mined]["blockNumber"], 16) <= final
                if (mined, block) in self._yesterday:
                    today = 0
                elif is_final:
                    today = paid
                # The operator pays for false estimates, unless a user has limited the fee to a number.
                if is_final and self._ran_out_of_gas(receipts[mined]) and auto.issuperset(of_batches[pk]):
                    for_facts, lost = 0, paid
            elif next(iter(versions.values())).nonce < used:
                today = for_facts = 0  # another program has used the nonce
            yield Cost(frozenset(of_batches[pk]), frozenset(of_batches[pk].values()), today, for_facts, lost, *dearer)

    def _ran_out_of_gas(self, receipt: Any) -> bool:
        return receipt["status"] == "0x0" and int(receipt["blockNumber"], 16) in self._dear

    def _nonce(self, block: str = "latest") -> int:
        return int(self._chain.rpc("eth_getTransactionCount", SIGNER, block), 16)

    def nothing_goes_out_after_a_stop(self, seen: Seen) -> bool:
        """nothing is signed or broadcast after a stop"""
        return not (self._is_stopped and (seen.new or seen.sent))

    def what_goes_out_is_stored(self, seen: Seen) -> bool:
        """every transaction is stored before it is broadcast"""
        return self._sent.keys() <= self._versions.keys()

    def prices_are_below_the_cap(self, seen: Seen) -> bool:
        """no signature is above the cap, except a cancellation by one raise"""
        cap = int(self._limits["max_fee_per_gas_gwei"] * GWEI)
        return all(version.price <= (cap * 113 // 100 + 1 if version.is_cancellation else cap) for version in seen.new)

    def the_day_is_within_its_limit(self, seen: Seen) -> bool:
        """no signature exceeds the chain's daily limit"""
        dearer = any(cost.is_dearer for cost in seen.costs)
        return not dearer or sum(cost.today for cost in seen.costs) <= self._limits["daily_limit"]

    def each_user_is_within_the_limit(self, seen: Seen) -> bool:
        """no signature exceeds a user's daily limit"""
        limit = self._limits["daily_limit_per_user"]
        return all(
            sum(cost.today for cost in seen.costs if cost.users and cost.users <= users) <= limit * len(users)
            for nonce_cost in seen.costs
            if nonce_cost.is_dearer_for_facts
            for users in _subsets(nonce_cost.users)
        )

    def each_batch_is_within_its_fee(self, seen: Seen) -> bool:
        """no signature exceeds a batch's fee"""
        if FALSE_NONCE in self._told:
            return True
        fees = dict(Batch.objects.values_list("pk", "fee"))
        return all(
            sum(cost.for_facts for cost in seen.costs if cost.batches and cost.batches <= batches)
            <= sum(fees[batch] for batch in batches)
            for nonce_cost in seen.costs
            if nonce_cost.is_dearer_for_facts
            for batches in _subsets(nonce_cost.batches)
        )

    def the_operator_loses_one_more_fee_at_most(self, seen: Seen) -> bool:
        """with what is lost by failures, a batch costs one more fee at most"""
        fees = dict(Batch.objects.values_list("pk", "fee"))
        return all(
            sum(cost.for_facts + cost.lost for cost in seen.costs if cost.batches and cost.batches <= batches)
            <= 2 * sum(fees[batch] for batch in batches)
            for nonce_cost in seen.costs
            if nonce_cost.is_dearer_for_facts
            for batches in _subsets(nonce_cost.batches)
        )

    def no_batch_costs_more_than_its_fee(self, seen: Seen) -> bool:
        """no batch shows a cost above its fee"""
        return not Batch.objects.filter(spent__gt=F("fee")).exists()

    def each_nonce_is_used_once(self, seen: Seen) -> bool:
        """all versions with one nonce do the same, or nothing"""
        uses = {
            (version.nonce, version.to, version.data)
            for version in map(Version.of, self._sent.values())
            if not version.is_cancellation
        }
        return len(uses) == len({nonce for nonce, *_ in uses})

    def no_fact_is_paid_for_twice(self, seen: Seen) -> bool:
        """each mined transaction proves a new fact"""
        proofs = (
            receipt for tx_hash, receipt in seen.receipts.items() if not Version.of(self._sent[tx_hash]).is_cancellation
        )
        return all(receipt["logs"] or receipt["status"] == "0x0" for receipt in proofs)

    def nothing_is_sent_for_a_self_funded_batch(self, seen: Seen) -> bool:
        """nothing is sent for a self-funded batch"""
        account = "0x" + SECOND_SIGNER[2:].lower().zfill(64)
        topics = {topic for receipt in seen.receipts.values() for log in receipt["logs"] for topic in log["topics"]}
        is_for_one = Transaction.objects.filter(queries__batch__sender=Sender.SELF).exists()
        return account not in topics and not is_for_one

    # --- The end ------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Let time pass with honest nodes, cheap gas and wide limits, until all batches can end."""
        for word in ("honest", "resume", "day:100000", "user:100000", "cap:200", "gwei:1"):
            self._do(word)
        call_command("resume", "31337", signer=SIGNER, stdout=StringIO())
        ended = Q(status__in=(BatchStatus.DONE, BatchStatus.REJECTED)) | Q(sender=Sender.SELF)
        pending = Transaction.objects.filter(state=TransactionState.PENDING)
        for _ in range(20):
            self._do_age()
            work()
            self._judge("the end")
            may_wait = any(re.search(MAY_WAIT, sentence) for sentence in waiting())
            if not pending.exists() and (may_wait or not Batch.objects.exclude(ended).exists()):
                break
            self._mine()
        else:
            raise AssertionError(f"{[*Batch.objects.exclude(ended), *pending]} don't end: {waiting()}")
        assert self._nonce() == self._nonce("pending")
        done = Query.objects.filter(batch__status=BatchStatus.DONE).values_list("address", "block__number")
        assert self._proven() >= {(address.lower(), number) for address, number in done}

    def _proven(self) -> set[tuple[str, int]]:
        logs = [log for receipt in self._receipts().values() for log in receipt["logs"]]
        topics = [log["topics"] for log in logs if log["topics"][0] == ACCOUNT_PROVEN]
        return {("0x" + account[-40:], int(block, 16)) for _, account, block in topics}


@contextmanager
def a_node() -> Iterator[tuple[Node, str]]:
    """Start a node before a chain of few blocks, for many machines. Yield the node with its URL."""
    with DevChain(slots_in_an_epoch=FINAL_DEPTH // 2) as chain:
        chain.mine(40)
        node = Node(chain)
        with lying_node(node) as url:
            yield node, url


@contextmanager
def a_machine(node: Node, url: str, settings: Any, folder: Path) -> Iterator[Machine]:
    """Make a machine with an empty database. Restore the chain afterwards."""
    # pytest keeps each change of a setting until the test ends, so thousands of machines must not repeat it.
    for name, value in SETTINGS.items():
        if getattr(settings, name) != value:
            setattr(settings, name, value)

    def write_chains(lines: str) -> None:
        path = chains_toml(folder, url, chain=lines)
        if path != settings.CHAINS_FILE:
            settings.CHAINS_FILE = path
        forget_chains()

    snapshot = node.chain.rpc("evm_snapshot")
    try:
        yield Machine(node.chain, node, write_chains)
    finally:
        node.chain.rpc("anvil_dropAllTransactions")
        node.chain.rpc("evm_revert", snapshot)
        node.chain.rpc("evm_setAutomine", True)


PROMISES = (
    Machine.nothing_is_sent_for_a_self_funded_batch,
    Machine.nothing_goes_out_after_a_stop,
    Machine.what_goes_out_is_stored,
    Machine.prices_are_below_the_cap,
    Machine.the_day_is_within_its_limit,
    Machine.each_user_is_within_the_limit,
    Machine.each_batch_is_within_its_fee,
    Machine.the_operator_loses_one_more_fee_at_most,
    Machine.no_batch_costs_more_than_its_fee,
    Machine.each_nonce_is_used_once,
    Machine.no_fact_is_paid_for_twice,
)


def _worst(versions: Iterable[Version]) -> int:
    return max((version.worst for version in versions), default=0)


def _paid(receipt: Any) -> int:
    return int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)


def _subsets(members: Collection[Any]) -> Iterator[frozenset[Any]]:
    sizes = range(1, len(members) + 1)
    return map(frozenset, chained.from_iterable(combinations(members, size) for size in sizes))
