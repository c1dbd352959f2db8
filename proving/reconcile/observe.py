"""Observations of blocks for decisions: the current state of rows and chains.

Functions for several blocks return observations by block id, or the error if a chain doesn't answer about a block.
They don't change blocks. Costly reads are made only for blocks that need them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeAlias, TypeVar

from django.db.models import Exists, F, Max, Min, OuterRef, Q, Value, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.node_errors import ChainError
from chains.nodes.questions import BlockIdentifier
from chains.nodes.rpc import RpcClient, result
from chains.tries.header import Header
from config.database.statements import chunks
from proving import facts, sources
from proving.connections import Context
from proving.facts import Fact, RegistryView, TimeFact, ViewRequest
from proving.models import LIVE_STATES, FactsRegistry, SignedTransaction, Transaction, TransactionState, proves_facts
from proving.paths import building, planning
from proving.paths.building import PathFound
from proving.paths.planning import TooFar
from proving.reading import block_times
from proving.reconcile.observation import (
    BlockOfTime,
    BlockState,
    Checked,
    Gone,
    Lacking,
    Observation,
    OpenQuery,
    OpenRequests,
    SourceBlock,
    Trust,
    Unfetched,
)
from proving.registries import deployments
from proving.registries.deployments import Deployment
from proving.sources import NotYet, Preparation
from proving.working import heads
from queries import clock
from queries.columns import RejectionCode
from queries.models import (
    PROVABLE_STEPS,
    BatchStatus,
    Block,
    Query,
    QueryKind,
    Sender,
    Step,
    StepKind,
    StepStatus,
    open_queries,
)
from queries.waits import WaitReason

# Maximum queries that a turn observes. It limits the turn's memory and duration.
_QUERIES_PER_LOOK = 1000
# Maximum rows named in one statement, and maximum rows read at a time.
_PER_STATEMENT, _PER_READ = 500, 1000
# Number of attempts, in more than three minutes, that wait for the branch of a jump. Later attempts use a much more
# expensive path.
_BRANCH_ATTEMPTS = 8

Seen = TypeVar("Seen")
ByBlock: TypeAlias = dict[int, Seen]
"""Observations by block id."""
Observed: TypeAlias = dict[int, Seen | ChainError]
"""Observations by block id, or the error if a chain gives no answer about a block."""


def _by_block(blocks: Sequence[Block], queries: Iterable[Query]) -> ByBlock[list[Query]]:
    by_block: ByBlock[list[Query]] = {block.pk: [] for block in blocks}
    for query in queries:
        assert query.block_id is not None, "it is one of these"
        by_block[query.block_id].append(query)
    return by_block


def open_requests(blocks: Sequence[Block]) -> ByBlock[OpenRequests]:
    rows = open_queries(blocks).order_by().values_list("block", "batch__sender", "step").distinct()
    pairs: dict[int, list[tuple[str, str | None]]] = {block.pk: [] for block in blocks}
    for block, sender, step in rows:
        pairs[block].append((sender, step))
    return {pk: OpenRequests({sender for sender, _ in each}, {step for _, step in each}) for pk, each in pairs.items()}


# --- When the destination was reorganised -----------------------------------------------------------------------------


def checked(context: Context, blocks: Sequence[Block]) -> Observed[Checked]:
    """Read the destination's blocks again in which completed facts were last read."""
    rpc = context.destination_rpc
    noted = {block: block.checked_number for block in blocks if block.checked_number is not None}
    headers = rpc.ask([questions.header(number) for number in noted.values()])
    return {
        block.pk: header
        if isinstance(header, ChainError)
        else Checked(
            destination=rpc.chain.id,
            number=number,
            hash=bytes.fromhex(block.checked_hash[2:]),
            header=header,
            is_behind=context.heads.confirmed.number < number,
            poll_seconds=context.poll_seconds,
        )
        for (block, number), header in zip(noted.items(), headers, strict=True)
    }


