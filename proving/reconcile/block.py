"""Moves the queries of one source block through their steps, by comparing what should hold with what does.

`reconcile` observes the rows and both chains, decides, and acts, in three parts: whether the destination was
reorganised; what the source chain proves; what the registry holds and lacks. It keeps no state of its own: run twice,
killed anywhere or run by another worker, it leads to the same place if the chains are the same. A reorganised chain is
nothing special: what held no longer does.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import connection
from django.db.models import DateTimeField, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Least, Now

from chains import together
from chains.rpc import NodeUnavailable, RpcRefused
from config.configured_chains import get_chains
from database import leases, row_locks
from database.leases import Lease
from proving import connections, heads, job_runs
from proving.reconcile import apply, decide, observe, proofs
from proving.reconcile.context import Context, Known
from proving.reconcile.decide import Decision, End, Fail, FindPath, FindTime, FindWhatIsGone, Requeue, Settled
from proving.reconcile.observe import Observation
from proving.registry.deployments import Unusable
from queries import progress, turns
from queries.models import Block, StepKind, open_queries
from queries.turns import Asking

logger = logging.getLogger(__name__)

_UNUSABLE_SECONDS = 10
# Of thousands the first ones are sent while the next ones are fetched.
_QUERIES_PER_FETCH = 1000
# As `job_runs` counts them.
_OUTCOMES: dict[type[End], str] = {Requeue: "waits", Fail: "fails", Settled: "done"}


def reconcile(block_id: object) -> None:
    """Bring the queries of a block as far as the chains allow. Does nothing while another worker does."""
    lease = leases.claim(Block.objects.all(), block_id)
    if lease is None:
        return
    block, known = lease.row, Known()
    source, destination = block.source_chain_id, block.destination_chain_id
    with job_runs.job_run("block", block=block.number, source=source, chain=destination) as job_run:
        try:
            end = _reconcile(lease, known)
        except leases.LeaseLost:
            return
        except (NodeUnavailable, RpcRefused) as error:
            for_path = isinstance(error, observe.BranchUnavailable)
            end = Fail(str(error), for_operators=error.for_operators, for_path=for_path)
        except Exception:
            _fail(lease, known, Fail("An error of this service, which has been logged."))
            raise
        job_run.outcome = _OUTCOMES[type(end)]
        match end:
            case Requeue():
                sentence, seconds = end.sentence, end.seconds
                _release(lease, sentence, seconds, attempts=0, waits_for_path=end.for_path, asking=known.asking)
            case Fail():
                _fail(lease, known, end)
            case Settled():
                _release(lease, "", None, attempts=0, asking=known.asking)


def _reconcile(lease: Lease[Block], known: Known) -> End:
    block = lease.row
    try:
        connection = connections.open_connection(block.destination_chain_id, block.source_chain_id)
    except Unusable as why:
        return Requeue(str(why), _UNUSABLE_SECONDS)
    destination = get_chains().chain(block.destination_chain_id)
    seen = heads.recent(destination, connection.destination_rpc)
    context = Context(lease, connection, destination, seen, known=known)
    if end := _take_back(context):
        return end
    if observe.asking(context).users:
        fetched = _fetch(context)
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


def _take_back(context: Context) -> End | None:
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


def _fetch(context: Context) -> End | _Partly | None:
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
        # Also where nothing of it could be had, and nothing was written.
        context.lease.extend()
        faults |= first.faults
        complete += len(first.complete)
        if complete >= _QUERIES_PER_FETCH:
            return _Partly()
        first = next(parts, None)
        if first and (first.proofs or first.faults):
            # More had to be fetched.
            context.ahead.forget_newest()
    unfetched = observe.unfetched(context, faults)
    return lacking if unfetched is None else _act(context, decide.unfetched(unfetched))


def _parts(context: Context) -> Iterator[proofs.Fetched]:
    """Yield what accounts lack, if any wait for their proofs."""
    if (StepKind.INITIAL_STATE, True) in observe.asking(context).steps:
        yield from proofs.fetch(context.block, context.source_rpc)


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


def _fail(lease: Lease[Block], known: Known, why: Fail) -> None:
    attempts = lease.row.attempts
    seconds = leases.backoff(attempts).total_seconds()
    logger.warning("%s waits: %s Next try in %.0f s.", lease.row, why.for_operators or why.sentence, seconds)
    concerned = lease.row.open_queries().values_list("pk", flat=True) if why.queries is None else why.queries
    progress.note_failure(list(concerned), why.sentence)
    _release(lease, why.sentence, seconds, attempts=attempts + 1, waits_for_path=why.for_path, asking=known.asking)


@dataclass(frozen=True, eq=False)
class _GivenBack:
    """A block that is given back, due again after these seconds; with None not at all, unless a query came."""

    lease: Lease[Block]
    sentence: str
    seconds: float | None
    attempts: int
    waits_for_path: bool
    asking: Asking | None
    """The users who asked for it when that was read last."""


def _release(
    lease: Lease[Block],
    sentence: str,
    seconds: float | None,
    *,
    attempts: int,
    waits_for_path: bool = False,
    asking: Asking | None = None,
) -> None:
    given = _GivenBack(lease, sentence, seconds, attempts, waits_for_path, asking)
    together.share_work("release", given, _release_all)


def _release_all(several: Sequence[_GivenBack]) -> Sequence[None]:
    """Release the blocks whose leases are still held. The others are another worker's."""
    # Whoever asks for a block anew makes it due: of others it is known who asks. But a self-funded batch leaves a block
    # that is due as it is. Where what it writes shows only later, a block that is to be due no more is locked first.
    may_settle = not connection.features.has_select_for_update
    known = {one: one.asking for one in several if one.asking and (may_settle or one.seconds is not None)}
    released = _release_alike(known, unless_woken=True)
    if released == len(several):
        return [None] * len(several)

    def write() -> None:
        with leases.writing_all([one.lease for one in several]) as held:
            left = [one for one in several if one.lease in held]
            asking = turns.asking([one.lease.row for one in left]) if left else []
            _release_alike(dict(zip(left, asking, strict=True)))

    row_locks.retried(write)
    return [None] * len(several)


