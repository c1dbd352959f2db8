"""Sending of transactions. Each nonce is used once and none is left open, even if the process is killed at any time.

Orders pass these stages together, each stage once:

1. simulate: nodes estimate the gas of each intent, and report its price;
2. pack: small orders of a registry share a transaction;
3. reserve: in one database transaction, in which nobody else reserves on the chain, each intent gets a nonce of the
   signer that sends now, and fields that keep all bounds;
4. sign, store and broadcast (`signing`), without a lock.

The transaction monitor follows reserved transactions, also after a kill.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from django.db.models import Q, Subquery
from django.db.models.functions import Coalesce, Greatest, Least, Now
from django.utils import timezone

from chains import rollups
from chains.chains_file import Chain
from chains.nodes import questions
from chains.nodes.node_errors import ChainError, ImplausibleGas, Reverted, RpcRefused
from chains.nodes.questions import BlockIdentifier
from chains.nodes.rpc import FEE_QUESTIONS, RpcClient, result
from chains.prices import GasPrices, Load
from chains.rollups import DataCost
from chains.tries.header import Header
from config.configured_chains import get_rpc
from config.database import statements
from config.database.statements import chunks
from proving import money
from proving.facts import proves_facts
from proving.models import LIVE_STATES, SignedTransaction, Signer, Transaction, TransactionState
from proving.money import MarketFees, market_of
from proving.packing.packs import GAS_MARGIN, SHARED_BYTES, SHARED_GAS, Intent
from proving.registries.deployments import in_one_call
from proving.sending import gas_caps, gas_limits, signers, signing
from proving.sending.gas_limits import GasLimit, GasNeed
from proving.sending.signers import Notices, SendingSigner, Unsent
from proving.working import destination_prices, heads
from proving.working.lanes import HeldLane, LaneLost
from queries import clock
from queries.models import Batch
from queries.waits import WaitReason, wait

# Each intent is simulated on these blocks. Other pending transactions may be mined after it or be cancelled. Then it
# runs on the state of the latest block.
_SIMULATED_AT: Sequence[BlockIdentifier] = ("pending", "latest")
# Maximum queries that a statement names.
_PER_STATEMENT = 500
# Maximum bytes of calldata. Nodes accept no signed transaction above 131,072 bytes, and one in a nonce's place that no
# node accepts would hold up all that follow.
_MOST_DATA = 130_800
_UNDER_WAY = Unsent(wait("same_under_way"), is_brief=True)
_NO_ROOM = Unsent(wait("room"), is_brief=True)


@dataclass(frozen=True)
class Order:
    """Intents that are sent together: all of them, or the first ones for which money and room are sufficient.

    `and_reserve` runs in the database transaction that reserves them. An order of one intent with
    a `multicall`, the address of that contract, may share a transaction with other orders of the same contract.
    """

    intents: Sequence[Intent]
    and_reserve: Callable[[], None] | None = None
    multicall: str = ""
    least_limit: int = 0
    """The least gas limit of the intent that takes most, after tries that failed. 0: any."""

    @property
    def may_share(self) -> bool:
        return bool(self.multicall) and len(self.intents) == 1

    def is_for(self, batches: Collection[str]) -> bool:
        queries = self.intents[0].queries
        return Batch.objects.filter(pk__in=batches, queries__in=queries).exists()


@dataclass(frozen=True)
class Sent:
    """The stored transactions of an order, in the order of its intents. The last intents may be missing."""

    transactions: Sequence[Transaction]


def submit_all(chain: Chain, lane: HeldLane, orders: Sequence[Order]) -> list[Sent | Unsent | ChainError]:
    """Send orders with consecutive nonces, while the lane is held.

    Return the result of each order, or the error if no node answers or a simulation reverts. After a return, or after a
    kill at any later time, the transaction monitor goes on with them. Raises `LaneLost` if nothing is reserved.
    """
    if refused := signers.why_none(chain):
        return [Unsent(refused)] * len(orders)
    if not orders:
        return []
    if fork := destination_prices.fork_begins(get_rpc(chain.id)):
        begins = wait("fork_begins", chain=chain.id, at=fork.at, seconds=destination_prices.SECONDS_AFTER)
        return [Unsent(begins, is_brief=True)] * len(orders)
    try:
        simulation = _simulate(chain, orders)
    except ChainError as error:
        return [error] * len(orders)
    fitting = {place: order for place, order in enumerate(simulation.orders) if isinstance(order, Order)}
    parcels = _pack(fitting, simulation.prices)
    # If the database transaction is repeated, its first run reserved nothing and nothing was signed.
    reserved = statements.retried(partial(_reserve, chain, lane, simulation, parcels))
    # If another worker has taken the lane, it goes on with the reserved versions.
    with suppress(LaneLost):
        signing.send_reserved(get_rpc(chain.id), lane, reserved.versions)
    return [
        reserved.outcomes[place] if isinstance(order, Order) else order for place, order in enumerate(simulation.orders)
    ]


# --- Simulate ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ChainState:
    """The market's fees, and the signers' accounts by address in the order of chains.toml, as reported by nodes."""

    fees: MarketFees
    balances: Mapping[str, int]  # wei
    nonces: Mapping[str, int]


@dataclass(frozen=True)
class _Simulation:
    """Simulated orders at a state of the chain."""

    state: _ChainState
    prices: GasPrices
    orders: Sequence[Order | Unsent | ChainError]
    """The orders with their intents' gas, or why they can't be sent."""


def _compared(chain: Chain, head: Header, state: _ChainState, cost: int) -> _ChainState | Unsent:
    """Ask each node about signers that can't pay this cost, in wei, and about nonces that no stored transaction shows.

    The highest balance counts, because the chain refuses what isn't there.
    """
    rpc, balances, nonces = get_rpc(chain.id), {**state.balances}, {**state.nonces}
    rows = {row.address: row for row in Signer.objects.filter(chain_id=chain.id)}
    for address, balance in state.balances.items():
        row, nonce = rows.get(address), nonces[address]
        stored = signers.next_stored(row) if row else 0
        free = signers.sender_of(row, balance, nonce).free if row else balance
        if balance < chain.minimum_signer_balance_wei or free < cost:
            balances[address] = max([balance, *rpc.answers_of_each(questions.balance(address)).values()])
        if nonce > stored or not stored:
            compared = _compared_nonce(chain, rpc, address, head)
            if compared is None:
                return Unsent(wait("nodes_behind", chain=chain.id))
            nonces[address] = compared
    return _ChainState(state.fees, balances, nonces)


def _compared_nonce(chain: Chain, rpc: RpcClient, address: str, head: Header) -> int | None:
    """Return the account's next nonce as current nodes tell it. None: none does.

    Where they differ, the one that is proven counts. If none is, the lowest counts, because nothing is mined behind a
    gap.
    """
    highest = max(head.number, heads.highest_lately(chain.id))
    current = heads.of_current_nodes(chain, rpc, highest, [questions.nonce(address)]).values()
    nonces = {nonce for _, (nonce,) in current if isinstance(nonce, int)}
    if len(nonces) > 1 and (account := rpc.proven_account(address, min(newest.number for newest, _ in current))):
        return account.nonce
    return min(nonces, default=None)


def _simulate(chain: Chain, orders: Sequence[Order]) -> _Simulation:
    """Simulate the orders. Raises `ChainError`."""
    rpc = get_rpc(chain.id)
    addresses = signing.senders(chain)
    intents = [intent for order in orders for intent in order.intents]
    prices = destination_prices.find(rpc)
    needs = [
        gas_limits.need_of(
            rpc, intent, addresses[0], _SIMULATED_AT, prices, own_limit=partial(_expected_limit, intent, prices)
        )
        for intent in intents
    ]
    # Two estimates of each intent follow each other.
    simulations = [question for need in needs for question in need.questions]
    of_accounts = [*map(questions.balance, addresses), *(questions.nonce(address, "latest") for address in addresses)]
    estimates, of_fees, answers = rpc.ask(simulations, FEE_QUESTIONS, of_accounts)
    head = rpc.must_have_head(of_fees[0])
    fees = market_of(rpc.fees_by(of_fees, money.usual_tip(chain)))
    numbers = [result(answer) for answer in answers]
    balances, nonces = (dict(zip(addresses, part, strict=True)) for part in chunks(numbers, len(addresses)))
    prices = destination_prices.of(rpc, head)
    limits = _limits(rpc, prices, needs, [*zip(estimates[::2], estimates[1::2], strict=True)])
    possible = {place: limit for place, limit in enumerate(limits) if isinstance(limit, GasLimit)}
    data = rollups.data_costs(rpc, [(len(intents[place].data), limit.gas) for place, limit in possible.items()])
    costs = dict(zip(possible, data, strict=True))
    sized = iter(
        [
            _sized(intent, limit, costs[place]) if isinstance(limit, GasLimit) else limit
            for place, (intent, limit) in enumerate(zip(intents, limits, strict=True))
        ]
    )
    simulated = [_raised(order, list(itertools.islice(sized, len(order.intents))), prices) for order in orders]
    sized_intents = [intent for order in simulated if isinstance(order, Order) for intent in order.intents]
    cost = sum(intent.cost(fees.least) for intent in sized_intents)
    state = _ChainState(fees, balances, nonces)
    compared = _compared(chain, head, state, cost)
    if isinstance(compared, Unsent):
        return _Simulation(state, prices, [compared] * len(orders))
    return _Simulation(compared, prices, simulated)


def _limits(
    rpc: RpcClient,
    prices: GasPrices,
    needs: Sequence[GasNeed],
    estimates: Sequence[tuple[int | ChainError, int | ChainError]],
) -> list[GasLimit | Unsent | ChainError]:
    """Return the gas limits from the estimates at both blocks, or why there is none."""
    errors = [_why_not(*of_need) for of_need in estimates]
    usable = [place for place, error in enumerate(errors) if error is None]
    decided = iter(
        gas_limits.decide(rpc, prices, [needs[place] for place in usable], [estimates[place] for place in usable])
    )
    limits = [error or next(decided) for error in errors]
    explained = gas_caps.explained(rpc, limits, [need.bound or need.least for need in needs])
    return [Unsent(limit) if isinstance(limit, WaitReason) else limit for limit in explained]


def _sized(intent: Intent, limit: GasLimit, cost: DataCost) -> Intent | Unsent:
    if (size := len(intent.data)) > _MOST_DATA:
        return Unsent(wait("data_too_long", size=size, most=_MOST_DATA))
    return replace(intent, gas_limit=limit.gas, own_limit=limit.own, data_fee=cost.wei)


def _raised(
    order: Order, outcomes: Sequence[Intent | Unsent | ChainError], prices: GasPrices
) -> Order | Unsent | ChainError:
    """Return the order with these intents, or why one of them can't be sent.

    The intents' gas limits are raised in proportion to the order's least limit.
    """
    sized = [outcome for outcome in outcomes if isinstance(outcome, Intent)]
    if refused := next((outcome for outcome in outcomes if not isinstance(outcome, Intent)), None):
        return refused
    if not order.least_limit:
        return replace(order, intents=sized)
    highest = max(intent.gas_limit for intent in sized)
    least = max(highest, order.least_limit)
    if least > prices.max_gas:
        return Unsent(wait("transaction_too_large", gas=least, most=prices.max_gas))
    raised = [replace(intent, gas_limit=-(-intent.gas_limit * least // highest), own_limit=0) for intent in sized]
    return replace(order, intents=raised)


def _why_not(pending: int | ChainError, latest: int | ChainError) -> ChainError | None:
    """Return the error for which an intent isn't sent, if any."""
    if isinstance(pending, ChainError) and not isinstance(pending, ImplausibleGas):
        return pending
    # Proofs about the newest block revert at that block, because only the next block knows its hash.
    if isinstance(latest, ChainError) and not isinstance(latest, ImplausibleGas | Reverted):
        return latest
    return None


