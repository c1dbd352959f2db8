"""What there is to know about a block before deciding: rows and chains as they are now.

It changes nothing about the block. What is costly to know is only looked up where it
matters. Each stage of that has a type of its own: an `Observation` has no `Lacking` where the registry lacks nothing,
and that has no `Trust` where nothing needs the header.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Literal, TypeVar

from django.db.models import BooleanField, Case, Exists, OuterRef, Q, QuerySet, When, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from chains import together
from chains.encoding import hex_data
from chains.header import Header
from chains.packed import HeaderParts
from chains.rpc import BlockIdentifier, NodeUnavailable
from database.chunks import chunks
from proving import facts, sources
from proving.facts import Comparison, Fact, HeaderFact, Missing, RegistryView, TimeFact
from proving.heads import poll_seconds
from proving.models import LIVE_STATES, Transaction, TransactionState, proves_facts
from proving.paths import building, checkpoints, planning
from proving.paths.checkpoints import Jump
from proving.paths.planning import Path, TooFar
from proving.reconcile import sent
from proving.reconcile.context import Context, OpenRequests
from proving.reconcile.proofs import ProofRefused
from proving.registry import deployments
from proving.registry.deployments import Deployment
from proving.sources import NotYet, Preparation, Start
from queries import clock
from queries.models import PROVABLE_STEPS, BatchStatus, Block, Query, Sender, StepKind, open_queries

# Queries that one reconcile observes: bounds its memory and its length.
_QUERIES_PER_LOOK = 1000
# The attempts, more than three minutes, for which a branch to a block that can't be had is waited for, before a path
# is taken that costs much more.
_PATIENT_ATTEMPTS = 8
# Rows named in one statement.
_PER_STATEMENT = 500
_Item = TypeVar("_Item")
_Read = TypeVar("_Read")
_PAYS_ITSELF = Case(When(batch__sender=Sender.SELF, then=True), default=False, output_field=BooleanField())


def _of_block(context: Context, read: Callable[[Sequence[Block]], Sequence[_Read]]) -> _Read:
    """Return what `read` gives for the block; it is asked once for all blocks that are observed side by side."""
    return together.share_work(read, context.block, read)


def _with_others(
    key: str, context: Context, item: _Item, read: Callable[[Deployment, Sequence[_Item]], Sequence[_Read]]
) -> _Read:
    """Return what `read` gives for an item, asked once for all of this registry."""
    registry = context.registry
    return together.share_work((key, registry.addresses), item, partial(read, registry))


# --- When the destination was reorganised -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """The block of the destination in which the completed facts were read last, and what is at its height now."""

    destination: int
    number: int
    hash: bytes
    header: Header | None
    is_behind: bool  # the node's head is
    poll_seconds: float


def checked(context: Context) -> Checked | None:
    """Read the block again in which facts were last read. None where nothing was completed yet."""
    block = context.block
    if block.checked_number is None:
        return None
    return Checked(
        context.destination_chain.id,
        block.checked_number,
        bytes.fromhex(block.checked_hash[2:]),
        context.destination_rpc.header(block.checked_number),
        context.heads.confirmed.number < block.checked_number,
        context.poll_seconds,
    )


@dataclass(frozen=True)
class Gone:
    """The completed facts, as the registry has them now."""

    root_is_confirmed: bool  # the registry trusts the block's state root
    proven: Sequence[int] = ()  # queries of which facts below the state root are proven, or to be
    lacking_of_header: Sequence[int] = ()
    lacking_of_accounts: Sequence[int] = ()
    contradiction: str = ""


def gone(context: Context) -> Gone:
    seen = Query.objects.filter(block=context.block).exclude(
        batch__status__in=[BatchStatus.REJECTED, BatchStatus.RECEIVED]
    )
    if not _has_root(context, _read(context, [])):
        proven = seen.filter(Q(step__isnull=True) | Q(step=StepKind.ACCOUNT_ACCUMULATED))
        return Gone(root_is_confirmed=False, proven=list(proven.values_list("pk", flat=True)))
    of_header: list[int] = []
    of_accounts: list[int] = []
    for chunk in chunks(list(seen.filter(step__isnull=True).order_by("pk")), _QUERIES_PER_LOOK):
        view = _read(context, [fact for query in chunk for fact in facts.of(query)])
        found = _comparison(context, chunk, view)
        if found.contradiction:
            return Gone(root_is_confirmed=True, contradiction=found.contradiction)
        lacking = {pk for asking in found.missing.values() for pk in asking}
        for query in chunk:
            if query.pk in lacking:
                (of_accounts if query.address else of_header).append(query.pk)
    return Gone(root_is_confirmed=True, lacking_of_header=of_header, lacking_of_accounts=of_accounts)


# --- What the source chain proves -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceBlock:
    """The block as the source chain has it now, and as it is stored."""

    source: int
    number: int
    header: Header | None
    stored_hash: str  # empty: none is stored
    poll_seconds: float  # of the source chain


def source_block(context: Context) -> SourceBlock:
    chain = context.source_rpc.chain
    number = context.block.number
    header = context.source_rpc.header(number)
    # Where its bytes were pruned it is taken again.
    stored_hash = context.block.hash if context.block.header_rlp is not None else ""
    return SourceBlock(chain.id, number, header, stored_hash, poll_seconds(chain))


@dataclass(frozen=True)
class AskedOfHeader:
    """Open queries (ids) of INITIAL_STATE that ask for no account, with the properties that the header lacks."""

    why_lacking: Mapping[int, str]  # a sentence; empty where it lacks nothing


def asked_of_header(context: Context) -> AskedOfHeader:
    header = _own_header(context.block)
    asking = _of_block(context, _asking_for_header)
    lacking = {query.pk: facts.lacking(header, query.header_fields) for query in asking}
    chain_id = context.source_rpc.chain.id
    return AskedOfHeader(
        {pk: facts.why_lacking(chain_id, header, fields) if fields else "" for pk, fields in lacking.items()}
    )


def _asking_for_header(blocks: Sequence[Block]) -> list[list[Query]]:
    found: dict[int, list[Query]] = {block.pk: [] for block in blocks}
    for query in open_queries(blocks).filter(step=StepKind.INITIAL_STATE, address="").order_by("pk"):
        assert query.block_id is not None, "it is one of these"
        found[query.block_id].append(query)
    return [found[block.pk] for block in blocks]


def is_trusted(context: Context) -> bool:
    """Return whether the registry was seen to know the block's state root, or to be able to take its header.

    What is named by a time needs the next block's as well.
    """
    block, ahead = context.block, context.ahead
    if asking(context).names_times:
        return False
    known = [view for view in (ahead.confirmed, ahead.latest) if view is not None]
    if any(_has_root(context, view) for view in known):
        return True
    return ahead.vouched.get(bytes.fromhex(block.hash[2:]), False) and not _is_extending(context)


@dataclass(frozen=True)
class Unfetched:
    """The queries that stay at INITIAL_STATE when all is fetched that nodes serve."""

    source: int
    number: int
    faults: Mapping[int, str]  # by the ids of queries: a sentence
    refused: Collection[int]  # those for which no node serves a proof that can be used: more asking may not change it
    refused_since: datetime | None  # as it is stored
    now: datetime


def unfetched(context: Context, faults: Mapping[int, Exception]) -> Unfetched | None:
    """Return what could not be fetched. None where all was fetched, now and before."""
    if not faults and context.block.refused_since is None:
        return None
    return Unfetched(
        source=context.source_rpc.chain.id,
        number=context.block.number,
        faults={pk: str(fault) for pk, fault in faults.items()},
        refused=[pk for pk, fault in faults.items() if isinstance(fault, ProofRefused)],
        refused_since=context.block.refused_since,
        now=clock.earliest(),
    )


# --- What the registry holds, and lacks -------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenQuery:
    id: int
    is_of_header: bool  # it asks for no account
    timestamp: int | None  # by which it names its block, unix seconds
    step: StepKind
    is_left_to_others: bool = False  # its batch is self-funded: others send its transactions


@dataclass(frozen=True)
class Trust:
    """The registry's trust in the header, read if something that is missing needs it, whoever sends it."""

    header: Header
    """Its hash must be vouched for: the block's own, or the next one, which alone says when the block ended."""
    is_vouched_for: bool
    """True if the registry can take that header now."""
    is_vouched_for_long: bool = True
    """True if that also holds for some blocks: otherwise its transaction may revert, with all that shares it."""
    is_extending: bool = False
    """A transaction that extends the registry's trust is under way."""
    pause_after_failures: float = 0
    """Seconds until the next of those may be sent."""
    may_jump: bool = False
    """True if the beacon chain may lead there, for which the registry's trust isn't extended."""


