"""What is measured by reading the database: queues, batches, money, chains, and the problems of `/healthz`.

It asks no chain: workers store what they see. Its statements are few and use indexes, and what they found is told
again for some seconds, so that neither a scraper nor a stranger loads the database. Sums over all transactions are kept
up to date where these become final (`proving.transactions.transaction_monitor`).
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import Error as DatabaseError
from django.db.models import Count, Min, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from config.configured_chains import get_chains
from database.leases import Leased
from proving.health.findings import CHECKS, CODES
from proving.models import ChainHead, ChainWatch, FactsRegistry, Signer, Stop, Transaction, TransactionState
from proving.worker import heartbeats
from queries.models import OPEN_STATUSES, Batch, Block, DeliveryStatus, Sender, Webhook, WebhookDelivery

_Family = CounterMetricFamily | GaugeMetricFamily

# How long the last answer is given again.
KEPT_SECONDS = 5
_HOUR = timedelta(hours=1)


class ServiceMetrics(Collector):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: Sequence[_Family] = ()
        self._found_at = -KEPT_SECONDS * 1.0

    def describe(self) -> Iterable[_Family]:
        """Describe nothing: registering it must not ask the database."""
        return ()

    def collect(self) -> Iterable[_Family]:
        # Who comes while another asks waits for its answer.
        with self._lock:
            if time.monotonic() - self._found_at >= KEPT_SECONDS:
                self._found = _measure()
                self._found_at = time.monotonic()
            return self._found


def _measure() -> list[_Family]:
    families: list[_Family] = []
    answers = 1
    try:
        for read in _READERS:
            families += read()
    except DatabaseError:
        # Of a part of them nobody could tell that it is one.
        families, answers = [], 0
    return [_gauge("database_answers", "Whether the database has answered.", [((), answers)]), *families]


def _gauge(name: str, help_text: str, values: Iterable[tuple[Sequence[object], float]], *labels: str) -> _Family:
    family = GaugeMetricFamily(f"batchquery_{name}", help_text, labels=labels)
    for of, value in values:
        family.add_metric([str(one) for one in of], float(value))
    return family


def _counter(name: str, help_text: str, values: Iterable[tuple[Sequence[object], float]], *labels: str) -> _Family:
    family = CounterMetricFamily(f"batchquery_{name}", help_text, labels=labels)
    for of, value in values:
        family.add_metric([str(one) for one in of], float(value))
    return family


# --- Queues and batches -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partition:
    """Rows of one kind between the same chains that are due now or later."""

    kind: str
    destination: int
    source: int | None  # None where a row may have several, or none
    rows: int
    due: int  # of these, that no worker has
    oldest_due: datetime | None  # since when the first of those is due


_KINDS: tuple[tuple[str, type[Leased], Q, tuple[str, ...]], ...] = (
    ("batch", Batch, Q(status__in=OPEN_STATUSES), ("destination_chain_id",)),
    ("block", Block, Q(), ("destination_chain_id", "source_chain_id")),
    ("signer", Signer, Q(), ("chain_id",)),
    ("registry", FactsRegistry, Q(replaced_at=None), ("destination_chain_id", "source_chain_id")),
    ("webhook", Webhook, Q(), ("batch__destination_chain_id",)),
)


def partitions() -> Iterator[Partition]:
    for kind, model, which, columns in _KINDS:
        for *ends, so_many, due, oldest in _lengths(model._default_manager.filter(which), columns):
            destination, source = (*ends, None)[:2]
            yield Partition(kind, destination, source, so_many, due, oldest)


def _queues() -> Iterator[_Family]:
    rows = [((one.kind, one.destination, one.source or ""), one) for one in partitions()]
    now, labels = timezone.now(), ("kind", "destination", "source")
    yield _gauge("queue_rows", "Rows that are due now or later.", [(of, one.rows) for of, one in rows], *labels)
    due_rows = [(of, one.due) for of, one in rows]
    yield _gauge("queue_due_rows", "Rows that are due and that no worker has.", due_rows, *labels)
    ages = [(of, _age(one.oldest_due, now)) for of, one in rows]
    help_text = "For how long the oldest of these has been due; 0: none is."
    yield _gauge("queue_oldest_due_seconds", help_text, ages, *labels)


def _lengths(rows: "QuerySet[Leased]", columns: Sequence[str]) -> "QuerySet[Any, Any]":
    due = Q(due_at__lte=Now()) & (Q(leased_until=None) | Q(leased_until__lt=Now()))
    grouped: QuerySet[Any, Any] = rows.filter(due_at__isnull=False).order_by().values(*columns)
    counts: QuerySet[Any, Any] = grouped.annotate(
        so_many=Count("pk"), due=Count("pk", filter=due), oldest=Min("due_at", filter=due)
    )
    return counts.values_list(*columns, "so_many", "due", "oldest")


def _batches() -> Iterator[_Family]:
    now = timezone.now()
    open_ones = Batch.objects.filter(status__in=OPEN_STATUSES).order_by().values("destination_chain_id", "status")
    rows = list(
        open_ones.annotate(
            all=Count("pk"),
            overdue=Count("pk", filter=Q(deadline_at__lt=Now())),
            oldest=Min("created_at", filter=Q(sender=Sender.OPERATOR)),
        ).values_list("destination_chain_id", "status", "all", "overdue", "oldest")
    )
    labels = ("destination", "status")
    yield _gauge(
        "batches_open", "Batches that are neither done nor rejected.", [(row[:2], row[2]) for row in rows], *labels
    )
    yield _gauge(
        "batches_overdue", "Open batches whose deadline has passed.", [(row[:2], row[3]) for row in rows], *labels
    )
    ages = [(row[:2], _age(row[4], now)) for row in rows]
    yield _gauge("batches_oldest_seconds", "Age of the oldest open batch that we send.", ages, *labels)
    ended = Batch.objects.filter(finished_at__gt=Now() - _HOUR).order_by()
    by_code = ended.values("destination_chain_id", "status", "rejection_code").annotate(all=Count("pk"))
    yield _gauge(
        "batches_ended_last_hour",
        "Batches that were done or rejected within the last hour. `code` is that of the rejection.",
        [(row[:3], row[3]) for row in by_code.values_list("destination_chain_id", "status", "rejection_code", "all")],
        *(*labels, "code"),
    )


def _webhooks() -> Iterator[_Family]:
    ended = WebhookDelivery.objects.filter(ended_at__gt=Now() - _HOUR).order_by()
    counts = dict(ended.values_list("status").annotate(all=Count("pk")))
    outcomes = (DeliveryStatus.DELIVERED, DeliveryStatus.FAILED)
    yield _gauge(
        "webhook_deliveries_ended_last_hour",
        "Events that webhooks were told within the last hour, or that were given up.",
        [((outcome,), counts.get(outcome, 0)) for outcome in outcomes],
        "status",
    )


# --- Money ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pending:
    """The stored transactions of a signer that are not mined."""

    count: int
    since: datetime  # of the oldest
    lowest_nonce: int  # that must be mined next


def pending_of(signers: Collection[int]) -> dict[int, Pending]:
    """Count what is pending by the signers' primary keys, of those that have any."""
    waiting = Transaction.objects.filter(state=TransactionState.PENDING, signer__in=signers).order_by().values("signer")
    grouped = waiting.annotate(all=Count("pk"), since=Min("spent_at"), lowest=Min("nonce"))
    return {row[0]: Pending(*row[1:]) for row in grouped.values_list("signer", "all", "since", "lowest")}