def gone(context: Context, block: Block, *, is_usable: bool) -> Gone:
    """Read the completed facts of a block from the registry again. Raises `NodeUnavailable`, `RpcRefused`.

    Facts of batches that are DONE are read from their own registry. Nothing is read from the current registry unless
    it `is_usable`.
    """
    elsewhere = _held_by_unused(block)
    lost = [(row.address, _lost(context, block, row, queries)) for row, queries in elsewhere.items()]
    if not is_usable:
        return Gone(root_is_confirmed=True, lost=lost)
    registry = context.registry.contract.address
    seen = Query.objects.filter(block=block).exclude(batch__status__in=[BatchStatus.REJECTED, BatchStatus.RECEIVED])
    seen = seen.exclude(pk__in=[query.pk for queries in elsewhere.values() for query in queries])
    read = partial(
        facts.read, context.destination_rpc, context.registry.contract, block.number, at=context.heads.confirmed.number
    )
    proven = list(seen.filter(Q(step__isnull=True) | Q(step=StepKind.FACTS_PROVEN)).values_list("pk", flat=True))
    is_root = bool(proven) and _is_root(block, read([]).state_root)
    # Facts about transactions may be proven without the block's state root.
    completed = (seen if is_root else seen.filter(kind=QueryKind.ENTRY)).filter(step__isnull=True).order_by("pk")
    queries = list(completed) if proven else []
    if not (is_root or queries):
        # A registry whose creation was rolled back has no code for a while.
        return Gone(root_is_confirmed=False, proven=proven, lost=lost, registry=registry)
    completed_facts = _facts_of(queries)
    comparison = facts.compare(queries, read(completed_facts), facts.proven({block: completed_facts})[block.pk])
    lacking = {pk for asking in comparison.missing.values() for pk in asking}
    if not is_root:
        kept = {query.pk for query in queries} - lacking
        return Gone(
            root_is_confirmed=False,
            proven=[pk for pk in proven if pk not in kept],
            contradiction=comparison.contradiction,
            lost=lost,
            registry=registry,
        )
    return Gone(
        root_is_confirmed=True,
        lacking_of_header=[query.pk for query in queries if query.pk in lacking and query.kind == QueryKind.HEADER],
        lacking_of_accounts=[query.pk for query in queries if query.pk in lacking and query.kind != QueryKind.HEADER],
        contradiction=comparison.contradiction,
        lost=lost,
        registry=registry,
    )


def _held_by_unused(block: Block) -> dict[FactsRegistry, list[Query]]:
    """Return the block's queries of DONE batches by registry, for registries that are no longer used."""
    rows = deployments.all_of(block.destination_chain_id, [block.source_chain_id])
    held: dict[FactsRegistry, list[Query]] = defaultdict(list)
    if any(row.replaced_at or row.refused for row in rows):
        done = Query.objects.filter(block=block, batch__status=BatchStatus.DONE).select_related("batch").order_by("pk")
        for query in done:
            row = deployments.of_batch(query.batch, rows).get(block.source_chain_id)
            if row and (row.replaced_at or row.refused):
                held[row].append(query)
    return held


def _lost(context: Context, block: Block, row: FactsRegistry, queries: Sequence[Query]) -> list[int]:
    """Return the ids of queries whose proven facts an unused registry doesn't hold."""
    rpc, at = context.destination_rpc, context.heads.confirmed.number
    registry, every = deployments.Registry(row.address), [query.pk for query in queries]
    wanted = _facts_of(queries)
    try:
        view = facts.read(rpc, registry, block.number, wanted, at=at)
        if not _is_root(block, view.state_root) and not all(query.kind == QueryKind.ENTRY for query in queries):
            return every
    except facts.NoRegistry:
        return every
    comparison = facts.compare(queries, view, facts.proven({block: wanted})[block.pk])
    lacking = {pk for asking in comparison.missing.values() for pk in asking}
    return every if comparison.contradiction else sorted(lacking)


# --- Proofs of the source chain ---------------------------------------------------------------------------------------


def source_blocks(context: Context, blocks: Sequence[Block]) -> Observed[SourceBlock]:
    chain = context.source_rpc.chain
    known = context.heads.known if context.connection.is_own else {}
    read = _headers(context.source_rpc, [block.number for block in blocks], known)
    return {
        block.pk: header
        if isinstance(header, ChainError)
        else SourceBlock(
            source=chain.id,
            number=block.number,
            header=header,
            # A header whose bytes were pruned is stored again.
            stored_hash=block.hash if block.header_rlp is not None else "",
            poll_seconds=heads.poll_seconds(chain),
            head=read.newest,
            seconds=(block.number - read.newest - 1) * chain.block_seconds,
        )
        for block, header in zip(blocks, read.headers, strict=True)
    }


