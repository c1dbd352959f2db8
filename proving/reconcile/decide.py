"""Decisions about a block: pure functions from observations to actions, and to the next stage or wait.

Nothing here reads a row or a chain, writes, sends or raises. Only the actions of `Sending` cost money.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from chains.encoding import hex_data
from chains.tries.header import Header
from proving.facts import Missing, TimeFact, needs_header
from proving.failures import NO_TRIES, Tries
from proving.paths.checkpoints import Jump
from proving.paths.planning import Hops, Path, TooFar, goes_with_proofs
from proving.reconcile.observation import (
    BlockOfTime,
    BlockState,
    Checked,
    Gone,
    Observation,
    SourceBlock,
    Unfetched,
    UnprovenFacts,
)
from proving.reconcile.proofs import Fetched
from proving.sources import NotYet, Preparation, Start
from proving.working import heads
from proving.working.ends import Done, End, Fails, Waits
from queries.batch_states import Complete
from queries.columns import LASTING_REASONS, PASSING_CODES, HeaderField, RejectionCode
from queries.models import PathUnit, StepKind
from queries.waits import WaitReason, wait

# How long nodes may refuse to serve a proof before its batch is rejected. They may be syncing, or temporarily lack the
# newest state.
_UNSERVED_PROOF_WAIT = timedelta(minutes=10)
# Maximum facts that failed, each of a batch, for which a turn tries to send something if the first can't be sent.
_MOST_FURTHER = 8
# Seconds until a block that waits for others' transactions is reconciled, if nodes serve no events. If they do, the
# registry's events show others' transactions (`proving.paths.checkpoints`).
_PAUSE_FOR_OTHERS = 300
# Maximum seconds before a source chain is asked again for a block that it has not reached.
_LONGEST_PAUSE = 60
# Number of polls after which a block with a pending transaction is reconciled, even if nothing woke it.
_TENDED_POLLS = 16


# --- Actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reopen:
    """Reopen a step of queries (ids)."""

    queries: Collection[int]
    step: StepKind
    reason: str


@dataclass(frozen=True)
class MoveToBlock:
    """Give queries (ids) another block of the source chain, and restart them."""

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
    """Store the block's header. If another header was stored, all queries of the block start again."""

    header: Header


@dataclass(frozen=True)
class StoreProofs:
    fetched: Fetched


@dataclass(frozen=True)
class Note:
    """Store values in columns of the block's row, by the columns' names. None of them changes a query."""

    columns: Mapping[str, object]


# A block whose path is complete becomes a checkpoint.
PATH_IS_COMPLETE = Note({"path_left": 0, "is_checkpoint": True})


def note_path(remaining: int, unit: PathUnit, origin: int | None = None) -> Note:
    """Store the remaining length of the path to the block, and the number of the block where a jump begins."""
    return Note({"path_unit": unit, "path_left": remaining, "path_origin": origin})


def note_checked(confirmed: Header) -> Note:
    """Store the destination's confirmed block in which the completed facts were read."""
    return Note({"checked_number": confirmed.number, "checked_hash": hex_data(confirmed.hash)})


@dataclass(frozen=True)
class Prove:
    """Send proofs of facts: below a trusted state root, or in one transaction with the header."""

    missing: Missing
    root_is_known: bool  # True if the registry knows the block's state root
    is_optional: bool = False  # True if no wait is needed when nobody can pay for it
    is_alone: bool = False  # True if it may revert, and so shares no transaction with other blocks
    path: Path | None = None  # makes the header's hash trusted first, if nothing vouches for it
    roots: Collection[HeaderField] = ()  # those of receipts and transactions that are facts
    least_limit: int = 0  # the least gas limit, because lower ones have failed
    otherwise: "Prove | None" = None  # the action for other facts, if these can't be sent

    @property
    def with_header(self) -> bool:
        """Return whether the transaction must carry the header, for the state root or for facts that need it.

        If batches that can't pay are left out, the remaining facts may not need the header.
        """
        return not self.root_is_known or any(needs_header(fact, self.roots) for fact in self.missing)


@dataclass(frozen=True)
class ProveTime:
    """Send the proof of the latest block at a time. It contains the block's header and the next one."""

    timestamp: int
    following: Header
    queries: Collection[int]
    least_limit: int = 0
    otherwise: "ProveTime | Prove | None" = None
    """The action for other queries, if no batch of these can pay."""


