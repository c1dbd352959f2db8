"""The paths by which a registry comes to trust blocks: how far they are, what they cost, and how long they still take.

The number of statements does not grow with the number of blocks.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db.models import Prefetch

from config.chain_names import ChainName
from config.configured_chains import get_chains
from config.json_objects import JsonObject
from explorer.batch import transaction_display
from explorer.batch.transaction_display import ShownTransaction
from proving.models import ChainHead, SignedTransaction, Transaction
from queries.models import Block, PathUnit

# About how much one transaction can hold, and how many blocks pass until the next one can build on it.
_PER_TRANSACTION: Mapping[str, int] = {PathUnit.HOPS: 20, PathUnit.HEADERS: 170, PathUnit.JUMPS: 1}
_BLOCKS_PER_TRANSACTION = 3


@dataclass(frozen=True)
class ShownPath(JsonObject):
    unit: str  # of `PathUnit`
    length: int  # in units; 0: the block hash source vouches for the block itself when it is asked
    left: int
    gas: int  # so far, of whole transactions, which may serve other blocks and batches too
    seconds_left: int | None  # an estimate; None: nothing is left, or the work has stopped
    transactions: tuple[ShownTransaction, ...]
    origin: int | None = None  # the block where a jump begins, if it needs one

    @property
    def is_jump(self) -> bool:
        return self.unit == PathUnit.JUMPS

    @property
    def jump(self) -> str:
        """Return how a jump leads there, a phrase; empty if it is none."""
        return _jump(self.unit, self.origin)

    @property
    def done(self) -> int:
        return self.length - self.left

    @property
    def how_far(self) -> str:
        return self.jump or _how_far(self.unit, self.done, self.length)

    @property
    def unit_of_length(self) -> str:
        return self.unit.removesuffix("s") if self.length == 1 else self.unit


def how_far(block: Block) -> str:
    """Return how far the path is, a phrase; empty if nothing of it is left."""
    if not block.path_left:
        return ""
    return _jump(block.path_unit, block.path_origin) or _how_far(
        block.path_unit, block.path_length - block.path_left, block.path_length
    )


def _jump(unit: str, origin: int | None) -> str:
    if unit != PathUnit.JUMPS:
        return ""
    return "by the beacon chain" + ("" if origin is None else f", from block {origin}")


def _how_far(unit: str, done: int, length: int) -> str:
    return f"{unit} {done:,} of {length:,} done"


def to_blocks(
    blocks: Collection[Block], destination: ChainName, head: ChainHead | None, *, goes_on: bool
) -> Mapping[int, ShownPath]:
    """Return the paths of those blocks that need one, by their primary keys."""
    needing = {block.pk: block for block in blocks if block.path_unit}
    sent = _sent_for(needing)
    return {
        pk: ShownPath(
            unit=block.path_unit,
            length=block.path_length,
            left=block.path_left,
            gas=sum(tx.gas_used for tx in sent[pk]),
            seconds_left=_seconds(block, destination) if goes_on else None,
            transactions=tuple(transaction_display.shown(tx.latest_hash, tx, destination, head) for tx in sent[pk]),
            origin=block.path_origin,
        )
        for pk, block in needing.items()
    }


def _sent_for(blocks: Collection[int]) -> Mapping[int, list[Transaction]]:
    """Return, by the block's primary key, the transactions on the path to it, in their order."""
    sent: dict[int, list[Transaction]] = defaultdict(list)
    if not blocks:
        return sent
    links = Transaction.queries.through.objects.filter(query__block__in=blocks, transaction__extends__isnull=False)
    pairs = list(links.order_by("transaction").values_list("query__block", "transaction").distinct())
    versions = Prefetch("versions", SignedTransaction.objects.defer("raw"))
    facts = Transaction.objects.select_related("parent_fact__registry")
    rows = facts.defer("data").prefetch_related(versions).in_bulk({tx for _, tx in pairs})
    for block, tx in pairs:
        sent[block].append(rows[tx])
    return sent


def _seconds(block: Block, destination: ChainName) -> int | None:
    if not block.path_left or not destination.is_configured:
        return None
    to_go = -(-block.path_left // _PER_TRANSACTION[block.path_unit])
    return round(to_go * _BLOCKS_PER_TRANSACTION * get_chains().chain(destination.id).block_seconds)