@dataclass(frozen=True)
class _SourceHeaders:
    headers: Sequence[Header | ChainError | None]
    newest: int = 0
    """The number of the newest block, if any header is missing."""


def _headers(rpc: RpcClient, numbers: Sequence[int], known: Mapping[int, Header]) -> _SourceHeaders:
    """Return the headers of blocks in order.

    Those that the turn has read already are `known`. A block up to the newest one is missing only if nodes lack it.
    """
    headers = heads.headers(rpc, numbers, known)
    if None not in headers:
        return _SourceHeaders(headers)
    (latest,) = rpc.ask([questions.header("latest")])
    if not isinstance(latest, Header):
        # Without the head, the time until a missing block is unknown.
        return _SourceHeaders([latest if header is None else header for header in headers])
    # Blocks that were created meanwhile exist now.
    lacking = [at for at, header in enumerate(headers) if header is None and numbers[at] <= latest.number]
    for at, header in zip(lacking, rpc.ask([questions.header(numbers[at]) for at in lacking]), strict=True):
        headers[at] = header
    return _SourceHeaders(headers, latest.number)


def unfetched(
    context: Context, blocks: Sequence[Block], faults: Mapping[int, Mapping[int, WaitReason]]
) -> ByBlock[Unfetched]:
    """Return the queries whose proofs couldn't be fetched, for blocks that have or had such queries."""
    by_block: ByBlock[Unfetched] = {}
    for block in blocks:
        of_block = faults.get(block.pk, {})
        if of_block or block.refused_since is not None:
            by_block[block.pk] = Unfetched(
                source=context.source_rpc.chain.id,
                number=block.number,
                faults=dict(of_block),
                refused=[pk for pk, fault in of_block.items() if fault.code in {"proof_refused", *RejectionCode}],
                refused_since=block.refused_since,
                now=clock.earliest(),
            )
    return by_block


# --- Facts of the registry --------------------------------------------------------------------------------------------


def registry(
    context: Context, blocks: Sequence[Block], asking: ByBlock[OpenRequests], begun: Collection[int] = ()
) -> Observed[Observation]:
    """Read which facts of the blocks' open queries the registry holds and lacks. The blocks' headers must be stored.

    `asking` shows whether any of the queries are left to others. The next write completes INITIAL_STATE of the queries
    `begun` (ids), whose proofs are stored.
    """
    newest, confirmed = context.heads.latest.number, context.heads.confirmed.number
    is_extending = building.extending(context.connection, newest).exists()
    # A chain knows its head's hash only in the pending block. Trust in another hash that exists only there depends on a
    # pending transaction. If that fails or is cancelled, later transactions would fail, too.
    vouched_at: BlockIdentifier = "pending" if context.connection.is_own and not is_extending else "latest"
    accumulations = _accumulations(context.registry, blocks, confirmed)
    has_others = any(Sender.SELF in asking[block.pk].senders for block in blocks)
    looked_at = _looked_at(blocks, confirmed, begun, has_others=has_others)
    seen = _compared(context, blocks, looked_at, accumulations.hashes, vouched_at)
    lacking = _with_earlier_transactions(_lacking(blocks, seen), confirmed, accumulations.under_way)
    # Filtering by step is faster than by id. Most of thousands of queries are past these steps, and each listed id
    # costs time.
    steps = Q(step__in=[StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED])
    awaiting = open_queries(blocks).filter(steps | Q(pk__in=begun)).only("block", "kind", "timestamp", "step")
    awaiting_header = _by_block(blocks, awaiting.annotate(sender=F("batch__sender")).order_by("pk"))
    since: ByBlock[datetime] = {}
    if context.destination_rpc.chain.gather_seconds:
        ready = Step.objects.filter(query__in=open_queries(blocks), status=StepStatus.IN_PROGRESS)
        ready = ready.exclude(kind=StepKind.INITIAL_STATE).order_by()
        since = dict(ready.values_list("query__block").annotate(since=Min("started_at")))
    for pk, observation in seen.items():
        if isinstance(observation, Observation):
            of_block = list(map(_open_query, awaiting_header[pk]))
            seen[pk] = replace(observation, awaiting_header=of_block, waits_since=since.get(pk))
    pause = building.pause_after_failures(context.connection) if lacking else 0
    return _with_trust(context, seen, lacking, vouched_at, is_extending=is_extending, pause=pause)


