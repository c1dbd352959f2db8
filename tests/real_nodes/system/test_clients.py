"""Unmodified clients of others, as a source for facts on anvil, and as the destination."""

import io
import json
from collections.abc import Callable, Iterator

import pytest
from django.core.management import call_command

from devnet.devchain import ACCOUNTS, DevChain
from devnet.geth import GETH_1_16
from proving.models import Transaction
from queries.models import BatchStatus
from tests import service
from tests.proving.sources import KEYS, attesting
from tests.real_nodes import deploying
from tests.real_nodes.driven_ethereumjs import DrivenEthereumJs
from tests.real_nodes.driven_geth import DrivenGeth
from tests.real_nodes.driven_node import DrivenNode
from tests.real_nodes.facts import facts_of, send_transactions, wrong

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

CHAIN_ID = 424242
CLIENTS: dict[str, tuple[Callable[[], DrivenNode], pytest.MarkDecorator]] = {
    "ethereumjs": (lambda: DrivenEthereumJs(CHAIN_ID), pytest.mark.long),
    "geth": (lambda: DrivenGeth(CHAIN_ID), pytest.mark.geth),
    "geth with debug": (lambda: DrivenGeth(CHAIN_ID, namespaces="eth,net,web3,debug"), pytest.mark.geth),
    "geth on Amsterdam": (lambda: DrivenGeth(CHAIN_ID, amsterdam_time=0), pytest.mark.geth),
    "geth 1.16": (lambda: DrivenGeth(CHAIN_ID, program=GETH_1_16), pytest.mark.geth),
}


@pytest.fixture(scope="module")
def node(request) -> Iterator[DrivenNode]:
    with CLIENTS[request.param][0]() as node:
        node.mine(2)
        yield node


def on(*names: str) -> pytest.MarkDecorator:
    """Run the test on these clients."""
    params = [pytest.param(name, marks=CLIENTS[name][1]) for name in names]
    return pytest.mark.parametrize("node", params, indirect=True)


def block_with_transactions(node: DrivenNode) -> int:
    """Return the number of a block with transactions. It is final."""
    send_transactions(node)
    node.mine()
    number = node.head()
    node.mine(8)
    return number


@pytest.fixture
def registry(node, chain: DevChain, db, settings, tmp_path) -> Iterator[str]:
    """Yield the address of the registry on `chain` for the node's facts, while an attester signs."""
    with attesting(tmp_path / "attester", node, KEYS[0]) as attester:
        yield deploying.deployed_for(node, chain, attester, settings, tmp_path).address


@on(*CLIENTS)
def test_facts_of_every_kind_are_proven_on_another_chain(node, chain: DevChain, registry, key):
    facts = facts_of(node, block_with_transactions(node))
    # Unlike nodes of development chains, this one proves block 0 by the root of its header.
    genesis = {"block:0": {"accounts": {ACCOUNTS[0][0]: {"props": ["BALANCE"]}}}}
    body = service.asking({**facts.asked, **genesis}, source=CHAIN_ID, destination=chain.chain_id)
    service.done(service.submit(key, body), chain)
    assert wrong(chain, registry, facts) == []
    assert len(facts.expected) > 65


@on("ethereumjs", "geth", "geth on Amsterdam")
def test_withdrawals_are_shown_on_another_chain(node, chain: DevChain, registry, client, key):
    """There are more than Ethereum has, so keys have two lengths."""
    paid = [
        {
            "index": hex(2**31 + place),
            "validatorIndex": hex(place),
            "address": f"0x{place + 1:040x}",
            "amount": hex(10**9),
        }
        for place in range(130)
    ]
    node.mine(withdrawals=paid)
    number = node.head()
    node.mine(8)
    assert int(node.rpc("eth_getBalance", paid[7]["address"], hex(number)), 16) == 10**18
    block = {f"block:{number}": {"withdrawals": ["0", "7", "127", "128", "129"]}}
    call_command("deploy_reader", chain.chain_id, stdout=io.StringIO())
    body = service.asking(block, source=CHAIN_ID, destination=chain.chain_id)
    told = client.post("/read-proofs", body, content_type="application/json", headers=service.header(key)).json()[
        "proofs"
    ]
    batch = {json.dumps(proof["root"]["batch"]) for proof in told}
    service.done(service.submit(key, json.loads(batch.pop()) | {"fee": "0"}), chain)
    again = client.post("/read-proofs", body, content_type="application/json", headers=service.header(key)).json()[
        "proofs"
    ]
    assert not batch
    assert [proof["root"]["isFact"] for proof in (*told, *again)] == [False] * 5 + [True] * 5
    for proof in again:
        expected = paid[int(proof["withdrawal"]["place"])]
        words = chain.rpc("eth_call", {"to": proof["view"]["to"], "data": proof["view"]["data"]}, "latest")
        numbers = [int(words[2 + at : 66 + at], 16) for at in range(0, 256, 64)]
        assert numbers == [int(expected[name], 16) for name in ("index", "validatorIndex", "address", "amount")]


# geth 1.16 makes no block on an earlier one of its own.
@on("ethereumjs", "geth", "geth on Amsterdam")
@pytest.mark.parametrize("apart", [6, 0], ids=["the facts are dropped", "the registry is dropped too"])
def test_facts_are_proven_on_its_own_chain_and_again_when_their_blocks_are_dropped(
    node, key, settings, tmp_path, apart
):
    """EthereumJS forgets the transactions of dropped blocks. geth mines them again in the next block."""
    # A registry that an earlier test has deployed is found again, so this is another one.
    other = "" if apart else "history_window = 9000"
    settings.CHAINS_FILE = service.chains_toml(tmp_path, node.url, chain_id=CHAIN_ID, chain=other)

    # Transactions of earlier tests are final after these blocks too.
    number = block_with_transactions(node)
    registry = deploying.deployed_on(CHAIN_ID, node.mine).address
    node.mine(apart)
    facts = facts_of(node, number)
    batch = service.done(service.submit(key, service.asking(facts.asked, source=CHAIN_ID, destination=CHAIN_ID)), node)
    assert wrong(node, registry, facts) == []
    for tx in Transaction.objects.all():
        # EthereumJS's receipts show only the tip as the price.
        assert tx.block_number is not None
        block = node.rpc("eth_getBlockByNumber", hex(tx.block_number), False)
        assert tx.gas_price == int(block["baseFeePerGas"], 16) + tx.newest.max_priority_fee_per_gas

    node.drop(5)
    is_gone = not isinstance(node, DrivenGeth)
    assert (node.rpc("eth_getCode", registry, "latest") == "0x") == (is_gone and not apart)
    assert len(wrong(node, registry, facts)) == (len(facts.expected) if is_gone else 0)
    statuses = []
    for _ in range(20):
        service.work()
        batch.refresh_from_db()
        statuses.append(batch.status)
        if not wrong(node, registry, facts):
            break
        node.mine()
    # The registry was dropped with its block, so its facts can't be read until it is mined again.
    assert BatchStatus.IN_PROGRESS in statuses or not (is_gone and apart)
    assert service.work_until_done(batch, node).status == BatchStatus.DONE
    assert wrong(node, registry, facts) == []
