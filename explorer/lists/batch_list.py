"""Lists of batches: the user's own, or everybody's if the operator allows it; with filters, a search and pages.

A page begins after the identifier in its address, so new batches don't change it. Paging by key is written by hand,
because Django's paginator counts all rows and numbers the pages.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Q, QuerySet
from django.http import QueryDict

from accounts.models import User
from config.json_objects import iso
from explorer.formatting import csv_lines
from explorer.lists import batch_rows
from explorer.lists.batch_rows import BatchRow, Day
from explorer.lists.searched_account import SearchedAccount
from proving.models import SignedTransaction, Transaction
from queries.models import Batch, BatchStatus, Block, Query

PAGE_SIZE = 25

_ID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}", re.IGNORECASE | re.ASCII)
_HASH = re.compile(r"0x[0-9a-f]{64}", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
_CHAIN = _NUMBER


@dataclass(frozen=True)
class Filters:
    """The filters in the page's address. A malformed one has no effect, and is named in `ignored`.

    A search is kept as it is; `BatchList` tells whether it was understood.
    """

    everybody: bool = False
    status: str = ""
    chain: str = ""  # id of the destination
    search: str = ""
    before: str = ""  # show the batches older than this one
    after: str = ""  # or those newer
    ignored: tuple[str, ...] = ()  # parts, in words

    @classmethod
    def of(cls, query: QueryDict) -> "Filters":
        ignored: list[str] = []

        def known(name: str, is_known: Callable[[str], object], what: str) -> str:
            text = query.get(name, "")
            if text and not is_known(text):
                ignored.append(what)
                return ""
            return text

        return cls(
            everybody=query.get("of") == "everybody",
            status=known("status", BatchStatus.values.__contains__, "the status"),
            chain=known("chain", _CHAIN.fullmatch, "the destination"),
            search=query.get("q", "").strip().replace("\0", "")[:100],
            before=known("before", _ID.fullmatch, "the place to continue from").upper(),
            after=known("after", _ID.fullmatch, "the place to go back from").upper(),
            ignored=tuple(ignored),  # the last argument, because the others fill it
        )

    @property
    def any(self) -> bool:
        return bool(self.status or self.chain or self.search)

    def query(self, **changes: str) -> str:
        """Return these filters with some parts changed, as a query string.

        It is the first page, unless the parts name another.
        """
        parts = QueryDict(mutable=True)
        values = {"of": "everybody" if self.everybody else "", "status": self.status, "chain": self.chain}
        values |= {"q": self.search} | changes
        for name, value in values.items():
            if value:
                parts[name] = value
        return "?" + parts.urlencode()


@dataclass(frozen=True)
class BatchList:
    days: tuple[Day, ...]
    newer: str  # query strings of the next and previous pages; empty if there is none
    older: str
    searched_for: str  # what kind of thing was searched for, in words; empty: no search
    not_understood: bool  # the search can't match anything


# How many lines a file has at most, and how many batches are read at once for it.
MOST_IN_FILE, _CHUNK = 1000, 100
COLUMNS = (
    *("internal_id", "status", "asked", "source_chain_ids", "destination_chain_id", "cost_wei", "submitted", "ended"),
    "rejection_code",
)


def batch_id(text: str) -> str:
    """Return `text` as a batch's identifier; empty if it does not have the form of one."""
    return text.upper() if _ID.fullmatch(text) else ""


def newest(user: User | None, most: int) -> list[BatchRow]:
    """Return the newest batches of the user, or everybody's with None."""
    return batch_rows.read(list(batch_rows.counted(_whose(user)).order_by("-pk")[:most]))


def read(filters: Filters, *, user: User | None, account: SearchedAccount | None) -> BatchList:
    """Return the batches of `user`, or everybody's with None. `account` is what the search names, if that is one."""
    found = _found(filters, user, account)
    batches, searched_for = found or (Batch.objects.none(), "")
    rows, has_newer, has_older = _page(batches, filters)
    return BatchList(
        days=tuple(batch_rows.by_day(batch_rows.read(rows))),
        newer=filters.query(after=rows[0].pk) if rows and has_newer else "",
        older=filters.query(before=rows[-1].pk) if rows and has_older else "",
        searched_for=searched_for,
        not_understood=found is None,
    )


