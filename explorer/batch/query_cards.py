"""What a page shows of each query: its steps, their transactions and, when all are completed, the facts.

The number of statements does not grow with the number of queries.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from pydantic import computed_field

from config.chain_names import ChainName, chain_name
from config.json_objects import PAGE_ONLY, JsonObject, Time
from explorer.batch import fact_display, path_parts, paths_to_blocks, transaction_display
from explorer.batch.code_snippets import reading
from explorer.batch.fact_display import SLOTS_PAGE, Value
from explorer.batch.path_parts import ShownPart
from explorer.batch.paths_to_blocks import ShownPath
from explorer.batch.transaction_display import ShownTransaction
from explorer.formatting.utc_times import utc
from proving import facts
from proving.facts import Fact, HeaderFact, SlotFact
from proving.models import FactsRegistry
from queries.models import OPEN_STATUSES, PROVABLE_STEPS, Batch, BatchStatus, Query, Step, StepKind, StepStatus

# A header is proven with its accumulation.
HEADER_STEPS = tuple(StepKind)[: list(StepKind).index(StepKind.ACCOUNT_ACCUMULATED)]


@dataclass(frozen=True)
class ShownStep(JsonObject):
    kind: str
    status: str  # of `StepStatus`, or STOPPED (open when its batch was rejected), or empty: not begun
    started_at: Time | None = None
    ended_at: Time | None = None  # completed, or stopped
    transaction: ShownTransaction | None = None
    waiting_for: str = ""  # a sentence, before the query is admitted
    last_error: str = ""
    next_try_at: Time | None = None  # while it fails
    went_back_at: Time | None = None
    went_back_because: str = ""

    @property
    def took(self) -> timedelta | None:
        return self.ended_at - self.started_at if self.started_at and self.ended_at else None

    @computed_field
    def seconds(self) -> float | None:
        return self.took.total_seconds() if self.took is not None else None

    @computed_field
    def transaction_hash(self) -> str:
        """Return that of `transaction`; empty where there is none."""
        return self.transaction.hash if self.transaction else ""

    @property
    def says_more(self) -> bool:
        """Return whether something went wrong, or is on the chain."""
        return bool(self.went_back_at or self.last_error or self.waiting_for or self.transaction)

    @property
    def last_error_matters(self) -> bool:
        """Tell whether the last error says more than why the step was rolled back."""
        return bool(self.last_error) and self.last_error != self.went_back_because


@dataclass(frozen=True)
class ShownQuery(JsonObject):
    number: int  # from 1, in the order of the request
    received_at: Time  # when its first step began for the first time
    address: str | None  # None: it is about the header
    name: str  # by which the request named the account, an ENS name; empty: by its address
    source: ChainName
    selector: str  # by which the request named the block
    timestamp: int | None  # unix seconds, where the block was named by a time
    block_number: int | None  # None: not found yet
    block_hash: str
    is_block_sought: bool  # whether it still may be found
    is_admitted: bool  # whether it was checked against its source chain
    is_waiting: Annotated[
        bool, PAGE_ONLY
    ]  # whether its open step waits, as a worker has said or for one, or for others
    fields: tuple[str, ...]
    slots: tuple[str, ...]  # one page
    slot_count: int
    first_slot: Annotated[int, PAGE_ONLY]  # number of the first of `slots`, from 1
    parts: tuple[ShownPart, ...]  # the two of a path over the source's parent chain; empty: it leads over none
    path: ShownPath | None  # the path by which the registry comes to trust the block; None: none is needed
    steps: tuple[ShownStep, ...]
    values: tuple[Value, ...]  # once all its steps are completed (docs/specification.md, "Rules that hold")

    @property
    def completed(self) -> int:
        return sum(step.status == StepStatus.COMPLETED for step in self.steps)

    @property
    def has_its_parent(self) -> bool:
        """Return whether what its path needs of the source's parent chain is proven, if it needs anything."""
        return not self.parts or self.parts[0].status == StepStatus.COMPLETED

    @property
    def asked(self) -> str:
        return asked(self.address, self.fields, self.slot_count)

    @property
    def is_completed(self) -> bool:
        return self.completed == len(self.steps)

    @property
    def is_one_fact(self) -> bool:
        return len(self.values) == 1

    @property
    def needs_a_look(self) -> bool:
        """Return whether its open step has failed."""
        return any(step.last_error for step in self.steps if step.status in {StepStatus.IN_PROGRESS, "STOPPED"})

    @property
    def time(self) -> str:
        """Return the time that names the block, in UTC; empty beyond the calendar's years."""
        return utc(self.timestamp) if self.timestamp is not None else ""

    @property
    def last_slot(self) -> int:
        return self.first_slot + len(self.slots) - 1

    @property
    def previous_slots(self) -> int | None:
        return max(1, self.first_slot - SLOTS_PAGE) if self.first_slot > 1 else None

    @property
    def following_slots(self) -> int | None:
        return self.last_slot + 1 if self.last_slot < self.slot_count else None

    @property
    def single_values(self) -> list[Value]:
        """Return the values that are shown one by one, each with its calls."""
        return [value for value in self.values if value not in self.listed_values]

    @property
    def listed_values(self) -> list[Value]:
        """Return the values of a list: slots, or properties of the header. There may be many, all read the same way."""
        return [value for value in self.values if value.slot or (self.address is None and value.number is not None)]


