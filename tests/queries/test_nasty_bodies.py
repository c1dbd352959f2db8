"""What can't be accepted costs no more than what can."""

import time
from contextlib import suppress

import pytest

from config.configured_chains import get_chains
from queries.batch_request import MAX_FAULTS_LISTED, InvalidRequest, parse
from tests.queries.nasty_bodies import GOOD, GOOD_ACCOUNTS, NASTY

MAX_QUERIES = 10_000


def seconds(body: bytes) -> float:
    """Of processor time."""
    began = time.thread_time()
    with suppress(InvalidRequest):
        parse(body, get_chains(), max_queries=MAX_QUERIES)
    return time.thread_time() - began


def test_the_largest_bodies_are_accepted():
    for body in (GOOD, GOOD_ACCOUNTS):
        assert parse(body, get_chains(), max_queries=MAX_QUERIES)


@pytest.mark.parametrize("name", NASTY)
def test_a_body_is_refused_as_fast_as_a_good_one_is_read(name):
    # Side by side, because processor time depends on what else the machine does: the worst once took 35 times as long.
    assert any(seconds(NASTY[name]) < 2 * seconds(GOOD_ACCOUNTS) for _ in range(3))


@pytest.mark.parametrize("name", NASTY)
def test_no_body_is_accepted_and_no_list_of_faults_is_long(name):
    with pytest.raises(InvalidRequest) as caught:
        parse(NASTY[name], get_chains(), max_queries=MAX_QUERIES)
    assert 1 <= len(caught.value.faults) <= MAX_FAULTS_LISTED


@pytest.mark.parametrize(
    "block", ['{"block:1": 1, "block:2": {}}', '{"block:1": {"header": [1]}, "block:2": {"accounts": 1}}']
)
def test_what_is_malformed_counts_towards_the_limit_too(block):
    body = f'{{"destinationChainId": "31337", "fee": "0", "data": {{"31337": {block}}}}}'.encode()
    with pytest.raises(InvalidRequest, match="2 accounts, slots and headers are too many"):
        parse(body, get_chains(), max_queries=1)
