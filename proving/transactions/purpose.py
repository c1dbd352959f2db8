"""What a transaction was sent for: whether anybody still needs it, and which steps show it."""

from django.db.models import Exists, OuterRef, Q

from proving.models import FactsRegistry, Transaction, TransactionState, proves_facts
from queries import progress
from queries.models import BatchStatus


def is_wanted(tx: Transaction) -> bool:
    """Return whether anybody still needs what it proves. A DONE batch does: the transaction may have left the chain."""
    if is_to_unused_registry(tx):
        return False
    is_proof = tx.queries.exists()
    left = tx.queries.exclude(batch__status=BatchStatus.REJECTED)
    if is_proof and tx.extends_id is None:
        # What a node said to be displaced was sent anew: with both mined, the same would be paid for twice.
        anew = Transaction.objects.filter(proves_facts("queries__block"), queries=OuterRef("pk"), pk__gt=tx.pk)
        is_sent_anew = Exists(anew.exclude(state=TransactionState.DISPLACED).exclude(succeeded=False))
        left = left.filter(Q(pk__in=tx.continued.values("pk")) | ~is_sent_anew)
    return not is_proof or left.exists()


def is_to_unused_registry(tx: Transaction) -> bool:
    """Return whether it proves something to a registry that was refused or replaced meanwhile."""
    if not tx.to:
        return False
    rows = FactsRegistry.objects.filter(Q(address=tx.to) | Q(multicall=tx.to), destination_chain_id=tx.signer.chain_id)
    unused = [bool(row.refused or row.replaced_at) for row in rows]
    # A chain that was started anew may have another one at the same address.
    return bool(unused) and all(unused)


def show(tx: Transaction, version: str) -> None:
    """Show this version on the steps that wait for the transaction, and not on those that wait for a later one.

    The batches are locked.
    """
    if is_to_unused_registry(tx):
        return  # Its queries are proven anew, by others.
    shown = [other.hash for other in tx.versions.all()]
    if tx.extends_id is None or tx.accumulates.exists():
        # A step that has just begun shows none yet; a path that only led up to it has done its part.
        shown.append("")
    progress.note_version(tx.queries.all(), version, instead_of=shown)
