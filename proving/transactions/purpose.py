"""What a transaction was sent for: whether anybody still needs it, and which steps show it."""

from django.db.models import Q

from proving.models import FactsRegistry, Transaction
from queries import progress
from queries.models import BatchStatus


def is_wanted(tx: Transaction) -> bool:
    """Return whether anybody still needs what it proves. A DONE batch does: the transaction may have left the chain."""
    if is_to_unused_registry(tx):
        return False
    is_proof = tx.queries.exists()
    return not is_proof or tx.queries.exclude(batch__status=BatchStatus.REJECTED).exists()


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
