"""What there is to know about blocks before deciding: rows and chains as they are now.

Functions about several blocks return what they observe by the ids of the blocks, or why a chain gives no answer about
one. They change nothing about the blocks. What is costly to know is only looked up where it matters.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeAlias, TypeVar

from django.db.models import Exists, F, Max, Min, OuterRef, Q, Value, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from chains import questions
from chains.encoding import hex_data
from chains.header import Header
from chains.node_errors import ChainError
from chains.questions import BlockIdentifier
from chains.rpc import result
from database.statements import chunks
from proving import block_selection, facts, sources
from proving.connections import Context
from proving.deployments import Deployment
from proving.facts import Fact, RegistryView, TimeFact, ViewRequest
from proving.heads import poll_seconds
from proving.models import LIVE_STATES, SignedTransaction, Transaction, TransactionState, proves_facts
from proving.paths import building, planning
from proving.paths.building import PathFound
from proving.paths.planning import TooFar
from proving.reconcile.observation import (
    BlockOfTime,
    Checked,
    Gone,
    Lacking,
    Observation,
    OpenQuery,
    OpenRequests,
    Rest,
    SourceBlock,
    Trust,
    Unfetched,
)
from proving.sources import NotYet, Preparation
from queries import clock
from queries.models import PROVABLE_STEPS, BatchStatus, Block, Query, Sender, Step, StepKind, StepStatus, open_queries
from queries.waits import WaitReason

# Queries that a turn observes: bounds its memory and its length.
_QUERIES_PER_LOOK = 1000
# Rows named in one statement, and read at a time.
_PER_STATEMENT, _PER_READ = 500, 1000
# The attempts, more than three minutes, for which a branch to a block that can't be had is waited for, before a path
# is taken that costs much more.
_BRANCH_ATTEMPTS = 8

Answer = TypeVar("Answer")
Seen = TypeVar("Seen")
ByBlock: TypeAlias = dict[int, Seen]
"""By the ids of blocks."""
Observed: TypeAlias = dict[int, Seen | ChainError]
"""The same, or why a chain gives no answer about a block."""


def _of_each(
    blocks: Sequence[Block], answers: Sequence[Answer | ChainError], read: Callable[[Block, Answer], Seen]
) -> Observed[Seen]:
    """Return what is read of each block's answer, where there is one."""
    return {
        block.pk: answer if isinstance(answer, ChainError) else read(block, answer)
        for block, answer in zip(blocks, answers, strict=True)
    }


def _of_blocks(blocks: Sequence[Block], queries: Iterable[Query]) -> ByBlock[list[Query]]:
    found: ByBlock[list[Query]] = {block.pk: [] for block in blocks}
    for query in queries:
        assert query.block_id is not None, "it is one of these"
        found[query.block_id].append(query)
    return found


def open_requests(blocks: Sequence[Block]) -> ByBlock[OpenRequests]:
    rows = open_queries(blocks).order_by().values_list("block", "batch__sender", "step").distinct()
    found: dict[int, list[tuple[str, str | None]]] = {block.pk: [] for block in blocks}
    for block, sender, step in rows:
        found[block].append((sender, step))
    return {pk: OpenRequests({sender for sender, _ in each}, {step for _, step in each}) for pk, each in found.items()}


# --- When the destination was reorganised -----------------------------------------------------------------------------


def checked(context: Context, blocks: Sequence[Block]) -> Observed[Checked]:
    """Read the blocks again in which facts were last read, for those blocks of which something was completed."""

    def read(block: Block, header: Header | None) -> Checked:
        return Checked(
            context.destination_rpc.chain.id,
            block.checked_number or 0,
            bytes.fromhex(block.checked_hash[2:]),
            header,
            context.heads.confirmed.number < (block.checked_number or 0),
            context.poll_seconds,
        )

    noted = [block for block in blocks if block.checked_number is not None]
    headers = context.destination_rpc.ask([questions.header(block.checked_number or 0) for block in noted])
    return _of_each(noted, headers, read)


