"""Observations of blocks for decisions: the current state of rows and chains.

Functions for several blocks return observations by block id, or the error if a chain doesn't answer about a block.
They don't change blocks. Costly reads are made only for blocks that need them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

from django.db.models import Exists, F, Max, OuterRef, Q, Value, Window
from django.db.models.functions import RowNumber

from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.node_errors import ChainError
from chains.nodes.questions import BlockIdentifier
from chains.nodes.rpc import RpcClient, result
from chains.tries.header import Header
from config.database.statements import chunks
from proving import facts, failures, sources
from proving.connections import Context
from proving.facts import Fact, RegistryView, TimeFact, ViewRequest, proves_facts
from proving.failures import NO_TRIES, Tries
from proving.models import LIVE_STATES, ChainWatch, FactsRegistry, Transaction, TransactionState
from proving.paths import building, planning
from proving.reading import provable_blocks
from proving.reconcile.observation import (
    BlockOfTime,
    BlockState,
    Checked,
    Gone,
    Observation,
    OpenQuery,
    OpenRequests,
    SourceBlock,
    Trust,
    Unfetched,
    UnprovenFacts,
)
from proving.registries.deployments import Deployment
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
    StepKind,
    open_queries,
)
from queries.waits import WaitReason

# Maximum queries that a turn observes. It limits the turn's memory and duration.
_QUERIES_PER_LOOK = 1000
# Maximum rows named in one statement, and maximum rows read at a time.
_PER_STATEMENT, _PER_READ = 500, 1000

State = TypeVar("State")
ByBlock: TypeAlias = dict[int, State]
"""Observations by block id."""
Observed: TypeAlias = dict[int, State | ChainError]
"""Observations by block id, or the error if a chain gives no answer about a block."""


def _by_block(blocks: Sequence[Block], queries: Iterable[Query]) -> ByBlock[list[Query]]:
    by_block: ByBlock[list[Query]] = {block.pk: [] for block in blocks}
    for query in queries:
        assert query.block_id is not None, "it is one of these"
        by_block[query.block_id].append(query)
    return by_block


def open_requests(blocks: Sequence[Block]) -> ByBlock[OpenRequests]:
    rows = open_queries(blocks).order_by().values_list("block", "batch__sender", "step").distinct()
    requests: ByBlock[OpenRequests] = {block.pk: OpenRequests(set(), set()) for block in blocks}
    for block, sender, step in rows:
        requests[block].senders.add(sender)
        requests[block].steps.add(step)
    return requests


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
            confirmed=context.heads.confirmed,
            poll_seconds=context.poll_seconds,
        )
        for (block, number), header in zip(noted.items(), headers, strict=True)
    }


def gone(context: Context, block: Block) -> Gone:
    """Read the completed facts of a block from the registry again. Raises `NodeUnavailable`, `RpcRefused`.

    Facts of DONE batches in replaced registries are left out.
    """
    ends = {"destination_chain_id": block.destination_chain_id, "source_chain_id": block.source_chain_id}
    replaced_at = FactsRegistry.objects.filter(**ends).aggregate(last=Max("replaced_at"))["last"]
    rows = Query.objects.filter(block=block).exclude(batch__status__in=[BatchStatus.REJECTED, BatchStatus.RECEIVED])
    if replaced_at is not None:
        rows = rows.exclude(batch__status=BatchStatus.DONE, batch__finished_at__lte=replaced_at)
    read = partial(
        facts.read, context.destination_rpc, context.registry.contract, block.number, at=context.heads.confirmed.number
    )
    proven = list(rows.filter(Q(step__isnull=True) | Q(step=StepKind.FACTS_PROVEN)).values_list("pk", flat=True))
    is_root = bool(proven) and _is_root(block, read([]).state_root)
    # Facts about transactions may be proven without the block's state root.
    completed = (rows if is_root else rows.filter(kind=QueryKind.ENTRY)).filter(step__isnull=True).order_by("pk")
    queries = list(completed) if proven else []
    if not (is_root or queries):
        # A registry whose creation was rolled back has no code for a while.
        return Gone(lacking_header=proven)
    completed_facts = _facts_of(queries)
    comparison = facts.compare(queries, read(completed_facts), facts.proven({block: completed_facts})[block.pk])
    incomplete = {pk for pks in comparison.missing.values() for pk in pks}
    if is_root:
        of_header = {query.pk for query in queries if query.kind == QueryKind.HEADER}
        lacking_header, lacking_facts = sorted(incomplete & of_header), sorted(incomplete - of_header)
    else:
        still_proven = {query.pk for query in queries} - incomplete
        lacking_header, lacking_facts = [pk for pk in proven if pk not in still_proven], []
    return Gone(lacking_header, lacking_facts, comparison.contradiction)


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
    absent = [at for at, header in enumerate(headers) if header is None and numbers[at] <= latest.number]
    for at, header in zip(absent, rpc.ask([questions.header(numbers[at]) for at in absent]), strict=True):
        headers[at] = header
    return _SourceHeaders(headers, latest.number)


def unfetched(
    context: Context, blocks: Sequence[Block], faults: Mapping[int, Mapping[int, WaitReason]]
) -> ByBlock[Unfetched]:
    """Return the queries whose proofs couldn't be fetched, for blocks that have or had such queries."""
    by_block: ByBlock[Unfetched] = {}
    source = context.source_rpc.chain.id
    watch = ChainWatch.objects.filter(pk=source).first() if any(faults.values()) else None
    for block in blocks:
        of_block = faults.get(block.pk, {})
        refused = [pk for pk, fault in of_block.items() if fault.code in {"proof_refused", *RejectionCode}]
        is_withheld = watch is not None and provable_blocks.proved_lately(watch, block.number, watch.number or 0)
        if of_block or block.refused_since is not None:
            by_block[block.pk] = Unfetched(
                source=source,
                number=block.number,
                faults=dict(of_block),
                refused=refused,
                withheld=[pk for pk in refused if is_withheld and of_block[pk].code == "proof_refused"],
                refused_since=block.refused_since,
                now=clock.earliest(),
            )
    return by_block


