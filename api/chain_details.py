"""The endpoint of details about chains: each connection with its trust, contracts, reach and cost, and each chain.

It returns what workers have stored, as the page of chains does. No chain is asked. If a node is down, the last values
stay, with their time.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from django.db.models import Max
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.cache import patch_cache_control
from ninja import Router, Schema
from pydantic import Field, PlainSerializer

from chains.chains_file import Chain, Chains, Connection
from config.configured_chains import get_chains, get_rpc
from config.database.statements import CompiledQuery
from config.json_objects import Time
from proving import sources
from proving.health import current_problems
from proving.health.attester_checks import SIGNED
from proving.health.current_problems import CurrentProblems
from proving.models import (
    SEEN,
    AttesterWatch,
    ChainWatch,
    FactsRegistry,
    Problem,
    Signer,
    Stop,
    Transaction,
    TransactionState,
    WorkerHeartbeat,
)
from proving.packing.gas import HOP, JUMP
from proving.registries import balance_costs, deployments, registry_setup
from proving.working import destination_prices
from queries.api_endpoint import ETAG, conditional, conditional_on
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Query, Sender

router = Router(tags=["Chains"])

# Seconds for which caches may keep the JSON.
_KEPT_SECONDS = 15
# The usual time and cost come from the DONE batches among this number of batches that ended last.
_RECENT = 200
_LEAST_MEASURED = 3

Decimal = Annotated[int, PlainSerializer(str, return_type=str)]
"""A decimal string in JSON, whose numbers lose digits."""


class BeaconHistory(Schema):
    address: str
    endSlot: Decimal | None = Field(
        description="The first slot of the source's beacon chain whose block the contract doesn't know. null: no slot "
        "is known to be one."
    )
    endsAt: Time | None = Field(description="The time of that slot.")


class ReachOfConnection(Schema):
    anyFinalBlock: bool = Field(description="Whether any final block needs no path.")
    directBlocks: int | None = Field(description="The newest blocks, which need no path. null: any final one.")
    pathOf: str | None = Field(description="`hops`: the kind of paths to older blocks. null: not known.")
    blocksEach: int
    most: int = Field(description="The maximum number of hops in a path. 0: no path leads to older blocks.")
    gasEach: int
    seconds: float = Field(description="The approximate time that all of this reaches back.")
    toFirstBlock: bool = Field(description="Whether paths reach the chain's first block.")
    jumps: bool = Field(description="Whether paths through the beacon chain reach older blocks.")
    whyNoJump: str = Field(
        description="A sentence: why not, or why not blocks before Capella. Empty if no beacon chain is known."
    )
    gasOfJump: int | None = Field(
        description="The gas of such a path, without the block's header. null: there are no such paths."
    )
    beaconHistory: BeaconHistory | None = Field(
        description="The contract that proves such paths. null: there is none, or its code was not compared yet."
    )


class BalanceCost(Schema):
    gas: int = Field(description="The expected gas, for a source chain as large as Ethereum.")
    wei: Decimal | None = Field(
        description="The cost at the present gas price, decimal, without rollups' data fees. null: not known."
    )


class UsualTime(Schema):
    seconds: float = Field(description="From submission to DONE: half of the batches took no longer.")
    batches: int


class UsualCost(Schema):
    wei: Decimal = Field(description="For each query, decimal: half of the batches spent no more.")
    batches: int


class ProvingNode(Schema):
    host: str
    provesBack: Decimal | None = Field(description="Blocks below the newest one, at least. null: it proved no account.")
    provesEveryBlock: bool
    findsSlotsBy: Literal["eth_createAccessList", "debug_traceCall", "eth_call"] | None = Field(
        description="How the node tells which slots a call reads. `eth_call`: it doesn't, and trials find slots of "
        "known layouts. null: no slots can be found, or that isn't measured yet."
    )


class AttesterAnswer(Schema):
    address: str
    host: str
    answer: str | None = Field(description="`signed`, `contradicts`, or why there is no answer. null: not asked yet.")
    sentence: str
    since: Time | None = Field(description="Since when the attester has given this answer.")


class AttesterRound(Schema):
    threshold: int = Field(description="How many must agree.")
    attesters: list[AttesterAnswer]
    blockNumber: Decimal | None = Field(description="The block in the request to the attesters.")
    askedAt: Time | None = Field(description="When a worker last asked, also without success. null: it asks soon.")
    answeredAt: Time | None

    @property
    def signing(self) -> int:
        return sum(attester.answer == SIGNED for attester in self.attesters)

    @property
    def is_stale(self) -> bool:
        """Return whether the answers are too old, or a later round failed or is due because an attester has failed."""
        if self.answeredAt is None or self.askedAt is None:
            return True
        has_failed = self.askedAt > self.answeredAt and _is_older(self.askedAt, AttesterWatch.LONGEST_ROUND)
        return has_failed or _is_older(self.answeredAt, AttesterWatch.STALE)


class ConnectionDetail(Schema):
    sourceChainId: Decimal
    destinationChainId: Decimal
    kind: str = Field(
        description="The kind of block hash source: `native`, `attested`, `op-stack`, `op-stack-games`, "
        "`beacon-roots`, "
        "`arbitrum`, `arbitrum-slot` or `arbitrum-buffer`."
    )
    title: str = Field(description="The same in words.")
    trust: str = Field(description="A sentence: who must be trusted for what.")
    factsRegistry: str | None = Field(description="null: it is not deployed yet.")
    sameAddressEverywhere: bool = Field(
        description="Whether every deployment of the registry gets this address, on any chain. It depends on the "
        "attesters."
    )
    provesTransactions: bool = Field(
        description="Whether the registry proves transactions, receipts and logs. Earlier versions don't."
    )
    factsReader: str | None = Field(
        description="A contract that reads this registry and all others in use on the destination. null: none is known."
    )
    readerSameAddressEverywhere: bool = Field(
        description="The same for the facts reader, and so for all its registries."
    )
    blockHashSource: str | None
    codeHash: str | None = Field(
        description="Keccak-256 of the registry's code at the last comparison. null: not compared yet."
    )
    codeIsRight: bool = Field(
        description="Whether this code belongs to this version, or to an earlier version that is still right."
    )
    notes: list[str] = Field(description="Sentences about obstacles.")
    reach: ReachOfConnection
    oneBalance: BalanceCost = Field(description="The cost of one account's balance at a new block.")
    usualTime: UsualTime | None = Field(description="The time of recent batches. null: there are too few.")
    usualCost: UsualCost | None = Field(
        description="The cost of recent batches that sent transactions. null: there are too few."
    )
    attesters: AttesterRound | None = Field(description="null: the connection has none.")


class ChainDetail(Schema):
    chainId: Decimal
    name: str
    currency: str
    isDestination: bool
    head: Decimal | None = Field(description="Number of the newest block that was seen.")
    headAt: Time | None = Field(description="The time of that block.")
    seenAt: Time | None = Field(description="When a node told it.")
    finalBlock: Decimal | None = Field(description="null: the chain's nodes don't report it.")
    gasPrice: Decimal | None = Field(description="Wei, decimal; of a destination.")
    keepsHashes: bool | None = Field(description="Whether its state has a history of block hashes (EIP-2935).")
    provesBack: Decimal | None = Field(
        description="For a source: the number of blocks below the newest one for which nodes prove accounts, at "
        "least. Workers measure it once a day. null: not measured yet, or no proof."
    )
    provesEveryBlock: bool = Field(description="Whether nodes prove accounts at every block.")
    provingNodes: list[ProvingNode] = Field(description="The same measurement for each node. Empty: not measured yet.")
    observedAt: Time | None = Field(description="When a worker last asked, with or without an answer.")
    problems: list[str] = Field(description="Sentences about problems.")

    @property
    def behind(self) -> int:
        """Return how many blocks the newest final block is behind the head."""
        return max(0, (self.head or 0) - (self.finalBlock or 0))

    @property
    def seconds_behind(self) -> float:
        return self.behind * get_chains().chain(self.chainId).block_seconds

    @property
    def is_stale(self) -> bool:
        return _is_older(self.observedAt, SEEN)

    @property
    def has_answered(self) -> bool:
        """Return whether a node told the newest block when a worker last looked."""
        return self.seenAt is not None and self.observedAt is not None and self.seenAt >= self.observedAt


class ChainsDetail(Schema):
    connections: list[ConnectionDetail]
    chains: list[ChainDetail]


def _is_older(at: datetime | None, age: timedelta) -> bool:
    return at is None or abs(timezone.now() - at) > age


@router.get(
    "/chains.json",
    operation_id="get_chains",
    summary="Chains in detail",
    response=ChainsDetail,
    openapi_extra=conditional_on(ETAG),
    url_name="chains_json",
)
def as_json(request: HttpRequest) -> HttpResponse:
    """Return the connections between chains (trust, contracts, reach and cost), and the last observations of each
    chain.
    """
    response = conditional(request, kept().json)
    patch_cache_control(response, max_age=_KEPT_SECONDS, public=True)
    return response


_ENDED = Batch.objects.exclude(finished_at=None).filter(sender=Sender.OPERATOR).order_by("-finished_at")
_PENDING = Transaction.objects.filter(state=TransactionState.PENDING)
# The rows that decide about the details. To read them takes a tenth of the time.
_STORED: list[CompiledQuery[Any]] = [
    CompiledQuery(lambda: ChainWatch.objects.order_by("pk").values_list()),
    CompiledQuery(lambda: Problem.seen_lately().order_by("pk").values_list()),
    CompiledQuery(lambda: FactsRegistry.objects.order_by("pk").values_list()),
    CompiledQuery(lambda: AttesterWatch.objects.order_by("pk").values_list()),
    CompiledQuery(lambda: Stop.objects.order_by("pk").values_list()),
    CompiledQuery(lambda: Signer.objects.order_by("pk").values_list()),
    CompiledQuery(lambda: WorkerHeartbeat.running().order_by("pk").values_list("pk", "started_at")),
    CompiledQuery(lambda: _PENDING.values_list("pk", "error", "spent_at")),
    CompiledQuery(lambda: Batch.objects.filter(status__in=OPEN_STATUSES).order_by().values_list("pk")),
    CompiledQuery(lambda: _ENDED.values_list("pk", "status", "created_at", "finished_at", "spent")[:_RECENT]),
]


@dataclass(frozen=True)
class KeptDetails:
    """The details of all chains, and what they were made from."""

    chains: Chains
    rows: Sequence[Sequence[tuple[Any, ...]]]
    made_at: tuple[datetime, float]
    """The time by both clocks that the details read."""
    details: ChainsDetail
    json: bytes


_last_kept: list[KeptDetails] = []


def kept() -> KeptDetails:
    """Return the details of all chains. They are made again when a row changes, and after `_KEPT_SECONDS`."""
    rows, now = [query.all() for query in _STORED], (timezone.now(), time.time())
    for last in _last_kept:
        age = max(abs((now[0] - last.made_at[0]).total_seconds()), abs(now[1] - last.made_at[1]))
        if last.chains is get_chains() and last.rows == rows and age < _KEPT_SECONDS:
            return last
    details = _read()
    made = KeptDetails(get_chains(), rows, now, details, details.model_dump_json().encode())
    _last_kept[:] = [made]
    return made


def _read() -> ChainsDetail:
    """Read all details in a few statements, and two for each connection that relies on another's registry."""
    found = current_problems.of_chains()
    watches = {chain.id: ChainWatch(chain_id=chain.id) for chain in get_chains().chains}
    watches |= {row.chain_id: row for row in ChainWatch.objects.all()}
    return ChainsDetail(
        connections=list(_connections(watches, found)),
        chains=[detail_of_chain(chain, watches[chain.id], found) for chain in get_chains().chains],
    )


