"""What a batch takes of all its source chains, and why it would be rejected.

One function decides for admission, for `POST /estimate-batch-query`, for the form, and for a fee that is `auto`.
"""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from django.utils import timezone

from accounts import models
from accounts.models import ApiKey, User
from chains.chains_file import Chain
from chains.node_errors import ChainError
from config.configured_chains import get_chains, get_page_rpc
from config.error_answers import Refused
from proving import connections, facts, money, source_estimate
from proving.block_selection import Inquiry, Requests
from proving.facts import Fact
from proving.models import ChainHead
from proving.source_estimate import BatchPart, Cost, SourceEstimate
from queries import progress, submission
from queries.batch_request import BatchRequest, Selector
from queries.columns import Rejection, RejectionCode
from queries.models import Query
from queries.submission import BUSY_RETRY_SECONDS, ESTIMATES
from queries.waits import Value, WaitReason, wait

# How long a thread asks nodes, and when the client should try again.
_MOST_SECONDS = 10
_RETRY_SECONDS = 5
# Estimates that a process makes at a time. Its other threads, of `WEB_THREADS`, answer requests that wait for no node.
_MOST_AT_A_TIME = 3
_places = threading.BoundedSemaphore(_MOST_AT_A_TIME)
# Where no worker has seen which block of a chain is final.
_FINAL_DEPTH = 64


class Unavailable(Refused):
    """It can't be estimated now."""

    def __init__(self, sentence: str) -> None:
        super().__init__("chain_unavailable", sentence, retry_after=_RETRY_SECONDS)


@dataclass(frozen=True)
class Reason:
    """A reason why the batch would be rejected, or refused when it is submitted."""

    source: int | None  # None: it is not about one source chain
    code: str
    sentence: WaitReason | str  # a refusal's is text
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
        return total(self.sources)

    @property
    def transactions(self) -> int:
        return sum(one.estimate.transactions for one in self.sources)

    @property
    def blocks_to_done(self) -> int:
        """Return the blocks of the destination until the batch is done, from the time when all its blocks exist."""
        rows = max((one.estimate.in_a_row for one in self.sources), default=0)
        return rows + self.confirming_blocks if rows else 0

    @property
    def seconds_to_done(self) -> int:
        """Return the seconds until the batch is done, without the wait for a chain that does not answer."""
        gathering = self.destination.gather_seconds if self.transactions else 0
        until_all_exist = max((one.seconds for one in self.sources), default=0)
        return math.ceil(until_all_exist + gathering + self.blocks_to_done * self.destination.block_seconds)


def total(sources: Sequence[SourceEstimate]) -> Cost:
    """Return what the sources cost together, as far as that is known."""
    return sum((one.cost for one in sources if one.cost), Cost())


# --- Of a request that is not stored ----------------------------------------------------------------------------------


def parsed(key: ApiKey, body_of: Callable[[], bytes]) -> tuple[BatchRequest, bytes]:
    """Return the request that `body_of` reads, and its body. Counts it among the estimates of the key's user.

    Raises `InvalidRequest`, and what `body_of`, `account_names.resolve` and `submission.count_request` raise.
    """
    submission.count_request(key.user, ESTIMATES)
    body = body_of()
    request = submission.read(key.user, body, ESTIMATES)
    submission.count_queries(key.user, sum(part.size for part in request.parts()), ESTIMATES)
    return request, body


def estimate(request: BatchRequest, body: bytes, key: ApiKey) -> BatchEstimate:
    """Estimate what a batch would take, and why it would be rejected. Raises `Unavailable`, and `Refused`: busy."""
    if not _places.acquire(blocking=False):
        raise Refused(
            "busy",
            "The service is making other estimates. Nothing was stored; ask for this one again in a moment.",
            retry_after=BUSY_RETRY_SECONDS,
        )
    try:
        return _estimated(request, body, key)
    finally:
        _places.release()


