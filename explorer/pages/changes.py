"""Whether what a batch's page shows has changed, in one statement: most polls of a page find nothing new.

The statement reads every row that the page is made of, as far as the page shows it. It may read more: then a poll gets
a page that says the same. What only time changes is no part of it, as in `explorer.pages.batch_page`; nor
that a source chain grows as it was expected to (`explorer.pages.expectations`): the browser counts down by itself.
"""

import hashlib
from datetime import datetime
from typing import Any

from django.utils import timezone

from accounts import statements
from chains.chains_file import Chains
from config.configured_chains import get_chains
from explorer.pages.query_paging import ROWS_SIZE, Wanted, first_of_page
from proving.models import WATCHED_STATES
from proving.worker import heartbeats
from queries import poll_interval
from queries.models import OPEN_STATUSES

# Beyond the last query, the page shows that one.
_SHOWN = """batch_id = %(batch)s AND position <= %(last)s AND position >= (
    SELECT CASE WHEN MAX(position) < %(first)s THEN MAX(position) ELSE %(first)s END
    FROM queries_query WHERE batch_id = %(batch)s)"""
_SHOWN_QUERIES = f"SELECT id FROM queries_query WHERE {_SHOWN}"
_SHOWN_BLOCKS = f"SELECT block_id FROM queries_query WHERE {_SHOWN}"
_DESTINATION = "(SELECT destination_chain_id FROM queries_batch WHERE id = %(batch)s)"
_WATCHED = "(" + ", ".join(f"'{state}'" for state in WATCHED_STATES) + ")"
_OF_BATCH = """EXISTS (
    SELECT 1 FROM proving_transaction_queries l JOIN queries_query q ON q.id = l.query_id
    WHERE l.transaction_id = t.id AND q.batch_id = %(batch)s)"""
_WATCHED_TRANSACTIONS = f"""SELECT t.id FROM proving_transaction t JOIN proving_signer s ON s.id = t.signer_id
    WHERE s.chain_id = {_DESTINATION} AND t.state IN {_WATCHED} AND {_OF_BATCH}"""
# Of shown steps, of their queries, and of the paths to their blocks.
_SHOWN_TRANSACTIONS = f"""SELECT transaction_id FROM proving_transaction_queries WHERE query_id IN ({_SHOWN_QUERIES})
    UNION SELECT v.transaction_id FROM queries_step s JOIN proving_signedtransaction v ON v.hash = s.transaction_hash
    WHERE s.query_id IN ({_SHOWN_QUERIES}) AND s.transaction_hash <> ''
    UNION SELECT l.transaction_id FROM queries_query q JOIN proving_transaction_queries l ON l.query_id = q.id
    JOIN proving_transaction t ON t.id = l.transaction_id
    WHERE q.block_id IN ({_SHOWN_BLOCKS}) AND t.extends_id IS NOT NULL
    UNION SELECT transaction_id FROM proving_share WHERE batch_id = %(batch)s"""
# More than any batch has.
_MOST_QUERIES = 10**9
# While nothing fails, when a row is due next is not shown.
_NEXT_TRY = "CASE WHEN failing_since IS NOT NULL THEN due_at END"