@dataclass(frozen=True)
class Lacking:
    """The further reads if the registry lacks something."""

    missing: Missing
    root_is_known: bool
    """True if the state root is the block's at the newest block of the destination, or at the confirmed one."""
    left_to_others: Collection[int] = ()
    """Ids of the queries whose transactions others send."""
    sent_for: Collection[Fact] = ()
    """The facts that transactions under way may prove."""
    failures: int = 0
    """Transactions for what is missing that reverted."""
    is_accumulating: bool = False
    """A transaction that brings the header is under way."""
    trust: Trust | None = None
    """None where nothing needs the header, or the one that it needs isn't there yet."""

    @property
    def hash_is_vouched_for(self) -> bool:
        """Return whether the registry can take now the header that is needed."""
        return self.trust is not None and self.trust.is_vouched_for

    @cached_property
    def missing_now(self) -> Missing:
        """Return what is to be sent. All that costs money is decided by this.

        What is under way is left out, because nothing is paid twice. So is what is asked for only by batches that pay
        themselves.
        """
        others = set(self.left_to_others)
        wanted = {
            fact: [pk for pk in asking if pk not in others]
            for fact, asking in self.missing.items()
            if fact not in self.sent_for
        }
        return {fact: asking for fact, asking in wanted.items() if asking}

    @cached_property
    def needing(self) -> Missing:
        """Return which of these can't be proven without the block's header."""
        return self._needing(self.missing_now)

    @cached_property
    def all_needing(self) -> Missing:
        """Return the missing facts that can't be proven without the block's header, whoever sends them."""
        return self._needing(self.missing)

    def _needing(self, missing: Missing) -> Missing:
        if not self.root_is_known:
            return missing
        return {fact: asking for fact, asking in missing.items() if isinstance(fact, HeaderFact | TimeFact)}