def _expected_limit(intent: Intent, prices: GasPrices) -> int | None:
    """Return a gas limit without any node's help: the expected gas with a margin, or else the upper bound."""
    bound = intent.gas_bound(prices)
    if bound is None or intent.extends is not None:
        return bound
    expected = money.expected_gas(intent, prices)
    return min(bound, max(int(expected * GAS_MARGIN), prices.least_limit(intent.to, intent.data)))


# --- Pack -------------------------------------------------------------------------------------------------------------

_Parcel = Mapping[int, Order]
"""Orders that may share a transaction, by their indexes among all orders."""


def _pack(orders: Mapping[int, Order], prices: GasPrices) -> list[_Parcel]:
    """Group orders that may share a transaction. The groups are in the order of their first members."""
    parcels: list[dict[int, Order]] = []
    with_room: dict[str, dict[int, Order]] = {}
    for place, order in orders.items():
        parcel = with_room.get(order.multicall) if order.may_share else None
        if parcel is None or not _fits(order, parcel.values(), prices):
            parcels.append(parcel := {})
            if order.may_share:
                with_room[order.multicall] = parcel
        parcel[place] = order
    return [*parcels]


def _fits(order: Order, others: Collection[Order], prices: GasPrices) -> bool:
    parts = [each.intents[0] for each in (order, *others)]
    signed = sum((part.signed_load(prices) for part in parts), Load())
    return prices.fits(signed, SHARED_GAS) and sum(len(part.data) for part in parts) <= SHARED_BYTES