def _release_alike(several: Mapping[_GivenBack, Asking], *, unless_woken: bool = False) -> int:
    """Release blocks as `leases.release_all` does. Most of many are given back alike: one statement does for them."""
    alike: dict[frozenset[tuple[str, Any]], list[Lease[Block]]] = defaultdict(list)
    for one, asking in several.items():
        alike[frozenset(_changes(one, asking.in_turns).items())].append(one.lease)
    released = 0
    for changes, of_these in alike.items():
        rows = None
        if unless_woken:
            rows = leases.not_woken(of_these)
            # What is due no more must not be missed, whatever clocks have shown.
            if dict(changes)["due"] is None:
                rows = rows.exclude(pk__in=open_queries([lease.row for lease in of_these]).values("block"))
        released += leases.release_all(of_these, rows=rows, **dict(changes))
    return released


def _changes(given: _GivenBack, users: Collection[int]) -> dict[str, Any]:
    """Return what `leases.release_all` takes."""
    block = given.lease.row
    seconds = 0 if given.seconds is None and users else given.seconds
    due_at: Combinable | None = None if seconds is None else Now() + timedelta(seconds=seconds)
    if block.due_at is not None and block.due_at != given.lease.was_due_at:
        # A query came, or the state of a transaction changed.
        at = Value(block.due_at, output_field=DateTimeField())
        due_at = at if due_at is None else Least(due_at, at)
    return {
        "due": due_at,
        "attempts": given.attempts,
        "waiting_for": given.sentence,
        "looked_at": Now(),
        "waits_for_path": given.waits_for_path,
        "turn_of": turns.whose(block, users),
        **({} if due_at is None else {"queue_at": due_at}),
    }