def gone(context: Context, block: Block) -> Gone:
    """Read what the registry has of a block's facts that were completed. Raises `NodeUnavailable`, `RpcRefused`."""
    seen = Query.objects.filter(block=block).exclude(batch__status__in=[BatchStatus.REJECTED, BatchStatus.RECEIVED])
    read = partial(
        facts.read, context.destination_rpc, context.registry.contract, block.number, at=context.heads.confirmed.number
    )
    if not _is_root(block, read([]).state_root):
        proven = seen.filter(Q(step__isnull=True) | Q(step=StepKind.ACCOUNT_ACCUMULATED))
        return Gone(root_is_confirmed=False, proven=list(proven.values_list("pk", flat=True)))
    queries = list(seen.filter(step__isnull=True).order_by("pk"))
    wanted = _facts_of(queries)
    found = facts.compare(queries, read(wanted), facts.proven({block: wanted})[block.pk])
    lacking = {pk for asking in found.missing.values() for pk in asking}
    return Gone(
        root_is_confirmed=True,
        lacking_of_header=[query.pk for query in queries if query.pk in lacking and not query.address],
        lacking_of_accounts=[query.pk for query in queries if query.pk in lacking and query.address],
        contradiction=found.contradiction,
    )


# --- What the source chain proves -------------------------------------------------------------------------------------


def source_blocks(context: Context, blocks: Sequence[Block]) -> Observed[SourceBlock]:
    rpc, chain = context.source_rpc, context.source_rpc.chain
    headers = rpc.ask([questions.header(block.number) for block in blocks])
    latest = rpc.ask([questions.header("latest")])[0] if None in headers else None
    head = latest.number if isinstance(latest, Header) else 0
    if isinstance(latest, ChainError):
        # How long to wait for a block that isn't there nobody knows.
        headers = [latest if header is None else header for header in headers]

    def read(block: Block, header: Header | None) -> SourceBlock:
        # Where its bytes were pruned it is taken again.
        stored_hash = block.hash if block.header_rlp is not None else ""
        seconds = (block.number - head - 1) * chain.block_seconds
        return SourceBlock(chain.id, block.number, header, stored_hash, poll_seconds(chain), head, seconds)

    return _of_each(blocks, headers, read)


def unfetched(
    context: Context, blocks: Sequence[Block], faults: Mapping[int, Mapping[int, WaitReason]]
) -> ByBlock[Unfetched]:
    """Return what could not be fetched, of those blocks of which not all was, now and before."""
    found: ByBlock[Unfetched] = {}
    for block in blocks:
        of_block = faults.get(block.pk, {})
        if of_block or block.refused_since is not None:
            found[block.pk] = Unfetched(
                source=context.source_rpc.chain.id,
                number=block.number,
                faults=dict(of_block),
                refused=[pk for pk, fault in of_block.items() if fault.code == "proof_refused"],
                refused_since=block.refused_since,
                now=clock.earliest(),
            )
    return found


# --- What the registry holds, and lacks -------------------------------------------------------------------------------


def registry(context: Context, blocks: Sequence[Block]) -> Observed[Observation]:
    """Read what the registry holds and lacks of what the blocks' open queries ask for. Their headers are stored."""
    newest, confirmed = context.heads.latest.number, context.heads.confirmed.number
    is_extending = building.extending(context.connection, newest).exists()
    # A chain knows its head's hash only in the pending block. Elsewhere what is pending made a hash trusted. That may
    # still fail, or be cancelled, and what was sent behind it would fail with it.
    vouched_at: BlockIdentifier = "pending" if context.connection.is_own and not is_extending else "latest"
    accumulated = _accumulated_by(context.registry, blocks)
    seen = _compared(context, blocks, _looked_at(blocks, confirmed), accumulated, vouched_at)
    missing = _missing(blocks, seen)
    sent_for, accumulating = _facts_under_way(list(missing), confirmed), _accumulating(list(missing), confirmed)
    failures = _failures(
        {block.pk: sorted({pk for pks in one.missing.values() for pk in pks}) for block, one in missing.items()}
    )
    lacking = {
        block: replace(
            one,
            sent_for=sent_for[block.pk],
            failures=failures[block.pk],
            is_accumulating=block.pk in accumulating,
        )
        for block, one in missing.items()
    }
    awaiting_header = _awaiting_header(blocks)
    since = _waits_since(blocks) if context.destination_rpc.chain.gather_seconds else {}
    for pk, one in seen.items():
        if isinstance(one, Observation):
            seen[pk] = replace(one, awaiting_header=awaiting_header[pk], waits_since=since.get(pk))
    pause = building.pause_after_failures(context.connection) if lacking else 0
    return _with_trust(context, seen, lacking, vouched_at, is_extending=is_extending, pause=pause)