def _joined(orders: Sequence[Order]) -> Order:
    """Join orders into one transaction. Its gas limit is an upper bound, because orders were simulated separately."""
    parts = [order.intents[0] for order in orders]
    to, data = in_one_call(orders[0].multicall, [(part.to, part.data) for part in parts])
    intent = Intent(
        to,
        data,
        queries=frozenset(pk for part in parts for pk in part.queries),
        accumulates=[block for part in parts for block in part.accumulates],
        continued=frozenset(pk for part in parts for pk in part.continued),
        path_gas=sum(part.path_gas for part in parts),
        gas_limit=sum(part.gas_limit for part in parts),
        data_fee=sum(part.data_fee for part in parts),
    )
    return Order([intent])


# --- Reserve ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ReservedOrders:
    versions: Sequence[SignedTransaction]
    """The versions to sign."""
    outcomes: Mapping[int, Sent | Unsent]
    """The result of each order, by its index among all orders."""


def _reserve(chain: Chain, lane: HeldLane, simulation: _Simulation, parcels: Sequence[_Parcel]) -> _ReservedOrders:
    """Reserve as much as possible in one database transaction."""
    state = simulation.state
    firsts = [order.intents[0] for parcel in parcels for order in parcel.values()]
    least = min((intent.cost(state.fees.least) for intent in firsts), default=0)
    outcomes: dict[int, Sent | Unsent] = {}
    versions: list[SignedTransaction] = []
    with signers.locked(chain, state.balances) as rows:
        # If this worker was suspended, another one may have sent transactions that it doesn't know.
        lane.fence()
        choice = signers.choose(chain, rows, state.balances, state.nonces, least)
        if isinstance(choice.signer, SendingSigner):
            reservation = _Reservation(chain, choice.signer, choice.notices, state.fees, versions)
            for parcel in parcels:
                outcomes |= reservation.of_parcel(parcel)
        else:
            outcomes |= {place: Unsent(choice.signer) for parcel in parcels for place in parcel}
        if versions:
            # If this process is killed before the broadcast, the next worker broadcasts.
            due_at = Now() + timedelta(seconds=heads.seconds_to_next(chain, get_rpc(chain.id)))
            row = Signer.objects.filter(pk=versions[0].transaction.signer_id)
            # A worker that is monitoring the signer notices the changed time.
            row.update(due_at=Greatest(Least(Coalesce("due_at", due_at), due_at), Now()))
        notices, address = choice.notices, next(iter(state.balances))
        notices[address] = notices[address] or _why_not_estimated(chain, address, simulation.orders)
        signers.show(rows.values(), choice.notices)
    return _ReservedOrders(versions, outcomes)


