"""What is to be done about a block: pure functions from what was observed to actions, and to what is waited for.

Nothing here reads a row or a chain, writes, sends or raises. The actions that cost money are those of `Sending`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chains.encoding import hex_data
from chains.header import Header
from chains.packed import HeaderParts
from proving import heads
from proving.deployments import Call
from proving.facts import HeaderFact, Missing, TimeFact
from proving.paths.building import PathFound
from proving.paths.checkpoints import Jump
from proving.paths.planning import Hops, Path, TooFar
from proving.reconcile.observation import (
    BlockOfTime,
    Checked,
    Gone,
    Lacking,
    Observation,
    Rest,
    SourceBlock,
    Unfetched,
)
from proving.reconcile.proofs import Fetched, Proven
from proving.sources import NotYet, Preparation, Start
from queries.columns import RejectionCode
from queries.models import PathUnit, StepKind
from queries.progress import Complete
from queries.waits import WaitReason, wait

# How long nodes may refuse to serve a proof before that is taken for final: they may be syncing, or lack the newest
# state for a moment.
_UNSERVED_PROOF_WAIT = timedelta(minutes=10)
# More facts than this fill a transaction, or nearly: they gain nothing from sharing it.
_MOST_THAT_GATHERS = 50
# What others send is told by the registry's events (`proving.paths.checkpoints`). Where nodes serve none, it is looked
# for after so many seconds.
_PAUSE_FOR_OTHERS = 300
# Seconds between two looks at a source chain that has not come to a block yet.
_LONGEST_PAUSE = 60
# After this number of polls a block is reconciled though nothing woke it while its transaction is under way.
_TENDED_POLLS = 16


# --- Actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reopen:
    """Take queries (ids) back to a step."""

    queries: Collection[int]
    step: StepKind
    reason: str


@dataclass(frozen=True)
class MoveToBlock:
    """Give queries (ids) another block of the source chain, where they begin anew."""

    queries: Collection[int]
    number: int
    reason: str


@dataclass(frozen=True)
class Reject:
    """Reject the batches of these queries (ids)."""

    queries: Collection[int]
    code: RejectionCode
    reason: WaitReason
    retryable: bool = False


@dataclass(frozen=True)
class TakeHeader:
    """Store the block's header; where another one was stored, all that was built on that begins anew."""

    header: Header


@dataclass(frozen=True)
class StoreProofs:
    proofs: Sequence[Proven]


@dataclass(frozen=True)
class NoteRefused:
    """Remember since when nodes refuse to serve a proof; or that they don't any more."""

    since: datetime | None


@dataclass(frozen=True)
class NoteChecked:
    """Remember in which block of the destination the completed facts were read."""


@dataclass(frozen=True)
class ShowPath:
    """Show how much is left of the path to the block. Without a unit it has arrived."""

    left: int
    unit: str = ""
    origin: int | None = None  # the number of the block where a jump begins, if it needs one


@dataclass(frozen=True)
class Prove:
    """Send what proves the facts: below a trusted state root, or in one transaction with the header."""

    missing: Missing
    root_is_known: bool  # the state root, to the registry
    is_optional: bool = False  # something else is to be done where nobody can pay for it
    is_alone: bool = False  # what other blocks send must not revert with it
    jump: HeaderParts = ()  # what leads to the header, where nothing vouches for its hash
    calls: Sequence[Call] = ()  # what has the block hash source vouch for it first

    @property
    def with_header(self) -> bool:
        """Return whether the header goes with it, for what only that proves or makes known.

        Who can't pay is left out, and with them the need for it.
        """
        return not self.root_is_known or any(isinstance(fact, HeaderFact) for fact in self.missing)


@dataclass(frozen=True)
class ProveTime:
    """Send what proves which block was the latest at a time, by its header and the one that follows."""

    timestamp: int
    following: Header
    queries: Collection[int]
    otherwise: "ProveTime | Prove | None" = None
    """The action for other users, who are not to wait where none of these can pay."""


@dataclass(frozen=True)
class PreparePath:
    """Send what a path needs before it can begin."""

    preparation: Preparation
    queries: Collection[int]


@dataclass(frozen=True)
class ExtendPath:
    """Send the next transaction of a path, and with it what needs it if it arrives."""

    path: Path
    target: Header
    needing: Missing
    jump: HeaderParts = ()


