"""Problems of the service, and notices about risks: `findings`.

All pages, `/healthz`, `/metrics` and the operator's webhook show them without asking a chain. A worker observes every
configured chain at least every 15 s, even without work, with a few cheap requests. It stores its observations, and so
does `check_chains`. A stored problem is shown no more if it isn't seen again for three of its periods.
"""

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from django.db.models import Exists, Min, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Now

from chains.chains_file import Chain, Connection
from chains.nodes.node_errors import with_words
from config.configured_chains import get_chains
from config.database import due_rows, pooler
from proving.models import (
    SEEN,
    WATCHED_STATES,
    ChainWatch,
    FactsRegistry,
    Lane,
    Signer,
    Stop,
    StopCode,
    Transaction,
    TransactionState,
    WorkerHeartbeat,
)
from proving.registries import deployments
from proving.sending.signers import stuck_after
from proving.working import lanes
from proving.working.lanes import LaneKind, LaneName
from queries import clock, database_check, webhooks
from queries.models import OPEN_STATUSES, Batch, Query, Sender
from queries.waits import NODE_FAILS, wait

CODES = (
    *("storage", "no_worker", "standstill", "clock", "chain_unavailable", "wrong_chain", "wrong_history"),
    *("chain_not_watched", "head_went_back", "node_syncing", "no_proofs", "node_fails"),
    *("signer_unfunded", "signer_unreadable", "signer_waits", "nonce_gap", "node_doubtful", "signing_stopped"),
    *("no_registry", "registry_refused", "connection_paused", "signer_paused", "receipt_unusable"),
    *("signer_not_signing", "foreign_transactions", "chains_file_changed", "webhooks_failing"),
    *("connection_missing", "fork_ahead", "transactions_fail", "history_ends", "finality_stands", "pooler_limits"),
    "no_beacon_node",
)
"""The codes of `/healthz`, as docs/operating/runbook.md explains them, besides `database_unavailable`."""
DATABASE_UNAVAILABLE = "database_unavailable"
# A worker stores its heartbeats and its work, so nothing is known of either while nothing can be stored.
STORED = frozenset({"no_worker", "standstill"})
# A signer with one of these waits needs money.
_UNFUNDED = frozenset({"signer_below_minimum", "signer_too_poor", "signer_cant_pay"})
# Nothing need be wrong with a chain that has these.
_OF_NOTICES = frozenset({"fork_ahead", "finality_stands"})


class Problem(NamedTuple):
    code: str
    """A stable word, on which monitoring may rely."""
    sentence: str
    """Sentences for people: the cause first, then what to do, or why. They hold no secret and no path of a file."""
    values: dict[str, str] = {}
    """The subject, such as the chain and the signer. It stays the same while amounts in the sentence change."""

    @property
    def cause(self) -> str:
        first, end, _ = self.sentence.partition(". ")
        return first + end.rstrip()

    @property
    def for_everybody(self) -> "Problem":
        """Return the problem as public pages tell it: without what is wrong with a signer."""
        if "signer" not in self.values:
            return self
        return self._replace(sentence="A signer of this service has a problem: transactions on this chain may wait.")


# Time before a fork from which on it is reported.
FORK_TOLD = timedelta(days=60)
# How long all webhooks of users may fail.
_WEBHOOKS_MAY_FAIL = timedelta(minutes=10)
# How long a new worker has for its first observations.
_FIRST_OBSERVATIONS = timedelta(minutes=1)
# The number of time-outs of a method after which a node doesn't answer it for long. That of a transaction counts twice.
_SILENT_FOR_LONG = 4


NETWORKS = "networks"
"""The value that tells standstills of test networks from others."""
QUOTING = "quoting"
"""The value of a stored problem with its sentence for operators, which quotes a node."""
STOP = "stop"
"""The value that tells doubts for which a worker has stopped a signer from others."""
SUSPICION = "suspicion"
"""The value that tells foreign transactions that only one node reports from others."""


def workers() -> Iterator[Problem]:
    running = WorkerHeartbeat.running()
    if not running:
        yield Problem("no_worker", "No worker is running. The service keeps batches, but proves none.")
    old = [worker.worker for worker in running if worker.has_old_chains]
    if old:
        sentence = f"{' and '.join(old)} began before chains.toml was changed, and work by the old one: restart them."
        yield Problem("chains_file_changed", sentence)
    yield from _silent_nodes(running)