def of_batch(context: Context, blocks: Sequence[Block], batch: str) -> Observed[tuple[Observation, bool]]:
    """Read what the registry lacks of what one batch's open queries ask for, and whether the batch asks for more.

    It is as if all was to be sent for it, and nothing was under way. Raises `OutOfTime` between exchanges.
    """
    rows = open_queries(blocks).filter(batch=batch).exclude(step=StepKind.INITIAL_STATE)
    asking = _of_blocks(blocks, rows.annotate(sender=Value(Sender.OPERATOR)).order_by("pk"))
    left = {pk: list(chunks(queries, _QUERIES_PER_LOOK)) or [[]] for pk, queries in asking.items()}
    seen: Observed[Observation] = {}
    while looking := [block for block in blocks if left[block.pk] and _holds_all(seen.get(block.pk))]:
        some = {block.pk: left[block.pk].pop(0) for block in looking}
        seen |= _compared(context, looking, some, {}, "pending")
        context.connection.check_time()
    found = _with_trust(context, seen, _missing(blocks, seen), "pending", is_extending=False, pause=0)
    return {pk: one if isinstance(one, ChainError) else (one, bool(left[pk])) for pk, one in found.items()}


def _holds_all(seen: Observation | ChainError | None) -> bool:
    """Return whether the registry lacks nothing so far."""
    return seen is None or (isinstance(seen, Observation) and seen.lacking is None and not seen.contradiction)


def _missing(blocks: Sequence[Block], seen: Observed[Observation]) -> dict[Block, Lacking]:
    """Return what the registry lacks, of those blocks of which it lacks something."""
    return {block: one.lacking for block in blocks if isinstance(one := seen[block.pk], Observation) and one.lacking}


def _compared(
    context: Context,
    blocks: Sequence[Block],
    looked_at: Mapping[int, Sequence[Query]],
    accumulated: Mapping[int, str],
    vouched_at: BlockIdentifier,
) -> Observed[Observation]:
    """Compare what these queries ask for with what the registry holds, and ask whether it can take the blocks' headers.

    Facts of blocks are asked for at once if a transaction (by the blocks' ids, its hash) has `accumulated` the header.
    Those of others follow where the state root is there: below an unknown one nothing is proven, and of thousands each
    is a question.
    """
    rpc, registry, confirmed = context.destination_rpc, context.registry.contract, context.heads.confirmed.number
    wanted = {pk: _facts_of(queries) for pk, queries in looked_at.items()}
    requests = [
        ViewRequest(block.number, wanted[block.pk] if block.pk in accumulated else (), confirmed) for block in blocks
    ]
    asked = [request.questions(registry) for request in requests]
    hashes = [(block.number, bytes.fromhex(block.hash[2:])) for block in blocks]
    told, roots, vouched = rpc.ask(
        [question for each in asked for question in each],
        [questions.call(*registry.state_root(block.number), "latest") for block in blocks],
        [questions.call(*registry.vouches(*one), vouched_at) for one in hashes],
    )
    rest = iter(told)
    views = {
        block: request.view(registry, [next(rest) for _ in each])
        for block, request, each in zip(blocks, requests, asked, strict=True)
    }
    lacking = [
        block
        for block, view in views.items()
        if isinstance(view, RegistryView)
        and _is_root(block, view.state_root)
        and any(fact not in view.facts for fact in wanted[block.pk])
    ]
    further = [ViewRequest(block.number, wanted[block.pk], confirmed) for block in lacking]
    views |= zip(lacking, facts.views(rpc, registry, further), strict=True)
    there = [block for block, view in views.items() if isinstance(view, RegistryView) and view.facts]
    here = facts.proven({block: wanted[block.pk] for block in there})
    proven_by = _proven_by(context.registry, [query.pk for block in there for query in looked_at[block.pk]])
    found: Observed[Observation] = {}
    for block, root, vouch in zip(blocks, roots, vouched, strict=True):
        try:
            view, queries = result(views[block]), looked_at[block.pk]
            comparison = facts.compare(queries, view, here.get(block.pk, {}))
            is_confirmed = _is_root(block, view.state_root)
            open_ones = {query.pk: _open_query(query) for query in queries}
            found[block.pk] = Observation(
                number=block.number,
                hash=bytes.fromhex(block.hash[2:]),
                timestamp=block.timestamp,
                attempts=block.attempts,
                path_left=block.path_left,
                source=block.source_chain_id,
                poll_seconds=context.poll_seconds,
                source_poll_seconds=poll_seconds(context.source_rpc.chain),
                now=timezone.now(),
                gather_seconds=rpc.chain.gather_seconds,
                waits_since=None,
                awaiting_header=[],
                asked=open_ones,
                view=view,
                root_is_confirmed=is_confirmed,
                accumulated_by=accumulated.get(block.pk, "") if is_confirmed else "",
                proven_by=proven_by,
                contradiction=comparison.contradiction,
                lacking=Lacking(
                    comparison.missing,
                    root_is_known=is_confirmed or _is_root(block, result(root)),
                    left_to_others=[pk for pk, query in open_ones.items() if query.is_left_to_others],
                    trust=Trust(_own_header(block), registry.decode_vouches(vouch)),
                )
                if comparison.missing
                else None,
            )
        except ChainError as error:
            found[block.pk] = error
    return found


