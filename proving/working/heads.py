"""Heads of chains: the latest block, and the newest confirmed and final blocks."""

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.db.models import Case, Q, QuerySet, When
from django.utils import timezone

from chains.chains_file import Chain
from chains.nodes import questions
from chains.nodes.chain_nodes import MAX_REST_SECONDS, Question
from chains.nodes.node_errors import ChainError, InvalidReply, RpcRefused, UnreadableHeader
from chains.nodes.rpc import RpcClient, result
from chains.tries.header import Header
from proving.models import ChainHead, ChainWatch, Transaction
from queries.waits import WaitReason, wait

Answer = TypeVar("Answer")

# Blocks until finality on chains without a `finalized` tag. Two epochs of Ethereum are the usual depth.
_FINAL_DEPTH = 64
# Time for which the highest head counts although nodes report a lower one. Later, the lower head counts.
LATELY = timedelta(minutes=5)
# A head that is at least this late, or this far behind another one, is wrong: in blocks, and in seconds.
_BLOCKS_BEHIND, _SECONDS_BEHIND = 5, 30
# Ages of the final block from which waits name it, and from which it is a notice, in seconds before the newest block.
# Ethereum's is 13 to 20 minutes old. So is that of a rollup that publishes blocks all the time. Small rollups publish
# every few hours: who waits learns why, and operators needn't act.
_FINAL_DELAYS_SECONDS, _FINAL_STANDS_SECONDS = 3600, 6 * 3600
# A newest block above which a chain's first block is not its newest final one. Some nodes always report it as that.
_FIRST_MAY_BE_FINAL = 10_000
# A newest block that is at least this far in the future is wrong, or the clock is: in blocks, and in seconds.
_BLOCKS_IN_FUTURE, _SECONDS_IN_FUTURE = 20, 300
# A poll comes this part of the block time after the expected block, so that it doesn't come just before the block.
_LATE_PART = 1 / 8
# Limits of the seconds between two polls. There are four polls per block.
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.2, 4
# The last time that a column holds. A node may report any.
_LATEST = 2**63 - 1
# Maximum other headers that are read with the heads, so that a long list doesn't delay these.
_MOST_BESIDE = 100


@dataclass(frozen=True)
class Heads:
    """The newest block, the newest confirmed block, and the number of the newest final block."""

    latest: Header
    confirmed: Header
    final: int
    finalized: Header | None = None
    """The newest final block as nodes report it. None: `final` is a guess by depth."""
    known: Mapping[int, Header] = field(default_factory=dict)
    """The headers that were read with these, by number."""


@dataclass
class _LastReading:
    """The last known state of a client's chain."""

    heads: Heads | None = None
    seen_at: float = 0
    """The time of the last reading, by `time.monotonic`."""
    noted: tuple[int, int] | None = None
    """The newest and the final block as stored for pages."""
    compared_at: float = -math.inf
    """The time when the nodes' heads were last compared, by `time.monotonic`."""


_last: WeakKeyDictionary[RpcClient, _LastReading] = WeakKeyDictionary()

QUESTIONS = (questions.header("latest"), questions.header("finalized"))


def read(chain: Chain, rpc: RpcClient, beside: Iterable[int] = ()) -> Heads:
    """Ask the chain for its heads, and store them for pages. Raises `NodeUnavailable`, `RpcRefused`.

    In the same exchange, ask for the headers `beside` (numbers), except for those of a long list's end.
    """
    began, numbers = time.monotonic(), sorted({*beside})[:_MOST_BESIDE]
    answers, others = rpc.ask(QUESTIONS, [questions.header(number) for number in numbers])
    heads = note(chain, rpc, answers, began)
    known = [header for header in (*others, heads.confirmed, heads.latest) if isinstance(header, Header)]
    return replace(heads, known={header.number: header for header in known})


def headers(rpc: RpcClient, numbers: Sequence[int], known: Mapping[int, Header]) -> list[Header | ChainError | None]:
    """Return the headers of blocks in order. Ask only for those that aren't `known` from `Heads.known`."""
    unknown = [number for number in numbers if number not in known]
    asked = dict(zip(unknown, rpc.ask([questions.header(number) for number in unknown]), strict=True))
    return [known.get(number) or asked[number] for number in numbers]


