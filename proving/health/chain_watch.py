"""Observations of chains: a worker asks each configured chain at least every 15 s, even without work, and stores it."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, F, Max, Min, OuterRef
from django.db.models.functions import Now
from django.utils import timezone

from chains.chains_file import Chain
from chains.configured_signers import SignerError
from chains.encoding import HISTORY_CONTRACT, history_slot, in_units
from chains.nodes import price_measurement, questions
from chains.nodes.chain_nodes import Question
from chains.nodes.node_errors import (
    ChainError,
    NodeOfWrongChain,
    NodeUnavailable,
    RpcRefused,
)
from chains.nodes.rpc import KEPT_BELOW, TIMES_DOUBTFUL, RpcClient, result
from chains.tries.header import Header
from config.configured_chains import get_beacon_client, get_chains, get_rpc
from proving import money, sources
from proving.health import stored_problems
from proving.health.current_problems import FORK_TOLD, SeenProblem, subject
from proving.health.problem_kinds import ProblemKind
from proving.models import LIVE_STATES, SEEN, ChainWatch, Signer, Transaction
from proving.reading import provable_blocks
from proving.sending import foreign_nonces
from proving.sending.foreign_nonces import NextNonce
from proving.sending.signers import locked
from proving.working import destination_prices, heads
from proving.working.heads import Heads
from proving.working.lanes import HeldLane, LaneKind, LaneLost
from queries import clock
from queries.columns import RejectionCode
from queries.models import ADMITTED_STATUSES, Batch, BatchStatus, Block, Query, QueryKind, ServiceClock, StepKind
from queries.waits import wait

logger = logging.getLogger(__name__)

# Pause between two observations. It is shorter while there are problems, so that operators soon see their end.
_PAUSE, _PAUSE_IN_TROUBLE = timedelta(seconds=15), timedelta(seconds=10)
# Seconds after which a newest block is too old to tell how many nonces a signer has used, also on a test network. The
# node may have stopped long ago.
_OLD_SECONDS = 3600
_MOST_WEI = (1 << 256) - 1
# How long nodes refuse proofs of a block before that is a problem.
_REFUSED = timedelta(seconds=10)
# The least time that a batch has waited before its rejection for old states is a problem, and how long it is one.
_LEAST_WAIT, _TOLD_REJECTED = timedelta(minutes=5), timedelta(minutes=15)
# Time after which a node that always fails is a problem, although another one works.
_MAY_FAIL = timedelta(minutes=10)


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


def unanswered() -> list[dict[str, str | int]]:
    """Return which methods nodes lately didn't answer this process in time."""
    return [
        {
            "chain": chain.id,
            "host": host,
            "method": method,
            "times": silent.times,
            "words": f"{'an answer only after' if silent.is_late else 'no answer within'} {silent.seconds:.0f} s",
        }
        for chain in get_chains().chains
        for (host, method), silent in get_rpc(chain.id).unanswered().items()
        if time.time() - silent.last < SEEN.total_seconds()
    ]


@dataclass(frozen=True)
class Examined:
    """The observations of a chain, and the problems of its nodes, clock and signers."""

    head: Header | None
    """The newest block. None: no node reports it."""
    problems: list[SeenProblem]
    balances: Mapping[str, int]
    """In wei, by the addresses of the signers whose keys can be read."""
    nonces: Mapping[str, NextNonce | None]
    """The signers' next nonces at the newest block. Empty if that is old. None: nodes differ, and none proves it."""


