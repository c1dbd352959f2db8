"""Money: spending that counts against limits, bounds of a transaction's cost, and its division among batches.

Four bounds apply when a version is reserved (`proving.sending.signing`): a stop of sending; the chain's fee cap and its
limit of 24 hours; the user's limit of 24 hours; and the batch's fee. Until a transaction is final, it counts with its
maximum cost, because a node may report a wrong cost.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median_low

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum, Value, prefetch_related_objects
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts import models
from chains.chains_file import Chain
from chains.nodes.questions import Fees
from chains.nodes.rpc import RpcClient
from chains.prices import GasPrices
from chains.tries.header import Header
from config.configured_chains import get_chains, get_rpc
from config.database import statements
from config.database.statements import chunks
from proving import facts, failures
from proving.facts import Fact
from proving.models import (
    GWEI,
    SPENT_STATES,
    AccountProof,
    FactsRegistry,
    FailureCause,
    Share,
    SignedTransaction,
    Signer,
    Transaction,
    TransactionState,
    in_gwei,
)
from proving.packing import gas
from proving.packing.gas import Paths, Sample, UnprovenBlock
from proving.packing.packs import Intent
from proving.reading import block_contents
from proving.reading.block_contents import BlockSize
from proving.working import destination_prices
from queries import clock
from queries.models import OPEN_STATUSES, Batch, Query, QueryKind, Sender
from queries.waits import WaitReason, wait

# Both fees of a replacement, in percent of the previous fees. Nodes accept it only if both rise by at least 10 %.
RISE_PERCENT = 113

# Wei of gas limit times maximum fee, at most. Nodes refuse to take a transaction that may cost more than geth's usual
# `--rpc.txfeecap`, one ether.
_MOST_FOR_GAS = 9 * 10**17

# Last transactions whose tips are the usual ones.
_USUAL_TRANSACTIONS = 50
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_PER_STATEMENT = 500


# --- Prices of gas (EIP-1559) -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfferedFees:
    """EIP-1559 fees of a transaction, in wei per gas."""

    max_fee_per_gas: int
    max_priority_fee_per_gas: int

    def at_most(self, limit: int) -> "OfferedFees":
        return OfferedFees(min(self.max_fee_per_gas, limit), min(self.max_priority_fee_per_gas, limit))


@dataclass(frozen=True)
class MarketFees:
    """The market's fees in wei per gas: the current price, and an offer that is sufficient for some blocks."""

    base_and_tip: int
    offer: OfferedFees
    least: int
    """The lowest offer that is enough for the next block after any change of the base fee (EIP-1559)."""

    def limit_for(self, gas: int) -> int:
        """Return the highest fee of a transaction with this gas limit, so that nodes take it with their usual settings.

        If the base fee is too high for that, the limit is the offer: no fee is raised above it.
        """
        limit = _MOST_FOR_GAS // gas
        return limit if limit >= self.least else self.offer.max_fee_per_gas

    def offer_for(self, gas: int) -> OfferedFees:
        """Return the offer for a transaction with this gas limit."""
        return self.offer.at_most(self.limit_for(gas))


def market_fees(rpc: RpcClient) -> MarketFees:
    return market_of(rpc.fees(usual_tip(rpc.chain)))


def usual_tip(chain: Chain) -> int:
    """Return the median tip of the chain's last transactions, in wei per gas. 0 if none is confirmed.

    With one node it isn't read, because there is no other to compare.
    """
    if len(chain.rpc_urls) < 2:
        return 0
    # With the keys of signers, the newest rows are found by an index.
    signers = [*Signer.objects.filter(chain_id=chain.id).values_list("pk", flat=True)]
    mined = Transaction.objects.filter(signer__in=signers, state__in=SPENT_STATES, versions__hash=F("hash"))
    tips = mined.order_by("-pk").values_list("versions__max_priority_fee_per_gas", flat=True)[:_USUAL_TRANSACTIONS]
    return median_low(tips) if tips else 0