# Number of a query's facts in its line.
_MOST_IN_ROW = 3


@dataclass(frozen=True)
class QueryRow:
    """One line of a table of queries."""

    number: int
    address: str  # empty: it is about the header
    name: str
    asked: str
    source: ChainName
    tag: str  # where the block was named by one, as `latest`
    timestamp: int | None  # unix seconds, where the block was named by a time
    block_number: int | None  # None: not found yet
    completed: int  # of its steps
    steps: int
    step: str  # the open one, empty at the end
    path: str  # how far the path to its block is, a phrase, while the step is in progress
    is_admitted: bool
    values: tuple[Value, ...]  # the first of its facts, once all its steps are completed
    more: int  # how many further facts it has
    card: ShownQuery | None = field(default=None, repr=False)  # the whole query, where there are few

    @property
    def at(self) -> tuple[int, str, int | None, int | None]:
        """Return what is the same of queries at the same block that the request names alike."""
        return self.source.id, self.tag, self.timestamp, self.block_number

    @property
    def time(self) -> str:
        """Return the time that names the block, a phrase; empty where none does."""
        if self.timestamp is None:
            return ""
        said = utc(self.timestamp)
        return f"{said} UTC" if said else f"time {self.timestamp}"


# In a line, more properties than this are counted instead of named.
_MOST_NAMED = 4


def asked(address: str | None, fields: Sequence[str], slots: int) -> str:
    """Return what a query asks for, in words."""
    if not address:
        names = ", ".join(fields) if len(fields) <= _MOST_NAMED else f"{len(fields)} properties"
        return f"header, {names}"
    return ", ".join([*fields, *([f"{slots:,} slot{'' if slots == 1 else 's'}"] if slots else [])])


def _fields(query: Query) -> tuple[str, ...]:
    return tuple(field.name for field in (query.account_fields or query.header_fields))


def _kinds(query: Query) -> Sequence[StepKind]:
    """Return the steps that a query goes through: one for a header has fewer."""
    return tuple(StepKind) if query.address else HEADER_STEPS


def rows(
    batch: Batch, queries: Sequence[Query], whole: Mapping[int, ShownQuery], held_by: Mapping[int, FactsRegistry]
) -> Iterable[QueryRow]:
    """Yield the lines of the queries, which come with their blocks.

    `whole` are those of them that are shown whole, by their numbers.
    """
    done = [query for query in queries if facts.may_be_told(batch, query) and query.position + 1 not in whole]
    words = fact_display.proven(done, 1, _MOST_IN_ROW) if done else {}
    order = list(StepKind)
    sources: dict[int, ChainName] = {}
    for query in queries:
        source = query.source_chain_id
        if source not in sources:
            sources[source] = chain_name(source)
        steps, registry = len(_kinds(query)), held_by.get(source)
        card = whole.get(query.position + 1)
        values = list(card.values if card else ())
        if not values and registry:
            values = list(values_of(query, words.get(query.pk, {}), sources[source], registry.address, with_code=False))
        values = values[:_MOST_IN_ROW]
        yield QueryRow(
            number=query.position + 1,
            address=query.address,
            name=query.name,
            asked=asked(query.address, _fields(query), len(query.slots)),
            source=sources[source],
            tag=query.block_tag,
            timestamp=query.timestamp,
            block_number=query.block.number if query.block else None,
            completed=steps if query.step is None else order.index(StepKind(query.step)),
            steps=steps,
            step=query.step or "",
            path=paths_to_blocks.how_far(query.block)
            if query.block and query.step == StepKind.HEADER_ACCUMULATED
            else "",
            is_admitted=query.is_admitted,
            values=tuple(values),
            more=len(facts.of(query)) - len(values) if values else 0,
            card=card,
        )