def examine(chain: Chain, rpc: RpcClient, *, highest: int = 0) -> Examined:
    """Ask the chain. `highest` is the highest head that was seen lately."""
    problems = [
        SeenProblem(
            ProblemKind.WRONG_CHAIN,
            f"URL {place + 1} of {chain.label} is not used: {error}.",
            subject(chain.id, url=str(place + 1)),
        )
        for place, error in rpc.wrong_chains().items()
    ]
    head, balances, nonces = None, dict[str, int](), dict[str, NextNonce | None]()
    syncing = rpc.syncing_nodes()
    heads.let_syncing_rest(rpc, syncing)
    problems += [_syncing(chain, host) for host in syncing]
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
            balances = dict(zip(signers, rpc.answers([*map(questions.balance, signers)]), strict=True))
            problems += _of_balances(chain, rpc, balances)
            if not heads.is_late(chain, head) and time.time() - head.timestamp < _OLD_SECONDS:
                nonces = dict.fromkeys(signers)
                problems += _of_nonces(chain, rpc, head, nonces, highest=max(head.number, highest))
    except ChainError as error:
        # Nodes of other chains have already been reported.
        if not (problems and isinstance(error, NodeOfWrongChain)):
            problems.append(_unavailable(chain, error))
    problems += _of_beacon_nodes(chain)
    return Examined(head, problems, balances, nonces)


def observe_chain(chain: Chain, rpc: RpcClient, lane: HeldLane | None = None) -> Examined:
    """Ask the chain and store the observation. A worker writes only while it holds its `lane`; a command has none."""
    highest = heads.highest_lately(chain.id)
    seen = examine(chain, rpc, highest=highest)
    errors = rpc.resting_nodes()
    resting = _resting_nodes(chain, errors)
    columns: dict[str, object] = {"looked_at": Now(), "resting_nodes": resting}
    problems = seen.problems
    if seen.head:
        columns |= {
            "timestamp": min(seen.head.timestamp, clock.LAST_SECOND),
            "number": seen.head.number,
            "seen_at": Now(),
        }
        columns |= _state(chain, rpc, seen.head, problems)
        problems = [*problems, *_gone_back(chain, seen.head, highest), *_failing(chain, resting, errors, problems)]
        if all(problem.kind != ProblemKind.NO_PROOFS for problem in problems):
            problems += _lost_states(chain)
    columns["due_at"] = Now() + (_PAUSE_IN_TROUBLE if problems else _PAUSE)
    if seen.balances:
        columns["balances"] = {address: str(wei) for address, wei in seen.balances.items()}
    if chain in get_chains().destinations():
        _note_nonces(chain, seen.nonces, lane)
        with locked(chain):
            columns["spent_in_day"] = money.on_chain(chain.id)

    def write() -> None:
        ChainWatch.objects.update_or_create(pk=chain.id, defaults=columns)
        stored_problems.replace(problems, seen_by=LaneKind.WATCH, chain_id=chain.id)

    if lane:
        lane.write(write)
    else:
        with transaction.atomic():
            write()
    _note_newest_block()
    return seen


def _note_nonces(chain: Chain, nonces: Mapping[str, NextNonce | None], lane: HeldLane | None) -> None:
    """Store how many nonces each signer has used for foreign transactions. `nonces` are the chain's next ones."""
    if not nonces and chain.all_signers:
        return
    with locked(chain, nonces) as signers:
        if lane is not None:
            lane.fence()
        for address, nonce in nonces.items():
            if nonce is not None:
                foreign_nonces.note(signers[address], nonce)
        # Taking a stolen key out of chains.toml ends its problem, also if no other signer is left.
        gone = Signer.objects.filter(chain_id=chain.id).exclude(address__in=nonces).exclude(foreign_count=0)
        gone.update(foreign_count=0, foreign_since=None, foreign_is_suspected=None)


def _resting_nodes(chain: Chain, errors: Mapping[str, NodeUnavailable]) -> list[dict[str, str]]:
    """Return the nodes that rest after `examine` asked each for its chain id, and since when."""
    before = ChainWatch.objects.filter(pk=chain.id).values_list("resting_nodes", flat=True).first() or ()
    since = {node["host"]: node["since"] for node in before}
    now = timezone.now().isoformat()
    return [
        {"host": host, "problem": error.for_operators, "since": since.get(host, now)} for host, error in errors.items()
    ]


