"""What there is to know about blocks before deciding: rows and chains as they are now.

Functions about several blocks return what they observe by the ids of the blocks, or why a chain gives no answer about
one. They change nothing about the blocks. What is costly to know is only looked up where it matters.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias, TypeVar

from django.db.models import BooleanField, Case, Exists, Min, OuterRef, Q, QuerySet, When, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from chains import questions
from chains.encoding import hex_data
from chains.header import Header
from chains.node_errors import ChainError
from chains.questions import BlockIdentifier
from chains.rpc import result
from database.statements import chunks
from proving import facts, sources
from proving.connections import Context
from proving.facts import Fact, Missing, RegistryView, TimeFact, ViewRequest
from proving.heads import poll_seconds
from proving.models import LIVE_STATES, Transaction, TransactionState, proves_facts
from proving.paths import building, planning
from proving.paths.building import PathFound
from proving.paths.planning import TooFar
from proving.reconcile import sent
from proving.reconcile.observation import (
    AskedOfHeader,
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
from proving.reconcile.proofs import ProofRefused
from proving.sources import NotYet, Preparation
from queries import clock
from queries.models import PROVABLE_STEPS, BatchStatus, Block, Query, Sender, Step, StepKind, StepStatus, open_queries

# Queries that one reconcile observes: bounds its memory and its length.
_QUERIES_PER_LOOK = 1000
# The attempts, more than three minutes, for which a branch to a block that can't be had is waited for, before a path
# is taken that costs much more.
_PATIENT_ATTEMPTS = 8
_PAYS_ITSELF = Case(When(batch__sender=Sender.SELF, then=True), default=False, output_field=BooleanField())

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


def open_requests(blocks: Sequence[Block]) -> ByBlock[OpenRequests]:
    columns = ("block", "batch__sender", "step", "of_account", "names_time")
    rows = open_queries(blocks).order_by().annotate(of_account=~Q(address=""), names_time=Q(timestamp__isnull=False))
    found: dict[int, list[tuple[str, tuple[str, bool], bool]]] = {block.pk: [] for block in blocks}
    for block, sender, step, of_account, names_time in rows.values_list(*columns).distinct() if blocks else ():
        found[block].append((sender, (step, of_account), names_time))
    return {
        pk: OpenRequests(
            {sender for sender, *_ in each}, {step for _, step, _ in each}, any(named for *_, named in each)
        )
        for pk, each in found.items()
    }


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
    if not _has_root(block, _confirmed(context, block, [])):
        proven = seen.filter(Q(step__isnull=True) | Q(step=StepKind.ACCOUNT_ACCUMULATED))
        return Gone(root_is_confirmed=False, proven=list(proven.values_list("pk", flat=True)))
    of_header: list[int] = []
    of_accounts: list[int] = []
    for chunk in chunks(list(seen.filter(step__isnull=True).order_by("pk")), _QUERIES_PER_LOOK):
        wanted = _facts_of(chunk)
        found = facts.compare(chunk, _confirmed(context, block, wanted), facts.proven({block: wanted})[block.pk])
        if found.contradiction:
            return Gone(root_is_confirmed=True, contradiction=found.contradiction)
        lacking = {pk for asking in found.missing.values() for pk in asking}
        for query in chunk:
            if query.pk in lacking:
                (of_accounts if query.address else of_header).append(query.pk)
    return Gone(root_is_confirmed=True, lacking_of_header=of_header, lacking_of_accounts=of_accounts)


def _confirmed(context: Context, block: Block, wanted: Sequence[Fact]) -> RegistryView:
    registry, at = context.registry.contract, context.heads.confirmed.number
    return facts.read(context.destination_rpc, registry, block.number, wanted, at=at)


# --- What the source chain proves -------------------------------------------------------------------------------------


def source_blocks(context: Context, blocks: Sequence[Block]) -> Observed[SourceBlock]:
    rpc, chain = context.source_rpc, context.source_rpc.chain
    *headers, latest = rpc.ask([*(questions.header(block.number) for block in blocks), questions.header("latest")])
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


def asked_of_header(context: Context, blocks: Sequence[Block]) -> ByBlock[AskedOfHeader]:
    chain_id = context.source_rpc.chain.id
    asking: dict[int, list[Query]] = {block.pk: [] for block in blocks}
    for query in open_queries(blocks).filter(step=StepKind.INITIAL_STATE, address="").order_by("pk") if blocks else ():
        assert query.block_id is not None, "it is one of these"
        asking[query.block_id].append(query)
    found: ByBlock[AskedOfHeader] = {}
    for block in blocks:
        header = _own_header(block)
        lacking = {query.pk: facts.lacking(header, query.header_fields) for query in asking[block.pk]}
        found[block.pk] = AskedOfHeader(
            {pk: facts.why_lacking(chain_id, header, fields) if fields else "" for pk, fields in lacking.items()}
        )
    return found


@dataclass(frozen=True)
class Reading:
    """The registry's answers about one block, all of one exchange."""

    confirmed: RegistryView
    """At the newest confirmed block, with facts that may be asked for."""
    latest: RegistryView
    """At the newest block, without facts."""
    is_vouched_for: bool
    """The registry can take the block's header now."""
    accumulated_by: str
    """Hash of the transaction of ours that brought the header, if one did."""


