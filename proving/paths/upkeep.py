"""Upkeep of a registry: its code is compared, its events are read, and if configured a header in every window is kept.

Kept headers are accumulated before anybody asks, so that any later block is one hop away. That costs the operator
money, and nothing else here does.
"""

import logging
from dataclasses import dataclass, replace
from datetime import timedelta

from django.db.models.functions import Now

from chains.rpc import NodeUnavailable, Reverted, RpcRefused
from config.configured_chains import get_chains
from database import leases, row_locks
from database.leases import Lease
from proving import connections, heads, job_runs, sources
from proving.connections import OpenConnection
from proving.heads import poll_seconds
from proving.models import FactsRegistry
from proving.paths import building, checkpoints, planning
from proving.paths.building import Leg
from proving.paths.planning import TooFar
from proving.registry import deployments
from proving.registry.contract import in_one_call
from proving.sources import NotYet, Preparation
from proving.transactions import sending
from proving.transactions.intents import Intent, NoRoom, NotPaid, Order, Refused, Sent, UnderWay

logger = logging.getLogger(__name__)

# Rows among which the newest that is trusted is sought: others may be waiting, or were reorganised.
_NEWEST = 20
# Windows that are made up for when nothing was kept for a while; beyond, it begins anew.
_MADE_UP = 8
# Seconds until it is due again when there is nothing to wait for, when nothing can be sent for now, and when the
# registry can't be used.
_PAUSE, _POSTPONED_PAUSE, _UNUSABLE_PAUSE = 30, 10, 60
# Until other transactions have left room.
_ROOM_PAUSE = 0.2


def wake(*, everyone: bool = False) -> None:
    """Make the registries due that were deployed meanwhile; or all, because chains.toml may say something else now."""
    rows = FactsRegistry.in_use.exclude(deployed_at=None)
    row_locks.update(rows if everyone else rows.filter(due_at=None), due_at=Now())


@dataclass(frozen=True)
class _Done:
    """All that could be done now: what is waited for, a sentence or nothing, and when it is due again (seconds)."""

    sentence: str
    seconds: float


def look_after(registry_id: object) -> None:
    """Check whether it may be used, learn what others have accumulated, keep headers if configured: a worker's duty.

    Does nothing while another worker does.
    """
    lease = leases.claim(FactsRegistry.in_use.exclude(deployed_at=None), registry_id)
    if lease is None:
        return
    row, attempts = lease.row, 0
    with job_runs.job_run("registry", chain=row.destination_chain_id, source=row.source_chain_id) as job_run:
        try:
            connection = connections.open_unless_stopped(row.destination_chain_id, row.source_chain_id)
            done = _look_after(lease, connection)
        except leases.LeaseLost:
            return
        except deployments.Unusable as why:
            done = _Done(str(why), _UNUSABLE_PAUSE)
        except Reverted:
            done = _Done("The destination does not accept the header at this moment.", 1)
        except (NodeUnavailable, RpcRefused) as error:
            if not row.attempts:  # Once, until it goes on.
                logger.warning("the upkeep of %s waits: %s", row, error.for_operators)
            done, attempts = _Done(str(error), leases.backoff(row.attempts).total_seconds()), row.attempts + 1
        except Exception:
            lease.release(leases.backoff(row.attempts), attempts=row.attempts + 1)
            raise
        FactsRegistry.objects.filter(pk=row.pk, lease_token=lease.token).update(waiting_for=done.sentence)
        lease.release(timedelta(seconds=done.seconds), attempts=attempts)
        job_run.outcome = "fails" if attempts else "waits" if done.sentence else "done"


def _look_after(lease: Lease[FactsRegistry], connection: OpenConnection) -> _Done:
    chain = get_chains().chain(connection.config.destination_id)
    seen = heads.read(chain, connection.destination_rpc)
    all_read, somebody_waits = True, False
    try:
        all_read = checkpoints.read(lease, connection, seen)
        somebody_waits = checkpoints.wake_waiting(connection, seen)
    except RpcRefused as refused:
        # Headers can be kept without the events. These shorten paths, and tell at once what others have sent.
        logger.warning("%s: nodes do not serve its events: %s", lease.row, refused.for_operators)
    done = _keep(lease, connection) if connection.config.keep_headers else _Done("", _PAUSE)
    return replace(done, seconds=min(done.seconds, poll_seconds(chain))) if somebody_waits or not all_read else done