def of_batch(context: Context, blocks: Sequence[Block], batch: str) -> Observed[tuple[Observation, bool]]:
    """Read which facts of one batch's open queries the registry lacks, and whether the batch has more queries.

    All missing facts count as facts to send, even if pending transactions contain them. Raises `OutOfTime` between
    requests to nodes.
    """
    rows = open_queries(blocks).filter(batch=batch).exclude(step=StepKind.INITIAL_STATE)
    asking = _by_block(blocks, rows.annotate(sender=Value(Sender.OPERATOR)).order_by("pk"))
    unread = {pk: list(chunks(queries, _QUERIES_PER_LOOK)) or [[]] for pk, queries in asking.items()}
    seen: Observed[Observation] = {}
    while looking := [block for block in blocks if unread[block.pk] and _holds_all(seen.get(block.pk))]:
        some = {block.pk: unread[block.pk].pop(0) for block in looking}
        seen |= _compared(context, looking, some, {}, "pending")
        context.connection.check_time()
    observations = _with_trust(context, seen, _lacking(blocks, seen), "pending", is_extending=False, pause=0)
    return {
        pk: observation if isinstance(observation, ChainError) else (observation, bool(unread[pk]))
        for pk, observation in observations.items()
    }


def _holds_all(seen: Observation | ChainError | None) -> bool:
    """Return whether the registry holds all facts that were compared so far."""
    return seen is None or (isinstance(seen, Observation) and seen.lacking is None and not seen.contradiction)


def _lacking(blocks: Sequence[Block], seen: Observed[Observation]) -> dict[Block, Lacking]:
    """Return the missing facts of blocks that lack any."""
    return {
        block: observation.lacking
        for block in blocks
        if isinstance(observation := seen[block.pk], Observation) and observation.lacking
    }


def _compared(
    context: Context,
    blocks: Sequence[Block],
    looked_at: Mapping[int, Sequence[Query]],
    accumulated: Mapping[int, str],
    vouched_at: BlockIdentifier,
) -> Observed[Observation]:
    """Compare the facts of these queries with the registry, and read whether it can accept the blocks' headers.

    `accumulated` has hashes of this service's transactions by block id.
    """
    registry, requested = context.registry.contract, {pk: _facts_of(queries) for pk, queries in looked_at.items()}
    answers = _answers(context, blocks, requested, accumulated, vouched_at)
    there = [block for block, told in answers.items() if isinstance(told.view, RegistryView) and told.view.facts]
    here = facts.proven({block: requested[block.pk] for block in there})
    proven_by = _proven_by(context.registry, [query.pk for block in there for query in looked_at[block.pk]])
    observations: Observed[Observation] = {}
    for block, told in answers.items():
        try:
            view, queries = result(told.view), looked_at[block.pk]
            comparison = facts.compare(queries, view, here.get(block.pk, {}))
            is_confirmed = _is_root(block, view.state_root)
            open_ones = {query.pk: _open_query(query) for query in queries}
            observations[block.pk] = Observation(
                number=block.number,
                hash=bytes.fromhex(block.hash[2:]),
                timestamp=block.timestamp,
                attempts=block.attempts,
                path_left=block.path_left,
                source=block.source_chain_id,
                poll_seconds=context.poll_seconds,
                source_poll_seconds=heads.poll_seconds(context.source_rpc.chain),
                now=timezone.now(),
                gather_seconds=context.destination_rpc.chain.gather_seconds,
                waits_since=None,
                awaiting_header=[],
                queries=open_ones,
                view=view,
                root_is_confirmed=is_confirmed,
                accumulated_by=accumulated.get(block.pk, "") if is_confirmed else "",
                proven_by=proven_by,
                contradiction=comparison.contradiction,
                lacking=Lacking(
                    comparison.missing,
                    root_is_known=is_confirmed or _is_root(block, result(told.newest_root)),
                    roots=[
                        root.field for root in facts.roots_of(requested[block.pk]) if view.facts.get(root) is not None
                    ],
                    left_to_others=[pk for pk, query in open_ones.items() if query.is_left_to_others],
                    trust=Trust(Header.decode(bytes(block.header_rlp or b"")), registry.decode_vouches(told.vouches)),
                )
                if comparison.missing
                else None,
            )
        except ChainError as error:
            observations[block.pk] = error
    return observations


