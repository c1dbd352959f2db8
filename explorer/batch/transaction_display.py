"""The destination's transactions as pages show them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

from django.db.models import Count, Max, Min, OuterRef, Prefetch, Subquery

from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from config.json_objects import PAGE_ONLY, JsonObject, Wei
from explorer.formatting.amounts import rounded
from proving.models import ChainHead, Share, SignedTransaction, Transaction, TransactionState
from queries.models import Batch

# The newest of a batch that has more.
MOST_SHOWN = 20


@dataclass(frozen=True)
class ShownTransaction(JsonObject):
    hash: str
    url: str  # on the chain's own explorer, where one is configured
    progress: str  # how far it is, a phrase
    gas_used: int | None  # of the whole transaction, once it is mined
    nonce: int | None = None
    gas_price: Wei | None = None  # wei; before it is mined, the most that it may be
    replaced: tuple[str, ...] = ()  # hashes of the versions that this one replaced, the newest first
    sent_at: Annotated[datetime | None, PAGE_ONLY] = None
    mined_at: Annotated[datetime | None, PAGE_ONLY] = None  # when it was seen in a block
    # ok, wait, fail: a class of the style sheet. Empty: its nonce was used otherwise, or it is not known here.
    result: Annotated[str, PAGE_ONLY] = ""
    is_unconfirmed: Annotated[bool, PAGE_ONLY] = False  # mined, and not part yet of what the batch has spent
    pk: Annotated[int | None, PAGE_ONLY] = None
    is_of_path: Annotated[bool, PAGE_ONLY] = False
    first_part: Annotated[str, PAGE_ONLY] = ""  # what it proves of a source's parent chain, a phrase
    proves: Annotated[str, PAGE_ONLY] = ""  # of one batch, a phrase
    cost: Annotated[Wei | None, PAGE_ONLY] = None  # of one batch; before it is mined, the most that it may be

    @property
    def gas_price_in_gwei(self) -> str:
        return rounded(self.gas_price, decimals=9) if self.gas_price else ""


def head(chain_id: int) -> ChainHead | None:
    """Return the chain's newest block and the newest final one."""
    return ChainHead.objects.filter(pk=chain_id).first()


def by_hash(hashes: set[str], destination: ChainName, head: ChainHead | None) -> Mapping[str, ShownTransaction]:
    """Return the transactions by their hashes, in two statements. An unknown hash is shown without details."""
    if not hashes:
        return {}
    sent = {
        version.hash: version.transaction_id
        for version in SignedTransaction.objects.filter(hash__in=hashes).only("hash", "transaction_id")
    }
    rows = _having(set(sent.values()))
    return {
        tx_hash: shown(tx_hash, rows.get(sent[tx_hash]) if tx_hash in sent else None, destination, head)
        for tx_hash in hashes
    }


def of_batch(batch: Batch, destination: ChainName, head: ChainHead | None) -> tuple[list[ShownTransaction], int]:
    """Return the newest transactions that the batch has a part in, and how many it has in all."""
    newest = list(batch.shares.order_by("-transaction").values_list("transaction", flat=True))
    sent = _having(set(newest[:MOST_SHOWN]))
    return [shown(tx.latest_hash, tx, destination, head) for pk in newest if (tx := sent.get(pk))], len(newest)


def _having(pks: set[int]) -> dict[int, Transaction]:
    """Return the transactions with their versions."""
    if not pks:
        return {}
    versions = Prefetch("versions", SignedTransaction.objects.defer("raw"))
    facts = Transaction.objects.select_related("parent_fact__registry")
    return facts.defer("data").prefetch_related(versions).in_bulk(pks)


def shown(tx_hash: str, tx: Transaction | None, destination: ChainName, head: ChainHead | None) -> ShownTransaction:
    """Return the transaction as pages show it. `tx` comes with its versions."""
    url = f"{destination.explorer_url}/tx/{tx_hash}" if destination.explorer_url else ""
    if tx is None:
        return ShownTransaction(tx_hash, url, "", None)
    versions = sorted(tx.versions.all(), key=lambda version: version.pk, reverse=True)
    most = max((version.max_fee_per_gas for version in versions), default=0)
    return ShownTransaction(
        hash=tx_hash,
        url=url,
        progress=_progress(tx, destination, head),
        gas_used=tx.gas_used or None,
        nonce=tx.nonce,
        gas_price=(tx.gas_price if tx.block_number is not None else most) or None,
        replaced=tuple(version.hash for version in versions if version.hash != tx_hash),
        sent_at=tx.created_at,
        mined_at=tx.spent_at if tx.block_number is not None else None,
        result=_result(tx),
        is_unconfirmed=tx.state == TransactionState.MINED,
        pk=tx.pk,
        is_of_path=tx.extends_id is not None,
        first_part=_first_part(tx),
    )


def _first_part(tx: Transaction) -> str:
    fact = getattr(tx, "parent_fact", None) if tx.extends_id else None
    return f"slot of the Outbox on {chain_name(fact.registry.source_chain_id).in_words}" if fact else ""


def with_parts(batch: Batch, transactions: Sequence[ShownTransaction], asked: str) -> Iterator[ShownTransaction]:
    """Yield the transactions with what each proves of the batch, and costs it, in one statement.

    `asked` is what the batch asks for, where it is one query; else empty.
    """
    pks = {tx.pk for tx in transactions if tx.pk is not None}
    if not pks:
        yield from transactions
        return
    links = Transaction.queries.through.objects.filter(transaction__in=pks, query__batch=batch).order_by()
    parts = {
        pk: rest
        for pk, *rest in links.values_list("transaction").annotate(
            Count("pk"),
            Min("query__position"),
            Count("query__block", distinct=True),
            Max("query__block__number"),
            wei=Subquery(Share.objects.filter(transaction=OuterRef("transaction"), batch=batch).values("wei")),
        )
    }
    for tx in transactions:
        count, position, blocks, highest, wei = parts.get(tx.pk, (0, 0, 0, 0, None))
        if not count:
            proves = ""
        elif tx.is_of_path:
            proves = f"path to block {highest}" if blocks == 1 else f"paths to {blocks:,} blocks"
            proves = f"{tx.first_part}, and the {proves}" if tx.first_part else proves
        elif asked:
            proves = asked
        else:
            proves = f"query {position + 1}" if count == 1 else f"{count:,} queries"
        yield replace(tx, proves=proves, cost=wei if tx.result else None)


def _result(tx: Transaction) -> str:
    if tx.state == TransactionState.DISPLACED:
        return ""
    if tx.block_number is None:
        return "wait"
    return "ok" if tx.succeeded else "fail"


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
