"""Admission's checks against the chains, before money is spent and headers are stored."""

import json

from chains.node_errors import NodeUnavailable
from devnet.devchain import DevChain
from queries.models import BatchStatus
from tests.chains.lying_node import ask, lying_node
from tests.inside.working import accept_all
from tests.service import ALICE, fresh, header, reconfigure, request, submit, waiting, work, work_until_done


def test_a_batch_that_is_cancelled_while_nodes_are_asked_stays_cancelled(service, key, client, monkeypatch):
    batch = submit(key, request(ALICE, block=service.head()))

    def cancel_and_fail(*_: object) -> None:
        assert client.post(f"/batch-queries/{batch.pk}/cancel", headers=header(key)).status_code == 200
        raise NodeUnavailable("No node can be used.")

    monkeypatch.setattr("proving.source_estimate.estimate_all", cancel_and_fail)
    work()
    assert (fresh(batch).rejection_code, batch.waiting_for, batch.due_at) == ("cancelled_by_user", "", None)


def test_a_header_of_another_chain_rejects_no_block_that_was_admitted(service, key, settings):
    body = request(ALICE, block=service.head())
    body["data"]["31337"][f"block:{service.head()}"] = {"header": ["WITHDRAWALS_ROOT"]}
    batch = submit(key, body)
    accept_all()
    with DevChain(extra_args=["--hardfork", "london"]) as other:
        other.mine(service.head())

        def answer(asked):
            return ask(other.url if "eth_getBlockBy" in json.dumps(asked) else service.url, asked)

        with lying_node(answer) as wrong:
            reconfigure(settings, service.url, wrong)
            for _ in range(2):
                work()
                assert (fresh(batch).status, batch.rejection_code) == (BatchStatus.ACCEPTED, "")
            assert any("WITHDRAWALS_ROOT" in sentence for sentence in waiting())
            reconfigure(settings, wrong, service.url)
    assert work_until_done(batch, service).status == BatchStatus.DONE
