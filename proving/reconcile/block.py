"""Moves the queries of one source block through their steps, by comparing what should hold with what does.

`reconcile_all` observes the rows and both chains, decides, and acts, in three parts: whether the destination was
reorganised; what the source chain proves; what the registry holds and lacks. It keeps no state of its own: run twice,
killed anywhere or run by another worker, it leads to the same place if the chains are the same. A reorganised chain is
nothing special: what held no longer does.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from django.db.models.functions import Now

from chains import together
from chains.rpc import NodeUnavailable, RpcRefused
from config.configured_chains import get_chains
from database import due_rows
from database.due_rows import Postponement
from proving import connections, heads, job_runs, lanes
from proving.lanes import HeldLane, LaneLost
from proving.reconcile import apply, decide, observe, proofs
from proving.reconcile.context import WorkContext
from proving.reconcile.decide import Decision, End, Fail, FindPath, FindTime, FindWhatIsGone, Requeue, Settled
from proving.reconcile.observe import Observation
from proving.registry.deployments import Unusable
from queries import progress
from queries.models import Block, StepKind, open_queries

logger = logging.getLogger(__name__)

# Accounts, slots and headers of a turn, which take a good part of a second to verify and pack; and while nobody else
# waits, because each turn about a large block asks for its facts anew.
PROOFS, PROOFS_ALONE = 300, 1000
_UNUSABLE_SECONDS = 10
# As `job_runs` counts them.
_OUTCOMES: dict[type[End], str] = {Requeue: "waits", Fail: "fails", Settled: "done"}


def reconcile_all(lane: HeldLane, keys: Sequence[object]) -> int:
    """Bring the queries of these blocks as far as the chains allow. Return how many failed by an error of ours.

    Of thousands about one block, the first ones are sent before the next ones are fetched.
    """
    postponement = lane.write(partial(due_rows.postpone, Block.objects.all(), keys))
    is_alone = len({block.turn_of_id for block in postponement.rows}) == 1
    most_proofs = PROOFS_ALONE if is_alone else PROOFS
    tasks = [partial(_reconcile_one, lane, postponement, block, most_proofs) for block in postponement.rows]
    return lanes.side_by_side(tasks)


def _reconcile_one(lane: HeldLane, postponement: Postponement[Block], block: Block, most_proofs: int) -> None:
    source, destination = block.source_chain_id, block.destination_chain_id
    with job_runs.job_run("block", block=block.number, source=source, chain=destination) as job_run:
        try:
            end = _reconcile(lane, block, most_proofs)
        except LaneLost:
            raise
        except (NodeUnavailable, RpcRefused) as error:
            for_path = isinstance(error, observe.BranchUnavailable)
            end = Fail(str(error), for_operators=error.for_operators, for_path=for_path)
        except Exception:
            _end(lane, postponement, block, Fail("An error of this service, which has been logged."))
            raise
        job_run.outcome = _OUTCOMES[type(end)]
        _end(lane, postponement, block, end)


def _reconcile(lane: HeldLane, block: Block, most_proofs: int) -> End:
    try:
        connection = connections.open_connection(block.destination_chain_id, block.source_chain_id)
    except Unusable as why:
        return Requeue(str(why), _UNUSABLE_SECONDS)
    destination = get_chains().chain(block.destination_chain_id)
    seen = heads.recent(destination, connection.destination_rpc)
    context = WorkContext(block, connection, destination, seen, lane=lane)
    if end := _take_back(context):
        return end
    if observe.asking(context).senders:
        fetched = _fetch(context, most_proofs)
        if isinstance(fetched, Requeue):
            return fetched
        # What can't be fetched holds up none of the rest.
        end = _prove(context)
        if isinstance(fetched, _Partly) and not isinstance(end, Fail):
            return replace(end, seconds=0) if isinstance(end, Requeue) else Requeue("", 0)
        if isinstance(fetched, Fail):
            end = end or fetched
        if end:
            return end
    return decide.rest(observe.rest(context))


def _take_back(context: WorkContext) -> End | None:
    """Reopen what the destination has lost, if it was reorganised."""
    seen = observe.checked(context)
    if seen is None:
        return None
    decision = decide.checked(seen)
    if isinstance(decision.then, FindWhatIsGone):
        decision = decide.gone(seen, observe.gone(context))
    return _act(context, decision)


class _Partly:
    """There is more to be fetched; what is fetched can be proven meanwhile."""


def _fetch(context: WorkContext, most_proofs: int) -> End | _Partly | None:
    """Complete INITIAL_STATE of what can be fetched from the source chain. Fails, at its end, for the rest."""
    before = context.block.hash
    parts = _parts(context) if before else None
    seen, first, _ = together.together(
        lambda: observe.source_block(context),
        # Thrown away where the source chain was reorganised.
        lambda: next(parts, None) if parts else None,
        # Where that fails it is asked again, when it matters.
        lambda: together.run([partial(observe.ask_ahead, context)]),
    )
    if end := _act(context, decide.source_block(seen)):
        return end
    if parts is None or context.block.hash != before:
        parts = _parts(context)
        first = next(parts, None)
    lacking = None
    if (StepKind.INITIAL_STATE, False) in observe.asking(context).steps:
        lacking = _act(context, decide.asked_of_header(observe.asked_of_header(context)))
    faults: dict[int, Exception] = {}
    complete = 0
    while first:
        _act(context, decide.fetched(first, is_trusted=observe.is_trusted(context)))
        faults |= first.faults
        complete += len(first.complete)
        if complete >= most_proofs:
            return _Partly()
        first = next(parts, None)
        if first and (first.proofs or first.faults):
            # More had to be fetched.
            context.ahead.forget_newest()
    unfetched = observe.unfetched(context, faults)
    return lacking if unfetched is None else _act(context, decide.unfetched(unfetched))


def _parts(context: WorkContext) -> Iterator[proofs.Fetched]:
    """Yield what accounts lack, if any wait for their proofs."""
    if (StepKind.INITIAL_STATE, True) in observe.asking(context).steps:
        yield from proofs.fetch(context.block, context.source_rpc)


def _prove(context: WorkContext) -> End | None:
    """Complete what the registry holds, and send what it lacks."""
    seen = observe.registry(context)
    decision = decide.prove(seen)
    if end := _act(context, decision):
        return end
    if further := _decide_further(context, seen, decision):
        return _act(context, further)
    return None


def _decide_further(context: WorkContext, seen: Observation, decision: Decision) -> Decision | None:
    match decision.then:
        case FindPath() as asked:
            return decide.path(seen, asked, observe.path(context, asked.target))
        case FindTime() as asked:
            return decide.time(seen, asked, observe.block_of_time(context, asked.timestamp))
        case _:
            return None


def _act(context: WorkContext, decision: Decision) -> End | None:
    """Carry it out. Returns how this reconcile ends, if it does."""
    if why_not := apply.carry_out(context, decision.actions):
        return why_not
    return decision.then if isinstance(decision.then, End) else None


def _end(lane: HeldLane, postponement: Postponement[Block], block: Block, end: End) -> None:
    match end:
        case Requeue():
            given_back = _GivenBack(block, end.sentence, end.seconds, 0, waits_for_path=end.for_path)
        case Fail():
            attempts = block.attempts
            seconds = due_rows.backoff(attempts).total_seconds()
            logger.warning("%s waits: %s Next try in %.0f s.", block, end.for_operators or end.sentence, seconds)
            concerned = block.open_queries().values_list("pk", flat=True) if end.queries is None else end.queries
            progress.note_failure(list(concerned), end.sentence)
            given_back = _GivenBack(block, end.sentence, seconds, attempts + 1, waits_for_path=end.for_path)
        case Settled():
            given_back = _GivenBack(block, "", None, 0, waits_for_path=False)
    together.share_work("give back", given_back, partial(_give_back_all, lane, postponement))


@dataclass(frozen=True)
class _GivenBack:
    """A block that is due again after these seconds; with None not at all, unless something is asked for."""

    block: Block
    sentence: str
    seconds: float | None
    attempts: int
    waits_for_path: bool


def _give_back_all(lane: HeldLane, postponement: Postponement[Block], several: Sequence[_GivenBack]) -> Sequence[None]:
    lane.write(partial(_write_all, postponement, several))
    return [None] * len(several)


def _write_all(postponement: Postponement[Block], several: Sequence[_GivenBack]) -> None:
    """Write them inside the caller's database transaction. Of many most are alike: one statement does for them."""
    settled = [one.block for one in several if one.seconds is None]
    asked_for = set(open_queries(settled).values_list("block", flat=True)) if settled else set()
    alike: dict[_GivenBack, list[Block]] = defaultdict(list)
    for one in several:
        seconds = 0 if one.block.pk in asked_for else one.seconds
        alike[replace(one, block=several[0].block, seconds=seconds)].append(one.block)
    for change, blocks in alike.items():
        postponement.end(
            blocks,
            None if change.seconds is None else timedelta(seconds=change.seconds),
            attempts=change.attempts,
            waiting_for=change.sentence,
            looked_at=Now(),
            waits_for_path=change.waits_for_path,
        )
