"""What is checked against the chains before anything is spent, and before headers are kept."""

import json

from devnet.devchain import DevChain
from queries.models import BatchStatus
from tests.chains.lying_node import ask, lying_node
from tests.inside.working import accept_all
from tests.service import ALICE, fresh, reconfigure, request, submit, waiting, work, work_until_done


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
