"""Metrics that are read from the database: queues, batches, money, chains, and the problems of `/healthz`.

No chain is asked, because workers store their observations. To keep the database's load low, there are few statements,
they use indexes, and results are reused for some seconds. Sums over all transactions are updated when a transaction
becomes final (`proving.sending.transaction_monitor`).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import Error as DatabaseError
from django.db.models import Case, Count, Min, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.functions import Now
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from config import static_files
from config.configured_chains import get_chains
from proving.health import current_problems
from proving.health.problem_kinds import ProblemKind, Reach, Severity
from proving.models import (
    ChainHead,
    ChainWatch,
    FactsRegistry,
    Signer,
    Stop,
    Transaction,
    TransactionState,
    WorkerHeartbeat,
)
from queries import webhooks
from queries.models import OPEN_STATUSES, Batch, Block, Sender

_Family = CounterMetricFamily | GaugeMetricFamily

# Seconds for which an answer is reused.
KEPT_SECONDS = 5
_HOUR = timedelta(hours=1)
_OF_THE_PROCESS = {ProblemKind.CHAINS_FILE, ProblemKind.DATABASE_UNAVAILABLE}


class ServiceMetrics(Collector):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: Sequence[_Family] = ()
        self._measured_at = -KEPT_SECONDS * 1.0

    def describe(self) -> Iterable[_Family]:
        """Return nothing, because registering the collector must not query the database."""
        return ()

    def collect(self) -> Iterable[_Family]:
        # A simultaneous scrape waits, and then gets the same answer.
        with self._lock:
            if time.monotonic() - self._measured_at >= KEPT_SECONDS:
                self._families = _measure()
                self._measured_at = time.monotonic()
            return self._families


def _measure() -> list[_Family]:
    families: list[_Family] = []
    answers = True
    try:
        for read in _READERS:
            families += read()
    except DatabaseError:
        # If some metrics are missing, all others are left out, because an incomplete set would go unnoticed.
        families, answers = [], False
    of_process = (
        ("database_answers", "Whether the database has answered."),
        (
            "static_files",
            "Whether the web server has the pages' files of its version.",
        ),
    )
    return [*_families((), [((), answers, not static_files.problem())], *of_process), *families]


def _families(
    labels: Sequence[str],
    rows: Iterable[tuple[Any, ...]],
    *columns: tuple[str, str],
    kind: type[_Family] = GaugeMetricFamily,
) -> Iterator[_Family]:
    """Yield a metric for each column. A column is a name and a help text.

    Each row has the values of the labels, and then a value for each column, or None if the value isn't known.
    """
    rows = list(rows)
    for place, (name, help_text) in enumerate(columns, 1):
        family = kind(f"batchquery_{name}", help_text, labels=labels)
        for row in rows:
            if row[place] is not None:
                family.add_metric([str(label) for label in row[0]], float(row[place]))
        yield family


# --- Queues and batches -----------------------------------------------------------------------------------------------

_KINDS: tuple[tuple[str, Callable[[], "QuerySet[Any]"], tuple[str, ...]], ...] = (
    ("batch", lambda: Batch.objects.filter(status__in=OPEN_STATUSES), ("destination_chain_id",)),
    ("block", Block.objects.all, ("destination_chain_id", "source_chain_id")),
    ("signer", Signer.objects.all, ("chain_id",)),
    ("registry", FactsRegistry.in_use.all, ("destination_chain_id", "source_chain_id")),
    ("webhook", webhooks.with_destinations, ("destination",)),
)


def _queues() -> Iterator[_Family]:
    now, rows = timezone.now(), []
    is_due = Q(due_at__lte=Now())
    # A row without attempts failed because of the database. Its age counts, although it was postponed.
    is_failed = Q(attempts=0, failing_since__isnull=False)
    since = Case(When(is_failed, then="failing_since"), When(is_due, then="due_at"))
    counts = {"so_many": Count("pk"), "due": Count("pk", filter=is_due), "oldest": Min(since)}
    for kind, of_kind, columns in _KINDS:
        grouped = of_kind().filter(due_at__isnull=False).order_by().values(*columns).annotate(**counts)
        for *ends, so_many, due, oldest in grouped.values_list(*columns, *counts):
            destination, source = (*ends, "")[:2]
            rows.append(((kind, destination, source), so_many, due, _age(oldest, now)))
    yield from _families(
        ("kind", "destination", "source"),
        rows,
        ("queue_rows", "Rows that are due now or later."),
        ("queue_due_rows", "Due rows that no worker has taken."),
        (
            "queue_oldest_due_seconds",
            "How long the oldest row has been due, also while the database fails; 0: none is.",
        ),
    )


def _batches() -> Iterator[_Family]:
    now, labels = timezone.now(), ("destination", "status")
    counts = {
        "all": Count("pk"),
        "overdue": Count("pk", filter=Q(deadline_at__lt=Now())),
        "oldest": Min("created_at", filter=Q(sender=Sender.OPERATOR)),
    }
    columns = ("destination_chain_id", "status")
    grouped = Batch.objects.filter(status__in=OPEN_STATUSES).order_by().values(*columns).annotate(**counts)
    yield from _families(
        labels,
        [
            (of, so_many, overdue, _age(oldest, now))
            for *of, so_many, overdue, oldest in grouped.values_list(*columns, *counts)
        ],
        ("batches_open", "Batches that are neither done nor rejected."),
        ("batches_overdue", "Open batches whose deadline has passed."),
        ("batches_oldest_seconds", "Age of the oldest open batch that this service sends."),
    )
    recent = Batch.objects.filter(finished_at__gt=Now() - _HOUR).order_by()
    ended = recent.values_list(*columns, "rejection_code").annotate(all=Count("pk"))
    help_text = "Batches that were done or rejected within the last hour. `code` is the rejection's code."
    rows = [(of, so_many) for *of, so_many in ended]
    yield from _families((*labels, "code"), rows, ("batches_ended_last_hour", help_text))


# --- Money ------------------------------------------------------------------------------------------------------------


def _signers() -> Iterator[_Family]:
    # A subquery per signer uses an index. A maximum over a join would read all transactions.
    highest = Transaction.objects.filter(signer=OuterRef("pk")).order_by("-nonce").values("nonce")[:1]
    signers = list(Signer.objects.annotate(highest=Subquery(highest)).order_by("pk"))
    labels_by_signer = {signer.pk: (signer.chain_id, signer.address) for signer in signers}
    labels = ("chain", "signer")
    ended = [
        ((*labels_by_signer[signer.pk], outcome), count)
        for signer in signers
        for outcome, count in (
            ("succeeded", signer.final_count - signer.final_failures),
            ("failed", signer.final_failures),
        )
    ]
    counter = CounterMetricFamily
    yield from _families((*labels, "outcome"), ended, ("transactions", "Final transactions."), kind=counter)
    yield from _families(
        labels,
        [(labels_by_signer[signer.pk], signer.final_gas, signer.final_wei) for signer in signers],
        ("gas_used", "Gas of final transactions."),
        ("spent_wei", "Cost of final transactions."),
        kind=counter,
    )
    stopped = set(Stop.objects.exclude(signer="").values_list("chain_id", "signer"))
    waiting = (
        Transaction.objects.filter(state=TransactionState.PENDING, signer__in=labels_by_signer)
        .order_by()
        .values("signer")
    )
    counts = {"all": Count("pk"), "since": Min("spent_at"), "lowest": Min("nonce")}
    pending = {pk: row for pk, *row in waiting.annotate(**counts).values_list("signer", *counts)}
    now, rows = timezone.now(), []
    for signer in signers:
        count, since, lowest = pending.get(signer.pk, (0, None, None))
        following = None if signer.highest is None else signer.highest + 1
        rows.append(
            (
                labels_by_signer[signer.pk],
                labels_by_signer[signer.pk] in stopped,
                count,
                _age(since, now),
                lowest,
                following,
            )
        )
    yield from _families(
        labels,
        rows,
        ("signer_paused", "Whether sending by the signer is stopped."),
        ("transactions_pending", "Transactions that are stored and not mined."),
        (
            "transactions_pending_oldest_seconds",
            "Seconds since the oldest pending transaction was stored; 0: none is pending.",
        ),
        ("transactions_pending_lowest_nonce", "The next nonce to be mined."),
        ("signer_next_nonce", "The nonce after the highest stored one."),
    )


def _chains() -> Iterator[_Family]:
    ids = [chain.id for chain in get_chains().chains]
    watched = {watch.chain_id: watch for watch in ChainWatch.objects.order_by("pk")}
    watches = {pk: watch for pk, watch in watched.items() if pk in ids}
    stopped = set(Stop.objects.filter(source_chain_id=0, signer="").values_list("chain_id", flat=True))
    now = timezone.now()
    balances = [
        ((pk, address), int(wei)) for pk, watch in watches.items() for address, wei in (watch.balances or {}).items()
    ]
    about = ("signer_balance_wei", "A signer's balance at the last observation.")
    yield from _families(("chain", "signer"), balances, about)
    yield from _families(
        ("chain",),
        [
            (
                (watch.chain_id,),
                watch.number,
                None if watch.timestamp is None else now.timestamp() - watch.timestamp,
                watch.looked_at and _age(watch.looked_at, now),
                watch.spent_in_day,
            )
            for watch in watches.values()
        ],
        ("chain_head_number", "The newest block that a worker has seen."),
        ("chain_head_age_seconds", "Seconds since the time of that block."),
        ("chain_observed_seconds", "Seconds since a worker last observed the chain."),
        ("daily_spent_wei", "Spending that counts against the daily limit, including pending transactions."),
    )
    yield from _families(
        ("chain",),
        [
            ((chain.id,), chain.minimum_signer_balance_wei, chain.daily_limit_wei, chain.id in stopped)
            for chain in get_chains().destinations()
        ],
        ("signer_minimum_balance_wei", "The balance below which a signer sends nothing."),
        ("daily_limit_wei", "The maximum that a chain's signers spend in 24 hours."),
        ("signing_stopped", "Whether the operator has stopped sending."),
    )
    severity = [((chain.id, current_problems.severity_of(chain)), 1) for chain in get_chains().chains]
    # Batches of a chain that left chains.toml may stand still, too.
    severity += [((pk, Severity.WARNING), 1) for pk in watched if pk not in ids]
    help_text = "1. The severity of what stands still on the chain: critical where its money has value."
    yield from _families(("chain", "severity"), severity, ("chain_severity", help_text))
    final = [((pk,), at) for pk, at in ChainHead.objects.filter(pk__in=ids).order_by("pk").values_list("pk", "final")]
    yield from _families(("chain",), final, ("chain_final_number", "A destination's newest final block."))


# --- Health -----------------------------------------------------------------------------------------------------------


def _health() -> Iterator[_Family]:
    yield from _families((), [((), WorkerHeartbeat.running().count())], ("workers", "Workers that run."))
    found = current_problems.read()
    critical = current_problems.critical(found.degrading)
    warnings = [problem for problem in found.seen if problem not in critical and problem.kind != ProblemKind.RISK]
    # A process that computes metrics has read the file and the database.
    counted = [
        kind for kind in ProblemKind if kind.reach not in {Reach.RISK, Reach.COMMAND} and kind not in _OF_THE_PROCESS
    ]
    counts = {(kind, severity): 0 for kind in counted for severity in kind.severities}
    counts |= Counter((problem.kind, Severity.WARNING) for problem in warnings)
    counts |= Counter((problem.kind, Severity.CRITICAL) for problem in critical)
    help_text = "Problems that keep the service from working, with the codes of /healthz. `critical` ones can't wait."
    yield from _families(("code", "severity"), sorted(counts.items()), ("problems", help_text))
    connections = {(connection.source_id, connection.destination_id) for connection in get_chains().connections}
    registries = [(row, (row.source_chain_id, row.destination_chain_id)) for row in FactsRegistry.in_use.order_by("pk")]
    risks = [(ends, bool(row.current_risks)) for row, ends in registries if ends in connections]
    help_text = "Whether /healthz has a notice, such as that attesters contradict the nodes."
    yield from _families(("source", "destination"), risks, ("attesters_notice", help_text))


def _age(since: datetime | None, now: datetime) -> float:
    """Return the age in seconds. Return 0 for a time in the future, which a wrong clock has stored."""
    return max(0.0, (now - since).total_seconds()) if since else 0.0


_READERS: tuple[Callable[[], Iterator[_Family]], ...] = (_queues, _batches, _signers, _chains, _health)
