"""A turn of a connection, which moves the queries of source blocks through their steps.

A turn observes the rows and both chains, decides about each block separately, and acts. It has three stages: reorgs of
the destination, proofs of the source chain, and facts that the registry holds or lacks. Each stage handles all blocks
together, so that few requests and statements suffice. No state is kept. If a turn runs twice, is killed, or is run by
another worker, the result is the same as long as the chains are the same. A reorg needs no special handling, because
facts that it removed are just missing.
"""

import itertools
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TypeVar

from django.db.models.functions import Now

from chains.node_errors import ChainError
from config import logs
from config.configured_chains import get_chains
from database import due_rows, statements
from database.due_rows import Postponement
from proving import connections, counters, heads, lanes
from proving.connections import WorkContext
from proving.deployments import Unusable
from proving.lanes import HeldLane
from proving.paths import building
from proving.paths.building import PathFound
from proving.reconcile import apply, decide, observe, proofs, rows
from proving.reconcile.decide import (
    Change,
    Decision,
    End,
    Fail,
    FindPath,
    FindTime,
    FindWhatIsGone,
    Requeue,
    Settled,
    TakeHeader,
)
from proving.reconcile.observation import Observation, OpenRequests
from proving.sources import NotYet
from queries import batch_states, waits
from queries.batch_states import Complete
from queries.models import Block, StepKind, open_queries
from queries.waits import WaitReason, wait

logger = logging.getLogger(__name__)

Seen = TypeVar("Seen")

# Maximum paths that a turn searches. Each needs separate requests, and only one is sent at a time.
_PATHS = 16
# Seconds after which a turn fetches no further proofs while other users wait.
_SECONDS = 2
_UNUSABLE_SECONDS = 10
# Maximum queries whose INITIAL_STATE is completed together with their next step. Each is named in several statements.
_FEW = 50
# The names of ends in the metrics of job runs.
_OUTCOMES: dict[type[End], str] = {Requeue: "waits", Fail: "fails", Settled: "done"}


def reconcile_all(lane: HeldLane, keys: Sequence[object], most_proofs: int, *, alone: int = 0) -> int:
    """Move the queries of these blocks of one connection forward as far as the chains allow.

    About `most_proofs` proofs are fetched, or `alone` if all blocks are due for the same user. Return the number of
    blocks that failed because of an internal error.
    """
    postponement = lane.write(partial(due_rows.postpone, Block.objects.all(), keys))
    is_alone = len({block.queued_for_id for block in postponement.rows}) == 1
    most_proofs = max(most_proofs, alone) if is_alone else most_proofs

    def work(blocks: Sequence[Block]) -> None:
        began = time.monotonic()
        ends = _reconcile(lane, blocks, most_proofs)
        _give_back(lane, postponement, blocks, ends)
        for block in blocks:
            counters.note_job_run("block", _OUTCOMES[type(ends[block.pk])], began)

    def give_up(block: Block) -> None:
        _give_back(lane, postponement, [block], {block.pk: Fail(wait("internal_error"))})
        counters.note_job_run("block", "defect", time.monotonic())

    return lanes.work_on(lane, postponement, postponement.rows, work, give_up) if postponement.rows else 0


def _reconcile(lane: HeldLane, blocks: Sequence[Block], most_proofs: int) -> Mapping[int, End]:
    """Reconcile blocks of one connection. Return the ends of the turn by block id."""
    source, destination = blocks[0].source_chain_id, blocks[0].destination_chain_id
    try:
        connection = connections.open_connection(destination, source)
        beside = [block.number for block in blocks] if connection.is_own else ()
        seen = heads.recent(get_chains().chain(destination), connection.destination_rpc, beside)
    except Unusable as why:
        _take_back_from_unused(lane, blocks)
        return dict.fromkeys((block.pk for block in blocks), Requeue(why.reason, _UNUSABLE_SECONDS))
    except ChainError as error:
        return dict.fromkeys((block.pk for block in blocks), _failed(error))
    turn = _Turn(WorkContext(connection, seen, lane), {block.pk: block for block in blocks})
    _take_back(turn, blocks)
    blocks = turn.left_of(blocks)
    asking = observe.open_requests(blocks)
    proving = [block for block in blocks if asking[block.pk].senders]
    if proving:
        _fetch_and_prove(turn, proving, asking, most_proofs)
        blocks = turn.left_of(blocks)
        asking = observe.open_requests(blocks)
    for pk, state in observe.states(turn.context, blocks, asking).items():
        turn.end(pk, decide.end(state))
    return turn.ends


