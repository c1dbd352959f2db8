"""Batches of many slots are proven on geth with Amsterdam's rules, where a new word takes 110,020 gas."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from eth_account import Account

from devnet.devchain import ACCOUNTS
from proving.models import Signer, Transaction
from queries.models import BatchStatus, Block
from tests import service
from tests.proving.self_funded import itself, left_of, nothing_spent
from tests.real_nodes.deploying import deployed_on
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.geth]

HAS_SLOTS = "0x00000000000000000000000000000000005107ed"
PAYER, PAYER_KEY = ACCOUNTS[1]
# Many wallets refuse a higher gas limit.
MOST_OF_A_WALLET = 2**24


@pytest.fixture(scope="module")
def geth() -> Iterator[DrivenGeth]:
    node = DrivenGeth(CHAIN_ID, amsterdam_time=0)
    words = {f"0x{slot:064x}": f"0x{slot + 1:064x}" for slot in range(2000)}
    node.genesis["alloc"][HAS_SLOTS] = {"balance": "0x1", "nonce": "0x1", "code": "0x00", "storage": words}
    with node:
        node.mine(2)
        yield node


@pytest.fixture(autouse=True)
def registry(geth: DrivenGeth, db, settings, tmp_path) -> None:
    settings.CHAINS_FILE = service.chains_toml(tmp_path, geth.url, chain_id=CHAIN_ID)
    deployed_on(CHAIN_ID, geth.mine)


def asking(node: DrivenGeth, slots: range) -> dict[str, Any]:
    entry = {HAS_SLOTS: {"slots": [f"0x{slot:064x}" for slot in slots]}}
    return service.asking({f"block:{node.head()}": {"accounts": entry}}, source=CHAIN_ID, destination=CHAIN_ID)


# Each row has its own slots, so that no other row has proven them.
@pytest.mark.parametrize(
    ("slots", "transactions"), [(range(100), 1), (range(100, 350), 2)], ids=["100 slots", "250 slots"]
)
def test_many_slots_are_proven_by_few_transactions_at_the_first_try(geth, key, slots, transactions):
    body = asking(geth, slots)
    answer = (
        Client()
        .post("/estimate-batch-query", body, content_type="application/json", headers=service.header(key))
        .json()
    )
    batch = service.done(service.submit(key, body), geth)
    sent = list(Transaction.objects.filter(queries__batch=batch).distinct())
    assert len(sent) == transactions
    used = 0
    for tx in sent:
        assert tx.succeeded
        assert 1.0 <= tx.gas_limit / (tx.gas_used or 1) <= 1.6
        used += tx.gas_used or 0
    assert used == pytest.approx(answer["gas"]["expected"], rel=0.06)


def test_a_node_s_cap_of_gas_is_named_where_a_batch_needs_more_and_the_batch_is_proven_when_it_is_raised(geth, key):
    batch = service.submit(key, asking(geth, range(700, 800)))
    geth.flags = ["--rpc.gascap=5000000"]
    geth.restart()
    service.work(3)
    assert not Transaction.objects.filter(queries__batch=batch).exists()
    (signer,) = Signer.objects.filter(address=service.SIGNER)
    told = {block.wait for block in Block.objects.filter(queries__batch=batch)} | {signer.wait}
    paying = service.submit(key, itself(asking(geth, range(800, 900))))
    service.work(2)
    (reason,) = told
    assert str(reason).partition(" need ")[0] in "".join(left_of(paying)["waits"])
    assert re.search(
        r"give calls and estimates only 4,\d\d\d,\d\d\d gas, and a transaction would need 1\d,\d\d\d,\d\d\d\.",
        str(reason),
    )
    geth.flags = []
    geth.restart()
    service.done(batch, geth)


def test_a_self_paid_batch_of_many_slots_needs_no_higher_limit_than_wallets_know(geth, key):
    batch = service.submit(key, itself(asking(geth, range(400, 650))))
    service.work(2)
    limits = []
    with nothing_spent(geth):
        while transactions := left_of(batch)["transactions"]:
            for tx in transactions:
                limits.append(int(tx["gas"], 16))
                receipt = pay(geth, tx)
                assert receipt["status"] == "0x1", tx["what"]
                assert 1.0 <= limits[-1] / int(receipt["gasUsed"], 16) <= 1.6
        assert max(limits) <= MOST_OF_A_WALLET
        assert service.work_until_done(batch, geth).status == BatchStatus.DONE


def pay(node: DrivenGeth, tx: dict[str, Any]) -> dict[str, Any]:
    """Send the transaction with the gas limit that the service gives. Return its receipt."""
    fields = {name: tx[name] for name in ("to", "data", "gas", "value", "chainId")}
    nonce = int(node.rpc("eth_getTransactionCount", PAYER, "latest"), 16)
    fields |= {"nonce": nonce, "maxFeePerGas": 10**10, "maxPriorityFeePerGas": 10**9}
    raw = Account.sign_transaction(fields, PAYER_KEY).raw_transaction.to_0x_hex()
    sent = node.rpc("eth_sendRawTransaction", raw)
    node.mine()
    receipt: dict[str, Any] = node.rpc("eth_getTransactionReceipt", sent)
    return receipt