# --- Facts of the registry --------------------------------------------------------------------------------------------


def registry(
    context: Context,
    blocks: Sequence[Block],
    open_requests: Mapping[int, OpenRequests],
    completing: Collection[int] = (),
) -> Observed[Observation]:
    """Read which facts of the blocks' open queries the registry holds and lacks. The blocks' headers must be stored.

    `open_requests` shows whether any of the queries are left to others. The next write completes INITIAL_STATE of the
    queries `completing` (ids), whose proofs are stored.
    """
    newest, confirmed = context.heads.latest.number, context.heads.confirmed.number
    is_extending = building.extending(context.connection, newest).exists()
    # A chain knows its head's hash only in the pending block. Trust in another hash that exists only there depends on a
    # pending transaction. If that fails or is cancelled, later transactions would fail, too.
    vouched_at: BlockIdentifier = "pending" if context.connection.is_own and not is_extending else "latest"
    accumulations = _accumulations(context.registry, blocks, confirmed)
    has_others = any(Sender.SELF in open_requests[block.pk].senders for block in blocks)
    queries = _idle_queries(blocks, confirmed, completing, has_others=has_others)
    observations = _compare(context, blocks, queries, accumulations.hashes, vouched_at)
    # Filtering by step is faster than by id. Most of thousands of queries are past these steps, and each listed id
    # costs time.
    steps = Q(step__in=[StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED])
    awaiting = open_queries(blocks).filter(steps | Q(pk__in=completing)).only("block", "kind", "timestamp", "step")
    awaiting_header = _by_block(blocks, awaiting.annotate(sender=F("batch__sender")).order_by("pk"))
    for pk, observation in observations.items():
        if isinstance(observation, Observation):
            observations[pk] = replace(observation, awaiting_header=list(map(OpenQuery.of, awaiting_header[pk])))
    unproven = _with_earlier_transactions(
        context.registry, _unproven(blocks, observations), confirmed, accumulations.under_way
    )
    path_tries = failures.of_path(context.registry) if unproven else NO_TRIES
    return _with_trust(context, observations, unproven, vouched_at, is_extending=is_extending, path_tries=path_tries)


def of_batch(context: Context, blocks: Sequence[Block], batch: str) -> Observed[Observation]:
    """Read which facts of one batch's open queries the registry lacks.

    All missing facts count as facts to send, even if pending transactions contain them. Raises `OutOfTime` between
    requests to nodes.
    """
    rows = open_queries(blocks).filter(batch=batch).exclude(step=StepKind.INITIAL_STATE)
    queries = _by_block(blocks, rows.annotate(sender=Value(Sender.OPERATOR)).order_by("pk"))
    unread = {pk: list(chunks(of_block, _QUERIES_PER_LOOK)) or [[]] for pk, of_block in queries.items()}
    observations: Observed[Observation] = {}
    reading = blocks
    while reading:
        some = {block.pk: unread[block.pk].pop(0) for block in reading}
        observations |= _compare(context, reading, some, {}, "pending")
        context.connection.check_time()
        # A block's next queries are read if the registry holds all facts of those before.
        reading = [
            block
            for block in reading
            if unread[block.pk]
            and isinstance(answer := observations[block.pk], Observation)
            and not (answer.unproven or answer.contradiction)
        ]
    for pk, observation in observations.items():
        if isinstance(observation, Observation):
            observations[pk] = replace(observation, has_unread_queries=bool(unread[pk]))
    unproven = _unproven(blocks, observations)
    return _with_trust(context, observations, unproven, "pending", is_extending=False, path_tries=NO_TRIES)


