"""The operator's page: problems, and figures of money, queues, chains and workers. Other users get 404.

No chain is asked. Workers have stored what it shows. It stops sending, as `manage.py stop` does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, TypeVar

from django.db.models import BigIntegerField, Count, F, Min, OuterRef, Prefetch, Q, QuerySet, Subquery, Sum, Window
from django.db.models.functions import Cast
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from accounts.models import User
from api.chain_details import ChainDetail, detail_of_chain
from chains.chains_file import Chain
from config.configured_chains import get_chains
from proving import money, stops
from proving.health import current_problems
from proving.health.current_problems import CurrentProblems
from proving.models import (
    LIVE_STATES,
    ChainWatch,
    Problem,
    Share,
    SignedTransaction,
    Transaction,
    TransactionState,
    WorkerHeartbeat,
)
from proving.money import SignerSpending
from queries import webhooks
from queries.models import (
    ADMITTED_STATUSES,
    OPEN_STATUSES,
    Batch,
    BatchStatus,
    Block,
    DeliveryStatus,
    Query,
    Sender,
)

_DAY_SECONDS = 24 * 3600
# Funds that last for longer are not worth a number.
_LONG_SECONDS = 1000 * _DAY_SECONDS
_WORKERS = 50
# Maximum rows of each list of failing or pending rows, and maximum versions of a transaction.
_ROWS = 20
_VERSIONS = 5


@never_cache
@require_safe
def operator(request: HttpRequest) -> HttpResponse:
    """Show the problems of `/healthz`, and the service's figures, to signed-in operators."""
    _operator_of(request)
    found = current_problems.read()
    watches = {watch.chain_id: watch for watch in ChainWatch.objects.all()}
    # Only open batches are due. SQLite finds them by their status.
    open_batches = Batch.objects.filter(status__in=OPEN_STATUSES)
    context = {
        "needs": [
            (problem.cause, problem.sentence.removeprefix(problem.cause), not problem.is_harmless)
            for problem in (*found.degrading, *found.harmless)
        ],
        "stops": stops.stoppable(),
        "signers": list(_signers(watches)),
        "day": _last_day(),
        "queues": list(_queues()),
        "failing_batches": _failing(open_batches.defer("request").select_related("user")),
        "failing_blocks": _failing(Block.objects.defer("header_rlp").annotate(batch=_first_of_block())),
        "pending": _pending(),
        "most_versions": _VERSIONS,
        "chains": list(_chains(watches, found)),
        "workers": WorkerHeartbeat.objects.order_by("-beat_at")[:_WORKERS],
        "silent_since": timezone.now() - WorkerHeartbeat.SILENCE,
        "undelivered": Problem.objects.exclude(failing_since=None).aggregate(
            count=Count("pk"), since=Min("failing_since")
        ),
    }
    response = render(request, "explorer/operator/page.html", context)
    response.headers["X-Robots-Tag"] = "noindex"
    return response


@never_cache
@require_http_methods(["GET", "POST"])
def stop(request: HttpRequest) -> HttpResponse:
    """Stop the sending that `what` names, or allow it again, on POST. On GET, ask for confirmation and for the reason.

    A stop that isn't the shown one any more stays, because another operator has stopped for another reason.
    """
    user, what = _operator_of(request), request.GET.get("what", "")
    if (subject := stops.stoppable().get(what)) is None:
        raise Http404
    is_stopped, reason, status = bool(subject.pk), request.POST.get("reason", "").strip(), 200
    if request.method == "POST":
        # Only the form that allows sending again says who has stopped it, so its second click stops nothing.
        if "by" not in request.POST:
            is_done = not is_stopped and 0 < len(reason) <= stops.MAX_REASON_CHARS
            if is_done:
                stops.stop_by_operator(subject, reason=reason, user=user)
        else:
            # Browsers send line breaks of a hidden field in another form.
            is_shown = request.POST["by"] == subject.by and reason.split() == subject.reason.split()
            is_done = is_shown or not is_stopped
            if is_done:
                stops.resume_by_operator(subject, user=user)
        if is_done:
            return redirect("explorer:operator")
        status = 409 if is_stopped else 400
    context = {"what": what, "subject": subject, "reason": reason, "most": stops.MAX_REASON_CHARS, "status": status}
    return render(request, "explorer/operator/stop.html", context, status=status)


