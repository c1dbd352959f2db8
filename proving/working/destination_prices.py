"""The gas prices of destinations, and their forks to come, as stored next to their heads (`proving.working.heads`)."""

import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from weakref import WeakKeyDictionary

from django.db import Error as DatabaseError
from django.utils import timezone

from chains.chains_file import Chain
from chains.nodes import price_measurement, questions
from chains.nodes.node_errors import ChainError
from chains.nodes.rpc import RpcClient
from chains.prices import OSAKA, GasPrices
from chains.tries.header import Header
from config.configured_chains import get_rpc
from proving.models import ChainHead
from proving.working import heads

# Seconds after which this process reads a chain's prices again, and for which it keeps those that it found itself.
_KEPT_SECONDS, _FOUND_SECONDS = 4, 60
# Seconds before a fork from which estimates have the dearer prices, and nodes are asked at each turn. Before, they are
# asked once in these seconds.
_NEAR = 3600
# Blocks before a fork, and seconds after it, in which nothing new is signed until the fork's first block.
_BLOCKS_BEFORE, SECONDS_AFTER = 2, 120
_ENOUGH_NODES = 2
# The blocks in a row by which a single node shows a fork.
_IN_A_ROW = 3


@dataclass(frozen=True)
class Fork:
    """A fork to come."""

    at: int
    """The time from which its rules count, in seconds since 1970."""
    nodes: int
    """The number of nodes that name this time."""
    is_known: bool
    """True if this version knows its rules."""

    def is_believed(self, chain: Chain) -> bool:
        """Return whether enough of the chain's nodes name the fork. One of several may name a wrong one."""
        return self.nodes >= min(_ENOUGH_NODES, len(chain.rpc_urls))


@dataclass(frozen=True)
class _PriceReading:
    """The prices and the fork of a chain, as this process last read them."""

    prices: GasPrices
    fork: Fork | None
    head_at: int
    """The time of the newest block. 0: not known."""
    stored: tuple[str, float]
    """The record's name and the scale as stored. The name is empty if no worker has found it."""
    changed_at: datetime | None
    """The time at which the worker found another record than before. None: never."""
    read_at: float
    """The time by `time.monotonic`."""


# These are by the client that this process shares (`get_rpc`).
_read: WeakKeyDictionary[RpcClient, _PriceReading] = WeakKeyDictionary()
_found: WeakKeyDictionary[RpcClient, tuple[GasPrices, float]] = WeakKeyDictionary()
"""The prices that this process found itself, and when, by `time.monotonic`."""
_asked_for_forks: WeakKeyDictionary[RpcClient, float] = WeakKeyDictionary()


def of(rpc: RpcClient, head: Header | None = None) -> GasPrices:
    """Return the prices of the client's chain, whose newest block may be known. Ask no node.

    They are the first of its records until a worker, or `find`, has measured.
    """
    prices = _reading(rpc).prices
    return prices if head is None else replace(prices, block_gas=head.gas_limit or 0)


def find(rpc: RpcClient) -> GasPrices:
    """Return the prices. Ask nodes if no worker has measured them yet. Raises `NodeUnavailable`, `RpcRefused`."""
    reading = _reading(rpc)
    if not reading.stored[0] and (shared := get_rpc(rpc.chain.id)) not in _found:
        _found[shared] = _measured(rpc, reading.prices)[0], time.monotonic()
        _read.pop(shared, None)
    return of(rpc)


def for_estimates(rpc: RpcClient) -> GasPrices:
    """Return the prices for estimates.

    Shortly before a fork with known prices they are those after it, and so until the chain's are found to be those.
    """
    prices, fork, after = of(rpc), _reading(rpc).fork, rpc.chain.gas_prices[-1]
    if fork is None or not fork.is_known or prices.name == after.name:
        return prices
    is_dear = fork.is_believed(rpc.chain) and abs(fork.at - _now(rpc)) < _NEAR
    return replace(after, block_gas=prices.block_gas) if is_dear else prices


def coming_fork(rpc: RpcClient) -> Fork | None:
    """Return the fork that the newest block hasn't reached yet."""
    reading = _reading(rpc)
    return reading.fork if reading.fork and reading.head_at < reading.fork.at else None


def fork_begins(rpc: RpcClient) -> Fork | None:
    """Return the fork that begins now. What is signed with the prices before it may fail after it."""
    fork, now = coming_fork(rpc), _now(rpc)
    if fork is None or fork.nodes < _ENOUGH_NODES:
        return None
    return fork if fork.at - _BLOCKS_BEFORE * rpc.chain.block_seconds <= now < fork.at + SECONDS_AFTER else None


def fork_after(rpc: RpcClient, at: datetime | None) -> str:
    """Return the record's name if the chain had another record at this time. Otherwise return an empty text."""
    reading = _reading(rpc)
    return reading.prices.name if at and reading.changed_at and at < reading.changed_at else ""


# --- For the watch of chains ------------------------------------------------------------------------------------------


def measure(rpc: RpcClient, head: Header, final: Header | int, *, are_charged: bool) -> GasPrices | None:
    """Measure the prices and store them, unless a node's answers show already that they `are_charged`.

    `head` and `final` are the newest block and the newest final one, or its number. Return the prices if the chain
    charges unknown ones. Raises `ChainError`.
    """
    reading = _reading(rpc)
    prices, records = reading.prices, rpc.chain.gas_prices
    agrees = len(records) == 1 or prices.name == records[head.is_amsterdams].name
    measured, are_known = replace(prices, scale=1), True
    if not (are_charged and agrees):
        measured, are_known = _measured(rpc, prices, final)
    if (measured.name, measured.scale) != reading.stored:
        columns = {"gas_prices": measured.name, "gas_scale": measured.scale}
        # Versions before had the first record.
        if measured.name != (reading.stored[0] or OSAKA.name):
            columns["gas_prices_at"] = timezone.now()
        ChainHead.objects.filter(pk=rpc.chain.id).update(**columns)
        _read.pop(get_rpc(rpc.chain.id), None)
    return None if are_known else measured