def _failing(
    chain: Chain,
    resting: Sequence[Mapping[str, str]],
    errors: Mapping[str, NodeUnavailable],
    known: Sequence[SeenProblem],
) -> Iterator[SeenProblem]:
    """Yield a problem for each node that has rested for long, except those with a `known` one, or of another chain."""
    syncing = {problem.values.get("node") for problem in known}
    for node in resting:
        error = errors[node["host"]]
        if isinstance(error, NodeOfWrongChain) or node["host"] in syncing:
            continue
        if timezone.now() - datetime.fromisoformat(node["since"]) > _MAY_FAIL:
            minutes = _MAY_FAIL.total_seconds() / 60
            sentence = f"A node of {chain.label} has failed for {minutes:.0f} minutes, and others work: "
            quoting = f"{sentence}{error.for_operators.removesuffix('.')}."
            about = subject(chain.id, node=node["host"])
            yield SeenProblem(ProblemKind.NODE_FAILS, quoting, about, f"{sentence}{error}.")


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


def _state(chain: Chain, rpc: RpcClient, head: Header, problems: list[SeenProblem]) -> dict[str, object]:
    """Read values that only pages show. If nodes don't answer, the earlier values stay.

    Problems are added to `problems`: nodes differ about the price, the chain charges unknown prices of gas, or a fork
    comes.
    """
    columns: dict[str, object] = {}
    of_destination: list[Question[Any]] = []
    if chain in get_chains().destinations():
        of_destination = [questions.priority_fee(), *price_measurement.calls(destination_prices.of(rpc))]
    with suppress(ChainError):
        began = time.monotonic()
        newest, kept, told = rpc.ask(heads.QUESTIONS, [questions.keeps_hashes(head, chain)], of_destination)
        # The head is stored for all workers.
        seen = heads.note(chain, rpc, newest, began)
        columns["keeps_hashes"] = not isinstance(kept[0], RpcRefused) and result(kept[0])
        if seen.finalized:
            columns["final"] = seen.final
        problems += _standing(chain)
        problems += _of_fork(chain, rpc)
        if told:
            suggested, *calls = told
            fees = rpc.fees_by([seen.latest, suggested], money.usual_tip(chain))
            columns["gas_price"] = min(fees.base_fee + fees.priority_fee, _MOST_WEI)
            if fees.doubt:
                problems.append(SeenProblem(ProblemKind.NODE_DOUBTFUL, fees.doubt, subject(chain.id)))
            problems += _of_gas_prices(chain, rpc, seen, are_charged=price_measurement.fit(calls))
    return columns


def _standing(chain: Chain) -> Iterator[SeenProblem]:
    """Yield problems if the chain stands still, or its final block does. The head has just been stored."""
    live = Transaction.objects.filter(signer__chain_id=chain.id, state__in=LIVE_STATES)
    # `_apart_from_clock` compares the times of blocks of other chains.
    if chain.test_network and (stands := heads.standing(chain, live, is_mined=False, at=timezone.now())):
        yield SeenProblem(ProblemKind.CLOCK, str(stands), subject(chain.id))
    if stands := heads.standing_finality(chain):
        yield SeenProblem(ProblemKind.FINALITY_STANDS, str(stands), subject(chain.id))


def _of_fork(chain: Chain, rpc: RpcClient) -> Iterator[SeenProblem]:
    """Yield a problem if a fork comes soon.

    It is harmless if this version knows the fork, or if only one of several nodes names it.
    """
    fork = destination_prices.ask_for_fork(rpc)
    if fork is None or fork.at - time.time() > FORK_TOLD.total_seconds():
        return
    at = f"{datetime.fromtimestamp(fork.at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    sentence = f"{chain.label} forks at {at}, as {'one node says' if fork.nodes == 1 else f'{fork.nodes} nodes say'}. "
    unknown = "This version does not know the fork: look for a newer version before that time."
    beacon_chain, is_known = chain.beacon_chain, fork.is_known
    if is_known and beacon_chain and beacon_chain.gloas == beacon_chain.end:
        is_known = False
        unknown = (
            "This version doesn't know at which slot its beacon chain forks: look for a newer version before that "
            "time, or set gloas in [chains.beacon_chain]."
        )
    sentence += "This version knows the fork." if is_known else unknown
    is_harmless = is_known or not fork.is_believed(chain)
    yield SeenProblem(ProblemKind.FORK_AHEAD if is_harmless else ProblemKind.FORK_UNKNOWN, sentence, subject(chain.id))


