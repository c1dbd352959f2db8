"""Where the time of a batch went: its source chains step by step, paths to old blocks, transactions and what failed.

It holds times. How long until now is for the template to draw, because what changes by itself is no part of a page.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Count, Max, Min, Q
from django.utils import timezone

from config.chain_names import chain_name
from explorer.batch.paths_to_blocks import ShownPath
from explorer.batch.query_cards import ShownQuery, ShownStep
from explorer.batch.transaction_display import ShownTransaction
from proving.batch_waits import ShownWait
from queries.models import PROVABLE_STEPS, Batch, BatchStatus, Step, StepKind, StepStatus

# Steps of more queries take a page too long to read.
MOST_QUERIES = 1000
_MOST_CHAINS = 6
_MOST_PATHS = 3


@dataclass(frozen=True)
class Segment:
    kind: str  # ok, run, wait, lost, stopped: a class of the style sheet
    what: str  # for those who ask what it is
    start: datetime
    end: datetime | None  # None: it lasts
    label: str = ""


@dataclass(frozen=True)
class Lane:
    name: str
    note: str  # what came of it, a phrase
    tracks: tuple[tuple[Segment, ...], ...]  # one below the other, where they would cover each other


@dataclass(frozen=True)
class Timeline:
    start: datetime
    end: datetime | None  # None: it goes on
    lanes: tuple[Lane, ...]

    @property
    def leaves_steps_out(self) -> bool:
        return not any(one.label for lane in self.lanes for track in lane.tracks for one in track)


@dataclass(frozen=True)
class _Steps:
    """A step of the queries about one source chain."""

    chain: int
    kind: str
    begun_at: datetime
    last_at: datetime | None  # when the last of those completed that are
    begun: int
    completed: int
    waiting: int  # of those that are open, how many wait for something that a worker has named
    went_back: bool


def of_batch(
    batch: Batch,
    total: int,
    cards: Sequence[ShownQuery],
    transactions: Sequence[ShownTransaction],
    waits: Iterable[ShownWait],
    *,
    transaction_count: int,
    has_worker: bool = True,
) -> Timeline:
    """Return the timeline of a batch.

    `total` is the number of its queries; `cards` are all of them that the page shows, or empty.

    `transactions` are the newest of its `transaction_count`. Without a worker, nothing is under way.
    """
    lanes = []
    if total <= MOST_QUERIES and not batch.steps_pruned_at:
        steps = _of_cards(cards) if cards else _stored(batch)
        if batch.status == BatchStatus.RECEIVED or not has_worker:
            steps = (replace(step, waiting=step.begun - step.completed) for step in steps)
        lanes = list(_chains(batch, total, steps))
    paths = _drawn_paths(cards)
    lanes = (lanes or [_statuses(batch)]) + [_path(card, path) for card, path in paths]
    of_paths = {tx.hash for _, path in paths for tx in path.transactions}
    if sent := [tx for tx in transactions if tx.sent_at and tx.result and tx.hash not in of_paths]:
        mined = sum(tx.mined_at is not None for tx in sent)
        note = f"{len(sent)} sent, {mined} in a block"
        if transaction_count > len(transactions):
            note = f"the newest {len(sent)} of {transaction_count:,}"
        lanes.append(Lane("Transactions", note, (tuple(map(_of_transaction, sent)),)))
    failing = tuple(
        Segment("wait", wait.sentence, wait.failing_since, None) for wait in waits if wait.failing_since is not None
    )
    if failing:
        lanes.append(Lane("Fails", "tried again", (failing,)))
    return Timeline(batch.created_at, batch.finished_at, tuple(lanes))


def _statuses(batch: Batch) -> Lane:
    """Return the lane of the batch as a whole."""
    first = Segment(
        _kind(batch, batch.accepted_at), "RECEIVED", batch.created_at, batch.accepted_at or batch.finished_at
    )
    if batch.accepted_at is None:
        return Lane("The batch", batch.status, ((first,),))
    rest = Segment(_kind(batch, batch.finished_at), "checked, and being proven", batch.accepted_at, batch.finished_at)
    return Lane("The batch", batch.status, ((first, rest),))


def _kind(batch: Batch, end: datetime | None) -> str:
    if batch.status == BatchStatus.REJECTED and end in {None, batch.finished_at}:
        return "stopped"
    return "run" if end is None else "ok"


def _chains(batch: Batch, total: int, steps_of_chains: Iterable[_Steps]) -> Iterator[Lane]:
    by_chain: dict[int, list[_Steps]] = defaultdict(list)
    for step in steps_of_chains:
        by_chain[step.chain].append(step)
    for chain, steps in list(by_chain.items())[:_MOST_CHAINS]:
        order = list(StepKind)
        steps.sort(key=lambda step: order.index(StepKind(step.kind)))
        last = steps[-1]
        reached = order.index(StepKind(last.kind)) + 1
        note = f"step {reached}"
        if batch.status == BatchStatus.DONE:
            note = f"{steps[0].begun:,} proven" if total > 1 else "proven"
        elif total > 1:
            # Of all, since those about a header have no fourth step.
            note = f"{note}: {last.completed:,} of {steps[0].begun:,}"
        yield Lane(chain_name(chain).in_words, note, tuple(_tracks(batch, steps)))


def _tracks(batch: Batch, steps: Sequence[_Steps]) -> Iterator[tuple[Segment, ...]]:
    """Yield the steps of a source chain on one track, or each on its own where some queries are ahead of others."""
    order, before = list(StepKind), batch.created_at
    tracks: list[tuple[Segment, ...]] = []
    cover_each_other = False
    for step in steps:
        segment = _of_steps(batch, step, order.index(StepKind(step.kind)) + 1)
        cover_each_other = cover_each_other or before > segment.start
        lost = step.went_back and before < segment.start
        tracks.append((Segment("lost", "rolled back", before, segment.start), segment) if lost else (segment,))
        before = segment.end or timezone.now()
    return iter(tracks if cover_each_other else [sum(tracks, ())])


def _of_cards(cards: Sequence[ShownQuery]) -> Iterator[_Steps]:
    begun: dict[tuple[int, str], list[ShownStep]] = defaultdict(list)
    waiting = Counter[tuple[int, str]]()
    for card in cards:
        for step in card.steps:
            if step.started_at is not None:
                begun[card.source.id, step.kind].append(step)
                waiting[card.source.id, step.kind] += card.is_waiting and step.status == StepStatus.IN_PROGRESS
    for (chain, kind), steps in begun.items():
        completed = [step.ended_at for step in steps if step.status == StepStatus.COMPLETED and step.ended_at]
        first = min(step.started_at for step in steps if step.started_at)
        went_back = any(step.went_back_at for step in steps)
        last = max(completed, default=None)
        yield _Steps(chain, kind, first, last, len(steps), len(completed), waiting[chain, kind], went_back)


def _stored(batch: Batch) -> Iterator[_Steps]:
    by_kind = Step.objects.filter(query__batch=batch).order_by("query__source_chain_id")
    waits = Q(query__block__due_at__isnull=False) & ~Q(query__block__waiting_for="")
    for chain, kind, begun_at, last_at, begun, went_back_at, completed, waiting in by_kind.values_list(
        "query__source_chain_id", "kind"
    ).annotate(
        Min("started_at"),
        Max("completed_at"),
        Count("pk"),
        Max("went_back_at"),
        completed=Count("pk", filter=Q(status=StepStatus.COMPLETED)),
        waiting=Count("pk", filter=Q(status=StepStatus.IN_PROGRESS) & waits),
    ):
        yield _Steps(chain, kind, begun_at, last_at, begun, completed, waiting, bool(went_back_at))


def _of_steps(batch: Batch, step: _Steps, number: int) -> Segment:
    is_over = step.completed == step.begun
    if is_over:
        kind, end = "ok", step.last_at
    elif batch.status == BatchStatus.REJECTED:
        kind, end = "stopped", batch.finished_at
    else:
        # It waits where all that is open does, such as for attesters. Otherwise something is under way.
        is_left_to_others = batch.is_self_funded and step.kind in PROVABLE_STEPS
        waits = is_left_to_others or step.waiting == step.begun - step.completed
        kind, end = "wait" if waits else "run", None
    how_many = f", {step.completed:,} of {step.begun:,}" if step.begun > 1 else ""
    return Segment(kind, f"{step.kind}{how_many}", step.begun_at, end, label=str(number))


def _drawn_paths(cards: Sequence[ShownQuery]) -> list[tuple[ShownQuery, ShownPath]]:
    """Return each block once, with one of its queries."""
    found = {
        (card.source.id, card.block_number): (card, card.path)
        for card in cards
        # What a jump leads to is in the same transaction, with what it proves.
        if card.path and card.path.length and not card.path.is_jump
    }
    return list(found.values())[:_MOST_PATHS]


def _path(card: ShownQuery, path: ShownPath) -> Lane:
    sent = tuple(_of_transaction(tx) for tx in path.transactions if tx.sent_at and tx.result)
    return Lane(f"Path to block {card.block_number} of {card.source.in_words}", path.how_far, (sent,))


def _of_transaction(tx: ShownTransaction) -> Segment:
    """Return from when the transaction was sent until it was in a block."""
    assert tx.sent_at
    if tx.mined_at is None:
        return Segment("wait", f"{tx.hash} waits for a block", tx.sent_at, None)
    kind, what = ("ok", "is in a block") if tx.result == "ok" else ("stopped", "was reverted")
    return Segment(kind, f"{tx.hash} {what}", tx.sent_at, tx.mined_at)
