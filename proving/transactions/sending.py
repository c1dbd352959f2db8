"""Sends transactions so that each nonce is used once and none is left open, whenever the process is killed.

A transaction is signed and stored in one database transaction, and broadcast after it. From then on the transaction
monitor follows it. What is sent at the same time is simulated and broadcast together, and what is small goes in one
transaction.
"""

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db.models import Q, Subquery
from django.db.models.functions import Coalesce, Greatest, Least, Now

from chains import questions, rollups
from chains.chains_file import Chain
from chains.node_errors import ChainError, Reverted
from chains.questions import BlockIdentifier
from chains.rpc import result
from config.configured_chains import get_rpc
from database import statements
from database.statements import chunks
from proving import heads, money
from proving.deployments import in_one_call
from proving.lanes import HeldLane
from proving.models import LIVE_STATES, SignedTransaction, Signer, Transaction, TransactionState, proves_facts
from proving.money import MarketFees, market_of
from proving.packing import GAS_MARGIN, MAX_GAS, SHARED_BYTES, SHARED_GAS, Intent
from proving.transactions import signers, signing
from proving.transactions.signers import Notices, Sender, Unsent
from proving.transactions.signing import broadcast
from queries import clock, progress
from queries.models import Batch
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

# Where it is simulated. What is pending beside it, of ours or of others, may be mined after it, or cancelled: then it
# finds what is there now.
_SIMULATED_AT: Sequence[BlockIdentifier] = ("pending", "latest")
# Queries named in one statement.
_PER_STATEMENT = 500
_UNDER_WAY = Unsent(wait("same_under_way"), is_brief=True)
_NO_ROOM = Unsent(wait("room"), is_brief=True)


@dataclass(frozen=True)
class Order:
    """Intents that are sent together: all or none, or only the first ones that money and room suffice for.

    `and_store(sender, first_nonce)` runs in the database transaction that stores them. By a `multicall`, the address of
    that contract, it may share a transaction with others of the same.
    """

    intents: Sequence[Intent]
    and_store: Callable[[str, int], None] | None = None
    multicall: str = ""


@dataclass(frozen=True)
class Sent:
    """All of the intents, or the first ones where money or room doesn't suffice for the rest, in their order."""

    transactions: Sequence[Transaction]


@dataclass(frozen=True)
class _Simulated:
    """A transaction whose simulation went well, and what it takes."""

    intent: Intent
    gas_limit: int
    data_fee: int  # wei that it takes beside gas, on rollups

    def cost(self, price: int) -> int:
        """Return what it costs at this price for a unit of gas, in wei."""
        return self.gas_limit * price + self.data_fee


@dataclass(frozen=True)
class _Ready:
    """An order whose simulations went well."""

    order: Order
    simulated: list[_Simulated]

    @property
    def may_share(self) -> bool:
        return bool(self.order.multicall) and len(self.simulated) == 1

    def is_for(self, batches: Collection[str]) -> bool:
        queries = self.simulated[0].intent.queries
        return Batch.objects.filter(pk__in=batches, queries__in=queries).exists()


def submit_all(chain: Chain, lane: HeldLane, orders: Sequence[Order]) -> list[Sent | Unsent | ChainError]:
    """Simulate, sign, store and broadcast with consecutive nonces, while the lane is held.

    Return the result of each order; where no node answers, or a simulation reverts, why. After a return, or a kill at
    any later moment, the transaction monitor takes care of them. Raises `LaneLost`.
    """
    if refused := signers.why_none(chain):
        return [Unsent(refused)] * len(orders)
    if not orders:
        return []
    try:
        return _submit_all(chain, lane, orders)
    except ChainError as error:
        return [error] * len(orders)