def detail_of_chain(chain: Chain, watch: ChainWatch, found: CurrentProblems) -> ChainDetail:
    return ChainDetail(
        chainId=chain.id,
        name=chain.name,
        currency=chain.native_currency,
        isDestination=chain in get_chains().destinations(),
        head=watch.number,
        headAt=datetime.fromtimestamp(watch.timestamp, UTC) if watch.timestamp is not None else None,
        seenAt=watch.seen_at,
        finalBlock=watch.final,
        gasPrice=watch.gas_price,
        keepsHashes=watch.keeps_hashes,
        provesBack=watch.proves_back,
        provesEveryBlock=_is_every_block(watch.oldest_provable),
        provingNodes=[
            ProvingNode(
                host=node["host"],
                provesBack=None if node["oldest"] is None else (watch.measured_head or 0) - node["oldest"],
                provesEveryBlock=_is_every_block(node["oldest"]),
                findsSlotsBy=node.get("slots"),
            )
            for node in watch.proving_nodes
        ],
        observedAt=watch.looked_at,
        problems=found.about_chain(chain.id),
    )


def _is_every_block(oldest: int | None) -> bool:
    return oldest is not None and oldest <= 1


# --- Connections ------------------------------------------------------------------------------------------------------

_Ends = tuple[int, int]
"""Source and destination."""