def _keep(lease: Lease[FactsRegistry], connection: OpenConnection) -> _Done:
    chain = get_chains().chain(connection.config.destination_id)
    poll = poll_seconds(chain)
    if building.extending(connection, connection.destination_rpc.head().number).exists():
        return _Done("Waiting for the transaction that extends the registry's trust.", poll)
    if pause := building.pause_after_failures(connection):
        return _Done("The last transaction for the registry's trust reverted; trying again more slowly.", pause)
    newest = sources.of(connection.config).newest(connection)
    if isinstance(newest, NotYet):
        return _Done(newest.sentence, _POSTPONED_PAUSE)
    trusted = _newest_trusted(connection)
    window = connection.config.window
    # Early enough for the transaction to be mined while the window still reaches back.
    next_at = 0 if trusted is None else trusted + window - window // 8
    if newest < next_at:
        pause = min(_PAUSE, max(poll, (next_at - newest) * connection.source_rpc.chain.block_seconds))
        return _Done("", pause)
    target = newest
    if trusted is not None and newest <= trusted + _MADE_UP * window:
        target = min(newest, trusted + window)
    leg = _leg_to(lease, connection, target)
    if isinstance(leg, NotYet | TooFar):
        return _Done(leg.sentence, _POSTPONED_PAUSE)
    return _send(lease.row, connection, leg)


def _send(held: FactsRegistry, connection: OpenConnection, leg: Leg | Preparation) -> _Done:
    chain = get_chains().chain(connection.config.destination_id)
    to, data = in_one_call(connection.registry.multicall, leg.calls)
    passed, fact = (leg.checkpoints, leg.parent_fact) if isinstance(leg, Leg) else ((), None)
    intent = Intent(to, data, extends=connection.registry.row_id, parent_fact=fact)
    order = Order([intent], lambda _: checkpoints.note(connection, passed), held=held)
    match sending.submit_all(chain, order):
        case Sent():
            return _Done("Waiting for the transaction that accumulates a header.", poll_seconds(chain))
        case NoRoom() | UnderWay():
            return _Done("Waiting for transactions that were sent before.", _ROOM_PAUSE)
        case Refused(sentence) | NotPaid(sentence):
            return _Done(sentence, _POSTPONED_PAUSE)


def _newest_trusted(connection: OpenConnection) -> int | None:
    """Return the newest block whose state root the registry trusts, as of the pending block."""
    newest = checkpoints.rows(connection).order_by("-number").values_list("number", flat=True)[:_NEWEST]
    return next(iter(checkpoints.trusted(connection, list(newest), at="pending")), None)


def _leg_to(
    lease: Lease[FactsRegistry], connection: OpenConnection, target: int
) -> Leg | Preparation | NotYet | TooFar:
    """Return the calls that accumulate the header of a block, or lead there."""
    header = connection.source_rpc.known_header(target)
    leg = Leg((), arrives=True)
    asked = [(target, header.hash)]
    # What others have pending may fail, or be cancelled.
    if not deployments.vouches(connection.destination_rpc, connection.registry, asked, at="latest")[0]:
        path = planning.survey(connection, header, extend_lease=lease.extend)
        begun = path if isinstance(path, NotYet | TooFar) else building.begin(connection, path)
        if isinstance(begun, Preparation | NotYet | TooFar):
            return begun
        leg = building.next_leg(connection, begun)
    if not leg.arrives:
        return leg
    data = connection.registry.contract.prove(header.encode(), header.state_root)
    calls = [*leg.calls, (connection.registry.contract.address, data)]
    return replace(leg, calls=calls, checkpoints=[*leg.checkpoints, header])