def _facts_of(queries: Sequence[Query]) -> list[Fact]:
    return list(dict.fromkeys(fact for query in queries for fact in facts.of(query)))


def _waits_since(blocks: Sequence[Block]) -> ByBlock[datetime]:
    begun = Step.objects.filter(query__in=open_queries(blocks), status=StepStatus.IN_PROGRESS)
    by_block = begun.exclude(kind=StepKind.INITIAL_STATE).order_by().values_list("query__block")
    return {pk: since for pk, since in by_block.annotate(since=Min("started_at")) if pk is not None}


def _awaiting_header(blocks: Sequence[Block]) -> ByBlock[list[OpenQuery]]:
    # Of thousands most are past these steps, and each id in the statement costs time at each reconcile.
    awaiting = open_queries(blocks).filter(step__in=[StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED])
    rows = awaiting.only("block", "address", "timestamp", "step").annotate(sender=F("batch__sender")).order_by("pk")
    return {pk: [_open_query(query) for query in queries] for pk, queries in _of_blocks(blocks, rows).items()}


def _open_query(query: Query) -> OpenQuery:
    assert query.step is not None, "it is open"
    is_left_to_others: bool = query.sender == Sender.SELF  # type: ignore[attr-defined]  # of the annotation
    return OpenQuery(query.pk, not query.address, query.timestamp, StepKind(query.step), is_left_to_others)


def _with_trust(
    context: Context,
    seen: Observed[Observation],
    lacking: Mapping[Block, Lacking],
    at: BlockIdentifier,
    *,
    is_extending: bool,
    pause: float,
) -> Observed[Observation]:
    """Return what was seen with what the registry lacks, and with its trust in the headers that this needs."""
    registry, config, head = context.registry.contract, context.connection.config, context.heads.latest.number
    # By what is to be sent, if anything is: what others want besides must lead no further.
    needing = {block: one.needing or one.all_needing for block, one in lacking.items()}
    # Only the next block's header says when a block ended.
    timed = [block for block, missing in needing.items() if any(isinstance(fact, TimeFact) for fact in missing)]
    read = context.source_rpc.ask([questions.header(block.number + 1) for block in timed])
    following = dict(zip(timed, read, strict=True))
    there = {block: header for block, header in following.items() if isinstance(header, Header)}
    asked = [questions.call(*registry.vouches(header.number, header.hash), at) for header in there.values()]
    vouched = dict(zip(there, context.destination_rpc.ask(asked), strict=True))
    found = dict(seen)
    for block, one in lacking.items():
        trust = one.trust if needing[block] else None
        try:
            if block in following:
                header = result(following[block])
                trust = Trust(header, registry.decode_vouches(vouched[block])) if header else None
            if trust is not None:
                trust = replace(
                    trust,
                    is_vouched_for_long=sources.of(config).vouches_for_long(config, trust.header.number, head),
                    is_extending=is_extending,
                    pause_after_failures=pause,
                    may_jump=is_extending and planning.may_jump(context.connection, trust.header),
                )
            found[block.pk] = replace(result(seen[block.pk]), lacking=replace(one, trust=trust))
        except ChainError as error:
            found[block.pk] = error
    return found