def _of_gas_prices(chain: Chain, rpc: RpcClient, seen: Heads, *, are_charged: bool) -> Iterator[SeenProblem]:
    """Yield a problem if what the chain charges fits none of its records of gas prices."""
    prices = destination_prices.measure(rpc, seen.latest, seen.finalized or seen.final, are_charged=are_charged)
    if prices:
        needed = price_measurement.gas_of(prices)
        sentence = (
            f"{chain.label} takes {needed * prices.scale:,.0f} gas for a small contract that takes {needed:,} by the "
            f"prices “{prices.name}”. Estimates follow the chain. Look for a newer version, or set its gas_prices."
        )
        yield SeenProblem(ProblemKind.UNKNOWN_GAS_PRICES, sentence, subject(chain.id))


def _unavailable(chain: Chain, error: ChainError) -> SeenProblem:
    if isinstance(error, NodeOfWrongChain):
        return SeenProblem(ProblemKind.WRONG_CHAIN, str(error), subject(chain.id))
    refused = f"No node of {chain.label} can be used: it refuses requests that any node answers."
    if isinstance(error, NodeUnavailable):
        sentence, quoting = str(error), error.for_operators
    else:
        sentence, quoting = refused, f"{refused} {error.for_operators}"
    return SeenProblem(ProblemKind.CHAIN_UNAVAILABLE, quoting, subject(chain.id), sentence)


def _syncing(chain: Chain, host: str) -> SeenProblem:
    sentence = (
        f"{host}, a node of {chain.label}, says that it syncs. Until it has all blocks, it is asked last, and no "
    )
    return SeenProblem(
        ProblemKind.NODE_SYNCING, f"{sentence}transaction is signed with a nonce from it.", subject(chain.id, node=host)
    )


def _apart_from_clock(chain: Chain, head: Header) -> Iterator[SeenProblem]:
    age = time.time() - head.timestamp
    if heads.is_late(chain, head):
        sentence = f"is {age:,.0f} s old: the chain or its nodes stand still, or this machine's clock is ahead."
    elif heads.is_in_future(chain, head):
        sentence = f"is {-age:,.0f} s in the future: this machine's clock is behind."
    else:
        return
    yield SeenProblem(ProblemKind.CLOCK, f"The newest block of {chain.label} {sentence}", subject(chain.id))


def _of_history(chain: Chain, rpc: RpcClient, head: Header) -> list[SeenProblem]:
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


def _contradiction(chain: Chain, numbers: Sequence[int], answers: Sequence[Any]) -> SeenProblem | None:
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


def _of_proofs(chain: Chain, rpc: RpcClient, head: Header) -> Iterator[SeenProblem]:
    """Yield a problem if the chain is a source, and no node proves an account of either of two recent blocks."""
    if all(connection.source_id != chain.id for connection in get_chains().connections):
        return
    sentence = quoting = f"No node of {chain.label} sends valid proofs of accounts (eth_getProof)."
    for below in (KEPT_BELOW, KEPT_BELOW + 1):
        # The state of block 0 was written by no block, and nodes of development chains prove it by another root.
        block = rpc.answer(questions.header(max(1, head.number - below)))
        if block is None:
            return
        (proof,) = rpc.proofs([questions.ProofRequest(block.number, block.hash, block.state_root, HISTORY_CONTRACT)])
        if not isinstance(proof, ChainError):
            return
        quoting = f"{sentence} {proof.for_operators}"
    yield SeenProblem(ProblemKind.NO_PROOFS, quoting, subject(chain.id), sentence)