def _estimated(request: BatchRequest, body: bytes, key: ApiKey) -> BatchEstimate:
    """Estimate a batch in a place of its own. Raises `Unavailable`."""
    destination, ends = get_chains().chain(request.destinationChainId), time.monotonic() + _MOST_SECONDS

    def go_on() -> None:
        if time.monotonic() > ends:
            raise Unavailable(
                f"The chains did not tell within {_MOST_SECONDS} s all that the estimate of this batch takes. Nothing "
                "was stored. Ask for it in parts, or later.",
            )

    deadline = progress.deadline_from(timezone.now())
    sources = [
        estimate
        for source, requests in _by_source(request).items()
        for estimate in source_estimate.of_source(
            source, partial(_inquiry, destination, source, go_on), [BatchPart(requests, deadline)]
        )
    ]
    go_on()
    try:
        fees = get_page_rpc(destination.id).fees()
        fault = next((one.fault for one in sources if one.fault), None)
        if fault and not any(one.cost or one.rejections for one in sources):
            raise fault
    except ChainError as error:
        raise Unavailable(f"{error} Nothing was stored; send it again in a moment.") from None
    user, fee, bound = User.objects.get(pk=key.user_id), request.fee, total(sources).wei.bound
    limits: list[Rejection] = []
    if not request.is_self_funded:
        limits += too_dear(user, destination, total(sources), fee, money.to_user(user.pk, destination.id))
    return BatchEstimate(
        destination,
        fees.base_fee + fees.priority_fee,
        sources,
        None if fee is None or request.is_self_funded else destination.test_network or bound <= fee,
        _confirming_blocks(destination),
        list(_reasons(request, body, key, sources, limits)),
    )


def _by_source(request: BatchRequest) -> Mapping[int, Requests]:
    found: dict[int, dict[Selector, dict[Fact, None]]] = defaultdict(lambda: defaultdict(dict))
    for part in request.parts():
        asking = Query(address=part.address, fields=part.fields, slots=part.slots, timestamp=part.selector.timestamp)
        found[part.source][part.selector].update(dict.fromkeys(facts.of(asking)))
    return found


def _inquiry(destination: Chain, source: int, go_on: Callable[[], None]) -> Inquiry:
    connection = connections.open_for_waiting(destination.id, source)
    head = connection.source_rpc.head()
    go_on()
    return Inquiry(connection, head, go_on)


def _confirming_blocks(destination: Chain) -> int:
    if isinstance(destination.confirmations, int):
        return destination.confirmations - 1
    seen = ChainHead.objects.filter(pk=destination.id).first()
    return seen.number - seen.final if seen else _FINAL_DEPTH


def _reasons(
    request: BatchRequest, body: bytes, key: ApiKey, sources: Sequence[SourceEstimate], limits: Sequence[Rejection]
) -> Iterator[Reason]:
    """Yield all reasons to reject the batch, though it would be rejected for the first."""
    if refused := submission.why_no_room(request, body, key):
        yield Reason(None, refused.code, refused.sentence, refused.retry_after is not None)
    for of_source in sources:
        for one in of_source.rejections:
            yield Reason(of_source.source, one.code, one.reason, one.retryable)
    for one in limits:
        yield Reason(None, one.code, one.reason, one.retryable)


# --- What it may cost -------------------------------------------------------------------------------------------------


def too_dear(user: User, destination: Chain, cost: Cost, fee: int | None, used: int) -> Iterator[Rejection]:
    """Yield a rejection for each limit of the day that leaves no room for this, now or ever, and for the fee.

    The user has `used` so many wei of the day (`money.to_user`). A `fee` of None is the estimate.
    """
    if (most := models.daily_wei(user.daily_limits_wei, destination)) is not None:
        yield from _beyond(destination, "a user's batches", most, cost.wei.bound, used)
    if (most := destination.daily_limit_wei) is not None:
        # What others have used up is waited for.
        yield from _beyond(destination, "all batches together", most, cost.wei.bound, 0)
    if fee is not None and cost.wei.bound > fee and not destination.test_network:
        parts = {"path_gas": cost.path_gas or None, "data_wei": cost.data_wei or None}
        bound = {"cost": cost.wei.bound, "gas": cost.gas.bound}
        reason = wait("fee_too_low", chain=destination.id, fee=fee, **bound, **parts)
        yield Rejection(RejectionCode.FEE_TOO_LOW, reason, retryable=True)


def _beyond(chain: Chain, whose: str, most: int, needed: int, used: int) -> Iterator[Rejection]:
    """Yield why one limit of 24 hours, in wei, leaves no room."""
    limit: dict[str, Value] = {"whose": whose, "chain": chain.id, "most": most}
    if not most:
        # Else gas may become cheaper.
        yield Rejection(RejectionCode.TOO_LARGE_FOR_BUDGET, wait("nothing_allowed", **limit), retryable=False)
    elif needed > most:
        reason = wait("too_large_for_limit", needed=needed, **limit)
        yield Rejection(RejectionCode.TOO_LARGE_FOR_BUDGET, reason, retryable=True)
    elif used + needed > most:
        reason = wait("limit_used_up", used=used, needed=needed, **limit)
        yield Rejection(RejectionCode.BUDGET_EXCEEDED, reason, retryable=True)