def _connections(watches: Mapping[int, ChainWatch], found: CurrentProblems) -> Iterator[ConnectionDetail]:
    deployed = FactsRegistry.in_use.exclude(deployed_at=None)
    registries = {(row.source_chain_id, row.destination_chain_id): row for row in deployed}
    rounds = {(row.source_chain_id, row.destination_chain_id): row for row in AttesterWatch.objects.all()}
    recent = _recent_batches()
    special, usable = set[_Ends](), defaultdict[int, dict[int, str]](dict)
    for ends, row in registries.items():
        if not (connection := get_chains().connection(*ends)):
            continue
        if not registry_setup.has_derived_address(connection, row):
            special.add(ends)
        if not row.refused:
            usable[ends[1]][ends[0]] = row.address
    # A reader of before may read a registry that was refused or replaced, and whose facts may be forged.
    readers = {to: each.address for to, of in usable.items() if (each := deployments.reader_of(of))}
    for connection in get_chains().connections:
        ends = connection.source_id, connection.destination_id
        registry, source, usual = registries.get(ends), sources.of(connection), recent[ends]
        is_read = registry and not registry.refused and registry.reader == readers.get(ends[1])
        gas, price = balance_costs.expected_gas(connection), watches[connection.destination_id].gas_price
        yield ConnectionDetail(
            sourceChainId=connection.source_id,
            destinationChainId=connection.destination_id,
            kind=connection.block_hash_source,
            title=source.title,
            trust=source.trust(connection),
            factsRegistry=registry.address if registry else None,
            sameAddressEverywhere=bool(registry and ends not in special),
            provesTransactions=bool(registry and not registry.refused),
            factsReader=registry.reader if registry and is_read else None,
            readerSameAddressEverywhere=bool(
                is_read and not any((source_id, ends[1]) in special for source_id in usable[ends[1]])
            ),
            blockHashSource=registry.block_hash_source if registry else None,
            codeHash=(registry and registry.code_hash) or None,
            codeIsRight=bool(registry and registry.code_hash and not registry.refused),
            notes=found.about_connection(*ends),
            reach=_reach(connection, registry, watches[connection.source_id]),
            oneBalance=BalanceCost(gas=gas, wei=None if price is None else gas * price),
            usualTime=UsualTime(seconds=round(statistics.median(usual.seconds), 1), batches=len(usual.seconds))
            if len(usual.seconds) >= _LEAST_MEASURED
            else None,
            usualCost=UsualCost(wei=statistics.median_low(usual.wei), batches=len(usual.wei))
            if len(usual.wei) >= _LEAST_MEASURED
            else None,
            attesters=_attesters(connection, rounds.get(ends) or AttesterWatch()) if connection.attesters else None,
        )