@dataclass(frozen=True)
class _Answer:
    """The registry's answers about a block."""

    view: RegistryView | ChainError
    newest_root: bytes | ChainError
    vouches: bytes | ChainError


def _answers(
    context: Context,
    blocks: Sequence[Block],
    requested: Mapping[int, Sequence[Fact]],
    accumulated: Mapping[int, str],
    vouched_at: BlockIdentifier,
) -> dict[Block, _Answer]:
    """Ask the registry about these facts, about the roots of entries, and about the blocks' headers.

    If a transaction is `accumulated` for a block, its facts are requested at once. Facts of other blocks are requested
    only if the registry knows the state root, because no fact is proven below an unknown root, and each fact costs a
    request. Facts about entries are requested in any case, because their proofs don't need that root.
    """
    rpc, registry, confirmed = context.destination_rpc, context.registry.contract, context.heads.confirmed.number
    asked = {pk: list(dict.fromkeys([*each, *facts.roots_of(each)])) for pk, each in requested.items()}
    at_once: dict[int, list[Fact]] = {
        pk: each if pk in accumulated else [*facts.of_entries(each), *facts.roots_of(each)]
        for pk, each in asked.items()
    }
    requests = [ViewRequest(block.number, at_once[block.pk], confirmed) for block in blocks]
    of_facts = [request.questions(registry) for request in requests]
    hashes = [(block.number, bytes.fromhex(block.hash[2:])) for block in blocks]
    words, newest_roots, vouches = rpc.ask(
        [question for each in of_facts for question in each],
        [questions.call(*registry.state_root(block.number), "latest") for block in blocks],
        [questions.call(*registry.vouches(*header), vouched_at) for header in hashes],
    )
    remaining = iter(words)
    views = {
        block: request.view(registry, [next(remaining) for _ in each])
        for block, request, each in zip(blocks, requests, of_facts, strict=True)
    }
    known = [
        block
        for block, view in views.items()
        if isinstance(view, RegistryView)
        and _is_root(block, view.state_root)
        and any(fact not in view.facts for fact in asked[block.pk])
    ]
    further = [ViewRequest(block.number, asked[block.pk], confirmed) for block in known]
    views |= zip(known, facts.views(rpc, registry, further), strict=True)
    return dict(zip(blocks, map(_Answer, views.values(), newest_roots, vouches), strict=True))


def _facts_of(queries: Sequence[Query]) -> list[Fact]:
    return list(dict.fromkeys(fact for query in queries for fact in facts.of(query)))


def _open_query(query: Query) -> OpenQuery:
    assert query.step is not None, "it is open"
    is_left_to_others: bool = query.sender == Sender.SELF  # type: ignore[attr-defined]  # set by the annotation
    # INITIAL_STATE of such a query is about to be completed.
    step = StepKind.BLOCKHASH_AVAILABLE if query.step == StepKind.INITIAL_STATE else StepKind(query.step)
    return OpenQuery(query.pk, query.kind == QueryKind.HEADER, query.timestamp, step, is_left_to_others)


def _with_trust(
    context: Context,
    seen: Observed[Observation],
    lacking: Mapping[Block, Lacking],
    at: BlockIdentifier,
    *,
    is_extending: bool,
    pause: float,
) -> Observed[Observation]:
    """Add to the observations the missing facts, and the registry's trust in the headers that these facts need."""
    registry, config, head = context.registry.contract, context.connection.config, context.heads.latest.number
    # Facts to send take precedence. Facts that others send must not add another header.
    needing = {block: lacked.needing or lacked.all_needing for block, lacked in lacking.items()}
    # A block's end is only known from the next block's header.
    timed = [block for block, missing in needing.items() if any(isinstance(fact, TimeFact) for fact in missing)]
    read = _headers(context.source_rpc, [block.number + 1 for block in timed], {})
    following = dict(zip(timed, read.headers, strict=True))
    there = {block: header for block, header in following.items() if isinstance(header, Header)}
    calls = [questions.call(*registry.vouches(header.number, header.hash), at) for header in there.values()]
    vouched = dict(zip(there, context.destination_rpc.ask(calls), strict=True))
    observations = dict(seen)
    for block, lacked in lacking.items():
        trust = lacked.trust if needing[block] else None
        try:
            if block in following:
                header = result(following[block])
                if header is None and block.number < read.newest:
                    context.source_rpc.must_have(block.number + 1, header)
                trust = Trust(header, registry.decode_vouches(vouched[block])) if header else None
            if trust is not None:
                trust = replace(
                    trust,
                    is_vouched_for_long=sources.of(config).vouches_for_long(config, trust.header.number, head),
                    is_extending=is_extending,
                    pause_after_failures=pause,
                    may_jump=is_extending and planning.may_jump(context.connection, trust.header),
                )
            observations[block.pk] = replace(result(seen[block.pk]), lacking=replace(lacked, trust=trust))
        except ChainError as error:
            observations[block.pk] = error
    return observations


