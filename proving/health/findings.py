"""Problems of the service, and notices about risks: `findings`.

All pages, `/healthz`, `/metrics` and the operator's webhook show them without asking a chain. A worker observes every
configured chain at least every 15 s, even without work, with a few cheap requests. It stores its observations, and so
does `check_chains`. A stored problem is shown no more if it isn't seen again for three of its periods.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product, zip_longest
from typing import Any, NamedTuple, TypeAlias

from django.db.models import Exists, Max, Min, OuterRef, Q
from django.db.models.functions import Now
from django.utils import timezone

from chains.chains_file import Chain
from chains.encoding import HISTORY_CONTRACT, history_slot, in_units
from chains.nodes import questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import ChainError, NodeOfWrongChain, NodeUnavailable, RpcRefused
from chains.nodes.rpc import KEPT_BELOW, TIMES_DOUBTFUL, RpcClient, result
from chains.signer_keys import SignerError
from chains.tries.header import Header
from config.configured_chains import get_chains, get_rpc
from proving import money, sources
from proving.health import standstill
from proving.models import SEEN, ChainWatch, FactsRegistry, Signer, Stop, StopCode, TransactionState, WorkerHeartbeat
from proving.registries import deployments
from proving.sending.signers import locked, note_nonce, patience
from proving.working import heads
from proving.working.lanes import HeldLane, LaneLost
from queries import clock, database_check, webhooks
from queries.models import OPEN_STATUSES, Batch, Sender, ServiceClock
from queries.waits import wait

logger = logging.getLogger(__name__)

CODES = (
    *("storage", "no_worker", "standstill", "clock", "chain_unavailable", "wrong_chain", "wrong_history"),
    *("chain_not_watched", "head_went_back", "no_proofs"),
    *("signer_unfunded", "signer_unreadable", "signer_waits", "nonce_gap", "node_doubtful", "signing_stopped"),
    *("no_registry", "registry_refused", "connection_paused", "signer_paused", "receipt_unusable"),
    *("signer_not_signing", "foreign_transactions", "chains_file_changed", "webhooks_failing"),
)
"""The codes of `/healthz`, as docs/operating/runbook.md explains them, besides `database_unavailable`."""
DATABASE_UNAVAILABLE = "database_unavailable"
# A worker stores its heartbeats and its work, so nothing is known of either while nothing can be stored.
STORED = frozenset({"no_worker", "standstill"})


class Problem(NamedTuple):
    code: str
    """A stable word, on which monitoring may rely."""
    sentence: str
    """A sentence for people, with the remedy if it isn't obvious. It holds no secret and no path of a file."""
    values: dict[str, str] = {}
    """The subject, such as the chain and the signer. It stays the same while amounts in the sentence change."""


# How long all webhooks of users may fail.
_WEBHOOKS_MAY_FAIL = timedelta(minutes=10)
# How long a new worker has for its first observations.
_FIRST_OBSERVATIONS = timedelta(minutes=1)
# Pause between two observations. It is shorter while there are problems, so that operators soon see their end.
_PAUSE, _PAUSE_IN_TROUBLE = timedelta(seconds=15), timedelta(seconds=10)
# The last second that `datetime` supports, in unix seconds. A node may report any time.
_LATEST = 253_402_300_799
_MOST_WEI = (1 << 256) - 1


NETWORKS = "networks"
"""The value that tells standstills of test networks from others."""
STOP = "stop"
"""The value that tells doubts for which a worker has stopped a signer from others."""


def workers() -> Iterator[Problem]:
    running = WorkerHeartbeat.running()
    if not running:
        yield Problem("no_worker", "No worker is running. The service keeps batches, but proves none.")
    old = [worker.worker for worker in running if worker.has_old_chains]
    if old:
        sentence = f"{' and '.join(old)} began before chains.toml was changed, and work by the old one: restart them."
        yield Problem("chains_file_changed", sentence)