def _reach(connection: Connection, registry: FactsRegistry | None, watch: ChainWatch) -> ReachOfConnection:
    prices = destination_prices.of(get_rpc(connection.destination_id))
    chain, head = get_chains().chain(connection.source_id), watch.number
    direct = sources.of(connection).vouched(connection, keeps_hashes=bool(watch.keeps_hashes))
    most = connection.max_hops if watch.keeps_hashes else 0
    blocks = (direct or 0) + most * connection.window
    seconds = blocks * chain.block_seconds
    jumps, why_no_jump, history = False, "", None
    if (beacon_chain := chain.beacon_chain) and registry:
        from proving.paths import jumping  # noqa: PLC0415 (slow to load, and only chains with a beacon chain need it)

        why_no_jump = deployments.why_no_jump(registry) or jumping.why_not(chain, head or 0)
        ends_at = deployments.history_ends_at(registry)
        if not why_no_jump and ends_at and (watch.timestamp or 0) > ends_at.timestamp():
            why_no_jump = deployments.why_history_ends(registry)
        jumps = not why_no_jump
        if jumps and (why_no_jump := jumping.why_not_to_all(chain)):
            seconds = max(seconds, time.time() - beacon_chain.time_of(beacon_chain.capella))
        if registry.history_end is not None:
            end = registry.history_end if ends_at else None
            history = BeaconHistory(address=registry.beacon_history, endSlot=end, endsAt=ends_at)
    return ReachOfConnection(
        anyFinalBlock=direct is None,
        directBlocks=direct,
        pathOf=None if watch.keeps_hashes is None else "hops",
        blocksEach=connection.window,
        most=most,
        gasEach=int(prices.gas_of(HOP)),
        seconds=seconds,
        toFirstBlock=(jumps and not why_no_jump) or (head is not None and blocks >= head),
        jumps=jumps,
        whyNoJump=why_no_jump,
        gasOfJump=int(prices.gas_of(JUMP)) if jumps else None,
        beaconHistory=history,
    )