def _of_beacon_nodes(chain: Chain) -> Iterator[SeenProblem]:
    """Yield a problem if no beacon node of the chain has a final block, so that no new jump can begin."""
    client = get_beacon_client(chain.id)
    if client is None:
        return
    try:
        client.header("finalized")
    except NodeUnavailable as error:
        sentence = f"No beacon node in beacon_urls of {chain.label} can be used: {'; '.join(error.reasons)}. "
        yield SeenProblem(
            ProblemKind.NO_BEACON_NODE, f"{sentence}Batches about old blocks may wait.", subject(chain.id)
        )


def _lost_states(chain: Chain) -> Iterator[SeenProblem]:
    """Yield a problem if no node proves accounts of blocks for which batches have waited."""
    accounts = Query.objects.filter(kind=QueryKind.ACCOUNT, step=StepKind.INITIAL_STATE, block=OuterRef("pk"))
    accounts = accounts.filter(batch__status__in=ADMITTED_STATUSES)
    refused = Block.objects.filter(source_chain_id=chain.id, refused_since__lt=Now() - _REFUSED, due_at__isnull=False)
    waiting = refused.filter(Exists(accounts)).aggregate(count=Count("pk"), oldest=Min("number"))
    # A user may request blocks that are too old already. Such batches are rejected within minutes.
    waited = max(timedelta(seconds=provable_blocks.KEPT_BY_ALL * chain.block_seconds), _LEAST_WAIT)
    unproven = Batch.objects.filter(
        Exists(Query.objects.filter(batch=OuterRef("pk"), source_chain_id=chain.id)),
        rejection_code=RejectionCode.PROOF_UNAVAILABLE,
    )
    doomed = unproven.filter(status=BatchStatus.RECEIVED, created_at__lt=Now() - waited).count()
    rejected = unproven.filter(
        status=BatchStatus.REJECTED,
        finished_at__range=(Now() - _TOLD_REJECTED, Now()),
        created_at__lt=F("finished_at") - waited,
    ).count()
    sentence = ""
    if waiting["count"]:
        sentence = (
            f"Batches wait for proofs of accounts at blocks of {chain.label}, the oldest {waiting['oldest']}, which no "
            f"node serves now. Blocks: {waiting['count']}. "
        )
    if doomed or rejected:
        sentence += (
            f"Batches waited for longer than nodes of {chain.label} keep states, as when no worker ran. About to be "
            f"rejected: {doomed}. Rejected within {_TOLD_REJECTED.total_seconds() / 60:.0f} minutes: {rejected}. "
        )
    if sentence:
        yield SeenProblem(ProblemKind.NO_PROOFS, f"{sentence}An archive node proves them.", subject(chain.id))


def _wrong_answer(chain: Chain, header: Header, *, is_young: bool) -> SeenProblem:
    code = "history_answers_wrong_for_new" if is_young else "history_answers_wrong_for_old"
    reason = wait(code, chain=chain.id, contract=HISTORY_CONTRACT, block=header.number)
    return SeenProblem(ProblemKind.WRONG_HISTORY, reason.for_operators, subject(chain.id), str(reason))


def _wrong_slot(chain: Chain, header: Header) -> SeenProblem:
    held = {"block": header.number, "slot": history_slot(header.number, chain.history_window)}
    reason = wait("history_slot_wrong", chain=chain.id, contract=HISTORY_CONTRACT, slots=chain.history_window, **held)
    return SeenProblem(ProblemKind.WRONG_HISTORY, reason.for_operators, subject(chain.id), str(reason))


def _gone_back(chain: Chain, head: Header, highest: int) -> Iterator[SeenProblem]:
    if heads.is_far_behind(chain, highest - head.number):
        yield SeenProblem(
            ProblemKind.HEAD_WENT_BACK,
            f"The newest block of {chain.label} is {head.number}, and {highest} was seen "
            "a few minutes ago: its nodes are behind.",
            subject(chain.id),
        )


