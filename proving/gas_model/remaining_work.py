"""What is still to do for a batch, in gas, as its rows tell: always on the high side.

Admission has asked the chains (`proving.admission`), and left with each query its part of the batch's estimate.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from django.db.models import Exists, Max, OuterRef, QuerySet

from proving import facts
from proving.facts import Fact
from proving.gas_model import proof_gas
from proving.gas_model.proof_gas import Estimate, Missing, Route
from proving.gas_model.trie_shapes import Tries
from proving.models import LIVE_STATES, Transaction, proves_facts
from queries.models import Batch, Block, PathUnit, Query, StepKind

# Of a hop, on mainnet.
HOP_GAS = 250_000
# Of a jump, beside the header of the block that it leads to. It is a part of what its queries were estimated to take.
JUMP_GAS = 75_000


@dataclass(frozen=True)
class RemainingWork:
    """The facts that are neither proven nor under way."""

    proof_gas: int = 0
    path_gas: int = 0  # by which the registry comes to trust the blocks
    unadmitted_gas: int = 0  # for what is not checked against its source chain yet; no part of `gas`

    @property
    def gas(self) -> int:
        return self.proof_gas + self.path_gas


def gas_of(query: Query) -> int:
    """Return the most gas that a query takes: its part of the batch's estimate, or what it could take by itself."""
    return of_unknown([query]).gas.bound if query.estimated_gas is None else query.estimated_gas


def of_unknown(queries: Iterable[Query]) -> Estimate:
    """Estimate queries about which no node was asked: all their facts, on the largest of chains, without paths."""
    wanted: dict[Hashable, dict[Fact, None]] = defaultdict(dict)
    for query in queries:
        where = (query.source_chain_id, query.block_id, query.timestamp, query.block_tag)
        wanted[where].update(dict.fromkeys(facts.of(query)))
    missing = [Missing(0, list(there), is_known=False) for there in wanted.values()]
    return proof_gas.estimate(missing, Tries(), Route())


def unproven(batch: Batch, *, beside: Collection[int] = (), with_paths: bool) -> RemainingWork:
    """Count what of a batch's queries is neither proven nor under way, as the rows know it, without the ids `beside`.

    What is not admitted is counted by itself. `with_paths` counts also how the registry comes to trust old blocks, as
    far as that is planned; paths that lead over the same blocks count once.
    """
    under_way = Transaction.objects.filter(
        proves_facts("queries__block"), queries=OuterRef("pk"), state__in=LIVE_STATES
    ).exclude(continued=OuterRef("pk"))
    left = batch.queries.filter(~Exists(under_way), is_admitted=True, step__isnull=False)
    proof_gas = sum(gas_of(query) for query in left.iterator(chunk_size=1000) if query.pk not in beside)
    unadmitted = list(batch.queries.filter(is_admitted=False))
    unadmitted_gas = sum(query.estimated_gas or 0 for query in unadmitted)
    unadmitted_gas += of_unknown(query for query in unadmitted if query.estimated_gas is None).gas.bound
    return RemainingWork(proof_gas, _path_gas(left) if with_paths else 0, unadmitted_gas)


def _path_gas(left: QuerySet[Query]) -> int:
    accumulating = Transaction.objects.filter(accumulates=OuterRef("pk"), state__in=LIVE_STATES)
    needing_header = Block.objects.filter(~Exists(accumulating), pk__in=left.values("block")).filter(
        queries__in=left.exclude(step=StepKind.ACCOUNT_ACCUMULATED)
    )
    # A jump goes with the block's own proofs.
    longest = needing_header.filter(path_unit=PathUnit.HOPS).aggregate(hops=Max("path_left"))["hops"]
    return HOP_GAS * (longest or 0)