def _unproven(blocks: Sequence[Block], observations: Observed[Observation]) -> dict[Block, UnprovenFacts]:
    """Return the missing facts of blocks that lack any."""
    return {
        block: observation.unproven
        for block in blocks
        if isinstance(observation := observations[block.pk], Observation) and observation.unproven
    }


def _compare(
    context: Context,
    blocks: Sequence[Block],
    queries: Mapping[int, Sequence[Query]],
    accumulated: Mapping[int, str],
    vouched_at: BlockIdentifier,
) -> Observed[Observation]:
    """Compare the facts of these queries with the registry, and read whether it can accept the blocks' headers.

    `accumulated` has hashes of this service's transactions by block id.
    """
    requested = {pk: _facts_of(of_block) for pk, of_block in queries.items()}
    answers = _registry_views(context, blocks, requested, accumulated, vouched_at)
    readable = [block for block, (view, _) in answers.items() if isinstance(view, RegistryView) and view.facts]
    proven_here = facts.proven({block: requested[block.pk] for block in readable})
    proven_by = _proven_by(context.registry, [query.pk for block in readable for query in queries[block.pk]])
    observations: Observed[Observation] = {}
    for block, (answer, newest) in answers.items():
        try:
            view = result(answer)
            comparison = facts.compare(queries[block.pk], view, proven_here.get(block.pk, {}))
            is_confirmed = _is_root(block, view.state_root)
            open_by_id = {query.pk: OpenQuery.of(query) for query in queries[block.pk]}
            unproven: UnprovenFacts | None = None
            if comparison.missing:
                header = Header.decode(bytes(block.header_rlp or b""))
                unproven = UnprovenFacts(
                    comparison.missing,
                    root_is_known=is_confirmed or _is_root(block, result(newest).state_root),
                    roots=[
                        root.field for root in facts.roots_of(requested[block.pk]) if view.facts.get(root) is not None
                    ],
                    left_to_others=[pk for pk, query in open_by_id.items() if query.is_left_to_others],
                    trust=Trust(header, result(view.vouches)),
                )
            observations[block.pk] = Observation(
                number=block.number,
                hash=bytes.fromhex(block.hash[2:]),
                timestamp=block.timestamp,
                path_left=block.path_left,
                source=block.source_chain_id,
                poll_seconds=context.poll_seconds,
                source_poll_seconds=heads.poll_seconds(context.source_rpc.chain),
                awaiting_header=[],
                queries=open_by_id,
                view=view,
                root_is_confirmed=is_confirmed,
                accumulated_by=accumulated.get(block.pk, "") if is_confirmed else "",
                proven_by=proven_by,
                contradiction=comparison.contradiction,
                unproven=unproven,
            )
        except ChainError as error:
            observations[block.pk] = error
    return observations


def _registry_views(
    context: Context,
    blocks: Sequence[Block],
    requested: Mapping[int, Sequence[Fact]],
    accumulated: Mapping[int, str],
    vouched_at: BlockIdentifier,
) -> dict[Block, tuple[RegistryView | ChainError, RegistryView | ChainError]]:
    """Return the registry's views of the blocks, at the confirmed block, and at the newest block without any facts.

    The views at the confirmed block have these facts and the roots of entries. No fact is proven below an unknown state
    root, and each fact costs a request. So facts are asked for at once only if a transaction is `accumulated` for their
    block, or if they are about entries, whose proofs need no state root. The others are asked for if the first answers
    show that the registry knows the block's state root.
    """
    rpc, registry, confirmed = context.destination_rpc, context.registry.contract, context.heads.confirmed.number
    all_facts = {pk: list(dict.fromkeys([*wanted, *facts.roots_of(wanted)])) for pk, wanted in requested.items()}
    at_once = [
        ViewRequest(
            block.number,
            all_facts[block.pk]
            if block.pk in accumulated
            else [*facts.entry_facts(all_facts[block.pk]), *facts.roots_of(all_facts[block.pk])],
            confirmed,
            bytes.fromhex(block.hash[2:]),
            vouched_at,
        )
        for block in blocks
    ]
    told = facts.views(rpc, registry, [*at_once, *(ViewRequest(block.number, [], "latest") for block in blocks)])
    views, newest = dict(zip(blocks, told[: len(blocks)], strict=True)), told[len(blocks) :]
    incomplete = {
        block: view
        for block, view in views.items()
        if isinstance(view, RegistryView)
        and _is_root(block, view.state_root)
        and any(fact not in view.facts for fact in all_facts[block.pk])
    }
    requests = [ViewRequest(block.number, all_facts[block.pk], confirmed) for block in incomplete]
    for (block, first), view in zip(incomplete.items(), facts.views(rpc, registry, requests), strict=True):
        views[block] = replace(view, vouches=first.vouches) if isinstance(view, RegistryView) else view
    return dict(zip(blocks, zip(views.values(), newest, strict=True), strict=True))


