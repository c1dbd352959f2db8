"""Sends transactions so that each nonce is used once and none is left open, whenever the process is killed.

A transaction is signed and stored in one database transaction, and broadcast after it. From then on the transaction
monitor follows it. What is sent at the same time is simulated and broadcast together, and what is small goes in one
transaction.
"""

import itertools
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from operator import attrgetter

from django.db.models import Q, Subquery
from django.db.models.functions import Coalesce, Greatest, Least, Now

from accounts.models import User
from chains import questions, rollups
from chains.chains_file import Chain
from chains.rpc import BlockIdentifier, ChainError, Reverted, result
from config.configured_chains import get_rpc
from database import row_locks
from database.statements import chunks
from proving import heads, stops
from proving.budget import cost_allocation, limits
from proving.budget.limits import Rest
from proving.gas_model.proof_gas import SHARED_BYTES, SHARED_GAS, RemainingWork
from proving.lanes import HeldLane
from proving.models import (
    LIVE_STATES,
    SignedTransaction,
    Signer,
    Transaction,
    TransactionState,
    proves_facts,
)
from proving.registry.deployments import in_one_call
from proving.transactions import funds, signers, signing
from proving.transactions.fees import MarketFees, market_of, most_for_gas
from proving.transactions.funds import Balance, Costs, Funds, Lack
from proving.transactions.intents import (
    GAS_MARGIN,
    MAX_GAS,
    Intent,
    NoRoom,
    NotPaid,
    Order,
    Refused,
    Sent,
    UnderWay,
    Unsent,
)
from proving.transactions.signers import Pending, Room
from proving.transactions.signing import broadcast, sign
from queries import clock, progress
from queries.models import Batch

logger = logging.getLogger(__name__)

# Where it is simulated. What is pending beside it, of ours or of others, may be mined after it, or cancelled: then it
# finds what is there now.
_SIMULATED_AT: Sequence[BlockIdentifier] = ("pending", "latest")
# Queries named in one statement.
_PER_STATEMENT = 500


@dataclass(frozen=True)
class _Simulated:
    intent: Intent
    costs: Costs


def submit_all(chain: Chain, lane: HeldLane, orders: Sequence[Order]) -> list[Sent | Unsent | ChainError]:
    """Simulate, sign, store and broadcast with consecutive nonces, while the lane is held.

    Return the result of each order; where no node answers, or a simulation reverts, why. After a return, or a kill at
    any later moment, the transaction monitor takes care of them. Raises `LaneLost`.
    """
    if refused := signers.why_none(chain):
        return [Refused(refused)] * len(orders)
    pending = signers.pending(chain)
    rooms = signers.most(chain, [one.block for one in orders], pending)
    outcomes: dict[int, Sent | Unsent | ChainError] = {place: NoRoom() for place, most in enumerate(rooms) if not most}
    going = {
        place: replace(order, intents=order.intents[:most])
        for place, (order, most) in enumerate(zip(orders, rooms, strict=True))
        if most
    }
    if going:
        try:
            outcomes |= _submit_where_there_is_room(chain, lane, going, pending)
        except ChainError as error:
            outcomes |= dict.fromkeys(going, error)
    return [outcomes[place] for place in range(len(orders))]