def _looked_at(
    blocks: Sequence[Block], confirmed: int, begun: Collection[int], *, has_others: bool
) -> ByBlock[list[Query]]:
    """Return the queries to observe: open queries for which no transaction is pending.

    A transaction that was mined after the `confirmed` block counts as pending. Queries that the operator pays for come
    first. If there are too many others, a random part is chosen: nobody may ever prove some, and these must not always
    come first.
    """
    under_way = Transaction.objects.filter(_unseen(confirmed), proves_facts("queries__block"), queries=OuterRef("pk"))
    waiting = open_queries(blocks).filter(~Q(step=StepKind.INITIAL_STATE) | Q(pk__in=begun))
    idle = waiting.filter(~Exists(under_way)).annotate(sender=F("batch__sender"))
    # One query of each batch comes first, then the second of each, so that a large batch that can't pay doesn't delay
    # other batches.
    rank = Window(RowNumber(), partition_by=["block", "batch"], order_by="pk")
    sent_for = idle.exclude(sender=Sender.SELF).annotate(rank=rank).order_by("rank", "pk")[:_QUERIES_PER_LOOK]
    others = idle.filter(sender=Sender.SELF).order_by("?")[:_QUERIES_PER_LOOK] if has_others else ()
    return _by_block(blocks, [*sent_for, *others])


def _is_root(block: Block, root: bytes) -> bool:
    """Return whether the registry's root is the block's state root."""
    return hex_data(root) == block.state_root


def block_of_time(context: Context, timestamp: int) -> BlockOfTime:
    head = context.source_rpc.head()
    if head.timestamp <= timestamp:
        return BlockOfTime(has_later=False)
    number = block_times.block_at(context.connection, timestamp, head)
    return BlockOfTime(has_later=True, number=number)


# --- Earlier transactions ---------------------------------------------------------------------------------------------

_queries_of = Transaction.queries.through.objects
_accumulated_blocks = Transaction.accumulates.through.objects


@dataclass(frozen=True)
class _Accumulations:
    """Transactions of the service that carry headers of blocks, by the blocks' ids."""

    hashes: Mapping[int, str]
    """Hashes of those that brought a header to the registry."""
    under_way: Collection[int]
    """Blocks whose headers unseen ones (`_unseen`) carry."""


def _accumulations(registry: Deployment, blocks: Sequence[Block], confirmed: int) -> _Accumulations:
    columns = (f"transaction__{column}" for column in ("hash", "to", "succeeded", "state", "block_number"))
    rows = _accumulated_blocks.filter(block__in=blocks).order_by("-transaction").values_list("block", *columns)
    hashes: dict[int, str] = {}
    under_way: set[int] = set()
    for block, tx_hash, to, succeeded, state, number in rows:
        if succeeded and to in registry.addresses:
            # If there are several, the first transaction counts, because it comes last in this order.
            hashes[block] = tx_hash
        if state in LIVE_STATES or (number or 0) > confirmed:
            under_way.add(block)
    return _Accumulations(hashes, under_way)


def _unseen(confirmed: int) -> Q:
    """Select transactions without an observed effect: pending ones, and those mined after the `confirmed` block."""
    return Q(state__in=LIVE_STATES) | Q(block_number__gt=confirmed)