def _facts_of(queries: Sequence[Query]) -> list[Fact]:
    return list(dict.fromkeys(fact for query in queries for fact in facts.of(query)))


def _with_trust(
    context: Context,
    observations: Observed[Observation],
    unproven: Mapping[Block, UnprovenFacts],
    vouched_at: BlockIdentifier,
    *,
    is_extending: bool,
    path_tries: Tries,
) -> Observed[Observation]:
    """Add to the observations the missing facts, and the registry's trust in the headers that these facts need."""
    registry, config, head = context.registry.contract, context.connection.config, context.heads.latest.number
    # Facts to send take precedence. Facts that others send must not add another header.
    with_header = {
        block: of_block.to_send_with_header or of_block.missing_with_header for block, of_block in unproven.items()
    }
    # A block's end is only known from the next block's header.
    timed = [block for block, missing in with_header.items() if any(isinstance(fact, TimeFact) for fact in missing)]
    read = _headers(context.source_rpc, [block.number + 1 for block in timed], {})
    following = dict(zip(timed, read.headers, strict=True))
    existing = {block: header for block, header in following.items() if isinstance(header, Header)}
    calls = [questions.call(*registry.vouches(header.number, header.hash), vouched_at) for header in existing.values()]
    vouches = dict(zip(existing, context.destination_rpc.ask(calls), strict=True))
    completed = dict(observations)
    for block, of_block in unproven.items():
        trust = of_block.trust if with_header[block] else None
        try:
            if block in following:
                header = result(following[block])
                if header is None and block.number < read.newest:
                    context.source_rpc.must_have(block.number + 1, header)
                trust = Trust(header, registry.decode_vouches(vouches[block])) if header else None
            if trust is not None:
                trust = replace(
                    trust,
                    is_vouched_for_long=sources.of(config).vouches_for_long(config, trust.header.number, head),
                    is_extending=is_extending,
                    path_tries=path_tries,
                    may_jump=is_extending and planning.may_jump(context.connection, trust.header),
                )
            observation = result(observations[block.pk])
            completed[block.pk] = replace(observation, unproven=replace(of_block, trust=trust))
        except ChainError as error:
            completed[block.pk] = error
    return completed


def _idle_queries(
    blocks: Sequence[Block], confirmed: int, completing: Collection[int], *, has_others: bool
) -> ByBlock[list[Query]]:
    """Return the queries to observe: open queries for which no transaction is pending.

    A transaction that was mined after the `confirmed` block counts as pending. Queries that the operator pays for come
    first. If there are too many others, a random part is chosen: nobody may ever prove some, and these must not always
    come first.
    """
    under_way = Transaction.objects.filter(_unseen(confirmed), proves_facts("queries__block"), queries=OuterRef("pk"))
    waiting = open_queries(blocks).filter(~Q(step=StepKind.INITIAL_STATE) | Q(pk__in=completing))
    idle = waiting.filter(~Exists(under_way)).annotate(sender=F("batch__sender"))
    # One query of each batch comes first, then the second of each, so that a large batch that can't pay doesn't delay
    # other batches.
    rank = Window(RowNumber(), partition_by=["block", "batch"], order_by="pk")
    of_operator = idle.exclude(sender=Sender.SELF).annotate(rank=rank).order_by("rank", "pk")[:_QUERIES_PER_LOOK]
    of_others = idle.filter(sender=Sender.SELF).order_by("?")[:_QUERIES_PER_LOOK] if has_others else ()
    return _by_block(blocks, [*of_operator, *of_others])


