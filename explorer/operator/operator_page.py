"""The operator's page: what needs a person now, and the state of queues, workers, nodes, signers and money.

It says to people what `/healthz` and `/metrics` say to monitors, by the same statements, and changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from django.db.models import OuterRef, QuerySet, Subquery
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from accounts.operator_pages import page_of
from chains.chains_file import Chain
from chains.exchange_metrics import Exchanges
from config.chain_names import ChainName, chain_name
from config.configured_chains import get_chains
from database.leases import Leased
from explorer.formatting.amounts import cost
from proving.budget import reservations
from proving.budget.reservations import Caused
from proving.health import report
from proving.health.problems import Problem
from proving.health.service_metrics import Partition, Pending, partitions, pending_of
from proving.models import ChainWatch, FactsRegistry, Signer
from proving.worker import heartbeats
from queries.models import OPEN_STATUSES, Batch, Block, DeliveryStatus, Query, WebhookDelivery

_DAY = timedelta(days=1)
# Days: a signer that lasts for less than the first needs money soon, and what it gets should last for the second.
_FEW_DAYS, _MANY_DAYS = 7, 30
_MOST_ROWS = 20
_MOST_USERS = 20
# Shares of users in transactions that are added up.
_MOST_SHARES = 20_000

# Outcomes that are no failure: an answer, and a batch that is asked for again in smaller parts.
_GOOD = {"answered", "too_long"}

_Row = TypeVar("_Row", bound=Leased)

# Where more is said about a problem: a part of the page, and what the operator may do about it in the admin.
_PLACES = {
    "no_worker": ("workers", ""),
    **dict.fromkeys(("clock", "chain_unavailable", "wrong_chain", "chain_not_watched"), ("nodes", "")),
    **dict.fromkeys(("signer_unfunded", "signer_unreadable", "signer_waits"), ("signers", "proving_signer")),
    **dict.fromkeys(("signing_stopped", "connection_paused", "signer_paused", "node_doubtful"), ("", "proving_stop")),
    **dict.fromkeys(("no_registry", "registry_refused", ""), ("queues", "proving_factsregistry")),
}


@dataclass(frozen=True)
class Need:
    """Something that waits for a person, sentences."""

    sentence: str
    is_urgent: bool  # the service doesn't work until it is done
    part: str = ""  # of the page that says more
    admin: str = ""  # the address of the admin's page about it


@dataclass(frozen=True)
class FailingRow:
    """A row that workers try again and again."""

    kind: str
    batch_id: str  # of one that waits for it; empty: of none
    where: tuple[ChainName, ...]  # its destination, behind its source
    why: str  # a sentence; empty where the log alone knows
    since: datetime
    tries: int
    next_try_at: datetime | None
    admin: str


@dataclass(frozen=True)
class ShownPartition:
    kind: str
    where: tuple[ChainName, ...]
    rows: int
    due: int
    oldest_due: datetime | None


@dataclass(frozen=True)
class ShownWorker:
    name: str
    runs: bool
    started_at: datetime
    beat_at: datetime


@dataclass(frozen=True)
class ShownNode:
    """One URL of a chain, as the workers that run have counted it since they started."""

    chain: ChainName
    host: str
    exchanges: int
    failures: tuple[tuple[str, int], ...]  # by kind, the most frequent first
    seconds: float  # of an exchange, on average

    @property
    def failed(self) -> int:
        return sum(count for _, count in self.failures)

    @property
    def milliseconds(self) -> int:
        return round(self.seconds * 1000)


@dataclass(frozen=True)
class ShownSigner:
    chain: ChainName
    address: str
    balance: int | None  # wei; None: nobody has looked
    minimum: int  # with less it sends nothing
    spent: int  # wei, in 24 hours, the pending at its most
    pending: Pending | None
    final_count: int
    final_failures: int
    notice: str
    admin: str

    @property
    def days(self) -> float | None:
        """Return for how many days it lasts at this rate; None where that isn't known, or nothing is spent."""
        if self.balance is None or not self.spent:
            return None
        return max(0, self.balance - self.minimum) / self.spent

    @property
    def share(self) -> int:
        """Return the days that it lasts as a share of `_MANY_DAYS`, in percent, at most 100."""
        return 0 if self.days is None else min(100, round(100 * self.days / _MANY_DAYS))

    @property
    def is_low(self) -> bool:
        return self.days is not None and self.days < _FEW_DAYS

    @property
    def lacks(self) -> int:
        """Return how many wei it needs besides its balance to last for `_MANY_DAYS`."""
        return max(0, self.minimum + self.spent * _MANY_DAYS - (self.balance or 0))