def _signers() -> Iterator[_Family]:
    signers = list(Signer.objects.order_by("pk"))
    of = {signer.pk: (signer.chain_id, signer.address) for signer in signers}
    labels = ("chain", "signer")
    succeeded = [((*of[one.pk], "succeeded"), one.final_count - one.final_failures) for one in signers]
    failed = [((*of[one.pk], "failed"), one.final_failures) for one in signers]
    yield _counter("transactions", "Final transactions.", [*succeeded, *failed], *labels, "outcome")
    yield _counter("gas_used", "Gas of final transactions.", [(of[one.pk], one.final_gas) for one in signers], *labels)
    yield _counter(
        "spent_wei", "Cost of final transactions.", [(of[one.pk], one.final_wei) for one in signers], *labels
    )

    stopped = set(Stop.objects.exclude(signer="").values_list("chain_id", "signer"))
    paused = [(whose, whose in stopped) for whose in of.values()]
    yield _gauge("signer_paused", "Whether sending by the signer is stopped.", paused, *labels)
    pending = pending_of(of)
    now = timezone.now()
    counts = [(of[pk], pending[pk].count if pk in pending else 0) for pk in of]
    yield _gauge("transactions_pending", "Transactions that are stored and not mined.", counts, *labels)
    ages = [(of[pk], _age(pending[pk].since if pk in pending else None, now)) for pk in of]
    yield _gauge(
        "transactions_pending_oldest_seconds",
        "Seconds since the oldest pending one was stored; 0: none is pending.",
        ages,
        *labels,
    )
    lowest = [(of[pk], one.lowest_nonce) for pk, one in pending.items()]
    yield _gauge("transactions_pending_lowest_nonce", "The nonce that must be mined next.", lowest, *labels)
    # By the index of each signer: a maximum over a join would read all of them.
    highest = Transaction.objects.filter(signer=OuterRef("pk")).order_by("-nonce").values("nonce")[:1]
    newest = Signer.objects.annotate(newest=Subquery(highest)).values_list("pk", "newest")
    nonces = [(of[pk], nonce + 1) for pk, nonce in newest if pk in of and nonce is not None]
    yield _gauge("signer_next_nonce", "The nonce after the highest that was stored.", nonces, *labels)


