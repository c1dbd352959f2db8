"""What counts against the limits, and the bounds of what a signature may cost.

Four bounds hold at each signature (`proving.transactions.signing`): a stop of sending; the chain's cap of fees and its
limit of 24 hours; the user's limit of 24 hours; and the batch's fee. What is pending counts as the most that it can
cost, and so does what isn't final: until then a node may lie about what it has cost.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q, QuerySet, Sum, Value
from django.utils import timezone

from accounts import models
from chains.chains_file import Chain
from proving.budget import cost_allocation
from proving.models import GWEI, Share, Transaction, TransactionState, goes_to_replaced_registry
from queries import clock
from queries.models import OPEN_STATUSES, Batch, Sender

# By how much both fees of a replacement are above those before: nodes take it only if they rise by at least 10 %.
RISE_PERCENT = 113

_DAY = timedelta(days=1)
# Transactions that are read at a time.
_AT_A_TIME = 1000


@dataclass(frozen=True)
class Reservation:
    """An amount that is spent, or may still be."""

    gas: int
    wei: int

    def __add__(self, other: "Reservation") -> "Reservation":
        return Reservation(self.gas + other.gas, self.wei + other.wei)


# --- What counts ------------------------------------------------------------------------------------------------------


def on_chain(chain_id: int, *, beside: int | None = None) -> int:
    """Return the wei that the chain's signers spent in the last 24 hours, and may still spend by what isn't final.

    The transaction `beside` (an id) doesn't count. While the signers are locked (`signers.locked`): it writes what a
    version before 0.3 has left out.
    """
    sent = Transaction.objects.filter(signer__chain_id=chain_id).exclude(pk=beside or 0)
    wei = 0
    # Each of the two is read from an index.
    for counted in (sent.filter(_in_a_day()), sent.filter(_pending()).exclude(_in_a_day())):
        sums = {"gwei": Sum("reserved_gwei"), "older": Count("pk", filter=Q(reserved_gwei=None))}
        while (found := counted.aggregate(**sums))["older"]:
            _count_older(counted.filter(reserved_gwei=None))
        wei += GWEI * (found["gwei"] or 0)
    return wei


def _count_older(transactions: QuerySet[Transaction]) -> None:
    """Count what a version before 0.3 has stored, some of it."""
    rows = list(transactions.defer("data").prefetch_related("versions")[:_AT_A_TIME])
    cost_allocation.divide(cost_allocation.weights_of(*rows))
    for tx in rows:
        tx.reserve()
    Transaction.objects.bulk_update(rows, ["reserved_gwei"])


def of_user(user_id: int, chain_id: int, *, beside: int | None = None) -> int:
    """Return the wei that count on this destination against the user's daily limit, as `on_chain` counts them."""
    counted = _of_day(user_id, chain_id).exclude(transaction=beside)
    return GWEI * (counted.aggregate(gwei=Sum("reserved_gwei"))["gwei"] or 0)


def to_user(user_id: int, chain_id: int) -> int:
    """Add up what the user's batches cost on this destination, in wei, as admission counts it.

    That is their cost of the last 24 hours, rejected ones included, and what the open ones are still expected to cost.
    """
    batches = Batch.objects.filter(user=user_id, destination_chain_id=chain_id)
    # Nothing is sent here for a self-funded batch.
    open_ones = batches.filter(status__in=OPEN_STATUSES, sender=Sender.OPERATOR).exclude(estimated_wei=None)
    recent = _of_day(user_id, chain_id).annotate(of_open=Value(value=False))
    of_open_ones = _shares().filter(batch__in=open_ones).annotate(of_open=Value(value=True))
    columns = ("batch", "wei", "of_open")
    spent = 0
    caused: Counter[str] = Counter()
    # By one statement, and before the estimates: what is sent or mined meanwhile must not be missing from both. Not by
    # an OR, for which PostgreSQL reads everybody's.
    for batch, wei, is_of_open in recent.values_list(*columns).union(of_open_ones.values_list(*columns), all=True):
        if is_of_open:
            caused[batch] += wei
        else:
            spent += wei
    estimated = open_ones.values_list("pk", "estimated_wei")
    return spent + sum(max(0, (estimate or 0) - caused[batch]) for batch, estimate in estimated)


def caused_by(batch: Batch) -> int:
    """Return the wei that a batch has spent, and that its pending transactions can cost."""
    return sum(_shares().filter(batch=batch).values_list("wei", flat=True))


def _at_worst(batches: Collection[str], *, beside: int) -> Counter[str]:
    """Return the wei that each batch has spent, and that its transactions can cost that aren't final.

    A chain that is reorganised takes them back, and then they may cost more.
    """
    caused: Counter[str] = Counter()
    shares = _shares().filter(batch__in=batches).exclude(transaction=beside)
    # Databases don't add up 256 bits, and a batch has few.
    for batch, state, wei, gwei in shares.values_list("batch", "transaction__state", "wei", "reserved_gwei"):
        is_over = state in {TransactionState.FINAL, TransactionState.DISPLACED}
        caused[batch] += wei if is_over else max(wei, GWEI * gwei)
    return caused


def _shares() -> QuerySet[Share]:
    """Return the shares that count against fees and limits of users: what went to replaced registries doesn't."""
    return Share.objects.filter(~goes_to_replaced_registry())


