"""Observes every configured chain, also while there is no work, so that `/healthz` can tell without asking a chain.

One worker at a time does so, every half a minute or less, with one or two cheap requests.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from django.db.models import Max
from django.db.models.functions import Now
from django.utils import timezone

from chains import questions
from chains.chains_file import Chain
from chains.header import Header
from chains.node_errors import ChainError, NodeUnavailable, RpcRefused, WrongChain
from chains.rpc import RpcClient, result
from chains.signer_keys import SignerError
from config.configured_chains import get_chains, get_rpc
from proving import heads, money
from proving.health.findings import Problem
from proving.lanes import HeldLane, LaneLost
from proving.models import ChainWatch
from proving.transactions import signers
from queries import clock
from queries.models import ServiceClock

logger = logging.getLogger(__name__)

# Seconds between two observations, and while something is wrong: the operator who mends it wants to see that.
_PAUSE, _PAUSE_IN_TROUBLE = timedelta(seconds=30), timedelta(seconds=10)
# A newest block that is older has another reason than chance, in blocks and in seconds.
_BLOCKS_LATE, _SECONDS_LATE = 20, 300
# A head that is so late, or so far back, is told.
_BLOCKS_BEHIND, _SECONDS_BEHIND = 5, 30
# A node may say anything. The last second that a `datetime` can tell, in unix seconds.
_LATEST = 253_402_300_799
_MOST_WEI = (1 << 256) - 1


def wake() -> None:
    """Make all chains due, because chains.toml may say something else now."""
    ids = [chain.id for chain in get_chains().chains]
    ChainWatch.objects.bulk_create([ChainWatch(chain_id=chain) for chain in ids], ignore_conflicts=True)
    ChainWatch.objects.update(due_at=None)


def observe(lane: HeldLane) -> None:
    """Observe each chain that is due: a worker's duty."""
    # A later time was written by a clock ahead.
    due = set(ChainWatch.objects.exclude(due_at__range=(Now(), Now() + _PAUSE)).values_list("pk", flat=True))
    for chain in get_chains().chains:
        if chain.id in due:
            try:
                _observe(lane, chain)
            except LaneLost:
                raise
            except Exception:
                # The other chains are observed all the same.
                logger.exception("observing chain %s failed", chain.id)
                ChainWatch.objects.filter(pk=chain.id).update(due_at=Now() + _PAUSE)


@dataclass(frozen=True)
class Examined:
    """The observations of a chain, and the problems of its nodes, clock and signers."""

    head: Header | None
    """The newest block; None where no node tells it."""
    problems: list[Problem]
    balances: Mapping[str, int]
    """In wei, by the addresses of the signers whose keys can be read."""


def examine(chain: Chain, rpc: RpcClient) -> Examined:
    problems = [
        Problem("wrong_chain", f"URL {place + 1} of {chain.label} is not used: {error}.")
        for place, error in rpc.wrong_chains().items()
    ]
    head, balances = None, dict[str, int]()
    try:
        head = rpc.head()
        problems += _apart_from_clock(chain, head)
        if chain in get_chains().destinations():
            addresses: list[str] = []
            problems += _of_keys(chain, addresses)
            signers = list(dict.fromkeys(addresses))
            balances = dict(zip(signers, rpc.answers([questions.balance(one) for one in signers]), strict=True))
            problems += _of_balances(chain, balances)
    except ChainError as error:
        # Where all nodes are of other chains, that is told by now.
        if not (problems and isinstance(error, WrongChain)):
            problems.append(_unavailable(chain, error))
    return Examined(head, problems, balances)


def _observe(lane: HeldLane, chain: Chain) -> None:
    rpc = get_rpc(chain.id)
    seen = examine(chain, rpc)
    found: dict[str, object] = {"looked_at": Now()}
    problems = seen.problems
    if seen.head:
        found |= {"timestamp": min(seen.head.timestamp, _LATEST), "number": seen.head.number, "seen_at": Now()}
        found |= _state(chain, rpc, seen.head)
        problems = [*problems, *_gone_back(chain, seen.head)]
    found |= {"problems": problems, "due_at": Now() + (_PAUSE_IN_TROUBLE if problems else _PAUSE)}
    if seen.balances:
        found["balances"] = {address: str(wei) for address, wei in seen.balances.items()}
    if chain in get_chains().destinations():
        with signers.locked(chain):
            found["spent_in_day"] = money.on_chain(chain.id)
    lane.write(partial(ChainWatch.objects.filter(pk=chain.id).update, **found))
    _note_newest_block()


