"""Admission checks a batch against the chains before money is spent and headers are stored."""

from chains.node_errors import NodeUnavailable
from tests.service import ALICE, fresh, header, request, submit, work


def test_a_batch_that_is_cancelled_while_nodes_are_asked_stays_cancelled(service, key, client, monkeypatch):
    batch = submit(key, request(ALICE, block=service.head()))

    def cancel_and_fail(*_: object) -> None:
        assert client.post(f"/batch-queries/{batch.pk}/cancel", headers=header(key)).status_code == 200
        raise NodeUnavailable("No node can be used.")

    monkeypatch.setattr("proving.source_estimate.estimate_all", cancel_and_fail)
    work()
    assert (fresh(batch).rejection_code, batch.waits_for, batch.due_at) == ("cancelled_by_user", None, None)
