"""A finished batch for the home page: one that the reader may see in a list anyway, else the documentation's."""

from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from accounts.models import User
from config.configured_chains import get_chains
from explorer.batch.fact_display import InShort
from explorer.lists import batch_list
from explorer.lists.batch_rows import BatchRow
from explorer.lists.headlines import Headline
from proving import sources
from queries.models import BatchStatus

# Number of newest batches that are searched.
_BATCHES = 10


@dataclass(frozen=True)
class Example:
    batch_id: str  # empty: it is the documentation's
    headline: Headline
    where: str  # names of chains
    took: timedelta
    cost: int | None  # wei; None: its sender has paid
    currency: str
    trust: str  # who must be trusted for what, a sentence


# Of docs/explorer.png.
_DOCUMENTED = Example(
    batch_id="",
    headline=Headline(
        "Balance", "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "at block 25", answer=InShort("9,999.9959", "ETH")
    ),
    where="Development chain",
    took=timedelta(seconds=2.2),
    cost=108_484_346_241_432,
    currency="ETH",
    trust="Nobody beyond the chain itself: it knows the hashes of its own blocks.",
)


def of(user: User | None) -> Example:
    """Return the user's own, or anybody's where the operator lets everybody list everybody's batches."""
    rows: list[BatchRow] = []
    if user is not None or settings.PUBLIC_BATCH_LIST:
        rows = batch_list.newest(user, _BATCHES)
    return next((example for row in rows if (example := _of_row(row))), _DOCUMENTED)


def _of_row(row: BatchRow) -> Example | None:
    if row.status != BatchStatus.DONE or not row.headline.answer or row.took is None or len(row.sources) != 1:
        return None
    connection = get_chains().connection(row.sources[0].id, row.destination.id)
    if connection is None:
        return None
    return Example(
        batch_id=row.id,
        headline=row.headline,
        where=row.destination.name if row.reads_itself else f"{row.sources[0].name}, for {row.destination.name}",
        took=row.took,
        cost=None if row.is_self_funded else row.spent,
        currency=row.destination.currency,
        trust=sources.of(connection).trust(connection),
    )