def _of_day(user_id: int, chain_id: int) -> QuerySet[Share]:
    """Return the shares that count on this destination against the user's daily limit."""
    shares = _shares().filter(batch__user=user_id, batch__destination_chain_id=chain_id)
    return shares.filter(_in_a_day("transaction__") | _pending("transaction__"))


def _in_a_day(prefix: str = "") -> Q:
    """Select what is spent in the last 24 hours. `prefix` leads to the transaction, and ends in `__`."""
    return Q(**{f"{prefix}spent_at__gt": _day_began()})


def _pending(prefix: str = "") -> Q:
    return Q(**{f"{prefix}state": TransactionState.PENDING})


def _day_began() -> datetime:
    return clock.earliest() - _DAY


def recount() -> None:
    """Count what a clock far ahead has stamped, for a day from now."""
    if clock.is_confirmed():
        now = timezone.now()
        Transaction.objects.filter(spent_at__gt=now + clock.BEHIND).update(spent_at=now)


# --- The bounds of a signature ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """The money that one limit leaves for a part of a transaction."""

    limit: str
    left: int  # wei
    gas: int  # of the part
    data_fee: int  # of the part, in wei
    batches: frozenset[str] = frozenset()  # whose money it is; none for the operator's

    @property
    def price(self) -> int:
        """Return the most that a unit of its gas may cost, in wei."""
        # Costs of batches are rounded, by less than a unit for each.
        return max(0, self.left - self.data_fee) // (self.gas + 1)

    def sentence(self, chain: Chain, price: int) -> str:
        """Say what is lacking where gas is at this price, in wei."""
        needed = chain.amount(self.gas * price + self.data_fee)
        said = (
            f"{self.limit} leaves {chain.amount(max(0, self.left))}, and at the present gas price of chain {chain.id}, "
            f"{_gwei(price)}, this transaction may cost {needed} of it."
        )
        return f"{said} Waiting for gas at {_gwei(self.price)} or less." if self.price else said


def cap(chain: Chain, *, is_new: bool) -> int:
    """Return the chain's cap in wei per gas. What `is_new` leaves room for one replacement below it."""
    return chain.max_fee_per_gas * 100 // RISE_PERCENT if is_new else chain.max_fee_per_gas


def bounds(chain: Chain, tx: Transaction, portions: Mapping[str, int]) -> list[Bound]:
    """Return the bounds of a stored transaction beside the cap. Its own cost doesn't count.

    `portions` are the parts of its gas limit that batches cause, by their ids.
    """
    return [*_by_day(chain, tx), *_by_user(chain, tx, portions), *_by_fee(chain, tx, portions)]


def even_price(chain: Chain, batches: Collection[str]) -> int | None:
    """Return the price of gas, in wei, at which each batch's fee does for its whole estimate; None: any price does.

    What offers more may keep the rest of the batch waiting until it is final.
    """
    if chain.test_network:
        return None
    estimated = Batch.objects.filter(pk__in=batches, estimated_gas__gt=0).values_list("fee", "estimated_gas")
    return min((fee // (gas or 1) for fee, gas in estimated), default=None)


def cancellation_price(chain: Chain, gas: int, tx: Transaction) -> int:
    """Return the most to pay in wei per gas to cancel it: one raise above the cap, within the chain's daily limit.

    It may cost more than the fee and the user's limit leave: until the nonce is used nobody's transactions are mined.
    """
    most = chain.max_fee_per_gas * RISE_PERCENT // 100 + 1
    if chain.daily_limit_wei is None:
        return most
    return min(most, max(0, chain.daily_limit_wei - on_chain(chain.id, beside=tx.pk) - tx.data_fee) // gas)


def _by_day(chain: Chain, tx: Transaction) -> Iterator[Bound]:
    if chain.daily_limit_wei is not None:
        limit = f"The operator's limit of {chain.daily_limit} {chain.native_currency} in 24 hours on chain {chain.id}"
        left = chain.daily_limit_wei - on_chain(chain.id, beside=tx.pk)
        yield Bound(limit, left, tx.gas_limit, tx.data_fee)


def _by_user(chain: Chain, tx: Transaction, portions: Mapping[str, int]) -> Iterator[Bound]:
    batches_of: dict[int, set[str]] = defaultdict(set)
    limits: dict[int, int | None] = {}
    for pk, user, own in Batch.objects.filter(pk__in=portions).values_list("pk", "user", "user__daily_limits_wei"):
        batches_of[user].add(pk)
        limits[user] = models.daily_wei(own, chain)
    for user, batches in batches_of.items():
        if (most := limits[user]) is not None:
            gas = sum(portions[pk] for pk in batches)
            left = most - of_user(user, chain.id, beside=tx.pk)
            yield Bound("The daily limit of its user", left, gas, _data_fee(tx, gas), frozenset(batches))


def _by_fee(chain: Chain, tx: Transaction, portions: Mapping[str, int]) -> Iterator[Bound]:
    if chain.test_network:
        return
    caused = _at_worst(portions, beside=tx.pk)
    for batch, fee in Batch.objects.filter(pk__in=portions).values_list("pk", "fee"):
        gas = portions[batch]
        yield Bound("The batch's fee", fee - caused[batch], gas, _data_fee(tx, gas), frozenset({batch}))


def _data_fee(tx: Transaction, gas: int) -> int:
    """Return the data fee of this part of the transaction's gas, in wei."""
    return tx.data_fee * gas // tx.gas_limit


def _gwei(wei: int) -> str:
    return f"{wei / 10**9:.3f} gwei"
