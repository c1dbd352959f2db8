"""Observations of chains, and a running worker when clocks jump."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.utils import timezone

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import ChainWatch, Transaction
from queries.models import Batch
from tests.chains.lying_node import between, lying_node
from tests.explorer.batches import DEAD_NODE, SOURCE, beat, connect_source
from tests.factories import is_done, until
from tests.proving.money_node import Node
from tests.proving.paths import HISTORY, rewrite_history
from tests.service import chains_toml, changed_replies, reconfigure, request, submit, work, work_until_done
from tests.users import ALICE, SIGNER, SIGNERS, a_key

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]

DAY = timedelta(hours=25)


def seen(chain_id: int = 31337) -> list[str]:
    """Return the codes that a worker has stored about the chain."""
    return [code for code, *_ in ChainWatch.objects.get(pk=chain_id).problems]


def test_an_observation_has_the_newest_block_and_no_problem(service):
    work()
    watch = ChainWatch.objects.get()
    assert watch.problems == []
    assert watch.looked_at
    assert watch.looked_at > timezone.now() - timedelta(seconds=20)
    assert watch.timestamp == int(service.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    assert watch.due_at
    assert timedelta(seconds=5) < watch.due_at - timezone.now() < timedelta(seconds=16)


@pytest.mark.long
def test_a_signer_that_runs_out_of_funds_is_seen_without_work_and_seen_to_be_funded_again(service):
    service.rpc("anvil_setBalance", SIGNER, hex(10**15))
    work()
    ((code, sentence, _),) = ChainWatch.objects.get().problems
    assert code == "signer_unfunded"
    assert f"The signer {SIGNER} on Development chain (31337) holds 0.001000 ETH, less than the 0.01" in sentence
    due_at = ChainWatch.objects.get().due_at
    assert due_at
    assert due_at - timezone.now() < timedelta(seconds=11)
    service.rpc("anvil_setBalance", SIGNER, hex(10**18))
    work()
    assert seen() == []


def test_an_observation_has_the_problems_of_each_of_several_signers(two_signers):
    for address in SIGNERS:
        two_signers.rpc("anvil_setBalance", address, hex(10**15))
    work()
    problems = ChainWatch.objects.get().problems
    assert [code for code, *_ in problems] == ["signer_unfunded"] * 2
    assert [address for address in SIGNERS if any(address in sentence for _, sentence, _ in problems)] == list(SIGNERS)


def test_a_history_that_tells_another_hash_is_seen_and_told_by_healthz(service):
    rewrite_history(service, reads=3)
    work()
    told = Client().get("/healthz").json()
    assert "wrong_history" in told["codes"]
    assert any(HISTORY in sentence and "31337" in sentence for sentence in told["problems"])


@pytest.mark.long
def test_nodes_of_which_no_proof_verifies_are_told_by_healthz(service, settings):
    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getProof":
            reply["result"]["accountProof"].pop()
        return [reply]

    beat()
    with changed_replies(settings, service, change):
        work()
    assert Client().get("/healthz").json()["codes"] == ["no_proofs"]


@pytest.mark.long
def test_a_stale_first_node_calls_nobody_where_another_node_tells_a_later_block(service, settings):
    reconfigure(settings, "block_seconds = 1", "block_seconds = 12")
    work()
    with lying_node(Node(service, "stale")) as url:
        reconfigure(settings, f'"{service.url}"', f'"{url}", "{service.url}"')
        work()
        assert seen() == []
        (resting,) = ChainWatch.objects.get().resting_nodes
        assert resting["host"] in url
        reconfigure(settings, f'"{url}", "{service.url}"', f'"{url}"')
        work()
    assert seen() == ["head_went_back"]


@pytest.mark.parametrize("blocks", [0, 1, 6])
def test_a_chain_of_few_blocks_is_healthy(service, tmp_path, blocks):
    with DevChain(chain_id=SOURCE) as young:
        if blocks:
            young.mine(blocks)
        connect_source(tmp_path, young.url)
        work()
        assert (seen(), seen(SOURCE)) == ([], [])


def test_a_chain_whose_nodes_are_down_is_seen_beside_one_that_is_up(service, tmp_path):
    connect_source(tmp_path, DEAD_NODE)
    work()
    assert (seen(), seen(SOURCE)) == ([], ["chain_unavailable"])


@pytest.mark.long
def test_each_url_that_leads_to_another_chain_is_told_of_one_chain(service, settings, tmp_path):
    """The nodes before it work, so no ordinary request reaches the wrong node."""
    beat()
    with DevChain(chain_id=5) as other:
        settings.CHAINS_FILE = chains_toml(tmp_path, service.url, DEAD_NODE, f"{other.url}?key=secret")
        forget_chains()
        work()
        host = other.url.removeprefix("http://")
        sentence = f"URL 3 of Development chain (31337) is not used: {host} is a node of chain 5, not of 31337."
        about = {"chainId": "31337", "url": "3"}
        assert ChainWatch.objects.get(pk=31337).problems == [["wrong_chain", sentence, about]]
        assert sentence in Client().get("/healthz").json()["problems"]


@pytest.mark.long
def test_a_worker_finds_again_what_a_clock_that_was_ahead_has_put_off(service, start_worker):
    batch = submit(a_key(), request(ALICE, block=service.head()))
    Batch.objects.update(due_at=timezone.now() + DAY)
    start_worker()
    until(lambda: is_done(batch), "DONE")


@pytest.mark.long
def test_no_node_is_asked_inside_a_transaction(service, settings):
    """During a database transaction, other processes would wait for the node, too."""
    database, requests_inside = connections["default"], Counter[bool]()

    def note(_: Any, reply: Any) -> list[Any]:
        requests_inside[database.in_atomic_block] += 1
        return [reply]

    # The first transaction's tip is compared, and then the next nonce, which is above those of stored transactions.
    Transaction.objects.all().delete()
    with between(service.url, note) as url, between(service.url, note) as other:
        reconfigure(settings, f'"{service.url}"', f'"{url}", "{other}"')
        work_until_done(submit(a_key(), request(ALICE, block=service.head())))
    assert requests_inside[False] > 10
    assert not requests_inside[True]
