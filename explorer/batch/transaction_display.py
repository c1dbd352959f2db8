"""The destination's transactions as a batch's page shows them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Count, Max, Min, OuterRef, Prefetch, Subquery

from config.chain_names import ChainName
from config.configured_chains import get_chains
from explorer.batch.query_cards import ShownQuery
from explorer.formatting.amounts import rounded
from proving.models import ChainHead, Share, SignedTransaction, Transaction, TransactionState
from queries.models import Batch

# The newest of a batch that has more.
MOST_SHOWN = 20

_Links = Mapping[int, Sequence[int | None]]
"""By transaction: the count of a batch's queries that it is for, the first position, their blocks, the highest, wei."""


@dataclass(frozen=True)
class ShownTransaction:
    hash: str
    url: str  # on the chain's own explorer, where one is configured
    progress: str  # how far it is, a phrase
    result: str = ""  # ok, run, fail: a class of the style sheet. Empty: its nonce was used otherwise, or it is unknown
    row: Transaction | None = None  # None: it is not known here
    proves: str = ""  # of one batch, a phrase
    cost: int | None = None  # of one batch, in wei; before it is mined, the most that it may be

    @property
    def is_mined(self) -> bool:
        return self.row is not None and self.row.block_number is not None

    @property
    def is_unconfirmed(self) -> bool:
        """Return whether it is mined, and not part yet of what the batch has spent."""
        return self.row is not None and self.row.state == TransactionState.MINED

    @property
    def gas_price_in_gwei(self) -> str:
        """Return the price of its gas; before it is mined, the most that it may be."""
        if self.row is None:
            return ""
        most = max((version.max_fee_per_gas for version in self.row.versions.all()), default=0)
        return rounded(self.row.gas_price if self.is_mined else most, decimals=9)

    @property
    def replaced(self) -> list[str]:
        """Return the hashes of the versions that this one replaced, the newest first."""
        hashes = self.row.hashes if self.row else []
        return [tx_hash for tx_hash in reversed(hashes) if tx_hash != self.hash]


def read(
    batch: Batch, destination: ChainName, cards: Sequence[ShownQuery], asked: str
) -> tuple[list[ShownTransaction], int]:
    """Return the newest transactions of the queries that are shown whole, else of the batch; and how many there are.

    One that isn't signed yet is not shown.
    `asked` is what the batch asks for, where it is one query; else empty.
    """
    hashes = {step.transaction_hash for card in cards for step in card.steps} - {""}
    pks = sorted(
        _of_cards(cards, hashes) if cards else batch.shares.values_list("transaction", flat=True), reverse=True
    )
    links, head = _links(batch, pks[:MOST_SHOWN]), ChainHead.objects.filter(pk=destination.id).first()
    versions = Prefetch("versions", SignedTransaction.objects.defer("raw"))
    rows = Transaction.objects.defer("data").prefetch_related(versions).in_bulk(pks[:MOST_SHOWN])
    signed = {pk: row for pk, row in rows.items() if row.latest_hash}
    shown = [_shown(signed[pk], destination, head, links, asked) for pk in pks if pk in signed]
    known = {tx_hash for row in signed.values() for tx_hash in row.hashes}
    unknown = [ShownTransaction(tx_hash, _url(destination, tx_hash), "") for tx_hash in sorted(hashes - known)]
    return shown + (unknown if len(pks) <= MOST_SHOWN else []), max(
        len(pks) - len(rows) + len(signed), len(shown) + len(unknown)
    )


def _of_cards(cards: Sequence[ShownQuery], hashes: set[str]) -> set[int]:
    """Return the transactions for these queries, for the paths to their blocks, and those with these hashes."""
    links = Transaction.queries.through.objects.all()
    blocks = [card.block.pk for card in cards if card.block]
    found = (
        links.filter(query__in=[card.query.pk for card in cards])
        .values_list("transaction")
        .union(
            links.filter(query__block__in=blocks, transaction__extends__isnull=False).values_list("transaction"),
            SignedTransaction.objects.filter(hash__in=hashes).values_list("transaction"),
        )
    )
    return {pk for (pk,) in found}


def _links(batch: Batch, pks: Sequence[int]) -> _Links:
    links = Transaction.queries.through.objects.filter(transaction__in=pks, query__batch=batch).order_by()
    wei = Share.objects.filter(transaction=OuterRef("transaction"), batch=batch).values("wei")
    counts = Count("pk"), Min("query__position"), Count("query__block", distinct=True), Max("query__block__number")
    return {pk: of for pk, *of in links.values_list("transaction").annotate(*counts, wei=Subquery(wei))}


def _url(destination: ChainName, tx_hash: str) -> str:
    return f"{destination.explorer_url}/tx/{tx_hash}" if destination.explorer_url else ""


def _shown(
    tx: Transaction, destination: ChainName, head: ChainHead | None, links: _Links, asked: str
) -> ShownTransaction:
    count, position, blocks, highest, wei = links.get(tx.pk, (0, 0, 0, 0, None))
    if tx.extends_id:
        proves = f"path to block {highest}" if blocks == 1 else f"paths to {blocks:,} blocks" if blocks else "a path"
    else:
        proves = asked or (f"query {(position or 0) + 1}" if count == 1 else f"{count:,} queries")
    progress, result = _progress(tx, destination, head)
    url = _url(destination, tx.latest_hash)
    return ShownTransaction(tx.latest_hash, url, progress, result, tx, proves, wei if result else None)


def _progress(tx: Transaction, destination: ChainName, head: ChainHead | None) -> tuple[str, str]:
    """Return how far a transaction is, a phrase, and its result."""
    if tx.state == TransactionState.DISPLACED:
        return "its nonce was used by another transaction", ""
    if tx.block_number is None:
        return "sent, not in a block yet", "run"
    if not tx.succeeded:
        return f"reverted in block {tx.block_number}", "fail"
    where = f"in block {tx.block_number}"
    if tx.state != TransactionState.MINED:
        return f"{where}, {'final' if tx.state == TransactionState.FINAL else 'confirmed'}", "ok"
    needed = get_chains().chain(destination.id).confirmations if destination.is_configured else 1
    far = ""
    if head and needed == "finalized":
        far = f": block {head.final} is the newest final one"
    elif head and needed != "finalized" and head.number - tx.block_number + 1 < needed:
        far = f": {max(1, head.number - tx.block_number + 1)} of {needed} confirmations"
    return f"{where}, being confirmed{far}", "run"
