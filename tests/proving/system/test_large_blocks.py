"""Batches that name transactions of blocks which a node answers slowly, beside batches of others."""

import time
from collections import Counter
from typing import Any

import pytest

from queries.models import BatchStatus
from tests import factories, users
from tests.proving.logs import LOG, RETURNS, block_of
from tests.service import a_key, asking, changed_replies, fresh, submit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]

_BLOCKS, _BLOCK_SECONDS = 16, 1.0
_OF_LOG = {"transactions": {"0": {"logs": ["0"]}}}


@pytest.mark.long
def test_strangers_overtake_batches_of_blocks_that_are_read_once(service, start_worker, settings):
    own, *others = [block_of(service, [LOG + RETURNS]) for _ in range(1 + _BLOCKS)]
    reads: Counter[str] = Counter()

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getBlockReceipts":
            reads[question["params"][0]] += 1
            time.sleep(_BLOCK_SECONDS)
        return [reply]

    with changed_replies(settings, service, change):
        of_others = asking({f"block:{number}": _OF_LOG for number in others})
        alice = a_key(users.ALICE)
        large = [submit(alice, of_others) for _ in range(3)]
        start_worker()
        factories.until(lambda: bool(reads), "the first block to be read")
        small = [
            submit(a_key(users.BOB), asking({f"block:{own}": {"header": ["TIMESTAMP"]}})),
            submit(a_key(users.CHARLIE), asking({f"block:{own}": _OF_LOG})),
        ]
        factories.until(lambda: all(map(factories.is_done, small)), "the strangers' batches to be DONE")
        assert {fresh(batch).status for batch in large} == {BatchStatus.RECEIVED}
        factories.until(lambda: all(map(factories.is_done, large)), "the large batches to be DONE")
    assert set(reads.values()) == {1}
    assert len(reads) == 1 + _BLOCKS
