"""Queries for a batch's page: as lines, or with all their steps if there are few queries.

The number of SQL statements doesn't grow with the number of queries.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.core.paginator import Page, Paginator

from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from explorer.batch import fact_display, log_display, timeline
from explorer.batch.code_snippets import reading
from explorer.batch.fact_display import SLOTS_PAGE, Value
from explorer.batch.timeline import Bar
from explorer.formatting.utc_times import utc
from proving import facts
from proving.facts import Fact, HeaderFact, LogFact, SlotFact
from proving.models import FactsRegistry, Transaction
from proving.reading import query_values
from proving.reading.query_values import QueryValues, RequestedEntry
from queries.models import Batch, BatchStatus, Block, PathUnit, Query, QueryKind, Step, StepKind, StepStatus
from queries.waits import WaitReason

# A line shows this number of facts. It names this number of properties, and only counts them if there are more.
_MOST_IN_ROW, _MOST_NAMED = 3, 4
# Estimates: units of a path in one transaction, and blocks until the next transaction can build on it.
_PER_TRANSACTION: Mapping[str, int] = {PathUnit.HOPS: 20}
_BLOCKS_PER_TRANSACTION = 3


@dataclass(frozen=True)
class ShownStep:
    kind: str
    status: str  # a `StepStatus`, STOPPED (open when the batch was rejected) or empty (not begun)
    bar: Bar | None = None  # None: the times of the step are unknown
    transaction_hash: str = ""
    error: WaitReason | None = None
    next_try_at: datetime | None = None  # while the step fails
    went_back_at: datetime | None = None
    went_back_because: str = ""
    was_held: bool = False
    """The registry held the facts already, and nothing was ever sent for the query."""
    is_of_payer: bool = False
    """The facts came by a transaction that this service didn't send, or were held."""


@dataclass(frozen=True)
class ShownQuery:
    query: Query
    source: ChainName
    values: tuple[Value, ...]  # empty until all steps are completed (docs/specification.md, "Rules that hold")
    logs: Sequence[str]  # as in `fact_display.log_names`
    slots: "Page[Any]"  # a page of the slots, or of the logs
    steps: tuple[ShownStep, ...]  # empty: only a line is shown
    is_held_up: bool  # the open step goes on only after somebody acts
    seconds_left: int | None  # estimate for the path to the query's block
    entry: RequestedEntry | None = None  # in a line, as the request names it

    @property
    def number(self) -> int:
        return self.query.number

    @property
    def time(self) -> str:
        """Return the time that selects the block, in UTC. Empty if there is none, or if its year is too large."""
        return utc(self.query.timestamp) if self.query.timestamp is not None else ""

    @property
    def block(self) -> Block | None:
        return self.query.block

    @property
    def names_fields(self) -> bool:
        """Return whether a line names the properties instead of counting them."""
        return self.query.kind != QueryKind.HEADER or len(self.query.property_names) <= _MOST_NAMED

    @property
    def block_key(self) -> str:
        """Return a text that is equal for queries whose requests name the same block in the same way."""
        query, number = self.query, self.block and self.block.number
        return f"{self.source.id} {query.block_tag} {query.block_of} {query.timestamp} {number}"

    @property
    def is_completed(self) -> bool:
        return self.query.step is None

    @property
    def has_failed(self) -> bool:
        return any(step.error for step in self.steps if step.status in {StepStatus.IN_PROGRESS, "STOPPED"})

    @property
    def first_values(self) -> tuple[Value, ...]:
        return self.values[:_MOST_IN_ROW]

    @property
    def more_values(self) -> int:
        """Return the number of facts that a line leaves out."""
        return len(facts.of(self.query)) - len(self.first_values) if self.values else 0

    @property
    def single_values(self) -> list[Value]:
        """Return the values that are shown one by one, each with code that reads it."""
        return [value for value in self.values if not self._is_listed(value)]

    @property
    def listed_values(self) -> list[Value]:
        """Return the values for a list: slots, logs, or properties of the header. One of them is shown with code."""
        return [value for value in self.values if self._is_listed(value)]

    def _is_listed(self, value: Value) -> bool:
        is_of_header = self.query.kind == QueryKind.HEADER and value.number is not None
        return bool(value.slot) or value.is_log or is_of_header


