"""The data of a batch's page. The number of SQL statements that read it doesn't grow with the batch.

Templates and the browser compute durations from the times in the data.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import accumulate
from urllib.parse import urlencode

from django.core.paginator import Page
from django.utils import timezone

from config.chain_names import ChainName, chain_name
from explorer.batch import log_display, query_cards, query_paging, timeline, transaction_display, trusted_sources
from explorer.batch.query_cards import ShownQuery
from explorer.batch.query_paging import MAX_CARDS, QuerySelection
from explorer.batch.timeline import Bar
from explorer.batch.transaction_display import TransactionDisplay
from explorer.batch.trusted_sources import TrustedSource
from explorer.formatting.wait_words import in_words
from explorer.lists import headlines
from explorer.lists.headlines import Headline
from proving.admission import admit
from proving.models import WATCHED_STATES, FactsRegistry, Signer, Stop, TransactionState, WorkerHeartbeat
from proving.reading import batch_waits
from proving.reading.batch_waits import ShownWait, StepCounts
from proving.registries import deployments
from queries import query_rows
from queries.models import HEADER_STEPS, Batch, BatchStatus, Query, QueryKind, StepKind
from queries.waits import Actor, WaitReason

# The age up to which a batch is young, and the seconds between polls: of a young batch, of an older one, and of a
# closed one that a reorg or a pending transaction can still change.
_YOUNG, _YOUNG_SECONDS, _OLD_SECONDS, _NOT_FINAL_SECONDS = timedelta(minutes=10), 1, 5, 10
# Up to this number of steps, each completed step is announced to screen readers. Otherwise each tenth of them is.
_MOST_STEPS_ANNOUNCED = 4 * MAX_CARDS


@dataclass(frozen=True)
class StepCount:
    """The number of the batch's queries that have completed a step, and the step's duration."""

    kind: StepKind
    status: str  # as in `ShownStep`
    completed: int
    total: int  # queries that have this step
    bar: Bar | None


@dataclass(frozen=True)
class ShownBatch:
    batch: Batch
    wanted: QuerySelection
    counts: StepCounts
    destination: ChainName
    source_chains: tuple[ChainName, ...]
    sources: tuple[TrustedSource, ...]
    shown: "Page[Query]"
    queries: tuple[ShownQuery, ...]
    transactions: tuple[TransactionDisplay, ...]
    transaction_count: int  # of all transactions; `transactions` has only the newest
    waits: tuple[ShownWait, ...]
    poll_seconds: int | None  # None: nothing can change any more
    no_worker: bool = False
    notices: tuple[str, ...] = ()
    """Sentences about what the operator must do at the destination or a connection. A page that can't change has none.
    """

    @property
    def is_about_one(self) -> bool:
        return self.wanted.only is not None or self.counts.queries == 1

    @property
    def place(self) -> str:
        """Return the beginning of the query string that selects the same filters and pages."""
        page = f"page={self.shown.number}&" if self.wanted.page else ""
        slots = f"slots={self.queries[0].slots.number}&" if self.wanted.slots and self.queries else ""
        steps = "steps=first&" if self.steps_first and not self.is_about_one else ""
        was = f"was={self.was}&" if self.batch.status == BatchStatus.DONE else ""
        return f"{self.wanted.filters.address}{page}{slots}{self.event}{steps}{was}"

    @property
    def was(self) -> str:
        """Return what a page that is DONE says about itself. It differs once the batch has gone back again."""
        back = self.batch.went_back_at
        return f"DONE-{back.timestamp()}" if back else "DONE"

    @property
    def steps_first(self) -> bool:
        """Return whether the steps of all queries are above the queries. Facts are there first, but no update jumps."""
        return self.batch.status != BatchStatus.DONE or self.wanted.steps_first

    @property
    def event(self) -> str:
        """Return the part of a query string that decodes logs by the same event."""
        return f"{urlencode({'event': self.wanted.event})}&" if self.wanted.event else ""

    @property
    def known_events(self) -> tuple[str, ...]:
        return log_display.KNOWN_EVENTS

    @property
    def cards(self) -> tuple[ShownQuery, ...]:
        """Return the queries that are shown with all their details."""
        return self.queries if self.is_about_one or self.counts.queries <= MAX_CARDS else ()

    @property
    def names_entries(self) -> bool:
        return any(shown.query.kind == QueryKind.ENTRY for shown in self.queries)

    @property
    def can_be_searched(self) -> bool:
        return self.counts.queries > MAX_CARDS or bool(self.wanted.filters.address)

    @cached_property
    def headline(self) -> Headline:
        if self.is_about_one and self.queries:
            shown, query = self.queries[0], self.queries[0].query
            count = len(query.property_names) + len(query.slots) + len(shown.logs)
            return headlines.of_query(query, count, shown.values)
        return headlines.of_batch(self.counts.queries, self.counts, self.source_chains, self.destination)

    @cached_property
    def turns(self) -> Mapping[str, Sequence[ShownWait]]:
        """Return the waits by the `Actor` who must act. Without a worker nothing goes on by itself or by others."""
        silent = {Actor.NOBODY, Actor.OTHERS} if self.no_worker else set[Actor]()
        return {actor.value: [wait for wait in self.waits if wait.actor == actor] for actor in {*Actor} - silent}

    @property
    def told(self) -> set[WaitReason]:
        """Return the reasons that stand above the steps, which needn't say them again."""
        return {wait.reason for actor, waits in self.turns.items() if actor != Actor.PAYER for wait in waits}

    @property
    def rejected_at(self) -> datetime | None:
        """Return when the batch is rejected if its wait lasts. Return None if that isn't before its deadline."""
        return None if self.no_worker else admit.rejected_at(self.batch)

    @property
    def has_one_source(self) -> bool:
        return len(self.source_chains) == 1

    @property
    def reads_itself(self) -> bool:
        """Return whether the batch's only source chain is its destination."""
        return [chain.id for chain in self.source_chains] == [self.destination.id]

    @property
    def is_being_finalised(self) -> bool:
        """Return whether the batch is DONE but a reorg can still drop its facts."""
        is_final = all(sent.row and sent.row.state == TransactionState.FINAL for sent in self.transactions)
        return self.batch.status == BatchStatus.DONE and self.poll_seconds is not None and not is_final

    @property
    def offers_bundle(self) -> bool:
        """Return whether the proofs of all the batch's queries can be downloaded as one file."""
        return self.batch.status == BatchStatus.DONE and not self.batch.why_no_proofs

    @property
    def rejection(self) -> str:
        """Return the reason of the rejection in sentences."""
        return in_words(self.batch.rejected_because or self.batch.rejection_reason)

    @property
    def shares_transactions(self) -> bool:
        """Return whether the transactions used more gas than the batch's share, so they also serve other batches."""
        in_all = sum(sent.row.gas_used for sent in self.transactions if sent.row and not sent.is_unconfirmed)
        return not self.batch.is_self_funded and in_all > self.batch.gas_used

    @property
    def has_unconfirmed_cost(self) -> bool:
        """Return whether the cost of a mined transaction doesn't count as spent yet."""
        return not self.batch.is_self_funded and any(sent.is_unconfirmed for sent in self.transactions)

    @property
    def has_timeline(self) -> bool:
        return self.counts.queries <= timeline.MOST_QUERIES and not self.batch.steps_pruned_at

    @cached_property
    def step_counts(self) -> list[StepCount]:
        bars = timeline.bars(self.batch) if self.has_timeline and not self.is_about_one else {}
        at_step, headers_at_step = self.counts.at_step, self.counts.headers_at_step
        open_or_before = accumulate(at_step.get(kind, 0) for kind in StepKind)
        total, headers = self.counts.queries, sum(headers_at_step.values())
        step_counts = []
        for kind, not_past in zip(StepKind, open_or_before, strict=True):
            # Queries about headers don't have the last step, so they don't count in it.
            without = 0 if kind in HEADER_STEPS else headers
            past = 0 if kind in HEADER_STEPS else headers_at_step.get(None, 0)
            if total > without:
                completed, of = total - not_past - past, total - without
                is_begun = completed or at_step.get(kind)
                open_status = "" if not is_begun else "IN_PROGRESS" if self.batch.is_open else "STOPPED"
                status = "COMPLETED" if completed == of else open_status
                step_counts.append(StepCount(kind, status, completed, of, bars.get(kind)))
        return step_counts

    @property
    def steps_completed(self) -> int:
        return sum(count.completed for count in self.step_counts)

    @property
    def steps_total(self) -> int:
        return sum(count.total for count in self.step_counts)

    @property
    def announced_percent(self) -> int | None:
        """Return the percentage of completed steps, rounded down to tens. None: each step is announced."""
        total = self.steps_total
        return None if total <= _MOST_STEPS_ANNOUNCED else 10 * self.steps_completed // total * 10