def is_extending(context: Context) -> bool:
    """Return whether a transaction that extends the registry's trust is under way."""
    return building.extending(context.connection, context.heads.latest.number).exists()


def read_registry(context: Context, blocks: Sequence[Block], *, is_extending: bool) -> Observed[Reading]:
    """Ask the registry about these blocks, whose headers are stored.

    Facts are asked for where a transaction of ours has brought the header: of thousands each is a question.
    """
    accumulated = sent.accumulated_by(context.registry, blocks)
    idle = _first_idle(context.heads.confirmed.number, [block for block in blocks if block.pk in accumulated])
    wanted = {pk: _facts_of(queries) for pk, queries in idle.items()}
    return _readings(context, blocks, wanted, accumulated, _vouched_at(context, is_extending=is_extending))


def _vouched_at(context: Context, *, is_extending: bool) -> BlockIdentifier:
    """Return the state that tells whether a hash is trusted: a chain knows its head's hash only in the pending block.

    Elsewhere what is pending made it trusted. That may still fail, or be cancelled, and what was sent behind it would
    fail with it.
    """
    return "pending" if context.connection.is_own and not is_extending else "latest"


def _readings(
    context: Context,
    blocks: Sequence[Block],
    wanted: Mapping[int, Sequence[Fact]],
    accumulated: Mapping[int, str],
    vouched_at: BlockIdentifier,
) -> Observed[Reading]:
    registry, confirmed = context.registry.contract, context.heads.confirmed.number
    requests = [
        request
        for block in blocks
        for request in (
            ViewRequest(block.number, wanted.get(block.pk, ()), confirmed),
            ViewRequest(block.number, (), "latest"),
        )
    ]
    asked = [request.questions(registry) for request in requests]
    hashes = [(block.number, bytes.fromhex(block.hash[2:])) for block in blocks]
    answers, vouched = context.destination_rpc.ask(
        [question for each in asked for question in each],
        [questions.call(*registry.vouches(*one), vouched_at) for one in hashes],
    )
    rest = iter(answers)
    views = [one.view(registry, [next(rest) for _ in each]) for one, each in zip(requests, asked, strict=True)]
    found: Observed[Reading] = {}
    for block, at_confirmed, at_latest, vouch in zip(blocks, views[::2], views[1::2], vouched, strict=True):
        try:
            found[block.pk] = Reading(
                result(at_confirmed),
                result(at_latest),
                registry.decode_vouches(vouch),
                accumulated.get(block.pk, ""),
            )
        except ChainError as error:
            found[block.pk] = error
    return found


def is_trusted(block: Block, reading: Reading | ChainError, asking: OpenRequests, *, is_extending: bool) -> bool:
    """Return whether the registry was seen to know the block's state root, or to be able to take its header.

    What is named by a time needs the next block's as well.
    """
    if asking.names_times or isinstance(reading, ChainError):
        return False
    if _has_root(block, reading.confirmed) or _has_root(block, reading.latest):
        return True
    return reading.is_vouched_for and not is_extending