@dataclass(frozen=True)
class Observation:
    """A block whose header and proofs are stored, as far as they are; its open queries; and the registry."""

    # The block.
    number: int
    hash: bytes
    timestamp: int | None
    attempts: int  # that failed in a row
    path_left: int

    # The chains.
    source: int
    poll_seconds: float
    source_poll_seconds: float

    now: datetime
    gather_seconds: float
    gathers_until: datetime | None  # as it is stored

    awaiting_header: Sequence[OpenQuery]
    """The open queries at BLOCKHASH_AVAILABLE and HEADER_ACCUMULATED."""
    asked: Mapping[int, OpenQuery]
    """By id: those that are observed, whose proofs are stored and for which nothing is under way."""

    view: RegistryView
    """The registry's facts at the newest confirmed block. Facts below an unknown root are not looked up."""
    root_is_confirmed: bool
    """True if the state root there is the block's."""
    accumulated_by: str
    """Hash of the transaction of ours that brought the header, if one did."""
    proven_by: Mapping[int, str]
    """By id of a query that asks for nothing that is missing: hash of the transaction that proved it."""
    contradiction: str
    """A sentence, if the registry holds another value than was proven here. Other missing facts are not compared."""
    lacking: Lacking | None
    """None: it lacks nothing."""

    @property
    def has_idle_queries(self) -> bool:
        """Return whether something is open for which nothing is under way."""
        return bool(self.asked)

    @property
    def missing(self) -> Missing:
        return {} if self.lacking is None else self.lacking.missing

    @property
    def is_trusted(self) -> bool:
        """Return whether the registry was found to know the block's state root, or the hash that is needed."""
        lacking = self.lacking
        return self.root_is_confirmed or (
            lacking is not None and (lacking.root_is_known or lacking.hash_is_vouched_for)
        )