def note(chain: Chain, rpc: RpcClient, answers: Sequence[Header | ChainError | None], began: float) -> Heads:
    """Store the answers to `QUESTIONS` for pages, and return them as heads.

    `began` is the time, by `time.monotonic`, when the questions were sent.
    """
    latest, last = rpc.must_have_head(answers[0]), _last.setdefault(rpc, _LastReading())
    highest = last.heads.latest.number if last.heads else highest_lately(chain.id)
    if let_wrong_rest(chain, rpc, latest, highest) or _let_contradicting_rest(rpc, answers):
        answers = rpc.ask(QUESTIONS)
        latest = rpc.must_have_head(answers[0])
    finalized = None if isinstance(answers[1], RpcRefused | UnreadableHeader) else result(answers[1])
    # If the final block can't be read, nothing is final. An example is the first block of some development chains.
    guess = 0 if isinstance(answers[1], UnreadableHeader) else max(0, latest.number - _FINAL_DEPTH)
    final = finalized.number if finalized else guess
    if final > latest.number:
        raise InvalidReply(f"A node of chain {chain.id} reports block {final} as final, which is above its own head.")
    depth = latest.number - final if chain.confirmations == "finalized" else chain.confirmations - 1
    # A final block needs no more confirmations.
    number = max(latest.number - depth, final, 0)
    seen = {header.number: header for header in (latest, finalized) if header}
    confirmed = seen.get(number) or rpc.known_header(number)
    heads = Heads(latest, confirmed, final, finalized)
    _store(chain, last, heads)
    # A slow answer must not replace the answer to a later question.
    if last.heads is None or began >= last.seen_at:
        last.heads, last.seen_at = heads, began
    return heads


def let_wrong_rest(chain: Chain, rpc: RpcClient, latest: Header, highest: int) -> bool:
    """Let nodes rest that are old and far behind others; or the one ahead, if it lacks blocks below its newest one.

    So do nodes that alone tell a block in the future. Return whether there are any: then the next question goes to
    another. The nodes are compared only at first, if `latest` is late, in the future, or has come sooner than blocks
    do, or if it is far behind the highest block that was seen lately; those of test networks at times.
    """
    last = _last.setdefault(rpc, _LastReading())
    # A chain may stand still, so that its nodes agree.
    is_due = time.monotonic() - last.compared_at > MAX_REST_SECONDS
    is_odd = last.heads is None or is_late(chain, latest) or is_in_future(chain, latest)
    # The time of a test network's block doesn't show whether it is late.
    is_odd = is_odd or (chain.test_network and len(chain.rpc_urls) > 1)
    is_early = last.heads is not None and _is_early(chain, latest, last.heads.latest)
    if not (is_due and is_odd) and not is_early and not is_far_behind(chain, highest - latest.number):
        return False
    last.compared_at = time.monotonic()
    each = rpc.ask_each([QUESTIONS[0], questions.syncing()])
    newest = {host: header for host, (header, _) in each.items() if isinstance(header, Header)}
    syncing = {host for host in newest if each[host][1] is True}
    if have_rested := let_syncing_rest(rpc, syncing):
        newest = {host: header for host, header in newest.items() if host not in syncing} or newest
    future = {host for host, header in newest.items() if is_in_future(chain, header)}
    if future == newest.keys():
        future = set()  # This machine's clock may be behind.
    for host in future:
        rpc.rest(host, f"{host} alone tells a newest block that is far in the future")
    told = {host: header.number for host, header in newest.items() if host not in future}
    ahead = max(told, key=told.__getitem__, default="")
    wrong = {host for host, number in told.items() if is_far_behind(chain, told[ahead] - number)}
    # One URL may lead to several nodes, so the last few blocks may be missing.
    if wrong and rpc.ask_each([questions.header(max(0, told[ahead] - _BLOCKS_BEHIND))]).get(ahead) == [None]:
        wrong = {ahead}
    else:
        wrong = {host for host in wrong if lags(chain, newest[host], told[ahead])}
    for host in wrong:
        right = max(told.keys() - wrong, key=told.__getitem__)
        rpc.rest(host, f"{host} tells block {told[host]} as the newest, and {right} block {told[right]}")
    return bool(wrong or future or have_rested)


def let_syncing_rest(rpc: RpcClient, hosts: Collection[str]) -> bool:
    """Let nodes rest that say that they sync, if there are others. Return whether there are both."""
    resting = hosts if len(hosts) < len(rpc.chain.hosts) else ()
    for host in resting:
        rpc.rest(host, f"{host} says that it syncs")
    return bool(resting)