def unfetched(
    context: Context, blocks: Sequence[Block], faults: Mapping[int, Mapping[int, Exception]]
) -> ByBlock[Unfetched]:
    """Return what could not be fetched, of those blocks of which not all was, now and before."""
    found: ByBlock[Unfetched] = {}
    for block in blocks:
        of_block = faults.get(block.pk, {})
        if of_block or block.refused_since is not None:
            found[block.pk] = Unfetched(
                source=context.source_rpc.chain.id,
                number=block.number,
                faults={pk: str(fault) for pk, fault in of_block.items()},
                refused=[pk for pk, fault in of_block.items() if isinstance(fault, ProofRefused)],
                refused_since=block.refused_since,
                now=clock.earliest(),
            )
    return found


# --- What the registry holds, and lacks -------------------------------------------------------------------------------


def registry(
    context: Context, blocks: Sequence[Block], readings: Observed[Reading], *, is_extending: bool
) -> Observed[Observation]:
    """Read what the registry holds and lacks of what the blocks' open queries ask for."""
    compared = _compared(context, blocks, _looked_at(context, blocks), readings)
    lacking = _lacking(context, blocks, compared, is_extending=is_extending)
    return _observations(context, blocks, compared, lacking, _awaiting_header(blocks))


def of_batch(
    context: Context, blocks: Sequence[Block], batch: str, go_on: Callable[[], None]
) -> Observed[tuple[Observation, bool]]:
    """Read what the registry lacks of what one batch's open queries ask for, and whether the batch asks for more.

    It is as if all was to be sent for it, and nothing was under way. `go_on` is called between exchanges.
    """
    asking: dict[int, list[Query]] = {block.pk: [] for block in blocks}
    rows = open_queries(blocks).filter(batch=batch).exclude(step=StepKind.INITIAL_STATE)
    for query in rows.annotate(pays_itself=_PAYS_ITSELF).order_by("pk"):
        assert query.block_id is not None, "it is one of these"
        asking[query.block_id].append(query)
    readings = _readings(context, blocks, {}, {}, "pending")
    left = {pk: list(chunks(queries, _QUERIES_PER_LOOK)) or [[]] for pk, queries in asking.items()}
    compared: Observed[_Compared] = {}
    while looking := [block for block in blocks if left[block.pk] and _is_held(compared.get(block.pk))]:
        compared |= _compared(context, looking, {block.pk: left[block.pk].pop(0) for block in looking}, readings)
        go_on()
    lacking = _lacking_of_batch(context, blocks, compared)
    observations = _observations(context, blocks, compared, lacking, {})
    return {
        pk: one if isinstance(one, ChainError) else (replace(one, waits_since=None), bool(left[pk]))
        for pk, one in observations.items()
    }


@dataclass(frozen=True)
class _Compared:
    """The facts of these queries, compared with the registry at the newest confirmed block."""

    asked: Mapping[int, OpenQuery]
    reading: Reading
    view: RegistryView
    root_is_confirmed: bool
    missing: Missing
    contradiction: str

    @property
    def held(self) -> list[int]:
        """Return the queries that ask for nothing that is missing."""
        lacking = {pk for asking in self.missing.values() for pk in asking}
        return [pk for pk in self.asked if pk not in lacking]


def _is_held(compared: _Compared | ChainError | None) -> bool:
    """Return whether the registry lacks nothing so far."""
    return compared is None or (isinstance(compared, _Compared) and not compared.missing and not compared.contradiction)


def _compared(
    context: Context, blocks: Sequence[Block], looked_at: Mapping[int, Sequence[Query]], readings: Observed[Reading]
) -> Observed[_Compared]:
    wanted = {pk: _facts_of(queries) for pk, queries in looked_at.items()}
    views: Observed[RegistryView] = {
        block.pk: one if isinstance(one, ChainError) else one.confirmed
        for block in blocks
        for one in [readings[block.pk]]
    }
    # Below an unknown root nothing is proven.
    asking = [
        block
        for block in blocks
        if isinstance(view := views[block.pk], RegistryView)
        and _has_root(block, view)
        and any(fact not in view.facts for fact in wanted[block.pk])
    ]
    requests = [ViewRequest(block.number, wanted[block.pk], context.heads.confirmed.number) for block in asking]
    read = facts.views(context.destination_rpc, context.registry.contract, requests)
    views |= {block.pk: view for block, view in zip(asking, read, strict=True)}
    told = [block for block in blocks if isinstance(view := views[block.pk], RegistryView) and view.facts]
    here = facts.proven({block: wanted[block.pk] for block in told})
    found: Observed[_Compared] = {}
    for block in blocks:
        reading, view, queries = readings[block.pk], views[block.pk], looked_at[block.pk]
        if isinstance(reading, ChainError) or isinstance(view, ChainError):
            found[block.pk] = next(one for one in (reading, view) if isinstance(one, ChainError))
            continue
        comparison = facts.compare(queries, view, here.get(block.pk, {}))
        asked = {query.pk: _open_query(query) for query in queries}
        found[block.pk] = _Compared(
            asked, reading, view, _has_root(block, view), comparison.missing, comparison.contradiction
        )
    return found


