from typing import Any

import pytest

from devnet.devchain import DevChain
from proving.reading.provable_blocks import probe, provable
from tests.chain_fixtures import chain_fixture
from tests.chains import geth_answers
from tests.chains.lying_node import Raw, ask, error, lying_node, pruned, result

HEAD = 1_200


devchain = chain_fixture(lambda chain: chain.mine(HEAD))


def test_an_archive_proves_back_to_the_first_block(devchain, client_of):
    client = client_of(devchain.url)
    abilities = probe(client)
    assert abilities.head == client.head()
    assert abilities.finalized == HEAD - 2
    assert abilities.keeps_hashes
    assert abilities.provable.oldest == 1


@pytest.mark.long
@pytest.mark.parametrize(("kept", "depth"), [(1_000, 1_000), (999, 128), (128, 128), (127, 120), (119, 64), (63, 0)])
def test_a_pruned_node_proves_down_to_a_depth(client_of, kept, depth):
    with DevChain(extra_args=("--prune-history", str(kept))) as chain:
        chain.mine(HEAD)
        client = client_of(chain.url)
        assert provable(client, client.head()).oldest == HEAD - depth


@pytest.mark.parametrize(("only_proofs", "has_state"), [(False, False), (True, True)])
def test_a_node_that_reads_states_without_proving_them_is_known(devchain, client_of, only_proofs, has_state):
    with pruned(devchain.url, only_proofs=only_proofs) as url:
        abilities = probe(client_of(url))
    assert abilities.provable.oldest == HEAD - 128
    assert abilities.provable.not_proven == HEAD - 1_000
    assert abilities.has_unproven_state == has_state


@pytest.mark.parametrize("kept", [127, 128])
def test_a_block_that_comes_meanwhile_hides_no_limit_of_states(devchain, client_of, kept):
    """geth keeps 127 states below the head by the hash scheme, and 128 by the path scheme."""
    client = client_of(devchain.url)
    before = client.head()
    with pruned(devchain.url, keeps=kept - 1) as url:
        assert provable(client_of(url), before).oldest == HEAD - 120


def test_a_chain_without_history_contract_keeps_no_hashes(client_of):
    with DevChain(hardfork="cancun") as chain:
        chain.mine(5)
        assert not probe(client_of(chain.url)).keeps_hashes


def answering(devchain: DevChain, method: str, answer: Any) -> Any:
    """Return a node that answers one method differently at blocks other than the head."""
    names_of_head = {hex(HEAD), "latest", devchain.rpc("eth_getBlockByNumber", "latest", False)["hash"]}

    def node(body: Any) -> Any:
        if body["method"] != method or any(f"'{name}'" in str(body["params"]) for name in names_of_head):
            return ask(devchain.url, body)
        return answer(body)

    return node


@pytest.mark.parametrize(
    "answer",
    [
        lambda body: error(body, *geth_answers.REFUSALS["an old state"]),
        lambda _: Raw(status=503),
        lambda body: result(body, {"accountProof": ["0x80"], "storageProof": [{"key": "0x0", "proof": []}]}),
    ],
    ids=["refused", "failed", "wrong"],
)
def test_blocks_whose_proofs_are_refused_or_do_not_verify_are_not_provable(devchain, client_of, answer):
    with lying_node(answering(devchain, "eth_getProof", answer)) as url:
        client = client_of(url)
        assert provable(client, client.head()).oldest == HEAD


def test_headers_that_are_gone_can_not_be_proven(devchain, client_of):
    with lying_node(answering(devchain, "eth_getBlockByNumber", lambda body: result(body, None))) as url:
        client = client_of(url)
        assert provable(client, client.head()).oldest == HEAD


def test_refused_extras_are_told_and_do_no_harm(devchain, client_of):
    def node(body: Any) -> Any:
        if body["method"] in {"eth_getProof", "eth_getStorageAt"} or "finalized" in str(body):
            return error(body, -32601, "Method not found")
        return ask(devchain.url, body)

    with lying_node(node) as url:
        abilities = probe(client_of(url))
    assert (abilities.finalized, abilities.keeps_hashes, abilities.provable.oldest) == (None, False, None)


@pytest.mark.parametrize("told", ["0x", {}, [], {"number": None, "hash": None}, {"number": "0x1"}])
def test_a_final_block_that_can_t_be_read_counts_as_none(devchain, client_of, told):
    def node(body: Any) -> Any:
        questions = body if isinstance(body, list) else [body]
        replies = ask(devchain.url, body)
        replies = [
            result(question, told) if "finalized" in question["params"] else reply
            for question, reply in zip(questions, replies if isinstance(body, list) else [replies], strict=True)
        ]
        return replies if isinstance(body, list) else replies[0]

    with lying_node(node) as url:
        client = client_of(url)
        assert probe(client).finalized is None
        assert not client.resting_nodes()
