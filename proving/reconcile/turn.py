"""A turn of a connection, which moves the queries of source blocks through their steps.

A turn observes the rows and both chains, decides about each block separately, and acts. It has three stages: reorgs of
the destination, proofs of the source chain, and facts that the registry holds or lacks. Each stage handles all blocks
together, so that few requests and statements suffice. No state is kept. If a turn runs twice, is killed, or is run by
another worker, the result is the same as long as the chains are the same. A reorg needs no special handling, because
facts that it removed are just missing.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

from django.db.models.functions import Now

from chains.nodes.node_errors import ChainError
from config import logs
from config.database import due_rows, statements
from config.database.due_rows import Claim
from config.error_answers import why_unavailable
from proving import connections
from proving.connections import WorkContext
from proving.facts import NoRegistry
from proving.health import stored_problems
from proving.health.current_problems import SeenProblem, of_connection
from proving.health.problem_kinds import ProblemKind
from proving.models import Transaction
from proving.paths import building, planning
from proving.paths.planning import Path
from proving.reconcile import apply, decide, observe, proofs
from proving.reconcile.decide import (
    Change,
    Decision,
    FindPath,
    FindTime,
    FindWhatIsGone,
    StoreProofs,
    TakeHeader,
)
from proving.reconcile.observation import Observation, OpenRequests
from proving.registries.deployments import Unusable
from proving.sources import NotYet
from proving.working import counters, heads, lanes
from proving.working.ends import OUTCOMES, Done, End, Fails, Waits
from proving.working.lanes import HeldLane, LaneKind, LaneLost
from queries import batch_states, waits
from queries.batch_states import Complete
from queries.models import Block, StepKind, open_queries
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# Maximum paths that a turn searches. Each needs separate requests, and only one is sent at a time.
_PATHS = 16
# Number of attempts, in more than three minutes, that wait for the branch of a jump. Later attempts use a much more
# expensive path.
_BRANCH_ATTEMPTS = 8
# Seconds after which a turn fetches no further proofs while other users wait.
_SECONDS = 2
_UNUSABLE_SECONDS = 10
# Maximum queries whose INITIAL_STATE is completed together with their next step. Each is named in several statements.
_FEW = 50
# The end for a block about which our own code fails.
_DEFECT = Fails(wait("internal_error"))


def reconcile_all(lane: HeldLane, keys: Sequence[object], most_proofs: int, *, alone: int = 0) -> int:
    """Move the queries of these blocks of one connection forward as far as the chains allow.

    About `most_proofs` proofs are fetched, or `alone` if all blocks are due for the same user. Return the number of
    blocks that failed because of an internal error.
    """
    claim = lane.write(partial(due_rows.claim, Block.objects.all(), keys))
    is_alone = len({block.queued_for_id for block in claim.rows}) == 1
    most_proofs = max(most_proofs, alone) if is_alone else most_proofs

    failed = 0

    def work(blocks: Sequence[Block]) -> None:
        nonlocal failed
        began = time.monotonic()
        ends = _reconcile(lane, blocks, most_proofs)
        _end_blocks(lane, claim, blocks, ends)
        for block in blocks:
            end = ends[block.pk]
            counters.note_job_run("block", "defect" if end == _DEFECT else OUTCOMES[type(end)], began)
        failed += list(ends.values()).count(_DEFECT)

    def give_up(block: Block) -> None:
        _end_blocks(lane, claim, [block], {block.pk: _DEFECT})
        counters.note_job_run("block", "defect", time.monotonic())

    given_up = lanes.work_on(lane, claim, claim.rows, work, give_up) if claim.rows else 0
    return failed + given_up


def _reconcile(lane: HeldLane, blocks: Sequence[Block], most_proofs: int) -> Mapping[int, End]:
    """Reconcile blocks of one connection. Return the ends of the turn by block id."""
    try:
        turn = _begun(lane, blocks)
    except Unusable as why:
        return dict.fromkeys((block.pk for block in blocks), Waits(why.reason, _UNUSABLE_SECONDS))
    except ChainError as error:
        return dict.fromkeys((block.pk for block in blocks), _failed(error))
    _reopen_lost(turn, blocks)
    blocks = turn.remaining_of(blocks)
    requests = observe.open_requests(blocks)
    if proving := [block for block in blocks if requests[block.pk].senders]:
        _prove_open_queries(turn, proving, requests, most_proofs)
        blocks = turn.remaining_of(blocks)
        requests = observe.open_requests(blocks)
    for pk, state in observe.states(turn.context, blocks, requests).items():
        if end := turn.ask(pk, partial(decide.end, state)):
            turn.end(pk, end)
    return turn.ends


def settle(lane: HeldLane, blocks: Sequence[Block]) -> list[WaitReason | None]:
    """Reopen queries of one connection's blocks whose facts a reorg has removed. Prove nothing.

    Blocks with final facts aren't checked again. Return an item for each other block: why its facts can't be read, if
    so. Raises `Unusable`, `ChainError`.
    """
    turn = _begun(lane, blocks)
    _reopen_lost(turn, blocks)
    for block in turn.remaining_of(blocks):
        if (block.checked_number or 0) > turn.context.heads.final:
            turn.end(block.pk, Waits(None, 0))

    def check_no_longer() -> None:
        settled = Block.objects.filter(pk__in=turn.remaining)
        statements.lock(settled)
        settled.update(checked_number=None, checked_hash="")

    lane.write(check_no_longer)
    return [None if isinstance(end, Done) else end.reason for end in turn.ends.values()]


def _begun(lane: HeldLane, blocks: Sequence[Block]) -> "_Turn":
    """Begin a turn of one connection. Raises `Unusable`, `ChainError`."""
    connection = connections.open_connection(blocks[0].destination_chain_id, blocks[0].source_chain_id)
    own_numbers = [block.number for block in blocks] if connection.is_own else ()
    recent = heads.recent(connection.destination_rpc.chain, connection.destination_rpc, own_numbers)
    return _Turn(WorkContext(connection, recent, lane), {block.pk: block for block in blocks})


@dataclass
class _Turn:
    """The blocks that the turn is still processing, and the ends for the other blocks."""

    context: WorkContext
    remaining: dict[int, Block]
    """The current rows of the blocks that the turn is still processing, by id."""
    ends: dict[int, End] = field(default_factory=dict)
    unwritten: list[tuple[int, Change]] = field(default_factory=list)
    """Changes that the next write makes before its own, each with its block's id."""
    began: float = field(default_factory=time.monotonic)

    def remaining_of(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the blocks for which the turn continues, with their current rows."""
        return [self.remaining[block.pk] for block in blocks if block.pk in self.remaining]

    def should_end(self) -> bool:
        """Return whether the turn has taken long while other users wait."""
        users, ends = {block.queued_for_id for block in self.remaining.values()}, self.context.connection.config
        here = Block.objects.filter(destination_chain_id=ends.destination_id, source_chain_id=ends.source_id)
        others = due_rows.due(here).exclude(queued_for__in=users)
        return time.monotonic() > self.began + _SECONDS and (len(users) > 1 or others.exists())

    def end(self, pk: int, end: End) -> None:
        self.ends[pk] = end
        self.remaining.pop(pk, None)

    def answered(self, answers: Mapping[int, Answer | ChainError]) -> dict[int, Answer]:
        """Return the observations of blocks for which the turn continues. It ends for blocks with an error."""
        observations: dict[int, Answer] = {}
        for pk, answer in answers.items():
            if isinstance(answer, ChainError):
                self.end(pk, self.failed(answer))
            elif pk in self.remaining:
                observations[pk] = answer
        return observations

    def ask(self, pk: int, about_one: Callable[[], Answer]) -> Answer | None:
        """Return an observation of one block, or a decision about it.

        The turn ends for the block if a chain doesn't answer, or if our own code fails. So other blocks still share
        their transactions.
        """
        try:
            return about_one()
        except ChainError as error:
            self.end(pk, self.failed(error))
        except LaneLost:
            raise
        except Exception as error:
            if why_unavailable(error):
                raise
            with logs.about(block=self.remaining[pk].number):
                logger.exception("a part of a turn failed")
            self.end(pk, _DEFECT)
        return None

    def decided(self, answers: Mapping[int, Answer], decide_one: Callable[[Answer], Decision]) -> dict[int, Decision]:
        """Return a decision about each block for which the turn continues."""
        decisions = {pk: self.ask(pk, partial(decide_one, answer)) for pk, answer in answers.items()}
        return {pk: decision for pk, decision in decisions.items() if decision}

    def failed(self, error: ChainError) -> End:
        # While the final block stands still, the registry may be newer.
        chain, is_unseen = self.context.destination_rpc.chain, isinstance(error, NoRegistry)
        stands = heads.standing(chain, Transaction.objects.none(), is_mined=True) if is_unseen else None
        return Waits(stands, _UNUSABLE_SECONDS) if stands else _failed(error)

    def write(self, changes: Sequence[tuple[int, Change]] = ()) -> None:
        """Write these changes of rows, each with its block's id, after those that are unwritten."""
        whole = [*self.unwritten, *changes]
        self.unwritten.clear()
        apply.write(self.context, self.remaining, [(pk, change) for pk, change in whole if pk in self.remaining])

    def act(self, decisions: Mapping[int, Decision]) -> None:
        """Carry out decisions. The turn ends for blocks whose decision says so, or if nothing can be sent."""
        self.write([(pk, change) for pk, decision in decisions.items() for change in decision.changes])
        sendings = {
            pk: (self.remaining[pk], action)
            for pk, decision in decisions.items()
            for action in decision.actions
            if not isinstance(action, Change)
        }
        why_not = apply.send_all(self.context, sendings)
        for pk, decision in decisions.items():
            if end := why_not.get(pk) or (decision.then if isinstance(decision.then, End) else None):
                self.end(pk, end)


def _failed(error: ChainError) -> Fails:
    for_path = isinstance(error, building.BranchUnavailable)
    return Fails(waits.fault(error), for_path=for_path)


def _reopen_lost(turn: _Turn, blocks: Sequence[Block]) -> None:
    """Reopen queries whose facts the destination has lost in a reorg."""
    all_checked = turn.answered(observe.checked(turn.context, blocks))
    decisions = turn.decided(all_checked, decide.checked)
    for pk in [pk for pk, decision in decisions.items() if isinstance(decision.then, FindWhatIsGone)]:
        del decisions[pk]
        completed = turn.ask(pk, partial(observe.gone, turn.context, turn.remaining[pk]))
        if completed is not None:
            decisions |= turn.decided({pk: completed}, partial(decide.gone, all_checked[pk]))
    turn.act(decisions)


def _prove_open_queries(
    turn: _Turn, blocks: Sequence[Block], requests: Mapping[int, OpenRequests], most_proofs: int
) -> None:
    """Take the blocks' headers, store proofs of the source chain, and send the facts that the registry lacks."""
    source_blocks = turn.answered(observe.source_blocks(turn.context, blocks))
    decisions = turn.decided(source_blocks, decide.source_block)
    headers = {
        pk: action
        for pk, decision in decisions.items()
        for action in decision.actions
        if isinstance(action, TakeHeader)
    }
    # A block's first header reopens nothing, and is stored together with its first proofs.
    first_headers = {pk: action for pk, action in headers.items() if not turn.remaining[pk].hash}
    turn.act({pk: decision for pk, decision in decisions.items() if pk not in first_headers})
    for pk, action in first_headers.items():
        turn.remaining[pk].take(action.header)
        turn.unwritten.append((pk, action))
    blocks = turn.remaining_of(blocks)
    # A new header makes all queries of the block start again.
    unproven = [block for block in blocks if StepKind.INITIAL_STATE in requests[block.pk].steps or block.pk in headers]
    fetching = _fetch_proofs(turn, blocks, unproven, most_proofs)
    # Proofs that can't be fetched don't delay the other queries.
    completing = {query for completion in fetching.completions.values() for query in completion.queries}
    observations = observe.registry(turn.context, turn.remaining_of(blocks), requests, completing)
    _send_missing_facts(turn, observations, fetching.completions)
    for block in blocks:
        pk, end = block.pk, turn.ends.get(block.pk)
        if pk in fetching.unfinished and not isinstance(end, Fails):
            # The next turn fetches more proofs for this block.
            turn.end(pk, replace(end, seconds=0) if isinstance(end, Waits) else Waits(None, 0))
        elif pk in fetching.faults and (end is None or _is_given_up(end)):
            turn.end(pk, fetching.faults[pk])


def _is_given_up(end: End) -> bool:
    """Return whether only facts, or a path, that failed too often are left. The operator is told."""
    return isinstance(end, Fails) and end.reason.code in {"reverted", "path_reverted"}


@dataclass(frozen=True)
class _Fetching:
    """The end of a turn's fetching, by the ids of blocks."""

    completions: Mapping[int, Complete]
    """Completions of INITIAL_STATE, whose proofs are stored, for the next write."""
    unfinished: Collection[int]
    """Blocks with more proofs to fetch."""
    faults: Mapping[int, Fails]


def _fetch_proofs(turn: _Turn, blocks: Sequence[Block], unproven: Sequence[Block], most_proofs: int) -> _Fetching:
    """Fetch proofs for the queries of blocks `unproven` that are at INITIAL_STATE, and store them in parts."""
    waiting = proofs.waiting(unproven, most_proofs)
    complete: dict[int, list[int]] = defaultdict(list)
    faults: dict[int, dict[int, WaitReason]] = defaultdict(dict)
    fetched_queries: set[int] = set()
    for number, part in enumerate(proofs.fetch(turn.context.source_rpc, waiting, turn.should_end)):
        for pk, fetched in part.items():
            turn.unwritten.append((pk, StoreProofs(fetched)))
            complete[pk] += fetched.complete
            faults[pk] |= fetched.faults
            fetched_queries |= {*fetched.faults, *fetched.complete}
        if sum(map(len, complete.values())) > _FEW:
            turn.unwritten += [(pk, Complete(queries, StepKind.INITIAL_STATE)) for pk, queries in complete.items()]
            complete.clear()
        if part:
            turn.write()
        # The first part takes no proofs.
        if number and turn.should_end():
            break
    # A block with a fault ends with it, so that it pauses. The next turn fetches its other proofs.
    unfinished = waiting.unfinished | {
        subject.block.pk
        for subject in waiting.subjects
        if not faults.get(subject.block.pk) and fetched_queries.isdisjoint(query.pk for query in subject.queries)
    }
    finished = [block for block in turn.remaining_of(blocks) if block.pk not in unfinished]
    unfetched = observe.unfetched(turn.context, finished, faults)
    decisions = turn.decided(unfetched, decide.unfetched)
    turn.write([(pk, change) for pk, decision in decisions.items() for change in decision.changes])
    return _Fetching(
        {pk: Complete(queries, StepKind.INITIAL_STATE) for pk, queries in complete.items()},
        unfinished,
        {pk: decision.then for pk, decision in decisions.items() if isinstance(decision.then, Fails)},
    )


def _send_missing_facts(
    turn: _Turn, answers: Mapping[int, Observation | ChainError], completions: Mapping[int, Complete]
) -> None:
    """Complete the steps whose facts the registry holds, and send missing facts. Begin with the completions."""
    observations = {pk: answer for pk, answer in answers.items() if not isinstance(answer, ChainError)}
    decisions = turn.decided(observations, decide.prove)
    decisions |= {pk: Decision(turn.failed(error)) for pk, error in answers.items() if isinstance(error, ChainError)}
    for pk, decision in decisions.items():
        first = [completions[pk]] if pk in completions else []
        decisions[pk] = replace(decision, actions=[*first, *decision.actions])
    turn.act(decisions)
    without_path: dict[int, FindPath] = {}
    for pk, decision in decisions.items():
        if pk not in turn.remaining:
            continue
        if isinstance(decision.then, FindPath):
            without_path[pk] = decision.then
        elif isinstance(decision.then, FindTime):
            block = turn.ask(pk, partial(observe.block_of_time, turn.context, decision.then.timestamp))
            if block is not None:
                turn.act(turn.decided({pk: block}, partial(decide.time, observations[pk], decision.then)))
    if without_path:
        _find_paths(turn, observations, without_path)


def _find_paths(turn: _Turn, observations: Mapping[int, Observation], without_path: Mapping[int, FindPath]) -> None:
    """Send the next transactions of paths one after another, first for the block that has waited longest.

    Only one transaction at a time extends the registry's trust. So if a path must be sent separately, the others wait.
    """
    first = building.first_for_path([turn.remaining[pk] for pk in without_path])
    searches_left = _PATHS
    for pk in sorted(without_path, key=lambda pk: pk != first):
        if not searches_left:
            if end := turn.ask(pk, partial(decide.wait_for_path, observations[pk])):
                turn.end(pk, end)
            continue
        block, target = turn.remaining[pk], without_path[pk].target
        # If the block wasn't waiting for a path, its earlier attempts failed for another reason.
        awaits_branch = block.attempts < _BRANCH_ATTEMPTS or not block.waits_for_path
        find = partial(building.find, turn.context.connection, target, (), awaits_branch=awaits_branch)
        path = turn.ask(pk, find)
        if path is not None:
            goes_on = isinstance(path, NotYet) or (isinstance(path, Path) and planning.goes_with_proofs(path))
            searches_left = searches_left - 1 if goes_on else 0
            is_first = first in {None, pk}
            decide_one = partial(decide.path, observations[pk], without_path[pk], is_first=is_first)
            turn.act(turn.decided({pk: path}, decide_one))


# --- At the end -------------------------------------------------------------------------------------------------------


def _end_blocks(lane: HeldLane, claim: Claim[Block], blocks: Sequence[Block], ends: Mapping[int, End]) -> None:
    for block in blocks:
        end = ends[block.pk]
        if not isinstance(end, Fails):
            continue
        seconds = due_rows.backoff(block.attempts).total_seconds()
        with logs.about(block=block.number, source=block.source_chain_id, chain=block.destination_chain_id):
            sentence = end.reason.for_operators
            # One line a minute is written for each connection and code.
            subject = f"{end.reason.told.code} from chain {block.source_chain_id} to chain {block.destination_chain_id}"
            logger.warning("%s: %s waits: %s Next try in %.0f s.", subject, block, sentence, seconds)
        if _is_given_up(end):
            lane.write(partial(_store_problem, block.source_chain_id, block.destination_chain_id, end.reason))
        concerned = block.open_queries().values_list("pk", flat=True) if end.queries is None else end.queries
        lane.write(partial(batch_states.note_failure, list(concerned), end.reason))
    lane.write(partial(_write_ends, claim, blocks, ends), is_last=len(blocks) == len(claim.rows))


def _store_problem(source: int, destination: int, reason: WaitReason) -> None:
    """Store that the transactions for some facts or a path fail. The blocks that wait for them see it again."""
    sentence = f"Batches for facts of chain {source} on chain {destination} wait until their deadlines: {reason}"
    problem = SeenProblem(ProblemKind.TRANSACTIONS_FAIL, sentence, of_connection(source, destination))
    stored_problems.add([problem], seen_by=LaneKind.CONNECTION, chain_id=destination)


def _write_ends(claim: Claim[Block], blocks: Sequence[Block], ends: Mapping[int, End]) -> None:
    if len(blocks) > 1:
        # The statements below lock blocks in the order of their ends.
        statements.lock(Block.objects.filter(pk__in=[block.pk for block in blocks]))
    settled = [block for block in blocks if isinstance(ends[block.pk], Done)]
    reopened = set(open_queries(settled).values_list("block", flat=True))
    # Most blocks end in the same way, so one statement updates these.
    blocks_by_end: dict[tuple[End, int], list[Block]] = defaultdict(list)
    for block in blocks:
        blocks_by_end[Waits(None, 0) if block.pk in reopened else ends[block.pk], block.attempts].append(block)
    for (end, attempts), same_end in blocks_by_end.items():
        match end:
            case Waits():
                pause, failed = timedelta(seconds=end.seconds), 0
            case Fails():
                pause, failed = due_rows.backoff(attempts), attempts + 1
            case Done():
                claim.end(same_end, None, wait=None, looked_at=Now(), waits_for_path=False)
                continue
        columns = {"wait": end.reason, "looked_at": Now()}
        claim.end(same_end, pause, attempts=failed, waits_for_path=end.for_path, **columns)
