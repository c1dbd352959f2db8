"""Stops of sending: on a destination, for one of its connections, or by one of its signers.

`proving.sending.signing` checks them before each reservation, signature and broadcast. A stopped connection
reserves nothing new. Its earlier reservations are still sent and replaced, because later nonces wait for them.
"""

import logging
from collections.abc import Collection, Iterable

from django.db import transaction

from accounts import operator_log
from accounts.models import User
from config.configured_chains import get_chains
from config.database import statements
from proving.models import FactsRegistry, Signer, Stop, StopCode, Transaction
from queries.models import Query
from queries.waits import WaitReason

logger = logging.getLogger(__name__)

MAX_REASON_CHARS = 200
# Recorded as `by` when a worker stops a signer.
WORKER = "a worker"


def stop(
    chain_id: int, *, by: str, reason: str = "", source: int = 0, signer: str = "", code: StopCode = StopCode.OPERATOR
) -> Stop:
    """Stop sending on a chain, or only for the connection from `source`, or only by the address `signer`.

    After this returns, nothing more is reserved. Transactions in nodes' mempools may still be mined.
    """
    values = {"code": code, "reason": reason, "by": by}
    with transaction.atomic():
        # A worker that is reserving holds these locks, so this waits until it has finished.
        statements.lock(Signer.objects.filter(chain_id=chain_id))
        standing, is_new = Stop.objects.get_or_create(
            chain_id=chain_id, source_chain_id=source, signer=signer, defaults=values
        )
        # A worker doesn't replace the operator's reason.
        if not is_new and code == StopCode.OPERATOR:
            Stop.objects.filter(pk=standing.pk).update(**values)
            standing.refresh_from_db()
    # A worker stops a signer again in each turn.
    if is_new or code == StopCode.OPERATOR:
        logger.warning("%s", standing.sentence)
    return standing


def stop_by_operator(subject: Stop, *, reason: str, user: User | None = None) -> Stop:
    """Stop what an unsaved stop names, in the name of an operator, or of a command (None), and record it."""
    by = str(user) if user else f"{operator_log.COMMAND} ({operator_log.login()})"
    with transaction.atomic():
        standing = stop(subject.chain_id, by=by, reason=reason, source=subject.source_chain_id, signer=subject.signer)
        operator_log.record([standing], "Stopped.", reason=reason, user=user)
    return standing


def resume_by_operator(subject: Stop, *, user: User | None = None) -> bool:
    """Remove the stop of the same subject, accept a signer's foreign transactions, and record that.

    Return whether there was anything of these. Transactions that were signed before are broadcast again. Later foreign
    transactions count again.
    """
    chain_id, source, signer = subject.chain_id, subject.source_chain_id, subject.signer
    with transaction.atomic():
        deleted, _ = Stop.objects.filter(chain_id=chain_id, source_chain_id=source, signer=signer).delete()
        foreign = Signer.objects.filter(chain_id=chain_id, address=signer).exclude(foreign_count=0)
        none = {"foreign_count": 0, "foreign_since": None, "foreign_is_suspected": None}
        accepted = foreign.update(accounted_nonce=None, **none)
        if was_stopped := bool(deleted or accepted):
            operator_log.record([subject], "Resumed.", user=user)
            logger.warning("sending goes on %s", subject.subject)
    return was_stopped


def stoppable() -> dict[str, Stop]:
    """Return the possible stops by their names: of configured destinations, connections and signers, and those made."""
    chains = get_chains()
    possible = {
        **{chain.label: Stop(chain_id=chain.id) for chain in chains.destinations()},
        **{
            f"{chains.chain(connection.source_id).label} to {chains.chain(connection.destination_id).label}": Stop(
                chain_id=connection.destination_id, source_chain_id=connection.source_id
            )
            for connection in chains.connections
        },
        **{
            f"The signer {signer.address} on {chain.label}": Stop(chain_id=chain.id, signer=signer.address)
            for chain in chains.destinations()
            for signer in Signer.objects.filter(chain_id=chain.id).order_by("pk")
        },
    }
    made = {(row.chain_id, row.source_chain_id, row.signer): row for row in Stop.objects.order_by("pk")}
    standing = {name: made.pop((row.chain_id, row.source_chain_id, row.signer), row) for name, row in possible.items()}
    return standing | {row.subject: row for row in made.values()}


def why_stopped(chain_id: int, *, source: int) -> WaitReason | None:
    """Return why nothing is sent for a connection. None if neither it nor its destination is stopped."""
    return _first(_standing(chain_id), {0, source})


def why_signer_is_stopped(chain_id: int, address: str) -> WaitReason | None:
    """Return why a signer sends nothing. None if neither it nor its chain is stopped."""
    return _first(_standing(chain_id), {0}, address)


def why_connection_is_stopped(source: int, destination: int) -> WaitReason | None:
    """Return why a connection itself is stopped. None if it isn't, even if its destination is."""
    return _first(_standing(destination), {source})


def why_not_signed(tx: Transaction, *, is_new: bool) -> WaitReason | None:
    """Return why a transaction may not be signed or broadcast. None if it may.

    Stops of its connections count only for new transactions.
    """
    standing = _standing(tx.signer.chain_id)
    sources = {0}
    if is_new and standing:
        sources.update(Query.objects.filter(transactions=tx).values_list("source_chain_id", flat=True))
        registries = FactsRegistry.objects.filter(extending_transactions=tx)
        sources.update(registries.values_list("source_chain_id", flat=True))
    return _first(standing, sources, tx.signer.address)


def _standing(chain_id: int) -> list[Stop]:
    """Return the stops of a chain. The stop of the whole chain comes first."""
    return list(Stop.objects.filter(chain_id=chain_id).order_by("source_chain_id", "signer"))


def _first(standing: Iterable[Stop], sources: Collection[int], signer: str = "") -> WaitReason | None:
    applying = (stop for stop in standing if stop.source_chain_id in sources and stop.signer in {"", signer})
    return next((stop.wait for stop in applying), None)