@dataclass
class _Turn:
    """The blocks that the turn is still processing, with their current rows, and the ends for the other blocks."""

    context: WorkContext
    going: dict[int, Block]
    ends: dict[int, End] = field(default_factory=dict)
    later: list[tuple[int, Change]] = field(default_factory=list)
    """Changes for the next write, with the ids of their blocks."""
    begun: set[int] = field(default_factory=set)
    """The ids of queries whose INITIAL_STATE is completed by the next write."""
    began: float = field(default_factory=time.monotonic)

    def left_of(self, blocks: Sequence[Block]) -> list[Block]:
        """Return the blocks for which the turn continues, with their current rows."""
        return [self.going[block.pk] for block in blocks if block.pk in self.going]

    def should_end(self) -> bool:
        """Return whether the turn has taken long while other users wait."""
        users, ends = {block.queued_for_id for block in self.going.values()}, self.context.connection.config
        here = Block.objects.filter(destination_chain_id=ends.destination_id, source_chain_id=ends.source_id)
        others = due_rows.due(here).exclude(queued_for__in=users)
        return time.monotonic() > self.began + _SECONDS and (len(users) > 1 or others.exists())

    def end(self, pk: int, end: End) -> None:
        self.ends[pk] = end
        self.going.pop(pk, None)

    def answered(self, seen: Mapping[int, Seen | ChainError]) -> dict[int, Seen]:
        """Return the observations of blocks for which the turn continues. It ends for blocks with an error."""
        observations: dict[int, Seen] = {}
        for pk, observation in seen.items():
            if isinstance(observation, ChainError):
                self.end(pk, _failed(observation))
            elif pk in self.going:
                observations[pk] = observation
        return observations

    def ask(self, pk: int, observe_one: Callable[[], Seen]) -> Seen | None:
        """Return an observation of one block. If a chain doesn't answer, the turn ends for the block."""
        try:
            return observe_one()
        except ChainError as error:
            self.end(pk, _failed(error))
            return None

    def write(self, decisions: Mapping[int, Decision]) -> None:
        """Write the decided changes of rows."""
        changes = [
            (pk, action)
            for pk, decision in decisions.items()
            for action in decision.actions
            if isinstance(action, Change)
        ]
        changes = [change for change in (*self.later, *changes) if change[0] in self.going]
        self.later.clear()
        self.begun.clear()
        rows.write(self.context, self.going, changes)

    def take_later(self, pk: int, header: TakeHeader) -> None:
        """Set a block's first header in its row here. The next write stores it, together with its proofs."""
        self.going[pk].take(header.header)
        self.later.append((pk, header))

    def act(self, decisions: Mapping[int, Decision]) -> None:
        """Carry out decisions. The turn ends for blocks whose decision says so, or if nothing can be sent."""
        self.write(decisions)
        sendings = {
            pk: action
            for pk, decision in decisions.items()
            for action in decision.actions
            if not isinstance(action, Change)
        }
        why_not = apply.send_all(self.context, {pk: (self.going[pk], action) for pk, action in sendings.items()})
        for pk, decision in decisions.items():
            if end := why_not.get(pk) or (decision.then if isinstance(decision.then, End) else None):
                self.end(pk, end)


def _failed(error: ChainError) -> Fail:
    for_path = isinstance(error, building.BranchUnavailable)
    return Fail(waits.fault(error), for_operators=error.for_operators, for_path=for_path)


def _take_back_from_unused(lane: HeldLane, blocks: Sequence[Block]) -> None:
    """Reopen DONE batches whose facts a former registry has lost, while no registry can be used."""
    connection = connections.without_registry(blocks[0].destination_chain_id, blocks[0].source_chain_id)
    if connection is None or all(block.checked_number is None for block in blocks):
        return
    with suppress(ChainError):
        seen = heads.recent(connection.destination_rpc.chain, connection.destination_rpc)
        turn = _Turn(WorkContext(connection, seen, lane), {block.pk: block for block in blocks})
        _take_back(turn, blocks, is_usable=False)