def read(internal_id: str, wanted: QuerySelection) -> ShownBatch | None:
    """Return a batch's page. None if no batch has the identifier, or it has no query with the number `wanted.only`."""
    batch = query_rows.find_batch(internal_id)
    if batch is None:
        return None
    counts = batch_waits.count(batch)
    if wanted.only is not None and not 1 <= wanted.only <= counts.queries:
        return None
    if counts.queries == 1:  # The only query is shown in full.
        wanted = QuerySelection(only=wanted.only, slots=wanted.slots, event=wanted.event)
    destination = chain_name(batch.destination_chain_id)
    registries = deployments.all_of(destination.id, counts.source_chains)
    held_by = deployments.of_batch(batch, registries)
    shown = query_paging.read(batch, wanted, counts.queries)
    rows = list(shown)
    is_whole = wanted.only is not None or counts.queries <= MAX_CARDS
    steps = query_rows.steps_of(rows) if is_whole else None
    queries = tuple(
        query_cards.read(batch, rows, held_by, steps=steps, slots_page=wanted.slots or 1, event=wanted.event)
    )
    sent = transaction_display.read(batch, destination, queries if is_whole else ())
    seconds, waits = _poll_seconds(batch), batch_waits.waits(batch, counts)
    return ShownBatch(
        batch=batch,
        wanted=wanted,
        counts=counts,
        destination=destination,
        source_chains=tuple(map(chain_name, counts.source_chains)),
        sources=tuple(trusted_sources.trusted_sources(batch, counts.source_chains, registries, held_by)),
        shown=shown,
        queries=queries,
        transactions=tuple(sent.shown),
        transaction_count=sent.count,
        waits=waits,
        poll_seconds=seconds,
        no_worker=seconds is not None and not WorkerHeartbeat.running().exists(),
        notices=tuple(_notices(batch, held_by, {wait.reason for wait in waits})) if seconds is not None else (),
    )


