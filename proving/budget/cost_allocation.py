"""Who pays which part: each batch's share of what the transactions cost that are for it."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from django.db.models import Exists, F, OuterRef, prefetch_related_objects

from database.statements import chunks
from proving.gas_model import proof_gas
from proving.models import Share, SignedTransaction, Transaction, TransactionState, goes_to_replaced_registry, in_gwei
from queries.models import Batch, Sender

# Of a transaction whose cost its batches show as spent.
_SPENT_STATES = (TransactionState.CONFIRMED, TransactionState.FINAL)
_PER_STATEMENT = 500


class NotOurs(Exception):
    """A batch is self-funded, so nothing may be sent for it here. Asking for it is a defect."""


class Costs(NamedTuple):
    """A transaction's cost to its batches, so far and at most, in gas and wei, and what counts against limits."""

    gas: int
    wei: int
    reserved: int  # wei

    @property
    def shown(self) -> tuple[int, int]:
        """Return what batches show once it is confirmed: gas and wei."""
        return self.gas, self.wei


def costs(tx: Transaction) -> Costs:
    """Return what `divide` divides. Its versions must be stored, or prefetched as they are."""
    return Costs(tx.gas, tx.cost, tx.reserved)


def is_spent(tx: Transaction) -> bool:
    """Return whether its batches show what it costs as spent."""
    return tx.state in _SPENT_STATES


Weights = Mapping[Transaction, Counter[str]]
"""The part of each transaction's gas limit that a batch causes."""


def divide(weights: Weights) -> None:
    """Divide what transactions cost, or can still cost, among their batches.

    Derived anew each time, never added up: doing it twice changes nothing. Inside the caller's database transaction,
    whenever the transactions' versions or states have changed; after another state, `show_spent` too.
    """
    prefetch_related_objects(list(weights), "versions")
    # Weights stay as they were first.
    Share.objects.bulk_create(
        [share for tx, of_tx in weights.items() for share in _shares(tx, of_tx)],
        update_conflicts=True,
        unique_fields=["transaction", "batch"],
        update_fields=["gas", "wei", "reserved_gwei"],
    )


def _shares(tx: Transaction, weights: Counter[str]) -> Iterator[Share]:
    cost = costs(tx)
    for batch, weight in weights.items():
        portion = cost.gas * weight // weights.total()
        yield Share(
            transaction=tx,
            batch_id=batch,
            gas=portion,
            wei=cost.wei * portion // cost.gas if cost.gas else 0,
            reserved_gwei=in_gwei(cost.reserved * weight // weights.total()),
            weight=weight,
        )


def show_spent(batches: Collection[str]) -> None:
    """Show on batches, which the caller has locked, what they have spent.

    The lock matters: several signers may send for one batch, and what each adds up must hold what the others have.
    """
    for chunk in chunks(sorted(batches), _PER_STATEMENT):
        _show_spent(chunk)


def _show_spent(batches: Sequence[str]) -> None:
    """Write what these batches have spent.

    Above a batch's fee the operator pays for cancellations, which free the nonce for all that wait, and for what was
    sent to a registry that was replaced.
    """
    version = SignedTransaction.objects.filter(
        transaction=OuterRef("transaction"), hash=OuterRef("transaction__hash"), is_cancellation=True
    )
    shares = Share.objects.filter(batch__in=batches, transaction__state__in=_SPENT_STATES)
    gas: Counter[str] = Counter()
    wei: Counter[str] = Counter()
    of_operator: Counter[str] = Counter()
    for share in shares.annotate(is_of_operator=Exists(version) | goes_to_replaced_registry()):
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
    if changed:
        Batch.objects.bulk_update(changed, ["gas_used", "spent"])


def weights_of(*transactions: Transaction) -> Weights:
    """Return which parts of the gas limits batches cause, as decided when the transactions were stored."""
    stored = {tx.pk: Counter[str]() for tx in transactions}
    rows = Share.objects.filter(transaction__in=stored).values_list("transaction", "batch", "weight")
    for transaction, batch, weight in rows:
        stored[transaction][batch] = weight
    return {tx: stored[tx.pk] for tx in transactions}


def portions_of(tx: Transaction) -> Counter[str]:
    """Return how much of a transaction's gas limit each of its batches causes.

    By what its queries would take alone, and at most by what it was estimated to take, which leaves out what was proven
    before: so a user who asks for little pays little, even if another asks for much. Raises `NotOurs`.
    """
    asking = list(tx.queries.annotate(estimate=F("batch__estimated_gas"), sender=F("batch__sender")))
    weights: Counter[str] = Counter()
    for query in asking:
        weights[query.batch_id] += proof_gas.gas_of(query)
    paying = {query.batch_id: (query.estimate, query.sender) for query in asking}
    for batch, (estimate, sender) in paying.items():
        if sender == Sender.SELF:
            raise NotOurs(f"A transaction of the operator was to be for batch {batch}, which is self-funded.")
        weights[batch] = max(1, min(weights[batch], estimate or 0))
    portions = Counter({batch: tx.gas_limit * weight // weights.total() for batch, weight in weights.items()})
    for batch, _ in portions.most_common(1):
        # What is left by rounding.
        portions[batch] += tx.gas_limit - portions.total()
    return portions
