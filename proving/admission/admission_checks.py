"""The checks by which admission rejects a batch. Admission reports the first that fails, an estimate all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from accounts.models import User, daily_wei
from chains.chains_file import Chain
from config.configured_chains import get_chains
from config.database.statements import CompiledQuery, QueryParameter
from proving.admission.answers import SelectedBlocks
from proving.admission.cost import Cost, SourceEstimate
from proving.models import ChainHead, ChainWatch
from proving.paths.planning import StatesRefused, TooFar
from proving.sending import signers
from proving.working import heads
from queries.columns import LASTING_REASONS, PASSING_CODES, AdmissionRejection, EarlyCheck, RejectionCode
from queries.waits import Value, wait

# This second is in the year 5138. A later time must be in milliseconds.
_LATEST_IN_SECONDS = 10**11
_DAY = 86_400
# The newest blocks of chains as workers know them, by number and time. A node that lags lowers none for a while.
_HEADS = CompiledQuery(
    lambda: ChainWatch.objects.filter(seen_at__gt=QueryParameter("since")).values_list(
        "chain_id",
        Greatest("number", Coalesce(Subquery(ChainHead.objects.filter(pk=OuterRef("pk")).values("number")), 0)),
        "timestamp",
    )
)


@dataclass(frozen=True)
class SpendingAccount:
    """The user whose limits apply to a batch that the operator pays for."""

    destination: Chain
    user: User
    fee: int | None
    """The most wei that the batch may cost. None: its estimate."""
    used: int
    """The wei of the user's day that are used or reserved (`money.to_user`)."""


def rejections(account: SpendingAccount | None, sources: Sequence[SourceEstimate]) -> Iterator[AdmissionRejection]:
    """Yield the reasons to reject a batch, in the order of the checks. The comments name their codes.

    If `sources` is empty, only checks that don't need a source chain's answer run. `account` is None for a self-funded
    batch.
    """
    if account:
        yield from _missing_signer(account)  # no_signer
    for source in sources:
        if source.selected:
            yield from of_blocks(source.selected)
        yield from _missing_header_properties(source)  # header_property_missing
        if source.selected:
            yield from _unprovable_transactions(source.selected)  # the codes that are also those of waits
            yield from _unavailable_proof(source.selected)  # proof_unavailable
        yield from _unreachable_block(source)  # block_too_old, block_too_new, proof_unavailable
    if account:
        cost = total(sources)
        yield from _user_limit(account, cost)  # too_large_for_budget, budget_exceeded
        yield from _chain_limit(account, cost)  # too_large_for_budget
        yield from _low_fee(account, cost)  # fee_too_low


def of_blocks(selected: SelectedBlocks) -> Iterator[AdmissionRejection]:
    """Yield the reasons to reject a batch because of the blocks that it selects."""
    yield from _unknown_transactions(selected)  # transaction_not_found
    yield from _times_before_the_first_block(selected)  # timestamp_before_first_block
    yield from _unknown_final_block(selected)  # finalized_unknown
    chain, head = selected.source, selected.head
    yield from _block_too_far_ahead(chain, head.number, max(selected.later, default=0))  # block_too_far_ahead
    yield from _time_too_far_ahead(chain, head.timestamp, max(selected.times, default=0))  # timestamp_too_far_ahead


def total(sources: Sequence[SourceEstimate]) -> Cost:
    """Return the known cost of all sources together."""
    return sum((source.cost for source in sources if source.cost), Cost())


# --- The blocks -------------------------------------------------------------------------------------------------------


def _unknown_transactions(selected: SelectedBlocks) -> Iterator[AdmissionRejection]:
    source = selected.source.id
    for transaction in selected.unknown:
        reason = wait("transaction_not_found", chain=source, transaction=transaction)
        yield AdmissionRejection(RejectionCode.TRANSACTION_NOT_FOUND, reason, retryable=True, source=source)