@dataclass(frozen=True)
class PreparePath:
    """Send the transaction that a path needs before it can begin."""

    preparation: Preparation
    queries: Collection[int]
    least_limit: int = 0


@dataclass(frozen=True)
class ExtendPath:
    """Send the next transaction of a path. If it reaches the block, it also proves facts."""

    path: Path
    target: Header
    missing: Missing
    least_limit: int = 0


Change = Complete | Reopen | MoveToBlock | Reject | TakeHeader | StoreProofs | Note
"""An action that changes rows."""
Sending = Prove | ProveTime | PreparePath | ExtendPath
Action = Change | Sending


# --- Next steps -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Continue:
    """Continue with the next stage of the turn."""


@dataclass(frozen=True)
class FindWhatIsGone:
    """The destination had a reorg. Observe which facts it has lost, and decide with `gone`."""


@dataclass(frozen=True)
class FindPath:
    """The registry doesn't trust the hash of `target`. Plan a path to it, and decide with `path`."""

    target: Header
    missing: Missing


@dataclass(frozen=True)
class FindTime:
    """The source chain had a reorg. Find the block of a time again, and decide with `time`."""

    timestamp: int
    queries: Collection[int]


@dataclass(frozen=True)
class Decision:
    """The actions in order, and the end or the next stage after them."""

    then: End | Continue | FindWhatIsGone | FindPath | FindTime
    actions: Sequence[Action] = ()

    @property
    def changes(self) -> list[Change]:
        return [action for action in self.actions if isinstance(action, Change)]


# --- When the destination was reorganised -----------------------------------------------------------------------------


def checked(seen: Checked) -> Decision:
    """Decide whether the block in which the facts were last read still exists."""
    if seen.header is None or seen.is_behind:
        # A lower head comes from a node that lags. Only another block at the same height shows a reorg.
        return Decision(
            Waits(wait("node_behind", chain=seen.destination, block=seen.number), seen.poll_seconds),
        )
    return Decision(Continue() if seen.header.hash == seen.hash else FindWhatIsGone())


def gone(seen: Checked, completed: Gone) -> Decision:
    """Reopen queries whose facts the registry has lost in a reorg of the destination."""
    reason = f"The destination chain was reorganised: block {seen.number} is another one now."
    if completed.contradiction:
        return Decision(Fails(completed.contradiction))
    reopened = [
        Reopen(completed.lacking_header, StepKind.HEADER_ACCUMULATED, reason),
        Reopen(completed.lacking_facts, StepKind.FACTS_PROVEN, reason),
    ]
    return Decision(Continue(), [*reopened, note_checked(seen.confirmed)])


# --- Proofs of the source chain ---------------------------------------------------------------------------------------


def source_block(seen: SourceBlock) -> Decision:
    """Store the source chain's header, or wait for the block."""
    if seen.header is None and seen.number <= seen.head:
        return Decision(Fails(wait("source_without_block", chain=seen.source, block=seen.number)))
    if seen.header is None:
        # The block is requested again when it should exist.
        seconds = max(seen.poll_seconds, min(seen.seconds, _LONGEST_PAUSE))
        return Decision(Waits(heads.not_there_yet(seen.source, seen.number, seen.head), seconds))
    is_stored = seen.stored_hash == hex_data(seen.header.hash)
    return Decision(Continue(), [] if is_stored else [TakeHeader(seen.header)])


def unfetched(seen: Unfetched) -> Decision:
    """Wait for proofs that could not be fetched. Reject queries whose proofs nodes have refused for too long.

    A proof that is only withheld is waited for until the batch's deadline.
    """
    since = (seen.refused_since or seen.now) if seen.refused else None
    actions: list[Action] = [] if since == seen.refused_since else [Note({"refused_since": since})]
    waiting = dict(seen.faults)
    lost = [pk for pk in seen.refused if pk not in seen.withheld]
    if lost and since is not None and seen.now - since >= _UNSERVED_PROOF_WAIT:
        fault = waiting[lost[0]]
        if fault.code in RejectionCode.values:
            code = RejectionCode(fault.code)
            actions = [Reject(lost, code, fault, retryable=code in PASSING_CODES)]
        else:
            reason = wait("no_usable_proof", chain=seen.source, block=seen.number, reason=fault)
            may_pass = fault.code not in LASTING_REASONS
            actions = [Reject(lost, RejectionCode.PROOF_UNAVAILABLE, reason, retryable=may_pass)]
        waiting = {pk: fault for pk, fault in waiting.items() if pk not in lost}
    if not waiting:
        return Decision(Continue(), actions)
    fault = next(iter(waiting.values()))
    if waiting.keys() & set(lost):
        fault = wait("rejected_in_ten_minutes", reason=waiting[lost[0]])
    return Decision(Fails(fault, tuple(waiting)), actions)