def head_of_all(rpc: RpcClient) -> Header:
    """Return the lowest of the nodes' newest blocks, so that all nodes have it.

    A node rests that lags more than a few blocks. If its newest block is young, it doesn't: the other nodes may have
    invented all blocks above.
    """
    chain, told = rpc.chain, {host: head for host, head in rpc.answers_of_each(QUESTIONS[0]).items() if head}
    current = {host: head for host, head in told.items() if not is_in_future(chain, head)} or told
    least = max((head.number for head in current.values()), default=0) - _BLOCKS_BEHIND
    for host, head in list(current.items()):
        if head.number < least and (chain.test_network or is_late(chain, head)):
            rpc.rest(host, f"{host} tells block {head.number} as the newest")
            del current[host]
    return min(current.values(), key=lambda head: head.number) if current else rpc.head()


def of_current_nodes(
    chain: Chain, rpc: RpcClient, highest: int, asked: Sequence[Question[Answer]]
) -> dict[str, tuple[Header, list[Answer | ChainError]]]:
    """Return the newest block and the answers of each node that is current, by its host. Empty: none is.

    A node isn't current while it says that it syncs, or while its newest block is far behind the `highest`. It tells
    nonces of earlier times: with one of these the service would sign a used nonce, or later take the signer's own
    transactions for a thief's. Therefore no nonce counts that isn't from here, except next to stored ones.
    """
    both: list[Question[Any]] = [QUESTIONS[0], questions.syncing(), *asked]
    told = rpc.ask_each(both) or {rpc.chain.hosts[0]: rpc.ask(both)}
    return {
        host: (newest, answers)
        for host, (newest, syncs, *answers) in told.items()
        if isinstance(newest, Header) and syncs is not True and not lags(chain, newest, highest)
    }


def lags(chain: Chain, newest: Header, highest: int) -> bool:
    """Return whether a node is wrong whose newest block is this one, where another node has told a `highest` one.

    Where its newest block is young, the other node may have invented all blocks above.
    """
    return is_far_behind(chain, highest - newest.number) and (chain.test_network or is_late(chain, newest))


def _let_contradicting_rest(rpc: RpcClient, answers: Sequence[Header | ChainError | None]) -> bool:
    """Let nodes rest whose final block is above their newest one, if the `answers` to `QUESTIONS` are such.

    Return whether there are any, and others to ask.
    """
    if not _contradict(answers):
        return False
    wrong = [host for host, of_node in rpc.ask_each(QUESTIONS).items() if _contradict(of_node)]
    for host in wrong:
        rpc.rest(host, f"{host} tells a final block above its newest one")
    return bool(wrong)


def _contradict(answers: Sequence[Header | ChainError | None]) -> bool:
    latest, finalized = answers
    return isinstance(latest, Header) and isinstance(finalized, Header) and finalized.number > latest.number


def _is_early(chain: Chain, latest: Header, before: Header) -> bool:
    """Return whether far more blocks have come since `before` than in the time between them."""
    seconds = latest.timestamp - before.timestamp
    return is_far_behind(chain, latest.number - before.number - int(seconds / chain.block_seconds))


def is_far_behind(chain: Chain, blocks: int) -> bool:
    """Return whether a head so many blocks behind is wrong. A short reorg is normal, and so is a node that lags."""
    return blocks > 2 and blocks * chain.block_seconds >= _SECONDS_BEHIND


def is_late(chain: Chain, latest: Header) -> bool:
    """Return whether the newest block is old.

    Test networks are left out, because development chains make blocks on demand and with any time.
    """
    return not chain.test_network and time.time() - latest.timestamp > _late_seconds(chain)


def _late_seconds(chain: Chain) -> float:
    return max(_SECONDS_BEHIND, _BLOCKS_BEHIND * chain.block_seconds)


def why_not_final(finalized: Header, latest: Header) -> str:
    """Return a sentence if the final block is a long chain's first one. Otherwise return an empty string."""
    if finalized.number or latest.number <= _FIRST_MAY_BE_FINAL:
        return ""
    return f"Nodes report block 0 as final, and block {latest.number} as the newest one."


def is_in_future(chain: Chain, latest: Header) -> bool:
    """Return whether the newest block is far ahead of this machine's clock. Test networks are left out."""
    most = max(_SECONDS_IN_FUTURE, _BLOCKS_IN_FUTURE * chain.block_seconds)
    return not chain.test_network and latest.timestamp - time.time() > most


def not_there_yet(chain_id: int, number: int, head: int, last: int | None = None) -> WaitReason:
    """Return the wait for block `number`, and for later blocks up to `last`. `head` is the newest block's number."""
    return wait("block_to_come", chain=chain_id, block=number, head=head, last=last)


def highest_lately(chain_id: int) -> int:
    """Return the highest head that any worker has seen in the last minutes. 0 if there is none."""
    lately = ChainHead.objects.filter(pk=chain_id, seen_at__gt=timezone.now() - LATELY)
    return lately.values_list("number", flat=True).first() or 0