def _poll_seconds(batch: Batch) -> int | None:
    """Return the seconds between the page's polls. None: nothing can change any more, so it stops polling."""
    if batch.is_open:
        return _YOUNG_SECONDS if timezone.now() - batch.created_at < _YOUNG else _OLD_SECONDS
    # A reorg can reopen a batch that is DONE, and a pending transaction adds its cost.
    can_be_rolled_back = batch.status == BatchStatus.DONE and batch.queries.filter(block__due_at__isnull=False).exists()
    can_change = can_be_rolled_back or batch_waits.transactions(batch, WATCHED_STATES)
    return _NOT_FINAL_SECONDS if can_change else None


def _notices(batch: Batch, held_by: Mapping[int, FactsRegistry], waits: Collection[WaitReason]) -> Iterable[str]:
    """Yield sentences about tasks of the operator, without repetitions and without the batch's own waits."""
    chain_id = batch.destination_chain_id
    stops = Stop.objects.filter(chain_id=chain_id, source_chain_id__in=[0, *held_by], signer="")
    notices = [stop.wait for stop in stops]
    notices += [signer.wait for signer in Signer.hindered().filter(chain_id=chain_id) if signer.wait]
    notices += [risk for row in held_by.values() for risk in row.current_risks]
    return (in_words(notice) for notice in dict.fromkeys(notices) if notice not in waits)
