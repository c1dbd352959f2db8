"""Admission checks a batch against the chains before money is spent and headers are stored."""

from typing import Any

import pytest
from django.test import Client

from chains.nodes.node_errors import NodeUnavailable
from proving.working.lanes import LaneKind
from queries.models import BatchStatus
from tests import metrics
from tests.inside.working import work_side_by_side
from tests.proving.logs import LOG, RETURNS, block_of, block_with_logs, hashes_of
from tests.service import (
    ALICE,
    BOB,
    a_key,
    asking,
    changed_replies,
    fresh,
    header,
    recorded_methods,
    request,
    submit,
    work,
    work_until_done,
)


def test_a_batch_that_is_cancelled_while_nodes_are_asked_stays_cancelled(service, key, client, monkeypatch):
    batch = submit(key, request(ALICE, block=service.head()))

    def cancel_and_fail(*_: object) -> None:
        assert client.post(f"/batch-queries/{batch.pk}/cancel", headers=header(key)).status_code == 200
        raise NodeUnavailable("No node can be used.")

    monkeypatch.setattr("proving.admission.answers.ask_all", cancel_and_fail)
    work()
    assert (fresh(batch).rejection_code, batch.wait, batch.due_at) == ("cancelled_by_user", None, None)


@pytest.mark.long
def test_receipts_that_are_read_for_long_hold_up_neither_other_batches_nor_themselves(
    service, key, settings, monkeypatch
):
    monkeypatch.setattr("proving.admission.answers._SECONDS_OF_RECEIPTS", -1)
    number = block_with_logs(service)
    of_log = asking({f"block:{number}": {"transactions": {"0": {"logs": ["0"]}}}})
    batches = [submit(key, body) for body in (of_log, of_log, request(ALICE, block=number - 1))]

    with recorded_methods(settings, service) as asked:
        work_side_by_side(LaneKind.ADMISSION)
        # The batch without transactions comes first, and one that names any is never left out for long.
        assert asked.index("eth_getProof") < asked.index("eth_getBlockReceipts")
        statuses = [fresh(batch).status for batch in batches]
        assert statuses == [BatchStatus.ACCEPTED, BatchStatus.RECEIVED, BatchStatus.ACCEPTED]
        assert str(fresh(batches[1]).wait) == "Waiting for a worker to check it against the chains."
        assert [work_until_done(batch, service).status for batch in batches] == [BatchStatus.DONE] * 3


@pytest.mark.long
def test_a_batch_of_blocks_too_large_to_keep_is_read_to_its_end(service, key, settings, monkeypatch):
    monkeypatch.setattr("proving.admission.answers._SECONDS_OF_RECEIPTS", -1)
    monkeypatch.setattr("proving.reading.block_contents._MOST_KEPT_BYTES", 0)
    numbers = [block_with_logs(service) for _ in range(3)]
    of_logs = asking({f"block:{number}": {"transactions": {"0": {"logs": ["0"]}}} for number in numbers})
    batch = submit(key, of_logs)

    def turns(outcome: str) -> float:
        text = Client().get("/metrics").text
        return metrics.value(text, "batchquery_job_run_seconds_count", kind="batch", outcome=outcome) or 0

    before = turns("waits"), turns("fails")
    with recorded_methods(settings, service) as asked:
        for place in range(1, 4):
            assert fresh(batch).status == BatchStatus.RECEIVED
            work_side_by_side(LaneKind.ADMISSION)
            assert asked.count("eth_getBlockReceipts") == place
        assert (turns("waits"), turns("fails")) == (before[0] + 2, before[1])
        assert fresh(batch).status == BatchStatus.ACCEPTED
        assert work_until_done(batch, service).status == BatchStatus.DONE