def _submit_where_there_is_room(
    chain: Chain, lane: HeldLane, orders: Mapping[int, Order], pending: Mapping[str, Pending]
) -> dict[int, Sent | Unsent | ChainError]:
    """Do as `submit_all` with these orders, by their places. `pending` is what was pending before."""
    rpc = get_rpc(chain.id)
    addresses = signing.senders(chain)
    beside = dict(zip(orders, signers.beside(list(orders.values())), strict=True))
    simulations = [
        questions.gas_estimate(addresses[0], intent.to or None, intent.data, block)
        for order in orders.values()
        for intent in order.intents
        for block in _SIMULATED_AT
    ]
    accounts = [question for one in addresses for question in (questions.balance(one), questions.nonce(one, "latest"))]
    estimates, (head,), (suggested, *told_of) = rpc.ask(
        simulations, [questions.header("latest")], [questions.priority_fee(), *accounts]
    )
    market = market_of(rpc.fees_by(head, suggested))
    numbers = [result(one) for one in told_of]
    told = {
        # What was mined since counts twice rather than not at all.
        address: _Told(Balance(wei, frozenset(pending[address].gas)), nonce)
        for address, wei, nonce in zip(addresses, numbers[::2], numbers[1::2], strict=True)
    }
    outcomes: dict[int, Sent | Unsent | ChainError] = {}
    gas = _gas_limits(orders, estimates, {place: one.is_pending for place, one in beside.items()})
    outcomes |= {place: one for place, one in gas.items() if isinstance(one, Refused | ChainError)}
    gas_limits = {place: one for place, one in gas.items() if not isinstance(one, Refused | ChainError)}
    sizes = [
        (len(intent.data), limit)
        for place, of_order in gas_limits.items()
        for intent, limit in zip(orders[place].intents, of_order, strict=True)
    ]
    data = iter(rollups.data_costs(rpc, sizes))
    # Counting takes long, and no other writer should wait for it.
    rests = _rests_beside(chain, [orders[place] for place in gas_limits])
    ready: dict[int, _Ready] = {}
    for (place, of_order), rest in zip(gas_limits.items(), rests, strict=True):
        order = orders[place]
        simulated = [
            _Simulated(intent, Costs(limit, next(data).wei))
            for intent, limit in zip(order.intents, of_order, strict=True)
        ]
        follows = beside[place].senders if len(addresses) > 1 else frozenset[str]()
        ready[place] = _Ready(order, simulated, rest, follows)

    def store() -> tuple[_Sending, dict[int, Sent | Unsent]]:
        with signers.locked(chain, addresses) as locked:
            # Who stood still meanwhile can't tell what was sent since, and perhaps confirmed.
            lane.fence()
            now = {row.address: row for row in locked.values()}
            accounts = [_Account(now.pop(address), told[address]) for address in addresses]
            sending = _Sending(chain, accounts, market)
            stored = sending.store(ready)
            for left_behind in now.values():
                funds.show(left_behind, "")
        return sending, stored

    # What is done again has stored nothing before: no nonce is taken twice, and nothing was broadcast.
    sending, stored = row_locks.retried(store)
    outcomes |= stored
    for one in sending.signed:
        # What comes after is logged of the transaction alone.
        whose = sorted(one.batches)
        fields = {"transaction": one.version.hash, "chain": chain.id, "batches": whose}
        logger.info("%s is stored for %s", one.version.hash, ", ".join(whose) or "the operator", extra=fields)
    broadcast(rpc, [one.version for one in sending.signed])
    return outcomes


@dataclass(frozen=True)
class _Told:
    """A node's answers about a signer."""

    balance: Balance
    nonce: int
    """The nonce at the newest block. A node's pending nonce can't be checked, and isn't needed."""


@dataclass(frozen=True)
class _Account:
    """A signer, as its locked row is, and what the node says of it."""

    signer: Signer
    told: _Told


@dataclass(frozen=True)
class _Ready:
    """An order whose simulations went well, and what its batches still have to do when it is done."""

    order: Order
    simulated: Sequence[_Simulated]
    rest: Rest
    follows: frozenset[str] = frozenset()
    """Addresses of signers, of whom one should send it: it may rest on what they have sent before."""

    @property
    def may_share(self) -> bool:
        return bool(self.order.multicall) and len(self.simulated) == 1

    def is_for(self, batches: Collection[str]) -> bool:
        queries = self.simulated[0].intent.queries
        return Batch.objects.filter(pk__in=batches, queries__in=queries).exists()


def _rests_beside(chain: Chain, orders: Collection[Order]) -> list[Rest]:
    """Return what the batches of each order still have to do when it is done."""
    asked = [
        (
            {pk for intent in order.intents for pk in intent.queries},
            {pk for intent in order.intents for pk in intent.proves()}.difference(order.intents[-1].continued),
        )
        for order in orders
    ]
    with_paths = any(intent.extends is not None for order in orders for intent in order.intents)
    return limits.rests_of(chain, asked, with_paths=with_paths)


