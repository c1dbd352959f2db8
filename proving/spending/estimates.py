"""What is still to do for a batch, in gas, as its rows tell: always on the high side.

Acceptance has asked the chains (`proving.assessment`), and left with each query its part of the batch's estimate.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from django.db.models import Exists, OuterRef, QuerySet

from proving import facts
from proving.models import LIVE_STATES, Transaction, proves_facts
from proving.spending import workload
from proving.spending.workload import Missing, Route, Tries
from queries.models import Batch, Block, PathUnit, Query, StepKind

# Of paths, on mainnet. Of a block that rides along with the path to another one: one slot more in a proof.
HOP_GAS, RIDER_GAS, WALKED_HEADER_GAS = 250_000, 55_000, 30_000


@dataclass(frozen=True)
class Undone:
    """What is neither proven nor under way."""

    proof_gas: int = 0
    path_gas: int = 0  # by which the registry comes to trust the blocks
    unadmitted_gas: int = 0  # for what is not checked against its source chain yet; no part of `gas`

    @property
    def gas(self) -> int:
        return self.proof_gas + self.path_gas


def gas_of(query: Query) -> int:
    """What a query takes at the most: by itself, as long as nobody knows better."""
    if query.estimated_gas is not None:
        return query.estimated_gas
    return _unknown_gas(
        query.fields, len(query.slots), is_account=bool(query.address), is_timed=query.timestamp is not None
    )


@lru_cache(maxsize=1000)
def _unknown_gas(fields: int, slots: int, *, is_account: bool, is_timed: bool) -> int:
    """On the largest chains, at a block that the registry doesn't know, with slots that have no neighbours."""
    alike = Query(
        address=f"0x{1:040x}" if is_account else "",
        fields=fields,
        slots=[f"0x{place << 8:064x}" for place in range(slots)],
        timestamp=0 if is_timed else None,
    )
    return workload.estimate([Missing(0, facts.of(alike), is_known=False)], Tries(), Route()).gas.bound


def unproven(batch: Batch, *, beside: Collection[int] = (), with_paths: bool) -> Undone:
    """What of a batch's queries is neither proven nor under way, as the rows know it, `beside` those of these ids.

    What is not admitted is counted by itself. `with_paths` counts also how the registry comes to trust old blocks, as
    far as that is planned; paths that lead over the same blocks count once.
    """
    under_way = Transaction.objects.filter(
        proves_facts("queries__block"), queries=OuterRef("pk"), state__in=LIVE_STATES
    ).exclude(continued=OuterRef("pk"))
    left = batch.queries.filter(~Exists(under_way), is_admitted=True, step__isnull=False)
    proof_gas = sum(gas_of(query) for query in left.iterator(chunk_size=1000) if query.pk not in beside)
    unadmitted = batch.queries.filter(is_admitted=False)
    return Undone(
        proof_gas,
        _path_gas(left) if with_paths else 0,
        sum(gas_of(query) for query in unadmitted.iterator(chunk_size=1000)),
    )


def _path_gas(left: QuerySet[Query]) -> int:
    accumulating = Transaction.objects.filter(accumulates=OuterRef("pk"), state__in=LIVE_STATES)
    needing_header = Block.objects.filter(~Exists(accumulating), pk__in=left.values("block")).filter(
        queries__in=left.exclude(step=StepKind.ACCOUNT_ACCUMULATED)
    )
    paths = needing_header.values_list("path_unit", "path_left").distinct()
    each = (length * (HOP_GAS if unit == PathUnit.HOPS else WALKED_HEADER_GAS) for unit, length in paths)
    return max(each, default=0)
