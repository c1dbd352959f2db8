"""The table of a batch's queries: their values, and what filters and orders make of it."""

import re
from typing import Any

import pytest
from django.test import Client

from queries import progress
from queries.error_codes import RejectionCode
from queries.models import Batch, StepKind
from tests.explorer.batches import (
    a_batch,
    accept,
    batch_at,
    connect_source,
    finish,
    many_accounts,
    of_two_sources,
    page,
    path,
    queries_of,
)
from tests.explorer.pages import text_of
from tests.service import ALICE, BOB

pytestmark = pytest.mark.django_db


def numbers(batch: Batch, **parameters: Any) -> list[int]:
    """Return the numbers of the queries that are shown, in their order."""
    return [int(number) for number in re.findall(r'id="row-(\d+)"', page(batch, **parameters))]


def line(batch: Batch, number: int) -> str:
    html = page(batch)
    start = html.index(f'id="row-{number}"')
    return text_of(f"<main><{html[start : html.index('</tr>', start)]}</main>")


def test_of_many_facts_a_line_names_the_first_and_counts_the_others():
    slots = [hex(slot) for slot in range(7, 80)]
    accounts = {account: {"props": ["NONCE"], "slots": slots} for account in many_accounts(11)}
    batch = batch_at(block_12={"accounts": accounts, "header": ["GAS_USED"]})
    finish(batch)
    assert "NONCE 7 slot 0x7 7 slot 0x8 8 and 71 more" in line(batch, 1)
    assert "the block's header GAS_USED 21,000" in line(batch, 12)


def blocks_and_states() -> Batch:
    """Five queries: of Alice and Bob at block 9, then at block 5, and a header at block 7. The first two are proven."""
    both = {"accounts": {ALICE: {"props": ["NONCE"]}, BOB: {"props": ["NONCE"]}}}
    batch = batch_at(block_9=both, block_5=both, block_7={"header": ["GAS_USED"]})
    accept(batch)
    for kind in StepKind:
        progress.complete(queries_of(batch)[:2], kind)
    return batch


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"state": "proven"}, [1, 2]),
        ({"state": "open"}, [3, 4, 5]),
        ({"account": ALICE}, [1, 3]),
        ({"account": "5"}, [3, 4]),
        ({"account": "6"}, []),
        ({"account": ALICE, "state": "open"}, [3]),
        ({"chain": "31337"}, [1, 2, 3, 4, 5]),
        ({"chain": "7"}, []),
        ({"sort": "block"}, [3, 4, 5, 1, 2]),
        ({"sort": "account"}, [5, 2, 4, 1, 3]),
        ({"sort": "state"}, [3, 4, 5, 1, 2]),
        ({"sort": "block", "state": "proven"}, [1, 2]),
        ({"page": "7"}, [1, 2, 3, 4, 5]),
        ({"page": "x"}, [1, 2, 3, 4, 5]),
        ({"sort": "1; DROP TABLE", "state": "x", "chain": "y"}, [1, 2, 3, 4, 5]),
    ],
)
def test_filters_leave_some_out_and_orders_change_their_order(parameters, shown):
    assert numbers(blocks_and_states(), **parameters) == shown


def heads(batch: Batch, **parameters: Any) -> list[str]:
    """Return what is above the lines of each block, of the request's or of none."""
    return re.findall(r'<tr class="group".*?>(Block \d+)<', page(batch, **parameters))


def test_lines_are_grouped_by_block_where_their_order_keeps_blocks_together():
    batch = blocks_and_states()
    assert heads(batch) == ["Block 9", "Block 5", "Block 7"]
    assert heads(batch, sort="block") == ["Block 5", "Block 7", "Block 9"]
    assert heads(batch, sort="account") == []
    assert "the block's header Block 7 header, GAS_USED" in text_of(page(batch, sort="account"))


def test_a_few_queries_need_no_search():
    assert 'id="find-query"' not in page(a_batch(*many_accounts(10)))
    assert 'id="find-query"' in page(a_batch(*many_accounts(11)))
    assert 'id="find-query"' in page(a_batch(*many_accounts(2)), sort="block"), "to take the order back"


def test_the_facts_are_offered_as_csv_once_there_is_one():
    batch = a_batch(*many_accounts(2))
    assert "facts.csv" not in page(batch)
    accept(batch)
    for kind in StepKind:
        progress.complete(queries_of(batch)[:1], kind)
    assert "facts.csv" in page(batch)


def test_accounts_are_ordered_whatever_the_case_of_their_letters():
    batch = a_batch(*("0x" + digit * 40 for digit in "fbac"))
    assert [query.address[2] for query in batch.queries.order_by("position")] == ["F", "b", "a", "C"], "by EIP-55"
    assert numbers(batch, sort="account") == [3, 2, 4, 1]


def test_a_source_chain_can_be_chosen_where_there_are_several(tmp_path):
    assert '<select id="chain"' not in page(blocks_and_states())
    connect_source(tmp_path)
    batch = of_two_sources()
    assert '<option value="5" selected>Other chain (5)</option>' in page(batch, chain="5")
    assert numbers(batch, chain="5") == [2]


def test_what_was_chosen_stays_chosen_on_other_pages():
    batch = a_batch(*many_accounts(120))
    url, seen = f"{path(batch)}?state=open&sort=block", list[int]()
    for _ in range(5):
        html = Client().get(url).text
        assert "120 of the 120 queries match." in html
        assert '<option value="open" selected>' in html
        seen += [int(number) for number in re.findall(r'id="row-(\d+)"', html)]
        following = re.search(r'id="next-below" href="([^"]+)"', html)
        url = path(batch) + following[1].replace("&amp;", "&") if following else ""
    assert (seen, url) == (list(range(1, 121)), "")
    assert 'id="first-above" href="?state=open&amp;sort=block&amp;page=1"' in html
    assert 'id="previous-above" href="?state=open&amp;sort=block&amp;page=4"' in html


def test_a_search_for_nothing_that_can_be_found_is_written_harmlessly():
    batch = a_batch(*many_accounts(2))
    html = page(batch, account='"><script>\0&state=x')
    assert "<script>&" not in html
    assert "leaves no query out" in html
    assert numbers(batch, account='"><script>') == [1, 2]


def whole(batch: Batch) -> list[int]:
    """The numbers of the queries that are open on the page with all their steps."""
    return [int(number) for number in re.findall(r'id="whole-(\d+)" open', page(batch))]


def test_of_few_queries_those_are_whole_that_have_failed():
    batch = a_batch(*many_accounts(10))
    accept(batch)
    pks = queries_of(batch)
    for kind in StepKind:
        progress.complete(pks[:8], kind)
    assert whole(batch) == []
    progress.note_failure(pks[9:], "The node is down.")
    assert whole(batch) == [10]
    progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    assert whole(batch) == [10]
