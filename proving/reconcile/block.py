"""Moves the queries of one source block through their steps, by comparing what should hold with what does.

`reconcile` observes the rows and both chains, decides, and acts, in three parts: whether the destination was
reorganised; what the source chain proves; what the registry holds and lacks. It keeps no state of its own: run twice,
killed anywhere or run by another worker, it leads to the same place if the chains are the same. A reorganised chain is
nothing special: what held no longer does.
"""

import logging
from datetime import datetime, timedelta

from django.utils import timezone

from chains.rpc import NodeUnavailable, RpcRefused
from config.configured_chains import get_chains
from proving import connections
from proving.heads import Heads
from proving.reconcile import apply, decide, observe, proofs
from proving.reconcile.context import Context
from proving.reconcile.decide import Decision, End, Fail, FindPath, FindTime, FindWhatIsGone, Requeue, Settled
from proving.reconcile.observe import Observation
from proving.registry.deployments import Unusable
from queries import leases, progress, turns
from queries.leases import Lease
from queries.models import Block

logger = logging.getLogger(__name__)

_UNUSABLE_SECONDS = 10


def reconcile(block_id: object) -> None:
    """Bring the queries of a block as far as the chains allow. Does nothing while another worker does."""
    lease = leases.claim(Block.objects.all(), block_id)
    if lease is None:
        return
    try:
        end = _reconcile(lease)
    except leases.LeaseLost:
        return
    except (NodeUnavailable, RpcRefused) as error:
        end = Fail(str(error))
    except Exception:
        _fail(lease, "An error of this service, which has been logged.")
        raise
    match end:
        case Requeue():
            _release(lease, end.sentence, end.seconds, attempts=0, waits_for_path=end.for_path)
        case Fail():
            _fail(lease, end.sentence)
        case Settled():
            _release(lease, "", None, attempts=0)


def _reconcile(lease: Lease[Block]) -> End:
    block = lease.row
    try:
        connection = connections.open_connection(block.destination_chain_id, block.source_chain_id)
    except Unusable as why:
        return Requeue(str(why), _UNUSABLE_SECONDS)
    destination = get_chains().chain(block.destination_chain_id)
    context = Context(lease, connection, destination, Heads.read(destination, connection.destination_rpc))
    if end := _take_back(context):
        return end
    if observe.is_open(context):
        unfetched = _fetch(context)
        if isinstance(unfetched, Requeue):
            return unfetched
        # What can't be fetched holds up none of the rest.
        if end := _prove(context) or unfetched:
            return end
    return decide.rest(observe.rest(context))


def _take_back(context: Context) -> End | None:
    """Reopen what the destination has lost, if it was reorganised."""
    seen = observe.checked(context)
    if seen is None:
        return None
    decision = decide.checked(seen)
    if isinstance(decision.then, FindWhatIsGone):
        decision = decide.gone(seen, observe.gone(context))
    return _act(context, decision)


def _fetch(context: Context) -> End | None:
    """Complete INITIAL_STATE of what can be fetched from the source chain. Fails, at its end, for the rest."""
    if end := _act(context, decide.source_block(observe.source_block(context))):
        return end
    _act(context, decide.asked_of_header(observe.asked_of_header(context)))
    faults: list[Exception] = []
    for fetched in proofs.fetch(context.block, context.source_rpc):
        _act(context, decide.fetched(fetched))
        # Also where nothing of it could be had, and nothing was written.
        context.lease.extend()
        faults += fetched.faults
    return _act(context, decide.unfetched(observe.unfetched(context, faults)))


def _prove(context: Context) -> End | None:
    """Complete what the registry holds, and send what it lacks."""
    seen = observe.registry(context)
    decision = decide.prove(seen)
    if end := _act(context, decision):
        return end
    if further := _decide_further(context, seen, decision):
        return _act(context, further)
    return None


def _decide_further(context: Context, seen: Observation, decision: Decision) -> Decision | None:
    match decision.then:
        case FindPath() as asked:
            return decide.path(seen, asked, observe.path(context, asked.target))
        case FindTime() as asked:
            return decide.time(seen, asked, observe.block_of_time(context, asked.timestamp))
        case _:
            return None


def _act(context: Context, decision: Decision) -> End | None:
    """Carry it out. Returns how this reconcile ends, if it does."""
    if why_not := apply.carry_out(context, decision.actions):
        return why_not
    return decision.then if isinstance(decision.then, End) else None


def _fail(lease: Lease[Block], why: str) -> None:
    attempts = lease.row.attempts
    seconds = leases.backoff(attempts).total_seconds()
    logger.warning("%s waits: %s Next try in %.0f s.", lease.row, why, seconds)
    progress.note_failure(list(lease.row.open_queries().values_list("pk", flat=True)), why)
    _release(lease, why, seconds, attempts=attempts + 1)


def _release(
    lease: Lease[Block], sentence: str, seconds: float | None, *, attempts: int, waits_for_path: bool = False
) -> None:
    """Give the block back, due again after so many seconds; with None not at all, unless a new query came meanwhile."""
    try:
        with lease.writing() as block:
            if seconds is None and block.open_queries().exists():
                seconds = 0
            due_at: datetime | None = None if seconds is None else timezone.now() + timedelta(seconds=seconds)
            Block.objects.filter(pk=block.pk).update(
                waiting_for=sentence,
                waits_for_path=waits_for_path,
                queue_at=due_at or block.queue_at,
                turn_of=turns.whose(block),
            )
            lease.release(due_at, attempts=attempts)
    except leases.LeaseLost:
        pass
