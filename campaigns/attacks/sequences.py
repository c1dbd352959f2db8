"""A search for a sequence of events that breaks a promise about money. Pytest runs it for `make attack`.

Hypothesis prints the shortest failing sequence, which then goes into `tests/proving/chain/test_money.py`.
"""

import itertools
import os
from collections.abc import Generator, Iterator
from contextlib import closing

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.proving.money_machine import WORDS, a_machine, a_node
from tests.proving.money_node import Node

# Number of sequences on one chain. After hundreds of resets anvil loses states.
_ON_ONE_CHAIN = 50


@pytest.fixture(scope="module")
def nodes() -> Iterator[Iterator[tuple[Node, str]]]:
    with closing(_nodes()) as nodes:
        yield nodes


def _nodes() -> Generator[tuple[Node, str]]:
    while True:
        with a_node() as node:
            yield from itertools.repeat(node, _ON_ONE_CHAIN)


@settings(
    max_examples=int(os.environ.get("SEQUENCES", "100")),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=30))
def test_no_sequence_breaks_a_promise_about_money(
    transactional_db, nodes: Iterator[tuple[Node, str]], settings, tmp_path, words
):
    call_command("flush", verbosity=0, interactive=False, allow_cascade=False, inhibit_post_migrate=True)
    # The flush also deleted the rows of content types.
    ContentType.objects.clear_cache()
    with a_machine(*next(nodes), settings, tmp_path) as machine:
        machine.run(" ".join(words))