def standstills() -> Iterator[Problem]:
    """Yield a problem for each stage that stands still. Test networks have one of their own."""
    stalled = [each for each in standstill.by_lane() if each.seconds > standstill.LONGEST.total_seconds()]
    test_networks = {chain.id for chain in get_chains().chains if chain.test_network}
    for stage, is_test in product(standstill.Stage, (False, True)):
        alike = [each for each in stalled if (each.stage, each.lane.destination in test_networks) == (stage, is_test)]
        if alike:
            seconds, where = max(each.seconds for each in alike), ", ".join(str(each.lane) for each in alike)
            sentence = f"No worker has advanced {stage} for {seconds:,.0f} s, although work is due in: {where}."
            yield Problem("standstill", sentence, {"kind": stage} | ({NETWORKS: "test"} if is_test else {}))


def chains() -> Iterator[Problem]:
    """Yield the problems of chains, according to a running worker's observations."""
    configured = {chain.id: chain for chain in get_chains().chains}
    seen = ChainWatch.objects.filter(pk__in=configured, looked_at__range=(Now() - SEEN, Now() + SEEN))
    problems = dict(seen.values_list("chain_id", "problems"))
    is_observing = WorkerHeartbeat.running().filter(started_at__lt=Now() - _FIRST_OBSERVATIONS).exists()
    for chain_id, chain in configured.items():
        if chain_id in problems:
            yield from (Problem(*stored) for stored in problems[chain_id])
        elif is_observing:
            minutes = SEEN.total_seconds() / 60
            sentence = f"No worker has observed {chain.label} for {minutes:.0f} minutes, so its state is unknown."
            yield Problem("chain_not_watched", sentence, _subject(chain_id))


def stopped(*, tells_who: bool = True) -> Iterator[Problem]:
    """Yield a problem for each stop. Only operators are told who has stopped (`tells_who`)."""
    destinations = [chain.id for chain in get_chains().destinations()]
    for stop in Stop.objects.filter(chain_id__in=destinations).order_by("chain_id", "source_chain_id", "signer"):
        sentence = stop.sentence_for_operators if tells_who else stop.sentence
        of_signer = _subject(stop.chain_id, signer=stop.signer)
        if stop.code == StopCode.NOT_BELIEVED:
            yield Problem("node_doubtful", sentence, of_signer | {STOP: stop.code})
        elif stop.signer:
            yield Problem("signer_paused", sentence, of_signer)
        elif not stop.source_chain_id:
            yield Problem("signing_stopped", sentence, _subject(stop.chain_id))
        elif get_chains().connection(stop.source_chain_id, stop.chain_id):
            yield Problem("connection_paused", sentence, _connection(stop.source_chain_id, stop.chain_id))


def troubled_signers() -> Iterator[Problem]:
    """Yield the problems of signers that workers have stored with them."""
    destinations = [chain.id for chain in get_chains().destinations()]
    in_trouble = Signer.objects.filter(chain_id__in=destinations).exclude(
        nonce_fault=None, receipt_fault=None, signing_problem=None, foreign_count=0
    )
    # The row of a signer in trouble is due again and again. If it has been due for long, no worker looks at it.
    is_watched = Q(due_at__gt=Now() - SEEN)
    for signer in in_trouble.annotate(is_watched=is_watched).order_by("pk"):
        of_signer = _subject(signer.chain_id, signer=signer.address)
        faults = {
            "nonce_gap": signer.nonce_fault,
            "receipt_unusable": signer.receipt_fault,
            "signer_not_signing": signer.signing_problem,
        }
        for code, fault in faults.items():
            if fault and signer.is_watched:
                yield Problem(code, str(fault), of_signer)
        if signer.foreign_since:
            since, count = signer.foreign_since.timestamp(), signer.foreign_count
            foreign = wait("foreign_nonces", since=since, signer=signer.address, chain=signer.chain_id, count=count)
            yield Problem("foreign_transactions", str(foreign), of_signer)


def _subject(chain_id: int, **more: str) -> dict[str, str]:
    return {"chainId": str(chain_id), **more}


def _connection(source: int, destination: int) -> dict[str, str]:
    return {"sourceChainId": str(source), "destinationChainId": str(destination)}