def standstills() -> Iterator[Problem]:
    """Yield a problem for each stage that stands still. Test networks have one of their own."""
    stalled = [each for each in _by_lane() if each.seconds > _LONGEST.total_seconds()]
    test_networks = {chain.id for chain in get_chains().chains if chain.test_network}
    for stage, is_test in itertools.product(Stage, (False, True)):
        alike = [each for each in stalled if (each.stage, each.lane.destination in test_networks) == (stage, is_test)]
        if alike:
            seconds, where = max(each.seconds for each in alike), ", ".join(str(each.lane) for each in alike)
            sentence = f"No worker has advanced {stage} for {seconds:,.0f} s, although work is due in: {where}."
            yield Problem("standstill", sentence, {"kind": stage} | ({NETWORKS: "test"} if is_test else {}))


def _silent_nodes(running: Iterable[WorkerHeartbeat]) -> Iterator[Problem]:
    """Yield a problem for each method that workers found unanswered at least twice. One time-out is an accident.

    If no node of a chain answers a method of one worker for long, the chain can't be used. A request that hangs may
    have come to several workers.
    """
    configured = {chain.id: chain for chain in get_chains().chains}
    times: dict[tuple[Chain, str, str], list[int]] = {}
    words: dict[tuple[Chain, str, str], str] = {}
    for each in itertools.chain.from_iterable(worker.unanswered for worker in running):
        if (chain := configured.get(each["chain"])) and each["host"] in chain.hosts:
            key = chain, each["host"], each["method"]
            times.setdefault(key, []).append(each["times"])
            words[key] = each["words"]
    for (chain, host, method), of_workers in sorted(times.items(), key=lambda item: item[0][1:]):
        told = f"{method}: {words[chain, host, method]} from"
        if any(max(times.get((chain, other, method), [0])) < _SILENT_FOR_LONG for other in chain.hosts):
            if sum(of_workers) > 1:
                about = subject(chain.id, node=host, method=method)
                yield Problem("node_fails", f"{told} {host}, a node of {chain.label}.", about)
        elif host == chain.hosts[0]:
            yield Problem("chain_unavailable", f"{told} any node of {chain.label}.", subject(chain.id, method=method))


def chains(*, quotes_nodes: bool = True) -> Iterator[Problem]:
    """Yield the problems of chains, according to a running worker's observations. Only operators get nodes' words."""
    configured = {chain.id: chain for chain in get_chains().chains}
    seen = ChainWatch.objects.filter(pk__in=configured, looked_at__range=(Now() - SEEN, Now() + SEEN))
    problems = dict(seen.values_list("chain_id", "problems"))
    is_observing = WorkerHeartbeat.running().filter(started_at__lt=Now() - _FIRST_OBSERVATIONS).exists()
    for chain_id, chain in configured.items():
        if chain_id in problems:
            for problem in (Problem(*stored) for stored in problems[chain_id]):
                quoting = problem.values.pop(QUOTING, problem.sentence)
                yield problem._replace(sentence=quoting) if quotes_nodes else problem
        elif is_observing:
            minutes = SEEN.total_seconds() / 60
            sentence = f"No worker has observed {chain.label} for {minutes:.0f} minutes, so its state is unknown."
            yield Problem("chain_not_watched", sentence, subject(chain_id))


def stopped(*, tells_who: bool = True) -> Iterator[Problem]:
    """Yield a problem for each stop. Only operators are told who has stopped (`tells_who`)."""
    destinations = [chain.id for chain in get_chains().destinations()]
    for stop in Stop.objects.filter(chain_id__in=destinations).order_by("chain_id", "source_chain_id", "signer"):
        sentence = stop.sentence_for_operators if tells_who else stop.sentence
        of_signer = subject(stop.chain_id, signer=stop.signer)
        if stop.code == StopCode.NOT_BELIEVED:
            yield Problem("node_doubtful", sentence, of_signer | {STOP: stop.code})
        elif stop.signer:
            yield Problem("signer_paused", sentence, of_signer)
        elif not stop.source_chain_id:
            yield Problem("signing_stopped", sentence, subject(stop.chain_id))
        elif get_chains().connection(stop.source_chain_id, stop.chain_id):
            yield Problem("connection_paused", sentence, _connection(stop.source_chain_id, stop.chain_id))