def ask_ahead(context: Context) -> None:
    """Ask the destination what `registry` will want to know, while the source chain is asked for the block.

    Facts are asked for where the registry should know the state root by now: of thousands each is a question.
    """
    block, ahead = context.block, context.ahead
    has_idle = any(step != StepKind.INITIAL_STATE for step, _ in asking(context).steps)
    idle = _first_idle(context) if has_idle and _accumulated_by(context) else []
    if idle:
        ahead.confirmed = _read(context, [fact for query in idle for fact in facts.of(query)])
    elif block.header_rlp is not None:
        target, at = _own_header(block), _vouched_at(context)
        ahead.confirmed, ahead.latest, ahead.vouched[target.hash] = together.together(
            lambda: _read(context, []),
            lambda: _read(context, [], at="latest"),
            lambda: _vouches(context, target, at=at),
        )


def registry(context: Context) -> Observation:
    """Read what the registry holds and lacks of what the block's open queries ask for.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    compared = _compared(context, _looked_at(context))
    awaiting_header = _of_block(context, _awaiting_header)
    lacking = _lacking(context, compared) if compared.missing else None
    return _observation(context, compared, lacking, awaiting_header)


def of_batch(context: Context, batch: str, go_on: Callable[[], None]) -> tuple[Observation, bool]:
    """Read what the registry lacks of what one batch's open queries ask for, and whether the batch asks for more.

    It is as if all was to be sent for it, and nothing was under way. `go_on` is called between exchanges. Raises
    `NodeUnavailable`, `RpcRefused`.
    """
    asking = context.block.open_queries().filter(batch=batch).exclude(step=StepKind.INITIAL_STATE)
    asking = asking.annotate(pays_itself=_PAYS_ITSELF).order_by("pk")
    first, all_of_them = 0, asking.count()
    while True:
        compared = _compared(context, list(asking[first : first + _QUERIES_PER_LOOK]))
        first += _QUERIES_PER_LOOK
        go_on()
        if compared.missing or compared.contradiction or first >= all_of_them:
            break
    lacking = _lacking_of_batch(context, compared) if compared.missing else None
    seen = _observation(context, compared, lacking)
    return replace(seen, gather_seconds=0), first < all_of_them


@dataclass(frozen=True)
class _Compared:
    """The facts of these queries, compared with the registry at the newest confirmed block."""

    asked: Mapping[int, OpenQuery]
    view: RegistryView
    root_is_confirmed: bool
    missing: Missing
    contradiction: str


def _compared(context: Context, looked_at: Sequence[Query]) -> _Compared:
    view = _read(context, [])
    root_is_confirmed = _has_root(context, view)
    if root_is_confirmed and looked_at:
        view = _read(context, [fact for query in looked_at for fact in facts.of(query)])
        root_is_confirmed = _has_root(context, view)
    found = _comparison(context, looked_at, view)
    asked = {query.pk: _open_query(query) for query in looked_at}
    return _Compared(asked, view, root_is_confirmed, found.missing, found.contradiction)


def _comparison(context: Context, queries: Sequence[Query], view: RegistryView) -> Comparison:
    here: Mapping[Fact, bytes] = {}
    if view.facts:
        asked = [fact for query in queries for fact in facts.of(query)]
        here = together.share_work("proven", (context.block, asked), facts.proven_each)
    return facts.compare(queries, view, here)


def _observation(
    context: Context, compared: _Compared, lacking: Lacking | None, awaiting_header: Sequence[OpenQuery] = ()
) -> Observation:
    block = context.block
    asking = {pk for pks in compared.missing.values() for pk in pks}
    held = [pk for pk in compared.asked if pk not in asking]
    return Observation(
        number=block.number,
        hash=bytes.fromhex(block.hash[2:]),
        timestamp=block.timestamp,
        attempts=block.attempts,
        path_left=block.path_left,
        source=block.source_chain_id,
        poll_seconds=context.poll_seconds,
        source_poll_seconds=poll_seconds(context.source_rpc.chain),
        now=timezone.now(),
        gather_seconds=context.destination_chain.gather_seconds,
        gathers_until=block.gathers_until,
        awaiting_header=awaiting_header,
        asked=compared.asked,
        view=compared.view,
        root_is_confirmed=compared.root_is_confirmed,
        accumulated_by=_accumulated_by(context) if compared.root_is_confirmed else "",
        proven_by=_with_others("proven by", context, held, sent.proven_by),
        contradiction=compared.contradiction,
        lacking=lacking,
    )


def _awaiting_header(blocks: Sequence[Block]) -> list[list[OpenQuery]]:
    # Of thousands most are past these steps, and each id in the statement costs time at each reconcile.
    awaiting = open_queries(blocks).filter(step__in=[StepKind.BLOCKHASH_AVAILABLE, StepKind.HEADER_ACCUMULATED])
    found: dict[int, list[OpenQuery]] = {block.pk: [] for block in blocks}
    awaiting = awaiting.only("block", "address", "timestamp", "step").annotate(pays_itself=_PAYS_ITSELF)
    for query in awaiting.order_by("pk"):
        assert query.block_id is not None, "it is one of these"
        found[query.block_id].append(_open_query(query))
    return [found[block.pk] for block in blocks]


def _open_query(query: Query) -> OpenQuery:
    assert query.step is not None, "it is open"
    pays_itself: bool = query.pays_itself  # type: ignore[attr-defined]  # of the annotation
    return OpenQuery(query.pk, not query.address, query.timestamp, StepKind(query.step), pays_itself)


def _lacking(context: Context, compared: _Compared) -> Lacking:
    is_under_way = _of_block(context, sent.is_under_way)
    lacking = Lacking(
        missing=compared.missing,
        left_to_others=[pk for pk, query in compared.asked.items() if query.is_left_to_others],
        sent_for=_of_block(context, sent.facts_under_way) if is_under_way else (),
        failures=together.share_work(
            "failures", sorted({pk for pks in compared.missing.values() for pk in pks}), sent.failures
        ),
        root_is_known=_root_is_known(context, compared),
        is_accumulating=is_under_way and _of_block(context, sent.is_accumulating),
    )
    # By what is to be sent, if anything is: what others want besides must lead no further.
    header = _header_needed(context, lacking.needing or lacking.all_needing)
    return lacking if header is None else replace(lacking, trust=_trust(context, header))


def _trust(context: Context, header: Header) -> Trust:
    row, config = context.registry.row_id, context.connection.config
    is_extending = _is_extending(context)
    is_vouched_for = context.ahead.vouched.get(header.hash)
    if is_vouched_for is None:
        is_vouched_for = _vouches(context, header, at=_vouched_at(context))
    return Trust(
        header,
        is_vouched_for,
        sources.of(config).vouches_for_long(config, header.number, context.heads.latest.number),
        is_extending,
        together.ask_once(("pause", row), lambda: building.pause_after_failures(context.connection)),
        planning.may_jump(context.connection, header),
    )


def _lacking_of_batch(context: Context, compared: _Compared) -> Lacking:
    lacking = Lacking(compared.missing, _root_is_known(context, compared))
    header = _header_needed(context, lacking.needing)
    return lacking if header is None else replace(lacking, trust=Trust(header, _vouches(context, header, at="pending")))


def _root_is_known(context: Context, compared: _Compared) -> bool:
    return compared.root_is_confirmed or _has_root(context, _read(context, [], at="latest"))


def _header_needed(context: Context, needing: Missing) -> Header | None:
    """Return the header whose hash must be vouched for. None where nothing needs it, or it isn't there yet."""
    if not needing:
        return None
    is_timed = any(isinstance(fact, TimeFact) for fact in needing)
    return context.source_rpc.header(context.block.number + 1) if is_timed else _own_header(context.block)