def signers() -> Iterator[Problem]:
    """Yield the problems of signers on chains where batches or transactions wait."""
    waiting = Batch.objects.filter(
        status__in=OPEN_STATUSES, sender=Sender.OPERATOR, destination_chain_id=OuterRef("chain_id")
    )
    # Stops are left out, because `stopped` reports them.
    stops = Stop.objects.filter(chain_id=OuterRef("chain_id"), source_chain_id=0, signer__in=["", OuterRef("address")])
    hindered = Signer.hindered().filter(Exists(waiting), ~Exists(stops))
    # A signer that is stuck gets a notice only where another one sends.
    pending = Signer.objects.filter(~Exists(stops), transactions__state=TransactionState.PENDING)
    since = pending.annotate(nonce=Min("transactions__nonce"), since=Min("transactions__spent_at")).order_by("pk")
    for chain in get_chains().destinations():
        # Several signers of a chain may have the same notice. It is about the first one.
        signer_by_notice: dict[str, str] = {}
        for signer in hindered:
            if signer.chain_id == chain.id:
                signer_by_notice.setdefault(str(signer.wait), signer.address)
        for notice, address in signer_by_notice.items():
            yield Problem("signer_waits", notice, _subject(chain.id, signer=address))
        for signer in since:
            is_stuck = signer.chain_id == chain.id and abs(clock.earliest() - signer.since) > patience(chain)
            if is_stuck and signer.address not in signer_by_notice.values():
                sentence = f"The transaction with nonce {signer.nonce} of the signer {signer.address} on {chain.label} "
                sentence += "is pending for long, and later ones wait for it."
                yield Problem("signer_waits", sentence, _subject(chain.id, signer=signer.address))


def facts_registries() -> Iterator[Problem]:
    deployed = FactsRegistry.in_use.exclude(deployed_at=None)
    rows = {(row.source_chain_id, row.destination_chain_id): row for row in deployed}
    for connected in get_chains().connections:
        ends = connected.source_id, connected.destination_id
        row = rows.get(ends)
        if row is None:
            lacking = str(deployments.not_deployed(connected.destination_id, connected.source_id))
            yield Problem("no_registry", lacking, _connection(*ends))
        elif row.refused:
            yield Problem("registry_refused", str(row.refusal), _connection(*ends))


def storing() -> Iterator[Problem]:
    if sentence := database_check.problem():
        yield Problem("storage", sentence)


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
_OF_CHAINS: tuple[Check, ...] = (troubled_signers, signers, facts_registries)
CHECKS: tuple[Check, ...] = (workers, standstills, chains, stopped, *_OF_CHAINS, storing)


@dataclass(frozen=True)
class Findings:
    """The problems and risks that workers have found."""

    problems: list[Problem] = field(default_factory=list)
    """Problems that keep the service from working."""
    notices: list[Problem] = field(default_factory=list)
    """Risks that the operator must look into."""

    def about_chain(self, chain_id: int) -> list[str]:
        return self._about(_subject(chain_id))

    def about_connection(self, source: int, destination: int) -> list[str]:
        """Return the sentences about a connection. A stop of all sending on its destination is one of them."""
        chain = _subject(destination)
        stops = [each.sentence for each in self.problems if (each.code, each.values) == ("signing_stopped", chain)]
        return stops + self._about(_connection(source, destination))

    def _about(self, subject: Mapping[str, str]) -> list[str]:
        found = (*self.problems, *self.notices)
        return [each.sentence for each in found if subject.items() <= each.values.items()]


def findings(checks: Iterable[Check] = CHECKS) -> Findings:
    """Return what workers have found. Raises `django.db.DatabaseError`."""
    problems = [problem for check in checks for problem in check()]
    if any(problem.code == "storage" for problem in problems):
        problems = [problem for problem in problems if problem.code not in STORED]
    return Findings(problems, [*attesters(), *users_webhooks()])


def of_chains() -> Findings:
    """Return what workers have found about chains and connections, for public pages."""
    return findings([chains, partial(stopped, tells_who=False), *_OF_CHAINS])


# --- Observations of chains -------------------------------------------------------------------------------------------


