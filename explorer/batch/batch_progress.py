"""How far a batch is, as its page shows it: completed steps, what it waits for, what is wrong, what was rolled back."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate

from config.chain_names import ChainName
from config.json_objects import JsonObject
from explorer.batch.query_cards import HEADER_STEPS
from proving import batch_waits
from proving.batch_waits import AtStep, Counts, ShownWait
from proving.models import FactsRegistry, Signer
from proving.worker import heartbeats
from queries.models import LEFT_TO_OTHERS, Batch, StepKind

# The page lists the transactions itself, and whoever reads it may be anyone.
_LEFT_TO_OTHERS = "It goes on once its transactions are on the chain."


@dataclass(frozen=True)
class StepCount(JsonObject):
    """The number of the batch's queries that have completed a step."""

    kind: str
    completed: int
    total: int  # queries that have this step


@dataclass(frozen=True)
class Progress:
    step_counts: tuple[StepCount, ...]
    waits: tuple[ShownWait, ...]
    no_worker: bool
    notices: tuple[str, ...]  # about the destination's signers and the facts registries
    went_back_at: datetime | None
    went_back_because: str

    @property
    def all_goes_well(self) -> bool:
        """Return whether no worker has said that the batch waits."""
        return all(wait.is_usual for wait in self.waits)

    @property
    def goes_on(self) -> bool:
        """Return whether a worker is there, and nothing holds it up."""
        return self.all_goes_well and not self.no_worker

    @property
    def steps_completed(self) -> int:
        return sum(count.completed for count in self.step_counts)

    @property
    def steps_total(self) -> int:
        return sum(count.total for count in self.step_counts)


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
        waits=tuple(_on_the_page(wait, batch) for wait in batch_waits.waits(batch, counts)),
        no_worker=can_change and not heartbeats.is_running(),
        notices=_notices(destination.id, registries) if can_change else (),
        went_back_at=batch.went_back_at,
        went_back_because=batch.went_back_because,
    )


def _on_the_page(wait: ShownWait, batch: Batch) -> ShownWait:
    is_left = wait.sentence == LEFT_TO_OTHERS.format(batch.pk)
    return replace(wait, sentence=_LEFT_TO_OTHERS) if is_left else wait


def _step_counts(at_step: AtStep, headers_at_step: AtStep) -> Iterable[StepCount]:
    """Yield how many queries have completed each step, and how many have it.

    `headers_at_step` counts those queries of `at_step` that are about a header, which have fewer steps.
    """
    open_or_before = accumulate(at_step.get(kind, 0) for kind in StepKind)
    total = sum(at_step.values())
    headers = sum(headers_at_step.values())
    for kind, not_past in zip(StepKind, open_or_before, strict=True):
        if kind in HEADER_STEPS:
            yield StepCount(kind, total - not_past, total)
        elif total > headers:
            completed = total - not_past - headers_at_step.get(None, 0)
            yield StepCount(kind, completed, total - headers)


def _notices(chain_id: int, registries: Iterable[FactsRegistry]) -> tuple[str, ...]:
    of_signers = Signer.objects.filter(chain_id=chain_id).exclude(notice="").order_by("pk")
    # Some are about all of them.
    once = dict.fromkeys(of_signers.values_list("notice", flat=True))
    return (*once, *(row.notice for row in registries if row.notice))
