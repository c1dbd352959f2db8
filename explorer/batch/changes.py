"""Whether what a batch's page shows has changed, in two statements: most polls of a page find nothing new.

They read every row that the page is made of, as far as the page shows it. They may read more: then a poll gets
a page that says the same. What only time changes is no part of it, as in `explorer.batch.batch_page`.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.models import Case, Count, Exists, F, Max, Min, OuterRef, Q, QuerySet, Subquery, TextField, Value, When
from django.db.models.functions import Cast, JSONArray
from django.utils import timezone

from chains.chains_file import Chains
from config.configured_chains import get_chains
from explorer.batch.query_paging import ROWS_SIZE, Wanted, first_of_page
from proving import batch_waits
from proving.models import (
    WATCHED_STATES,
    AccountProof,
    ChainHead,
    FactsRegistry,
    Share,
    SignedTransaction,
    Signer,
    SlotProof,
    Transaction,
)
from proving.worker import heartbeats
from queries import poll_interval
from queries.models import OPEN_STATUSES, Batch, Block, Query, Step

# Django would ask the database in a transaction, and take a lock that others hold for a no.
DatabaseWrapper.features_class.supports_json_field = True  # type: ignore[method-assign, assignment]

# While nothing fails, when a row is due next is not shown.
_NEXT_TRY = Case(When(failing_since__isnull=False, then=F("due_at")))


def _parts(batch: str, destination: int, first: int, last: int) -> Iterator[tuple[QuerySet[Any], list[Any]]]:
    """Yield the rows that the page of a batch is made of, and what of them it shows."""
    queries = Query.objects.filter(batch=batch)
    shown = queries.filter(position__gte=first, position__lte=last)
    blocks = shown.values("block")
    links = Transaction.queries.through.objects.all()
    # Of shown steps, of their queries, and of the paths to their blocks.
    signed = SignedTransaction.objects.filter(
        hash__in=Step.objects.filter(query__in=shown.values("pk"))
        .exclude(transaction_hash="")
        .values("transaction_hash")
    )
    watched = batch_waits.sent_for(batch, destination).filter(state__in=WATCHED_STATES)
    transactions = (
        links.filter(query__in=shown.values("pk"))
        .values("transaction")
        .union(
            signed.values("transaction"),
            links.filter(query__block__in=blocks, transaction__extends__isnull=False).values("transaction"),
            Share.objects.filter(batch=batch).values("transaction"),
            watched.values("pk"),
        )
    )
    waiting = Block.objects.filter(
        pk__in=queries.filter(step__isnull=False).values("block"), due_at__isnull=False
    ).exclude(waiting_for="")
    newest = SignedTransaction.objects.filter(transaction=OuterRef("pk")).order_by("-pk").values("pk")[:1]

    yield (
        Batch.objects.filter(pk=batch),
        [
            *("status", "waiting_for", "looked_at", "accepted_at", "finished_at", "deadline_at", "went_back_at"),
            *("went_back_because", "estimated_gas", "estimated_wei", "gas_used", "spent", "rejection_code"),
            *("rejection_reason", "rejection_retryable", "failing_since", "proofs_pruned_at", "steps_pruned_at"),
            *(_NEXT_TRY, Exists(queries.filter(block__due_at__isnull=False))),
        ],
    )
    yield queries.values("step"), ["step", Count("pk"), Count("pk", filter=Q(address=""))]
    yield shown, ["pk", "step", "block", "is_admitted"]
    yield (
        Block.objects.filter(pk__in=blocks),
        ["pk", "number", "hash", "path_unit", "path_length", "path_left", "path_origin", "failing_since", _NEXT_TRY],
    )
    yield (
        Step.objects.filter(query__in=shown.values("pk")),
        [
            *("query", "kind", "status", "started_at", "completed_at", "transaction_hash", "last_error"),
            *("went_back_at", "went_back_because"),
        ],
    )
    yield (
        waiting.values("waiting_for", "source_chain_id"),
        ["waiting_for", "source_chain_id", Min("looked_at"), Min("failing_since"), Min(_NEXT_TRY)],
    )
    yield (
        FactsRegistry.objects.filter(destination_chain_id=destination),
        [
            *("pk", "address", "block_hash_source", "notice", "deployed_at", "code_hash", "refused", "replaced_at"),
            "replaced_because",
        ],
    )
    yield Signer.objects.filter(chain_id=destination).exclude(notice=""), ["pk", "notice"]
    yield (
        Transaction.objects.filter(pk__in=transactions),
        ["pk", "state", "hash", "block_number", "succeeded", "gas_used", Subquery(newest)],
    )
    # By it, pages count confirmations.
    yield ChainHead.objects.filter(Exists(watched), chain_id=destination), ["number", "final"]
    proofs = AccountProof.objects.filter(block__in=blocks)
    yield proofs.values(all=Value(1)), [Count("pk"), Max("pk")]
    yield SlotProof.objects.filter(account__in=proofs.values("pk")).values(all=Value(1)), [Count("pk"), Max("pk")]


def _rows(parts: Iterable[tuple[QuerySet[Any], list[Any]]]) -> list[str]:
    """Return each row as a text. The number of the part keeps rows of one apart from those of another."""
    first, *others = (
        rows.order_by().annotate(part=Cast(JSONArray(Value(at), *columns), TextField())).values_list("part", flat=True)
        for at, (rows, columns) in enumerate(parts)
    )
    return sorted(first.union(*others, all=True))


def version(internal_id: str, wanted: Wanted) -> str | None:
    """Return what changes whenever anything that the page shows does.

    None where that takes more: for a part of the queries.

    It is read before the page is: what changes meanwhile is a change for the next poll.
    """
    if wanted.filters.parts or not internal_id.isalnum():
        return None
    newest = Query.objects.filter(batch=internal_id).order_by("-position")
    columns = "batch__created_at", "batch__status", "batch__destination_chain_id", "position"
    about = newest.values_list(*columns, Exists(heartbeats.running())).first()
    if about is None:
        return None
    created_at, status, destination, last, has_worker = about
    # Beyond the last query, the page shows that one.
    first: int = min(last, (first_of_page(wanted.first, last + 1) if wanted.only is None else wanted.only) - 1)
    rows = _rows(_parts(internal_id, destination, first, first if wanted.only is not None else first + ROWS_SIZE - 1))
    text = f"{_poll_seconds(status, created_at)} {has_worker} {_configuration()} {rows}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _poll_seconds(status: str, created_at: datetime) -> int | None:
    """Return how often an open batch is polled.

    A closed one polls slowly or not at all, by what the statement reads.
    """
    return poll_interval.poll_seconds(timezone.now() - created_at) if status in OPEN_STATUSES else None


_known: tuple[Chains, str] | None = None


def _configuration() -> str:
    """Return a hash of the chains, which give the page names and links."""
    global _known
    chains = get_chains()
    if _known is None or _known[0] is not chains:
        _known = (chains, hashlib.sha256(repr(chains).encode()).hexdigest())
    return _known[1]