def _own_header(block: Block) -> Header:
    assert block.header_rlp is not None, "INITIAL_STATE is completed"
    return Header.decode(bytes(block.header_rlp))


def _looked_at(context: Context) -> Sequence[Query]:
    """Return the queries to observe, first those for which something may be sent.

    If they are many, others are chosen by lot: for some of them nobody may ever send anything, and these must not be
    the first each time.
    """
    first = _first_idle(context)
    if len(first) < _QUERIES_PER_LOOK:
        return first
    sent_for = [query for query in first if not query.pays_itself]  # type: ignore[attr-defined]  # of the annotation
    idle = _idle([context.block], context.heads.confirmed.number)
    return [*sent_for, *idle.filter(batch__sender=Sender.SELF).order_by("?")[:_QUERIES_PER_LOOK]]


def _vouched_at(context: Context) -> BlockIdentifier:
    """Return the state that tells whether a hash is trusted: a chain knows its head's hash only in the pending block.

    Elsewhere what is pending made it trusted. That may still fail, or be cancelled, and what was sent behind it would
    fail with it.
    """
    return "pending" if context.connection.is_own and not _is_extending(context) else "latest"


def _is_extending(context: Context) -> bool:
    known = context.known
    if known.is_extending is None:
        extending = building.extending(context.connection, context.heads.latest.number)
        known.is_extending = together.ask_once(("is extending", context.registry.row_id), extending.exists)
    return known.is_extending


