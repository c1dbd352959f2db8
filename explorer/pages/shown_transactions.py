"""The destination's transactions as pages show them."""

from collections.abc import Mapping
from dataclasses import dataclass

from accounts import statements
from config.configured_chains import get_chains
from explorer.pages.chain_names import ChainName
from proving.models import ChainHead, SignedTransaction, Transaction, TransactionState


@dataclass(frozen=True)
class ShownTransaction:
    hash: str
    url: str  # on the chain's own explorer, where one is configured
    progress: str  # how far it is, a phrase
    gas_used: int | None  # of the whole transaction, once it is mined


def head(chain_id: int) -> ChainHead | None:
    """Its newest block and the newest final one."""
    row = statements.first("SELECT chain_id, number, final FROM proving_chainhead WHERE chain_id = %s", (chain_id,))
    return ChainHead.from_db(None, ("chain_id", "number", "final"), row) if row else None


def by_hash(hashes: set[str], destination: ChainName, head: ChainHead | None) -> Mapping[str, ShownTransaction]:
    """In one statement. A hash that is not known here is shown without details."""
    if not hashes:
        return {}
    versions = SignedTransaction.objects.filter(hash__in=hashes).select_related("transaction")
    sent = {version.hash: version.transaction for version in versions.defer("raw", "transaction__data")}
    return {tx_hash: shown(tx_hash, sent.get(tx_hash), destination, head) for tx_hash in hashes}


def shown(tx_hash: str, tx: Transaction | None, destination: ChainName, head: ChainHead | None) -> ShownTransaction:
    return ShownTransaction(
        hash=tx_hash,
        url=f"{destination.explorer_url}/tx/{tx_hash}" if destination.explorer_url else "",
        progress=_progress(tx, destination, head) if tx else "",
        gas_used=tx.gas_used or None if tx else None,
    )


def _progress(tx: Transaction, destination: ChainName, head: ChainHead | None) -> str:
    if tx.state == TransactionState.DISPLACED:
        return "its nonce was used by another transaction"
    if tx.block_number is None:
        return "sent, not in a block yet"
    if not tx.succeeded:
        return f"reverted in block {tx.block_number}"
    where = f"in block {tx.block_number}"
    if tx.state == TransactionState.FINAL:
        return f"{where}, which is final"
    needed = get_chains().chain(destination.id).confirmations if destination.is_configured else 1
    if needed == "finalized":
        final = f"; block {head.final} is the newest final one" if head else ""
        return f"{where}, waiting until it is final{final}"
    seen = needed if tx.state == TransactionState.CONFIRMED else 1
    if head is not None:
        seen = max(seen, head.number - tx.block_number + 1)
    return f"{where}, {min(seen, needed)} of {needed} confirmation{'' if needed == 1 else 's'}"
