"""What proving will take: gas of what is not proven yet, always on the high side."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, QuerySet

from proving import facts
from proving.facts import AccountFact, Fact, HeaderFact, SlotFact, TimeFact
from proving.models import LIVE_STATES, Transaction, proves_facts
from queries.models import Batch, Block, PathUnit, Query, StepKind

_TRANSACTION_GAS = 21_000
# EIP-7623: no byte of calldata that isn't zero costs less, and proofs have few zeros.
_GAS_OF_A_BYTE = 40

# Bounds of what the transactions of this service use for proofs from mainnet (make bench-gas), and of what they are
# signed for, which is 15 % more. A branch node of a trie takes about 21,000. Accounts: 9 nodes. The slots of the
# largest contracts: 8, of which all slots share the first. A header comes with a transaction of its own.
_HEADER_GAS = 60_000 + _TRANSACTION_GAS
_HEADER_FIELD_GAS = 25_000
_ACCOUNT_GAS = 200_000
_FIRST_SLOT_GAS = 170_000  # of an account; the others share its upper nodes
_SLOT_GAS = 140_000
_TIME_GAS = 120_000 + _TRANSACTION_GAS
# Of a block that rides along with the path to another one: one slot more in a proof.
RIDER_GAS = 55_000
HOP_GAS = 250_000
WALKED_HEADER_GAS = 30_000


@dataclass
class Workload:
    """What is not proven yet, by kind."""

    headers: int = 0
    header_fields: int = 0
    accounts: int = 0
    first_slots: int = 0
    slots: int = 0  # beside the first of each account
    times: int = 0
    path_gas: int = 0  # by which the registry comes to trust the blocks
    unadmitted_gas: int = 0  # for what is not checked against its source chain yet; no part of `gas`

    def add(self, facts: Iterable[Fact], *, header: bool) -> None:
        """Facts of one block, each once; and its header, if it is to be accumulated."""
        wanted = list(facts)
        self.headers += header
        self.header_fields += sum(isinstance(fact, HeaderFact) for fact in wanted)
        self.times += sum(isinstance(fact, TimeFact) for fact in wanted)
        with_slots = {fact.address for fact in wanted if isinstance(fact, SlotFact)}
        self.first_slots += len(with_slots)
        self.slots += sum(isinstance(fact, SlotFact) for fact in wanted) - len(with_slots)
        self.accounts += len({fact.address for fact in wanted if isinstance(fact, AccountFact | SlotFact)})

    @property
    def gas(self) -> int:
        gas = (
            self.headers * _HEADER_GAS
            + self.header_fields * _HEADER_FIELD_GAS
            + self.accounts * _ACCOUNT_GAS
            + self.first_slots * _FIRST_SLOT_GAS
            + self.slots * _SLOT_GAS
            + self.times * _TIME_GAS
            + self.path_gas
        )
        return gas + _TRANSACTION_GAS if gas else 0

    @property
    def data_bytes(self) -> int:
        """The most calldata that so much gas pays for."""
        return self.gas // _GAS_OF_A_BYTE


def gas_of(query: Query) -> int:
    """What a query would take by itself."""
    work = Workload()
    work.add(facts.of(query), header=not query.address)
    return work.gas


def unproven(batch: Batch, *, beside: Collection[int] = (), with_paths: bool) -> Workload:
    """What of a batch's queries is neither proven nor under way, as the rows know it, `beside` those of these ids.

    What is not admitted is counted by itself. `with_paths` counts also how the registry comes to trust old blocks, as
    far as that is planned; paths that lead over the same blocks count once.
    """
    under_way = Transaction.objects.filter(
        proves_facts("queries__block"), queries=OuterRef("pk"), state__in=LIVE_STATES
    ).exclude(continued=OuterRef("pk"))
    left = batch.queries.filter(~Exists(under_way), is_admitted=True, step__isnull=False)
    wanted: dict[int | None, set[Fact]] = defaultdict(set)
    for query in left.iterator(chunk_size=1000):
        if query.pk not in beside:
            wanted[query.block_id].update(facts.of(query))
    accumulating = Transaction.objects.filter(accumulates=OuterRef("pk"), state__in=LIVE_STATES)
    needing_header = Block.objects.filter(~Exists(accumulating), pk__in=left.values("block")).filter(
        queries__in=left.exclude(step=StepKind.ACCOUNT_ACCUMULATED)
    )
    paths = {
        pk: left_over * (HOP_GAS if unit == PathUnit.HOPS else WALKED_HEADER_GAS)
        for pk, unit, left_over in needing_header.values_list("pk", "path_unit", "path_left").distinct()
    }
    work = Workload(path_gas=max(paths.values(), default=0) if with_paths else 0)
    for block, missing in wanted.items():
        work.add(missing, header=block in paths)
    work.unadmitted_gas = of_unadmitted(batch.queries.filter(is_admitted=False)).gas
    return work


def of_unadmitted(queries: "QuerySet[Query]") -> Workload:
    """What queries take that are not admitted yet, of which no node was asked: all of their facts, and no path."""
    wanted: dict[tuple[object, ...], set[Fact]] = defaultdict(set)
    for query in queries.iterator(chunk_size=1000):
        wanted[query.source_chain_id, query.block_id, query.timestamp, query.block_tag].update(facts.of(query))
    work = Workload()
    for missing in wanted.values():
        work.add(missing, header=True)
    return work