@dataclass(frozen=True)
class SpendingUser:
    caused: Caused
    chain: ChainName
    admin: str


@dataclass(frozen=True)
class FailingDelivery:
    batch_id: str
    receiver: str  # host and port
    event: str
    given_up: bool
    tries: int  # in a row
    outcome: str  # of the last try, a sentence
    at: datetime  # when it was given up, or is tried next


@dataclass(frozen=True)
class OperatorPage:
    needs: tuple[Need, ...]
    failing: tuple[FailingRow, ...]
    partitions: tuple[ShownPartition, ...]
    workers: tuple[ShownWorker, ...]
    nodes: tuple[ShownNode, ...]
    signers: tuple[ShownSigner, ...]
    users: tuple[SpendingUser, ...]
    users_are_all: bool
    deliveries: tuple[FailingDelivery, ...]
    seen_at: datetime

    @property
    def running(self) -> int:
        return sum(worker.runs for worker in self.workers)

    @property
    def due(self) -> int:
        return sum(partition.due for partition in self.partitions)


def read() -> OperatorPage:
    """Read the page in 30 statements, however much there is to do. Raises `django.db.DatabaseError`."""
    problems, notices = report.findings()
    failing, signers = _failing(), tuple(_signers())
    users, users_are_all = reservations.by_user(_MOST_SHARES)
    deliveries = tuple(_deliveries())
    heard_of = list(heartbeats.of_a_day())
    counted = [counts for worker, runs in heard_of if runs for counts in worker.exchanges or ()]
    return OperatorPage(
        needs=(
            *(_need(problem, is_urgent=True) for problem in problems),
            *(_need(notice, is_urgent=False) for notice in notices),
            *_further_needs(failing, signers, deliveries),
        ),
        failing=failing,
        partitions=tuple(map(_partition, partitions())),
        workers=tuple(
            ShownWorker(
                row.worker,
                runs,
                row.started_at,
                row.beat_at,
            )
            for row, runs in heard_of
        ),
        nodes=tuple(_nodes(counted)),
        signers=signers,
        users=tuple(
            SpendingUser(one, chain_name(one.chain_id), page_of(User(pk=one.user_id))) for one in users[:_MOST_USERS]
        ),
        users_are_all=users_are_all and len(users) <= _MOST_USERS,
        deliveries=deliveries,
        seen_at=timezone.now(),
    )


# --- What needs a person ----------------------------------------------------------------------------------------------


def _need(problem: Problem, *, is_urgent: bool) -> Need:
    part, admin = _PLACES.get(problem.code, ("", ""))
    return Need(problem.sentence, is_urgent, part, reverse(f"admin:{admin}_changelist") if admin else "")


def _further_needs(
    failing: Sequence[FailingRow], signers: Iterable[ShownSigner], deliveries: Iterable[FailingDelivery]
) -> Iterator[Need]:
    """Yield what is no problem yet."""
    if failing:
        many = f"{len(failing)} rows fail" if len(failing) > 1 else "1 row fails"
        more = "At least " if len(failing) == _MOST_ROWS else ""
        yield Need(f"{more}{many} and {'are' if len(failing) > 1 else 'is'} tried again.", False, "rows")
    for signer in signers:
        if signer.is_low:
            yield Need(
                f"The signer {signer.address} on {signer.chain.name} lasts {signer.days:.1f} days. "
                f"{cost(signer.lacks)} {signer.chain.currency} more make it {_MANY_DAYS}.",
                is_urgent=False,
                part="signers",
                admin=signer.admin,
            )
    if given_up := sum(one.given_up for one in deliveries):
        more = "At least " if given_up == _MOST_ROWS else ""
        yield Need(
            f"{more}{given_up} deliver{'ies' if given_up > 1 else 'y'} of webhooks failed for good within a day.",
            is_urgent=False,
            part="webhooks",
        )


def _failing() -> tuple[FailingRow, ...]:
    """Return the rows that fail, the longest first."""
    waiting = Query.objects.filter(block=OuterRef("pk"), step__isnull=False).values("batch_id")[:1]
    rows = [
        *(_row("batch", row, row.pk, row.waiting_for) for row in _of(Batch.objects.filter(status__in=OPEN_STATUSES))),
        *(
            _row("block", row, row.for_batch or "", row.waiting_for)
            for row in _of(Block.objects.defer("header_rlp").annotate(for_batch=Subquery(waiting)))
        ),
        *(_row("registry", row, "", row.waiting_for) for row in _of(FactsRegistry.in_use.all())),
        *(_row("signer", row, "", row.notice) for row in _of(Signer.objects.all())),
    ]
    return tuple(sorted(rows, key=lambda row: row.since)[:_MOST_ROWS])


