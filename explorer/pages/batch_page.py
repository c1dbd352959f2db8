"""What the page of a batch shows, read in a number of statements that does not grow with the batch.

All of it is in one frozen value, so that whether a page changed is whether its value did. What changes by itself, such
as how long something has lasted, is not part of it: the templates and the browser count from the times that are.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

from django.db.models import Count, Exists, OuterRef, QuerySet
from django.utils import timezone

from explorer.pages import query_cards, rejection_advice, trusted_sources
from explorer.pages.chain_names import ChainName, chain_name
from explorer.pages.query_cards import HEADER_STEPS, STEP_MEANINGS, QueryRow, ShownQuery
from explorer.pages.rejection_advice import Advice
from explorer.pages.trusted_sources import TrustedSource
from proving.models import (
    LIVE_STATES,
    WATCHED_STATES,
    ChainHead,
    FactsRegistry,
    Signer,
    Transaction,
    TransactionState,
)
from proving.worker import worker
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Block, Query, StepKind, Wait

# A batch of so many queries shows all of them whole; a larger one a list of lines.
MAX_CARDS = 10
PAGE_SIZE = 50
# Up to so many steps each one that completes is announced, of more each tenth.
_MOST_STEPS_ANNOUNCED = 4 * MAX_CARDS

# How long a page waits before it asks again, in seconds, by the age of an open batch.
_POLL = ((timedelta(minutes=2), 2), (timedelta(minutes=10), 5))
_OLD_SECONDS = 15
_NOT_FINAL_SECONDS = 10  # while only a reorg can change it

_MEANINGS = {
    BatchStatus.RECEIVED: "Stored. It is checked against the chains next.",
    BatchStatus.ACCEPTED: "Checked against the chains. Headers and proofs are fetched next.",
    BatchStatus.IN_PROGRESS: "It is being proven.",
    BatchStatus.DONE: "Every fact was read back from the facts registry and is as proven.",
    BatchStatus.REJECTED: "It will not be proven.",
}


@dataclass(frozen=True)
class StepCount:
    """How many of the batch's queries have completed a step."""

    kind: str
    meaning: str
    completed: int
    total: int  # how many have this step


@dataclass(frozen=True)
class ShownWait:
    """As `queries.models.Wait`, with the chains that it is about."""

    sentence: str
    failing_since: datetime | None
    next_try_at: datetime | None
    sources: tuple[ChainName, ...]  # only where the batch has several, else the reader knows