def _with_earlier_transactions(
    missing: Mapping[Block, Lacking], confirmed: int, accumulating: Collection[int]
) -> dict[Block, Lacking]:
    """Add to the missing facts those that unseen transactions (`_unseen`) may prove, and the number of failures.

    Reverted transactions are counted for the first few hundred of each block's queries.
    """
    sent = Transaction.objects.filter(_unseen(confirmed), proves_facts("queries__block"), queries=OuterRef("pk"))
    sent_for: dict[int | None, set[Fact]] = defaultdict(set)
    for query in Query.objects.filter(Exists(sent), block__in=list(missing)).iterator(chunk_size=_PER_READ):
        sent_for[query.block_id] |= set(facts.of(query))
    firsts = {
        block: sorted({pk for asking in lacked.missing.values() for pk in asking})[:_PER_STATEMENT]
        for block, lacked in missing.items()
    }
    # A cancelled transaction was no longer needed, so it doesn't count as a failure.
    cancelled = SignedTransaction.objects.filter(
        transaction=OuterRef("transaction"), hash=OuterRef("transaction__hash"), is_cancellation=True
    )
    failed = _queries_of.filter(~Exists(cancelled), transaction__succeeded=False)
    reverted: dict[int, set[int]] = defaultdict(set)
    for chunk in chunks(sorted({pk for queries in firsts.values() for pk in queries}), _PER_STATEMENT):
        for pk, transaction in failed.filter(query__in=chunk).values_list("query", "transaction"):
            reverted[pk].add(transaction)
    return {
        block: replace(
            lacked,
            sent_for=sent_for[block.pk],
            failures=len(set[int]().union(*(reverted[pk] for pk in firsts[block] if pk in reverted))),
            is_accumulating=block.pk in accumulating,
        )
        for block, lacked in missing.items()
    }


def _proven_by(registry: Deployment, queries: Collection[int]) -> dict[int, str]:
    """Return, by query id, the hash of this service's mined transaction that proved the query to the registry."""
    proving = proves_facts("query__block", "transaction")
    sent_here = _queries_of.filter(transaction__to__in=registry.addresses)
    hashes: dict[int, str] = {}
    for chunk in chunks(sorted(queries), _PER_STATEMENT):
        mined = sent_here.filter(proving, query__in=chunk, transaction__succeeded=True).order_by("pk")
        hashes |= dict(mined.values_list("query", "transaction__hash"))
    return hashes


# --- At the end -------------------------------------------------------------------------------------------------------


def path(
    context: Context, block: Block, target: Header, *, is_first: bool
) -> PathFound | Preparation | NotYet | TooFar:
    """Find a path to a header's hash for a block. Raises `NodeUnavailable`, `RpcRefused`."""
    # If the block wasn't waiting for a path, its earlier attempts failed for another reason.
    awaits_branch = block.attempts < _BRANCH_ATTEMPTS or not block.waits_for_path
    plan = building.find(context.connection, target, (), awaits_branch=awaits_branch, is_self_funded=False)
    return replace(plan, is_first=is_first) if isinstance(plan, PathFound) else plan


def states(context: Context, blocks: Sequence[Block], asking: ByBlock[OpenRequests]) -> ByBlock[BlockState]:
    # All open queries of a block wait for its newest pending transaction of any kind, even if that serves only some.
    waiting = [block for block in blocks if asking[block.pk].senders]
    sent = _queries_of.filter(query__block__in=waiting, transaction__state__in=LIVE_STATES).order_by()
    newest = dict(sent.values_list("query__block").annotate(newest=Max("transaction")))
    rows = Transaction.objects.defer("data").select_related("signer").prefetch_related("versions")
    transactions = {tx.pk: tx for tx in rows.filter(pk__in=newest.values())} if newest else {}
    by_block: ByBlock[BlockState] = {}
    for block in blocks:
        requests, tx = asking[block.pk], transactions.get(newest.get(block.pk, 0))
        by_block[block.pk] = BlockState(
            is_open=bool(requests.senders),
            is_under_way=tx is not None,
            # A mined transaction only needs time until it is confirmed.
            waits_for=tx.waits_for if tx and tx.state == TransactionState.PENDING else None,
            is_left_to_others=requests.senders == {Sender.SELF} and requests.steps <= set(PROVABLE_STEPS),
            checked_number=block.checked_number,
            final=context.heads.final,
            poll_seconds=context.poll_seconds,
            block_seconds=context.destination_rpc.chain.block_seconds,
        )
    return by_block