def _gas_limits(
    orders: Mapping[int, Order], estimates: Sequence[int | ChainError], may_rest_on_pending: Mapping[int, bool]
) -> dict[int, list[int] | Refused | ChainError]:
    """Return the gas limits of each order's transactions, by the estimates of all; or why there are none."""
    rest = iter(estimates)
    found: dict[int, list[int] | Refused | ChainError] = {}
    for place, order in orders.items():
        answers = [[next(rest) for _ in _SIMULATED_AT] for _ in order.intents]
        try:
            needed = [_gas_of(*each, may_rest_on_pending=may_rest_on_pending[place]) for each in answers]
        except ChainError as error:
            found[place] = error
            continue
        if (most := max(needed)) > MAX_GAS:
            found[place] = Refused(
                f"A transaction would need {most} gas, and none may have more than {MAX_GAS} (EIP-7825)."
            )
        else:
            found[place] = [min(MAX_GAS, int(gas * GAS_MARGIN)) for gas in needed]
    return found


def _gas_of(pending: int | ChainError, latest: int | ChainError, *, may_rest_on_pending: bool) -> int:
    """Return the gas that a transaction needs, by its estimates at both blocks. Raises a `ChainError`."""
    if isinstance(latest, Reverted) and not may_rest_on_pending:
        # Of the newest block itself only the next one knows the hash.
        return result(pending)
    return max(result(pending), result(latest))


@dataclass(frozen=True)
class _InsufficientFunds(NotPaid):
    """The signer's balance, or what the operator lets be spent, doesn't suffice."""

    is_signers: bool
    """It is the signer that lacks the money; another one may have it."""


def _is_poor(outcome: Sent | Unsent) -> bool:
    return isinstance(outcome, _InsufficientFunds) and outcome.is_signers


@dataclass(frozen=True)
class _Signed:
    """A stored version, and the queries (ids) and batches that it is for."""

    version: SignedTransaction
    queries: Collection[int]
    batches: Collection[str]


