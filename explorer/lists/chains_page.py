"""What can be proven where: each connection with its trust, contracts, reach and cost, and each chain as last seen.

It reads what workers have stored, and asks no chain: a node that is down leaves what was known, with its time.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from chains.chains_file import Chain, Connection
from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from explorer.formatting.amounts import rounded
from proving import jump_branches, sources
from proving.gas_model.remaining_work import HOP_GAS, JUMP_GAS, WALKED_HEADER_GAS
from proving.health import balance_costs
from proving.health.attester_checks import SIGNED
from proving.models import AttesterWatch, ChainWatch, FactsRegistry, Stop
from proving.registry import deployments
from queries.models import Batch, BatchStatus, Query, Sender

# What a worker has seen says little of now, when it is older.
_STALE = timedelta(minutes=3)
_STALE_ANSWERS = timedelta(minutes=10)
# Of the batches that ended last, those that are DONE tell how long it takes.
_RECENT = 200
_LEAST_TIMED = 3


@dataclass(frozen=True)
class ShownAttester:
    """`answer` and `since` are empty where it was not asked yet."""

    address: str
    host: str
    answer: str  # `signed`, `contradicts`, or why it gave none
    sentence: str
    since: datetime | None

    @property
    def signs(self) -> bool:
        return self.answer == SIGNED


@dataclass(frozen=True)
class Attesters:
    threshold: int
    each: tuple[ShownAttester, ...]
    block: int | None
    answered_at: datetime | None
    is_stale: bool

    @property
    def signing(self) -> int:
        return sum(one.signs for one in self.each)

    @property
    def suffice(self) -> bool:
        return self.signing >= self.threshold


@dataclass(frozen=True)
class Reach:
    """The reach of proofs into the past. From the oldest block that needs no path, one leads on in `most` `steps`."""

    direct: int | None  # the newest blocks, which need no path; None: any final block does without
    steps: str  # `hops` or `headers`; empty: it was not seen yet which of them
    blocks_each: int
    most: int
    gas_each: int
    seconds: float  # that all of it takes the chain, about
    to_the_first: bool  # as far as the chain goes
    jumps: bool  # the beacon chain leads to older blocks, whatever their age
    why_no_jump: str  # why it does not, a sentence; empty if it does, or the source chain has none that is known
    gas_of_jump: int

    @property
    def blocks(self) -> int | None:
        """Return how many blocks back it reaches. None: to the first block."""
        return None if self.direct is None else self.direct + self.most * self.blocks_each


@dataclass(frozen=True)
class BalanceCost:
    """The cost of one account's balance at a new block, if the source chain is as large as Ethereum."""

    gas: int
    wei: int | None  # at the present gas price; None: it is not known


@dataclass(frozen=True)
class ShownConnection:
    source: ChainName
    destination: ChainName
    kind: str  # of the block hash source, as chains.toml has it
    title: str
    trust: str  # who must be trusted for what, a sentence
    facts_registry: str  # an address, like the next; empty: not deployed yet
    block_hash_source: str
    code_hash: str  # of the registry's code as it was last compared; empty: it was not yet
    code_is_right: bool
    notes: tuple[str, ...]  # what stands in the way, or needs the operator's eye: sentences
    reach: Reach
    keeps_headers: bool
    balance: BalanceCost
    usual_seconds: float | None
    timed_batches: int  # that these seconds are the median of
    attesters: Attesters | None


@dataclass(frozen=True)
class ShownChain:
    name: ChainName
    is_destination: bool
    block_seconds: float
    head: int | None
    head_at: datetime | None  # the time of that block
    seen_at: datetime | None  # when a node told it
    final: int | None
    gas_price: int | None  # wei
    keeps_hashes: bool | None
    looked_at: datetime | None
    is_stale: bool  # nothing is known of now
    problems: tuple[str, ...]  # sentences

    @property
    def behind(self) -> int | None:
        """Return how many blocks the newest final one is behind the head."""
        return None if self.head is None or self.final is None else max(0, self.head - self.final)

    @property
    def seconds_behind(self) -> float:
        return (self.behind or 0) * self.block_seconds

    @property
    def gas_price_in_gwei(self) -> str:
        return rounded(self.gas_price or 0, decimals=9)


@dataclass(frozen=True)
class ChainsPage:
    connections: tuple[ShownConnection, ...]
    chains: tuple[ShownChain, ...]

    @property
    def looked_at(self) -> datetime | None:
        """Return when a worker last looked at any of the chains."""
        return max((chain.looked_at for chain in self.chains if chain.looked_at), default=None)


def read() -> ChainsPage:
    """Read the page in six statements, however many connections there are."""
    watches = {row.chain_id: row for row in ChainWatch.objects.all()}
    return ChainsPage(
        tuple(_connections(watches)), tuple(_chain(chain, watches.get(chain.id)) for chain in get_chains().chains)
    )


# --- Chains -----------------------------------------------------------------------------------------------------------


def _chain(chain: Chain, watch: ChainWatch | None) -> ShownChain:
    watch = watch or ChainWatch(chain_id=chain.id)
    return ShownChain(
        name=chain_name(chain.id),
        is_destination=chain in get_chains().destinations(),
        block_seconds=chain.block_seconds,
        head=watch.number,
        head_at=datetime.fromtimestamp(watch.timestamp, UTC) if watch.timestamp is not None else None,
        seen_at=watch.seen_at,
        final=watch.final,
        gas_price=watch.gas_price,
        keeps_hashes=watch.keeps_hashes,
        looked_at=watch.looked_at,
        is_stale=_is_older(watch.looked_at, _STALE),
        problems=tuple(sentence for _, sentence in watch.problems),
    )


