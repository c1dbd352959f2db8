"""A batch's page for programs: the batch as the API tells it, and what only the page shows."""

from typing import Any

from pydantic import Field
from pydantic.alias_generators import to_camel

from config.chain_names import ChainName
from explorer.batch import batch_page
from explorer.batch.batch_progress import StepCount
from explorer.batch.query_cards import ShownQuery
from explorer.batch.trusted_sources import TrustedSource
from proving.batch_waits import Counts, ShownWait
from queries import batch_json
from queries.batch_json import BatchState
from queries.models import Batch


class BatchPage(BatchState):
    # Clients of the first form of this answer read these so.
    sender: str = Field(description="Who sends its transactions: `operator` or `self`.")
    queries: tuple[ShownQuery, ...]  # type: ignore[assignment]  # the number is in `total`
    waits: tuple[ShownWait, ...]  # type: ignore[assignment]  # a wait, and more
    destination: ChainName
    whyNoProofs: str = Field(description="A sentence, where its proof bundles were removed.")
    whyNoSteps: str = Field(description="The same of the details of its steps.")
    feeIsEstimate: bool = Field(description="Whether the fee is as much as is estimated, and not known before.")
    stepCounts: tuple[StepCount, ...]
    noWorker: bool
    notices: tuple[str, ...]
    rejectionCode: str
    rejectionReason: str
    rejectionRetryable: bool
    sources: tuple[TrustedSource, ...]
    total: int = Field(description="How many queries it has.")
    account: str
    matching: int
    firstMatching: int
    first: int | None
    previous: int | None
    following: int | None = Field(description="The `from` of the next page. null: there is none.")


def told(batch: Batch, counts: Counts, page: batch_page.BatchPage) -> dict[str, Any]:
    """Return the page as a `BatchPage`."""
    rejection = page.rejection
    parts = (vars(part).items() for part in (page.header, page.costs, page.progress, page.queries))
    shown = {to_camel(name): value for part in parts for name, value in part} | {
        "queries": page.queries.cards,
        "sources": page.sources,
        "rejectionCode": rejection.code if rejection else "",
        "rejectionReason": batch.rejection_reason,
        "rejectionRetryable": bool(rejection and rejection.retryable),
    }
    # What the page has beside the state.
    own = BatchPage.model_construct(**{name: shown[name] for name in BatchPage.__annotations__})
    return batch_json.state(batch, counts, page.progress.waits) | own.model_dump(mode="json")