def troubled_signers(*, quotes_nodes: bool = True) -> Iterator[Problem]:
    """Yield the problems of signers that workers have stored with them. Only operators see nodes' words."""
    destinations = [chain.id for chain in get_chains().destinations()]
    in_trouble = Signer.objects.filter(chain_id__in=destinations).exclude(
        nonce_fault=None, receipt_fault=None, signing_problem=None, foreign_count=0
    )
    # The row of a signer in trouble is due again and again. If it has been due for long, no worker looks at it.
    is_watched = Q(due_at__gt=Now() - SEEN)
    for signer in in_trouble.annotate(is_watched=is_watched).order_by("pk"):
        of_signer = subject(signer.chain_id, signer=signer.address)
        faults = {
            "nonce_gap": signer.nonce_fault,
            "receipt_unusable": signer.receipt_fault,
            "signer_not_signing": signer.signing_problem,
        }
        for code, fault in faults.items():
            if fault and signer.is_watched:
                yield Problem(code, fault.for_operators if quotes_nodes else str(fault), of_signer)
        if signer.foreign_since:
            since, count = signer.foreign_since.timestamp(), signer.foreign_count
            code = "foreign_nonces" if signer.is_robbed else "foreign_nonces_suspected"
            foreign = wait(code, since=since, signer=signer.address, chain=signer.chain_id, count=count)
            suspicion = {} if signer.is_robbed else {SUSPICION: "one node"}
            yield Problem("foreign_transactions", foreign.for_operators, of_signer | suspicion)


def subject(chain_id: int, **more: str) -> dict[str, str]:
    return {"chainId": str(chain_id), **more}


def _connection(source: int, destination: int) -> dict[str, str]:
    return {"sourceChainId": str(source), "destinationChainId": str(destination)}


def signers(*, quotes_nodes: bool = True) -> Iterator[Problem]:
    """Yield the problems of signers on chains where batches or transactions wait. Only operators see nodes' words."""
    waiting = Batch.objects.filter(
        status__in=OPEN_STATUSES, sender=Sender.OPERATOR, destination_chain_id=OuterRef("chain_id")
    )
    # Stops are left out, because `stopped` reports them.
    stops = Stop.objects.filter(chain_id=OuterRef("chain_id"), source_chain_id=0, signer__in=["", OuterRef("address")])
    hindered = Signer.hindered().filter(Exists(waiting), ~Exists(stops))
    # A signer that is stuck gets a notice only where another one sends.
    pending = Signer.objects.filter(~Exists(stops), transactions__state=TransactionState.PENDING)
    since = pending.annotate(nonce=Min("transactions__nonce"), since=Min("transactions__spent_at")).order_by("pk")
    refused = Transaction.objects.filter(state=TransactionState.PENDING).exclude(error=None).order_by("-nonce")
    rows = refused.values_list("signer", "nonce", "error")
    errors = {(signer, nonce): error for signer, nonce, error in rows if error and error.words}
    unsent = {signer: nonce for (signer, nonce), error in errors.items() if error.code == NODE_FAILS}
    for chain in get_chains().destinations():
        # Several signers of a chain may have the same notice. It is about the first one.
        signer_by_notice: dict[str, str] = {}
        for signer in hindered:
            # Money for a signer whose key is stolen would go to the thief.
            is_in_vain = signer.is_robbed and signer.wait and signer.wait.code in _UNFUNDED
            if signer.chain_id == chain.id and signer.wait and not is_in_vain:
                notice = signer.wait.for_operators if quotes_nodes else str(signer.wait)
                signer_by_notice.setdefault(notice, signer.address)
        for notice, address in signer_by_notice.items():
            yield Problem("signer_waits", notice, subject(chain.id, signer=address))
        for signer in since:
            is_stuck = signer.chain_id == chain.id and abs(clock.earliest() - signer.since) > stuck_after(chain)
            nonce = unsent.get(signer.pk, signer.nonce if is_stuck else None)
            if signer.chain_id == chain.id and nonce is not None and signer.address not in signer_by_notice.values():
                fault = "can't be sent" if signer.pk in unsent else "is pending for long"
                sentence = (
                    f"The transaction with nonce {nonce} of the signer {signer.address} on {chain.label} {fault}, "
                )
                sentence += "and later ones wait for it."
                error = errors.get((signer.pk, nonce)) if quotes_nodes else None
                sentence = with_words(sentence, error.words if error else "")
                yield Problem("signer_waits", sentence, subject(chain.id, signer=signer.address))