def _why_not_estimated(
    chain: Chain, address: str, simulated: Sequence[Order | Unsent | ChainError]
) -> WaitReason | None:
    """Return why nodes estimate no gas for the signer's transactions. None: nothing shows that."""
    for outcome in simulated:
        if isinstance(outcome, Unsent) and outcome.reason.code == "node_gas_cap":
            return outcome.reason
        if type(outcome) is RpcRefused:
            return replace(wait("estimate_refused", signer=address, chain=chain.id), words=outcome.message)
    return None


@dataclass
class _Reservation:
    """A reservation of a signer's nonces, with fields and money, in the caller's database transaction."""

    chain: Chain
    sender: SendingSigner
    notices: Notices
    fees: MarketFees
    versions: list[SignedTransaction] = field(default_factory=list)
    now: datetime = field(default_factory=timezone.now)
    """The time of all transactions, by which those that were sent together are recognised."""

    def of_parcel(self, parcel: _Parcel) -> dict[int, Sent | Unsent]:
        """Reserve one transaction for all orders that can pay the offered fees. The others get separate ones."""
        outcomes: dict[int, Sent | Unsent] = {}
        sharing = dict(parcel)
        while len(sharing) > 1:
            joined = _joined(list(sharing.values()))
            offer = self.fees.offer_for(joined.intents[0].gas_limit)
            outcome = self._of_order(joined, least=offer.max_fee_per_gas)
            if isinstance(outcome, Sent):
                return outcomes | dict.fromkeys(sharing, outcome)
            alone = [place for place, order in sharing.items() if order.is_for(outcome.batches)] or list(sharing)
            outcomes |= {place: self._of_order(sharing.pop(place), least=self.fees.least) for place in alone}
        return outcomes | {place: self._of_order(order, least=self.fees.least) for place, order in sharing.items()}

    def _of_order(self, order: Order, *, least: int) -> Sent | Unsent:
        """Reserve the first transactions of the order, up to the limits of money and room."""
        if self._is_under_way(order.intents):
            return _UNDER_WAY
        nonces = next_nonces(self.sender.row, self.sender.nonce)
        reserved: list[Transaction] = []
        for nonce, intent in zip(nonces, order.intents, strict=False):
            outcome = self._of_intent(nonce, intent, least)
            if isinstance(outcome, Unsent):
                if not reserved:
                    return outcome
                break
            reserved.append(outcome)
        if order.and_reserve:
            order.and_reserve()
        return Sent(reserved)

    def _of_intent(self, nonce: int, intent: Intent, least: int) -> Transaction | Unsent:
        outcome = self._at_limit(nonce, intent, least)
        if isinstance(outcome, Unsent) and intent.own_limit:
            return self._at_limit(nonce, replace(intent, gas_limit=intent.own_limit, own_limit=0), least)
        return outcome

    def _at_limit(self, nonce: int, intent: Intent, least: int) -> Transaction | Unsent:
        sender = self.sender
        if not sender.has_room:
            return _NO_ROOM
        affordable = max(0, sender.free - intent.data_fee) // intent.gas_limit
        offer = self.fees.offer_for(intent.gas_limit).at_most(affordable)
        if offer.max_fee_per_gas < least:
            return self._short(Unsent(signers.too_poor(self.chain, sender, intent.cost(least))))
        tx = _create(sender.row, nonce, intent, self.now)
        portions = money.portions_of(tx, intent)
        version = signing.reserve_version(self.chain, tx, offer, portions, least=least, is_new=True)
        if isinstance(version, Unsent):
            tx.delete()
            if not version.batches and len(portions) > 1:
                # Without the largest portion, the transaction may be cheap enough.
                return replace(version, batches=frozenset(batch for batch, _ in portions.most_common(1)))
            return version if version.batches else self._short(version)
        sender.transactions += 1
        sender.gas += intent.gas_limit
        sender.free -= intent.cost(version.max_fee_per_gas)
        self.notices[sender.row.address] = None
        self.versions.append(version)
        return tx

    def _short(self, why: Unsent) -> Unsent:
        """Notify the operator, unless another transaction could be paid."""
        if not self.versions:
            self.notices[self.sender.row.address] = why.reason
        return why

    def _is_under_way(self, intents: Sequence[Intent]) -> bool:
        """Return whether an earlier transaction already does a part of these intents.

        Only one transaction at a time extends a registry, because each one builds on the previous one.
        """
        # Pending transactions of a key that chains.toml no longer has may never be mined, so they don't count.
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