# Columns, and where they come from.
_PARTS = (
    (
        f"""status, waiting_for, looked_at, accepted_at, finished_at, deadline_at, went_back_at, went_back_because,
        estimated_gas, estimated_wei, gas_used, spent, rejection_code, rejection_reason, rejection_retryable,
        failing_since, proofs_pruned_at, steps_pruned_at,
        {_NEXT_TRY}, EXISTS (
            SELECT 1 FROM queries_query q JOIN queries_block k ON k.id = q.block_id
            WHERE q.batch_id = %(batch)s AND k.due_at IS NOT NULL)""",
        "queries_batch WHERE id = %(batch)s",
    ),
    (
        "step, address = '', COUNT(*)",
        "queries_query WHERE batch_id = %(batch)s GROUP BY step, address = ''",
    ),
    ("id, step, block_id, is_admitted", f"queries_query WHERE {_SHOWN}"),
    (
        f"id, number, hash, path_unit, path_length, path_left, failing_since, {_NEXT_TRY}",
        f"queries_block WHERE id IN ({_SHOWN_BLOCKS})",
    ),
    (
        """query_id, kind, status, started_at, completed_at, transaction_hash, attempts, last_error, went_back_at,
        went_back_because""",
        f"queries_step WHERE query_id IN ({_SHOWN_QUERIES})",
    ),
    (
        f"waiting_for, source_chain_id, MIN(looked_at), MIN(failing_since), MIN({_NEXT_TRY})",
        """queries_block WHERE due_at IS NOT NULL AND waiting_for <> '' AND id IN (
            SELECT block_id FROM queries_query WHERE batch_id = %(batch)s AND step IS NOT NULL)
        GROUP BY waiting_for, source_chain_id""",
    ),
    (
        """id, address, block_hash_source, notice, deployed_at, code_hash, refused, replaced_at, replaced_because""",
        f"proving_factsregistry WHERE destination_chain_id = {_DESTINATION}",
    ),
    ("id, notice", f"proving_signer WHERE notice <> '' AND chain_id = {_DESTINATION}"),
    (
        """t.id, t.state, t.hash, t.block_number, t.succeeded, t.gas_used, (
            SELECT MAX(v.id) FROM proving_signedtransaction v WHERE v.transaction_id = t.id)""",
        f"proving_transaction t WHERE t.id IN ({_SHOWN_TRANSACTIONS} UNION {_WATCHED_TRANSACTIONS})",
    ),
    # By it, pages count confirmations.
    (
        "number, final",
        f"proving_chainhead WHERE chain_id = {_DESTINATION} AND EXISTS ({_WATCHED_TRANSACTIONS})",
    ),
    ("COUNT(*), MAX(id)", f"proving_accountproof WHERE block_id IN ({_SHOWN_BLOCKS})"),
    (
        "COUNT(*), MAX(id)",
        f"""proving_slotproof WHERE account_id IN (
            SELECT id FROM proving_accountproof WHERE block_id IN ({_SHOWN_BLOCKS}))""",
    ),
)


@statements.of_now
def statement() -> tuple[str, dict[str, Any]]:
    """Return the statement, and the values in it that are always the same."""
    running, values = heartbeats.is_running_sql()
    always = {f"running_{at}": value for at, value in enumerate(values)}
    for name in always:
        running = running.replace("%s", f"%({name})s", 1)
    # The number of the part keeps rows of one apart from those of another.
    parts = " UNION ALL ".join(
        f"SELECT {statements.json_of(f'{at}, {columns}')} AS part FROM {rest}"
        for at, (columns, rest) in enumerate(_PARTS)
    )
    rows = f"SELECT {statements.json_of_rows('part')} FROM ({parts}) parts"
    return f"SELECT created_at, status, {running}, ({rows}) FROM queries_batch WHERE id = %(batch)s", always


def version(internal_id: str, wanted: Wanted) -> str | None:
    """Return what changes whenever anything that the page shows does.

    None where that takes more: for a part of the queries.

    It is read before the page is: what changes meanwhile is a change for the next poll.
    """
    if wanted.filters.parts or not internal_id.isalnum() or (wanted.only or 0) > _MOST_QUERIES:
        return None
    first = wanted.only if wanted.only is not None else first_of_page(wanted.first, _MOST_QUERIES)
    last = first if wanted.only is not None else first + ROWS_SIZE - 1
    sql, always = statement()
    row = statements.first(sql, always | {"batch": internal_id, "first": first - 1, "last": last - 1})
    if row is None:
        return None
    created_at, status, has_worker, rows = row
    seconds = _poll_seconds(status, statements.read(created_at))
    text = f"{seconds} {statements.read_boolean(has_worker)} {_configuration()} {rows}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _poll_seconds(status: str, created_at: datetime | None) -> int | None:
    """Return how often an open batch is polled.

    A closed one polls slowly or not at all, by what the statement reads.
    """
    return poll_interval.poll_seconds(timezone.now() - created_at) if created_at and status in OPEN_STATUSES else None


_known: tuple[Chains, str] | None = None


def _configuration() -> str:
    """Return a hash of the chains, which give the page names and links."""
    global _known
    chains = get_chains()
    if _known is None or _known[0] is not chains:
        _known = (chains, hashlib.sha256(repr(chains).encode()).hexdigest())
    return _known[1]