def _attesters(connection: Connection, row: AttesterWatch) -> AttesterRound:
    answers = {answer["address"]: answer for answer in row.answers}
    unasked = {"answer": None, "sentence": "", "since": None}
    return AttesterRound(
        threshold=connection.threshold or 0,
        attesters=[
            AttesterAnswer(**unasked | answers.get(key.address, {}) | {"address": key.address, "host": key.host})
            for key in connection.attesters
        ],
        blockNumber=row.block,
        askedAt=row.asked_at,
        answeredAt=row.answered_at,
    )


@dataclass(frozen=True)
class RecentBatches:
    """Measurements of a connection's batches that are DONE."""

    seconds: list[float] = field(default_factory=list)
    """From submission to DONE."""
    wei: list[int] = field(default_factory=list)
    """For each query, of batches that sent transactions."""


def _recent_batches() -> Mapping[_Ends, RecentBatches]:
    """Return measurements of recent batches, by the chains of their first query.

    A batch that names a block to come begins when the block is there. Self-funded batches are left out, because their
    time depends on their senders.
    """
    recent = _ENDED.values_list("pk", "status")[:_RECENT]
    # The identifiers keep SQLite from reading all batches that are DONE.
    done = [pk for pk, status in recent if status == BatchStatus.DONE]
    firsts = (
        Query.objects.filter(position=0, batch__in=done)
        .select_related("batch")
        .only(
            "source_chain_id",
            *(f"batch__{name}" for name in ("destination_chain_id", "created_at", "finished_at")),
            "batch__spent",
            "batch__size",
        )
    )
    named = Query.objects.filter(batch__in=done, block_tag="", block_of="").order_by().values_list("batch")
    newest = dict(named.annotate(newest=Max(Coalesce("timestamp", "block__timestamp"))))
    measured: dict[_Ends, RecentBatches] = defaultdict(RecentBatches)
    for query in firsts:
        batch = query.batch
        if batch.finished_at:
            begun = max(batch.created_at.timestamp(), newest.get(batch.pk) or 0)
            of_ends = measured[query.source_chain_id, batch.destination_chain_id]
            of_ends.seconds.append(max(0, batch.finished_at.timestamp() - begun))
            if batch.spent:
                of_ends.wei.append(batch.spent // max(1, batch.size))
    return measured