# --- Facts of the registry --------------------------------------------------------------------------------------------


def prove(seen: Observation) -> Decision:
    """Complete the steps whose facts the registry holds, and decide how to prove the missing facts.

    Facts that were sent in vain too often wait. Other facts of the block don't wait for them.
    """
    decision = _prove(seen)
    given_up = seen.unproven.given_up if seen.unproven else ()
    if not given_up or not isinstance(decision.then, Continue):
        return decision
    queries = {pk for attempt in given_up for asking in attempt.missing.values() for pk in asking}
    tries = given_up[-1].tries
    return replace(decision, then=Fails(wait("reverted", count=tries.count, reason=tries.last), tuple(sorted(queries))))


def _prove(seen: Observation) -> Decision:
    if not seen.root_is_confirmed and seen.queries and any(seen.view.state_root):
        return Decision(Waits(wait("other_state_root", block=seen.number), seen.poll_seconds))
    completed = list(_completed(seen))
    if seen.contradiction:
        return Decision(Fails(seen.contradiction), completed)
    unproven = seen.unproven
    if unproven is None or not unproven.to_send:
        return _moved(seen, completed) or Decision(Continue(), completed)
    needs_path = not unproven.hash_is_vouched_for and unproven.to_send_with_header == unproven.to_send
    if needs_path and not unproven.root_is_known:
        # The hash of a block that needs a path becomes available only when a path is planned.
        completed = [
            action
            for action in completed
            if not isinstance(action, Complete) or action.step != StepKind.BLOCKHASH_AVAILABLE
        ]
    if held_back := _held_back(seen, unproven, needs_path=needs_path):
        return Decision(held_back, completed)
    return _ready(seen, unproven, completed, needs_path=needs_path)


def _moved(seen: Observation, completed: Sequence[Action]) -> Decision | None:
    """Find a time's block again if a reorg has moved it, because the time can't be proven at this block.

    This matters for times that others must prove. Return None if no time has moved.
    """
    if seen.unproven is None or seen.unproven.trust is None:
        return None
    for fact, queries in seen.missing.items():
        if isinstance(fact, TimeFact) and not _is_between(fact.timestamp, seen, seen.unproven.trust.header):
            return Decision(FindTime(fact.timestamp, queries), completed)
    return None


def _is_between(timestamp: int, seen: Observation, following: Header) -> bool:
    return (seen.timestamp or 0) <= timestamp < following.timestamp


def _ready(seen: Observation, unproven: UnprovenFacts, completed: Sequence[Action], *, needs_path: bool) -> Decision:
    """Decide what to send now, or request a path. Nothing delays sending."""
    trust = unproven.trust
    if needs_path and trust is not None:
        return Decision(FindPath(trust.header, unproven.to_send_with_header), completed)
    if unproven.to_send_with_header and not unproven.hash_is_vouched_for:
        provable = {
            fact: queries for fact, queries in unproven.to_send.items() if fact not in unproven.to_send_with_header
        }
        prove = replace(_proof_of(unproven, provable, unproven.tries), root_is_known=True, is_optional=True)
        if trust is None or (trust.is_extending and not trust.may_jump) or trust.path_tries.is_over:
            return Decision(Continue(), [*completed, prove])
        return Decision(FindPath(trust.header, unproven.to_send_with_header), [*completed, prove])
    arrived = [PATH_IS_COMPLETE] if seen.path_left else []
    sending = _sending(seen, unproven)
    return Decision(sending.then, [*arrived, *completed, *sending.actions])


def _held_back(seen: Observation, unproven: UnprovenFacts, *, needs_path: bool) -> Waits | Fails | None:
    """Return why no missing fact may be proven now. None if some may."""
    trust = unproven.trust
    if needs_path and trust is None:
        return Waits(wait("block_after", block=seen.number), seen.source_poll_seconds)
    if needs_path and trust and trust.is_extending and not trust.may_jump:
        return wait_for_path(seen)
    if needs_path and trust and trust.path_tries.is_over:
        return Fails(wait("path_reverted", count=trust.path_tries.count, reason=trust.path_tries.last))
    if unproven.is_accumulating and not unproven.root_is_known:
        return Waits(wait("header"), seen.poll_seconds)
    return None