def _facts_of(queries: Sequence[Query]) -> list[Fact]:
    return list(dict.fromkeys(fact for query in queries for fact in facts.of(query)))


def _observations(
    context: Context,
    blocks: Sequence[Block],
    compared: Observed[_Compared],
    lacking: Observed[Lacking],
    awaiting_header: ByBlock[list[OpenQuery]],
) -> Observed[Observation]:
    seen: Observed[Observation] = {pk: one for pk, one in compared.items() if isinstance(one, ChainError)}
    good = [(block, one) for block in blocks if isinstance(one := compared[block.pk], _Compared)]
    proven_by = sent.proven_by(context.registry, {pk for _, one in good for pk in one.held})
    since = _waits_since(blocks) if context.destination_rpc.chain.gather_seconds else {}
    for block, one in good:
        of_block = lacking.get(block.pk)
        if isinstance(of_block, ChainError):
            seen[block.pk] = of_block
            continue
        seen[block.pk] = Observation(
            number=block.number,
            hash=bytes.fromhex(block.hash[2:]),
            timestamp=block.timestamp,
            attempts=block.attempts,
            path_left=block.path_left,
            source=block.source_chain_id,
            poll_seconds=context.poll_seconds,
            source_poll_seconds=poll_seconds(context.source_rpc.chain),
            now=timezone.now(),
            gather_seconds=context.destination_rpc.chain.gather_seconds,
            waits_since=since.get(block.pk),
            awaiting_header=awaiting_header.get(block.pk, []),
            asked=one.asked,
            view=one.view,
            root_is_confirmed=one.root_is_confirmed,
            accumulated_by=one.reading.accumulated_by if one.root_is_confirmed else "",
            proven_by={pk: proven_by[pk] for pk in one.held if pk in proven_by},
            contradiction=one.contradiction,
            lacking=of_block,
        )
    return seen


def _waits_since(blocks: Sequence[Block]) -> ByBlock[datetime]:
    begun = Step.objects.filter(query__in=open_queries(blocks), status=StepStatus.IN_PROGRESS)
    by_block = begun.exclude(kind=StepKind.INITIAL_STATE).order_by().values_list("query__block")
    return {pk: since for pk, since in by_block.annotate(since=Min("started_at")) if pk is not None}


def _awaiting_header(blocks: Sequence[Block]) -> ByBlock[list[OpenQuery]]:
    # Of thousands most are past these steps, and each id in the statement costs time at each reconcile.
    awaiting = open_queries(blocks).filter(step__in=[StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED])
    found: dict[int, list[OpenQuery]] = {block.pk: [] for block in blocks}
    awaiting = awaiting.only("block", "address", "timestamp", "step").annotate(pays_itself=_PAYS_ITSELF)
    for query in awaiting.order_by("pk"):
        assert query.block_id is not None, "it is one of these"
        found[query.block_id].append(_open_query(query))
    return found


def _open_query(query: Query) -> OpenQuery:
    assert query.step is not None, "it is open"
    pays_itself: bool = query.pays_itself  # type: ignore[attr-defined]  # of the annotation
    return OpenQuery(query.pk, not query.address, query.timestamp, StepKind(query.step), pays_itself)


