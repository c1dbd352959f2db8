"""What a batch waits for: how its queries are counted by their steps, and what is said of it."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from django.db.models import Count, Exists, Max, OuterRef, Q, QuerySet

from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from config.json_objects import PAGE_ONLY
from proving.models import LIVE_STATES, Transaction, TransactionState
from queries import batch_json, models
from queries.models import Batch, BatchStatus, StepKind

AtStep = Mapping[str | None, int]
"""The number of queries at each open step. None: all their steps are completed."""


@dataclass(frozen=True)
class Counts(batch_json.Counts):
    """The same, by their steps."""

    at_step: AtStep
    headers_at_step: AtStep
    """The same for queries that are about a header."""


class Actor(StrEnum):
    """Name who must act, so that a batch goes on."""

    NOBODY = ""
    PAYER = "payer"  # of a self-funded batch
    OPERATOR = "operator"


@dataclass(frozen=True)
class ShownWait(batch_json.Wait):
    """A wait, and who must act."""

    actor: Annotated[Actor, PAGE_ONLY] = Actor.NOBODY


def count(batch: Batch) -> Counts:
    chains: set[int] = set()
    at_step, headers_at_step = Counter[str | None](), Counter[str | None]()
    by_step = batch.queries.order_by().values_list("source_chain_id", "step")
    for chain, step, queries, headers in by_step.annotate(Count("pk"), headers=Count("pk", filter=Q(address=""))):
        chains.add(chain)
        at_step[step] += queries
        headers_at_step[step] += headers
    return Counts(sorted(chains), at_step.total(), at_step[None], at_step, headers_at_step)


def waits(batch: Batch, counts: Counts) -> tuple[ShownWait, ...]:
    """Return what a batch waits for while it is open."""
    if not batch.is_open:
        return ()
    live = transactions(batch, LIVE_STATES)
    # What is known of its transactions is newer than what a worker said of them when it last looked at the block.
    links = Transaction.queries.through.objects.filter(query__batch=batch, transaction__state__in=LIVE_STATES)
    said = batch.waits(besides=links.exclude(query__block=None).values("query__block") if live else None)
    if live or not said:
        said.append(models.Wait(_next(batch, chain_name(batch.destination_chain_id), counts.at_step, live)))
    several = len(counts.source_chains) > 1
    return tuple(
        ShownWait(
            wait.sentence,
            wait.failing_since,
            wait.next_try_at,
            tuple(map(chain_name, wait.source_chain_ids)) if several else (),
            Actor.PAYER if wait.for_payer else Actor.OPERATOR if wait.failing_since else Actor.NOBODY,
        )
        for wait in said
    )


def _next(batch: Batch, destination: ChainName, at_step: AtStep, live: Mapping[str, tuple[int, str]]) -> str:
    """Say what takes time while all goes well."""
    if batch.status == BatchStatus.RECEIVED:
        return "Waiting for a worker to check it against the chains."
    where = f"{destination.name} ({destination.id})"
    pending, problem = live.get(TransactionState.PENDING, (0, ""))
    if problem:
        return f"{_sent(pending)} under way. {problem}"
    if pending:
        return f"The next block of {where} should include {_counted(pending)}.{_pace(destination)}"
    mined, _ = live.get(TransactionState.MINED, (0, ""))
    if mined:
        return f"{_sent(mined)} being confirmed on {where}.{_pace(destination)}"
    if at_step.get(StepKind.INITIAL_STATE):
        return "The service fetches block headers and proofs, and verifies them."
    return f"A worker compares with what {where} already knows, and sends transactions for the rest."


def _pace(chain: ChainName) -> str:
    """Say how long a block takes; empty where that is not known."""
    return (
        f" A block comes about every {get_chains().chain(chain.id).block_seconds:g} s." if chain.is_configured else ""
    )


def _counted(transactions: int) -> str:
    return "the transaction" if transactions == 1 else f"{transactions} transactions"


def _sent(transactions: int) -> str:
    return f"{_counted(transactions).capitalize()} {'is' if transactions == 1 else 'are'}"


def sent_for(batch: str, destination: int) -> "QuerySet[Transaction]":
    """Return the transactions of the batch.

    They are found among those of the destination: that takes as long as they are many, however large the batch is.
    """
    links = Transaction.queries.through.objects.filter(transaction=OuterRef("pk"), query__batch=batch)
    return Transaction.objects.filter(Exists(links), signer__chain_id=destination).order_by()


def transactions(batch: Batch, states: Collection[str]) -> dict[str, tuple[int, str]]:
    """Count the transactions of the batch in each of these states, with the last error of one of them, if any has."""
    sent = sent_for(batch.pk, batch.destination_chain_id).filter(state__in=states)
    rows = sent.values_list("state").annotate(Count("pk"), Max("last_error"))
    return {state: (count, error) for state, count, error in rows}