def _take_back(turn: _Turn, blocks: Sequence[Block], *, is_usable: bool = True) -> None:
    """Reopen queries whose facts the destination has lost in a reorg."""
    seen = turn.answered(observe.checked(turn.context, blocks))
    decisions: dict[int, Decision] = {}
    for pk, checked in seen.items():
        decision = decide.checked(checked)
        if isinstance(decision.then, FindWhatIsGone):
            completed = turn.ask(pk, partial(observe.gone, turn.context, turn.going[pk], is_usable=is_usable))
            if completed is None:
                continue
            decision = decide.gone(checked, completed)
        decisions[pk] = decision
    turn.act(decisions)


def _fetch_and_prove(turn: _Turn, blocks: Sequence[Block], asking: dict[int, OpenRequests], most_proofs: int) -> None:
    headers = turn.answered(observe.source_blocks(turn.context, blocks))
    decisions = {pk: decide.source_block(source_block) for pk, source_block in headers.items()}
    taking = {pk: action for pk, each in decisions.items() for action in each.actions if isinstance(action, TakeHeader)}
    firsts = {pk: taken for pk, taken in taking.items() if not turn.going[pk].hash}
    turn.act({pk: decision for pk, decision in decisions.items() if pk not in firsts})
    for pk, taken in firsts.items():
        turn.take_later(pk, taken)
    blocks = turn.left_of(blocks)
    # A new header makes all queries of the block start again.
    lacking = [block for block in blocks if StepKind.INITIAL_STATE in asking[block.pk].steps or block.pk in taking]
    partly, faults = _fetch(turn, blocks, lacking, most_proofs)
    # Proofs that can't be fetched don't delay the other queries.
    seen = observe.registry(turn.context, turn.left_of(blocks), asking, turn.begun)
    if any(isinstance(observation, ChainError) for observation in seen.values()):
        turn.write({})
    _prove(turn, turn.answered(seen))
    for block in blocks:
        pk, end = block.pk, turn.ends.get(block.pk)
        if pk in partly and not isinstance(end, Fail):
            # The next turn fetches more proofs for this block.
            turn.end(pk, replace(end, seconds=0) if isinstance(end, Requeue) else Requeue(None, 0))
        elif pk in faults and end is None:
            turn.end(pk, faults[pk])


def _fetch(
    turn: _Turn, blocks: Sequence[Block], lacking: Sequence[Block], most_proofs: int
) -> tuple[set[int], dict[int, Fail]]:
    """Complete INITIAL_STATE of the queries, of blocks `lacking` proofs, whose proofs the source chain serves.

    Return the ids of blocks with more proofs to fetch, and the failures of other blocks by id.
    """
    waiting = proofs.waiting(lacking, most_proofs)
    faults: dict[int, dict[int, WaitReason]] = defaultdict(dict)
    later: list[tuple[int, Change]] = []
    begun: set[int] = set()
    finished: set[int] = set()
    source = turn.context.source_rpc
    unselected = proofs.unselected(source, waiting, turn.should_end)
    for pk, wrong in unselected.items():
        faults[pk] |= wrong
    parts = itertools.chain(
        [proofs.of_headers(waiting.headers)],
        proofs.fetch(source, waiting.accounts) if waiting.accounts else (),
        proofs.of_entries(source, waiting.transactions),
    )
    for place, fetched in enumerate(parts):
        if not fetched:
            continue
        for pk, of_block in fetched.items():
            of_block.complete = [query for query in of_block.complete if query not in unselected.get(pk, ())]
            faults[pk] |= of_block.faults
            finished |= {*of_block.faults, *of_block.complete}
        completing = {query for of_block in fetched.values() for query in of_block.complete}
        decisions = {pk: decide.fetched(of_block) for pk, of_block in fetched.items()}
        if len(begun | completing) <= _FEW and not turn.context.destination_rpc.chain.gather_seconds:
            begun |= completing
            later += [(pk, Complete(each.complete, StepKind.INITIAL_STATE)) for pk, each in fetched.items()]
            decisions = {pk: decide.fetched(replace(of_block, complete=[])) for pk, of_block in fetched.items()}
        turn.write(decisions)
        if place and turn.should_end():
            break
    # A block with a fault ends with it, so that it pauses. The next turn fetches its other proofs.
    asking = [*((account.block, account.queries) for account in waiting.accounts), *waiting.transactions.items()]
    partly = waiting.partly | {
        block.pk
        for block, queries in asking
        if not faults.get(block.pk) and finished.isdisjoint(query.pk for query in queries)
    }
    looked_at = [block for block in turn.left_of(blocks) if block.pk not in partly]
    unfetched = observe.unfetched(turn.context, looked_at, faults)
    decisions = {pk: decide.unfetched(of_block) for pk, of_block in unfetched.items()}
    turn.write(decisions)
    turn.later, turn.begun = later, begun
    return partly, {pk: decision.then for pk, decision in decisions.items() if isinstance(decision.then, Fail)}


