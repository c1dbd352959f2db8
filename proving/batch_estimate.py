"""What a batch would take that nobody has submitted: the chains are asked as admission asks them.

A client waits for the answer. So no node is waited for long, few requests wait at a time, and a source chain that does
not answer is left out. Nothing is stored.
"""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from accounts.models import ApiKey, User
from chains.chains_file import Chain
from chains.header import Header
from chains.rollups import DataCost
from chains.rpc import ChainError, Fees, RpcClient, RpcRefused
from config.configured_chains import get_chains, get_page_rpc
from config.error_answers import Refused
from proving import connections, facts
from proving.admission import feasibility
from proving.admission.feasibility import Ahead, Asked, BatchPart, Cost, Counted, Inquiry
from proving.budget import allowance, money
from proving.budget.money import Reservation
from proving.facts import Fact, HeaderFact
from proving.gas_model.proof_gas import Estimate, Likely, Missing, Part
from proving.registry.deployments import Unusable
from queries import batch_request, progress, submission
from queries.batch_request import BatchRequest, Selector
from queries.columns import Rejection
from queries.models import Query
from queries.submission import ESTIMATES

# How long a thread asks nodes, and when the client should try again.
_MOST_SECONDS = 10
_RETRY_SECONDS = 5
# Where a chain has no `finalized` tag (`proving.heads`).
_FINAL_DEPTH = 64

_Asking = Mapping[int, Sequence[Fact]]
"""By the place in the request: what each account or header asks for."""


class Unavailable(Refused):
    """It can't be estimated now."""

    def __init__(self, sentence: str) -> None:
        super().__init__("chain_unavailable", sentence, retry_after=_RETRY_SECONDS)


class _OutOfTime(Exception):
    """The client has waited long enough."""


@dataclass(frozen=True)
class PartEstimate:
    count: int
    in_registry: int  # of these
    gas: Likely


@dataclass(frozen=True)
class SourceEstimate:
    """The estimate for one source chain, as far as its nodes answered."""

    source: int
    head: int = 0  # the number of its newest block, where `blocks` has any
    blocks: Mapping[Selector, int] = field(default_factory=dict)  # their numbers, of those that exist or are named
    cost: Cost | None = None  # None: it is not known
    parts: Mapping[Part, PartEstimate] = field(default_factory=dict)
    estimates: Sequence[Estimate] = ()  # of what exists, and of what is still to come
    jumps: int = 0  # blocks that are reached by the beacon chain
    jump_origin: int | None = None  # the number of the block where these begin, if one is needed
    seconds: float = 0  # until all of it exists
    rejections: Sequence[Rejection] = ()
    waits: Sequence[str] = ()  # sentences
    faults: Sequence[str] = ()  # of nodes, sentences


@dataclass(frozen=True)
class Reason:
    """A reason why the batch would be rejected, or refused when it is submitted."""

    source: int | None  # None: it is not about one source chain
    code: str
    sentence: str
    retryable: bool


@dataclass(frozen=True)
class BatchEstimate:
    destination: Chain
    gas_price: int  # wei, at present
    sources: Sequence[SourceEstimate]
    fee_suffices: bool | None  # None: it would be the estimate
    confirming_blocks: int  # until what is mined counts
    reasons: Sequence[Reason]

    @property
    def cost(self) -> Cost:
        return _total(self.sources)

    @property
    def transactions(self) -> int:
        return sum(one.transactions for one in self._estimates)

    @property
    def _estimates(self) -> list[Estimate]:
        return [one for of_source in self.sources for one in of_source.estimates]

    @property
    def blocks_to_done(self) -> int:
        """Return the blocks of the destination until the batch is done, from the time when all its blocks exist."""
        rows = max((one.in_a_row for one in self._estimates), default=0)
        return rows + self.confirming_blocks if rows else 0

    @property
    def seconds_to_done(self) -> int:
        """Return the seconds until the batch is done, without the wait for a chain that does not answer."""
        gathering = self.destination.gather_seconds if self.transactions else 0
        until_all_exist = max((one.seconds for one in self.sources), default=0)
        return math.ceil(until_all_exist + gathering + self.blocks_to_done * self.destination.block_seconds)


def parsed(key: ApiKey, body_of: Callable[[], bytes]) -> tuple[BatchRequest, bytes]:
    """Return the request that `body_of` reads, and its body. Counts it among the estimates of the key's user.

    Raises `InvalidRequest`, and what `body_of`, `account_names.resolve` and `submission.count_request` raise.
    """
    submission.count_request(key.user, ESTIMATES)
    body = body_of()
    request = batch_request.parse(body, get_chains(), max_queries=settings.MAX_QUERIES_PER_BATCH)
    submission.count_queries(key.user, sum(part.size for part in request.parts()), ESTIMATES)
    return request, body