def facts_registries(*, for_operators: bool = True) -> Iterator[Problem]:
    """Yield the problems of connections. Only operators get commands."""
    deployed = FactsRegistry.in_use.exclude(deployed_at=None)
    rows = {(row.source_chain_id, row.destination_chain_id): row for row in deployed}
    for connected in get_chains().connections:
        ends = connected.source_id, connected.destination_id
        row = rows.get(ends)
        if row is None:
            lacking = deployments.not_deployed(connected.destination_id, connected.source_id)
            yield Problem("no_registry", lacking.for_operators if for_operators else str(lacking), _connection(*ends))
        elif row.refused:
            sentence = row.refusal.for_operators if for_operators else str(row.refusal)
            yield Problem("registry_refused", sentence, _connection(*ends))
        elif why := row.current_given_up:
            sentence = f"Batches for facts of chain {ends[0]} on chain {ends[1]} wait until their deadlines: {why}"
            yield Problem("transactions_fail", sentence, _connection(*ends))
        if row and not row.refused and (ends_at := deployments.history_ends_at(row)):
            yield from _of_history(row, connected, ends_at, for_operators=for_operators)
    for source, destination in rows:
        if get_chains().connection(source, destination):
            continue
        waiting = Query.objects.filter(
            batch__status__in=OPEN_STATUSES, block__source_chain_id=source, block__destination_chain_id=destination
        )
        if count := waiting.values("batch").distinct().count():
            batches = "1 open batch waits" if count == 1 else f"{count:,} open batches wait"
            sentence = f"{batches} for facts of chain {source} on chain {destination}. chains.toml no longer connects "
            sentence += "them: write the connection back, or cancel the batches."
            yield Problem("connection_missing", sentence, _connection(source, destination))


def _of_history(
    row: FactsRegistry, connected: Connection, ends_at: datetime, *, for_operators: bool
) -> Iterator[Problem]:
    """Yield a problem if the beacon history of a connection's registry ends soon, or has ended."""
    source, destination = (get_chains().chain(chain_id) for chain_id in (connected.source_id, connected.destination_id))
    seen = ChainWatch.objects.filter(pk=source.id).values_list("timestamp", flat=True).first() or 0
    left = ends_at.timestamp() - max(time.time(), seen)
    if left > FORK_TOLD.total_seconds():
        return
    effect = "no jump begins or ends after that slot"
    if connected.block_hash_source == "beacon-roots":
        # The destination holds this number of roots (EIP-4788). Rounded down.
        hours = int(8191 * destination.block_seconds / 360) / 10
        effect = f"nothing new is recorded from {hours:.2g} hours after that slot on"
    is_replaceable = deployments.would_know_more(row)
    why, before = deployments.why_history_ends(row), " Replace the registry before." if is_replaceable else ""
    sentence = f"{why} {source.label} has passed it. " if left <= 0 else f"{why}{before} "
    sentence += f"What is recorded stays good, but {'without another registry ' if is_replaceable else ''}{effect}."
    ends = deployments.history_wait(row, sentence)
    told = ends.for_operators if for_operators else str(ends)
    yield Problem("history_ends", told, _connection(source.id, destination.id))


def storing() -> Iterator[Problem]:
    if sentence := database_check.problem():
        yield Problem("storage", sentence)


def pooled() -> Iterator[Problem]:
    if sentence := pooler.problem():
        yield Problem("pooler_limits", sentence)


def attesters() -> Iterator[Problem]:
    """Yield notices about configured connections that work. They are sentences for the operator, without a code.

    Notices of other connections are left out, because nothing would ever remove them.
    """
    for row in FactsRegistry.in_use.exclude(risk=None).order_by("pk"):
        if get_chains().connection(row.source_chain_id, row.destination_chain_id):
            for risk in row.current_risks:
                yield Problem("", str(risk), _connection(row.source_chain_id, row.destination_chain_id))


def users_webhooks() -> Iterator[Problem]:
    """Yield a notice if nothing has been delivered since the first of the deliveries that fail now."""
    failing = webhooks.failing()
    if failing and (lasting := clock.earliest() - failing.since) > _WEBHOOKS_MAY_FAIL:
        sentence = (
            f"No webhook of users was delivered for {lasting.total_seconds() / 60:,.0f} minutes. Those that failed: "
        )
        sentence += f"{failing.webhooks}, to this number of receivers: {failing.receivers}."
        yield Problem("webhooks_failing", sentence)


