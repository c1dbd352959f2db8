"""What is checked against the chains before anything is spent: with its lease, and before headers are kept."""

import json
from collections.abc import Iterator

import pytest

from database.leases import Lease
from devnet.devchain import DevChain
from queries.models import BatchStatus
from tests.chains.lying_node import ask, lying_node
from tests.inside.working import accept_all
from tests.service import ALICE, fresh, reconfigure, request, submit, waiting, work, work_until_done


@pytest.fixture
def exchanges(service, settings, monkeypatch) -> Iterator[list[int]]:
    """Yield how many exchanges with the node there were between a lease's claim, extensions and end."""
    counts = [0]

    def count(body):
        counts[-1] += 1
        return ask(service.url, body)

    def extend(lease):
        counts.append(0)
        extend_lease(lease)

    extend_lease = Lease.extend
    with lying_node(count) as url:
        reconfigure(settings, service.url, url)
        monkeypatch.setattr(Lease, "extend", extend)
        yield counts


# Each may take seconds.
MOST_EXCHANGES = 6


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


def test_accepting_many_blocks_keeps_the_lease(service, key, exchanges):
    service.mine(1200)
    body = request(ALICE, block=1)
    entry = body["data"]["31337"].pop("block:1")
    body["data"]["31337"] = {f"block:{number}": entry for number in range(5, service.head())}
    batch = submit(key, body)
    accept_all()
    batch.refresh_from_db()
    assert batch.status == BatchStatus.ACCEPTED
    assert sum(exchanges) > 2 * MOST_EXCHANGES
    assert max(exchanges) <= MOST_EXCHANGES