def _lacking(
    context: Context, blocks: Sequence[Block], compared: Observed[_Compared], *, is_extending: bool
) -> Observed[Lacking]:
    """Return what the registry lacks, of those blocks of which it lacks something."""
    missing = {block: one for block in blocks if isinstance(one := compared[block.pk], _Compared) and one.missing}
    if not missing:
        return {}
    live = sent.under_way(list(missing))
    under_way = [block for block in missing if block.pk in live]
    sent_for, accumulating = sent.facts_under_way(under_way), sent.accumulating(under_way)
    asking = {block.pk: sorted({pk for pks in one.missing.values() for pk in pks}) for block, one in missing.items()}
    failures = sent.failures(asking)
    lacking = {
        block.pk: Lacking(
            missing=one.missing,
            left_to_others=[pk for pk, query in one.asked.items() if query.is_left_to_others],
            sent_for=sent_for.get(block.pk, ()),
            failures=failures[block.pk],
            root_is_known=_root_is_known(block, one),
            is_accumulating=block.pk in accumulating,
        )
        for block, one in missing.items()
    }
    # By what is to be sent, if anything is: what others want besides must lead no further.
    needing = {block: one.needing or one.all_needing for block in missing for one in [lacking[block.pk]]}
    trusts = _trusts(context, needing, compared, _vouched_at(context, is_extending=is_extending))
    pause = building.pause_after_failures(context.connection) if trusts else 0
    config, head = context.connection.config, context.heads.latest.number
    found: Observed[Lacking] = dict(lacking)
    for pk, told in trusts.items():
        try:
            trust = result(told)
            may_jump = planning.may_jump(context.connection, trust.header)
        except ChainError as error:
            found[pk] = error
            continue
        for_long = sources.of(config).vouches_for_long(config, trust.header.number, head)
        trust = Trust(trust.header, trust.is_vouched_for, for_long, is_extending, pause, may_jump)
        found[pk] = replace(lacking[pk], trust=trust)
    return found


def _lacking_of_batch(context: Context, blocks: Sequence[Block], compared: Observed[_Compared]) -> Observed[Lacking]:
    lacking = {
        block: Lacking(one.missing, _root_is_known(block, one))
        for block in blocks
        if isinstance(one := compared[block.pk], _Compared) and one.missing
    }
    trusts = _trusts(context, {block: one.needing for block, one in lacking.items()}, compared, "pending")
    found: Observed[Lacking] = {}
    for block, of_block in lacking.items():
        trust = trusts.get(block.pk)
        found[block.pk] = trust if isinstance(trust, ChainError) else replace(of_block, trust=trust)
    return found


def _root_is_known(block: Block, compared: _Compared) -> bool:
    return compared.root_is_confirmed or _has_root(block, compared.reading.latest)


def _trusts(
    context: Context, needing: Mapping[Block, Missing], compared: Observed[_Compared], at: BlockIdentifier
) -> Observed[Trust]:
    """Return whether the registry can take the headers that are needed, of those that are there."""
    # Only the next block's header says when a block ended.
    timed = [block for block, missing in needing.items() if any(isinstance(fact, TimeFact) for fact in missing)]
    found: Observed[Trust] = {
        block.pk: Trust(_own_header(block), one.reading.is_vouched_for)
        for block, missing in needing.items()
        if missing and block not in timed and isinstance(one := compared[block.pk], _Compared)
    }
    read = context.source_rpc.ask([questions.header(block.number + 1) for block in timed])
    found |= {block.pk: header for block, header in zip(timed, read, strict=True) if isinstance(header, ChainError)}
    following = [(block, header) for block, header in zip(timed, read, strict=True) if isinstance(header, Header)]
    registry = context.registry.contract
    vouched = context.destination_rpc.ask(
        [questions.call(*registry.vouches(header.number, header.hash), at) for _, header in following]
    )
    for (block, header), answer in zip(following, vouched, strict=True):
        try:
            found[block.pk] = Trust(header, registry.decode_vouches(answer))
        except ChainError as error:
            found[block.pk] = error
    return found


def _own_header(block: Block) -> Header:
    assert block.header_rlp is not None, "INITIAL_STATE is completed"
    return Header.decode(bytes(block.header_rlp))