def csv(filters: Filters, *, user: User | None, account: SearchedAccount | None) -> tuple[list[str], str]:
    """Return the lines of a file, and the query string of the next file; empty: all of the list is in this one."""
    lines, before = [csv_lines.line(COLUMNS)], filters.before
    batches, _ = _found(filters, user, account) or (Batch.objects.none(), "")
    for _ in range(MOST_IN_FILE // _CHUNK):
        older = batches.filter(pk__lt=before) if before else batches
        rows = batch_rows.read(list(batch_rows.counted(older).order_by("-pk")[:_CHUNK]))
        lines += [csv_lines.line(_cells(row)) for row in rows]
        if len(rows) < _CHUNK:
            return lines, ""
        before = rows[-1].id
    return lines, filters.query(before=before)


def _cells(row: BatchRow) -> Iterator[str]:
    yield from (row.id, row.status, row.headline.text)
    yield " ".join(str(chain.id) for chain in row.sources)
    yield str(row.destination.id)
    yield "" if row.is_self_funded else str(row.spent)
    yield from (iso(row.created_at) or "", iso(row.finished_at) or "", row.rejection_code)


def _found(
    filters: Filters, user: User | None, account: SearchedAccount | None
) -> tuple["QuerySet[Batch]", str] | None:
    """Return the batches, and what was searched for, in words. None: the search can't match anything."""
    batches = _whose(user)
    if filters.status:
        batches = batches.filter(status=filters.status)
    if filters.chain:
        batches = batches.filter(destination_chain_id=int(filters.chain))
    return _search(batches, filters.search, account) if filters.search else (batches, "")


def _whose(user: User | None) -> "QuerySet[Batch]":
    return Batch.objects.all() if user is None else Batch.objects.filter(user=user)


def _page(batches: "QuerySet[Batch]", filters: Filters) -> tuple[Sequence[Batch], bool, bool]:
    """Return the rows to show, newest first, and whether there are newer and older ones."""
    rows = batch_rows.counted(batches)
    if filters.after:
        found = list(rows.filter(pk__gt=filters.after).order_by("pk")[: PAGE_SIZE + 1])
        more = len(found) > PAGE_SIZE
        return found[:PAGE_SIZE][::-1], more, True
    if filters.before:
        rows = rows.filter(pk__lt=filters.before)
    found = list(rows.order_by("-pk")[: PAGE_SIZE + 1])
    return found[:PAGE_SIZE], bool(filters.before), len(found) > PAGE_SIZE


def _search(
    batches: "QuerySet[Batch]", text: str, account: SearchedAccount | None
) -> tuple["QuerySet[Batch]", str] | None:
    """Return the batches that the text names, and what it was taken for. None if it can't name any."""
    if _ID.fullmatch(text):
        return batches.filter(pk=text.upper()), "the identifier"
    if _NUMBER.fullmatch(text):
        blocks = Block.objects.filter(number=int(text)).values("pk")
        return batches.filter(pk__in=Query.objects.filter(block__in=blocks).values("batch")), "the block number"
    if _HASH.fullmatch(text):
        sent = SignedTransaction.objects.filter(hash=text.lower()).values("transaction")
        by_transaction = Transaction.queries.through.objects.filter(transaction__in=sent).values("query__batch")
        blocks = Block.objects.filter(hash=text.lower()).values("pk")
        by_block = Query.objects.filter(block__in=blocks).values("batch")
        return batches.filter(Q(pk__in=by_transaction) | Q(pk__in=by_block)), "the hash of a transaction or block"
    if account:
        # An unknown name is nobody's. Queries about headers have an empty address.
        batches = batches if account.address else batches.none()
        return batches.filter(pk__in=Query.objects.filter(address=account.address).values("batch")), "the account"
    return None