def standing(
    chain: Chain, waiting: QuerySet[Transaction], *, is_mined: bool, at: datetime | None = None
) -> WaitReason | None:
    """Return why transactions aren't mined, or aren't final: the chain stands still, or its final block does.

    `at` is the time when nodes last reported the newest block. By default it is that of the last observation.
    """
    head = ChainHead.objects.filter(pk=chain.id).first()
    at = at or ChainWatch.objects.filter(pk=chain.id).values_list("seen_at", flat=True).first()
    if head is None:
        return None
    # A development chain makes no block before a node has taken a transaction.
    taken = waiting.filter(versions__broadcast_at__isnull=False)
    late = at and at - timedelta(seconds=_late_seconds(chain))
    if late and head.seen_at < late and taken.filter(spent_at__lt=late).exists():
        final = None if head.final_timestamp is None else head.final
        return wait("chain_stands", chain=chain.id, newest=head.number, final=final, since=head.seen_at.timestamp())
    if is_mined and chain.confirmations == "finalized":
        return _standing_finality(chain, head, _FINAL_DELAYS_SECONDS if head.final else 0)
    return None


def standing_finality(chain: Chain) -> WaitReason | None:
    """Return a sentence if the chain's newest final block is so much older than its newest one that it is a notice."""
    head = ChainHead.objects.filter(pk=chain.id).first()
    # Some nodes always report the first block as final. Nothing waits for another one then.
    is_expected = head and (head.final or chain.confirmations == "finalized")
    return _standing_finality(chain, head, _FINAL_STANDS_SECONDS) if head and is_expected else None


def _standing_finality(chain: Chain, head: ChainHead, least_seconds: int) -> WaitReason | None:
    # After the first block of a young chain, none is final yet.
    if head.final_timestamp is None or (head.final == 0 and head.number <= _FINAL_DEPTH):
        return None
    older: float = head.timestamp - head.final_timestamp
    if chain.test_network:
        # Blocks of a development chain may have any time.
        older = min(older, (head.number - head.final) * chain.block_seconds)
    if older < least_seconds:
        return None
    return wait("finality_stands", chain=chain.id, final=head.final, newest=head.number, older=int(older))


def recent(chain: Chain, rpc: RpcClient, beside: Iterable[int] = ()) -> Heads:
    """Return the heads that this process has read within the last `poll_seconds`, or `read` them now."""
    last = _last.get(rpc)
    if last is not None and last.heads is not None and time.monotonic() - last.seen_at < poll_seconds(chain):
        return last.heads
    return read(chain, rpc, beside)


def poll_seconds(chain: Chain) -> float:
    """Return the seconds between two polls. There are few polls per block, so that nodes aren't overloaded."""
    return min(_MAX_POLL_SECONDS, max(_MIN_POLL_SECONDS, chain.block_seconds / 4))


def seconds_to_next(chain: Chain, rpc: RpcClient) -> float:
    """Return the seconds until the next block should exist. If the block is late, return `poll_seconds`."""
    last, poll = _last.get(rpc), poll_seconds(chain)
    if last is None or last.heads is None:
        return poll
    seconds = last.heads.latest.timestamp + chain.block_seconds * (1 + _LATE_PART) - time.time()
    return seconds if poll < seconds <= chain.block_seconds + poll else poll


def _store(chain: Chain, last: _LastReading, heads: Heads) -> None:
    """Store the heads for pages, once for each block."""
    latest, number, final = heads.latest, heads.latest.number, heads.final
    if last.noted == (number, final):
        return
    now, values = timezone.now(), dict[str, int | None](number=number, final=final)
    values |= {"gas_limit": latest.gas_limit or 0, "timestamp": min(latest.timestamp, _LATEST)}
    values["final_timestamp"] = min(heads.finalized.timestamp, _LATEST) if heads.finalized else None
    # Another worker may have stored a higher head. A node that is behind must not lower it.
    behind = Q(number__gt=number, seen_at__gt=now - LATELY)
    seen_at = Case(When(number=number, then="seen_at"), default=now)
    others = ChainHead.objects.filter(~behind, pk=chain.id).exclude(number=number, final=final)
    if not others.update(seen_at=seen_at, **values):
        ChainHead.objects.get_or_create(pk=chain.id, defaults={"seen_at": now, **values})
    last.noted = number, final
    if last.heads and last.heads.latest.is_amsterdams != latest.is_amsterdams:
        # The chain's prices may have changed. The watch measures them.
        ChainWatch.objects.filter(pk=chain.id).update(due_at=None)
