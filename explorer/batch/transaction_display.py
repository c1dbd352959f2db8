"""The destination's transactions on a batch's page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.db.models import Count, Max, Min, OuterRef, Prefetch, Subquery

from config.chain_names import ChainName
from config.configured_chains import get_chains
from explorer.batch.query_cards import ShownQuery
from explorer.formatting.amounts import gas_price
from proving.models import ChainHead, Share, SignedTransaction, Transaction, TransactionState
from queries.models import Batch

# A batch with more transactions shows only its newest.
MOST_SHOWN = 20


class TransactionPart(NamedTuple):
    """The part of a batch that a transaction serves."""

    queries: int = 0
    first_position: int = 0
    blocks: int = 0
    highest_block: int | None = None
    wei: int | None = None


_NO_PART = TransactionPart()


class SentTransactions(NamedTuple):
    """The transactions that were sent for a batch, or are being sent, and the most that the batch's part costs."""

    transactions: int
    wei: int
    newest: str  # another text after each further transaction or version


@dataclass(frozen=True)
class TransactionDisplay:
    hash: str
    row: Transaction | None = None  # None: this service doesn't know the transaction
    part: TransactionPart = _NO_PART
    final_block: int | None = None  # the newest final block, while the transaction's block isn't final
    confirmations: int | None = None  # None: there are enough, or their number is unknown
    confirmations_needed: int | None = None

    @property
    def result(self) -> str:
        """Return ok, run or fail, a class of the style sheet. Empty: unknown, or another transaction used the nonce."""
        if self.row is None or self.row.state == TransactionState.DISPLACED:
            return ""
        if not self.is_mined:
            return "run"
        if not self.row.succeeded:
            return "fail"
        return "run" if self.is_unconfirmed else "ok"

    @property
    def first_query(self) -> int:
        return self.part.first_position + 1

    @property
    def cost(self) -> int | None:
        """Return the batch's share of the cost in wei. Before the transaction is mined, return an upper bound."""
        return self.part.wei if self.result else None

    @property
    def is_mined(self) -> bool:
        return self.row is not None and self.row.block_number is not None

    @property
    def is_unconfirmed(self) -> bool:
        """Return whether the transaction is mined, but doesn't count as spent yet."""
        return self.row is not None and self.row.state == TransactionState.MINED

    @property
    def gas_price_in_gwei(self) -> str:
        """Return the gas price. Before the transaction is mined, return the maximum gas price."""
        if self.row is None:
            return ""
        most = max((version.max_fee_per_gas for version in self.row.versions.all()), default=0)
        return gas_price(self.row.gas_price if self.is_mined else most)

    @property
    def replaced(self) -> list[str]:
        """Return the hashes of the replaced versions, newest first."""
        hashes = self.row.hashes if self.row else []
        return [tx_hash for tx_hash in reversed(hashes) if tx_hash != self.hash]


@dataclass(frozen=True)
class NewestTransactions:
    shown: Sequence[TransactionDisplay]
    count: int
    """The number of all."""


def read(batch: Batch, destination: ChainName, cards: Sequence[ShownQuery]) -> NewestTransactions:
    """Return the newest signed transactions.

    They belong to the queries in `cards`, or to the whole batch if there are no cards.
    """
    hashes = {step.transaction_hash for card in cards for step in card.steps} - {""}
    pks = sorted(
        _of_cards(cards, hashes) if cards else batch.shares.values_list("transaction", flat=True), reverse=True
    )
    parts = _parts(batch, pks[:MOST_SHOWN])
    versions = Prefetch("versions", SignedTransaction.objects.defer("raw"))
    rows = Transaction.objects.defer("data").prefetch_related(versions).in_bulk(pks[:MOST_SHOWN])
    signed = {pk: row for pk, row in rows.items() if row.latest_hash}
    is_head_needed = any(row.state == TransactionState.MINED for row in signed.values())
    head = ChainHead.objects.filter(pk=destination.id).first() if is_head_needed else None
    shown = [_shown(signed[pk], destination, head, parts.get(pk, _NO_PART)) for pk in pks if pk in signed]
    known = {tx_hash for row in signed.values() for tx_hash in row.hashes}
    unknown = list(map(TransactionDisplay, sorted(hashes - known)))
    count = max(len(pks) - len(rows) + len(signed), len(shown) + len(unknown))
    return NewestTransactions(shown + (unknown if len(pks) <= MOST_SHOWN else []), count)


def sent_until_now(batch: Batch) -> SentTransactions:
    newest = batch.shares.aggregate(sent=Max("transaction"), signed=Max("transaction__versions"))
    parts = batch.shares.exclude(transaction__state=TransactionState.DISPLACED).values_list("wei", flat=True)
    return SentTransactions(len(parts), sum(parts), f"{newest['sent']} {newest['signed']}")


def _of_cards(cards: Sequence[ShownQuery], hashes: set[str]) -> set[int]:
    """Return the transactions that serve these queries or the paths to their blocks, or have one of these hashes."""
    links = Transaction.queries.through.objects.all()
    blocks = [card.block.pk for card in cards if card.block]
    transactions = (
        links.filter(query__in=[card.query.pk for card in cards])
        .values_list("transaction")
        .union(
            links.filter(query__block__in=blocks, transaction__extends__isnull=False).values_list("transaction"),
            SignedTransaction.objects.filter(hash__in=hashes).values_list("transaction"),
        )
    )
    return {pk for (pk,) in transactions}


def _parts(batch: Batch, pks: Sequence[int]) -> Mapping[int, TransactionPart]:
    """Return the batch's parts by transaction id."""
    links = Transaction.queries.through.objects.filter(transaction__in=pks, query__batch=batch).order_by()
    wei = Share.objects.filter(transaction=OuterRef("transaction"), batch=batch).values("wei")
    counts = Count("pk"), Min("query__position"), Count("query__block", distinct=True), Max("query__block__number")
    rows = links.values_list("transaction").annotate(*counts, wei=Subquery(wei))
    return {pk: TransactionPart(*part) for pk, *part in rows}


def _shown(
    tx: Transaction, destination: ChainName, head: ChainHead | None, part: TransactionPart
) -> TransactionDisplay:
    shown = TransactionDisplay(tx.latest_hash, tx, part)
    if head is None or tx.block_number is None or not shown.is_unconfirmed:
        return shown
    needed = get_chains().chain(destination.id).confirmations if destination.is_configured else 1
    if needed == "finalized":
        return replace(shown, final_block=head.final)
    confirmations = head.number - tx.block_number + 1
    if confirmations >= needed:
        return shown
    return replace(shown, confirmations=max(1, confirmations), confirmations_needed=needed)