Change = Complete | Reopen | MoveToBlock | Reject | TakeHeader | StoreProofs | NoteRefused | NoteChecked | ShowPath
"""An action that changes rows."""
Sending = Prove | ProveTime | PreparePath | ExtendPath
Action = Change | Sending


# --- What comes after the actions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requeue:
    """Nothing more can be done now: what it waits for, if anything, and when to reconcile again (seconds)."""

    reason: WaitReason | None
    seconds: float
    for_path: bool = False  # it waits for one, its own or another's: that of the oldest batch comes first


@dataclass(frozen=True)
class Fail:
    """Something is wrong: the attempt is counted, and repeated more and more rarely."""

    reason: WaitReason
    queries: Collection[int] | None = None  # ids of those that it concerns; None: all of the block
    for_operators: str = ""  # what the log says instead
    for_path: bool = False  # a path to the block can't be had


@dataclass(frozen=True)
class Settled:
    """Nothing can change any more."""


@dataclass(frozen=True)
class Continue:
    """Go on with what comes next."""


@dataclass(frozen=True)
class FindWhatIsGone:
    """The destination was reorganised: observe what it lacks now, and decide with `gone`."""


@dataclass(frozen=True)
class FindPath:
    """The registry doesn't trust the hash of `target`: plan a path to it, and decide with `path`."""

    target: Header
    needing: Missing


@dataclass(frozen=True)
class FindTime:
    """The source chain was reorganised: find the block of a time anew, and decide with `time`."""

    timestamp: int
    queries: Collection[int]


End = Requeue | Fail | Settled


@dataclass(frozen=True)
class Decision:
    """The actions in their order, and what comes after them."""

    then: End | Continue | FindWhatIsGone | FindPath | FindTime
    actions: Sequence[Action] = ()


# --- When the destination was reorganised -----------------------------------------------------------------------------


def checked(seen: Checked) -> Decision:
    """Decide whether the block in which the facts were last read is still there."""
    if seen.header is None or seen.is_behind:
        # Less than was seen before is a node that lags; only another block at that height is a reorg.
        return Decision(
            Requeue(wait("node_behind", chain=seen.destination, block=seen.number), seen.poll_seconds),
        )
    return Decision(Continue() if seen.header.hash == seen.hash else FindWhatIsGone())


def gone(seen: Checked, found: Gone) -> Decision:
    """Reopen what the registry lacks since the destination was reorganised."""
    if found.contradiction:
        return Decision(Fail(found.contradiction))
    reason = f"The destination chain was reorganised: block {seen.number} is another one now."
    to_header = found.proven if not found.root_is_confirmed else found.lacking_of_header
    to_account = () if not found.root_is_confirmed else found.lacking_of_accounts
    reopened = [
        Reopen(to_header, StepKind.HEADER_ACCUMULATED, reason),
        Reopen(to_account, StepKind.ACCOUNT_ACCUMULATED, reason),
    ]
    return Decision(Continue(), [*reopened, NoteChecked()])


# --- What the source chain proves -------------------------------------------------------------------------------------


def source_block(seen: SourceBlock) -> Decision:
    """Take the header that the source chain has."""
    if seen.header is None:
        # It is asked for again as soon as it should be there.
        seconds = max(seen.poll_seconds, min(seen.seconds, _LONGEST_PAUSE))
        return Decision(Requeue(heads.not_there_yet(seen.source, seen.number, seen.head), seconds))
    is_stored = seen.stored_hash == hex_data(seen.header.hash)
    return Decision(Continue(), [] if is_stored else [TakeHeader(seen.header)])


def fetched(found: Fetched) -> Decision:
    """Store the proofs, and complete what they are all of."""
    return Decision(Continue(), [StoreProofs(found.proofs), Complete(found.complete, StepKind.INITIAL_STATE)])


