"""The operator's stop switch: `proving.transactions.signing` asks it before each signature and each broadcast."""

import logging

from django.db import transaction

from database import row_locks
from proving.models import Signer, SigningStop

logger = logging.getLogger(__name__)


def stop(chain_id: int, reason: str = "") -> SigningStop:
    """Stop signing and broadcasting on this chain. What is in nodes' mempools may still be mined."""
    with transaction.atomic():
        # Who signs at this moment has locked them: when this has ended, so has that.
        row_locks.lock(Signer.objects.filter(chain_id=chain_id))
        switch, _ = SigningStop.objects.update_or_create(chain_id=chain_id, defaults={"reason": reason})
        Signer.objects.filter(chain_id=chain_id).update(notice=sentence(switch))
    logger.warning("%s", sentence(switch))
    return switch


def resume(chain_id: int) -> bool:
    """Resume signing on this chain, and return whether it was stopped. What was signed before is broadcast again."""
    with transaction.atomic():
        row_locks.lock(Signer.objects.filter(chain_id=chain_id))
        deleted, _ = SigningStop.objects.filter(chain_id=chain_id).delete()
        if deleted:
            Signer.objects.filter(chain_id=chain_id).update(notice="")
    if deleted:
        logger.warning("sending on chain %d goes on", chain_id)
    return bool(deleted)


def sentence(switch: SigningStop) -> str:
    because = f" The reason given: {switch.reason}" if switch.reason else ""
    return f"The operator has stopped sending on chain {switch.chain_id}.{because}"


def why_stopped(chain_id: int) -> str:
    """Return why the chain is stopped, a sentence; empty if it isn't."""
    switch = SigningStop.objects.filter(chain_id=chain_id).first()
    return sentence(switch) if switch else ""
