"""What batches cost: each one's share of the transactions, and the limits that hold for it.

Three limits bound what is signed on a chain that is no test network: a batch never pays more than its fee, a user's
batches no more than the limit per user, and all of them no more than the chain's daily limit. What is pending counts as
the most that it can cost.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet, Sum
from django.utils import timezone

from chains.chains_file import Chain
from config.configured_chains import get_chains
from proving.models import Share, SignedTransaction, Transaction, TransactionState
from proving.spending import estimates
from proving.spending.estimates import RIDER_GAS, Workload
from queries import clock
from queries.models import OPEN_STATUSES, Batch, Query

_DAY = timedelta(days=1)
# Of a transaction whose cost its batches show as spent.
_SPENT_STATES = (TransactionState.CONFIRMED, TransactionState.FINAL)


# --- Shares -----------------------------------------------------------------------------------------------------------


def share(tx: Transaction, weights: Counter[str] | None = None) -> None:
    """Divide what a transaction costs, or can still cost, among its batches, by `weights_of` it.

    Derived anew each time, never added up: doing it twice changes nothing. Inside the caller's database transaction,
    whenever the transaction's versions or state have changed.
    """
    weights, gas, wei = weights_of(tx) if weights is None else weights, tx.gas, tx.cost
    for batch, weight in weights.items():
        portion = gas * weight // weights.total()
        part = {"gas": portion, "wei": wei * portion // gas if gas else 0}
        Share.objects.update_or_create(
            transaction=tx, batch_id=batch, defaults=part, create_defaults=part | {"weight": weight}
        )
    for pk in sorted(weights):
        _show_spent(Batch.objects.only("fee").get(pk=pk))


def _show_spent(batch: Batch) -> None:
    """What a cancellation takes above a batch's fee is the operator's: it frees the nonce for all that wait."""
    version = SignedTransaction.objects.filter(
        transaction=OuterRef("transaction"), hash=OuterRef("transaction__hash"), is_cancellation=True
    )
    shares = Share.objects.filter(batch=batch, transaction__state__in=_SPENT_STATES)
    rows = list(shares.annotate(is_cancelled=Exists(version)).values_list("gas", "wei", "is_cancelled"))
    wei = sum(wei for _, wei, _ in rows)
    cancelled = sum(wei for _, wei, is_cancelled in rows if is_cancelled)
    above = max(0, min(cancelled, wei - batch.fee))
    Batch.objects.filter(pk=batch.pk).update(gas_used=sum(gas for gas, _, _ in rows), spent=wei - above)


def weights_of(tx: Transaction) -> Counter[str]:
    """By batch: which part of the transaction's gas limit it causes, as was decided when it was first shared."""
    stored = Counter(dict(tx.shares.values_list("batch", "weight")))
    return stored or _portions_of(tx)