Check: TypeAlias = Callable[[], Iterator[Problem]]
"""It raises `django.db.DatabaseError` where the database does not answer."""
CHECKS: tuple[Check, ...] = (
    *(workers, standstills, chains, stopped),
    *(troubled_signers, signers, facts_registries, storing, pooled),
)


@dataclass(frozen=True)
class Findings:
    """The problems and risks that workers have found."""

    problems: list[Problem] = field(default_factory=list)
    """Problems that keep the service from working."""
    notices: list[Problem] = field(default_factory=list)
    """Risks that the operator must look into."""

    def about_chain(self, chain_id: int) -> list[str]:
        return self._about(subject(chain_id))

    def about_connection(self, source: int, destination: int) -> list[str]:
        """Return the sentences about a connection. A stop of all sending on its destination is one of them."""
        chain = subject(destination)
        stops = [each.sentence for each in self.problems if (each.code, each.values) == ("signing_stopped", chain)]
        return stops + self._about(_connection(source, destination))

    def _about(self, values: Mapping[str, str]) -> list[str]:
        found = (*self.problems, *self.notices)
        about = (each.sentence for each in found if values.items() <= each.values.items())
        return list(dict.fromkeys(about))


def findings(checks: Iterable[Check] = CHECKS) -> Findings:
    """Return what workers have found. Raises `django.db.DatabaseError`."""
    problems = [problem for check in checks for problem in check()]
    if any(problem.code == "storage" for problem in problems):
        problems = [problem for problem in problems if problem.code not in STORED]
    # A thief would take the money, as in `signers`.
    robbed = [problem.values for problem in problems if problem.code == "foreign_transactions"]
    problems = [each for each in problems if each.code != "signer_unfunded" or each.values not in robbed]
    notices = [problem for problem in problems if problem.code in _OF_NOTICES]
    problems = [problem for problem in problems if problem not in notices]
    return Findings(problems, [*notices, *attesters(), *users_webhooks()])


def of_chains() -> Findings:
    """Return what workers have found about chains and connections, for public pages."""
    unquoted = (partial(check, quotes_nodes=False) for check in (chains, troubled_signers, signers))
    found = findings([*unquoted, partial(stopped, tells_who=False), partial(facts_registries, for_operators=False)])
    return Findings(*([each.for_everybody for each in told] for told in (found.problems, found.notices)))


# --- Standstills ------------------------------------------------------------------------------------------------------
#
# How long work has stood still: whether workers advance what they could, whatever their heartbeats say. The age of the
# oldest due row isn't enough, because rows of a backlog wait for their turn. So a lane stands still only since its
# holder's last write. The lane of history has no stage, because one fetch takes minutes without a write.

_LONGEST = timedelta(seconds=30)
"""A lane that stands still for longer is a problem. It is longer than a node that hangs keeps a turn. Rows that a turn
has taken are due again after `LEASE_SECONDS`, so with its default a turn that hangs is told within a minute."""


class Stage(StrEnum):
    ADMISSION = "admission"
    PROVING = "proving"
    SENDING = "sending"
    CONFIRMING = "confirming"
    WEBHOOKS = "webhooks"


class Standstill(NamedTuple):
    stage: Stage
    lane: LaneName
    seconds: float


_STAGES: dict[LaneKind, Stage] = {
    LaneKind.ADMISSION: Stage.ADMISSION,
    LaneKind.LARGE_ADMISSION: Stage.ADMISSION,
    LaneKind.CONNECTION: Stage.PROVING,
    LaneKind.WEBHOOKS: Stage.WEBHOOKS,
}


def _by_lane() -> list[Standstill]:
    """Return the lanes in which something is due, and for how long nothing was advanced there."""
    names = {str(name): name for name in lanes.every()}
    (first, *others) = [_oldest(stage, name, rows) for name in names.values() for stage, rows in _queues(name)]
    oldest = list(first.union(*others))
    # A time in the future was stored by a clock that was ahead.
    advanced = Lane.objects.filter(advanced_at__lte=Now() + due_rows.MILLISECOND)
    times = dict(advanced.values_list("name", "advanced_at"))
    return [
        Standstill(Stage(stage), names[lane], max(0.0, (now - max(since, times.get(lane, since))).total_seconds()))
        for stage, lane, now, since in oldest
    ]