def _measured(rpc: RpcClient, prices: GasPrices, final: Header | int | None = None) -> tuple[GasPrices, bool]:
    """Return the prices that the chain has now, after `prices`, and whether it charges known ones. Ask each node.

    The headers of all nodes that don't lag must show a change, and what one of them charges. A node alone can thus
    change nothing, and prevent nothing. The prices don't go back unless the newest final block does.
    """
    first, after = rpc.chain.gas_prices[0], rpc.chain.gas_prices[-1]
    of_nodes = price_measurement.measure(rpc, rpc.chain.gas_prices)
    highest = max((of_node.head.number for of_node in of_nodes if of_node.head), default=0)
    of_nodes = [each for each in of_nodes if not (each.head and heads.lags(rpc.chain, each.head, highest))]
    newest = [of_node.head for of_node in of_nodes if of_node.head]
    candidates = [prices]
    if newest and all(head.is_amsterdams for head in newest) and _has_begun(rpc, newest):
        candidates.insert(0, after)
    elif newest and not any(head.is_amsterdams for head in newest) and final is not None:
        newest_final = rpc.known_header(final) if isinstance(final, int) else final
        candidates[:0] = [] if newest_final.is_amsterdams else [first]
    for candidate in candidates:
        if any(candidate.name in of_node.fitting for of_node in of_nodes):
            return replace(candidate, block_gas=prices.block_gas, scale=1), True
    scales = [of_node.scale[prices.name] for of_node in of_nodes if prices.name in of_node.scale]
    # A node that has reached the fork may be the first one, or not have shown enough blocks yet.
    begins = any(of_node.head and of_node.head.is_amsterdams and after.name in of_node.fitting for of_node in of_nodes)
    return replace(prices, scale=min(scales, default=prices.scale)), begins or not scales


def _has_begun(rpc: RpcClient, newest: list[Header]) -> bool:
    if len(newest) > 1:
        return True
    before = [number for number in range(newest[0].number - _IN_A_ROW + 1, newest[0].number) if number >= 0]
    return all(header.is_amsterdams for header in rpc.known_headers(before))


def ask_for_fork(rpc: RpcClient) -> Fork | None:
    """Return the fork to come. Ask each node for it every hour, and more often shortly before it."""
    shared = get_rpc(rpc.chain.id)
    fork, asked_at = coming_fork(rpc), _asked_for_forks.get(shared)
    is_near = fork is not None and fork.at - _now(rpc) < _NEAR
    if asked_at is not None and not is_near and time.monotonic() - asked_at < _NEAR:
        return fork
    question = questions.coming_fork()
    told = [*rpc.answers_of_each(question).values()] or rpc.ask([question])
    _asked_for_forks[shared] = time.monotonic()
    answers = [answer for answer in told if not isinstance(answer, ChainError)]
    if not answers:
        return fork
    forks = Counter(answer.at for answer in answers if answer)
    named = None
    if forks:
        at = min(forks, key=lambda at: (-forks[at], at))
        is_known = all(answer.is_known for answer in answers if answer and answer.at == at)
        named = Fork(at, forks[at], is_known=is_known)
    reading = _reading(rpc)
    if named is None and reading.fork and 0 <= _now(rpc) - reading.fork.at < _NEAR:
        return coming_fork(rpc)  # Estimates need it until the chain's prices are found to be those after it.
    if named != reading.fork:
        ChainHead.objects.filter(pk=rpc.chain.id).update(fork=named and asdict(named))
        _read.pop(shared, None)
    return coming_fork(rpc)


# --- Rows -------------------------------------------------------------------------------------------------------------


def _reading(rpc: RpcClient) -> _PriceReading:
    shared = get_rpc(rpc.chain.id)
    known = _read.get(shared)
    if known and time.monotonic() - known.read_at < _KEPT_SECONDS:
        return known
    try:
        row = ChainHead.objects.filter(pk=rpc.chain.id).first() or ChainHead(chain_id=rpc.chain.id)
    except DatabaseError:
        # Chains can be checked before the database exists.
        row = ChainHead(chain_id=rpc.chain.id)
    records = {record.name: record for record in rpc.chain.gas_prices}
    record = replace(records.get(row.gas_prices, rpc.chain.gas_prices[0]), scale=row.gas_scale)
    found, found_at = _found.get(shared, (record, 0.0))
    if row.gas_prices or time.monotonic() - found_at > _FOUND_SECONDS:
        _found.pop(shared, None)
    else:
        record = found
    fork = Fork(**row.fork) if row.fork else None
    prices = replace(record, block_gas=row.gas_limit)
    stored = (row.gas_prices, row.gas_scale)
    known = _PriceReading(prices, fork, row.timestamp, stored, row.gas_prices_at, time.monotonic())
    _read[shared] = known
    return known


def _now(rpc: RpcClient) -> float:
    """Return the time, in seconds since 1970. A development chain's may be ahead of the clock's."""
    return max(time.time(), _reading(rpc).head_at)