def _own_header(block: Block) -> Header:
    assert block.header_rlp is not None, "INITIAL_STATE is completed"
    return Header.decode(bytes(block.header_rlp))


def _looked_at(blocks: Sequence[Block], confirmed: int) -> ByBlock[list[Query]]:
    """Return the queries to observe: open ones for which nothing is under way, or mined after the `confirmed` block.

    First come those for which something may be sent. If the others are many, they are chosen by lot: for some of them
    nobody may ever send anything, and these must not be the first each time.
    """
    under_way = Transaction.objects.filter(_unseen(confirmed), proves_facts("queries__block"), queries=OuterRef("pk"))
    waiting = open_queries(blocks).exclude(step=StepKind.INITIAL_STATE)
    idle = waiting.filter(~Exists(under_way)).annotate(sender=F("batch__sender"))
    # One of each batch, then the second of each: a batch of many that can't pay must not hold others up.
    rank = Window(RowNumber(), partition_by=["block", "batch"], order_by="pk")
    sent_for = idle.exclude(sender=Sender.SELF).annotate(rank=rank).order_by("rank", "pk")[:_QUERIES_PER_LOOK]
    others = idle.filter(sender=Sender.SELF).order_by("?")[:_QUERIES_PER_LOOK]
    return _of_blocks(blocks, [*sent_for, *others])


def _is_root(block: Block, root: bytes) -> bool:
    """Return whether this, as the registry has it, is the block's state root."""
    return hex_data(root) == block.state_root


def block_of_time(context: Context, timestamp: int) -> BlockOfTime:
    head = context.source_rpc.head()
    if head.timestamp <= timestamp:
        return BlockOfTime(has_later=False)
    number = block_selection.block_at(context.connection, timestamp, head)
    return BlockOfTime(has_later=True, number=number)


# --- What was sent before ---------------------------------------------------------------------------------------------

_queries_of = Transaction.queries.through.objects
_accumulated_blocks = Transaction.accumulates.through.objects


def _accumulated_by(registry: Deployment, blocks: Sequence[Block]) -> dict[int, str]:
    """Return the hash of the transaction of ours that brought the header to the registry, where one did."""
    rows = _accumulated_blocks.filter(
        block__in=blocks, transaction__to__in=registry.addresses, transaction__succeeded=True
    )
    # The first, where there are several.
    return dict(rows.order_by("-transaction").values_list("block", "transaction__hash"))


def _unseen(confirmed: int) -> Q:
    """Select transactions that are under way, or mined after the `confirmed` block, at which the chain is read."""
    return Q(state__in=LIVE_STATES) | Q(block_number__gt=confirmed)


def _accumulating(blocks: Sequence[Block], confirmed: int) -> set[int]:
    """Return the blocks (ids) whose header a transaction brings that is `unseen`."""
    rows = Transaction.objects.filter(_unseen(confirmed), accumulates__in=blocks)
    return set(rows.values_list("accumulates", flat=True))


def _facts_under_way(blocks: Sequence[Block], confirmed: int) -> dict[int, set[Fact]]:
    """Return, by the block's id, facts that transactions that are `unseen` may prove already, for other queries."""
    sent = Transaction.objects.filter(_unseen(confirmed), proves_facts("queries__block"), queries=OuterRef("pk"))
    found: dict[int, set[Fact]] = {block.pk: set() for block in blocks}
    for query in Query.objects.filter(Exists(sent), block__in=blocks).iterator(chunk_size=_PER_READ):
        found[query.block_id or 0] |= set(facts.of(query))
    return found