def longest_standstills() -> dict[str, float]:
    """Return the longest standstill of each stage, in seconds. 0: nothing is due that isn't advanced."""
    seconds: dict[str, float] = {stage.value: 0.0 for stage in Stage}
    for stage, _, lasting in _by_lane():
        seconds[stage] = max(seconds[stage], lasting)
    return seconds


def _queues(name: LaneName) -> Iterator[tuple[Stage, QuerySet[Any]]]:
    if name.kind == LaneKind.DESTINATION:
        mined = set(WATCHED_STATES) - {TransactionState.PENDING}
        for stage, states in ((Stage.SENDING, {TransactionState.PENDING}), (Stage.CONFIRMING, mined)):
            transactions = Transaction.objects.filter(signer=OuterRef("pk"), state__in=states)
            yield stage, lanes.rows(name).filter(Exists(transactions))
    elif name.kind in _STAGES:
        yield _STAGES[name.kind], lanes.rows(name)


def _oldest(stage: Stage, name: LaneName, rows: QuerySet[Any]) -> QuerySet[Any, tuple[Any, ...]]:
    """Return the lane's stage and name, the database's time, and when the oldest row became due, if one is."""
    of_lane = due_rows.due(rows).order_by().annotate(stage=Value(stage.value), lane=Value(str(name)), now=Now())
    oldest: QuerySet[Any, tuple[Any, ...]] = of_lane.values_list("stage", "lane", "now").annotate(since=Min("due_at"))
    return oldest


# --- Severities -------------------------------------------------------------------------------------------------------
#
# Which problems get a person out of bed: those by which money is lost, or all batches to a chain of value stand still.
# Others wait for the morning, and so does all that concerns test networks and sources.


class Severity(StrEnum):
    CRITICAL = "critical"
    WARNING = "warning"


# Nothing is served or proven.
_OF_SERVICE = frozenset({DATABASE_UNAVAILABLE, "storage", "no_worker", "chains_file"})
_OF_CHAIN = frozenset({"chain_unavailable", "foreign_transactions", "signer_waits"})
# Another signer of the chain, or another URL, may go on.
_OF_EACH_SIGNER = frozenset({"signer_unfunded", "signer_unreadable", "signer_not_signing"})
_OF_EACH_URL = "wrong_chain"
CRITICAL_CODES = _OF_SERVICE | _OF_CHAIN | _OF_EACH_SIGNER | {_OF_EACH_URL, "standstill", "node_doubtful"}
"""The codes of problems that may be critical."""


def severity_of(chain: Chain) -> Severity:
    """Return the severity of a standstill of all batches to this chain."""
    is_of_value = chain in get_chains().destinations() and not chain.test_network
    return Severity.CRITICAL if is_of_value else Severity.WARNING


def critical(problems: Sequence[Problem]) -> list[Problem]:
    """Return the critical ones of the problems, which are all that are known."""
    chains = {str(chain.id): chain for chain in get_chains().chains if severity_of(chain) == Severity.CRITICAL}
    troubled = _troubled(filter(_is_of_signer, problems), "signer")
    wrong = _troubled((problem for problem in problems if problem.code == _OF_EACH_URL), "url")
    found: list[Problem] = []
    for problem in problems:
        chain = chains.get(problem.values.get("chainId", ""))
        if problem.code == "standstill":
            is_critical = problem.values["kind"] != Stage.WEBHOOKS and NETWORKS not in problem.values
        elif problem.code in _OF_SERVICE or chain is None:
            is_critical = problem.code in _OF_SERVICE
        elif _is_of_signer(problem):
            is_critical = troubled[str(chain.id)] >= len(chain.all_signers)
        elif problem.code == _OF_EACH_URL:
            is_critical = wrong[str(chain.id)] >= len(chain.rpc_urls)
        else:
            is_critical = problem.code in _OF_CHAIN and SUSPICION not in problem.values
        if is_critical:
            found.append(problem)
    return found


def _is_of_signer(problem: Problem) -> bool:
    return problem.code in _OF_EACH_SIGNER or STOP in problem.values


def _troubled(problems: Iterable[Problem], kind: str) -> Counter[str]:
    """Return for each chain how many of its signers, or URLs, have one of these problems. `kind` is their value."""
    return Counter(chain for chain, _ in {(each.values.get("chainId", ""), each.values.get(kind)) for each in problems})
