"""Admission checks a batch against the chains before money is spent and headers are stored."""

from typing import Any

import pytest

from chains.node_errors import NodeUnavailable
from proving.lanes import LaneKind
from queries.models import BatchStatus
from tests.inside.working import work_side_by_side
from tests.proving.logs import block_with_logs
from tests.service import (
    ALICE,
    asking,
    changed_replies,
    fresh,
    header,
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
    assert (fresh(batch).rejection_code, batch.waits_for, batch.due_at) == ("cancelled_by_user", None, None)


@pytest.mark.long
def test_receipts_that_are_read_for_long_hold_up_neither_other_batches_nor_themselves(
    service, key, settings, monkeypatch
):
    monkeypatch.setattr("proving.admission.answers._SECONDS_OF_RECEIPTS", -1)
    number, asked = block_with_logs(service), list[str]()
    of_log = asking({f"block:{number}": {"transactions": {"0": {"logs": ["0"]}}}})
    batches = [submit(key, body) for body in (of_log, of_log, request(ALICE, block=number - 1))]

    def change(question: Any, reply: Any) -> list[Any]:
        asked.append(question["method"])
        return [reply]

    with changed_replies(settings, service, change):
        work_side_by_side(LaneKind.ADMISSION)
        # The batch without transactions comes first, and one that names any is never left out for long.
        assert asked.index("eth_getProof") < asked.index("eth_getBlockReceipts")
        statuses = [fresh(batch).status for batch in batches]
        assert statuses == [BatchStatus.ACCEPTED, BatchStatus.RECEIVED, BatchStatus.ACCEPTED]
        assert str(fresh(batches[1]).waits_for) == "Waiting for a worker to check it against the chains."
        assert [work_until_done(batch, service).status for batch in batches] == [BatchStatus.DONE] * 3
