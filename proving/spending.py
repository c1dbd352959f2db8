"""What batches cost: each one's share of the transactions, and the limits that hold for it.

Three limits bound what is signed on a chain that is no test network: a batch never pays more than its fee, a user's
batches no more than the limit per user, and all of them no more than the chain's daily limit. What is pending counts as
the most that it can cost.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet, Sum
from django.utils import timezone

from chains.config import Chain
from proving import estimates
from proving.estimates import RIDER_GAS, Work
from proving.models import Share, Transaction, TransactionState
from queries.models import OPEN_STATUSES, Batch, Query

_DAY = timedelta(days=1)
# In which batches show what they have spent.
_SPENT_STATES = (TransactionState.CONFIRMED, TransactionState.FINAL)


# --- Shares -----------------------------------------------------------------------------------------------------------


def share(tx: Transaction) -> None:
    """Divide what a transaction costs, or can still cost, among its batches.

    Derived anew each time, never added up: doing it twice changes nothing. Inside the caller's database transaction,
    whenever the transaction's versions or state have changed.
    """
    touched = set(tx.shares.values_list("batch", flat=True))
    tx.shares.all().delete()
    gas, wei = tx.gas, tx.cost
    portions = portions_of(tx, gas) if gas else Counter[str]()
    touched.update(portions)
    for batch, portion in portions.items():
        Share.objects.create(transaction=tx, batch_id=batch, gas=portion, wei=wei * portion // gas)
    for batch in sorted(touched):
        spent = Share.objects.filter(batch=batch, transaction__state__in=_SPENT_STATES).values_list("gas", "wei")
        Batch.objects.filter(pk=batch).update(gas_used=sum(gas for gas, _ in spent), spent=sum(wei for _, wei in spent))


def portions_of(tx: Transaction, gas: int) -> Counter[str]:
    """How much of a transaction's gas each of its batches causes.

    Evenly by queries; but who rides along with a way to another block pays for what that adds, and not for the way.
    """
    portions: Counter[str] = Counter()
    asking = list(tx.queries.values_list("batch", "block"))
    main = [batch for batch, block in asking if tx.leads_to_id in {None, block}]
    riders = [(batch, block) for batch, block in asking if tx.leads_to_id not in {None, block}] if main else []
    at_block = Counter(block for _, block in riders)
    each = min(RIDER_GAS, gas // (1 + len(at_block)))
    for batch, block in riders:
        portions[batch] += each // at_block[block]
    rest = gas - portions.total()
    everybody = main or [batch for batch, _ in asking]
    for batch, count in Counter(everybody).items():
        portions[batch] += rest * count // len(everybody)
    return portions


# --- What counts against the limits -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Promise:
    """What is spent, or may still be."""

    gas: int
    wei: int


def promised_to(user_id: int, destinations: list[int]) -> Promise:
    """On these destinations: what the user's batches have caused in the last 24 hours, whatever became of them, and
    what the open ones are still expected to cause.
    """
    batches = Batch.objects.filter(user=user_id, destination_chain_id__in=destinations)
    recent = Share.objects.filter(_recent("transaction__"), batch__in=batches)
    gas, wei = recent.aggregate(total=Sum("gas"))["total"] or 0, _sum_wei(recent)
    for batch in (
        batches.filter(status__in=OPEN_STATUSES).exclude(estimated_gas=None).only("estimated_gas", "estimated_wei")
    ):
        caused = Share.objects.filter(batch=batch)
        gas += max(0, (batch.estimated_gas or 0) - (caused.aggregate(total=Sum("gas"))["total"] or 0))
        wei += max(0, (batch.estimated_wei or 0) - _sum_wei(caused))
    return Promise(gas, wei)


def promised_on(chain_id: int) -> int:
    """In wei: what the chain's signers have spent in the last 24 hours, and may still spend by what is pending."""
    sent = Transaction.objects.filter(_recent(), signer__chain_id=chain_id)
    return sum(tx.cost for tx in sent.defer("data").prefetch_related("versions"))


def _recent(prefix: str = "") -> Q:
    since = timezone.now() - _DAY
    return Q(**{f"{prefix}created_at__gt": since}) | Q(**{f"{prefix}state": TransactionState.PENDING})