def unfetched(seen: Unfetched) -> Decision:
    """Wait for what could not be fetched; reject what nodes have refused for too long."""
    since = (seen.refused_since or seen.now) if seen.refused else None
    actions: list[Action] = [] if since == seen.refused_since else [NoteRefused(since)]
    waiting = dict(seen.faults)
    if since is not None and seen.now - since >= _UNSERVED_PROOF_WAIT:
        fault = waiting[next(iter(seen.refused))]
        reason = wait("no_usable_proof", chain=seen.source, block=seen.number, reason=fault)
        actions = [Reject(seen.refused, RejectionCode.PROOF_UNAVAILABLE, reason, retryable=True)]
        waiting = {pk: fault for pk, fault in waiting.items() if pk not in seen.refused}
    if not waiting:
        return Decision(Continue(), actions)
    fault = next(iter(waiting.values()))
    if waiting.keys() & set(seen.refused):
        fault = wait("rejected_in_ten_minutes", reason=waiting[next(iter(seen.refused))])
    return Decision(Fail(fault, tuple(waiting)), actions)


# --- What the registry holds, and lacks -------------------------------------------------------------------------------


def prove(seen: Observation) -> Decision:
    """Complete what the registry holds as proven here, and send what it lacks."""
    if not seen.root_is_confirmed and seen.asked and any(seen.view.state_root):
        return Decision(Requeue(wait("other_state_root", block=seen.number), seen.poll_seconds))
    header_steps = _header_steps(seen)
    if seen.contradiction:
        return Decision(Fail(seen.contradiction), header_steps)
    known = [*header_steps, *_fact_steps(seen)]
    lacking = seen.lacking
    if lacking is None or not lacking.missing_now:
        return _moved(seen, known) or Decision(Continue(), known)
    needs_path = not lacking.hash_is_vouched_for and lacking.needing == lacking.missing_now
    if needs_path and not lacking.root_is_known:
        # What a path leads to isn't available yet; it is as soon as one is planned.
        known = [one for one in known if not isinstance(one, Complete) or one.step != StepKind.BLOCKHASH_AVAILABLE]
    if held_back := _held_back(seen, lacking, needs_path=needs_path):
        return Decision(held_back, known)
    return _ready(seen, lacking, known, needs_path=needs_path)


def _moved(seen: Observation, known: Sequence[Action]) -> Decision | None:
    """Look for a time that others are to prove and a reorg may have moved: nobody could prove it at this block."""
    if seen.lacking is None or seen.lacking.trust is None:
        return None
    for fact, asking in seen.missing.items():
        if isinstance(fact, TimeFact) and not _is_between(fact.timestamp, seen, seen.lacking.trust.header):
            return Decision(FindTime(fact.timestamp, asking), known)
    return None


def _is_between(timestamp: int, seen: Observation, following: Header) -> bool:
    return (seen.timestamp or 0) <= timestamp < following.timestamp


def _ready(seen: Observation, lacking: Lacking, known: Sequence[Action], *, needs_path: bool) -> Decision:
    """Decide what is sent now, where nothing holds it back; or look for a path."""
    trust = lacking.trust
    if needs_path and trust is not None:
        return Decision(FindPath(trust.header, lacking.needing), known)
    if lacking.needing and not lacking.hash_is_vouched_for:
        rest = {fact: asking for fact, asking in lacking.missing_now.items() if fact not in lacking.needing}
        prove = Prove(rest, root_is_known=True, is_optional=True, is_alone=_is_alone(lacking))
        if trust is None or (trust.is_extending and not trust.may_jump) or trust.pause_after_failures:
            return Decision(Continue(), [*known, prove])
        return Decision(FindPath(trust.header, lacking.needing), [*known, prove])
    arrived = [ShowPath(0)] if seen.path_left else []
    if gathering := _gathering(seen, lacking):
        return Decision(gathering, [*arrived, *known])
    sending = _sending(seen, lacking)
    return Decision(sending.then, [*arrived, *known, *sending.actions])


def _gathering(seen: Observation, lacking: Lacking) -> Requeue | None:
    """Wait for others to share a transaction with, if the operator wants that; all of them until the same moment."""
    is_alone = _is_alone(lacking) or len(lacking.missing_now) > _MOST_THAT_GATHERS
    if seen.waits_since is None or is_alone or any(isinstance(fact, TimeFact) for fact in lacking.missing_now):
        return None
    waited = (seen.now - seen.waits_since).total_seconds()
    left = seen.gather_seconds - seen.waits_since.timestamp() % seen.gather_seconds - waited
    # More is left only where a clock was ahead.
    if not 0 < left <= seen.gather_seconds:
        return None
    return Requeue(wait("gathering", seconds=seen.gather_seconds), left)