def next_nonces(signer: Signer, nonce: int) -> Iterator[int]:
    """Yield the nonces that neither the chain nor a stored transaction has used. A node has reported `nonce`."""
    is_displaced = Q(state=TransactionState.DISPLACED)
    last = signer.transactions.exclude(is_displaced).order_by("-nonce").values("nonce")[:1]
    # This includes transactions that were left behind a gap (`transaction_monitor`).
    stored = signer.transactions.filter(Q(nonce=Subquery(last)) | Q(is_displaced, nonce__gte=nonce))
    states = dict(stored.values_list("nonce", "state"))
    first = max(nonce, *(used + 1 for used, state in states.items() if state != TransactionState.DISPLACED), 0)
    return (free for free in itertools.count(first) if free not in states)


def _create(signer: Signer, nonce: int, intent: Intent, now: datetime) -> Transaction:
    tx = Transaction.objects.create(
        signer=signer,
        nonce=nonce,
        to=intent.to,
        data=intent.data,
        gas_limit=intent.gas_limit,
        data_fee=intent.data_fee,
        expected_data_fee=intent.data_fee,
        extends_id=intent.extends,
        created_at=now,
        spent_at=clock.latest(),
    )
    # `add` is faster than `set`, which would first read the new row's relations.
    tx.queries.add(*intent.queries)
    tx.continued.add(*intent.continued)
    tx.accumulates.add(*intent.accumulates)
    return tx