def _accumulated_by(context: Context) -> str:
    known = context.known
    if known.accumulated_by is None:
        known.accumulated_by = _with_others("accumulated by", context, context.block, sent.accumulated_by)
    return known.accumulated_by


def _first_idle(context: Context) -> Sequence[Query]:
    known, confirmed = context.known, context.heads.confirmed.number
    if known.idle is None:
        known.idle = together.share_work(("idle", confirmed), context.block, partial(_first_idle_of, confirmed))
    return known.idle


def _first_idle_of(confirmed: int, blocks: Sequence[Block]) -> list[list[Query]]:
    idle = list(_idle(blocks, confirmed)[:_QUERIES_PER_LOOK])
    if len(idle) == _QUERIES_PER_LOOK and len(blocks) > 1:
        return [_first_idle_of(confirmed, [block])[0] for block in blocks]
    found: dict[int | None, list[Query]] = defaultdict(list)
    for query in idle:
        found[query.block_id].append(query)
    return [found[block.pk] for block in blocks]


def _idle(blocks: Sequence[Block], confirmed: int) -> QuerySet[Query]:
    """Open queries for which no transaction is under way, or mined in a block after the `confirmed` one."""
    unseen = Q(state__in=LIVE_STATES) | Q(block_number__gt=confirmed)
    under_way = Transaction.objects.filter(unseen, proves_facts("queries__block"), queries=OuterRef("pk"))
    waiting = open_queries(blocks).exclude(step=StepKind.INITIAL_STATE)
    # In turns: a batch of many that can't pay must not keep others from being looked at.
    turn = Window(RowNumber(), partition_by=["block", "batch"], order_by="pk")
    idle = waiting.filter(~Exists(under_way)).annotate(turn=turn, pays_itself=_PAYS_ITSELF)
    return idle.order_by("pays_itself", "turn", "pk")


def _read(context: Context, wanted: Sequence[Fact], *, at: Literal["latest"] | None = None) -> RegistryView:
    """Read what the registry holds about these facts, by default at the newest confirmed block."""
    ahead = context.ahead.confirmed if at is None else context.ahead.latest
    if ahead is not None and all(fact in ahead.facts for fact in wanted):
        return replace(ahead, facts={fact: ahead.facts[fact] for fact in wanted})
    when = context.heads.confirmed.number if at is None else at
    return facts.read(context.destination_rpc, context.registry.contract, context.block.number, wanted, at=when)


def _vouches(context: Context, header: Header, *, at: BlockIdentifier) -> bool:
    asked = [(header.number, header.hash)]
    return deployments.vouches(context.destination_rpc, context.registry, asked, at=at)[0]


def _has_root(context: Context, view: RegistryView) -> bool:
    """Return whether the registry holds the block's state root."""
    return hex_data(view.state_root) == context.block.state_root


@dataclass(frozen=True)
class BlockOfTime:
    has_later: bool  # the source chain has a block after that time
    number: int | None = None  # None: the first block is later


def block_of_time(context: Context, timestamp: int) -> BlockOfTime:
    head = context.source_rpc.head()
    if head.timestamp <= timestamp:
        return BlockOfTime(has_later=False)
    number = facts.block_at(context.source_rpc, timestamp, head)
    return BlockOfTime(has_later=True, number=number)


# --- The path to the block --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PathFound:
    """A path that can begin."""

    path: Path
    jump: HeaderParts = ()
    """The parts before the header that a jump leads to."""
    is_first: bool = True
    """True if no other block has waited longer for a path on the connection."""

    @property
    def goes_with_proofs(self) -> bool:
        """Return whether the block's own proofs can make its hash trusted, while other paths are under way."""
        if isinstance(self.path, Jump):
            return self.path.start is None
        # What it proves of a parent chain first is paid for once, for all who wait.
        return isinstance(self.path, Start) and len(self.path.calls) < 2


class BranchUnavailable(NodeUnavailable):
    """No node or file gave the branch that a jump is proven by."""


