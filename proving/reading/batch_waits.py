"""The waits of a batch, and the counts of its queries by step."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet

from config.chain_names import chain_name
from config.configured_chains import get_chains
from config.json_objects import PAGE_ONLY
from proving.models import LIVE_STATES, SignedTransaction, Transaction, TransactionState
from proving.working import heads, lanes
from queries import batch_json, models
from queries.models import Batch, BatchStatus, QueryKind, StepKind
from queries.waits import Actor, WaitReason, wait

AtStep = Mapping[str | None, int]
"""The number of queries at each open step. The key None counts queries whose steps are all completed."""


@dataclass(frozen=True)
class StepCounts(batch_json.Counts):
    """The counts of a batch's queries, also by step."""

    at_step: AtStep
    headers_at_step: AtStep
    """The part of `at_step` that is about headers."""


class CountedTransactions(NamedTuple):
    """A batch's transactions in one state."""

    number: int
    problem: WaitReason | None
    """The last error of one of them, or of its signer."""


@dataclass(frozen=True, kw_only=True)
class ShownWait(batch_json.Wait):
    """A wait with its reason, from which pages build their own sentences."""

    reason: Annotated[WaitReason, PAGE_ONLY]

    @property
    def actor(self) -> Actor:
        """Return who must act."""
        return self.reason.actor


def count(batch: Batch) -> StepCounts:
    chains: set[int] = set()
    at_step, headers_at_step = Counter[str | None](), Counter[str | None]()
    by_step = batch.queries.order_by().values_list("source_chain_id", "step")
    for chain, step, queries, headers in by_step.annotate(
        Count("pk"), headers=Count("pk", filter=Q(kind=QueryKind.HEADER))
    ):
        chains.add(chain)
        at_step[step] += queries
        headers_at_step[step] += headers
    return StepCounts(sorted(chains), at_step.total(), at_step[None], at_step, headers_at_step)


def waits(batch: Batch, counts: StepCounts) -> tuple[ShownWait, ...]:
    """Return the waits of an open batch. A closed batch has none."""
    if not batch.is_open:
        return ()
    live = transactions(batch, LIVE_STATES)
    # The states of the transactions are newer than the wait that a worker stored in the block's last turn.
    links = Transaction.queries.through.objects.filter(query__batch=batch, transaction__state__in=LIVE_STATES)
    shown = batch.waits(besides=links.exclude(query__block=None).values("query__block") if live else None)
    replacing = lanes.replacing(batch.destination_chain_id, counts.source_chains)
    shown[:0] = [models.BatchWait(why, source_chain_ids=(source,)) for source, why in replacing.items()]
    if live or not shown:
        shown.append(models.BatchWait(_next(batch, counts.at_step, live)))
    several = len(counts.source_chains) > 1
    return tuple(
        ShownWait(
            each.reason.told.code or None,
            each.sentence,
            each.failing_since,
            each.next_try_at,
            tuple(map(chain_name, each.source_chain_ids)) if several else (),
            reason=each.reason,
        )
        for each in shown
    )


def _next(batch: Batch, at_step: AtStep, live: Mapping[str, CountedTransactions]) -> WaitReason:
    """Return the wait of a batch without problems."""
    if batch.status == BatchStatus.RECEIVED:
        return wait("check")
    chain = batch.destination_chain_id
    pending = live.get(TransactionState.PENDING)
    if pending and pending.problem:
        return wait("transactions_under_way", transactions=pending.number, reason=pending.problem)
    state = TransactionState.PENDING if pending else TransactionState.MINED
    if waiting := live.get(state):
        pace = None
        if chain_name(chain).is_configured:
            configured = get_chains().chain(chain)
            sent = sent_for(batch.pk, chain).filter(state=state)
            if stands := heads.standing(configured, sent, is_mined=pending is None):
                return stands
            pace = configured.block_seconds
        code = "next_block" if pending else "confirming"
        return wait(code, chain=chain, transactions=waiting.number, block_seconds=pace)
    if at_step.get(StepKind.INITIAL_STATE):
        return wait("fetching")
    return wait("comparing", chain=chain)


def sent_for(batch: str, destination: int) -> "QuerySet[Transaction]":
    """Return the transactions of the batch.

    The statement reads the destination's transactions, so its time grows with their number and not with the batch.
    """
    links = Transaction.queries.through.objects.filter(transaction=OuterRef("pk"), query__batch=batch)
    return Transaction.objects.filter(Exists(links), signer__chain_id=destination).order_by()


def transactions(batch: Batch, states: Collection[str]) -> dict[str, CountedTransactions]:
    """Count the batch's transactions by state.

    While a version isn't signed, the error is that of the signer.
    """
    unsigned = SignedTransaction.objects.filter(transaction=OuterRef("pk"), hash=None)
    sent = sent_for(batch.pk, batch.destination_chain_id).filter(state__in=states)
    of_signer = Max("signer__signing_problem", filter=Exists(unsigned))
    rows = sent.values_list("state").annotate(Count("pk"), Max("error"), by_signer=of_signer)
    return {state: CountedTransactions(count, error or by_signer) for state, count, error, by_signer in rows}