def _of(rows: "QuerySet[_Row]") -> "QuerySet[_Row]":
    """Return the rows that fail. All that workers come back to are due at some time, which is indexed."""
    return rows.filter(due_at__isnull=False, failing_since__isnull=False).order_by("failing_since")[:_MOST_ROWS]


def _row(kind: str, row: Leased, batch_id: str, why: str) -> FailingRow:
    return FailingRow(
        kind=kind,
        batch_id=batch_id,
        where=_where(getattr(row, "source_chain_id", None), _destination(row)),
        why=why,
        since=row.failing_since or timezone.now(),
        tries=row.attempts,
        next_try_at=row.due_at,
        admin=page_of(row),
    )


def _destination(row: Leased) -> int:
    found: int = row.chain_id if isinstance(row, Signer) else row.destination_chain_id  # type: ignore[attr-defined]
    return found


def _where(source: int | None, destination: int) -> tuple[ChainName, ...]:
    ends = [destination] if source is None else [source, destination]
    return tuple(map(chain_name, ends))


# --- What works on it -------------------------------------------------------------------------------------------------


def _partition(partition: Partition) -> ShownPartition:
    return ShownPartition(
        partition.kind,
        _where(partition.source, partition.destination),
        partition.rows,
        partition.due,
        partition.oldest_due,
    )


def _nodes(counted: Iterable[Exchanges]) -> Iterator[ShownNode]:
    """Yield the nodes of configured chains, also those that nobody has asked yet."""
    outcomes: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for of_worker in counted:
        node = of_worker["chain"], of_worker["node"]
        outcomes[node].update(of_worker["outcomes"])
        seconds[node] += of_worker["seconds"]
    for chain in get_chains().chains:
        for host in dict.fromkeys(chain.hosts):
            node = str(chain.id), host
            exchanges = outcomes[node].total()
            failures = Counter({kind: n for kind, n in outcomes[node].items() if kind not in _GOOD})
            yield ShownNode(
                chain_name(chain.id),
                host,
                exchanges,
                tuple(failures.most_common()),
                seconds[node] / exchanges if exchanges else 0.0,
            )


# --- Money ------------------------------------------------------------------------------------------------------------


def _signers() -> Iterator[ShownSigner]:
    """Yield the signers of destinations that have sent something, or whose balance a worker has seen."""
    watches = {row.chain_id: row for row in ChainWatch.objects.all()}
    rows: dict[int, dict[str, Signer]] = defaultdict(dict)
    for row in Signer.objects.order_by("pk"):
        rows[row.chain_id][row.address] = row
    pending = pending_of([row.pk for of_chain in rows.values() for row in of_chain.values()])
    for chain in get_chains().destinations():
        watch = watches.get(chain.id) or ChainWatch(chain_id=chain.id)
        for address in dict.fromkeys((*(watch.balances or {}), *rows[chain.id])):
            yield _signer(chain, address, watch, rows[chain.id].get(address), pending)


def _signer(
    chain: Chain, address: str, watch: ChainWatch, row: Signer | None, pending: Mapping[int, Pending]
) -> ShownSigner:
    balance = (watch.balances or {}).get(address)
    return ShownSigner(
        chain=chain_name(chain.id),
        address=address,
        balance=None if balance is None else int(balance),
        minimum=chain.minimum_signer_balance_wei,
        spent=int((watch.spent_by_signer or {}).get(address, 0)),
        pending=pending.get(row.pk) if row else None,
        final_count=row.final_count if row else 0,
        final_failures=row.final_failures if row else 0,
        notice=row.notice if row else "",
        admin=page_of(row) if row else "",
    )


# --- Webhooks ---------------------------------------------------------------------------------------------------------


def _deliveries() -> Iterator[FailingDelivery]:
    """Yield what was given up within a day, the newest first, and what is tried again, the longest first."""
    of_webhook = WebhookDelivery.objects.select_related("webhook")
    failing = of_webhook.filter(webhook__due_at__isnull=False, status=DeliveryStatus.PENDING, failures__gt=0)
    given_up = of_webhook.filter(ended_at__gt=timezone.now() - _DAY, status=DeliveryStatus.FAILED)
    for row in (*given_up.order_by("-ended_at")[:_MOST_ROWS], *failing.order_by("created_at")[:_MOST_ROWS]):
        yield FailingDelivery(
            row.webhook_id,
            row.webhook.receiver,
            row.event,
            row.status == DeliveryStatus.FAILED,
            row.failures or len(row.attempts),
            row.attempts[-1]["outcome"] if row.attempts else "",
            row.ended_at or row.next_try_at or row.created_at,
        )