@dataclass(frozen=True)
class BatchPage:
    id: str
    status: str
    meaning: str
    created_at: datetime
    finished_at: datetime | None
    deadline_at: datetime | None  # while open
    went_back_at: datetime | None
    went_back_because: str
    destination: ChainName
    fee: int  # wei
    estimated_gas: int | None
    estimated_wei: int | None
    gas_used: int
    spent: int  # wei
    rejection_code: str
    rejection_reason: str
    rejection_retryable: bool
    advice: Advice | None  # when rejected
    waits: tuple[ShownWait, ...]
    no_worker: bool
    notices: tuple[str, ...]  # of the destination's signers and of the facts registries
    sources: tuple[TrustedSource, ...]
    step_counts: tuple[StepCount, ...]
    total: int
    account: str  # the one that was looked for (EIP-55); empty: all queries are shown
    matching: int  # how many queries are about it, else all
    first_matching: int  # which of these the first query shown is, from 1
    first: int | None  # number of the first query shown, from 1; None: there is none
    previous: int | None  # what `first` is on the page before, if there is one
    following: int | None  # and on the next
    only: int | None  # number of the one query that the page is about
    queries: tuple[ShownQuery, ...]
    rows: tuple[QueryRow, ...]  # instead of `queries` where there are many
    poll_seconds: int | None  # None: nothing can change any more

    @property
    def version(self) -> str:
        """Changes whenever anything that the page shows does."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:32]

    @property
    def steps_completed(self) -> int:
        return sum(count.completed for count in self.step_counts)

    @property
    def steps_total(self) -> int:
        return sum(count.total for count in self.step_counts)

    @property
    def took(self) -> timedelta | None:
        return self.finished_at - self.created_at if self.finished_at else None

    @property
    def last(self) -> int | None:
        shown = self.queries or self.rows
        return shown[-1].number if shown else None

    @property
    def last_matching(self) -> int:
        return self.first_matching + len(self.queries or self.rows) - 1

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES

    @property
    def announcement(self) -> str:
        """What a screen reader is told when it changes: where the batch stands, in a sentence."""
        if self.status == BatchStatus.REJECTED:
            return f"The batch is REJECTED. {self.rejection_reason}"
        if self.steps_total <= _MOST_STEPS_ANNOUNCED:
            far = f"{self.steps_completed} of {self.steps_total} steps completed."
        else:
            # A large batch would otherwise be heard of at every poll.
            far = f"{10 * self.steps_completed // self.steps_total * 10} % of the steps completed."
        if self.went_back_at and self.is_open:
            return f"The batch went back. {self.went_back_because} {far}"
        return f"The batch is {self.status}: {far}"


def read(
    internal_id: str,
    *,
    first: str = "",
    account: str = "",
    only: int | None = None,
    slots: str = "",
    always_whole: bool = False,
) -> BatchPage | None:
    """The page of a batch, or None if there is no such batch, or no query with the number `only` in it.

    `first` is the number of the first query to show; one that doesn't exist becomes the nearest. `account` (EIP-55)
    leaves the others out before they are paged. `slots` is the number of the first slot to show of `only`.
    `always_whole` has no query as a line only, and all slots of each, however many there are.
    """
    batch = find(internal_id)
    if batch is None:
        return None
    at_step = dict(batch.queries.order_by().values_list("step").annotate(count=Count("pk")))
    headers_at_step = dict(batch.queries.filter(address="").order_by().values_list("step").annotate(count=Count("pk")))
    source_chains = sorted(batch.queries.order_by().values_list("source_chain_id", flat=True).distinct())
    registries = trusted_sources.registries(batch.destination_chain_id, source_chains)
    held_by = trusted_sources.holding(batch, registries)
    total = sum(at_step.values())
    if only is not None and not 1 <= only <= total:
        return None
    whole = always_whole or only is not None or total <= MAX_CARDS
    queries = batch.queries.order_by("position").select_related("block")
    matching, first_matching = total, 1
    if account:
        positions = list(queries.filter(address=account).values_list("position", flat=True))
        at = max(0, min(bisect_left(positions, first_of_page(first, total) - 1), len(positions) - 1))
        shown = queries.filter(position__in=positions[at : at + PAGE_SIZE])
        previous = positions[max(0, at - PAGE_SIZE)] + 1 if at else None
        following = positions[at + PAGE_SIZE] + 1 if at + PAGE_SIZE < len(positions) else None
        matching, first_matching = len(positions), at + 1
    elif only is not None:
        shown = queries.filter(position=only - 1)
        previous, following = (only - 1 if only > 1 else None), (only + 1 if only < total else None)
    else:
        start = first_of_page(first, total)
        shown = queries.filter(position__gte=start - 1, position__lt=start - 1 + PAGE_SIZE)
        previous = max(1, start - PAGE_SIZE) if start > 1 else None
        following = start + PAGE_SIZE if start + PAGE_SIZE <= total else None
    shown_queries = list(shown.prefetch_related("steps") if whole else shown.defer("block__header_rlp"))
    first_slot = None if always_whole else first_of_page(slots, len(shown_queries[0].slots)) if only is not None else 1
    destination = chain_name(batch.destination_chain_id)
    is_open = batch.status in OPEN_STATUSES
    waits = _waits(batch, destination, at_step) if is_open else ()
    cards = query_cards.cards(batch, shown_queries, destination, held_by, first_slot=first_slot) if whole else ()
    poll_seconds = _poll_seconds(batch)
    rejected = batch.status == BatchStatus.REJECTED
    return BatchPage(
        id=batch.pk,
        status=batch.status,
        meaning=_meaning(batch, final=poll_seconds is None),
        created_at=batch.created_at,
        finished_at=batch.finished_at,
        deadline_at=batch.deadline_at if is_open else None,
        went_back_at=batch.went_back_at,
        went_back_because=batch.went_back_because,
        destination=destination,
        fee=batch.fee,
        estimated_gas=batch.estimated_gas,
        estimated_wei=batch.estimated_wei,
        gas_used=batch.gas_used,
        spent=batch.spent,
        rejection_code=batch.rejection_code,
        rejection_reason=batch.rejection_reason,
        rejection_retryable=batch.rejection_retryable,
        advice=rejection_advice.advice(batch.rejection_code) if rejected else None,
        waits=tuple(_shown_waits(waits, several=len(source_chains) > 1)),
        # A page that can't change any more would show these for ever.
        no_worker=poll_seconds is not None and not worker.is_running(),
        notices=_notices(destination.id, held_by.values()) if poll_seconds is not None else (),
        sources=tuple(trusted_sources.trusted_sources(batch, source_chains, registries, held_by)),
        step_counts=tuple(_step_counts(at_step, headers_at_step)),
        total=total,
        account=account,
        matching=matching,
        first_matching=first_matching,
        first=shown_queries[0].position + 1 if shown_queries else None,
        previous=previous,
        following=following,
        only=only,
        queries=tuple(cards),
        rows=() if whole else tuple(query_cards.rows(shown_queries)),
        poll_seconds=poll_seconds,
    )


def find(internal_id: str) -> Batch | None:
    """The batch of this id, without the request that it was made from."""
    if not internal_id.isalnum():  # PostgreSQL takes no NUL in a text.
        return None
    return Batch.objects.defer("request").filter(pk=internal_id).first()


def first_of_page(first: str, total: int) -> int:
    """The number of the first query of a page. A query keeps its position, so a page stays the same page for ever."""
    # No number has more digits than this; converting thousands of them would take its time.
    number = int(first) if first.isascii() and first.isdigit() and len(first) < 10 else 1  # noqa: PLR2004 (as said)
    return max(1, min(number, total))


# --- Whether, and how, it goes on -------------------------------------------------------------------------------------


def _poll_seconds(batch: Batch) -> int | None:
    if batch.status in OPEN_STATUSES:
        age = timezone.now() - batch.created_at
        return next((seconds for younger, seconds in _POLL if age < younger), _OLD_SECONDS)
    return _NOT_FINAL_SECONDS if _can_change(batch) else None


def _can_change(batch: Batch) -> bool:
    """Whether a closed batch may still change: a reorg takes DONE back, a transaction under way adds its cost."""
    if batch.status == BatchStatus.DONE:
        here = Query.objects.filter(batch=batch.pk, block=OuterRef("pk"))
        if Block.objects.filter(Exists(here), due_at__isnull=False).exists():
            return True
    return _transactions(batch).filter(state__in=WATCHED_STATES).exists()


def _transactions(batch: Batch) -> "QuerySet[Transaction]":
    """The batch's transactions, looked for among its destination's: their number bounds the work, not the batch's."""
    links = Transaction.queries.through.objects.filter(transaction=OuterRef("pk"), query__batch=batch.pk)
    return Transaction.objects.filter(Exists(links), signer__chain_id=batch.destination_chain_id)