def _sum_wei(shares: QuerySet[Share]) -> int:
    # Databases don't add up 256 bits.
    return sum(shares.values_list("wei", flat=True))


# --- What a transaction may cost --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """What a transaction's gas may cost, so that the batch's fee or the user's limit suffices to the end."""

    what: str  # of whose money
    gas: int  # that must be paid at about one price: this transaction's part, and what is reserved for the rest
    left: int  # wei for it
    queries: int  # that are unfinished

    @property
    def price(self) -> int:
        """Wei for a unit of gas. What is divided among batches is rounded, by less than a unit for each."""
        return max(0, self.left) // (self.gas + 1)

    def sentence(self, chain: Chain, price: int) -> str:
        """What is left undone at this price, and what it would take."""
        undone = "1 query is" if self.queries == 1 else f"{self.queries} queries are"
        return (
            f"{undone} left undone: at the present gas price of chain {chain.id}, {_gwei(price)}, they take about "
            f"{self.gas} gas, {chain.amount(self.gas * price)}, and {self.what} leaves "
            f"{chain.amount(max(0, self.left))}. Waiting for gas at {_gwei(self.price)} or less."
        )


Rest = Mapping[str, Work]
"""By batch: what is still to do beside certain transactions."""


def rest_of(chain: Chain, queries: Collection[int], *, proven: Collection[int] = (), with_ways: bool) -> Rest:
    """Of the batches of these queries, when those of the ids `proven` are. Counting takes long for large batches.

    What completes queries comes first: only what leads to old blocks must leave enough `with_ways`.
    """
    if chain.test_network:
        return {}
    batches = Batch.objects.filter(Exists(Query.objects.filter(batch=OuterRef("pk"), pk__in=queries))).defer("request")
    known = frozenset(proven)
    return {batch.pk: estimates.unproven(batch, beside=known, with_ways=with_ways) for batch in batches}


def limits(chain: Chain, tx: Transaction, rest: Rest, later: Sequence[Transaction] = ()) -> Iterator[Limit]:
    """Those that hold for a stored transaction, whose own share doesn't count. `later` are not signed yet."""
    portions = portions_of(tx, tx.gas_limit)
    batches = list(Batch.objects.filter(pk__in=portions).defer("request"))
    if not chain.test_network:
        following: Counter[str] = sum((portions_of(other, other.gas_limit) for other in later), Counter())
        for batch in batches:
            work = rest.get(batch.pk, Work())
            # Of a way, the transaction is a part.
            left = replace(work, way_gas=max(0, work.way_gas - portions[batch.pk])).gas + following[batch.pk]
            yield _limit_by_fee(tx, batch, portions[batch.pk] + left)
    if (most := chain.daily_limit_per_user_wei) is not None:
        for user in {batch.user_id for batch in batches}:
            own = [batch for batch in batches if batch.user_id == user]
            yield _limit_by_user(tx, own, sum(portions[batch.pk] for batch in own), most)


def _limit_by_fee(tx: Transaction, batch: Batch, gas: int) -> Limit:
    paid = _sum_wei(Share.objects.filter(batch=batch).exclude(transaction=tx))
    return Limit("the batch's fee", gas, batch.fee - paid - _data_fee(tx, gas), _unfinished([batch]))


def _limit_by_user(tx: Transaction, batches: list[Batch], gas: int, most: int) -> Limit:
    user, destination = batches[0].user_id, batches[0].destination_chain_id
    others = Share.objects.filter(
        _recent("transaction__"), batch__user=user, batch__destination_chain_id=destination
    ).exclude(transaction=tx)
    left = most - _sum_wei(others) - _data_fee(tx, gas)
    return Limit("the daily limit of its user", gas, left, _unfinished(batches))


def _data_fee(tx: Transaction, gas: int) -> int:
    """In wei: that of so much gas, if it carries as much data as the transaction's."""
    return tx.data_fee * gas // tx.gas_limit


def _unfinished(batches: list[Batch]) -> int:
    return Query.objects.filter(batch__in=batches, step__isnull=False).count()


def _gwei(wei: int) -> str:
    return f"{wei / 10**9:.3f} gwei"