def read(
    batch: Batch,
    queries: Sequence[Query],
    held_by: Mapping[int, FactsRegistry],
    *,
    steps: Mapping[int, Sequence[Step]] | None,
    slots_page: str | int = 1,
    event: str = "",
) -> Iterable[ShownQuery]:
    """Yield the queries for the page. `queries` have their blocks.

    `steps` has their steps by query id; None: only lines are shown. `held_by` has the registries of the facts by source
    chain (`deployments.of_batch`). Logs are decoded by `event`, an event's signature.
    """
    is_whole = steps is not None
    slots = {query.pk: Paginator(fact_display.listed(query), SLOTS_PAGE).get_page(slots_page) for query in queries}
    # Only the page of a single query has pages of slots.
    first = max((page.start_index() for page in slots.values()), default=0) or 1
    most = SLOTS_PAGE if is_whole else _MOST_IN_ROW
    told = {query: fact_display.shown(query, first, most) for query in queries if facts.may_be_told(batch, query)}
    values = query_values.read(told)
    sources = {number: chain_name(number) for number in {query.source_chain_id for query in queries}}
    # A transaction that reverted or was cancelled has cost gas, although its hash may be on no step or an earlier one.
    sent = Transaction.queries.through.objects.filter(query__in=[query.pk for query in queries])
    sent_for = set(sent.values_list("query", flat=True)) if is_whole else set()
    for query in queries:
        source, registry = sources[query.source_chain_id], held_by.get(query.source_chain_id)
        known = values.get(query.pk) or QueryValues.untold(query)
        if not is_whole:
            # A line names the transaction as the request does.
            known = replace(known, entry=QueryValues.untold(query).entry)
        yield ShownQuery(
            query=query,
            source=source,
            values=tuple(_values(query, known, source, registry, event, with_code=is_whole)) if registry else (),
            logs=fact_display.log_names(query),
            slots=slots[query.pk],
            steps=tuple(_steps(batch, query, steps[query.pk], is_sent_for=query.pk in sent_for))
            if steps is not None
            else (),
            is_held_up=bool(query.step and query.block and query.block.needs_action),
            seconds_left=_seconds_left(query.block, batch) if query.block and query.step else None,
            entry=known.entry,
        )


def _seconds_left(block: Block, batch: Batch) -> int | None:
    destination = chain_name(batch.destination_chain_id)
    if not block.path_left or not batch.is_open or not destination.is_configured:
        return None
    transactions = -(-block.path_left // _PER_TRANSACTION.get(block.path_unit, 1))
    return round(transactions * _BLOCKS_PER_TRANSACTION * get_chains().chain(destination.id).block_seconds)


def _steps(batch: Batch, query: Query, begun: Iterable[Step], *, is_sent_for: bool) -> Iterable[ShownStep]:
    steps: dict[str, Step] = {step.kind: step for step in begun}
    order, block = query.step_kinds, query.block
    for kind in order:
        is_open = kind == query.step
        stopped = is_open and batch.status == BatchStatus.REJECTED
        step = steps.get(kind)
        if step is None:
            # The step's row was pruned. Its order tells whether it was completed.
            is_before = query.step is None or order.index(kind) < order.index(StepKind(query.step))
            yield ShownStep(kind, StepStatus.COMPLETED.value if is_before else "STOPPED" if stopped else "")
            continue
        is_done = kind == order[-1] and step.status == StepStatus.COMPLETED
        is_unexplained = is_done and not step.transaction_hash
        fails = is_open and not stopped and block is not None and block.failing_since is not None
        yield ShownStep(
            kind=kind,
            status="STOPPED" if stopped else step.status,
            bar=timeline.bar(batch, step.started_at, step.completed_at),
            transaction_hash=step.transaction_hash,
            error=step.error,
            next_try_at=block.due_at if block and fails else None,
            went_back_at=step.went_back_at,
            went_back_because=step.went_back_because,
            was_held=is_unexplained and not (is_sent_for or batch.is_self_funded),
            is_of_payer=is_unexplained and batch.is_self_funded,
        )


def _values(
    query: Query, known: QueryValues, source: ChainName, registry: FactsRegistry, event: str, *, with_code: bool
) -> Iterable[Value]:
    listed: set[type[Fact]] = set()
    told = {fact.log: known.entry.log(fact.log) for fact in known.words if known.entry and isinstance(fact, LogFact)}
    logs = log_display.shown({index: log for index, log in told.items() if log}, event)
    for fact, word in known.words.items():
        # Only the first value of a list gets code. Code for thousands of slots would take megabytes.
        is_first = query.block is not None and type(fact) not in listed
        if isinstance(fact, SlotFact | LogFact | HeaderFact):
            listed.add(type(fact))
        snippets = reading(registry, query.block.number, fact) if query.block and with_code and is_first else ()
        log = logs.get(fact.log) if isinstance(fact, LogFact) else None
        yield fact_display.value(fact, word, source.currency, registry, snippets=snippets, log=log)
