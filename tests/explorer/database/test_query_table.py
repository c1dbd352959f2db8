"""The table of a batch's queries: values, filters and orders."""

import re
from typing import Any

import pytest

from queries import batch_states
from queries.models import Batch, StepKind
from tests.explorer.batches import TRANSACTION, accept, batch_at, page, queries_of
from tests.factories import client_of
from tests.service import ALICE, BOB

pytestmark = pytest.mark.django_db


def numbers(batch: Batch, **parameters: Any) -> list[int]:
    """Return the numbers of the shown queries in their order."""
    return [int(number) for number in re.findall(r'id="row-(\d+)"', page(batch, **parameters))]


def blocks_and_states() -> Batch:
    """Return five queries: Alice and Bob at block 9, both at block 5, and a transaction at block 7. Two are proven."""
    both = {"accounts": {ALICE: {"props": ["NONCE"]}, BOB: {"props": ["NONCE"]}}}
    batch = accept(batch_at(block_9=both, block_5=both, block_7={"transactions": {TRANSACTION: {"logs": ["0"]}}}))
    for kind in StepKind:
        batch_states.complete(queries_of(batch)[:2], kind)
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
        ({"account": TRANSACTION.upper().replace("X", "x")}, [5]),
        ({"account": f"0x{'1' * 64}"}, []),
        ({"account": ALICE, "state": "open"}, [3]),
        ({"chain": "31337"}, [1, 2, 3, 4, 5]),
        ({"chain": "7"}, []),
        ({"sort": "block"}, [3, 4, 5, 1, 2]),
        ({"sort": "account"}, [5, 2, 4, 1, 3]),
        ({"sort": "state"}, [3, 4, 5, 1, 2]),
        ({"sort": "block", "state": "proven"}, [1, 2]),
        ({"page": "7"}, [1, 2, 3, 4, 5]),
    ],
)
def test_filters_leave_some_out_and_orders_change_their_order(parameters, shown):
    assert numbers(blocks_and_states(), **parameters) == shown


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        *(({"page": page}, "There is no such page of the list.") for page in ("x", "0", "-1", "1e3", "\u0663")),
        ({"deliveries": "x"}, "There is no such page of the list."),
        ({"sort": "1; DROP TABLE"}, "There is no such order of queries."),
        ({"state": ["open", "proven"]}, "There is no such state of queries."),
        ({"chain": "0x7a69"}, "The source chain must be a chain id, in decimal digits."),
    ],
    ids=str,
)
def test_a_filter_of_a_batch_that_cannot_be_read_is_refused(parameters, sentence):
    batch = blocks_and_states()
    address = f"/explorer/query/{batch.pk}"
    page = client_of(ALICE).get(address, parameters)
    assert (page.status_code, sentence in page.text) == (400, True)
    program = client_of(ALICE).get(address, parameters, headers={"accept": "application/json"})
    assert program.json() == {"error": sentence, "code": "bad_request"}