def _note_newest_block() -> None:
    """Note its time for `queries.clock`. A test network may have any time: it counts where there are no others."""
    chains = get_chains().chains
    counted = [chain.id for chain in chains if not chain.test_network] or [chain.id for chain in chains]
    # One node that tells a time far ahead takes nothing from what others say.
    believed = ChainWatch.objects.filter(timestamp__lte=int((timezone.now() + clock.BEHIND).timestamp()))
    newest = believed.filter(pk__in=counted).aggregate(timestamp=Max("timestamp"))["timestamp"]
    if newest is not None:
        ServiceClock.objects.update_or_create(pk=1, defaults={"at": datetime.fromtimestamp(newest, UTC)})


def _state(chain: Chain, rpc: RpcClient, head: Header) -> dict[str, object]:
    """Ask what pages tell of the chain, and nothing depends on. Without an answer all is left as it was known."""
    found: dict[str, object] = {}
    is_destination = chain in get_chains().destinations()
    with suppress(ChainError):
        began = time.monotonic()
        newest, kept, suggested = rpc.ask(
            heads.QUESTIONS, [questions.keeps_hashes(head, chain)], [questions.priority_fee()] if is_destination else []
        )
        # It notes the head for all workers.
        seen = heads.note(chain, rpc, newest, began)
        found["keeps_hashes"] = not isinstance(kept[0], RpcRefused) and result(kept[0])
        if seen.finalized:
            found["final"] = seen.final
        if suggested:
            fees = rpc.fees_by(seen.latest, suggested[0])
            found["gas_price"] = min(fees.base_fee + fees.priority_fee, _MOST_WEI)
    return found


def _unavailable(chain: Chain, error: ChainError) -> Problem:
    if isinstance(error, WrongChain):
        return Problem("wrong_chain", str(error))
    if isinstance(error, NodeUnavailable):
        return Problem("chain_unavailable", str(error))
    # The words of a node are not ours to publish.
    return Problem("chain_unavailable", f"No node of {chain.label} can be used: it refuses what any node answers.")


def _lag(chain: Chain) -> float:
    """Return how old the newest block of a chain may be, in seconds."""
    return max(_SECONDS_LATE, _BLOCKS_LATE * chain.block_seconds)


def _apart_from_clock(chain: Chain, head: Header) -> Iterator[Problem]:
    # Development chains make blocks when they are told to, and at any time that they are told.
    age = time.time() - head.timestamp
    late = max(_SECONDS_BEHIND, _BLOCKS_BEHIND * chain.block_seconds)
    if chain.test_network or -_lag(chain) <= age <= late:
        return
    if age > 0:
        sentence = f"is {age:,.0f} s old: the chain or its nodes stand still, or this machine's clock is ahead."
    else:
        sentence = f"is {-age:,.0f} s in the future: this machine's clock is behind."
    yield Problem("clock", f"The newest block of {chain.label} {sentence}")


def _gone_back(chain: Chain, head: Header) -> Iterator[Problem]:
    behind = heads.highest_lately(chain.id) - head.number
    # A reorganisation is no news, nor one node that is a moment behind another.
    if behind > 2 and behind * chain.block_seconds >= _SECONDS_BEHIND:
        yield Problem(
            "head_went_back",
            f"The newest block of {chain.label} is {head.number}, and {head.number + behind} was seen "
            "a few minutes ago: its nodes are behind.",
        )


def _of_keys(chain: Chain, addresses: list[str]) -> Iterator[Problem]:
    """Yield what is wrong with the keys of the signers, and add their addresses to `addresses`."""
    for number, signer in enumerate(chain.all_signers, 1):
        try:
            addresses.append(signer.account().address)
        except SignerError:
            which = "the signer" if len(chain.all_signers) == 1 else f"signer {number}"
            yield Problem("signer_unreadable", f"The key of {which} of {chain.label} can't be read.")
    for address in sorted({one for one in addresses if addresses.count(one) > 1}):
        yield Problem("signer_unreadable", f"Two signers of {chain.label} have the same key, that of {address}.")


def _of_balances(chain: Chain, balances: Mapping[str, int]) -> Iterator[Problem]:
    for address, balance in balances.items():
        if balance < chain.minimum_signer_balance_wei:
            yield Problem(
                "signer_unfunded",
                f"The signer {address} on {chain.label} holds {balance / 10**18:.6f} {chain.native_currency}, less "
                f"than the {chain.minimum_signer_balance} at which it stops. Fund it.",
            )
