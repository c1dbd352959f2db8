"""Problems of the service, as they are seen now: `read`.

All pages, `/healthz`, `/metrics` and the operator's webhook show them without asking a chain. A worker observes every
configured chain at least every 15 s, even without work, with a few cheap requests. It stores its observations, and so
does `check_chains`. A stored problem is shown no more if it isn't seen again for three of its periods.
"""

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from proving.health.problem_kinds import KIND_BY_CODE, SILENCES, ProblemKind, Reach, Severity
from proving.models import (
    SEEN,
    WATCHED_STATES,
    ChainWatch,
    FactsRegistry,
    Lane,
    Problem,
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

# A signer with one of these waits needs money.
_UNFUNDED = frozenset({"signer_below_minimum", "signer_too_poor", "signer_cant_pay"})


class SeenProblem(NamedTuple):
    """A problem as it is seen now."""

    kind: ProblemKind
    sentence: str
    """Sentences for operators: the cause first, then what to do, or why. They hold no secret and no path of a file."""
    values: dict[str, str] = {}
    """The subject, such as the chain and the signer. It stays the same while amounts in the sentence change."""
    public: str = ""
    """Sentences for everybody, which quote no node and name no command. Empty: the same."""
    row: str = ""
    """The primary key of the `Problem` in which a worker has stored it. Empty: it was computed."""

    @property
    def cause(self) -> str:
        first, end, _ = self.sentence.partition(". ")
        return first + end.rstrip()

    @property
    def for_everybody(self) -> str:
        """Return what public pages show: not what is wrong with a signer."""
        if "signer" in self.values:
            return "A signer of this service has a problem: transactions on this chain may wait."
        return self.public or self.sentence

    @property
    def is_harmless(self) -> bool:
        """Return whether it keeps nothing from working."""
        return self.kind.reach in {Reach.NOTHING, Reach.RISK}


Check: TypeAlias = Callable[[], Iterator[SeenProblem]]
"""It raises `django.db.DatabaseError` where the database does not answer."""
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Let `read` call a function that computes problems from rows, or from what nobody can store."""
    CHECKS.append(function)
    return function


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
STOP = "stop"
"""The value that tells nodes for which a worker has stopped a signer from others."""
SUSPICION = "suspicion"
"""The value that tells foreign transactions that only one node reports from others."""


@check
def workers() -> Iterator[SeenProblem]:
    running = WorkerHeartbeat.running()
    if not running:
        yield SeenProblem(ProblemKind.NO_WORKER, "No worker is running. The service keeps batches, but proves none.")
    old = [worker.worker for worker in running if worker.has_old_chains]
    if old:
        sentence = f"{' and '.join(old)} began before chains.toml was changed, and work by the old one: restart them."
        yield SeenProblem(ProblemKind.CHAINS_FILE_CHANGED, sentence)
    yield from _silent_nodes(running)


@check
def standstills() -> Iterator[SeenProblem]:
    """Yield a problem for each stage that stands still. Test networks have one of their own."""
    stalled = [each for each in _by_lane() if each.seconds > _LONGEST.total_seconds()]
    test_networks = {chain.id for chain in get_chains().chains if chain.test_network}
    for stage, is_test in itertools.product(Stage, (False, True)):
        alike = [each for each in stalled if (each.stage, each.lane.destination in test_networks) == (stage, is_test)]
        if alike:
            seconds, where = max(each.seconds for each in alike), ", ".join(str(each.lane) for each in alike)
            sentence = f"No worker has advanced {stage} for {seconds:,.0f} s, although work is due in: {where}."
            yield SeenProblem(
                ProblemKind.STANDSTILL, sentence, {"kind": stage} | ({NETWORKS: "test"} if is_test else {})
            )


def _silent_nodes(running: Iterable[WorkerHeartbeat]) -> Iterator[SeenProblem]:
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
                yield SeenProblem(ProblemKind.NODE_FAILS, f"{told} {host}, a node of {chain.label}.", about)
        elif host == chain.hosts[0]:
            yield SeenProblem(
                ProblemKind.CHAIN_UNAVAILABLE, f"{told} any node of {chain.label}.", subject(chain.id, method=method)
            )


@check
def chains() -> Iterator[SeenProblem]:
    """Yield the problems that workers have stored where they saw them, and chains that no worker observes."""
    stored = defaultdict[int, list[SeenProblem]](list)
    for row in Problem.seen_lately().filter(code__in=[*KIND_BY_CODE]):
        seen = SeenProblem(KIND_BY_CODE[row.code], row.shown, row.values, row.public, row.pk)
        stored[row.chain_id].append(seen)
    observed = ChainWatch.objects.filter(looked_at__range=(Now() - SEEN, Now() + SEEN)).values_list("pk", flat=True)
    is_observing = WorkerHeartbeat.running().filter(started_at__lt=Now() - _FIRST_OBSERVATIONS).exists()
    order = list(ProblemKind)
    for chain in get_chains().chains:
        yield from sorted(stored[chain.id], key=lambda problem: (order.index(problem.kind), problem.sentence))
        if is_observing and chain.id not in observed:
            minutes = SEEN.total_seconds() / 60
            sentence = f"No worker has observed {chain.label} for {minutes:.0f} minutes, so its state is unknown."
            yield SeenProblem(ProblemKind.CHAIN_NOT_WATCHED, sentence, subject(chain.id))


@check
def stopped() -> Iterator[SeenProblem]:
    """Yield a problem for each stop."""
    destinations = [chain.id for chain in get_chains().destinations()]
    for stop in Stop.objects.filter(chain_id__in=destinations).order_by("chain_id", "source_chain_id", "signer"):
        told = partial(SeenProblem, sentence=stop.sentence_for_operators, public=stop.sentence)
        of_signer = subject(stop.chain_id, signer=stop.signer)
        if stop.code == StopCode.NOT_BELIEVED:
            yield told(ProblemKind.NODE_DOUBTFUL, values=of_signer | {STOP: stop.code})
        elif stop.signer:
            yield told(ProblemKind.SIGNER_PAUSED, values=of_signer)
        elif not stop.source_chain_id:
            yield told(ProblemKind.SIGNING_STOPPED, values=subject(stop.chain_id))
        elif get_chains().connection(stop.source_chain_id, stop.chain_id):
            yield told(ProblemKind.CONNECTION_PAUSED, values=of_connection(stop.source_chain_id, stop.chain_id))


@check
def troubled_signers() -> Iterator[SeenProblem]:
    """Yield the problems of signers that workers have stored with them."""
    destinations = [chain.id for chain in get_chains().destinations()]
    in_trouble = Signer.objects.filter(chain_id__in=destinations).exclude(
        nonce_fault=None, receipt_fault=None, signing_problem=None, foreign_count=0
    )
    # The row of a signer in trouble is due again and again. If it has been due for long, no worker looks at it.
    is_watched = Q(due_at__gt=Now() - SEEN)
    for signer in in_trouble.annotate(is_watched=is_watched).order_by("pk"):
        of_signer = subject(signer.chain_id, signer=signer.address)
        waits = {
            ProblemKind.NONCE_GAP: signer.nonce_fault,
            ProblemKind.RECEIPT_UNUSABLE: signer.receipt_fault,
            ProblemKind.SIGNER_NOT_SIGNING: signer.signing_problem,
        }
        for kind, why in waits.items():
            if why and signer.is_watched:
                yield SeenProblem(kind, why.for_operators, of_signer)
        if signer.foreign_since:
            since, count = signer.foreign_since.timestamp(), signer.foreign_count
            code = "foreign_nonces" if signer.is_robbed else "foreign_nonces_suspected"
            foreign = wait(code, since=since, signer=signer.address, chain=signer.chain_id, count=count)
            suspicion = {} if signer.is_robbed else {SUSPICION: "one node"}
            yield SeenProblem(ProblemKind.FOREIGN_TRANSACTIONS, foreign.for_operators, of_signer | suspicion)


def subject(chain_id: int, **more: str) -> dict[str, str]:
    return {"chainId": str(chain_id), **more}


def of_connection(source: int, destination: int) -> dict[str, str]:
    return {"sourceChainId": str(source), "destinationChainId": str(destination)}


@check
def signers() -> Iterator[SeenProblem]:
    """Yield the problems of signers on chains where batches or transactions wait."""
    waiting = Batch.objects.filter(
        status__in=OPEN_STATUSES, sender=Sender.OPERATOR, destination_chain_id=OuterRef("chain_id")
    )
    # Stops are left out, because `stopped` reports them.
    stops = Stop.objects.filter(chain_id=OuterRef("chain_id"), source_chain_id=0, signer__in=["", OuterRef("address")])
    hindered = Signer.hindered().filter(Exists(waiting), ~Exists(stops))
    # A signer that is stuck waits only where another one sends.
    pending = Signer.objects.filter(~Exists(stops), transactions__state=TransactionState.PENDING)
    since = pending.annotate(nonce=Min("transactions__nonce"), since=Min("transactions__spent_at")).order_by("pk")
    refused = Transaction.objects.filter(state=TransactionState.PENDING).exclude(error=None).order_by("-nonce")
    rows = refused.values_list("signer", "nonce", "error")
    errors = {(signer, nonce): error for signer, nonce, error in rows if error and error.words}
    unsent = {signer: nonce for (signer, nonce), error in errors.items() if error.code == NODE_FAILS}
    for chain in get_chains().destinations():
        # Several signers of a chain may have the same problem. It is about the first one.
        signer_by_sentence: dict[str, str] = {}
        for signer in hindered:
            # Money for a signer whose key is stolen would go to the thief.
            is_in_vain = signer.is_robbed and signer.wait and signer.wait.code in _UNFUNDED
            if signer.chain_id == chain.id and signer.wait and not is_in_vain:
                signer_by_sentence.setdefault(signer.wait.for_operators, signer.address)
        for sentence, address in signer_by_sentence.items():
            yield SeenProblem(ProblemKind.SIGNER_WAITS, sentence, subject(chain.id, signer=address))
        for signer in since:
            is_stuck = signer.chain_id == chain.id and abs(clock.earliest() - signer.since) > stuck_after(chain)
            nonce = unsent.get(signer.pk, signer.nonce if is_stuck else None)
            if signer.chain_id == chain.id and nonce is not None and signer.address not in signer_by_sentence.values():
                effect = "can't be sent" if signer.pk in unsent else "is pending for long"
                sentence = (
                    f"The transaction with nonce {nonce} of the signer {signer.address} on {chain.label} {effect}, "
                )
                sentence += "and later ones wait for it."
                error = errors.get((signer.pk, nonce))
                sentence = with_words(sentence, error.words if error else "")
                yield SeenProblem(ProblemKind.SIGNER_WAITS, sentence, subject(chain.id, signer=signer.address))


@check
def facts_registries() -> Iterator[SeenProblem]:
    """Yield the problems of connections."""
    deployed = FactsRegistry.in_use.exclude(deployed_at=None)
    rows = {(row.source_chain_id, row.destination_chain_id): row for row in deployed}
    for connected in get_chains().connections:
        ends = connected.source_id, connected.destination_id
        row = rows.get(ends)
        if row is None:
            lacking = deployments.not_deployed(connected.destination_id, connected.source_id)
            yield SeenProblem(ProblemKind.NO_REGISTRY, lacking.for_operators, of_connection(*ends), str(lacking))
        elif row.refused:
            refusal = row.refusal
            yield SeenProblem(ProblemKind.REGISTRY_REFUSED, refusal.for_operators, of_connection(*ends), str(refusal))
        if row and not row.refused and (ends_at := deployments.history_ends_at(row)):
            yield from _of_history(row, connected, ends_at)
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
            yield SeenProblem(ProblemKind.CONNECTION_MISSING, sentence, of_connection(source, destination))


def _of_history(row: FactsRegistry, connected: Connection, ends_at: datetime) -> Iterator[SeenProblem]:
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
    yield SeenProblem(ProblemKind.HISTORY_ENDS, ends.for_operators, of_connection(source.id, destination.id), str(ends))


@check
def storing() -> Iterator[SeenProblem]:
    if sentence := database_check.problem():
        yield SeenProblem(ProblemKind.STORAGE, sentence)


@check
def pooled() -> Iterator[SeenProblem]:
    if sentence := pooler.problem():
        yield SeenProblem(ProblemKind.POOLER_LIMITS, sentence)


@check
def attesters() -> Iterator[SeenProblem]:
    """Yield the risks of configured connections. Those of other connections would never end."""
    for row in FactsRegistry.in_use.exclude(risk=None).order_by("pk"):
        if get_chains().connection(row.source_chain_id, row.destination_chain_id):
            for risk in row.current_risks:
                yield SeenProblem(
                    ProblemKind.RISK, str(risk), of_connection(row.source_chain_id, row.destination_chain_id)
                )


@check
def users_webhooks() -> Iterator[SeenProblem]:
    """Yield a problem if nothing has been delivered since the first of the deliveries that fail now."""
    failing = webhooks.failing()
    if failing and (lasting := clock.earliest() - failing.since) > _WEBHOOKS_MAY_FAIL:
        sentence = (
            f"No webhook of users was delivered for {lasting.total_seconds() / 60:,.0f} minutes. Those that failed: "
        )
        sentence += f"{failing.webhooks}, to this number of receivers: {failing.receivers}."
        yield SeenProblem(ProblemKind.WEBHOOKS_FAILING, sentence)


@dataclass(frozen=True)
class CurrentProblems:
    """The problems that are seen now."""

    seen: Sequence[SeenProblem] = ()

    @property
    def degrading(self) -> list[SeenProblem]:
        """Return the problems that keep the service from working."""
        return [problem for problem in self.seen if not problem.is_harmless]

    @property
    def harmless(self) -> list[SeenProblem]:
        """Return the problems that the operator must look into while the service works."""
        return [problem for problem in self.seen if problem.is_harmless]

    def about_chain(self, chain_id: int) -> list[str]:
        """Return the sentences for everybody about a chain."""
        return self._about(subject(chain_id))

    def about_connection(self, source: int, destination: int) -> list[str]:
        """Return the sentences about a connection. A stop of all sending on its destination is one of them."""
        stop = (ProblemKind.SIGNING_STOPPED, subject(destination))
        stops = [each.for_everybody for each in self.seen if (each.kind, each.values) == stop]
        return stops + self._about(of_connection(source, destination))

    def _about(self, values: Mapping[str, str]) -> list[str]:
        told = (*self.degrading, *self.harmless)
        return list(dict.fromkeys(each.for_everybody for each in told if values.items() <= each.values.items()))


def read(checks: Iterable[Check] = CHECKS) -> CurrentProblems:
    """Return the problems that are seen now. Raises `django.db.DatabaseError`."""
    seen = [problem for check in checks for problem in check()]
    silenced = [(kind, each.values) for each in seen for kind in SILENCES.get(each.kind, ())]
    return CurrentProblems(
        [each for each in seen if (each.kind, each.values) not in silenced and (each.kind, {}) not in silenced]
    )


def of_chains() -> CurrentProblems:
    """Return the problems of chains and connections, for public pages."""
    return read([chains, stopped, troubled_signers, signers, facts_registries, attesters])


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


def severity_of(chain: Chain) -> Severity:
    """Return the severity of a standstill of all batches to this chain."""
    is_of_value = chain in get_chains().destinations() and not chain.test_network
    return Severity.CRITICAL if is_of_value else Severity.WARNING


def critical(problems: Sequence[SeenProblem]) -> list[SeenProblem]:
    """Return the critical ones of the problems, which are all that are known."""
    chains = {str(chain.id): chain for chain in get_chains().chains if severity_of(chain) == Severity.CRITICAL}
    reached = [(problem, _reach(problem), chains.get(problem.values.get("chainId", ""))) for problem in problems]
    # Another signer of the chain, or another URL, may go on.
    troubled = Counter(
        {
            (reach, chain.id, problem.values.get("url" if reach == Reach.URL else "signer")): (reach, chain.id)
            for problem, reach, chain in reached
            if chain and reach in {Reach.SIGNER, Reach.URL}
        }.values()
    )

    def is_critical(reach: Reach, chain: Chain | None) -> bool:
        if chain is None or reach in {Reach.SERVICE, Reach.STAGE}:
            return reach in {Reach.SERVICE, Reach.STAGE}
        if reach in {Reach.SIGNER, Reach.URL}:
            return troubled[reach, chain.id] >= len(chain.all_signers if reach == Reach.SIGNER else chain.rpc_urls)
        return reach == Reach.CHAIN

    return [problem for problem, reach, chain in reached if is_critical(reach, chain)]


def _reach(problem: SeenProblem) -> Reach:
    """Return what a problem stops, which its values may lessen."""
    reach = problem.kind.reach
    is_less = (
        (reach == Reach.STAGE and (problem.values["kind"] == Stage.WEBHOOKS or NETWORKS in problem.values))
        or SUSPICION in problem.values
        or (problem.kind == ProblemKind.NODE_DOUBTFUL and STOP not in problem.values)
    )
    return Reach.PART if is_less else reach
