"""Upkeep of a registry: its code is compared, and its events are read while batches wait for what others send."""

import logging
from datetime import timedelta

from django.db.models.functions import Now

from chains.rpc import NodeUnavailable, RpcRefused
from config.configured_chains import get_chains
from database import leases, row_locks
from proving import connections, heads, job_runs
from proving.heads import poll_seconds
from proving.models import FactsRegistry
from proving.paths import checkpoints
from proving.registry.deployments import Unusable

logger = logging.getLogger(__name__)

# Seconds until it is due again when nothing is waited for, and when the registry can't be used.
_PAUSE, _UNUSABLE_PAUSE = 30, 60


def wake(*, everyone: bool = False) -> None:
    """Make the registries due that were deployed meanwhile; or all, because chains.toml may say something else now."""
    rows = FactsRegistry.in_use.exclude(deployed_at=None)
    row_locks.update(rows if everyone else rows.filter(due_at=None), due_at=Now())


def fetch_leaves(pk: object) -> None:
    """Fetch what old blocks are proven by: a worker's duty."""
    from proving.paths import jump_leaves  # noqa: PLC0415 (where a chain has a beacon chain)

    jump_leaves.fetch(pk)


def look_after(registry_id: object) -> None:
    """Check whether it may be used, and learn what others have sent: a worker's duty.

    Does nothing while another worker does.
    """
    lease = leases.claim(FactsRegistry.in_use.exclude(deployed_at=None), registry_id)
    if lease is None:
        return
    row, attempts, sentence, seconds = lease.row, 0, "", float(_PAUSE)
    chain = get_chains().chain(row.destination_chain_id)
    with job_runs.job_run("registry", chain=chain.id, source=row.source_chain_id) as job_run:
        try:
            connection = connections.open_unless_stopped(chain.id, row.source_chain_id)
            if checkpoints.wake_waiting(connection, heads.read(chain, connection.destination_rpc)):
                seconds = min(seconds, poll_seconds(chain))
        except Unusable as why:
            sentence, seconds = str(why), _UNUSABLE_PAUSE
        except (NodeUnavailable, RpcRefused) as error:
            if not row.attempts:  # Once, until it goes on.
                logger.warning("the upkeep of %s waits: %s", row, error.for_operators)
            sentence, seconds = str(error), leases.backoff(row.attempts).total_seconds()
            attempts = row.attempts + 1
        except Exception:
            lease.release(leases.backoff(row.attempts), attempts=row.attempts + 1)
            raise
        FactsRegistry.objects.filter(pk=row.pk, lease_token=lease.token).update(waiting_for=sentence)
        lease.release(timedelta(seconds=seconds), attempts=attempts)
        job_run.outcome = "fails" if attempts else "waits" if sentence else "done"