def _portions_of(tx: Transaction) -> Counter[str]:
    """How much of a transaction's gas limit each of its batches causes.

    By what its queries would take alone, and at most by what it was estimated to take, which leaves out what was proven
    before: so who asks for little pays little, whoever else asks for much. But who rides along with a path to another
    block pays for what that adds, and not for the path.
    """
    portions: Counter[str] = Counter()
    asking = list(tx.queries.all())
    main = [query for query in asking if tx.leads_to_id in {None, query.block_id}]
    riders = [query for query in asking if tx.leads_to_id not in {None, query.block_id}] if main else []
    at_block = Counter(query.block_id for query in riders)
    each = min(RIDER_GAS, tx.gas_limit // (1 + len(at_block)))
    for query in riders:
        portions[query.batch_id] += each // at_block[query.block_id]
    rest = tx.gas_limit - portions.total()
    weights: Counter[str] = Counter()
    for query in main or asking:
        weights[query.batch_id] += estimates.gas_of(query)
    estimated = Batch.objects.filter(pk__in=weights).values_list("pk", "estimated_gas")
    for batch, estimate in estimated:
        weights[batch] = max(1, min(weights[batch], estimate or 0))
    for batch, weight in weights.items():
        portions[batch] += rest * weight // weights.total()
    return portions


def largest(queries: Collection[int]) -> frozenset[str]:
    """Of the batches of these queries the one that would take most by itself; none where there is none."""
    weights: Counter[str] = Counter()
    for query in Query.objects.filter(pk__in=queries):
        weights[query.batch_id] += estimates.gas_of(query)
    return frozenset(batch for batch, _ in weights.most_common(1))


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
    since = (clock.last_read() or timezone.now()) - _DAY
    return Q(**{f"{prefix}spent_at__gt": since}) | Q(**{f"{prefix}state": TransactionState.PENDING})


def _sum_wei(shares: QuerySet[Share]) -> int:
    # Databases don't add up 256 bits.
    return sum(shares.values_list("wei", flat=True))


def caused_by(batch: Batch) -> int:
    """In wei: what a batch has spent, and what its pending transactions can cost."""
    return _sum_wei(Share.objects.filter(batch=batch))


# --- What a transaction may cost --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """What a transaction's gas may cost, so that the batch's fee or the user's limit suffices to the end."""

    batches: frozenset[str]  # that it holds for
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


Rest = Mapping[str, Workload]
"""By batch: what is still to do beside certain transactions."""


def rest_of(chain: Chain, queries: Collection[int], *, proven: Collection[int] = (), with_paths: bool) -> Rest:
    """Of the batches of these queries, when those of the ids `proven` are. Counting takes long for large batches.

    What completes queries comes first: only what leads to old blocks must leave enough `with_paths`.
    """
    if chain.test_network:
        return {}
    batches = Batch.objects.filter(Exists(Query.objects.filter(batch=OuterRef("pk"), pk__in=queries))).defer("request")
    known = frozenset(proven)
    return {batch.pk: estimates.unproven(batch, beside=known, with_paths=with_paths) for batch in batches}


def for_each(chain: Chain, stored: Mapping[Transaction, Counter[str]], rest: Rest) -> Iterator[list[Limit]]:
    """Those that hold for each of these stored transactions, whose own share doesn't count. `rest` is that beside all.

    `stored` has them in their order, with `weights_of` each. Each is worked out when it is asked for: the shares of
    those before count, and those behind are reserved.
    """
    following: Counter[str] = sum(stored.values(), Counter())
    for tx, own in stored.items():
        following -= own
        yield [*_limits_by_fee(chain, tx, own, rest, following), *_limits_by_user(chain, tx, own)]


def _limits_by_fee(
    chain: Chain, tx: Transaction, portions: Counter[str], rest: Rest, following: Counter[str]
) -> Iterator[Limit]:
    if chain.test_network:
        return
    for batch in Batch.objects.filter(pk__in=portions).defer("request"):
        work = rest.get(batch.pk, Workload())
        others = Share.objects.filter(batch=batch).exclude(transaction=tx)
        # Of a path, the transaction is a part.
        behind = replace(work, path_gas=max(0, work.path_gas - portions[batch.pk])).gas
        signed = portions[batch.pk] + following[batch.pk]
        # What is partly proven counts whole: but all of it takes no more than was estimated.
        most = (batch.estimated_gas or 0) - (others.aggregate(total=Sum("gas"))["total"] or 0)
        gas = max(signed, min(signed + behind, most)) + work.unadmitted_gas
        left = batch.fee - _sum_wei(others) - _data_fee(tx, gas)
        yield Limit(frozenset({batch.pk}), "the batch's fee", gas, left, _unfinished([batch.pk]))


def _limits_by_user(chain: Chain, tx: Transaction, portions: Counter[str]) -> Iterator[Limit]:
    if (most := chain.daily_limit_per_user_wei) is None:
        return
    batches_of: dict[int, set[str]] = defaultdict(set)
    for pk, user in Batch.objects.filter(pk__in=portions).values_list("pk", "user"):
        batches_of[user].add(pk)
    for user, batches in batches_of.items():
        gas = sum(portions[pk] for pk in batches)
        others = Share.objects.filter(
            _recent("transaction__"), batch__user=user, batch__destination_chain_id=chain.id
        ).exclude(transaction=tx)
        left = most - _sum_wei(others) - _data_fee(tx, gas)
        yield Limit(frozenset(batches), "the daily limit of its user", gas, left, _unfinished(batches))


def why_over_budget(chain: Chain, tx: Transaction, portions: Counter[str]) -> tuple[str, frozenset[str]] | None:
    """Why a stored transaction, whose own share doesn't count, exceeds a user's gas budget: a sentence, and for whom.

    Acceptance counts what is expected; this holds also for what reverts and is sent again.
    """
    if chain.test_network:
        return None
    costly = [one.id for one in get_chains().destinations() if not one.test_network]
    by_user: Counter[int] = Counter()
    users = dict(Batch.objects.filter(pk__in=portions).values_list("pk", "user"))
    for batch, user in users.items():
        by_user[user] += portions[batch]
    for user, gas in by_user.items():
        others = Share.objects.filter(
            _recent("transaction__"), batch__user=user, batch__destination_chain_id__in=costly
        ).exclude(transaction=tx)
        left = settings.DAILY_GAS_BUDGET - (others.aggregate(total=Sum("gas"))["total"] or 0)
        if gas > left:
            sentence = (
                f"The transaction may take {gas} gas, and of the {settings.DAILY_GAS_BUDGET} gas that a user's batches "
                f"may use in 24 hours {max(0, left)} are left. Waiting until there is room."
            )
            return sentence, frozenset(batch for batch, owner in users.items() if owner == user)
    return None


def _data_fee(tx: Transaction, gas: int) -> int:
    """In wei: that of so much gas, if it carries as much data as the transaction's."""
    return tx.data_fee * gas // tx.gas_limit


def _unfinished(batches: Collection[str]) -> int:
    return Query.objects.filter(batch__in=batches, step__isnull=False).count()


def _gwei(wei: int) -> str:
    return f"{wei / 10**9:.3f} gwei"