def estimate(request: BatchRequest, body: bytes, key: ApiKey) -> BatchEstimate:
    """Estimate what a batch would take, and why it would be rejected. Raises `Unavailable`."""
    destination = get_chains().chain(request.destinationChainId)
    try:
        sources, fees, confirming_blocks = _ask(request, destination)
    except _OutOfTime:
        raise Unavailable(
            f"The chains did not tell within {_MOST_SECONDS} s all that the estimate of this batch takes. Nothing was "
            "stored. Ask for it in parts, or later.",
        ) from None
    except ChainError as error:
        raise Unavailable(f"{error} Nothing was stored; send it again in a moment.") from None
    faults = [fault for one in sources for fault in one.faults]
    if faults and not any(one.cost or one.rejections for one in sources):
        raise Unavailable(f"{faults[0]} Nothing was stored; send it again in a moment.")
    low = _fee_too_low(request, destination, sources)
    return BatchEstimate(
        destination,
        fees.base_fee + fees.priority_fee,
        sources,
        None if request.fee is None or request.is_self_funded else low is None,
        confirming_blocks,
        list(_reasons(request, body, key, sources, low)),
    )


# --- What the chains say ----------------------------------------------------------------------------------------------


def _ask(request: BatchRequest, destination: Chain) -> tuple[list[SourceEstimate], Fees, int]:
    ends = time.monotonic() + _MOST_SECONDS

    def go_on() -> None:
        if time.monotonic() > ends:
            raise _OutOfTime

    rpc = get_page_rpc(destination.id)
    sources = [_of_source(destination, source, parts, go_on) for source, parts in _by_source(request).items()]
    go_on()
    return sources, rpc.fees(), _confirming_blocks(destination, rpc)


def _by_source(request: BatchRequest) -> Mapping[int, Mapping[Selector, _Asking]]:
    """Group what is asked for by the source chain, and by what selects a block there."""
    found: dict[int, dict[Selector, dict[int, Sequence[Fact]]]] = defaultdict(lambda: defaultdict(dict))
    for place, part in enumerate(request.parts()):
        asking = Query(address=part.address, fields=part.fields, slots=part.slots, timestamp=part.selector.timestamp)
        found[part.source][part.selector][place] = facts.of(asking)
    return found


def _confirming_blocks(destination: Chain, rpc: RpcClient) -> int:
    if isinstance(destination.confirmations, int):
        return destination.confirmations - 1
    try:
        head, finalized = rpc.head(), rpc.header("finalized")
    except RpcRefused:
        return _FINAL_DEPTH
    return head.number - finalized.number if finalized else _FINAL_DEPTH


def _of_source(
    destination: Chain, source: int, selected: Mapping[Selector, _Asking], go_on: Callable[[], None]
) -> SourceEstimate:
    try:
        connection = connections.open_for_waiting(destination.id, source)
        head = connection.source_rpc.head()
        deadline = progress.deadline_from(timezone.now())
        go_on()
        return _of_connection(Inquiry(connection, head, go_on), deadline, selected)
    except Unusable as why:
        return SourceEstimate(source, waits=[str(why)])
    except ChainError as error:
        return SourceEstimate(source, waits=[str(error)], faults=[str(error)])


@dataclass(frozen=True)
class _Found:
    """The facts that are asked for at blocks of one source chain."""

    blocks: Mapping[Selector, int]
    at: Mapping[int, _Asking]  # by number
    unfound: Mapping[int, _Asking]  # by the time (unix seconds) whose block is still to come
    rejections: Sequence[Rejection]

    def existing(self, head: Header) -> list[Asked]:
        return [Asked.once(number, self.at[number].values()) for number in sorted(self.at) if number <= head.number]

    def coming(self, head: Header) -> list[_Asking]:
        return [*(asking for number, asking in self.at.items() if number > head.number), *self.unfound.values()]


def _find(inquiry: Inquiry, selected: Mapping[Selector, _Asking]) -> _Found:
    head = inquiry.head
    blocks: dict[Selector, int] = {}
    at: dict[int, dict[int, Sequence[Fact]]] = defaultdict(dict)
    unfound: dict[int, _Asking] = {}
    rejections: list[Rejection] = []
    for selector, asking in selected.items():
        number: int | Rejection | None = selector.number
        if selector.tag:
            number = feasibility.block_of_tag(inquiry.connection.source_rpc, selector.tag, head, None)
        elif selector.timestamp is not None and selector.timestamp < head.timestamp:
            number = feasibility.block_of_time(inquiry.connection.source_rpc, selector.timestamp, head)
        if isinstance(number, Rejection):
            rejections.append(number)
        elif number is not None:
            blocks[selector] = number
            at[number].update(asking)
        elif selector.timestamp is not None:
            unfound[selector.timestamp] = asking
    return _Found(blocks, at, unfound, rejections)