def market_of(fees: Fees) -> MarketFees:
    # The base fee can double within six full blocks. A part that isn't needed isn't paid.
    offer = OfferedFees(2 * fees.base_fee + fees.priority_fee, fees.priority_fee)
    return MarketFees(fees.base_fee + fees.priority_fee, offer, fees.base_fee * 9 // 8 + fees.priority_fee)


# --- Spending ---------------------------------------------------------------------------------------------------------


def on_chain(chain_id: int, *, beside: int | None = None) -> int:
    """Return the wei that the chain's signers spent in the last 24 hours, or may still spend by pending transactions.

    The transaction `beside` (an id) doesn't count.
    """
    sent = Transaction.objects.filter(signer__chain_id=chain_id).exclude(pk=beside or 0)
    in_a_day = _in_a_day()
    sums = [
        counted.order_by().values("signer__chain_id").annotate(gwei=Sum("reserved_gwei")).values_list("gwei")
        for counted in (sent.filter(in_a_day), sent.filter(_pending()).exclude(in_a_day))
    ]
    # It is a UNION, because each part can use an index.
    return GWEI * sum(int(gwei) for (gwei,) in sums[0].union(sums[1], all=True))


@dataclass(frozen=True)
class SignerSpending:
    """A signer's spending in wei, by the rules of limits. Pending transactions are only reserved."""

    reserved: int = 0
    in_day: int = 0
    in_week: int = 0


def by_signer() -> dict[tuple[int, str], SignerSpending]:
    """Return the spending of signers, by chain and address, in two statements that read an index and a few rows."""
    with clock.read_once():
        week, day = Q(spent_at__gt=clock.earliest() - _WEEK), _in_a_day()
    sums = {"all": Sum("reserved_gwei")}
    sums |= {name: Sum("reserved_gwei", filter=span, default=0) for name, span in (("day", day), ("week", week))}
    columns = ("signer__chain_id", "signer__address")
    rows = Transaction.objects.order_by().values(*columns)
    pending, recent = (
        {tuple(map(row.get, columns)): row for row in rows.filter(counted).annotate(**sums)}
        for counted in (_pending(), week)
    )
    none = dict.fromkeys(sums, 0)
    return {
        signer: SignerSpending(
            GWEI * waiting["all"], GWEI * (spent["day"] - waiting["day"]), GWEI * (spent["week"] - waiting["week"])
        )
        for signer in pending.keys() | recent.keys()
        for waiting, spent in [(pending.get(signer, none), recent.get(signer, none))]
    }


def of_user(user_id: int, chain_id: int, *, beside: int | None = None) -> int:
    """Return the wei that count against the user's daily limit on this destination, by the same rules as `on_chain`."""
    counted = _of_day(user_id, chain_id).exclude(transaction=beside)
    return GWEI * (counted.aggregate(gwei=Sum("reserved_gwei"))["gwei"] or 0)


def to_user(user_id: int, chain_id: int) -> int:
    """Return the cost of the user's batches on this destination, in wei, as admission counts it.

    It includes the cost of the last 24 hours, also of rejected batches, and the expected remaining cost of open
    batches.
    """
    batches = Batch.objects.filter(user=user_id, destination_chain_id=chain_id)
    # Self-funded batches are left out, because the service sends nothing for them.
    open_ones = batches.filter(status__in=OPEN_STATUSES, sender=Sender.OPERATOR).exclude(estimated_wei=None)
    recent = _of_day(user_id, chain_id).annotate(of_open=Value(value=False))
    of_open_ones = _shares().filter(batch__in=open_ones).annotate(of_open=Value(value=True))
    columns = ("batch", "wei", "of_open")
    spent = 0
    caused: Counter[str] = Counter()
    # All shares are read in one statement before the estimates, so that no transaction is missing from both. It is a
    # UNION, because for an OR PostgreSQL would read the rows of all users.
    for batch, wei, is_of_open in recent.values_list(*columns).union(of_open_ones.values_list(*columns), all=True):
        if is_of_open:
            caused[batch] += wei
        else:
            spent += wei
    estimated = open_ones.values_list("pk", "estimated_wei")
    return spent + sum(max(0, (estimate or 0) - caused[batch]) for batch, estimate in estimated)


def _at_worst(batches: Collection[str], *, beside: int) -> Counter[str]:
    """Return the spending of each batch in wei. Transactions that aren't final count with their maximum cost.

    A reorganisation may roll these back, and then they may cost more. A fee of `auto` covers no false estimate, so
    transactions that ran out of gas don't use it up. The operator pays as much again at most.
    """
    caused, lost, covered = Counter[str](), Counter[str](), Counter[str]()
    shares = _shares().filter(batch__in=batches).exclude(transaction=beside)
    shares = shares.annotate(is_lost=Q(batch__fee_is_estimate=True) & _ran_out_of_gas())
    columns = ("batch", "batch__fee", "transaction__state", "wei", "reserved_gwei", "is_lost")
    # The few shares of a batch are added up here, because databases can't add up numbers of 256 bits.
    for batch, fee, state, wei, gwei, is_lost in shares.values_list(*columns):
        is_over = state in {TransactionState.FINAL, TransactionState.DISPLACED}
        (lost if is_lost else caused)[batch] += wei if is_over else max(wei, GWEI * gwei)
        covered[batch] = fee
    return caused + (lost - covered)


def _shares() -> QuerySet[Share]:
    """Return the shares that count against users' fees and limits. Those of replaced registries don't count."""
    return Share.objects.filter(~_goes_to_replaced_registry())


def _goes_to_replaced_registry() -> Exists:
    """Select shares of transactions to a replaced registry or its block hash source.

    Their facts are proven again, so neither a batch nor a user's limit pays for them twice. The next registry may have
    the same block hash source, so transactions since the replacement don't count.
    """
    to = OuterRef("transaction__to")
    replaced = FactsRegistry.objects.filter(
        Q(address=to) | Q(multicall=to) | Q(block_hash_source=to),
        destination_chain_id=OuterRef("transaction__signer__chain_id"),
        replaced_at__gte=OuterRef("transaction__created_at"),
    )
    return Exists(replaced)


def _ran_out_of_gas() -> Q:
    """Select shares of transactions that are final, and ran out of gas."""
    with_so_little = SignedTransaction.objects.filter(
        hash=OuterRef("transaction__hash"),
        is_cancellation=False,
        transaction__gas_used__gt=Coalesce("gas_limit", "transaction__gas_limit") * failures.USED,
    )
    # An earlier version has stored no cause.
    is_presumed = Q(Exists(with_so_little), transaction__failure=None)
    is_short = is_presumed | Q(transaction__failure=FailureCause.OUT_OF_GAS)
    return Q(is_short, transaction__state=TransactionState.FINAL, transaction__succeeded=False)


def _of_day(user_id: int, chain_id: int) -> QuerySet[Share]:
    """Return the shares that count against the user's daily limit on this destination."""
    shares = _shares().filter(batch__user=user_id, batch__destination_chain_id=chain_id)
    return shares.filter(_in_a_day("transaction__") | _pending("transaction__"))


def _in_a_day(prefix: str = "") -> Q:
    """Select spending of the last 24 hours. `prefix` is the lookup path to the transaction, and ends in `__`."""
    return Q(**{f"{prefix}spent_at__gt": clock.earliest() - _DAY})


def _pending(prefix: str = "") -> Q:
    return Q(**{f"{prefix}state": TransactionState.PENDING})


def recount() -> None:
    """Correct spending that a clock far ahead has dated in the future. It then counts for a day from now."""
    if clock.is_confirmed():
        now = timezone.now()
        Transaction.objects.filter(spent_at__gt=now + clock.BEHIND).update(spent_at=now)


@dataclass(frozen=True)
class DailyAllowance:
    """A user's limit in any 24 hours, in wei, and the part that is used or reserved by open batches."""

    chain: Chain  # the destination
    most: int
    used: int

    @property
    def left(self) -> int:
        return max(0, self.most - self.used)

    @property
    def share(self) -> int:
        """Return the used part, in percent."""
        return min(100, 100 * self.used // self.most) if self.most else 100


def allowances_of(user: models.User) -> list[DailyAllowance]:
    """Return the user's allowances on all destinations that limit users."""
    allowances = (allowance_of(user, chain) for chain in get_chains().destinations())
    return [allowance for allowance in allowances if allowance is not None]


def allowance_of(user: models.User, destination: Chain) -> DailyAllowance | None:
    """Return the user's allowance on this destination. None if users aren't limited there."""
    limit = models.daily_wei(user.daily_limits_wei, destination)
    return None if limit is None else DailyAllowance(destination, limit, to_user(user.pk, destination.id))


# --- The bounds of a reservation --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """The remaining money under one limit, for a part of a transaction."""

    code: str  # code of the wait for more money
    remaining: int  # wei
    gas: int  # gas of the part
    data_fee: int  # data fee of the part, in wei
    batches: frozenset[str] = frozenset()  # the batches whose money it is; empty if it is the operator's
    fork: str = ""  # the destination's fork since the batch was accepted

    @property
    def price(self) -> int:
        """Return the maximum price of its gas, in wei per gas."""
        # Costs of batches are rounded up, each by less than the price of one gas.
        return max(0, self.remaining - self.data_fee) // (self.gas + 1)

    def reason(self, chain: Chain, price: int) -> WaitReason:
        """Return the wait for more money at this gas price, in wei per gas."""
        more = {"limit": f"{chain.daily_limit} {chain.native_currency}"} if self.code == "daily_limit" else {}
        if self.fork:
            more["fork"] = self.fork
        remaining, needed, cheaper = max(0, self.remaining), self.gas * price + self.data_fee, self.price or None
        return wait(self.code, chain=chain.id, left=remaining, price=price, needed=needed, cheaper=cheaper, **more)


def cap(chain: Chain, *, is_new: bool) -> int:
    """Return the chain's fee cap in wei per gas. A new transaction (`is_new`) stays low enough for one replacement."""
    return chain.max_fee_per_gas * 100 // RISE_PERCENT if is_new else chain.max_fee_per_gas


def batches_of(portions: Collection[str]) -> list[Batch]:
    """Read what bounds a transaction of these batches (ids)."""
    rows = Batch.objects.filter(pk__in=portions).select_related("user")
    return list(rows.only("accepted_at", "fee", "estimated_gas", "user__daily_limits_wei"))


def bounds(
    chain: Chain, tx: Transaction, gas_limit: int, portions: Mapping[str, int], batches: Collection[Batch]
) -> list[Bound]:
    """Return the bounds of a version with this gas limit, except the cap. The transaction's own cost doesn't count.

    `portions` are the parts of the gas limit that batches cause, by the batches' ids.
    """
    by_day = _by_day(chain, tx, gas_limit)
    return [*by_day, *_by_user(chain, tx, portions, batches), *_by_fee(chain, tx, portions, batches)]


def even_price(chain: Chain, batches: Collection[Batch]) -> int | None:
    """Return the gas price, in wei, at which each batch's fee covers its whole estimate. None if any price does.

    A transaction with a higher price may delay the rest of the batch until it is final.
    """
    if chain.test_network:
        return None
    return min((batch.fee // batch.estimated_gas for batch in batches if batch.estimated_gas), default=None)


def cancellation_price(chain: Chain, gas: int, tx: Transaction) -> int:
    """Return the maximum price of the transaction's cancellation in wei per gas.

    It is one raise above the cap, within the chain's daily limit. It may exceed the batch's fee and the user's limit,
    because until the nonce is used, no later transaction of the signer is mined.
    """
    most = chain.max_fee_per_gas * RISE_PERCENT // 100 + 1
    if chain.daily_limit_wei is None:
        return most
    return min(most, max(0, chain.daily_limit_wei - on_chain(chain.id, beside=tx.pk) - tx.data_fee) // gas)


def _by_day(chain: Chain, tx: Transaction, gas_limit: int) -> Iterator[Bound]:
    if chain.daily_limit_wei is not None:
        remaining = chain.daily_limit_wei - on_chain(chain.id, beside=tx.pk)
        yield Bound("daily_limit", remaining, gas_limit, tx.data_fee)


def _by_user(chain: Chain, tx: Transaction, portions: Mapping[str, int], batches: Collection[Batch]) -> Iterator[Bound]:
    of_users: dict[models.User, set[str]] = defaultdict(set)
    for batch in batches:
        of_users[batch.user].add(batch.pk)
    for user, keys in of_users.items():
        if (most := models.daily_wei(user.daily_limits_wei, chain)) is not None:
            gas = sum(portions[pk] for pk in keys)
            remaining = most - of_user(user.pk, chain.id, beside=tx.pk)
            yield Bound("user_limit", remaining, gas, _data_fee(tx, gas, portions), frozenset(keys))


def _by_fee(chain: Chain, tx: Transaction, portions: Mapping[str, int], batches: Collection[Batch]) -> Iterator[Bound]:
    if chain.test_network:
        return
    caused = _at_worst(portions, beside=tx.pk)
    for batch in batches:
        gas, fork = portions[batch.pk], destination_prices.fork_after(get_rpc(chain.id), batch.accepted_at)
        yield Bound(
            "fee_before_fork" if fork else "fee_limit",
            batch.fee - caused[batch.pk],
            gas,
            _data_fee(tx, gas, portions),
            frozenset({batch.pk}),
            fork,
        )


def _data_fee(tx: Transaction, gas: int, portions: Mapping[str, int]) -> int:
    """Return the data fee of this part of the transaction's gas, in wei."""
    return tx.data_fee * gas // sum(portions.values())


# --- Division of costs among batches ----------------------------------------------------------------------------------


class NotOurs(Exception):
    """A batch is self-funded, so the service must not send anything for it. Trying to is a defect."""


def is_spent(tx: Transaction) -> bool:
    """Return whether the transaction's batches show its cost as spent."""
    return tx.state in SPENT_STATES


Weights = Mapping[Transaction, Counter[str]]
"""The part of each transaction's gas limit that a batch causes."""


def divide(weights: Weights) -> None:
    """Divide the cost of transactions, or their maximum cost, among their batches.

    Shares are computed anew, so repeating this changes nothing. Call it inside a database transaction whenever versions
    or states of the transactions change. After a change of state, call `show_spent` too.
    """
    prefetch_related_objects(list(weights), "versions")
    # The column `weight` is not updated, because weights never change.
    Share.objects.bulk_create(
        [share for tx, of_tx in weights.items() for share in _divided(tx, of_tx)],
        update_conflicts=True,
        unique_fields=["transaction", "batch"],
        update_fields=["gas", "wei", "reserved_gwei"],
    )


def _divided(tx: Transaction, weights: Counter[str]) -> Iterator[Share]:
    gas, wei, reserved = tx.gas, tx.cost, tx.reserved
    for batch, weight in weights.items():
        portion = gas * weight // weights.total()
        yield Share(
            transaction=tx,
            batch_id=batch,
            gas=portion,
            wei=wei * portion // gas if gas else 0,
            reserved_gwei=in_gwei(reserved * weight // weights.total()),
            weight=weight,
        )


def show_spent(batches: Collection[str]) -> None:
    """Store the spending of batches. The caller has locked the batches.

    The lock is needed because several signers may send for one batch, and each sum must include all shares.
    """
    for chunk in chunks(sorted(batches), _PER_STATEMENT):
        _show_spent(chunk)


def _show_spent(batches: Sequence[str]) -> None:
    """Store the spending of these batches.

    The operator pays what exceeds a batch's fee for cancellations, which free the nonce for other batches too, for
    transactions to a replaced registry, and for those that ran out of gas.
    """
    is_of_operator = SignedTransaction.mined_cancellations("transaction") | _goes_to_replaced_registry()
    shares = Share.objects.filter(batch__in=batches, transaction__state__in=SPENT_STATES)
    gas: Counter[str] = Counter()
    wei: Counter[str] = Counter()
    of_operator: Counter[str] = Counter()
    for share in shares.annotate(is_of_operator=is_of_operator | _ran_out_of_gas()):
        gas[share.batch_id] += share.gas
        wei[share.batch_id] += share.wei
        of_operator[share.batch_id] += share.wei if share.is_of_operator else 0
    changed: list[Batch] = []
    for row in Batch.objects.filter(pk__in=batches).only("fee", "gas_used", "spent"):
        above = max(0, min(of_operator[row.pk], wei[row.pk] - row.fee))
        spent = gas[row.pk], wei[row.pk] - above
        if (row.gas_used, row.spent) != spent:
            row.gas_used, row.spent = spent
            changed.append(row)
    statements.update_each(changed, ("gas_used", "spent"))


def weights_of(*transactions: Transaction) -> Weights:
    """Return the parts of the gas limits that batches cause, as decided when the transactions were stored."""
    stored = {tx.pk: Counter[str]() for tx in transactions}
    rows = Share.objects.filter(transaction__in=stored).values_list("transaction", "batch", "weight")
    for transaction, batch, weight in rows:
        stored[transaction][batch] = weight
    return {tx: stored[tx.pk] for tx in transactions}


def portions_of(tx: Transaction, intent: Intent) -> Counter[str]:
    """Return each batch's part of a transaction's gas limit. Also set the transaction's expected gas.

    A batch's weight is the gas that its queries would take alone, at most its estimate. The estimate leaves out facts
    that were proven before. So a user who requests little pays little, even if another requests much. Raises `NotOurs`.
    """
    asking: dict[str, list[Query]] = defaultdict(list)
    for query in tx.queries.all():
        asking[query.batch_id].append(query)
    batches = Batch.objects.only("estimated_gas", "sender").in_bulk(asking)
    sample = _sample(query for queries in asking.values() for query in queries)
    prices = destination_prices.of(get_rpc(tx.signer.chain_id))
    weights: Counter[str] = Counter()
    carried = _carried(intent)
    for pk, batch in batches.items():
        if batch.is_self_funded:
            raise NotOurs(f"A transaction of the operator was to be for batch {pk}, which is self-funded.")
        weights[pk] = max(1, min(_expected(asking[pk], carried, sample, prices), batch.estimated_gas or 0))
    of_facts = weights.total()
    if tx.extends_id:
        here = [query for queries in asking.values() for query in queries if query.block_id in carried]
        of_facts = _expected(here, carried, sample, prices)
    tx.expected_gas = of_facts + intent.path_gas
    return parts_of(tx.gas_limit, weights)


def parts_of(gas_limit: int, weights: Counter[str]) -> Counter[str]:
    """Divide a gas limit by these weights of batches."""
    parts = Counter({batch: gas_limit * weight // weights.total() for batch, weight in weights.items()})
    for largest, _ in parts.most_common(1):
        # The largest part gets the remainder of rounding.
        parts[largest] += gas_limit - parts.total()
    return parts


def expected_gas(intent: Intent, prices: GasPrices) -> int:
    """Return the expected gas of a transaction with proofs."""
    rows = list(Query.objects.filter(pk__in=intent.queries))
    return _expected(rows, _carried(intent), _sample(rows), prices) + intent.path_gas


def _carried(intent: Intent) -> dict[int, Header]:
    """Return the headers that the transaction carries, by the ids of their blocks."""
    return {block.pk: Header.decode(bytes(block.header_rlp or b"")) for block in intent.accumulates}


def _sample(queries: Iterable[Query]) -> Sample:
    """Return a sample of the shape of the tries, from a stored proof of one of the queries."""
    query = max(queries, key=lambda query: (len(query.slots), query.kind == QueryKind.ACCOUNT), default=None)
    row = query and AccountProof.objects.filter(block=query.block_id, address=query.address).first()
    slots = gas.SAMPLED_SLOTS if query and query.slots else 0
    return Sample.of(facts.stored_proof(row, slots)) if row and row.nodes else Sample()


def _expected(queries: Iterable[Query], carried: Mapping[int, Header], sample: Sample, prices: GasPrices) -> int:
    """Return the expected gas of these queries, and of the headers `carried`, by the ids of their blocks."""
    facts_by_block: dict[int | None, dict[Fact, None]] = defaultdict(dict)
    entry_blocks: set[int | None] = set()
    for query in queries:
        facts_by_block[query.block_id].update(dict.fromkeys(facts.of(query)))
        entry_blocks |= {query.block_id} if query.kind == QueryKind.ENTRY else set()
    sizes = block_contents.stored_sizes(entry_blocks)
    missing = [
        UnprovenBlock(
            0,
            list(here),
            is_known=block not in carried,
            header=carried.get(block or 0),
            size=sizes.get(block, BlockSize()),
        )
        for block, here in facts_by_block.items()
    ]
    return gas.estimate(missing, sample, Paths(), prices).gas.expected