class _Sending:
    """Signs and stores orders, inside the caller's database transaction. What is `signed` is broadcast after it."""

    def __init__(self, chain: Chain, accounts: Sequence[_Account], market: MarketFees) -> None:
        self._chain = chain
        self._accounts = {one.signer.address: one for one in accounts}
        self._market = market
        self._notices: dict[str, str] = {}
        # What is pending, and the rooms of users (ids) that it leaves. Nobody else stores meanwhile.
        self._all_pending: dict[str, Pending] | None = None
        self._rooms: dict[int | None, dict[str, Room]] = {}
        self.signed: list[_Signed] = []

    @property
    def _signers(self) -> list[Signer]:
        return [one.signer for one in self._accounts.values()]

    def store(self, ready: Mapping[int, _Ready]) -> dict[int, Sent | Unsent]:
        """Store the orders, and return the result of each. Until all is committed nobody else sends on the chain."""
        self._lock_users(ready.values())
        outcomes: dict[int, Sent | Unsent] = {}
        for parcel in _parcels(ready):
            outcomes |= self._store_parcel(parcel)
        if ready:
            self._show_notices(min((one.simulated[0].costs for one in ready.values()), key=attrgetter("gas_limit")))
        # After all that writes blocks, as `database.row_locks` says.
        progress.note_transactions({one.version.hash: one.queries for one in self.signed})
        # If we are killed before the broadcast, the next worker does it.
        due_at = Now() + timedelta(seconds=heads.seconds_to_next(self._chain, get_rpc(self._chain.id)))
        signers = Signer.objects.filter(pk__in={one.version.transaction.signer_id for one in self.signed})
        # Who watches it sees by this that it was made due.
        signers.update(due_at=Greatest(Least(Coalesce("due_at", due_at), due_at), Now()))
        return outcomes

    def _lock_users(self, ready: Iterable[_Ready]) -> None:
        """Lock the users: what their batches may use in a day counts on all chains, and others send on other chains."""
        batches = {batch for one in ready for batch in one.rest}
        if batches:
            row_locks.lock(User.objects.filter(pk__in=Batch.objects.filter(pk__in=batches).values("user")))

    def _pending(self) -> dict[str, Pending]:
        """Return what is pending by the addresses of signers that aren't stopped, in the file's order."""
        return {address: one for address, one in self._pending_of_all().items() if address not in self._stopped}

    def _pending_of_all(self) -> dict[str, Pending]:
        if self._all_pending is None:
            self._all_pending = signers.pending(self._chain)
        return self._all_pending

    @cached_property
    def _stopped(self) -> dict[str, str]:
        """Sentences about signers that are stopped, by their addresses."""
        why = {address: stops.why_signer_is_stopped(self._chain.id, address) for address in self._accounts}
        return {address: sentence for address, sentence in why.items() if sentence}

    @cached_property
    def _free(self) -> list[str]:
        """Addresses of signers that were not stuck when this began; of all, if all were."""
        return signers.free(self._chain, self._pending())

    def _show_notices(self, least: Costs) -> None:
        pending = self._pending()
        for address, account in self._accounts.items():
            if address not in pending:
                notice = ""  # Stops are told by themselves.
            elif address not in self._free:
                notice = signers.why_left_out(account.signer, pending[address])
            elif address in self._notices:
                notice = self._notices[address]
            else:
                notice = self._lack_of(account, least, self._market)
            funds.show(account.signer, notice)

    def _store_parcel(self, parcel: Mapping[int, _Ready]) -> dict[int, Sent | Unsent]:
        """Try signers in order, the one that is to send next first; pass on what one can't fund or fit."""
        pending = self._pending()
        first = next(iter(parcel.values()))
        if not pending or (first.order.by_first and next(iter(self._accounts)) not in pending):
            return dict.fromkeys(parcel, Refused(next(iter(self._stopped.values()))))
        free = self._free
        choice = signers.ranked(self._chain, pending, first.follows)
        if first.order.by_first:
            choice = free = [next(iter(pending))]
        outcomes: dict[int, Sent | Unsent] = {}
        left = dict(parcel)
        for address in choice:
            if address not in free:
                # It takes what only it can pay for, and not what finds room later.
                left = {place: one for place, one in left.items() if not isinstance(outcomes[place], NoRoom)}
            if not left:
                break
            for place, outcome in self._store_by(self._accounts[address], left).items():
                # Where one has the money, there will be room.
                if not (_is_poor(outcome) and isinstance(outcomes.get(place), NoRoom)):
                    outcomes[place] = outcome
            left = {
                place: one
                for place, one in left.items()
                if isinstance(outcomes[place], NoRoom) or _is_poor(outcomes[place])
            }
        return outcomes

    def _store_by(self, account: _Account, parcel: Mapping[int, _Ready]) -> dict[int, Sent | Unsent]:
        """Store the orders in one transaction if each can pay what is offered, and otherwise in smaller parts."""
        outcomes: dict[int, Sent | Unsent] = {}
        parts = [parcel]
        while parts:
            part = parts.pop()
            done = self._under_way(part) if len(part) > 1 else ()
            going = {place: one for place, one in part.items() if place not in done and self._room(account, one)}
            for place, one in part.items():
                if place not in going or len(going) == 1:
                    outcomes[place] = self._store(account, one)
            if len(going) > 1:
                stored, smaller = self._store_shared(account, going)
                outcomes |= stored
                parts += reversed(smaller)
        return outcomes

    def _store_shared(
        self, account: _Account, going: Mapping[int, _Ready]
    ) -> tuple[dict[int, Sent | Unsent], list[dict[int, _Ready]]]:
        """Store the orders in one transaction. Returns their results, or the parts to store instead."""
        least = self._market.offer.max_fee_per_gas
        outcome = self._store(account, _shared(list(going.values())), replace(self._market, least=least))
        if not isinstance(outcome, NotPaid):
            return dict.fromkeys(going, outcome), []
        if not isinstance(outcome, _InsufficientFunds):
            # One that can't pay would hold up the others, and goes alone.
            poor = {place: one for place, one in going.items() if one.is_for(outcome.batches)} or going
            rich = {place: one for place, one in going.items() if place not in poor}
            return {}, [rich, *({place: one} for place, one in poor.items())]
        cheapest = min((one.simulated[0].costs for one in going.values()), key=attrgetter("gas_limit"))
        lack = funds.why_too_little(self._chain, account.signer, cheapest, self._market, self._funds_of(account))
        if lack:
            # Asked of each it would be the same, and take long: nobody else writes meanwhile.
            return {place: self._short(lack, one) for place, one in going.items()}, []
        # As many as the balance covers, which is too little for all.
        places = list(going)
        half = len(places) // 2
        return {}, [{place: going[place] for place in some} for some in (places[:half], places[half:])]

    def _short(self, lack: Lack, one: _Ready) -> _InsufficientFunds:
        # What the others ask for may be cheaper.
        return _InsufficientFunds(
            lack.sentence, cost_allocation.largest(one.simulated[0].intent.queries), lack.is_signers
        )

    def _under_way(self, several: Mapping[int, _Ready]) -> set[int]:
        """Return the places of orders that a stored transaction already does in part.

        One at a time extends a registry, because each builds on the last.
        """
        intents = [(place, each.intent) for place, one in several.items() for each in one.simulated]
        # What a key has left behind that is none of these any more may never be mined.
        pending = Transaction.objects.filter(state=TransactionState.PENDING, signer__in=self._signers)
        registries = {intent.extends for _, intent in intents} - {None}
        extended = (
            set(pending.filter(extends__in=registries).values_list("extends", flat=True)) if registries else set()
        )
        proves = [(place, intent, intent.proves()) for place, intent in intents]
        live = Transaction.queries.through.objects.filter(
            proves_facts("query__block", "transaction"), transaction__state__in=LIVE_STATES
        )
        proven: set[int] = set()
        for chunk in chunks(sorted(set().union(*(queries for _, _, queries in proves))), _PER_STATEMENT):
            proven.update(live.filter(query__in=chunk).values_list("query", flat=True))
        return {
            place for place, intent, queries in proves if intent.extends in extended or not proven.isdisjoint(queries)
        }

    def _room(self, account: _Account, one: _Ready) -> int:
        """Return how many of its transactions the signer may send now."""
        block = one.order.block
        if block is None:
            return len(one.simulated)
        if block.turn_of_id not in self._rooms:
            rooms = signers.left_by_signer(self._chain, block, self._pending_of_all())
            self._rooms[block.turn_of_id] = rooms
        gas = [each.costs.gas_limit for each in one.simulated]
        return self._rooms[block.turn_of_id][account.signer.address].fits(gas)

    def _lack_of(self, account: _Account, first: Costs, market: MarketFees) -> str:
        lack = funds.why_too_little(self._chain, account.signer, first, market, self._funds_of(account))
        return lack.sentence if lack else ""

    def _funds_of(self, account: _Account) -> Funds:
        return funds.of(self._chain, account.told.balance, self._pending_of_all()[account.signer.address].gas)

    def _store(self, account: _Account, one: _Ready, market: MarketFees | None = None) -> Sent | Unsent:
        if self._under_way({0: one}):
            return UnderWay()
        most = self._room(account, one)
        if not most:
            return NoRoom()
        has = self._funds_of(account)
        costs = [each.costs for each in one.simulated[:most]]
        market = market or self._market
        lack = funds.why_too_little(self._chain, account.signer, costs[0], market, has)
        if lack:
            self._notices[account.signer.address] = lack.sentence
            return self._short(lack, one)
        self._notices.setdefault(account.signer.address, "")
        can_pay = funds.affordable(costs, market, has)
        fees = replace(market, offer=market.offer.at_most(can_pay.price))
        nonces = next_nonces(account.signer, account.told.nonce)
        now = clock.latest()
        simulated = one.simulated[: can_pay.count]
        stored = [_store(account.signer, nonce, each, now) for nonce, each in zip(nonces, simulated, strict=False)]
        signed = self._sign(stored, fees, one.rest)
        # What can be paid for is only known of stored ones; none of them may remain without a signature.
        unsigned = stored if isinstance(signed, Unsent) else stored[len(signed) :]
        if unsigned:
            Transaction.objects.filter(pk__in=[tx.pk for tx in unsigned]).delete()
        if isinstance(signed, Unsent):
            return signed
        if one.order.and_store:
            one.order.and_store(stored[0].nonce)
        pending = self._pending_of_all()[account.signer.address]
        for version, each in zip(signed, simulated, strict=False):
            tx = version.transaction
            pending.gas[tx.pk], pending.since = tx.gas_limit, pending.since or now
            self.signed.append(_Signed(version, each.intent.queries, signed[version]))
        self._rooms.clear()
        return Sent([version.transaction for version in signed])

    def _sign(
        self, stored: Sequence[Transaction], fees: MarketFees, rest: Rest
    ) -> dict[SignedTransaction, Counter[str]] | Unsent:
        """Sign those that their batches can pay for, the first ones. Return the batches of each with their weights."""
        signed: dict[SignedTransaction, Counter[str]] = {}
        # Reading what each query takes is what takes long here.
        weights = {tx: cost_allocation.portions_of(tx) for tx in stored}
        for tx, bounds in zip(stored, limits.for_each(self._chain, weights, rest), strict=True):
            over = limits.why_over_budget(self._chain, tx, weights[tx])
            most = NotPaid(*over) if over else most_for_gas(self._chain, bounds, fees)
            if isinstance(most, NotPaid):
                if not signed:
                    return most
                break
            version = sign(self._chain, tx, fees.offer.at_most(most), is_new=True)
            if isinstance(version, Refused):
                return version
            signed[version] = weights[tx]
            # The next one's limits count it.
            cost_allocation.divide({tx: weights[tx]})
        return signed


