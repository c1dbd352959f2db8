"""Orders of transactions to send, and their results."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, Q

from chains.questions import TRANSACTION_GAS
from proving.models import FactsRegistry, Transaction, TransactionState, proves_facts
from queries import progress
from queries.models import BatchStatus, Block, Query


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


# EIP-7825: no transaction may have more.
MAX_GAS = 16_777_216
# Of an estimate, for what changes between estimating and mining (another's transaction that goes first).
GAS_MARGIN = 1.15
# Of a byte of calldata, and the least of one (EIP-7623).
_BYTE_GAS, _LEAST_BYTE_GAS = 16, 40


@dataclass(frozen=True)
class Intent:
    """A transaction to send. An empty `to` creates a contract.

    `queries` are the ids that it is for, `accumulates` are the blocks whose headers it carries. With `extends`, the id
    of a registry, it extends that registry's trust to blocks that the queries need; it then proves facts only of the
    block that it accumulates, if it does.
    """

    to: str
    data: bytes
    queries: Collection[int] = ()
    accumulates: Sequence[Block] = ()
    extends: int | None = None
    continued: Collection[int] = ()
    """Ids of the queries of which the next intent proves more."""
    most_gas: int | None = None
    """The maximum gas of executing it, without its calldata; None where only a simulation tells."""

    def gas_bound(self) -> int | None:
        """Return the most gas that it takes as a transaction; None if only a simulation tells."""
        if self.most_gas is None:
            return None
        size = len(self.data)
        return TRANSACTION_GAS + max(self.most_gas + _BYTE_GAS * size, _LEAST_BYTE_GAS * size)

    def proves(self) -> Collection[int]:
        """Return ids of the queries whose facts it proves. For others it only makes their blocks known."""
        if self.extends is None:
            return self.queries
        here = Query.objects.filter(pk__in=self.queries, block__in=self.accumulates)
        return list(here.values_list("pk", flat=True))


@dataclass(frozen=True)
class Order:
    """Intents that are sent together: all or none, or only the first ones that money and room suffice for.

    `and_store(sender, first_nonce)` runs in the database transaction that stores them. By a `multicall`, the address of
    that contract, it may share a transaction with others of the same.
    """

    intents: Sequence[Intent]
    and_store: Callable[[str, int], None] | None = None
    multicall: str = ""


@dataclass(frozen=True)
class Sent:
    """All of the intents, or the first ones where money or room doesn't suffice for the rest, in their order."""

    transactions: Sequence[Transaction]


@dataclass(frozen=True)
class Unsent:
    """Nothing is stored of it: why not, a sentence."""

    sentence: str
    batches: frozenset[str] = frozenset()
    """The batches whose fees, or whose users' limits, don't suffice at the present gas price."""
    is_brief: bool = False
    """True if it waits for what is under way."""