def _operator_of(request: HttpRequest) -> User:
    if not isinstance(request.user, User) or not request.user.is_staff:
        raise Http404
    return request.user


# --- Money ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SignerFunds:
    """A signer's money in wei."""

    chain: Chain
    address: str
    balance: int
    spending: SignerSpending

    @property
    def lasts_by_day(self) -> int | None:
        """Return for how many seconds the funds last at the pace of the last 24 hours. None: nothing was spent."""
        return self._lasts(self.spending.in_day)

    @property
    def lasts_by_week(self) -> int | None:
        return self._lasts(self.spending.in_week // 7)

    def _lasts(self, wei_in_day: int) -> int | None:
        free = max(0, self.balance - self.spending.reserved - self.chain.minimum_signer_balance_wei)
        return min(_LONG_SECONDS, free * _DAY_SECONDS // wei_in_day) if wei_in_day > 0 else None


def _signers(watches: Mapping[int, ChainWatch]) -> Iterator[SignerFunds]:
    spending = money.by_signer()
    for chain in get_chains().destinations():
        watch = watches.get(chain.id) or ChainWatch()
        for address, wei in (watch.balances or {}).items():
            yield SignerFunds(chain, address, int(wei), spending.get((chain.id, address), SignerSpending()))


# --- Batches ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LastDay:
    """The batches that ended in the last 24 hours."""

    done: int
    rejected: int
    slowest: Batch | None  # of those that are DONE
    dearest: User | None  # the user whose batches used most `gas`; None: none did
    gas: int


def _last_day() -> LastDay:
    since = timezone.now() - timedelta(seconds=_DAY_SECONDS)
    ended = Batch.objects.filter(finished_at__gte=since)
    done, rejected = Q(status=BatchStatus.DONE), Q(status=BatchStatus.REJECTED)
    sums = {"done": Count("pk", filter=done), "rejected": Count("pk", filter=rejected), "gas": Sum("gas_used")}
    # Without the cast SQLite would read the batches of all days, by the index of users.
    by_user: list[Any] = list(ended.values(pk_of_user=Cast("user", BigIntegerField())).annotate(**sums))
    most = max(by_user, key=itemgetter("gas"), default={"gas": 0})
    took = F("finished_at") - F("created_at")
    return LastDay(
        sum(row["done"] for row in by_user),
        sum(row["rejected"] for row in by_user),
        ended.filter(done).only("created_at", "finished_at").order_by(took.desc()).first(),
        User.objects.get(pk=most["pk_of_user"]) if most["gas"] else None,
        most["gas"],
    )


# --- Queues -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WaitingRows:
    """Rows that wait in one stage of the work."""

    count: int = 0
    oldest: datetime | None = None
    first: str | int = ""
    """The primary key of the oldest row, if primary keys grow with time."""


@dataclass(frozen=True)
class DestinationQueues:
    """The rows of a destination that wait."""

    chain: Chain
    admission: WaitingRows
    proving: WaitingRows
    sending: WaitingRows
    confirming: WaitingRows
    webhooks: WaitingRows


def _queues() -> Iterator[DestinationQueues]:
    # Self-funded batches wait for their users.
    batches = Batch.objects.filter(status__in=OPEN_STATUSES, sender=Sender.OPERATOR)
    is_new = Q(status=BatchStatus.RECEIVED)
    admission, proving = _grouped(batches, "destination_chain_id", "created_at", is_new, ~is_new)
    sent = Transaction.objects.filter(state__in=LIVE_STATES)
    is_pending = Q(state=TransactionState.PENDING)
    sending, confirming = _grouped(sent, "signer__chain_id", "spent_at", is_pending, ~is_pending)
    # The due rows are few. An index finds their deliveries.
    due = webhooks.with_destinations().filter(due_at__isnull=False)
    is_pending = Q(deliveries__status=DeliveryStatus.PENDING)
    (due_webhooks,) = _grouped(due, "destination", "deliveries__created_at", is_pending)
    for chain in get_chains().destinations():
        stages = (admission, proving, sending, confirming, due_webhooks)
        yield DestinationQueues(chain, *(stage.get(chain.id, WaitingRows()) for stage in stages))


def _grouped(rows: Any, chain: str, since: str, *stages: Q) -> Sequence[Mapping[int, WaitingRows]]:
    """Return the number of the rows and the oldest time in each stage, by chain, in one statement."""
    sums = {
        f"{name}_{place}": of(column, filter=stage)
        for place, stage in enumerate(stages)
        for name, of, column in (("count", Count, "pk"), ("oldest", Min, since), ("first", Min, "pk"))
    }
    grouped = {row[chain]: row for row in rows.order_by().values(chain).annotate(**sums)}
    return [
        {
            pk: WaitingRows(row[f"count_{place}"], row[f"oldest_{place}"], row[f"first_{place}"])
            for pk, row in grouped.items()
        }
        for place in range(len(stages))
    ]


# --- Failing and pending rows -----------------------------------------------------------------------------------------

_Row = TypeVar("_Row", Batch, Block)


def _failing(rows: QuerySet[_Row]) -> QuerySet[_Row]:
    """Select due rows that fail, the longest failing ones first. Each has the `total` of all."""
    failing = rows.filter(due_at__isnull=False, failing_since__isnull=False)
    return failing.annotate(total=Window(Count("pk"))).order_by("failing_since", "pk")[:_ROWS]


def _first_of_block() -> Subquery:
    """Select the first open batch that waits for a block."""
    waiting = Query.objects.filter(block=OuterRef("pk"), step__isnull=False, batch__status__in=ADMITTED_STATUSES)
    return Subquery(waiting.order_by("pk").values("batch")[:1])


def _pending() -> QuerySet[Transaction]:
    """Select pending transactions, the oldest first, with their newest versions and the first `batch` that pays.

    Each has the `total` of all.
    """
    batch = Subquery(Share.objects.filter(transaction=OuterRef("pk")).order_by("pk").values("batch")[:1])
    pending = Transaction.objects.filter(state=TransactionState.PENDING)
    versions = SignedTransaction.objects.defer("raw").order_by("-pk")[:_VERSIONS]
    shown = pending.annotate(total=Window(Count("pk")), batch=batch).defer("data").select_related("signer")
    return shown.order_by("pk")[:_ROWS].prefetch_related(Prefetch("versions", versions, "newest_versions"))


# --- Chains -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OperatedChain:
    """A worker's last observation of a chain."""

    chain: Chain
    detail: ChainDetail
    resting_nodes: Sequence[Mapping[str, Any]]
    spent: int | None  # wei that count against the daily limit

    @property
    def spent_share(self) -> int:
        """Return the spent part of the daily limit, in percent."""
        limit = self.chain.daily_limit_wei
        return min(100, 100 * (self.spent or 0) // limit) if limit else 100


def _chains(watches: Mapping[int, ChainWatch], found: CurrentProblems) -> Iterator[OperatedChain]:
    for chain in get_chains().chains:
        watch = watches.get(chain.id) or ChainWatch(chain_id=chain.id)
        detail = detail_of_chain(chain, watch, found)
        seen_resting = () if detail.is_stale else watch.resting_nodes
        resting = [node | {"since": datetime.fromisoformat(node["since"])} for node in seen_resting]
        yield OperatedChain(chain, detail, resting, watch.spent_in_day)