def _held_back(seen: Observation, lacking: Lacking, *, needs_path: bool) -> Requeue | Fail | None:
    """Return why nothing of what is missing may be sent now; None if it may."""
    trust = lacking.trust
    if needs_path and trust is None:
        return Requeue(wait("block_after", block=seen.number), seen.source_poll_seconds)
    if needs_path and trust and trust.is_extending and not trust.may_jump:
        return wait_for_path(seen)
    if needs_path and trust and trust.pause_after_failures:
        return Requeue(wait("path_reverted"), trust.pause_after_failures)
    if lacking.failures > seen.attempts:
        # They reverted although their simulations did not, and that costs gas each time.
        return Fail(wait("reverted", count=lacking.failures))
    if lacking.is_accumulating and not lacking.root_is_known:
        return Requeue(wait("header"), seen.poll_seconds)
    return None


def _header_steps(seen: Observation) -> list[Action]:
    actions: list[Action] = [_hash_available(seen)]
    if seen.root_is_confirmed:
        # What asks for facts of the header itself completes this step when those are read back.
        plain = [query.id for query in seen.awaiting_header if not query.is_of_header and query.timestamp is None]
        accumulated = Complete(plain, StepKind.HEADER_ACCUMULATED, seen.accumulated_by)
        actions = [ShowPath(0), *actions, accumulated]
    return actions


def _hash_available(seen: Observation) -> Complete:
    # No path is planned here for what others send: the registry must trust the block already.
    at_step = [
        query.id
        for query in seen.awaiting_header
        if query.step == StepKind.BLOCKHASH_AVAILABLE and (seen.is_trusted or not query.is_left_to_others)
    ]
    return Complete(at_step, StepKind.BLOCKHASH_AVAILABLE)


def _fact_steps(seen: Observation) -> Iterator[Action]:
    """Yield the steps of queries whose facts all read back as proven, and the header's of those that lack no time."""
    lacking = {pk for asking in seen.missing.values() for pk in asking}
    held = defaultdict(list)
    for pk in seen.asked:
        if pk not in lacking:
            held[seen.proven_by.get(pk, "")].append(pk)
    for tx_hash, pks in held.items():
        yield Complete(pks, StepKind.HEADER_ACCUMULATED, tx_hash)
        yield Complete(pks, StepKind.ACCOUNT_ACCUMULATED, tx_hash)
    if seen.root_is_confirmed:
        # Accounts of a block that a time selected: once the time is proven, only they are still to come.
        untimed = {pk for fact, asking in seen.missing.items() if isinstance(fact, TimeFact) for pk in asking}
        there = {pk for pk, query in seen.asked.items() if query.step != StepKind.ACCOUNT_ACCUMULATED}
        timed = [pk for pk in there & lacking - untimed if not seen.asked[pk].is_of_header]
        yield Complete(timed, StepKind.HEADER_ACCUMULATED, seen.accumulated_by)


def _sending(seen: Observation, lacking: Lacking) -> Decision:
    """Decide what can be sent at once. Only one transaction carries the header: the others wait for it."""
    missing = lacking.missing_now
    times = {fact.timestamp: asking for fact, asking in missing.items() if isinstance(fact, TimeFact)}
    if not times:
        return Decision(Continue(), [_prove(lacking, missing)])
    assert lacking.trust is not None, "`prove` waits for it"
    following = lacking.trust.header
    for timestamp, asking in times.items():
        if not _is_between(timestamp, seen, following):
            return Decision(FindTime(timestamp, asking))
    if following.parent_hash != seen.hash:
        return Decision(Requeue(wait("reorganised"), seen.source_poll_seconds))
    timed = {pk for asking in times.values() for pk in asking}
    others = {fact: [pk for pk in asking if pk not in timed] for fact, asking in missing.items()}
    others = {fact: asking for fact, asking in others.items() if asking}
    # One accumulates the header as well: the rest can follow without it.
    sending: ProveTime | Prove | None = _prove(lacking, others) if others else None
    for timestamp, asking in reversed(times.items()):
        sending = ProveTime(timestamp, following, asking, otherwise=sending)
    assert sending is not None, "there are times"
    return Decision(Continue(), [sending])


def _prove(lacking: Lacking, missing: Missing) -> Prove:
    return Prove(missing, root_is_known=lacking.root_is_known, is_alone=_is_alone(lacking))