def _unprovable_transactions(selected: SelectedBlocks) -> Iterator[AdmissionRejection]:
    source = selected.source.id
    for number, reason in selected.unprovable.items():
        code = RejectionCode(reason.code)
        is_passing = code in PASSING_CODES
        # The other codes are about receipts and transactions that make the roots in the block's header.
        is_certain = not is_passing and selected.is_certain(number)
        yield AdmissionRejection(code, reason, retryable=is_passing, source=source, is_certain=is_certain)


def _times_before_the_first_block(selected: SelectedBlocks) -> Iterator[AdmissionRejection]:
    source = selected.source.id
    for time in selected.too_early:
        reason = wait("time_before_first_block", time=time, chain=source)
        is_certain = bool((first := selected.agreed.get(0)) and time < first.timestamp)
        code = RejectionCode.TIMESTAMP_BEFORE_FIRST_BLOCK
        yield AdmissionRejection(code, reason, retryable=False, source=source, is_certain=is_certain)


def _unknown_final_block(selected: SelectedBlocks) -> Iterator[AdmissionRejection]:
    if selected.no_final is not None:
        source = selected.source.id
        reason = wait("finalized_unknown", chain=source, problem=selected.no_final)
        yield AdmissionRejection(RejectionCode.FINALIZED_UNKNOWN, reason, retryable=True, source=source)


def early_check() -> EarlyCheck:
    """Return the check of blocks and times far above the heads that workers have just seen.

    A day is left for what the rows don't show, such as a jump of a development chain. A chain that no worker observes
    has nothing rejected.
    """
    now, configured = timezone.now(), {chain.id: chain for chain in get_chains().chains}
    rows = {chain_id: head for chain_id, *head in _HEADS.all(since=now - heads.LATELY)}

    def rejection(source: int, block: int | None, time: int | None) -> AdmissionRejection | None:
        if source not in rows or source not in configured:
            return None
        chain, (number, timestamp) = configured[source], rows[source]
        if block is not None:
            return next(_block_too_far_ahead(chain, number, block, beyond=_DAY / chain.block_seconds), None)
        # The next block of a chain that makes blocks on demand has the time of its making.
        return next(_time_too_far_ahead(chain, max(timestamp, int(now.timestamp())), time or 0, beyond=_DAY), None)

    return rejection


def _block_too_far_ahead(source: Chain, head: int, block: int, beyond: float = 0) -> Iterator[AdmissionRejection]:
    if (ahead := block - head) > settings.MAX_BLOCKS_AHEAD + beyond:
        values = {"block": block, "chain": source.id, "ahead": ahead, "head": head}
        reason = wait("block_too_far_ahead", most=settings.MAX_BLOCKS_AHEAD, **values)
        yield AdmissionRejection(RejectionCode.BLOCK_TOO_FAR_AHEAD, reason, retryable=True, source=source.id)


def _time_too_far_ahead(source: Chain, newest: int, time: int, beyond: float = 0) -> Iterator[AdmissionRejection]:
    if (seconds := time - newest) > settings.MAX_BLOCKS_AHEAD * source.block_seconds + beyond:
        is_wrong = time > _LATEST_IN_SECONDS
        reason = (
            wait("time_in_milliseconds", time=time)
            if is_wrong
            else wait("time_too_far_ahead", time=time, ahead=seconds, chain=source.id)
        )
        code = RejectionCode.TIMESTAMP_TOO_FAR_AHEAD
        yield AdmissionRejection(code, reason, retryable=not is_wrong, source=source.id, is_certain=is_wrong)


def _missing_header_properties(source: SourceEstimate) -> Iterator[AdmissionRejection]:
    for number, reason in source.lacking_properties:
        is_certain = source.selected is not None and source.selected.is_certain(number)
        code = RejectionCode.HEADER_PROPERTY_MISSING
        yield AdmissionRejection(code, reason, retryable=False, source=source.source, is_certain=is_certain)


