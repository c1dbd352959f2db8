"""The operator's pauses of one connection, or of one signer. The stop switch of a whole destination is `stop_switch`.

A paused connection sends nothing new. What was sent for it before is still broadcast, replaced and followed: its nonces
are in the way of what other connections send. A paused signer signs and broadcasts nothing at all; others send instead.
"""

import logging

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from django.utils import timezone

from database import row_locks
from proving.models import ConnectionPause, FactsRegistry, Signer, SigningStop, Transaction
from proving.transactions.stop_switch import why_stopped
from queries.models import Query

logger = logging.getLogger(__name__)

# Why a worker pauses a signer, and not the operator.
NOT_BELIEVED = "Nodes say again and again what can't be true of its transactions."


def pause_connection(source: int, destination: int, reason: str = "") -> ConnectionPause:
    with transaction.atomic():
        # Who sends at this moment has locked them: when this has ended, so has that.
        row_locks.lock(Signer.objects.filter(chain_id=destination))
        pause, _ = ConnectionPause.objects.update_or_create(
            source_chain_id=source, destination_chain_id=destination, defaults={"reason": reason}
        )
    logger.warning("%s", sentence(pause))
    return pause


def resume_connection(source: int, destination: int) -> bool:
    """Resume a connection, and return whether it was paused."""
    deleted, _ = ConnectionPause.objects.filter(source_chain_id=source, destination_chain_id=destination).delete()
    if deleted:
        logger.warning("the connection from chain %d to chain %d goes on", source, destination)
    return bool(deleted)


def sentence(pause: ConnectionPause) -> str:
    return (
        f"The operator has paused the connection from chain {pause.source_chain_id} to chain "
        f"{pause.destination_chain_id}.{_because(pause.reason)}"
    )


def why_paused(source: int, destination: int) -> str:
    """Return why a connection is paused, a sentence; empty if it isn't paused."""
    pause = ConnectionPause.objects.filter(source_chain_id=source, destination_chain_id=destination).first()
    return sentence(pause) if pause else ""


def why_not_for(tx: Transaction) -> str:
    """Return why a stored transaction may not be sent for its connection, a sentence; empty if it may."""
    queries = Query.objects.filter(transactions=tx, source_chain_id=OuterRef("source_chain_id"))
    registry = FactsRegistry.objects.filter(extending_transactions=tx, source_chain_id=OuterRef("source_chain_id"))
    paused = ConnectionPause.objects.filter(
        Q(Exists(queries)) | Q(Exists(registry)), destination_chain_id=tx.signer.chain_id
    )
    pause = paused.order_by("pk").first()
    return sentence(pause) if pause else ""


def pause_signer(chain_id: int, address: str, reason: str = "") -> Signer:
    """Pause a signer. `address` has its EIP-55 checksum."""
    signer, _ = Signer.objects.get_or_create(chain_id=chain_id, address=address)
    signer.paused_at, signer.paused_because = timezone.now(), reason
    signer.notice = sentence_of_signer(signer)
    signer.save(update_fields=["paused_at", "paused_because", "notice"])
    logger.warning("%s", signer.notice)
    return signer


def resume_signer(chain_id: int, address: str) -> bool:
    """Resume a signer, and return whether it was paused. What it had signed before is broadcast again."""
    paused = Signer.objects.filter(chain_id=chain_id, address=address).exclude(paused_at=None)
    resumed = paused.update(paused_at=None, paused_because="", notice="", due_at=Now())
    if resumed:
        logger.warning("the signer %s on chain %d goes on", address, chain_id)
    return bool(resumed)


def sentence_of_signer(signer: Signer) -> str:
    who = "A worker" if signer.paused_because == NOT_BELIEVED else "The operator"
    return f"{who} has paused the signer {signer.address} on chain {signer.chain_id}.{_because(signer.paused_because)}"


def why_no_signing(signer_id: int, *, new: Transaction | None = None) -> str:
    """Return why the signer signs and broadcasts nothing now: it is paused, or its chain is stopped; a sentence.

    Or why not this `new` transaction, whose connection is paused. Empty if it may.
    """
    stop = SigningStop.objects.filter(chain_id=OuterRef("chain_id"))
    pause = ConnectionPause.objects.filter(destination_chain_id=OuterRef("chain_id"))
    signer = Signer.objects.annotate(is_stopped=Exists(stop), has_pauses=Exists(pause)).get(pk=signer_id)
    if signer.is_stopped:
        return why_stopped(signer.chain_id)
    if signer.paused_at is not None:
        return sentence_of_signer(signer)
    return why_not_for(new) if new and signer.has_pauses else ""


def _because(reason: str) -> str:
    return f" The reason given: {reason}" if reason else ""
