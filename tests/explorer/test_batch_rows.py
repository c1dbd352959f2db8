"""Lines of lists: what was asked and what came out, in words."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from explorer.lists import batch_list, batch_rows
from explorer.lists.batch_rows import BatchRow
from queries import progress
from queries.models import Batch, StepKind
from queries.rejection_codes import RejectionCode
from tests.explorer.batches import (
    a_batch,
    accept,
    batch_at,
    connect_source,
    deployed,
    finish,
    many_accounts,
    of_two_sources,
    queries_of,
)
from tests.service import ALICE, BOB

pytestmark = pytest.mark.django_db

SHORT = f"{ALICE[:6]}…{ALICE[-4:]}"


def line(batch: Batch) -> BatchRow:
    found = {row.id: row for row in batch_list.newest(User.objects.get(address=ALICE), 50)}
    return found[batch.pk]


def words(batch: Batch) -> str:
    return line(batch).headline.text


def account(**asked: object) -> dict[str, object]:
    return {"accounts": {ALICE: asked}}


def each_of(count: int, props: list[str]) -> dict[str, object]:
    return {"accounts": {address: {"props": props} for address in many_accounts(count)}}


@pytest.mark.parametrize(
    ("asked", "open_words", "done_words"),
    [
        (
            {"block_12": account(props=["BALANCE"])},
            f"Balance of {SHORT} at block 12",
            f"Balance of {SHORT} at block 12: 123,456,789.0123 ETH",
        ),
        (
            {"block_12": account(slots=["0x5"])},
            f"Slot 0x5 of {SHORT} at block 12",
            f"Slot 0x5 of {SHORT} at block 12: 5",
        ),
        ({"latest": account(props=["NONCE"])}, f"Nonce of {SHORT} at the newest block", None),
        (
            {"block_12": account(props=["NONCE", "BALANCE"], slots=["0x5"])},
            f"3 facts of {SHORT} at block 12",
            f"3 facts of {SHORT} at block 12",
        ),
        (
            {"block_12": {"header": ["GAS_LIMIT"]}},
            "GAS_LIMIT of the header of block 12",
            "GAS_LIMIT of the header of block 12: 30,000,000",
        ),
        (
            {f"block_{number}": account(props=["BALANCE"]) for number in (1, 2, 3)},
            f"3 balances of {SHORT} at 3 blocks",
            f"3 balances of {SHORT} at 3 blocks",
        ),
        (
            {"block_1": account(props=["BALANCE"]), "block_2": account(slots=["0x5"])},
            f"Facts of {SHORT} at 2 blocks",
            None,
        ),
        (
            {"block_12": each_of(3, ["NONCE", "BALANCE"])},
            "3 accounts at block 12",
            None,
        ),
        (
            {"block_12": {"accounts": {ALICE: {"slots": ["0x1"]}, BOB: {"slots": ["0x1"]}}, "header": ["STATE_ROOT"]}},
            "2 accounts and 1 header at block 12",
            None,
        ),
        ({"block_12": {"header": ["NONCE"]}, "block_13": {"header": ["NONCE"]}}, "2 headers at 2 blocks", None),
        (
            {"block_12": each_of(64, ["CODE_HASH"])},
            "64 code hashes at block 12",
            None,
        ),
        (
            {"block_12": each_of(1200, ["CODE_HASH"])},
            "1,200 queries at block 12",
            None,
        ),
    ],
)
def test_a_line_says_what_was_asked_and_once_it_is_done_what_came_out(asked, open_words, done_words):
    batch = batch_at(**asked)
    assert words(batch) == open_words
    if done_words:
        finish(batch)
        assert words(batch) == done_words


def test_a_line_says_how_much_of_a_small_batch_is_proven():
    batch = a_batch(*many_accounts(3))
    accept(batch)
    for kind in StepKind:
        progress.complete(queries_of(batch)[:2], kind)
    assert words(batch) == "3 balances at block 12: 2 of 3 proven"


def test_no_value_is_told_that_the_registry_may_not_hold():
    batch = a_batch()
    finish(batch)
    assert line(batch).headline.answer
    registry = deployed()
    registry.deployed_at = None
    registry.save()
    assert line(batch).headline.answer is None
    deployed()
    Batch.objects.update(status="REJECTED")
    assert line(batch).headline.answer is None


def test_a_rejected_one_has_its_code_and_how_long_it_took():
    batch = a_batch()
    progress.reject([batch.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    found = line(batch)
    assert found.rejection_code == RejectionCode.PROOF_UNAVAILABLE
    assert found.took is not None


def test_all_source_chains_are_named_or_said_to_be_several(tmp_path, monkeypatch):
    connect_source(tmp_path)
    one, two = a_batch(), of_two_sources()
    assert [[chain.id for chain in line(batch).sources] for batch in (one, two)] == [[31337], [31337, 5]]
    assert (line(one).reads_itself, line(two).reads_itself) == (True, False)
    monkeypatch.setattr(batch_rows, "_MOST_READ", 1)
    assert [[chain.id for chain in line(batch).sources] for batch in (one, two)] == [[31337], []]
    assert [chain.id for chain in line(a_batch(*many_accounts(9), block=13)).sources] == [31337]


def test_the_statements_grow_neither_with_the_lines_nor_with_the_batches():
    counts = []
    for blocks in (range(1), range(1, 6)):
        for block in blocks:
            finish(batch_at(**{f"block_{block}": account(slots=["0x5"])}))
            a_batch(*many_accounts(40), block=block)
        with CaptureQueriesContext(connection) as captured:
            batch_list.newest(User.objects.get(address=ALICE), 50)
        counts.append(len(captured) - 1)  # The user is the test's.
    assert counts == [6, 6]