def _hash_available(seen: Observation) -> Complete:
    # No path is planned for transactions that others send, so the registry must already trust the block.
    at_step = [
        query.id
        for query in seen.awaiting_header
        if query.step == StepKind.BLOCKHASH_AVAILABLE and (seen.is_trusted or not query.is_left_to_others)
    ]
    return Complete(at_step, StepKind.BLOCKHASH_AVAILABLE)


def _completed(seen: Observation) -> Iterator[Action]:
    """Yield the steps that the registry's header and facts complete. A contradicted query completes none by facts."""
    if seen.root_is_confirmed:
        yield PATH_IS_COMPLETE
    yield _hash_available(seen)
    if seen.root_is_confirmed:
        # Header queries complete this step only when their facts are read.
        plain = [query.id for query in seen.awaiting_header if not query.is_of_header and query.timestamp is None]
        yield Complete(plain, StepKind.HEADER_ACCUMULATED, seen.accumulated_by)
    if seen.contradiction:
        return
    incomplete = {pk for queries in seen.missing.values() for pk in queries}
    proven_by = defaultdict(list)
    for pk in seen.queries:
        if pk not in incomplete:
            proven_by[seen.proven_by.get(pk, "")].append(pk)
    for tx_hash, queries in proven_by.items():
        yield Complete(queries, StepKind.HEADER_ACCUMULATED, tx_hash)
        yield Complete(queries, StepKind.FACTS_PROVEN, tx_hash)
    if seen.root_is_confirmed:
        # Proving a time also accumulates the header. So a query that selects its block by a time then lacks only
        # account facts.
        untimed = {pk for fact, queries in seen.missing.items() if isinstance(fact, TimeFact) for pk in queries}
        before_facts = {pk for pk, query in seen.queries.items() if query.step != StepKind.FACTS_PROVEN}
        timed = [pk for pk in before_facts & incomplete - untimed if not seen.queries[pk].is_of_header]
        yield Complete(timed, StepKind.HEADER_ACCUMULATED, seen.accumulated_by)


def _sending(seen: Observation, unproven: UnprovenFacts) -> Decision:
    """Decide what can be sent now. Only one transaction carries the header, and the others wait for it."""
    missing, tries = unproven.to_send, unproven.tries
    times = {fact.timestamp: queries for fact, queries in missing.items() if isinstance(fact, TimeFact)}
    if not times:
        return Decision(Continue(), [replace(_proof_of(unproven, missing, tries), otherwise=_further(unproven))])
    assert unproven.trust is not None, "`prove` waits for it"
    following = unproven.trust.header
    for timestamp, queries in times.items():
        if not _is_between(timestamp, seen, following):
            return Decision(FindTime(timestamp, queries))
    if following.parent_hash != seen.hash:
        return Decision(Waits(wait("reorganised"), seen.source_poll_seconds))
    timed = {pk for queries in times.values() for pk in queries}
    others = {fact: [pk for pk in queries if pk not in timed] for fact, queries in missing.items()}
    others = {fact: queries for fact, queries in others.items() if queries}
    # The proof of a time also accumulates the header, so the other facts can follow without it.
    sending: ProveTime | Prove | None = _proof_of(unproven, others, tries) if others else None
    for timestamp, queries in reversed(times.items()):
        sending = ProveTime(timestamp, following, queries, tries.least_limit, otherwise=sending)
    assert sending is not None, "there are times"
    return Decision(Continue(), [sending])


def _further(unproven: UnprovenFacts) -> Prove | None:
    """Return the action for facts that have failed, in case that the first facts can't be sent."""
    action: Prove | None = None
    for attempt in reversed(unproven.next_attempts[1 : 1 + _MOST_FURTHER]):
        proof = _proof_of(unproven, attempt.missing, attempt.tries)
        has_time = any(isinstance(fact, TimeFact) for fact in attempt.missing)
        if not has_time and (unproven.hash_is_vouched_for or not proof.with_header):
            action = replace(proof, otherwise=action)
    return action


def _proof_of(unproven: UnprovenFacts, missing: Missing, tries: Tries) -> Prove:
    return Prove(
        missing,
        root_is_known=unproven.root_is_known,
        is_alone=_is_alone(unproven, tries),
        roots=unproven.roots,
        least_limit=tries.least_limit,
    )