def wake() -> None:
    """Make all chains due, because chains.toml may have changed."""
    ids = [chain.id for chain in get_chains().chains]
    ChainWatch.objects.bulk_create([ChainWatch(chain_id=chain) for chain in ids], ignore_conflicts=True)
    ChainWatch.objects.update(due_at=None)


def observe(lane: HeldLane) -> None:
    """Observe each chain that is due. A worker calls this."""
    # A time in the future was stored by a clock that was ahead.
    due = set(ChainWatch.objects.exclude(due_at__range=(Now(), Now() + _PAUSE)).values_list("pk", flat=True))
    for chain in get_chains().chains:
        if chain.id in due:
            try:
                observe_chain(chain, get_rpc(chain.id), lane)
            except LaneLost:
                raise
            except Exception:
                # An error about one chain must not prevent the observation of other chains.
                logger.exception("observing chain %s failed", chain.id)
                ChainWatch.objects.filter(pk=chain.id).update(due_at=Now() + _PAUSE)


@dataclass(frozen=True)
class Examined:
    """The observations of a chain, and the problems of its nodes, clock and signers."""

    head: Header | None
    """The newest block. None: no node reports it."""
    problems: list[Problem]
    balances: Mapping[str, int]
    """In wei, by the addresses of the signers whose keys can be read."""
    nonces: Mapping[str, int | None]
    """The signers' next nonces at the newest block. Empty if that is old. None: nodes differ, and none proves it."""


def examine(chain: Chain, rpc: RpcClient, *, highest: int = 0) -> Examined:
    """Ask the chain. `highest` is the highest head that was seen lately."""
    problems = [
        Problem(
            "wrong_chain",
            f"URL {place + 1} of {chain.label} is not used: {error}.",
            _subject(chain.id, url=str(place + 1)),
        )
        for place, error in rpc.wrong_chains().items()
    ]
    head, balances, nonces = None, dict[str, int](), dict[str, int | None]()
    try:
        head = rpc.head()
        if heads.let_wrong_rest(chain, rpc, head, highest):
            head = rpc.head()
        problems += _apart_from_clock(chain, head)
        problems += _of_history(chain, rpc, head)
        problems += _of_proofs(chain, rpc, head)
        if chain in get_chains().destinations():
            addresses: list[str] = []
            problems += _of_keys(chain, addresses)
            signers = list(dict.fromkeys(addresses))
            of_signers = [ask(signer) for ask in (questions.balance, questions.nonce) for signer in signers]
            numbers = rpc.answers(of_signers)
            balances = dict(zip(signers, numbers, strict=False))
            problems += _of_balances(chain, rpc, balances)
            # A node that is behind tells the nonce of a time when the signer had used fewer.
            if not heads.is_late(chain, head):
                nonces = dict(zip(signers, numbers[len(signers) :], strict=True))
                problems += _of_nonces(chain, rpc, head, nonces)
    except ChainError as error:
        # Nodes of other chains have already been reported.
        if not (problems and isinstance(error, NodeOfWrongChain)):
            problems.append(_unavailable(chain, error))
    return Examined(head, problems, balances, nonces)


def observe_chain(chain: Chain, rpc: RpcClient, lane: HeldLane | None = None) -> Examined:
    """Ask the chain and store the observation. A worker writes only while it holds its `lane`; a command has none."""
    highest = heads.highest_lately(chain.id)
    seen = examine(chain, rpc, highest=highest)
    columns: dict[str, object] = {"looked_at": Now()}
    problems = seen.problems
    if seen.head:
        columns |= {"timestamp": min(seen.head.timestamp, _LATEST), "number": seen.head.number, "seen_at": Now()}
        columns |= _state(chain, rpc, seen.head, problems)
        problems = [*problems, *_gone_back(chain, seen.head, highest)]
    columns |= {"problems": problems, "due_at": Now() + (_PAUSE_IN_TROUBLE if problems else _PAUSE)}
    columns["resting_nodes"] = _resting_nodes(chain, rpc)
    if seen.balances:
        columns["balances"] = {address: str(wei) for address, wei in seen.balances.items()}
    if chain in get_chains().destinations():
        _note_nonces(chain, seen.nonces, lane)
        with locked(chain):
            columns["spent_in_day"] = money.on_chain(chain.id)
    write = partial(ChainWatch.objects.update_or_create, pk=chain.id, defaults=columns)
    if lane:
        lane.write(write)
    else:
        write()
    _note_newest_block()
    return seen


