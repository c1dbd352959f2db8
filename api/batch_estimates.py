"""The endpoint that estimates a batch query (docs/specification.md, "Estimate a batch query")."""

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from accounts.models import ApiKey
from proving.admission import estimates
from proving.admission.cost import SourceEstimate
from proving.admission.estimates import BatchEstimate
from proving.packing.gas import Amount
from queries import submission
from queries.api_endpoint import BATCH_REQUEST, ESTIMATING_KEY, body_of, errors
from queries.submission import ESTIMATES

router = Router(tags=["Batch queries"])


class EstimatedGas(Schema):
    expected: int
    bound: int = Field(description="The upper bound, for comparison with budgets.")


class EstimatedWei(Schema):
    expected: str = Field(description="The cost at the present gas price, decimal.")
    bound: str = Field(description="The cost at a gas price one quarter higher, decimal. A fee must cover this.")


class EstimatedPart(Schema):
    count: int
    inRegistry: int = Field(description="Number of these that the registry already has. They cost nothing.")
    gas: EstimatedGas


class EstimatedParts(Schema):
    headers: EstimatedPart | None = Field(None, description="Counted by blocks.")
    headerFields: EstimatedPart | None = None
    accounts: EstimatedPart | None = Field(None, description="Counted at each block.")
    slots: EstimatedPart | None = None
    transactions: EstimatedPart | None = Field(None, description="Counted at each block.")
    logs: EstimatedPart | None = None
    times: EstimatedPart | None = None
    paths: EstimatedPart | None = Field(None, description="Paths that let the registry trust old blocks.")


class EstimatedJumps(Schema):
    count: int = Field(description="Number of blocks on paths through the beacon chain.")
    fromBlock: str | None = Field(None, description="The block where the jumps begin. Left out if they need none.")


class EstimatedSource(Schema):
    sourceChainId: str
    gas: EstimatedGas
    jumps: EstimatedJumps | None = Field(None, description="Left out if no path leads through the beacon chain.")
    parts: EstimatedParts = Field(description="The requested parts. On Arbitrum, data costs gas in addition.")


class FeeCheck(Schema):
    sufficient: bool


class ExpectedRejection(Schema):
    sourceChainId: str | None = Field(
        None, description="The source chain. Left out if the rejection is about the whole batch."
    )
    code: str = Field(description="The code of the rejection, or the code of a submission's error now.")
    error: str
    retryable: bool


class Estimate(Schema):
    gas: EstimatedGas
    wei: EstimatedWei
    gasPrice: str = Field(description="The present gas price in wei, decimal.")
    sources: list[EstimatedSource] = Field(description="The source chains whose nodes answered.")
    transactions: int
    blocksToDone: int = Field(description="Blocks of the destination chain until the batch is done.")
    secondsToDone: int = Field(
        description="The approximate time until the batch is done, with the time until all blocks exist."
    )
    fee: FeeCheck | None = Field(None, description="Whether the fee covers the bound. Left out if the fee is `auto`.")
    rejections: list[ExpectedRejection] = Field(description="Each reason why the service would reject the batch now.")
    waits: list[str] = Field(
        description="Sentences about what the batch would wait for, or which chains did not answer."
    )


@router.post(
    "/estimate-batch-query",
    operation_id="estimate_batch_query",
    auth=ESTIMATING_KEY,
    response={200: Estimate, **errors(400, 401, 403, 411, 413, 415, 422, 429, 503)},
    exclude_none=True,
    openapi_extra=dict(BATCH_REQUEST),
)
def estimate_batch_query(request: HttpRequest) -> Estimate:
    """Estimate what a batch query would cost, how long it would take, and whether it would be rejected.

    The body is the same as for a submission. Nothing is stored.
    """
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    parsed = submission.read_counted(key, lambda: body_of(request), ESTIMATES)
    return _answer(estimates.estimate(parsed, key))


def _answer(estimate: BatchEstimate) -> Estimate:
    cost = estimate.cost
    return Estimate(
        gas=_gas(cost.gas),
        wei=EstimatedWei(expected=str(cost.wei.expected), bound=str(cost.wei.bound)),
        gasPrice=str(estimate.gas_price),
        sources=[_source(source, source.cost.gas) for source in estimate.sources if source.cost],
        transactions=estimate.transactions,
        blocksToDone=estimate.blocks_to_done,
        secondsToDone=estimate.seconds_to_done,
        fee=None if estimate.fee_suffices is None else FeeCheck(sufficient=estimate.fee_suffices),
        rejections=[
            ExpectedRejection(
                sourceChainId=None if rejection.source is None else str(rejection.source),
                code=rejection.code,
                error=str(rejection.reason),
                retryable=rejection.retryable,
            )
            for rejection in estimate.rejections
        ],
        waits=list(dict.fromkeys(str(wait) for source in estimate.sources for wait in source.waits)),
    )


def _source(source: SourceEstimate, gas: Amount) -> EstimatedSource:
    parts = {
        part.value: EstimatedPart(count=of_part.count, inRegistry=of_part.in_registry, gas=_gas(of_part.gas))
        for part, of_part in source.parts.items()
    }
    origin = None if source.jump_origin is None else str(source.jump_origin)
    jumps = EstimatedJumps(count=source.jumps, fromBlock=origin) if source.jumps else None
    return EstimatedSource(sourceChainId=str(source.source), gas=_gas(gas), jumps=jumps, parts=EstimatedParts(**parts))


def _gas(gas: Amount) -> EstimatedGas:
    return EstimatedGas(expected=gas.expected, bound=gas.bound)