def _is_alone(unproven: UnprovenFacts, tries: Tries) -> bool:
    """Return whether a proof may revert.

    Other proofs in the same transaction would revert too, at their batches' expense.
    """
    return tries.count > 0 or (unproven.trust is not None and not unproven.trust.is_vouched_for_long)


def time(seen: Observation, step: FindTime, block: BlockOfTime) -> Decision:
    """Move the queries of a time to its new block after a reorg."""
    if not block.has_later:
        none_later = wait("no_later_block", chain=seen.source, time=step.timestamp)
        return Decision(Waits(none_later, seen.source_poll_seconds))
    if block.number is None or block.number == seen.number:
        return Decision(Fails(wait("time_contradicted", time=step.timestamp, block=seen.number)))
    reason = wait("time_moved", time=step.timestamp, block=block.number)
    return Decision(Waits(reason, 0), [MoveToBlock(step.queries, block.number, str(reason))])


# --- The path to the block --------------------------------------------------------------------------------------------


def path(
    seen: Observation, step: FindPath, plan: Path | Preparation | NotYet | TooFar, *, is_first: bool = True
) -> Decision:
    """Send the next transaction of the path, if one can begin and no other block has waited longer (`is_first`)."""
    queries = sorted({pk for pks in step.missing.values() for pk in pks})
    match plan:
        case Start() | Hops() | Jump() if step.target.number == seen.number and goes_with_proofs(plan):
            return Decision(Continue(), [*_path_steps(seen, plan), _prove_by(seen, step, plan)])
        case Start() | Hops() | Jump() | Preparation() if _is_extending(seen):
            # The block could have used a jump, so it hasn't waited for the pending path before.
            return Decision(wait_for_path(seen))
        case Start() | Hops() | Jump():
            extend = [ExtendPath(plan, step.target, step.missing, _path_tries(seen).least_limit)] if is_first else []
            return Decision(wait_for_path(seen), [*_path_steps(seen, plan), *extend])
        case Preparation():
            prepare = PreparePath(plan, queries, _path_tries(seen).least_limit)
            return Decision(Waits(wait("recording"), seen.poll_seconds), [prepare])
        case NotYet():
            return Decision(Waits(plan.reason, max(seen.poll_seconds, seen.source_poll_seconds)))
        case TooFar():
            # Admission found a path. A node that lags or belongs to another chain may hide it temporarily.
            return Decision(Fails(wait("node_doubted", reason=plan.reason)))


def _path_tries(seen: Observation) -> Tries:
    return seen.unproven.trust.path_tries if seen.unproven and seen.unproven.trust else NO_TRIES


def _is_extending(seen: Observation) -> bool:
    return bool(seen.unproven and seen.unproven.trust and seen.unproven.trust.is_extending)


def _path_steps(seen: Observation, plan: Path) -> list[Action]:
    match plan:
        case Jump(origin=origin):
            shown = note_path(1, PathUnit.JUMPS, origin.number if origin else None)
        case Hops(stops=stops):
            shown = note_path(len(stops), PathUnit.HOPS)
        case Start():
            shown = note_path(0, PathUnit.HOPS)
    return [shown, _hash_available(seen)]


def _prove_by(seen: Observation, step: FindPath, plan: Path) -> Prove:
    """Send the block's own proofs, in one transaction with the path that makes its hash trusted."""
    assert seen.unproven is not None, "a path is only sought for missing facts"
    proof = _proof_of(seen.unproven, step.missing, seen.unproven.tries)
    return replace(proof, is_alone=seen.unproven.tries.count > 0 or isinstance(plan, Start), path=plan)


def wait_for_path(seen: Observation) -> Waits:
    """Wait until the registry trusts further blocks. Only one transaction at a time extends its trust."""
    return Waits(wait("path"), seen.poll_seconds, for_path=True)


# --- At the end -------------------------------------------------------------------------------------------------------


def end(seen: BlockState) -> End:
    """Decide when to reconcile again, at the end of a turn."""
    if seen.is_left_to_others and not seen.is_under_way:
        return Waits(None, _PAUSE_FOR_OTHERS)
    if seen.is_open:
        # The transaction monitor wakes the block when the transaction's state changes.
        return Waits(seen.waits_for, seen.poll_seconds * (_TENDED_POLLS if seen.is_under_way else 1))
    # All queries are done or rejected. A reorg of the destination may still remove their facts.
    if seen.checked_number is None or seen.checked_number <= seen.final:
        return Done()
    return Waits(None, max(2, (seen.checked_number - seen.final) / 4) * seen.block_seconds)