def _newest_under_way(blocks: Sequence[Block]) -> dict[int, Transaction]:
    """Return, by the block's id, the newest transaction under way for its queries, whatever it does, without data."""
    sent = _queries_of.filter(query__block__in=blocks, transaction__state__in=LIVE_STATES).order_by()
    newest = dict(sent.values_list("query__block").annotate(newest=Max("transaction")))
    rows = Transaction.objects.filter(pk__in=newest.values()).defer("data").prefetch_related("versions")
    by_pk = {tx.pk: tx for tx in rows} if newest else {}
    return {block: by_pk[tx] for block, tx in newest.items() if tx in by_pk}


def _proven_by(registry: Deployment, queries: Collection[int]) -> dict[int, str]:
    """Return, by a query's id, the hash of our mined transaction that proved it to the registry, if any did."""
    proving = proves_facts("query__block", "transaction")
    sent_here = _queries_of.filter(transaction__to__in=registry.addresses)
    hashes: dict[int, str] = {}
    for chunk in chunks(sorted(queries), _PER_STATEMENT):
        mined = sent_here.filter(proving, query__in=chunk, transaction__succeeded=True).order_by("pk")
        hashes |= dict(mined.values_list("query", "transaction__hash"))
    return hashes


def _failures(asking: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Count, by the block's id, the transactions for these queries of it, the first few hundred, that reverted."""
    firsts = {block: queries[:_PER_STATEMENT] for block, queries in asking.items()}
    reverted: dict[int, set[int]] = defaultdict(set)
    # One that was cancelled, because nobody wanted it any more, says nothing.
    cancelled = SignedTransaction.objects.filter(
        transaction=OuterRef("transaction"), hash=OuterRef("transaction__hash"), is_cancellation=True
    )
    sent_for = _queries_of.filter(~Exists(cancelled), transaction__succeeded=False)
    for chunk in chunks(sorted({pk for queries in firsts.values() for pk in queries}), _PER_STATEMENT):
        for query, transaction in sent_for.filter(query__in=chunk).values_list("query", "transaction"):
            reverted[query].add(transaction)
    return {
        block: len(set[int]().union(*(reverted[pk] for pk in queries if pk in reverted)))
        for block, queries in firsts.items()
    }


# --- At the end -------------------------------------------------------------------------------------------------------


def path(
    context: Context, block: Block, target: Header, *, is_first: bool
) -> PathFound | Preparation | NotYet | TooFar:
    """Find a path to a header's hash, for a block. Raises `NodeUnavailable`, `RpcRefused`."""
    # The attempts before may have failed for something else.
    awaits_branch = block.attempts < _BRANCH_ATTEMPTS or not block.waits_for_path
    found = building.find(context.connection, target, (), awaits_branch=awaits_branch, is_self_funded=False)
    return replace(found, is_first=is_first) if isinstance(found, PathFound) else found


def rest(context: Context, blocks: Sequence[Block], asking: ByBlock[OpenRequests]) -> ByBlock[Rest]:
    # The transaction that the open queries wait for, whichever of them it was sent for.
    under_way = _newest_under_way([block for block in blocks if asking[block.pk].senders])
    found: ByBlock[Rest] = {}
    for block in blocks:
        asked, tx = asking[block.pk], under_way.get(block.pk)
        found[block.pk] = Rest(
            is_open=bool(asked.senders),
            is_under_way=tx is not None,
            # What is mined takes its time, and waits for nobody.
            waits_for=tx.waits_for if tx and tx.state == TransactionState.PENDING else None,
            is_left_to_others=asked.senders == {Sender.SELF} and asked.steps <= set(PROVABLE_STEPS),
            checked_number=block.checked_number,
            final=context.heads.final,
            poll_seconds=context.poll_seconds,
            block_seconds=context.destination_rpc.chain.block_seconds,
        )
    return found