def _submit_all(chain: Chain, lane: HeldLane, orders: Sequence[Order]) -> list[Sent | Unsent | ChainError]:
    rpc = get_rpc(chain.id)
    addresses = signing.senders(chain)
    simulations = [
        questions.gas_estimate(addresses[0], intent.to or None, intent.data, block)
        for order in orders
        for intent in order.intents
        for block in _SIMULATED_AT
    ]
    asked = [*map(questions.balance, addresses), *(questions.nonce(one, "latest") for one in addresses)]
    estimates, (head,), (suggested, *told) = rpc.ask(
        simulations, [questions.header("latest")], [questions.priority_fee(), *asked]
    )
    market = market_of(rpc.fees_by(head, suggested))
    numbers = [result(one) for one in told]
    balances = dict(zip(addresses, numbers[: len(addresses)], strict=True))
    nonces = dict(zip(addresses, numbers[len(addresses) :], strict=True))
    limits = _gas_limits(orders, estimates)
    outcomes = {place: one for place, one in enumerate(limits) if not isinstance(one, list)}
    sized = [
        (place, intent, limit)
        for place, of_order in enumerate(limits)
        if isinstance(of_order, list)
        for intent, limit in zip(orders[place].intents, of_order, strict=True)
    ]
    ready: dict[int, _Ready] = {}
    data = rollups.data_costs(rpc, [(len(intent.data), limit) for _, intent, limit in sized])
    for (place, intent, limit), cost in zip(sized, data, strict=True):
        ready.setdefault(place, _Ready(orders[place], [])).simulated.append(_Simulated(intent, limit, cost.wei))
    least = min((one.simulated[0].cost(market.least) for one in ready.values()), default=0)

    def store() -> tuple[list[_Signed], dict[int, Sent | Unsent]]:
        with signers.locked(chain, addresses) as rows:
            # Who stood still meanwhile can't tell what was sent since, and perhaps confirmed.
            lane.fence()
            sender, notices = signers.active(chain, rows, balances, nonces, least)
            signed: list[_Signed] = []
            stored: dict[int, Sent | Unsent] = {}
            if isinstance(sender, WaitReason):
                stored |= dict.fromkeys(ready, Unsent(sender))
            else:
                stored |= _Sending(chain, sender, notices, market, signed).store(ready)
            signers.show(rows.values(), notices)
        return signed, stored

    # What is done again has stored nothing before: no nonce is taken twice, and nothing was broadcast.
    signed, stored = statements.retried(store)
    for one in signed:
        # What comes after is logged of the transaction alone.
        whose = sorted(one.batches)
        fields = {"transaction": one.version.hash, "chain": chain.id, "batches": whose}
        logger.info("%s is stored for %s", one.version.hash, ", ".join(whose) or "the operator", extra=fields)
    broadcast(rpc, [one.version for one in signed])
    return [(outcomes | stored)[place] for place in range(len(orders))]


def _gas_limits(
    orders: Sequence[Order], estimates: Sequence[int | ChainError]
) -> list[list[int] | Unsent | ChainError]:
    """Return the gas limits of each order's transactions, by the estimates of all; or why there are none."""
    rest = iter(estimates)
    found: list[list[int] | Unsent | ChainError] = []
    for order in orders:
        answers = [[next(rest) for _ in _SIMULATED_AT] for _ in order.intents]
        try:
            needed = [_gas_of(*each) for each in answers]
        except ChainError as error:
            found.append(error)
            continue
        if (most := max(needed)) > MAX_GAS:
            found.append(Unsent(wait("transaction_too_large", gas=most, most=MAX_GAS)))
        else:
            found.append([min(MAX_GAS, int(gas * GAS_MARGIN)) for gas in needed])
    return found


def _gas_of(pending: int | ChainError, latest: int | ChainError) -> int:
    """Return the gas that a transaction needs, by its estimates at both blocks. Raises a `ChainError`."""
    if isinstance(latest, Reverted):
        # Of the newest block itself only the next one knows the hash.
        return result(pending)
    return max(result(pending), result(latest))


@dataclass(frozen=True)
class _Signed:
    """A stored version, and the queries (ids) and batches that it is for."""

    version: SignedTransaction
    queries: Collection[int]
    batches: Collection[str]