def _unavailable_proof(selected: SelectedBlocks) -> Iterator[AdmissionRejection]:
    if (reason := selected.no_proof) and (request := selected.unproven):
        may_pass, agreed = reason.code not in LASTING_REASONS, selected.agreed.get(request.block_number)
        # Any block shows the form of a chain's accounts.
        is_certain = not may_pass and agreed is not None and agreed.hash == request.block_hash
        is_certain = is_certain and (reason.code == "other_accounts" or selected.is_certain(request.block_number))
        code = RejectionCode.PROOF_UNAVAILABLE
        yield AdmissionRejection(code, reason, may_pass, source=selected.source.id, is_certain=is_certain)


def _unreachable_block(source: SourceEstimate) -> Iterator[AdmissionRejection]:
    if (no_path := source.no_path) is None:
        return
    if isinstance(no_path, StatesRefused):
        reason = wait("old_states_not_served", chain=source.source, problem=str(no_path))
        yield AdmissionRejection(RejectionCode.PROOF_UNAVAILABLE, reason, retryable=True, source=source.source)
    elif isinstance(no_path, TooFar):
        yield AdmissionRejection(RejectionCode.BLOCK_TOO_OLD, no_path.reason, retryable=False, source=source.source)
    else:
        yield AdmissionRejection(RejectionCode.BLOCK_TOO_NEW, no_path.reason, retryable=True, source=source.source)


# --- The money --------------------------------------------------------------------------------------------------------


def _missing_signer(account: SpendingAccount) -> Iterator[AdmissionRejection]:
    if reason := signers.why_none(account.destination):
        yield AdmissionRejection(RejectionCode.NO_SIGNER, reason, retryable=False, is_certain=True)


def _user_limit(account: SpendingAccount, cost: Cost) -> Iterator[AdmissionRejection]:
    limit = daily_wei(account.user.daily_limits_wei, account.destination)
    yield from _over_limit(account.destination, "a user's batches", limit, cost, account.used)


def _chain_limit(account: SpendingAccount, cost: Cost) -> Iterator[AdmissionRejection]:
    # The part of the limit that other batches use becomes free within a day, so only the whole limit counts.
    yield from _over_limit(account.destination, "all batches together", account.destination.daily_limit_wei, cost, 0)


def _over_limit(chain: Chain, whose: str, limit: int | None, cost: Cost, used: int) -> Iterator[AdmissionRejection]:
    """Yield the rejection if one limit of 24 hours, in wei, is too small now or for ever."""
    needed = cost.wei.bound
    values: dict[str, Value] = {"whose": whose, "chain": chain.id, "most": limit}
    if limit is None or (limit and used + needed <= limit):
        return
    if not limit:
        # Retrying can't help, because even the cheapest batch costs something.
        reason = wait("nothing_allowed", **values)
        yield AdmissionRejection(RejectionCode.TOO_LARGE_FOR_BUDGET, reason, retryable=False, is_certain=True)
    elif needed > limit:
        reason = wait("too_large_for_limit", needed=needed, **values)
        yield AdmissionRejection(RejectionCode.TOO_LARGE_FOR_BUDGET, reason, retryable=True)
    else:
        values["used"] = used
        # There is no estimate before the source chains have answered.
        reason = wait("limit_used_up", needed=needed, **values) if needed else wait("limit_reached", **values)
        yield AdmissionRejection(RejectionCode.BUDGET_EXCEEDED, reason, retryable=True)


def _low_fee(account: SpendingAccount, cost: Cost) -> Iterator[AdmissionRejection]:
    destination, fee = account.destination, account.fee
    if fee is not None and cost.wei.bound > fee and not destination.test_network:
        parts = {"path_gas": cost.path_gas or None, "data_wei": cost.data_wei or None}
        bound = {"cost": cost.wei.bound, "gas": cost.gas.bound}
        reason = wait("fee_too_low", chain=destination.id, fee=fee, **bound, **parts)
        yield AdmissionRejection(RejectionCode.FEE_TOO_LOW, reason, retryable=True)