def _prove(turn: _Turn, seen: Mapping[int, Observation]) -> None:
    """Complete the steps whose facts the registry holds, and send missing facts."""
    context = turn.context
    decisions = {pk: decide.prove(observation) for pk, observation in seen.items()}
    turn.act(decisions)
    finding: dict[int, FindPath] = {}
    for pk, decision in decisions.items():
        if pk not in turn.going:
            continue
        if isinstance(decision.then, FindPath):
            finding[pk] = decision.then
        elif isinstance(decision.then, FindTime):
            block = turn.ask(pk, partial(observe.block_of_time, context, decision.then.timestamp))
            if block is not None:
                turn.act({pk: decide.time(seen[pk], decision.then, block)})
    _find_paths(turn, seen, finding)


def _find_paths(turn: _Turn, seen: Mapping[int, Observation], finding: Mapping[int, FindPath]) -> None:
    """Send the next transactions of paths one after another, first for the block that has waited longest.

    Only one transaction at a time extends the registry's trust. So if a path must be sent separately, the others wait.
    """
    if not finding:
        return
    first = building.first_for_path([turn.going[pk] for pk in finding])
    most = _PATHS
    for pk in sorted(finding, key=lambda pk: pk != first):
        if not most:
            turn.end(pk, decide.wait_for_path(seen[pk]))
            continue
        of_block = partial(observe.path, turn.context, turn.going[pk], finding[pk].target)
        path = turn.ask(pk, partial(of_block, is_first=first in {None, pk}))
        if path is not None:
            goes_on = isinstance(path, NotYet) or (isinstance(path, PathFound) and path.goes_with_proofs)
            most = most - 1 if goes_on else 0
            turn.act({pk: decide.path(seen[pk], finding[pk], path)})


# --- At the end -------------------------------------------------------------------------------------------------------


def _give_back(
    lane: HeldLane, postponement: Postponement[Block], blocks: Sequence[Block], ends: Mapping[int, End]
) -> None:
    for block in blocks:
        if isinstance(end := ends[block.pk], Fail):
            _note_failure(lane, block, end)
    lane.write(partial(_write, postponement, blocks, ends), is_last=len(blocks) == len(postponement.rows))


def _note_failure(lane: HeldLane, block: Block, end: Fail) -> None:
    seconds = due_rows.backoff(block.attempts).total_seconds()
    with logs.about(block=block.number, source=block.source_chain_id, chain=block.destination_chain_id):
        logger.warning("%s waits: %s Next try in %.0f s.", block, end.for_operators or end.reason, seconds)
    concerned = block.open_queries().values_list("pk", flat=True) if end.queries is None else end.queries
    lane.write(partial(batch_states.note_failure, list(concerned), end.reason))


def _write(postponement: Postponement[Block], blocks: Sequence[Block], ends: Mapping[int, End]) -> None:
    if len(blocks) > 1:
        # The statements below lock blocks in the order of their ends.
        statements.lock(Block.objects.filter(pk__in=[block.pk for block in blocks]))
    settled = [block for block in blocks if isinstance(ends[block.pk], Settled)]
    asked_for = set(open_queries(settled).values_list("block", flat=True))
    # Most blocks end in the same way, so one statement updates these.
    alike: dict[tuple[End, int], list[Block]] = defaultdict(list)
    for block in blocks:
        alike[Requeue(None, 0) if block.pk in asked_for else ends[block.pk], block.attempts].append(block)
    for (end, attempts), some in alike.items():
        match end:
            case Requeue():
                pause, failed = timedelta(seconds=end.seconds), 0
            case Fail():
                pause, failed = due_rows.backoff(attempts), attempts + 1
            case Settled():
                postponement.end(some, None, wait=None, waiting_for="", looked_at=Now(), waits_for_path=False)
                continue
        columns = {"wait": end.reason, "waiting_for": "", "looked_at": Now()}
        postponement.end(some, pause, attempts=failed, waits_for_path=end.for_path, **columns)