def _looked_at(context: Context, blocks: Sequence[Block]) -> ByBlock[list[Query]]:
    """Return the queries to observe, first those for which something may be sent.

    If they are many, others are chosen by lot: for some of them nobody may ever send anything, and these must not be
    the first each time.
    """
    confirmed = context.heads.confirmed.number
    found = _first_idle(confirmed, blocks)
    for block in blocks:
        first = found[block.pk]
        if len(first) >= _QUERIES_PER_LOOK:
            sent_for = [query for query in first if not query.pays_itself]  # type: ignore[attr-defined]  # of the annotation
            idle = _idle([block], confirmed).filter(batch__sender=Sender.SELF)
            found[block.pk] = [*sent_for, *idle.order_by("?")[:_QUERIES_PER_LOOK]]
    return found


def _first_idle(confirmed: int, blocks: Sequence[Block]) -> ByBlock[list[Query]]:
    if not blocks:
        return {}
    idle = list(_idle(blocks, confirmed)[:_QUERIES_PER_LOOK])
    if len(idle) == _QUERIES_PER_LOOK and len(blocks) > 1:
        return {pk: queries for block in blocks for pk, queries in _first_idle(confirmed, [block]).items()}
    found: ByBlock[list[Query]] = {block.pk: [] for block in blocks}
    for query in idle:
        assert query.block_id is not None, "it is one of these"
        found[query.block_id].append(query)
    return found


def _idle(blocks: Sequence[Block], confirmed: int) -> QuerySet[Query]:
    """Open queries for which no transaction is under way, or mined in a block after the `confirmed` one."""
    unseen = Q(state__in=LIVE_STATES) | Q(block_number__gt=confirmed)
    under_way = Transaction.objects.filter(unseen, proves_facts("queries__block"), queries=OuterRef("pk"))
    waiting = open_queries(blocks).exclude(step=StepKind.INITIAL_STATE)
    # In turns: a batch of many that can't pay must not keep others from being looked at.
    turn = Window(RowNumber(), partition_by=["block", "batch"], order_by="pk")
    idle = waiting.filter(~Exists(under_way)).annotate(turn=turn, pays_itself=_PAYS_ITSELF)
    return idle.order_by("pays_itself", "turn", "pk")


def _has_root(block: Block, view: RegistryView) -> bool:
    """Return whether the registry holds the block's state root."""
    return hex_data(view.state_root) == block.state_root


def block_of_time(context: Context, timestamp: int) -> BlockOfTime:
    head = context.source_rpc.head()
    if head.timestamp <= timestamp:
        return BlockOfTime(has_later=False)
    number = facts.block_at(context.source_rpc, timestamp, head)
    return BlockOfTime(has_later=True, number=number)


# --- At the end -------------------------------------------------------------------------------------------------------


def path(
    context: Context,
    block: Block,
    target: Header,
    hints: Collection[int] = (),
    *,
    is_first: bool = True,
    is_self_funded: bool = False,
) -> PathFound | Preparation | NotYet | TooFar:
    """Find a path to a header's hash, for a block. `hints` are those of `planning.survey`.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    # The attempts before may have failed for something else.
    is_patient = block.attempts < _PATIENT_ATTEMPTS or not block.waits_for_path
    found = building.find(context.connection, target, hints, is_patient=is_patient, is_self_funded=is_self_funded)
    return replace(found, is_first=is_first) if isinstance(found, PathFound) else found


def rest(context: Context, blocks: Sequence[Block], asking: ByBlock[OpenRequests]) -> ByBlock[Rest]:
    # The transaction that the open queries wait for, whichever of them it was sent for.
    under_way = sent.newest_under_way([block for block in blocks if asking[block.pk].senders])
    found: ByBlock[Rest] = {}
    for block in blocks:
        asked, tx = asking[block.pk], under_way.get(block.pk)
        found[block.pk] = Rest(
            is_open=bool(asked.senders),
            is_under_way=tx is not None,
            # What is mined takes its time, and waits for nobody.
            waits_for=tx.waits_for if tx and tx.state == TransactionState.PENDING else "",
            is_left_to_others=asked.senders == {Sender.SELF} and all(step in PROVABLE_STEPS for step, _ in asked.steps),
            checked_number=block.checked_number,
            final=context.heads.final,
            poll_seconds=context.poll_seconds,
            block_seconds=context.destination_rpc.chain.block_seconds,
        )
    return found