@dataclass
class _Sending:
    """Signs and stores orders, inside the caller's database transaction. What is `signed` is broadcast after it."""

    chain: Chain
    sender: Sender
    notices: Notices
    market: MarketFees
    signed: list[_Signed]

    def store(self, ready: Mapping[int, _Ready]) -> dict[int, Sent | Unsent]:
        """Store the orders, and return the result of each. Until all is committed nobody else sends on the chain."""
        outcomes: dict[int, Sent | Unsent] = {}
        for parcel in _parcels(ready):
            outcomes |= self._store_parcel(parcel)
        # After all that writes blocks, as `database.statements` says.
        progress.note_transactions({one.version.hash: one.queries for one in self.signed})
        if self.signed:
            # If we are killed before the broadcast, the next worker does it.
            due_at = Now() + timedelta(seconds=heads.seconds_to_next(self.chain, get_rpc(self.chain.id)))
            row = Signer.objects.filter(pk=self.sender.row.pk)
            # Who watches it sees by this that it was made due.
            row.update(due_at=Greatest(Least(Coalesce("due_at", due_at), due_at), Now()))
        return outcomes

    def _store_parcel(self, parcel: Mapping[int, _Ready]) -> dict[int, Sent | Unsent]:
        """Store the orders in one transaction if all can pay what is offered; otherwise who can't goes alone."""
        outcomes: dict[int, Sent | Unsent] = {}
        sharing = dict(parcel)
        while len(sharing) > 1:
            outcome = self._store(_shared(list(sharing.values())), least=self.market.offer.max_fee_per_gas)
            if isinstance(outcome, Sent):
                return outcomes | dict.fromkeys(sharing, outcome)
            alone = [place for place, one in sharing.items() if one.is_for(outcome.batches)] or list(sharing)
            outcomes |= {place: self._store(sharing.pop(place), least=self.market.least) for place in alone}
        return outcomes | {place: self._store(one, least=self.market.least) for place, one in sharing.items()}

    def _store(self, one: _Ready, *, least: int) -> Sent | Unsent:
        """Store the first transactions of the order, as many as there is money and room for."""
        if self._under_way(one):
            return _UNDER_WAY
        nonces = next_nonces(self.sender.row, self.sender.nonce)
        stored: list[Transaction] = []
        for nonce, each in zip(nonces, one.simulated, strict=False):
            outcome = self._store_one(nonce, each, least)
            if isinstance(outcome, Unsent):
                if not stored:
                    return outcome
                break
            stored.append(outcome)
        if one.order.and_store:
            one.order.and_store(self.sender.row.address, stored[0].nonce)
        return Sent(stored)

    def _store_one(self, nonce: int, one: _Simulated, least: int) -> Transaction | Unsent:
        sender = self.sender
        if not sender.has_room:
            return _NO_ROOM
        offer = self.market.offer.at_most(max(0, sender.free - one.data_fee) // one.gas_limit)
        if offer.max_fee_per_gas < least:
            return self._short(Unsent(signers.too_poor(self.chain, sender, one.cost(least))))
        tx = _create(sender.row, nonce, one)
        portions = money.portions_of(tx)
        version = signing.sign(self.chain, tx, offer, portions, least=least, is_new=True)
        if isinstance(version, Unsent):
            tx.delete()
            if not version.batches and len(portions) > 1:
                # What the others ask for may be cheaper.
                return replace(version, batches=frozenset(batch for batch, _ in portions.most_common(1)))
            return version if version.batches else self._short(version)
        sender.transactions += 1
        sender.gas += one.gas_limit
        sender.free -= one.cost(version.max_fee_per_gas)
        self.notices[sender.row.address] = None
        self.signed.append(_Signed(version, one.intent.queries, portions))
        return tx

    def _short(self, why: Unsent) -> Unsent:
        """Tell the operator, unless something else can be paid for."""
        if not self.signed:
            self.notices[self.sender.row.address] = why.reason
        return why

    def _under_way(self, one: _Ready) -> bool:
        """Return whether a stored transaction already does a part of it.

        One at a time extends a registry, because each builds on the last.
        """
        intents = [each.intent for each in one.simulated]
        # What a key has left behind that the file names no more may never be mined.
        pending = Transaction.objects.filter(
            state=TransactionState.PENDING,
            signer__chain_id=self.chain.id,
            signer__address__in=signing.senders(self.chain),
        )
        if any(intent.extends and pending.filter(extends=intent.extends).exists() for intent in intents):
            return True
        live = Transaction.queries.through.objects.filter(
            proves_facts("query__block", "transaction"), transaction__state__in=LIVE_STATES
        )
        proves = sorted({pk for intent in intents for pk in intent.proves()})
        return any(live.filter(query__in=chunk).exists() for chunk in chunks(proves, _PER_STATEMENT))


def _parcels(ready: Mapping[int, _Ready]) -> Iterator[dict[int, _Ready]]:
    """Group what may share a transaction, in the order of the first of each."""
    parcels: list[dict[int, _Ready]] = []
    open_ones: dict[str, dict[int, _Ready]] = {}
    for place, one in ready.items():
        parcel = open_ones.get(one.order.multicall) if one.may_share else None
        if parcel is None or not _fits(one, parcel.values()):
            parcels.append(parcel := {})
            if one.may_share:
                open_ones[one.order.multicall] = parcel
        parcel[place] = one
    return iter(parcels)


def _fits(one: _Ready, others: Collection[_Ready]) -> bool:
    parts = [each.simulated[0] for each in (one, *others)]
    gas = sum(part.gas_limit for part in parts)
    return gas <= SHARED_GAS and sum(len(part.intent.data) for part in parts) <= SHARED_BYTES


def _shared(several: Sequence[_Ready]) -> _Ready:
    """Join these in one transaction. Its gas limit is more than it takes: each was simulated as one by itself."""
    parts = [one.simulated[0] for one in several]
    to, data = in_one_call(several[0].order.multicall, [(part.intent.to, part.intent.data) for part in parts])
    intent = Intent(
        to,
        data,
        queries=frozenset(pk for part in parts for pk in part.intent.queries),
        accumulates=[block for part in parts for block in part.intent.accumulates],
        continued=frozenset(pk for part in parts for pk in part.intent.continued),
    )
    gas, data_fee = sum(part.gas_limit for part in parts), sum(part.data_fee for part in parts)
    return _Ready(Order([intent]), [_Simulated(intent, gas, data_fee)])


def next_nonces(signer: Signer, nonce: int) -> Iterator[int]:
    """Return the nonces that neither the chain nor a stored transaction has; `nonce` is the node's word."""
    is_displaced = Q(state=TransactionState.DISPLACED)
    last = signer.transactions.exclude(is_displaced).order_by("-nonce").values("nonce")[:1]
    # With those that were left behind a gap (`transaction_monitor`).
    stored = signer.transactions.filter(Q(nonce=Subquery(last)) | Q(is_displaced, nonce__gte=nonce))
    states = dict(stored.values_list("nonce", "state"))
    first = max(nonce, *(one + 1 for one, state in states.items() if state != TransactionState.DISPLACED), 0)
    return (free for free in itertools.count(first) if free not in states)


def _create(signer: Signer, nonce: int, simulated: _Simulated) -> Transaction:
    intent = simulated.intent
    tx = Transaction.objects.create(
        signer=signer,
        nonce=nonce,
        to=intent.to,
        data=intent.data,
        gas_limit=simulated.gas_limit,
        data_fee=simulated.data_fee,
        expected_data_fee=simulated.data_fee,
        extends_id=intent.extends,
        spent_at=clock.latest(),
    )
    # It is new: `set` would first ask what it has.
    tx.queries.add(*intent.queries)
    tx.continued.add(*intent.continued)
    tx.accumulates.add(*intent.accumulates)
    return tx
