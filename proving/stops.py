"""Stops of sending: on a destination, for one of its connections, or by one of its signers.

`proving.transactions.signing` asks before each signature and each broadcast. A stopped connection sends nothing new;
what was sent for it before is still broadcast and replaced, because later nonces wait for it.
"""

import logging

from django.db import transaction
from django.db.models import Q

from database import row_locks
from proving.models import FactsRegistry, Signer, Stop, StopCode, Transaction
from queries.models import Query

logger = logging.getLogger(__name__)

# Who stops, where it is no operator.
WORKER = "a worker"


def stop(
    chain_id: int, *, by: str, reason: str = "", source: int = 0, signer: str = "", code: StopCode = StopCode.OPERATOR
) -> Stop:
    """Stop sending on a chain, or only for the connection from `source`, or only by the address `signer`.

    Nothing is signed there any more when this has returned. What is in nodes' mempools may still be mined.
    """
    values = {"code": code, "reason": reason, "by": by}
    with transaction.atomic():
        # Whoever signs at this moment has locked them: when this has ended, so has that.
        row_locks.lock(Signer.objects.filter(chain_id=chain_id))
        standing, is_new = Stop.objects.get_or_create(
            chain_id=chain_id, source_chain_id=source, signer=signer, defaults=values
        )
        # A worker leaves the operator's own reason.
        if not is_new and code == StopCode.OPERATOR:
            Stop.objects.filter(pk=standing.pk).update(**values)
            standing.refresh_from_db()
    logger.warning("%s", standing.sentence)
    return standing


def resume(chain_id: int, *, source: int = 0, signer: str = "") -> bool:
    """Take a stop back, and return whether there was one. What was signed before is broadcast again."""
    deleted, _ = Stop.objects.filter(chain_id=chain_id, source_chain_id=source, signer=signer).delete()
    if deleted:
        logger.warning("sending goes on %s", Stop(chain_id=chain_id, source_chain_id=source, signer=signer).subject)
    return bool(deleted)


def why_stopped(chain_id: int, *, source: int = 0, signer: str = "") -> str:
    """Return why nothing is sent on a chain, for a connection or by a signer, a sentence; empty if it isn't stopped."""
    return _first(chain_id, Q(source_chain_id__in={0, source}), signer)


def why_connection_is_stopped(source: int, destination: int) -> str:
    """Return why a connection itself is stopped, a sentence; empty if it isn't, though its destination may be."""
    return _first(destination, Q(source_chain_id=source))


def why_not_signed(tx: Transaction, *, is_new: bool) -> str:
    """Return why a transaction may not be signed or broadcast, a sentence; empty if it may.

    Stops of its connections matter only where it `is_new`.
    """
    sources = Q(source_chain_id=0)
    if is_new:
        queries = Query.objects.filter(transactions=tx).values("source_chain_id")
        registry = FactsRegistry.objects.filter(extending_transactions=tx).values("source_chain_id")
        sources |= Q(source_chain_id__in=queries) | Q(source_chain_id__in=registry)
    return _first(tx.signer.chain_id, sources, tx.signer.address)


def _first(chain_id: int, sources: Q, signer: str = "") -> str:
    standing = Stop.objects.filter(sources, chain_id=chain_id, signer__in={"", signer})
    # That of the whole chain comes first.
    first = standing.order_by("source_chain_id", "signer").first()
    return first.sentence if first else ""