def _of_keys(chain: Chain, addresses: list[str]) -> Iterator[SeenProblem]:
    """Yield the problems of the signers' keys, and add the signers' addresses to `addresses`."""
    for number, signer in enumerate(chain.all_signers, 1):
        try:
            addresses.append(signer.address)
        except SignerError:
            which = "the signer" if len(chain.all_signers) == 1 else f"signer {number}"
            sentence = f"The key of {which} of {chain.label} can't be read."
            yield SeenProblem(ProblemKind.SIGNER_UNREADABLE, sentence, subject(chain.id, signer=str(number)))
    for address in sorted({address for address in addresses if addresses.count(address) > 1}):
        sentence = f"Two signers of {chain.label} have the same key, that of {address}."
        yield SeenProblem(ProblemKind.SIGNER_UNREADABLE, sentence, subject(chain.id, signer=address))


def _of_balances(chain: Chain, rpc: RpcClient, balances: dict[str, int]) -> Iterator[SeenProblem]:
    """Yield the problems of signers with too little. If nodes differ, their highest answer replaces the balance."""
    for address, balance in balances.items():
        if balance >= chain.minimum_signer_balance_wei:
            continue
        told = {wei: host for host, wei in rpc.answers_of_each(questions.balance(address)).items()}
        low, high = min(told, default=balance), max(told, default=balance)
        balances[address] = high
        if high < chain.minimum_signer_balance_wei:
            yield SeenProblem(
                ProblemKind.SIGNER_UNFUNDED,
                f"The signer {address} on {chain.label} holds {in_units(high)} {chain.native_currency}, less "
                f"than the {chain.minimum_signer_balance} at which it stops. Fund it.",
                subject(chain.id, signer=address),
            )
        elif high > TIMES_DOUBTFUL * low:
            yield SeenProblem(
                ProblemKind.NODE_DOUBTFUL,
                f"{told[low]} says that the signer {address} on {chain.label} holds {in_units(low)} "
                f"{chain.native_currency}, and {told[high]} that it holds {in_units(high)}. The higher balance counts.",
                subject(chain.id, signer=address),
            )


def _of_nonces(
    chain: Chain, rpc: RpcClient, head: Header, nonces: dict[str, NextNonce | None], *, highest: int
) -> Iterator[SeenProblem]:
    """Set each signer's nonce: the lowest that a current node tells, or a proven one. One lie hides or makes no thief.

    A higher nonce of an earlier block that one node alone tells, without a proof, counts, but isn't sure. The nonce
    stays None where no node is current. If nodes differ about a recent block, and no node proves the signer's account,
    it stays None too, and this yields a problem.
    """
    number = max(1, head.number - KEPT_BELOW)
    asked = [ask for signer in nonces for ask in (questions.nonce(signer), questions.nonce(signer, number))]
    current = heads.of_current_nodes(chain, rpc, highest, asked) if nonces else {}
    for place, address in enumerate(nonces):
        told = {host: answers[2 * place : 2 * place + 2] for host, (_, answers) in current.items()}
        numbers = [newest for newest, _ in told.values() if isinstance(newest, int)]
        if not numbers:
            continue
        earlier = {host: of_block for host, (_, of_block) in told.items() if isinstance(of_block, int)}
        lowest, is_compared, is_doubtful = min(numbers), len(numbers) > 1, False
        if max(earlier.values(), default=0) > lowest:
            if account := rpc.proven_account(address, number):
                lowest = max(lowest, account.nonce)
            elif len({*earlier.values()}) > 1:
                answers = ", and ".join(f"{host} says {of_block}" for host, of_block in earlier.items())
                yield SeenProblem(
                    ProblemKind.NODE_DOUBTFUL,
                    f"The nodes of {chain.label} differ about the next nonce of {address} at block {number}: "
                    f"{answers}. If the highest is right, the key may be stolen, or another program has it. Compare "
                    "with a third node.",
                    subject(chain.id, signer=address),
                )
                continue
            else:
                # A node that hides a thief, or lags, may deny the block.
                lowest, is_compared, is_doubtful = max(earlier.values()), True, len(earlier) == 1
        seen = foreign_nonces.examine(rpc, address, head, lowest, is_compared=is_compared)
        nonces[address] = replace(seen, is_sure=seen.is_sure and not is_doubtful)