def _is_alone(lacking: Lacking) -> bool:
    """Return whether it may well revert: what shared its transaction would revert with it, at others' expense."""
    return bool(lacking.failures) or (lacking.trust is not None and not lacking.trust.is_vouched_for_long)


def time(seen: Observation, asked: FindTime, found: BlockOfTime) -> Decision:
    """Move the queries of a time to the block to which a reorg has moved it."""
    if not found.has_later:
        none_later = wait("no_later_block", chain=seen.source, time=asked.timestamp)
        return Decision(Requeue(none_later, seen.source_poll_seconds))
    if found.number is None or found.number == seen.number:
        return Decision(Fail(wait("time_contradicted", time=asked.timestamp, block=seen.number)))
    reason = wait("time_moved", time=asked.timestamp, block=found.number)
    return Decision(Requeue(reason, 0), [MoveToBlock(asked.queries, found.number, str(reason))])


# --- The path to the block --------------------------------------------------------------------------------------------


def path(seen: Observation, asked: FindPath, found: PathFound | Preparation | NotYet | TooFar) -> Decision:
    """Send the next transaction of the path, if one can begin and no other block has waited longer for one."""
    asking = sorted({pk for pks in asked.needing.values() for pk in pks})
    match found:
        case PathFound() if asked.target.number == seen.number and found.goes_with_proofs:
            return Decision(Continue(), [*_found(seen, found), _prove_by(seen, asked, found)])
        case PathFound() | Preparation() if _is_extending(seen):
            # It didn't wait before, because it might have jumped.
            return Decision(wait_for_path(seen))
        case PathFound():
            extend = [ExtendPath(found.path, asked.target, asked.needing, found.jump)] if found.is_first else []
            return Decision(wait_for_path(seen), [*_found(seen, found), *extend])
        case Preparation():
            return Decision(Requeue(wait("recording"), seen.poll_seconds), [PreparePath(found, asking)])
        case NotYet():
            return Decision(Requeue(found.reason, max(seen.poll_seconds, seen.source_poll_seconds)))
        case TooFar():
            # Admission found a path. A node that is stale, or of another chain, may hide it for a moment.
            return Decision(Fail(wait("node_doubted", reason=found.reason)))


def _is_extending(seen: Observation) -> bool:
    return bool(seen.lacking and seen.lacking.trust and seen.lacking.trust.is_extending)


def _found(seen: Observation, found: PathFound) -> list[Action]:
    match found.path:
        case Jump(origin=origin):
            shown = ShowPath(1, PathUnit.JUMPS, origin.number if origin else None)
        case Hops(stops=stops):
            shown = ShowPath(len(stops), PathUnit.HOPS)
        case Start():
            shown = ShowPath(0, PathUnit.HOPS)
    return [shown, _hash_available(seen)]


def _prove_by(seen: Observation, asked: FindPath, found: PathFound) -> Prove:
    """Send the block's own proofs, which begin with what makes its hash trusted: none has to be stored for that."""
    assert seen.lacking is not None, "a path is only sought for what is missing"
    calls = found.path.calls if isinstance(found.path, Start) else None
    is_alone = bool(seen.lacking.failures) or calls is not None
    return Prove(asked.needing, seen.lacking.root_is_known, is_alone=is_alone, jump=found.jump, calls=calls or ())


def wait_for_path(seen: Observation) -> Requeue:
    """Wait until the registry trusts further blocks: one transaction at a time leads there."""
    return Requeue(wait("path"), seen.poll_seconds, for_path=True)


# --- At the end -------------------------------------------------------------------------------------------------------


def rest(seen: Rest) -> End:
    """Decide when to reconcile again, once all is done that can be."""
    if seen.is_left_to_others and not seen.is_under_way:
        return Requeue(None, _PAUSE_FOR_OTHERS)
    if seen.is_open:
        # The transaction monitor wakes the block when the transaction's state changes.
        return Requeue(seen.waits_for, seen.poll_seconds * (_TENDED_POLLS if seen.is_under_way else 1))
    # All is done, or rejected. It stays done only as long as the destination keeps the block that holds it.
    if seen.checked_number is None or seen.checked_number <= seen.final:
        return Settled()
    return Requeue(None, max(2, (seen.checked_number - seen.final) / 4) * seen.block_seconds)