def _note_nonces(chain: Chain, nonces: Mapping[str, int | None], lane: HeldLane | None) -> None:
    """Store how many nonces each signer has used for foreign transactions. `nonces` are the chain's next ones."""
    if not nonces and chain.all_signers:
        return
    with locked(chain, nonces) as signers:
        if lane is not None:
            lane.fence()
        for address, nonce in nonces.items():
            if nonce is not None:
                note_nonce(signers[address], nonce)
        # Taking a stolen key out of chains.toml ends its problem, also if no other signer is left.
        gone = Signer.objects.filter(chain_id=chain.id).exclude(address__in=nonces).exclude(foreign_count=0)
        gone.update(foreign_count=0, foreign_since=None)


def _resting_nodes(chain: Chain, rpc: RpcClient) -> list[dict[str, str]]:
    """Return the nodes that rest after `examine` asked each for its chain id, and since when."""
    before = ChainWatch.objects.filter(pk=chain.id).values_list("resting_nodes", flat=True).first() or ()
    since = {node["host"]: node["since"] for node in before}
    now = timezone.now().isoformat()
    return [
        {"host": host, "problem": problem, "since": since.get(host, now)}
        for host, problem in rpc.resting_nodes().items()
    ]


def _note_newest_block() -> None:
    """Store the newest block's time for `queries.clock`.

    Test networks may have any time, so they count only if all chains are test networks.
    """
    chains = get_chains().chains
    counted = [chain.id for chain in chains if not chain.test_network] or [chain.id for chain in chains]
    # A single node may report a time far in the future. It is left out, so that the other times count.
    believed = ChainWatch.objects.filter(timestamp__lte=int((timezone.now() + clock.BEHIND).timestamp()))
    newest = believed.filter(pk__in=counted).aggregate(timestamp=Max("timestamp"))["timestamp"]
    if newest is not None:
        ServiceClock.objects.update_or_create(pk=1, defaults={"at": datetime.fromtimestamp(newest, UTC)})


def _state(chain: Chain, rpc: RpcClient, head: Header, problems: list[Problem]) -> dict[str, object]:
    """Read values that only pages show. If nodes don't answer, the earlier values stay.

    A problem is added to `problems` if nodes differ about the price.
    """
    columns: dict[str, object] = {}
    is_destination = chain in get_chains().destinations()
    with suppress(ChainError):
        began = time.monotonic()
        newest, kept, suggested = rpc.ask(
            heads.QUESTIONS, [questions.keeps_hashes(head, chain)], [questions.priority_fee()] if is_destination else []
        )
        # The head is stored for all workers.
        seen = heads.note(chain, rpc, newest, began)
        columns["keeps_hashes"] = not isinstance(kept[0], RpcRefused) and result(kept[0])
        if seen.finalized:
            columns["final"] = seen.final
        if suggested:
            fees = rpc.fees_by([seen.latest, *suggested], money.usual_tip(chain))
            columns["gas_price"] = min(fees.base_fee + fees.priority_fee, _MOST_WEI)
            if fees.doubt:
                problems.append(Problem("node_doubtful", fees.doubt, _subject(chain.id)))
    return columns


def _unavailable(chain: Chain, error: ChainError) -> Problem:
    if isinstance(error, NodeOfWrongChain):
        return Problem("wrong_chain", str(error), _subject(chain.id))
    # A node's own message isn't published.
    refused = f"No node of {chain.label} can be used: it refuses requests that any node answers."
    sentence = str(error) if isinstance(error, NodeUnavailable) else refused
    return Problem("chain_unavailable", sentence, _subject(chain.id))