def path(
    context: Context, target: Header, hints: Collection[int] = (), *, is_self_funded: bool = False
) -> PathFound | Preparation | NotYet | TooFar:
    """Find a path to a header's hash. `hints` are those of `planning.survey`.

    Raises `NodeUnavailable`, `RpcRefused`.
    """
    if jump := planning.jump_to(context.connection, target):
        try:
            return _jump(context, target, jump, is_self_funded=is_self_funded)
        except NodeUnavailable as error:
            # The attempts before may have failed for something else.
            if context.block.attempts < _PATIENT_ATTEMPTS or not context.block.waits_for_path:
                raise BranchUnavailable(f"What a jump is proven by can't be had. {error}") from None
    found = planning.survey(context.connection, target, hints=hints)
    begun = found if isinstance(found, NotYet | TooFar) else building.begin(context.connection, found)
    if isinstance(begun, Preparation | NotYet | TooFar):
        return begun
    return PathFound(begun, is_first=is_self_funded or sent.is_first(context.block))


def _jump(context: Context, target: Header, jump: Jump, *, is_self_funded: bool) -> PathFound | Preparation | NotYet:
    """Return the jump with its branch. Raises `NodeUnavailable` where that can't be had."""
    from proving.paths import jumping  # noqa: PLC0415 (where a chain has a beacon chain)

    connection = context.connection
    # Before anything is asked for that costs something.
    branch = jumping.branch_to(context.source_rpc.chain, jump.origin, target)
    if isinstance(branch, NotYet):
        return branch
    if jump.start:
        begun = jumping.begin(connection, jump.start.number)
        if not isinstance(begun, Start):
            return begun
        # Its own blocks are vouched for long enough: no user is to pay for other batches, or to wait for them.
        jump = replace(jump, start=None if is_self_funded and connection.is_own else begun)
    elif jump.origin and jump.origin.number != context.registry.jump_origin:
        checkpoints.note_origin(context.registry.row_id, jump.origin)
    parts: HeaderParts = [*([jump.origin.encode()] if jump.origin else []), branch]
    return PathFound(jump, parts, is_first=is_self_funded or sent.is_first(context.block))


# --- At the end -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rest:
    """The state after all is done that can be now."""

    is_open: bool
    is_under_way: bool  # a transaction is sent, and not confirmed yet
    waits_for: str  # a sentence about it; empty where all goes well
    is_left_to_others: bool  # it only waits for what others send
    checked_number: int | None
    final: int
    poll_seconds: float
    block_seconds: float


def asking(context: Context) -> OpenRequests:
    """Return what is open about the block."""
    known = context.known
    if known.asking is None:
        known.asking = _of_block(context, _open_requests)
    return known.asking


def _open_requests(blocks: Sequence[Block]) -> list[OpenRequests]:
    columns = ("block", "batch__sender", "step", "of_account", "names_time")
    rows = open_queries(blocks).order_by().annotate(of_account=~Q(address=""), names_time=Q(timestamp__isnull=False))
    found: dict[int, list[tuple[str, tuple[str, bool], bool]]] = {block.pk: [] for block in blocks}
    for block, sender, step, of_account, names_time in rows.values_list(*columns).distinct():
        found[block].append((sender, (step, of_account), names_time))
    return [
        OpenRequests({sender for sender, *_ in each}, {step for _, step, _ in each}, any(named for *_, named in each))
        for each in (found[block.pk] for block in blocks)
    ]


def rest(context: Context) -> Rest:
    asked = asking(context)
    senders = asked.senders
    tx = _under_way(context) if senders else None
    return Rest(
        is_open=bool(senders),
        is_under_way=tx is not None,
        # What is mined takes its time, and waits for nobody.
        waits_for=tx.waits_for if tx and tx.state == TransactionState.PENDING else "",
        is_left_to_others=senders == {Sender.SELF} and all(step in PROVABLE_STEPS for step, _ in asked.steps),
        checked_number=context.block.checked_number,
        final=context.heads.final,
        poll_seconds=context.poll_seconds,
        block_seconds=context.destination_chain.block_seconds,
    )


def _under_way(context: Context) -> Transaction | None:
    """Return the transaction that the open queries wait for, whichever of them it was sent for."""
    return context.known.sent or _of_block(context, sent.newest_under_way)