def cards(
    batch: Batch,
    queries: Sequence[Query],
    steps: Mapping[int, Sequence[Step]],
    destination: ChainName,
    held_by: Mapping[int, FactsRegistry],
    *,
    first_slot: int | None,
) -> Iterable[ShownQuery]:
    """Yield the queries as they are shown whole.

    `queries` come with their blocks; `steps` are theirs, by id. `first_slot` begins the page of slots; None: all.

    `held_by` are the registries that hold the facts, by source chain (`deployments.of_batch`).
    """
    # A source chain that hangs holds up no values of another one.
    words = fact_display.proven([query for query in queries if facts.may_be_told(batch, query)], first_slot)
    hashes = {step.transaction_hash for each in steps.values() for step in each if step.transaction_hash}
    is_open = batch.status in OPEN_STATUSES
    head = transaction_display.head(destination.id)
    sent = transaction_display.by_hash(hashes, destination, head)
    to_blocks = paths_to_blocks.to_blocks(
        [query.block for query in queries if query.block], destination, head, goes_on=is_open
    )
    parts = path_parts.of_queries(batch, queries, to_blocks, held_by, destination=destination, head=head)
    sources = {number: chain_name(number) for number in {query.source_chain_id for query in queries}}
    for query in queries:
        source, registry = sources[query.source_chain_id], held_by.get(query.source_chain_id)
        yield ShownQuery(
            number=query.position + 1,
            received_at=batch.created_at,
            address=query.address or None,
            name=query.name,
            source=source,
            selector=query.selector,
            timestamp=query.timestamp,
            block_number=query.block.number if query.block else None,
            block_hash=query.block.hash if query.block else "",
            is_block_sought=query.block is None and is_open,
            is_admitted=query.is_admitted,
            is_waiting=_is_waiting(batch, query),
            fields=_fields(query),
            slots=tuple(fact_display.shown_slots(query, first_slot)),
            slot_count=len(query.slots),
            first_slot=first_slot or 1,
            parts=parts.get(query.pk, ()),
            path=to_blocks.get(query.block.pk) if query.block else None,
            steps=tuple(_steps(query, steps[query.pk], batch, sent)),
            values=tuple(values_of(query, words.get(query.pk, {}), source, registry.address)) if registry else (),
        )


def _is_waiting(batch: Batch, query: Query) -> bool:
    block = query.block
    by_batch = batch.status == BatchStatus.RECEIVED or (not query.is_admitted and bool(batch.waiting_for))
    is_left_to_others = batch.is_self_funded and query.step in PROVABLE_STEPS
    return by_batch or is_left_to_others or bool(block and block.due_at and block.waiting_for)


def _steps(
    query: Query, begun: Iterable[Step], batch: Batch, sent: Mapping[str, ShownTransaction]
) -> Iterable[ShownStep]:
    if batch.steps_pruned_at:
        yield from _steps_without_details(query, batch)
        return
    steps: dict[str, Step] = {step.kind: step for step in begun}
    block = query.block
    # While no query is admitted, the batch itself says why.
    held_up = not query.is_admitted and batch.status in {BatchStatus.ACCEPTED, BatchStatus.IN_PROGRESS}
    for kind in _kinds(query):
        step = steps.get(kind)
        if step is None:
            yield ShownStep(kind, "")
            continue
        is_open = step.status == StepStatus.IN_PROGRESS
        stopped = is_open and batch.status == BatchStatus.REJECTED
        fails = is_open and not stopped and block is not None and block.failing_since is not None
        yield ShownStep(
            kind=kind,
            status="STOPPED" if stopped else step.status,
            started_at=step.started_at,
            ended_at=batch.finished_at if stopped else step.completed_at,
            transaction=sent.get(step.transaction_hash),
            waiting_for=batch.waiting_for if held_up and is_open else "",
            last_error=step.last_error,
            next_try_at=block.due_at if block and fails else None,
            went_back_at=step.went_back_at,
            went_back_because=step.went_back_because,
        )


def _steps_without_details(query: Query, batch: Batch) -> Iterable[ShownStep]:
    """Yield how far the query came, which is all that is left where the rows were pruned."""
    status = str(StepStatus.COMPLETED)
    for kind in _kinds(query):
        if kind == query.step:
            yield ShownStep(kind, "STOPPED" if batch.status == BatchStatus.REJECTED else "")
            status = ""
        else:
            yield ShownStep(kind, status)


# --- Facts ------------------------------------------------------------------------------------------------------------


def values_of(
    query: Query, words: Mapping[Fact, bytes], source: ChainName, registry: str, *, with_code: bool = True
) -> Iterable[Value]:
    """Yield the facts of a query as pages show them; `registry` is the address of the one that holds them."""
    listed: set[type[Fact]] = set()
    for fact, word in words.items():
        is_listed = isinstance(fact, SlotFact | HeaderFact)
        # Only the first value of a list gets code. Thousands of slots would be megabytes of it.
        is_first = query.block is not None and type(fact) not in listed
        if is_listed:
            listed.add(type(fact))
        snippets = reading(registry, query.block.number, fact) if query.block and with_code and is_first else ()
        yield fact_display.value(fact, word, source.currency, registry, snippets)
