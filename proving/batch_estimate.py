"""Estimates of the cost of a request that isn't stored, and the reasons to reject it, for the API and the form."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django.utils import timezone

from accounts.models import ApiKey, User
from chains.chains_file import Chain
from chains.node_errors import ChainError
from config.configured_chains import get_chains, get_page_rpc
from config.error_answers import Refused
from proving import admission_checks, money, named_transactions, source_estimate
from proving.admission_checks import SpendingAccount
from proving.block_selection import Requests
from proving.connections import OutOfTime
from proving.models import ChainHead
from proving.named_transactions import Asked
from proving.source_estimate import BatchPart, Cost, SourceEstimate
from queries import progress, submission
from queries.batch_request import BatchRequest, Selector
from queries.columns import Rejection
from queries.submission import BUSY_RETRY_SECONDS, ESTIMATES, Rate

# Maximum seconds to ask nodes for one estimate, and seconds after which the client should try again.
_MOST_SECONDS = 10
_RETRY_SECONDS = 5
# Maximum number of estimates that a process makes at the same time. Its other threads (`WEB_THREADS`) stay free for
# requests without nodes.
_MOST_AT_A_TIME = 3
_places = threading.BoundedSemaphore(_MOST_AT_A_TIME)
# Blocks until finality, if no worker has seen a final block of the chain.
_FINAL_DEPTH = 64


class EstimateUnavailable(Refused):
    """The batch can't be estimated now."""

    def __init__(self, sentence: str) -> None:
        super().__init__("chain_unavailable", sentence, retry_after=_RETRY_SECONDS)


@dataclass(frozen=True)
class BatchEstimate:
    destination: Chain
    gas_price: int  # current price in wei
    sources: Sequence[SourceEstimate]
    fee_suffices: bool | None  # None if the fee is `auto`
    confirming_blocks: int  # blocks after a transaction's own block until the transaction is confirmed
    rejections: Sequence[Rejection]

    @property
    def cost(self) -> Cost:
        return admission_checks.total(self.sources)

    @property
    def transactions(self) -> int:
        return sum(source.estimate.transactions for source in self.sources)

    @property
    def blocks_to_done(self) -> int:
        """Return the number of destination blocks until the batch is done, counted from when all its blocks exist."""
        rows = max((source.estimate.in_a_row for source in self.sources), default=0)
        return rows + self.confirming_blocks if rows else 0

    @property
    def seconds_to_done(self) -> int:
        """Return the seconds until the batch is done, if all chains answer."""
        gathering = self.destination.gather_seconds if self.transactions else 0
        until_all_exist = max((source.selected.seconds for source in self.sources if source.selected), default=0)
        return math.ceil(until_all_exist + gathering + self.blocks_to_done * self.destination.block_seconds)


def parsed(key: ApiKey, body_of: Callable[[], bytes], rate: Rate = ESTIMATES) -> tuple[BatchRequest, bytes]:
    """Return the request that `body_of` reads, and its body. Count the request among the user's estimates.

    Raises `InvalidRequest`, and the errors of `body_of`, `account_names.resolve` and `submission.count_request`.
    """
    rate = rate.of_key(key)
    submission.count_request(key.user, rate)
    body = body_of()
    request = submission.read(key.user, body, rate)
    submission.count_queries(key.user, request.size, rate)
    return request, body


def estimate(request: BatchRequest, body: bytes, key: ApiKey) -> BatchEstimate:
    """Estimate the cost of a batch, and find the reasons to reject it.

    Raises `EstimateUnavailable`, and `Refused`: busy.
    """
    with asking_nodes() as ends_at:
        return _estimated(request, body, key, ends_at)


@contextmanager
def asking_nodes() -> Iterator[float]:
    """Let one client of few ask nodes. Return until when, by `time.monotonic`. Raises `Refused`: busy.

    If the chains take longer, it is an `EstimateUnavailable`.
    """
    if not _places.acquire(blocking=False):
        raise Refused(
            "busy",
            "The service is asking nodes for others. Nothing was stored; ask again in a moment.",
            retry_after=BUSY_RETRY_SECONDS,
        )
    try:
        yield time.monotonic() + _MOST_SECONDS
    except OutOfTime:
        raise EstimateUnavailable(
            f"The chains did not tell within {_MOST_SECONDS} s all that the answer takes. Nothing was stored. Ask for "
            "it in parts, or later.",
        ) from None
    except ChainError as error:
        raise EstimateUnavailable(f"{error} Nothing was stored; send it again in a moment.") from None
    finally:
        _places.release()


def _estimated(request: BatchRequest, body: bytes, key: ApiKey, ends_at: float) -> BatchEstimate:
    """Estimate a batch. Raises `OutOfTime` and `ChainError`."""
    destination = get_chains().chain(request.destinationChainId)
    sources = source_estimate.ask_sources(destination.id, _parts(request), ends_at)[""]
    fees = get_page_rpc(destination.id).fees(money.usual_tip(destination))
    fault = next((source.fault for source in sources if source.fault), None)
    if fault and not any(source.selected for source in sources):
        raise fault
    account, fee = None, request.fee
    if not request.is_self_funded:
        user = User.objects.get(pk=key.user_id)
        account = SpendingAccount(destination, user, fee, money.to_user(user.pk, destination.id))
    bound = admission_checks.total(sources).wei.bound
    refused = submission.why_no_room(request, body, key)
    refusals = [Rejection(refused.code, refused.sentence, refused.retry_after is not None)] if refused else []
    return BatchEstimate(
        destination,
        fees.base_fee + fees.priority_fee,
        sources,
        None if fee is None or request.is_self_funded else destination.test_network or bound <= fee,
        _confirming_blocks(destination),
        [*refusals, *admission_checks.rejections(account, sources)],
    )


def _parts(request: BatchRequest) -> Mapping[int, Sequence[BatchPart]]:
    """Return the request's parts by source chain."""
    deadline = progress.deadline_from(timezone.now())
    return {source: [BatchPart("", of_source, deadline)] for source, of_source in requested(request).items()}


def requested(request: BatchRequest) -> Mapping[int, Requests]:
    """Return what a request names, by source chain."""
    requests: dict[int, dict[Selector, dict[Asked, None]]] = defaultdict(lambda: defaultdict(dict))
    for query in request.queries:
        asked = named_transactions.asked_of(query)
        requests[query.source_chain_id][Selector.of(query)].update(dict.fromkeys(asked))
    return requests


def _confirming_blocks(destination: Chain) -> int:
    if isinstance(destination.confirmations, int):
        return destination.confirmations - 1
    seen = ChainHead.objects.filter(pk=destination.id).first()
    return seen.number - seen.final if seen else _FINAL_DEPTH