@pytest.mark.long
def test_contents_of_blocks_are_kept_compressed_within_a_bound(service, key, settings, monkeypatch):
    numbers = [block_of(service, [LOG + RETURNS] * 24) for _ in range(3)]

    def reads(most_bytes: int, index: int) -> int:
        """Return how often receipts are read for two batches about the same blocks."""
        asked.clear()
        monkeypatch.setattr("proving.reading.block_contents._MOST_KEPT_BYTES", most_bytes)
        for log in range(2):
            blocks = {f"block:{number}": {"transactions": {str(index + log): {"logs": ["0"]}}} for number in numbers}
            submit(key, asking(blocks))
            work_side_by_side(LaneKind.ADMISSION)
        return asked.count("eth_getBlockReceipts")

    with recorded_methods(settings, service) as asked:
        assert reads(0, 0) == 6
        # A receipt has a bloom of 256 bytes, nearly all of which are zeros.
        assert reads(24 * 256 * 2, 2) == 3


@pytest.mark.long
def test_blocks_that_transactions_select_hold_up_a_turn_no_longer_than_others(service, key, settings, monkeypatch):
    monkeypatch.setattr("proving.reconcile.turn._SECONDS", -1)
    monkeypatch.setattr("proving.reading.block_contents._MOST_KEPT_BYTES", 0)
    selectors = [f"transaction:{hashes_of(service, block_with_logs(service))[0]}" for _ in range(3)]
    large = submit(key, asking({selector: {"accounts": {ALICE: {"props": ["BALANCE"]}}} for selector in selectors}))
    small = submit(a_key(BOB), request(BOB, block=service.head()))

    with recorded_methods(settings, service) as asked:
        work_side_by_side(LaneKind.ADMISSION)
        assert {fresh(large).status, fresh(small).status} == {BatchStatus.ACCEPTED}
        asked.clear()
        work_side_by_side(LaneKind.CONNECTION)
        assert asked.count("eth_getBlockReceipts") == 1
        assert [work_until_done(batch, service).status for batch in (large, small)] == [BatchStatus.DONE] * 2


@pytest.mark.long
@pytest.mark.parametrize("is_shortest", [True, False])
def test_the_shortest_batch_or_the_first_one_leads_a_turn(service, key, settings, monkeypatch, is_shortest):
    monkeypatch.setattr("proving.admission.answers._SECONDS_OF_RECEIPTS", -1)
    monkeypatch.setattr("random.sample", lambda pair, _: [pair[is_shortest]])
    own, *others = numbers = [block_with_logs(service) for _ in range(3)]
    first, short = (
        submit(of_user, asking({f"block:{number}": {"transactions": {"0": {"logs": ["0"]}}} for number in of_batch}))
        for of_user, of_batch in ((key, others), (a_key(BOB), [own]))
    )
    asked: list[Any] = []

    def change(question: Any, reply: Any) -> list[Any]:
        asked.append((question["method"], question["params"][:1]))
        return [reply]

    with changed_replies(settings, service, change):
        work_side_by_side(LaneKind.ADMISSION)
    reads = [params for method, params in asked if method == "eth_getBlockReceipts"]
    assert reads == [[hex(numbers[not is_shortest])]]
    assert [fresh(first).status, fresh(short).status] == [
        BatchStatus.RECEIVED,
        BatchStatus.ACCEPTED if is_shortest else BatchStatus.RECEIVED,
    ]


@pytest.mark.long
def test_a_user_has_one_whole_block_in_a_turn_while_others_wait(service, key, settings, monkeypatch):
    monkeypatch.setattr("proving.reading.block_contents._MOST_KEPT_BYTES", 0)
    numbers = [block_with_logs(service) for _ in range(4)]
    of_logs = {f"block:{number}": {"transactions": {"0": {"logs": ["0"]}}} for number in numbers}
    large, small = submit(key, asking(of_logs)), submit(a_key(BOB), request(BOB, block=service.head()))

    with recorded_methods(settings, service) as asked:
        while fresh(large).status == BatchStatus.RECEIVED:
            work_side_by_side(LaneKind.ADMISSION)
        asked.clear()
        work_side_by_side(LaneKind.CONNECTION)
        assert asked.count("eth_getBlockReceipts") == 1
        assert [work_until_done(batch, service).status for batch in (large, small)] == [BatchStatus.DONE] * 2
