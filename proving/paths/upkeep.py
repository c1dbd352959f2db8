"""Upkeep of a registry: its code is compared, and its events are read while batches wait for what others send."""

import logging
from datetime import timedelta
from functools import partial

from django.db.models import QuerySet
from django.db.models.functions import Now

from chains.node_errors import NodeUnavailable, RpcRefused
from config.configured_chains import get_chains
from database import due_rows
from database.due_rows import Postponement
from proving import connections, heads, lanes
from proving.heads import poll_seconds
from proving.lanes import HeldLane, LaneLost
from proving.models import FactsRegistry
from proving.paths import checkpoints
from proving.registry.deployments import Unusable

logger = logging.getLogger(__name__)

# Seconds until it is due again when nothing is waited for, and when the registry can't be used.
_PAUSE, _UNUSABLE_PAUSE = 30, 60


def wake() -> None:
    """Make the registries due that were deployed meanwhile."""
    deployed().filter(due_at=None).update(due_at=Now())


def deployed() -> QuerySet[FactsRegistry]:
    """Return the registries that are looked after."""
    return FactsRegistry.in_use.exclude(deployed_at=None)


def look_after(lane: HeldLane, key: object) -> None:
    """Check whether it may be used, and learn what others have sent: a worker's duty."""
    postponement = lane.write(partial(due_rows.postpone, deployed(), [key]))
    for row in postponement.rows:
        _look_after(lane, postponement, row)


def _look_after(lane: HeldLane, postponement: Postponement[FactsRegistry], row: FactsRegistry) -> None:
    attempts, sentence, seconds = 0, "", float(_PAUSE)
    chain = get_chains().chain(row.destination_chain_id)

    def again() -> None:
        postponement.end([row], timedelta(seconds=seconds), attempts=attempts, waiting_for=sentence)

    with lanes.job_run("registry", chain=chain.id, source=row.source_chain_id) as job_run:
        try:
            connection = connections.open_unless_stopped(chain.id, row.source_chain_id)
            if checkpoints.wake_waiting(lane, connection, heads.read(chain, connection.destination_rpc)):
                seconds = min(seconds, poll_seconds(chain))
        except Unusable as why:
            sentence, seconds = str(why), _UNUSABLE_PAUSE
        except (NodeUnavailable, RpcRefused) as error:
            if not row.attempts:  # Once, until it goes on.
                logger.warning("the upkeep of %s waits: %s", row, error.for_operators)
            sentence, seconds = str(error), due_rows.backoff(row.attempts).total_seconds()
            attempts = row.attempts + 1
        except LaneLost:
            raise
        except Exception:
            sentence, seconds = row.waiting_for, due_rows.backoff(row.attempts).total_seconds()
            attempts = row.attempts + 1
            lane.write(again)
            raise
        lane.write(again)
        job_run.outcome = "fails" if attempts else "waits" if sentence else "done"
