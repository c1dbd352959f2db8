"""What the page of a batch shows. The number of statements that read it does not grow with the batch.

The page is one frozen value: it has changed if its value has. What changes by itself is no part of the value. The
templates and the browser count how long something has lasted from the times that are.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from config.chain_names import ChainName, chain_name
from explorer.batch import (
    batch_progress,
    query_paging,
    timelines,
    transaction_display,
    trusted_sources,
)
from explorer.batch.batch_progress import Progress
from explorer.batch.polling import poll_seconds
from explorer.batch.query_paging import MAX_CARDS, QueryPage, Wanted
from explorer.batch.timelines import Timeline
from explorer.batch.transaction_display import ShownTransaction
from explorer.batch.trusted_sources import TrustedSource
from explorer.formatting.sentences import first_and_rest, in_words
from explorer.lists import headlines
from explorer.lists.headlines import Headline
from proving import batch_waits
from proving.batch_waits import Counts
from proving.registry import deployments
from queries.models import OPEN_STATUSES, Batch, BatchStatus, Sender
from queries.rejection_codes import RejectionCode

# A screen reader hears of each completed step up to this number, else of each tenth of them.
_MOST_STEPS_ANNOUNCED = 4 * MAX_CARDS


@dataclass(frozen=True)
class Header:
    """The batch's request and status."""

    id: str
    status: str
    created_at: datetime
    finished_at: datetime | None
    deadline_at: datetime | None  # while open
    destination: ChainName
    sender: str  # as `queries.models.Sender`
    why_no_proofs: str  # a sentence, where its proof bundles were removed
    why_no_steps: str  # the same of the details of its steps

    @property
    def took(self) -> timedelta | None:
        return self.finished_at - self.created_at if self.finished_at else None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATUSES


@dataclass(frozen=True)
class Costs:
    fee: int  # wei
    fee_is_estimate: bool  # it is as much as is estimated, and not known before
    estimated_gas: int | None
    estimated_wei: int | None
    gas_used: int
    spent: int  # wei


@dataclass(frozen=True)
class Rejection:
    code: str
    reason: str  # one sentence, the title of the page
    rest: str  # what else was said, sentences
    retryable: bool

    @property
    def was_cancelled(self) -> bool:
        return self.code in {RejectionCode.CANCELLED_BY_OPERATOR, RejectionCode.CANCELLED_BY_USER}