def _meaning(batch: Batch, *, final: bool) -> str:
    meaning = _MEANINGS[BatchStatus(batch.status)]
    if batch.status == BatchStatus.DONE and not final:
        meaning += " The block that holds them is not final yet: if the chain drops it, the batch goes back."
    return meaning


def _waits(batch: Batch, destination: ChainName, at_step: Mapping[str | None, int]) -> Iterable[Wait]:
    """What the batch waits for. What went wrong comes from the worker; what is only a matter of time, from its step."""
    if batch.status == BatchStatus.RECEIVED:
        return batch.waits() or [Wait("Waiting for a worker to check it against the chains.")]
    said = batch.waits()
    return said or [Wait(_next(batch, destination, at_step))]


def _shown_waits(waits: Iterable[Wait], *, several: bool) -> Iterable[ShownWait]:
    """`several`: the batch has more than one source chain."""
    for wait in waits:
        about = [chain_name(chain_id) for chain_id in wait.source_chain_ids] if several else []
        yield ShownWait(wait.sentence, wait.failing_since, wait.next_try_at, tuple(about))


def _next(batch: Batch, destination: ChainName, at_step: Mapping[str | None, int]) -> str:
    where = f"{destination.name} ({destination.id})"
    if at_step.get(StepKind.INITIAL_STATE):
        return "Waiting for a node of the source chain to send block headers and proofs."
    counts = dict(
        _transactions(batch).filter(state__in=LIVE_STATES).order_by().values_list("state").annotate(count=Count("pk"))
    )
    if pending := counts.get(TransactionState.PENDING):
        return f"Waiting for a block of {where} that includes {_so_many(pending)}."
    head = ChainHead.objects.filter(pk=destination.id).first()
    if mined := counts.get(TransactionState.MINED):
        at = f" The newest block is {head.number}, the newest final one {head.final}." if head else ""
        return f"Waiting for confirmations of {_so_many(mined)} on {where}.{at}"
    return f"Waiting for a worker to see what {where} knows already, and to send the transactions that add the rest."


def _so_many(transactions: int) -> str:
    return "the transaction" if transactions == 1 else f"{transactions} transactions"


def _notices(chain_id: int, registries: Iterable[FactsRegistry]) -> tuple[str, ...]:
    signers = Signer.objects.filter(chain_id=chain_id).exclude(notice="")
    of_signers = signers.order_by("pk").values_list("notice", flat=True)
    return (*of_signers, *(row.notice for row in registries if row.notice))


def _step_counts(at_step: Mapping[str | None, int], headers_at_step: Mapping[str | None, int]) -> Iterable[StepCount]:
    """Queries, and those of them that are about a header, by their open step; None: all steps are completed."""
    open_or_before = accumulate(at_step.get(kind, 0) for kind in StepKind)
    total = sum(at_step.values())
    headers = sum(headers_at_step.values())
    for kind, not_past in zip(StepKind, open_or_before, strict=True):
        if kind in HEADER_STEPS:
            yield StepCount(kind, STEP_MEANINGS[kind], total - not_past, total)
        elif total > headers:
            completed = total - not_past - headers_at_step.get(None, 0)
            yield StepCount(kind, STEP_MEANINGS[kind], completed, total - headers)