def _is_older(at: datetime | None, age: timedelta) -> bool:
    return at is None or abs(timezone.now() - at) > age


# --- Connections ------------------------------------------------------------------------------------------------------

_Ends = tuple[int, int]
"""Source and destination."""


def _connections(watches: Mapping[int, ChainWatch]) -> Iterator[ShownConnection]:
    registries = {(row.source_chain_id, row.destination_chain_id): row for row in FactsRegistry.in_use.all()}
    asked = {(row.source_chain_id, row.destination_chain_id): row for row in AttesterWatch.objects.all()}
    stopped = _what_is_stopped()
    seconds = _usual_seconds()
    for connection in get_chains().connections:
        ends = connection.source_id, connection.destination_id
        source, registry = sources.of(connection), registries.get(ends)
        if registry and not registry.deployed_at:
            registry = None
        cost = _balance_cost(connection, watches)
        took = seconds.get(ends, [])
        yield ShownConnection(
            source=chain_name(connection.source_id),
            destination=chain_name(connection.destination_id),
            kind=connection.block_hash_source,
            title=source.title,
            trust=source.trust(connection),
            facts_registry=registry.address if registry else "",
            block_hash_source=registry.block_hash_source if registry else "",
            code_hash=registry.code_hash if registry else "",
            code_is_right=bool(registry and registry.code_hash and not registry.refused),
            notes=(*stopped[ends], *_notes(connection, registry)),
            reach=_reach(connection, registry, watches.get(connection.source_id)),
            keeps_headers=connection.keep_headers,
            balance=cost,
            usual_seconds=statistics.median(took) if len(took) >= _LEAST_TIMED else None,
            timed_batches=len(took),
            attesters=_attesters(connection, asked.get(ends)) if connection.attesters else None,
        )


def _balance_cost(connection: Connection, watches: Mapping[int, ChainWatch]) -> BalanceCost:
    gas, destination = balance_costs.expected_gas(connection), watches.get(connection.destination_id)
    price = destination.gas_price if destination else None
    return BalanceCost(gas, None if price is None else gas * price)


def _what_is_stopped() -> dict[_Ends, list[str]]:
    """Return sentences about stops of destinations and of connections, by the connection."""
    standing = list(Stop.objects.filter(signer="").order_by("source_chain_id"))
    return {
        (one.source_id, one.destination_id): [
            stop.sentence
            for stop in standing
            if stop.chain_id == one.destination_id and stop.source_chain_id in {0, one.source_id}
        ]
        for one in get_chains().connections
    }


def _notes(connection: Connection, registry: FactsRegistry | None) -> Iterator[str]:
    if registry is None:
        yield deployments.not_deployed(connection.destination_id, connection.source_id)
        return
    yield from filter(None, (registry.refused, registry.notice))


def _reach(connection: Connection, registry: FactsRegistry | None, watch: ChainWatch | None) -> Reach:
    keeps_hashes, head = (watch.keeps_hashes, watch.number) if watch else (None, None)
    source, block_seconds = sources.of(connection), get_chains().chain(connection.source_id).block_seconds
    direct = source.vouched(connection, keeps_hashes=bool(keeps_hashes))
    if keeps_hashes:
        steps, each, most, gas = "hops", connection.window, connection.max_hops, HOP_GAS
    else:
        steps, each, most, gas = "headers", 1, connection.max_headers_walked, WALKED_HEADER_GAS
    blocks = (direct or 0) + most * each
    chain, why_no_jump = get_chains().chain(connection.source_id), ""
    if chain.beacon_chain and registry:
        why_no_jump = deployments.why_no_jump(registry) or jump_branches.why_not(chain, head or 0)
    return Reach(
        direct=direct,
        steps="" if keeps_hashes is None else steps,
        blocks_each=each,
        most=most,
        gas_each=gas,
        seconds=blocks * block_seconds,
        to_the_first=head is not None and blocks >= head,
        jumps=bool(chain.beacon_chain and registry and not why_no_jump),
        why_no_jump=why_no_jump,
        gas_of_jump=JUMP_GAS,
    )


def _attesters(connection: Connection, row: AttesterWatch | None) -> Attesters:
    row = row or AttesterWatch()
    said = {one["address"]: one for one in row.answers}
    return Attesters(
        threshold=connection.threshold or 0,
        each=tuple(
            ShownAttester(
                attester.address,
                attester.host,
                one["answer"] if one else "",
                one["sentence"] if one else "",
                datetime.fromisoformat(one["since"]) if one else None,
            )
            for attester in connection.attesters
            for one in [said.get(attester.address)]
        ),
        block=row.block,
        answered_at=row.answered_at,
        is_stale=_is_older(row.answered_at, _STALE_ANSWERS),
    )


def _usual_seconds() -> Mapping[_Ends, Sequence[float]]:
    """Return the seconds from submission to DONE of batches that ended last, by what their first query is about.

    Those that pay themselves take as long as their senders do.
    """
    ended = (
        Batch.objects.exclude(finished_at=None)
        .filter(sender=Sender.OPERATOR)
        .order_by("-finished_at")
        .values("pk")[:_RECENT]
    )
    firsts = Query.objects.filter(position=0, batch__in=ended, batch__status=BatchStatus.DONE)
    columns = ("source_chain_id", "batch__destination_chain_id", "batch__created_at", "batch__finished_at")
    found: dict[_Ends, list[float]] = defaultdict(list)
    for source, destination, created_at, finished_at in firsts.values_list(*columns):
        if finished_at:
            found[source, destination].append((finished_at - created_at).total_seconds())
    return found