@dataclass(frozen=True)
class BatchPage:
    headline: Headline
    header: Header
    costs: Costs
    progress: Progress
    rejection: Rejection | None
    sources: tuple[TrustedSource, ...]
    source_chains: tuple[ChainName, ...]
    queries: QueryPage
    transactions: tuple[ShownTransaction, ...]
    transaction_count: int  # of which these are the newest
    was_rejected_at_once: bool  # before anything was begun: nothing took time, and nothing was spent
    timeline: Timeline | None  # None: the page is about one query of several, or the batch was rejected at once
    poll_seconds: int | None  # None: nothing can change any more

    @property
    def has_one_source(self) -> bool:
        return len(self.source_chains) == 1

    @property
    def offers_bundle(self) -> bool:
        """Return whether the proofs of all its queries are there, as one file."""
        return self.header.status == BatchStatus.DONE and not self.header.why_no_proofs

    @property
    def shares_transactions(self) -> bool:
        """Return whether its transactions took more gas than is its own: they do something for other batches too."""
        in_all = sum(tx.gas_used or 0 for tx in self.transactions if not tx.is_unconfirmed)
        return self.header.sender == Sender.OPERATOR and in_all > self.costs.gas_used

    @property
    def has_unconfirmed_cost(self) -> bool:
        """Return whether a transaction is mined whose cost doesn't count as spent yet."""
        return self.header.sender == Sender.OPERATOR and any(tx.is_unconfirmed for tx in self.transactions)

    @property
    def reads_itself(self) -> bool:
        """Return whether the facts are read on the chain that they are about."""
        return [chain.id for chain in self.source_chains] == [self.header.destination.id]

    @property
    def version(self) -> str:
        """Return a hash of everything that the page shows."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:32]

    @property
    def announcement(self) -> str:
        """Say what a screen reader is told when it changes: how the batch stands, in a sentence."""
        if self.rejection:
            return f"The batch is REJECTED. {self.rejection.reason}"
        completed, total = self.progress.steps_completed, self.progress.steps_total
        if total <= _MOST_STEPS_ANNOUNCED:
            far = f"{completed} of {total} steps completed."
        else:
            # Otherwise each poll of a large batch would announce something.
            far = f"{10 * completed // total * 10} % of the steps completed."
        if self.progress.went_back_at and self.header.is_open:
            return f"The batch was rolled back. {self.progress.went_back_because} {far}"
        return f"The batch is {self.header.status}: {far}"


def read(internal_id: str, wanted: Wanted | None = None) -> BatchPage | None:
    """Return the page of a batch. None if there is no such batch, or no query with the number `wanted.only` in it."""
    wanted = wanted or Wanted()
    batch = find(internal_id)
    if batch is None:
        return None
    counts = batch_waits.count(batch)
    if wanted.only is not None and not 1 <= wanted.only <= counts.queries:
        return None
    return of(batch, counts, wanted)


def of(batch: Batch, counts: Counts, wanted: Wanted) -> BatchPage:
    """Return the page of a batch."""
    registries = deployments.all_of(batch.destination_chain_id, counts.source_chains)
    held_by = deployments.of_batch(batch, registries)
    destination = chain_name(batch.destination_chain_id)
    seconds = poll_seconds(batch)
    can_change = seconds is not None
    has_facts = batch.status != BatchStatus.REJECTED and bool(counts.at_step.get(None))
    progress = batch_progress.read(batch, destination, counts, held_by.values(), can_change=can_change)
    queries = query_paging.read(batch, wanted, counts.queries, destination, held_by)
    sent, sent_count = _transactions(batch, destination, queries)
    asked = queries.cards[0].asked if queries.total == 1 and queries.cards else ""
    sent = tuple(transaction_display.with_parts(batch, sent, asked))
    chains = tuple(chain_name(chain_id) for chain_id in counts.source_chains)
    was_rejected_at_once = batch.status == BatchStatus.REJECTED and batch.estimated_gas is None and not sent_count
    return BatchPage(
        headline=_headline(queries, counts, chains, destination),
        header=_header(batch, destination),
        costs=Costs(
            batch.fee,
            batch.fee_is_estimate,
            batch.estimated_gas,
            batch.estimated_wei,
            batch.gas_used,
            batch.spent,
        ),
        progress=progress,
        rejection=_rejection(batch, destination),
        sources=tuple(
            trusted_sources.trusted_sources(batch, counts.source_chains, registries, held_by, has_facts=has_facts)
        ),
        source_chains=chains,
        queries=queries,
        transactions=sent,
        transaction_count=sent_count,
        was_rejected_at_once=was_rejected_at_once,
        timeline=None
        if wanted.only or wanted.always_whole or was_rejected_at_once
        else timelines.of_batch(
            batch,
            counts.queries,
            queries.cards,
            sent,
            progress.waits,
            transaction_count=sent_count,
            has_worker=not progress.no_worker,
        ),
        poll_seconds=seconds,
    )


def find(internal_id: str) -> Batch | None:
    """Return the batch of this id, without the request that it was made from."""
    # An identifier consists of letters and digits. Some other texts are none that a database can be asked for.
    if not internal_id.isalnum():
        return None
    return Batch.objects.defer("request").filter(pk=internal_id).first()


def _header(batch: Batch, destination: ChainName) -> Header:
    return Header(
        id=batch.pk,
        status=batch.status,
        created_at=batch.created_at,
        finished_at=batch.finished_at,
        deadline_at=batch.deadline_at if batch.status in OPEN_STATUSES else None,
        destination=destination,
        sender=batch.sender,
        why_no_proofs=batch.why_no_proofs,
        why_no_steps=batch.why_no_steps,
    )


def _headline(queries: QueryPage, counts: Counts, sources: tuple[ChainName, ...], destination: ChainName) -> Headline:
    if len(queries.cards) == 1 and (queries.only or queries.total == 1):
        return headlines.of_query(queries.cards[0])
    return headlines.of_batch(queries.total, counts, sources, destination)


def _transactions(batch: Batch, destination: ChainName, queries: QueryPage) -> tuple[tuple[ShownTransaction, ...], int]:
    """Return the transactions of the queries that are shown whole, else the batch's newest; and how many there are."""
    if not queries.cards:
        found, count = transaction_display.of_batch(batch, destination, transaction_display.head(destination.id))
        return tuple(found), count
    of_paths = [tx for card in queries.cards if card.path for tx in card.path.transactions]
    of_steps = [step.transaction for card in queries.cards for step in card.steps if step.transaction]
    once = {tx.hash: tx for tx in (*of_paths, *of_steps)}
    found = sorted(once.values(), key=lambda tx: -1 if tx.nonce is None else tx.nonce, reverse=True)
    return tuple(found), len(found)


def _rejection(batch: Batch, destination: ChainName) -> Rejection | None:
    if batch.status != BatchStatus.REJECTED:
        return None
    first, rest = first_and_rest(in_words(batch.rejection_reason, destination.currency))
    return Rejection(batch.rejection_code, first, rest, batch.rejection_retryable)