def _chains() -> Iterator[_Family]:
    chains = {chain.id: chain for chain in get_chains().chains}
    watches = list(ChainWatch.objects.filter(pk__in=chains).order_by("pk"))
    now = timezone.now()
    balances = [((one.chain_id, address), int(wei)) for one in watches for address, wei in (one.balances or {}).items()]
    yield _gauge("signer_balance_wei", "A signer's balance at the last observation.", balances, "chain", "signer")
    destinations = get_chains().destinations()
    minima = [((chain.id,), chain.minimum_signer_balance_wei) for chain in destinations]
    yield _gauge("signer_minimum_balance_wei", "The balance below which a signer sends nothing.", minima, "chain")
    limits = [((chain.id,), limit) for chain in destinations if (limit := chain.daily_limit_wei) is not None]
    yield _gauge("daily_limit_wei", "The maximum that a chain's signers spend in 24 hours.", limits, "chain")
    spent = [((one.chain_id,), one.spent_in_day) for one in watches if one.spent_in_day is not None]
    yield _gauge(
        "daily_spent_wei", "Spending that counts against that limit, pending transactions included.", spent, "chain"
    )

    heads = [((one.chain_id,), one.number) for one in watches if one.number is not None]
    yield _gauge("chain_head_number", "The newest block that a worker has seen.", heads, "chain")
    ages = [((one.chain_id,), now.timestamp() - one.timestamp) for one in watches if one.timestamp is not None]
    yield _gauge("chain_head_age_seconds", "Seconds since the time of that block.", ages, "chain")
    observed = [((one.chain_id,), _age(one.looked_at, now)) for one in watches if one.looked_at]
    yield _gauge("chain_observed_seconds", "Seconds since a worker last observed the chain.", observed, "chain")
    final = ChainHead.objects.filter(pk__in=chains).order_by("pk").values_list("chain_id", "final")
    yield _gauge(
        "chain_final_number", "A destination's newest final block.", [((pk,), at) for pk, at in final], "chain"
    )
    stopped = set(Stop.objects.filter(source_chain_id=0, signer="").values_list("chain_id", flat=True))
    stops = [((chain.id,), chain.id in stopped) for chain in destinations]
    yield _gauge("signing_stopped", "Whether the operator has stopped sending.", stops, "chain")


# --- Health -----------------------------------------------------------------------------------------------------------


def _health() -> Iterator[_Family]:
    yield _gauge("workers", "Workers that run.", [((), heartbeats.running().count())])
    codes = [problem.code for check in CHECKS for problem in check()]
    counts = [((code,), codes.count(code)) for code in sorted({*CODES, *codes})]
    yield _gauge("problems", "Problems that keep the service from working, by the codes of /healthz.", counts, "code")
    connections = {(one.source_id, one.destination_id) for one in get_chains().connections}
    registries = FactsRegistry.in_use.order_by("pk").values_list("source_chain_id", "destination_chain_id", "notice")
    notices = [(row[:2], bool(row[2])) for row in registries if row[:2] in connections]
    yield _gauge(
        "attesters_notice",
        "Whether /healthz has a notice, such as that attesters contradict the nodes.",
        notices,
        *("source", "destination"),
    )


def _age(since: datetime | None, now: datetime) -> float:
    """Return the age in seconds; 0 also of what lies ahead, by a clock that was ahead."""
    return max(0.0, (now - since).total_seconds()) if since else 0.0


_READERS: tuple[Callable[[], Iterator[_Family]], ...] = (_queues, _batches, _webhooks, _signers, _chains, _health)