def _apart_from_clock(chain: Chain, head: Header) -> Iterator[Problem]:
    age = time.time() - head.timestamp
    if heads.is_late(chain, head):
        sentence = f"is {age:,.0f} s old: the chain or its nodes stand still, or this machine's clock is ahead."
    elif heads.is_in_future(chain, head):
        sentence = f"is {-age:,.0f} s in the future: this machine's clock is behind."
    else:
        return
    yield Problem("clock", f"The newest block of {chain.label} {sentence}", _subject(chain.id))


def _of_history(chain: Chain, rpc: RpcClient, head: Header) -> list[Problem]:
    """Return a problem if the chain's history of block hashes (EIP-2935) has a wrong hash of a block.

    A recent block and the oldest block of the window are compared. The history contract may use other slots than the
    chain writes, or keep fewer blocks than the window.
    """
    among = [connection for connection in get_chains().connections if connection.source_id == chain.id]
    relying = [
        connection for connection in among if sources.of(connection).vouched(connection, keeps_hashes=True) is not None
    ]
    is_read = any(connection.block_hash_source == "native" for connection in relying)
    oldest = head.number + 1 - max((connection.window for connection in relying), default=0)
    numbers = sorted({max(0, head.number - KEPT_BELOW), max(0, oldest)}, reverse=True) if relying else []
    asked: list[Question[Any]] = [questions.header(number) for number in numbers]
    asked += [questions.kept_hash(number, chain, head.number) for number in numbers]
    if is_read:
        asked += [questions.call(HISTORY_CONTRACT, number.to_bytes(32), head.number) for number in numbers]
    problem = _contradiction(chain, numbers, rpc.ask(asked))
    told = rpc.ask_each(asked) if problem else {}
    wrong = {host for host, answers in told.items() if _contradiction(chain, numbers, answers)}
    # A node that lags or refuses shows nothing.
    if not any(host not in wrong and not any(isinstance(answer, ChainError) for answer in told[host]) for host in told):
        return [problem] if problem else []
    for host in wrong:
        rpc.rest(host, f"{host} tells another hash of a block than its history contract (EIP-2935)")
    return []


def _contradiction(chain: Chain, numbers: Sequence[int], answers: Sequence[Any]) -> Problem | None:
    """Return a problem if a node's headers of these blocks contradict its history contract, by slot or by answer."""
    count = len(numbers)
    for header, word, answer in zip_longest(*(answers[start : start + count] for start in (0, count, 2 * count))):
        if not isinstance(header, Header):
            continue
        if isinstance(answer, bytes) and len(answer) == 32 and any(answer) and answer != header.hash:
            return _wrong_answer(chain, header, is_young=header.number == numbers[0])
        # A contract that is called may keep its hashes in other slots.
        if isinstance(word, int) and word not in {0, int.from_bytes(header.hash)}:
            return _wrong_slot(chain, header)
    return None


def _of_proofs(chain: Chain, rpc: RpcClient, head: Header) -> Iterator[Problem]:
    """Yield a problem if the chain is a source, and no node proves an account of either of two recent blocks."""
    if all(connection.source_id != chain.id for connection in get_chains().connections):
        return
    for below in (KEPT_BELOW, KEPT_BELOW + 1):
        # The state of block 0 was written by no block, and nodes of development chains prove it by another root.
        block = rpc.answer(questions.header(max(1, head.number - below)))
        if block is None:
            return
        (proof,) = rpc.proofs([questions.ProofRequest(block.number, block.hash, block.state_root, HISTORY_CONTRACT)])
        if not isinstance(proof, ChainError):
            return
    sentence = f"No node of {chain.label} sends valid proofs of accounts (eth_getProof)."
    yield Problem("no_proofs", sentence, _subject(chain.id))


def _wrong_answer(chain: Chain, header: Header, *, is_young: bool) -> Problem:
    code = "history_answers_wrong_for_new" if is_young else "history_answers_wrong_for_old"
    reason = wait(code, chain=chain.id, contract=HISTORY_CONTRACT, block=header.number)
    return Problem("wrong_history", str(reason), _subject(chain.id))