def _is_root(block: Block, root: bytes) -> bool:
    """Return whether the registry's root is the block's state root."""
    return hex_data(root) == block.state_root


def block_of_time(context: Context, timestamp: int) -> BlockOfTime:
    head = context.source_rpc.head()
    if head.timestamp <= timestamp:
        return BlockOfTime(has_later=False)
    number = context.connection.block_at(timestamp, head)
    return BlockOfTime(has_later=True, number=number)


# --- Earlier transactions ---------------------------------------------------------------------------------------------

_queries_of = Transaction.queries.through.objects


@dataclass(frozen=True)
class _Accumulations:
    """Transactions of the service that carry headers of blocks, by the blocks' ids."""

    hashes: Mapping[int, str]
    """Hashes of those that brought a header to the registry."""
    under_way: Collection[int]
    """Blocks whose headers unseen ones (`_unseen`) carry."""


def _accumulations(registry: Deployment, blocks: Sequence[Block], confirmed: int) -> _Accumulations:
    columns = (f"transaction__{column}" for column in ("hash", "to", "succeeded", "state", "block_number"))
    carried = Transaction.accumulates.through.objects.filter(block__in=blocks).order_by("-transaction")
    hashes: dict[int, str] = {}
    under_way: set[int] = set()
    for block, tx_hash, to, succeeded, state, number in carried.values_list("block", *columns):
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
    registry: Deployment, unproven: Mapping[Block, UnprovenFacts], confirmed: int, accumulating: Collection[int]
) -> dict[Block, UnprovenFacts]:
    """Add to the missing facts those that unseen transactions (`_unseen`) may prove, and the failed transactions."""
    sent = Transaction.objects.filter(_unseen(confirmed), proves_facts("queries__block"), queries=OuterRef("pk"))
    sent_for: dict[int | None, set[Fact]] = defaultdict(set)
    for query in Query.objects.filter(Exists(sent), block__in=list(unproven)).iterator(chunk_size=_PER_READ):
        sent_for[query.block_id] |= set(facts.of(query))
    failed = failures.of_facts(registry, list(unproven)) if unproven else {}
    batches = dict(open_queries([block for block in unproven if block.pk in failed]).values_list("pk", "batch"))
    return {
        block: replace(
            of_block,
            sent_for=sent_for[block.pk],
            failed=failed.get(block.pk, ()),
            batches=batches,
            is_accumulating=block.pk in accumulating,
        )
        for block, of_block in unproven.items()
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


def states(context: Context, blocks: Sequence[Block], open_requests: Mapping[int, OpenRequests]) -> ByBlock[BlockState]:
    # All open queries of a block wait for its newest pending transaction of any kind, even if that serves only some.
    waiting = [block for block in blocks if open_requests[block.pk].senders]
    sent = _queries_of.filter(query__block__in=waiting, transaction__state__in=LIVE_STATES).order_by()
    newest = dict(sent.values_list("query__block").annotate(newest=Max("transaction")))
    rows = Transaction.objects.defer("data").select_related("signer").prefetch_related("versions")
    transactions = {tx.pk: tx for tx in rows.filter(pk__in=newest.values())} if newest else {}
    why_waits = _why_wait(context.destination_rpc.chain, [*transactions.values()])
    by_block: ByBlock[BlockState] = {}
    for block in blocks:
        requests, tx = open_requests[block.pk], transactions.get(newest.get(block.pk, 0))
        by_block[block.pk] = BlockState(
            is_open=bool(requests.senders),
            is_under_way=tx is not None,
            waits_for=why_waits.get(tx) if tx else None,
            is_left_to_others=requests.senders == {Sender.SELF} and requests.steps <= set(PROVABLE_STEPS),
            checked_number=block.checked_number,
            final=context.heads.final,
            poll_seconds=context.poll_seconds,
            block_seconds=context.destination_rpc.chain.block_seconds,
        )
    return by_block


def _why_wait(chain: Chain, live: Sequence[Transaction]) -> dict[Transaction, WaitReason | None]:
    """Return for each transaction that is under way what it waits for. None: it is mined, and only needs time."""
    reasons: dict[Transaction, WaitReason | None] = {}
    for is_mined in (False, True):
        alike = [tx for tx in live if (tx.state == TransactionState.MINED) == is_mined]
        waiting = Transaction.objects.filter(pk__in=[tx.pk for tx in alike])
        stands = heads.standing(chain, waiting, is_mined=is_mined) if alike else None
        for tx in alike:
            reasons[tx] = stands or (None if is_mined else tx.waits_for)
    return reasons