def _of_connection(inquiry: Inquiry, deadline: datetime, selected: Mapping[Selector, _Asking]) -> SourceEstimate:
    head = inquiry.head
    found = _find(inquiry, selected)
    ahead = feasibility.ahead(found.at, found.unfound, inquiry.source, head)
    asked, coming = found.existing(head), found.coming(head)
    (checked,) = feasibility.check(inquiry, [BatchPart(asked, deadline)])
    faults = [str(obstacle) for obstacle in checked.obstacles if isinstance(obstacle, ChainError)]
    rejections = [one for one in (*found.rejections, ahead, *checked.obstacles) if isinstance(one, Rejection)]
    waits = [ahead.wait.sentence] if isinstance(ahead, Ahead) else []
    required = checked.required
    if required is None:
        return SourceEstimate(
            inquiry.source.id,
            head.number,
            found.blocks,
            rejections=rejections,
            waits=[*waits, *faults],
            faults=faults,
        )
    tries = checked.tries if asked or not coming else feasibility.sample_of_history(inquiry, head)
    estimates = [required.estimate, feasibility.to_come(coming, tries)]
    rpc = inquiry.connection.destination_rpc
    costs = feasibility.costs(rpc, [(one, required.fees) for one in estimates])
    return SourceEstimate(
        inquiry.source.id,
        head.number,
        found.blocks,
        cost=costs[0] + costs[1],
        parts=_parts(required.counted, asked, [Asked.once(0, asking.values()) for asking in coming], estimates),
        estimates=estimates,
        jumps=len(required.counted.route.jumps),
        jump_origin=required.counted.route.jump_origin,
        seconds=_seconds_until(found, inquiry.source, head),
        rejections=rejections,
        waits=[*waits, *required.counted.route.waits, *faults],
        faults=faults,
    )


def _seconds_until(found: _Found, source: Chain, head: Header) -> float:
    """Return the seconds until all of it exists."""
    blocks = max(found.at, default=0) - head.number
    return max(0.0, blocks * source.block_seconds, max(found.unfound, default=0) - head.timestamp)


def _parts(
    counted: Counted, asked: Sequence[Asked], coming: Sequence[Asked], estimates: Sequence[Estimate]
) -> dict[Part, PartEstimate]:
    every, missing = _count([*asked, *coming]), _count([*counted.missing, *coming])
    ways = counted.route.paths + len(counted.route.jumps)
    every += Counter({Part.HEADERS: len(asked) + len(coming), Part.PATHS: ways})
    missing += Counter({Part.HEADERS: sum(not one.is_known for one in counted.missing) + len(coming)})
    missing[Part.PATHS] = every[Part.PATHS]
    gas = {part: sum((one.parts.get(part, Likely()) for one in estimates), Likely()) for part in Part}
    return {part: PartEstimate(every[part], every[part] - missing[part], gas[part]) for part in Part if every[part]}


def _count(blocks: Iterable[Asked | Missing]) -> Counter[Part]:
    """Count how much of each part is asked for, without the headers themselves."""
    found: Counter[Part] = Counter()
    for block in blocks:
        here = Missing(0, block.facts, is_known=True)
        found[Part.HEADER_FIELDS] += sum(isinstance(fact, HeaderFact) for fact in here.facts)
        found[Part.ACCOUNTS] += len(here.words)
        found[Part.SLOTS] += sum(map(len, here.slots.values()))
        found[Part.TIMES] += here.times
    return found


# --- What admission would say -----------------------------------------------------------------------------------------


def _total(sources: Iterable[SourceEstimate]) -> Cost:
    return sum((one.cost for one in sources if one.cost), Cost(Likely(), Likely(), DataCost()))


def _fee_too_low(request: BatchRequest, destination: Chain, sources: Sequence[SourceEstimate]) -> Rejection | None:
    if request.fee is None or request.is_self_funded or destination.test_network:
        return None
    cost = _total(sources)
    path_gas = sum(one.path_gas for of_source in sources for one in of_source.estimates)
    return allowance.fee_too_low(request.fee, cost.bound, path_gas=path_gas, data_wei=cost.data.wei)


def _reasons(
    request: BatchRequest, body: bytes, key: ApiKey, sources: Sequence[SourceEstimate], low: Rejection | None
) -> Iterator[Reason]:
    """Yield all reasons to reject the batch, though it would be rejected for the first."""
    if refused := submission.why_no_room(request, body, key):
        yield Reason(None, refused.code, refused.sentence, refused.retry_after is not None)
    for of_source in sources:
        for one in of_source.rejections:
            yield Reason(of_source.source, one.code, one.reason, one.retryable)
    if request.is_self_funded:
        return  # What others pay for has no limits.
    user = User.objects.get(pk=key.user_id)
    destination = get_chains().chain(request.destinationChainId)
    for one in (
        *allowance.exceeded(
            user, destination, _total(sources).bound, Reservation(0, 0), money.to_user(user.pk, destination.id)
        ),
        *([low] if low else []),
    ):
        yield Reason(None, one.code, one.reason, one.retryable)
