"""How far a batch is, as its page shows it: completed steps, what it waits for, what is wrong, what went back."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Annotated

from django.db.models import Count, Q

from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from config.json_objects import PAGE_ONLY, JsonObject, Time
from explorer.pages import expectations, shown_transactions
from explorer.pages.expectations import Expected
from explorer.pages.polling import transactions
from explorer.pages.query_cards import HEADER_STEPS, STEP_MEANINGS
from proving.models import LIVE_STATES, FactsRegistry, Signer, TransactionState
from proving.worker import heartbeats
from queries import batch_json, models
from queries.models import OPEN_STATUSES, Batch, BatchStatus, StepKind

AtStep = Mapping[str | None, int]
"""How many queries have which open step. None: all their steps are completed."""


@dataclass(frozen=True)
class Counts(batch_json.Counts):
    """The same, by their steps."""

    at_step: AtStep
    headers_at_step: AtStep
    """Of those that are about a header."""


@dataclass(frozen=True)
class StepCount(JsonObject):
    """How many of the batch's queries have completed a step."""

    kind: str
    meaning: Annotated[str, PAGE_ONLY]
    completed: int
    total: int  # queries that have this step


@dataclass(frozen=True)
class ShownWait(batch_json.Wait):
    """A wait, and when a worker last found it so: an ETag of the API's would change with each time."""

    said_at: Time | None


@dataclass(frozen=True)
class Progress:
    step_counts: tuple[StepCount, ...]
    waits: tuple[ShownWait, ...]
    expected: tuple[Expected, ...]
    no_worker: bool
    notices: tuple[str, ...]  # about the destination's signers and the facts registries
    went_back_at: datetime | None
    went_back_because: str

    @property
    def queries(self) -> int:
        """Return how many queries the batch has: each has the first step."""
        return self.step_counts[0].total

    @property
    def steps_completed(self) -> int:
        return sum(count.completed for count in self.step_counts)

    @property
    def steps_total(self) -> int:
        return sum(count.total for count in self.step_counts)


def count(batch: Batch) -> Counts:
    chains: set[int] = set()
    at_step, headers_at_step = Counter[str | None](), Counter[str | None]()
    by_step = batch.queries.order_by().values_list("source_chain_id", "step")
    for chain, step, queries, headers in by_step.annotate(Count("pk"), headers=Count("pk", filter=Q(address=""))):
        chains.add(chain)
        at_step[step] += queries
        headers_at_step[step] += headers
    return Counts(sorted(chains), at_step.total(), at_step[None], at_step, headers_at_step)


def read(
    batch: Batch,
    destination: ChainName,
    counts: Counts,
    registries: Iterable[FactsRegistry],
    *,
    can_change: bool,
) -> Progress:
    """Read how far the batch is.

    `registries` hold its facts. A page that can't change any more has no notices: it would keep them.
    """
    at_step, headers_at_step = counts.at_step, counts.headers_at_step
    return Progress(
        step_counts=tuple(_step_counts(at_step, headers_at_step)),
        waits=waits(batch, counts),
        expected=expectations.of_batch(batch, at_step) if batch.status in OPEN_STATUSES else (),
        no_worker=can_change and not heartbeats.is_running(),
        notices=_notices(destination.id, registries) if can_change else (),
        went_back_at=batch.went_back_at,
        went_back_because=batch.went_back_because,
    )


def _step_counts(at_step: AtStep, headers_at_step: AtStep) -> Iterable[StepCount]:
    """Yield how many queries have completed each step, and how many have it.

    `headers_at_step` counts those queries of `at_step` that are about a header, which have fewer steps.
    """
    open_or_before = accumulate(at_step.get(kind, 0) for kind in StepKind)
    total = sum(at_step.values())
    headers = sum(headers_at_step.values())
    for kind, not_past in zip(StepKind, open_or_before, strict=True):
        if kind in HEADER_STEPS:
            yield StepCount(kind, STEP_MEANINGS[kind], total - not_past, total)
        elif total > headers:
            completed = total - not_past - headers_at_step.get(None, 0)
            yield StepCount(kind, STEP_MEANINGS[kind], completed, total - headers)


# --- Waits ------------------------------------------------------------------------------------------------------------


def waits(batch: Batch, counts: Counts) -> tuple[ShownWait, ...]:
    """Return what a batch waits for while it is open."""
    several = len(counts.source_chains) > 1
    return tuple(
        ShownWait(
            wait.sentence,
            wait.failing_since,
            wait.next_try_at,
            tuple(map(chain_name, wait.source_chain_ids)) if several else (),
            wait.said_at,
        )
        for wait in (_waits(batch, counts.at_step) if batch.status in OPEN_STATUSES else ())
    )


def _waits(batch: Batch, at_step: AtStep) -> Iterable[models.Wait]:
    """Return what an open batch waits for.

    The worker says what went wrong. If nothing did, the step says what takes time.
    """
    if said := batch.waits():
        return said
    if batch.status == BatchStatus.RECEIVED:
        return [models.Wait("Waiting for a worker to check it against the chains.")]
    return [models.Wait(_next(batch, chain_name(batch.destination_chain_id), at_step))]


def _next(batch: Batch, destination: ChainName, at_step: AtStep) -> str:
    """Say what a batch waits for while all goes well."""
    where = f"{destination.name} ({destination.id})"
    if at_step.get(StepKind.INITIAL_STATE):
        return "Waiting for a node of the source chain to send block headers and proofs."
    counts = transactions(batch, LIVE_STATES)
    if pending := counts.get(TransactionState.PENDING):
        return f"Waiting for a block of {where} that includes {_counted(pending)}.{_pace(destination)}"
    if mined := counts.get(TransactionState.MINED):
        head = shown_transactions.head(destination.id)
        at = f" The newest block is {head.number}, the newest final one {head.final}." if head else ""
        return f"Waiting for confirmations of {_counted(mined)} on {where}.{at}{_pace(destination)}"
    return f"Waiting for a worker to check what {where} already knows, and to send transactions for the rest."


def _pace(chain: ChainName) -> str:
    """Say how long a block takes; empty where that is not known."""
    return (
        f" A block comes about every {get_chains().chain(chain.id).block_seconds:g} s." if chain.is_configured else ""
    )


def _counted(transactions: int) -> str:
    return "the transaction" if transactions == 1 else f"{transactions} transactions"


def _notices(chain_id: int, registries: Iterable[FactsRegistry]) -> tuple[str, ...]:
    of_signers = Signer.objects.filter(chain_id=chain_id).exclude(notice="").order_by("pk")
    # Some are about all of them.
    once = dict.fromkeys(of_signers.values_list("notice", flat=True))
    return (*once, *(row.notice for row in registries if row.notice))
