"""Estimates of the cost of a request that isn't stored, and the reasons to reject it, for the API and the form."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from accounts.models import ApiKey, User
from chains.chains_file import Chain
from config.configured_chains import get_chains, get_page_rpc
from proving import money
from proving.admission import admission_checks, cost
from proving.admission.admission_checks import SpendingAccount
from proving.admission.cost import Cost, SourceEstimate
from proving.models import ChainHead
from proving.reading.asking import asking_nodes
from queries import submission
from queries.batch_request import BatchRequest
from queries.columns import AdmissionRejection

# Blocks until finality, if no worker has seen a final block of the chain.
_FINAL_DEPTH = 64


@dataclass(frozen=True)
class BatchEstimate:
    destination: Chain
    gas_price: int  # current price in wei
    sources: Sequence[SourceEstimate]
    fee_suffices: bool | None  # None if the fee is `auto`
    confirming_blocks: int  # blocks after a transaction's own block until the transaction is confirmed
    rejections: Sequence[AdmissionRejection]

    @property
    def cost(self) -> Cost:
        return admission_checks.total(self.sources)

    @property
    def transactions(self) -> int:
        return sum(source.estimate.transactions for source in self.sources if source.estimate)

    @property
    def blocks_to_done(self) -> int:
        """Return the number of destination blocks until the batch is done, counted from when all its blocks exist."""
        rows = max((source.estimate.in_a_row for source in self.sources if source.estimate), default=0)
        return rows + self.confirming_blocks if rows else 0

    @property
    def seconds_to_done(self) -> int:
        """Return the seconds until the batch is done, if all chains answer."""
        until_all_exist = max((source.selected.seconds for source in self.sources if source.selected), default=0)
        return math.ceil(until_all_exist + self.blocks_to_done * self.destination.block_seconds)


def estimate(request: BatchRequest, key: ApiKey) -> BatchEstimate:
    """Estimate the cost of a batch, and find the reasons to reject it.

    Raises `ChainUnavailable`, and `Refused`: busy.
    """
    destination, batch = get_chains().chain(request.destinationChainId), submission.unsaved(request, key)
    with asking_nodes() as ends_at:
        sources = cost.ask_sources([batch], request.queries, ends_at)[batch.pk]
        fees = get_page_rpc(destination.id).fees(money.usual_tip(destination))
        fault = next((source.fault for source in sources if source.fault), None)
        if fault and not any(source.selected for source in sources):
            raise fault
    account, fee = None, request.fee
    if not request.is_self_funded:
        user = User.objects.get(pk=key.user_id)
        account = SpendingAccount(destination, user, fee, money.to_user(user.pk, destination.id))
    bound = admission_checks.total(sources).wei.bound
    refused = submission.why_no_room(batch)
    rejections = list(admission_checks.rejections(account, sources))
    if refused:
        may_pass = refused.retry_after is not None
        rejections.insert(0, AdmissionRejection(refused.code, refused.sentence, may_pass, is_certain=True))
    return BatchEstimate(
        destination,
        fees.base_fee + fees.priority_fee,
        sources,
        None if fee is None or request.is_self_funded else destination.test_network or bound <= fee,
        _confirming_blocks(destination),
        # A rejection by what nodes tell now may pass, unless it is certain.
        [replace(rejection, retryable=rejection.retryable or not rejection.is_certain) for rejection in rejections],
    )


def _confirming_blocks(destination: Chain) -> int:
    if isinstance(destination.confirmations, int):
        return destination.confirmations - 1
    seen = ChainHead.objects.filter(pk=destination.id).first()
    return seen.number - seen.final if seen else _FINAL_DEPTH