def _parcels(ready: Mapping[int, _Ready]) -> Iterator[dict[int, _Ready]]:
    """Group what may share a transaction, in the order of the first of each."""
    parcels: list[dict[int, _Ready]] = []
    open_ones: dict[tuple[str, frozenset[str]], dict[int, _Ready]] = {}
    for place, one in ready.items():
        alike = (one.order.multicall, one.follows)
        parcel = open_ones.get(alike) if one.may_share else None
        if parcel is None or not _fits(one, parcel.values()):
            parcels.append(parcel := {})
            if one.may_share:
                open_ones[alike] = parcel
        parcel[place] = one
    return iter(parcels)


def _fits(one: _Ready, others: Collection[_Ready]) -> bool:
    parts = [each.simulated[0] for each in (one, *others)]
    gas = sum(part.costs.gas_limit for part in parts)
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
    costs = Costs(sum(part.costs.gas_limit for part in parts), sum(part.costs.data_fee for part in parts))
    rest: dict[str, RemainingWork] = {}
    for one in several:
        for batch, work in one.rest.items():
            # Each counts what the others prove as still to do.
            rest[batch] = min(rest.get(batch, work), work, key=attrgetter("gas"))
    return _Ready(Order([intent]), [_Simulated(intent, costs)], rest)


def next_nonces(signer: Signer, nonce: int) -> Iterator[int]:
    """Return the nonces that neither the chain nor a stored transaction has; `nonce` is the node's word."""
    is_displaced = Q(state=TransactionState.DISPLACED)
    last = signer.transactions.exclude(is_displaced).order_by("-nonce").values("nonce")[:1]
    # With those that were left behind a gap (`transaction_monitor`).
    stored = signer.transactions.filter(Q(nonce=Subquery(last)) | Q(is_displaced, nonce__gte=nonce))
    states = dict(stored.values_list("nonce", "state"))
    first = max(nonce, *(one + 1 for one, state in states.items() if state != TransactionState.DISPLACED), 0)
    return (free for free in itertools.count(first) if free not in states)


def _store(signer: Signer, nonce: int, simulated: _Simulated, now: datetime) -> Transaction:
    intent = simulated.intent
    tx = Transaction.objects.create(
        signer=signer,
        nonce=nonce,
        to=intent.to,
        data=intent.data,
        gas_limit=simulated.costs.gas_limit,
        data_fee=simulated.costs.data_fee,
        expected_data_fee=simulated.costs.data_fee,
        extends_id=intent.extends,
        spent_at=now,
    )
    # It is new: `set` would first ask what it has.
    tx.queries.add(*intent.queries)
    tx.continued.add(*intent.continued)
    tx.accumulates.add(*intent.accumulates)
    return tx