def _wrong_slot(chain: Chain, header: Header) -> Problem:
    held = {"block": header.number, "slot": history_slot(header.number, chain.history_window)}
    reason = wait("history_slot_wrong", chain=chain.id, contract=HISTORY_CONTRACT, slots=chain.history_window, **held)
    return Problem("wrong_history", str(reason), _subject(chain.id))


def _gone_back(chain: Chain, head: Header, highest: int) -> Iterator[Problem]:
    if heads.is_far_behind(chain, highest - head.number):
        yield Problem(
            "head_went_back",
            f"The newest block of {chain.label} is {head.number}, and {highest} was seen "
            "a few minutes ago: its nodes are behind.",
            _subject(chain.id),
        )


def _of_keys(chain: Chain, addresses: list[str]) -> Iterator[Problem]:
    """Yield the problems of the signers' keys, and add the signers' addresses to `addresses`."""
    for number, signer in enumerate(chain.all_signers, 1):
        try:
            addresses.append(signer.address)
        except SignerError:
            which = "the signer" if len(chain.all_signers) == 1 else f"signer {number}"
            sentence = f"The key of {which} of {chain.label} can't be read."
            yield Problem("signer_unreadable", sentence, _subject(chain.id, signer=str(number)))
    for address in sorted({address for address in addresses if addresses.count(address) > 1}):
        sentence = f"Two signers of {chain.label} have the same key, that of {address}."
        yield Problem("signer_unreadable", sentence, _subject(chain.id, signer=address))


def _of_balances(chain: Chain, rpc: RpcClient, balances: dict[str, int]) -> Iterator[Problem]:
    """Yield the problems of signers with too little. If nodes differ, their highest answer replaces the balance."""
    for address, balance in balances.items():
        if balance >= chain.minimum_signer_balance_wei:
            continue
        told = {wei: host for host, wei in rpc.answers_of_each(questions.balance(address)).items()}
        low, high = min(told, default=balance), max(told, default=balance)
        balances[address] = high
        if high < chain.minimum_signer_balance_wei:
            yield Problem(
                "signer_unfunded",
                f"The signer {address} on {chain.label} holds {in_units(high)} {chain.native_currency}, less "
                f"than the {chain.minimum_signer_balance} at which it stops. Fund it.",
                _subject(chain.id, signer=address),
            )
        elif high > TIMES_DOUBTFUL * low:
            yield Problem(
                "node_doubtful",
                f"{told[low]} says that the signer {address} on {chain.label} holds {in_units(low)} "
                f"{chain.native_currency}, and {told[high]} that it holds {in_units(high)}. The higher balance counts.",
                _subject(chain.id, signer=address),
            )


def _of_nonces(chain: Chain, rpc: RpcClient, head: Header, nonces: dict[str, int | None]) -> Iterator[Problem]:
    """Replace each nonce by the lowest that a node tells, or by a proven one above it. One lie hides or makes no thief.

    It is None where an earlier nonce is higher and no node proves it. Yield a problem if nodes differ about a recent
    block, and no node proves the signer's account.
    """
    number = max(1, head.number - KEPT_BELOW)
    for address, nonce in nonces.items():
        told = rpc.ask_each([questions.nonce(address), questions.nonce(address, number)])
        lowest = min((newest for newest, _ in told.values() if isinstance(newest, int)), default=nonce or 0)
        earlier = {host: of_block for host, (_, of_block) in told.items() if isinstance(of_block, int)}
        nonces[address] = lowest
        if max(earlier.values(), default=0) <= lowest:
            continue
        if account := rpc.proven_account(address, number):
            nonces[address] = max(lowest, account.nonce)
            continue
        nonces[address] = None
        if len({*earlier.values()}) > 1:
            answers = ", and ".join(f"{host} says {of_block}" for host, of_block in earlier.items())
            yield Problem(
                "node_doubtful",
                f"The nodes of {chain.label} differ about the next nonce of {address} at block {number}: {answers}. "
                "If the highest is right, the key may be stolen, or another program has it. Compare with a third node.",
                _subject(chain.id, signer=address),
            )
