"""Who pays which part: each batch's share of what the transactions cost that are for it."""

from collections import Counter
from collections.abc import Collection

from django.db.models import Exists, OuterRef

from proving.models import Share, SignedTransaction, Transaction, TransactionState
from proving.spending import estimates
from proving.spending.estimates import RIDER_GAS
from queries.models import Batch, Query

# Of a transaction whose cost its batches show as spent.
_SPENT_STATES = (TransactionState.CONFIRMED, TransactionState.FINAL)


def divide(tx: Transaction, weights: Counter[str] | None = None) -> None:
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
