"""Heads of chains: the latest block, and the newest confirmed and final blocks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from weakref import WeakKeyDictionary

from django.db.models import Q
from django.utils import timezone

from chains import questions
from chains.chains_file import Chain
from chains.header import ExecutionHeader
from chains.node_errors import ChainError, InvalidReply, RpcRefused, UnreadableHeader
from chains.rpc import RpcClient, result
from proving.models import ChainHead

# Blocks until finality on chains without a `finalized` tag: two epochs of Ethereum, the usual depth.
_FINAL_DEPTH = 64
# Time for which the highest head counts although nodes report a lower one. After that, the chain was rolled back.
_LATELY = timedelta(minutes=5)
# The part of the time between blocks by which the next one may be late, that we don't ask for it just before it comes.
_LATE_PART = 1 / 8
# Seconds between two polls, which are four for each block.
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.2, 4


@dataclass(frozen=True)
class Heads:
    """The newest block, the newest that counts as confirmed, and the number of the newest that is final."""

    latest: ExecutionHeader
    confirmed: ExecutionHeader
    final: int
    finalized: ExecutionHeader | None = None
    """The newest final one where the nodes say which that is; otherwise `final` is a guess by its depth."""


@dataclass
class _LastReading:
    """The last known state of a client's chain."""

    heads: Heads | None = None
    seen_at: float = 0
    """The time of the last reading, by `time.monotonic`."""
    noted: tuple[int, int] | None = None
    """The newest and the final block that are noted for the pages."""


_last: WeakKeyDictionary[RpcClient, _LastReading] = WeakKeyDictionary()

QUESTIONS = (questions.header("latest"), questions.header("finalized"))


def read(chain: Chain, rpc: RpcClient) -> Heads:
    """Ask the chain, and note what it says for the pages. Raises `NodeUnavailable`, `RpcRefused`."""
    began = time.monotonic()
    answers = rpc.ask(QUESTIONS)
    return note(chain, rpc, answers, began)


def note(chain: Chain, rpc: RpcClient, answers: Sequence[ExecutionHeader | ChainError | None], began: float) -> Heads:
    """Note for the pages what was answered to `QUESTIONS`, asked when `time.monotonic` was `began`, and return it."""
    latest = rpc.must_have_head(answers[0])
    finalized = None if isinstance(answers[1], RpcRefused | UnreadableHeader) else result(answers[1])
    # Nothing counts as final where the final block can't be read, such as the first one of a development chain.
    guess = 0 if isinstance(answers[1], UnreadableHeader) else max(0, latest.number - _FINAL_DEPTH)
    final = finalized.number if finalized else guess
    if final > latest.number:
        raise InvalidReply(f"A node of chain {chain.id} says that block {final} is final, above its own head.")
    last = _last.setdefault(rpc, _LastReading())
    depth = latest.number - final if chain.confirmations == "finalized" else chain.confirmations - 1
    # A final block needs no more confirmations.
    number = max(latest.number - depth, final, 0)
    seen = {header.number: header for header in (latest, finalized) if header}
    confirmed = seen.get(number) or rpc.known_header(number)
    heads = Heads(latest, confirmed, final, finalized)
    _store(chain, last, heads)
    # A slow answer is older than one that was asked for later.
    if last.heads is None or began >= last.seen_at:
        last.heads, last.seen_at = heads, began
    return heads


def not_there_yet(chain_id: int, number: int, head: int) -> str:
    """Say that a block is waited for, by its number and that of the newest block."""
    return f"Block {number} of chain {chain_id} does not exist yet; the head is {head}."


def highest_lately(chain_id: int) -> int:
    """Return the number of the highest head that any worker has seen within some minutes; 0: none has."""
    lately = ChainHead.objects.filter(pk=chain_id, seen_at__gt=timezone.now() - _LATELY)
    return lately.values_list("number", flat=True).first() or 0


def recent(chain: Chain, rpc: RpcClient) -> Heads:
    """Read the heads as `read` does, or return those that this process has read within the last `poll_seconds`."""
    last = _last.get(rpc)
    if last is not None and last.heads is not None and time.monotonic() - last.seen_at < poll_seconds(chain):
        return last.heads
    return read(chain, rpc)


def poll_seconds(chain: Chain) -> float:
    """Return how often to ask what the next block brings: a few times per block, so that no node is hammered."""
    return min(_MAX_POLL_SECONDS, max(_MIN_POLL_SECONDS, chain.block_seconds / 4))


def seconds_to_next(chain: Chain, rpc: RpcClient) -> float:
    """Return when to ask for the next block, if it comes as it should; then `poll_seconds` from time to time."""
    last, poll = _last.get(rpc), poll_seconds(chain)
    if last is None or last.heads is None:
        return poll
    seconds = last.heads.latest.timestamp + chain.block_seconds * (1 + _LATE_PART) - time.time()
    return seconds if poll < seconds <= chain.block_seconds + poll else poll


def _store(chain: Chain, last: _LastReading, heads: Heads) -> None:
    """Keep it for the pages, written once a block."""
    number, final = heads.latest.number, heads.final
    if last.noted == (number, final):
        return
    values = {"number": number, "final": final, "seen_at": timezone.now()}
    # Another worker may have noted it, or a higher one: a node that is behind tells nothing new.
    behind = Q(number__gt=number, seen_at__gt=timezone.now() - _LATELY)
    if not ChainHead.objects.filter(~behind, pk=chain.id).exclude(number=number, final=final).update(**values):
        ChainHead.objects.get_or_create(pk=chain.id, defaults=values)
    last.noted = number, final
