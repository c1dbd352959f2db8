"""The service on a geth that charges Amsterdam's prices, and on one that reaches the fork."""

import io
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from eth_account import Account
from eth_utils.crypto import keccak

from devnet import genesis
from devnet.devchain import ACCOUNTS
from proving.models import SignedTransaction, Signer, Stop, Transaction, TransactionState
from queries.models import Batch, BatchStatus
from tests import service
from tests.explorer import slot_costs
from tests.factories import client_of
from tests.proving import money, self_funded
from tests.proving.estimated_batches import estimate
from tests.proving.sources import KEYS, attesting
from tests.real_nodes.deploying import deployed_for, deployed_on, mining
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth

pytestmark = [pytest.mark.django_db, pytest.mark.geth, pytest.mark.outside]

_ALICE = service.ALICE
# Requests of every kind, about a block with transactions.
KINDS: dict[str, dict[str, Any]] = {
    "a balance": {"accounts": {_ALICE: {"props": ["BALANCE"]}}},
    "an account": {"accounts": {_ALICE: {"props": service.ACCOUNT_FIELDS}}},
    "a header's field": {"header": ["TIMESTAMP"]},
    "five fields": {"header": ["GAS_USED", "GAS_LIMIT", "TIMESTAMP", "BLOCK_ACCESS_LIST_HASH", "SLOT_NUMBER"]},
    "slots": {"accounts": {genesis.HOLDS_SLOTS: {"slots": ["0x0", "0x1"]}}},
    "zero slots": {"accounts": {genesis.HOLDS_SLOTS: {"slots": [hex(2**20 + n) for n in range(20)]}}},
}


def connect(settings, tmp_path, node: DrivenGeth, *, chain: str = "") -> None:
    settings.CHAINS_FILE = service.chains_toml(tmp_path, node.url, chain_id=CHAIN_ID, chain=chain)


def request(number: int, of_block: dict[str, Any]) -> dict[str, Any]:
    return service.asking({f"block:{number}": of_block}, source=CHAIN_ID, destination=CHAIN_ID)


def submit(key, node: DrivenGeth, of_block: dict[str, Any], number: int | None = None) -> Batch:
    return service.submit(key, request(node.head() - 1 if number is None else number, of_block))


@pytest.fixture
def amsterdam(settings, tmp_path) -> Iterator[DrivenGeth]:
    """Yield a geth with Amsterdam's prices, on which the registry is deployed."""
    with DrivenGeth(CHAIN_ID, amsterdam_time=0) as node:
        node.mine(3)
        connect(settings, tmp_path, node)
        deployed_on(CHAIN_ID, node.mine)
        yield node


def test_every_kind_of_batch_is_done_at_the_first_try(amsterdam, client, key):
    for name, of_block in KINDS.items():
        before = set(Transaction.objects.values_list("pk", flat=True))
        amsterdam.mine(2)
        body = request(amsterdam.head() - 1, of_block)
        estimated = estimate(client, key, body)["gas"]["expected"]
        batch = service.done(service.submit(key, body), amsterdam)
        sent = Transaction.objects.exclude(pk__in=before)
        assert sent, name
        for tx in sent:
            assert tx.succeeded, name
            # The limit leaves a margin, and no more than that of an estimate.
            assert 1 <= tx.newest.gas / tx.gas_used <= 1.6, name
        most_off = 0.1 if "zero" in name else 0.06
        assert batch.gas_used == pytest.approx(estimated, rel=most_off), name


@pytest.mark.long
def test_a_wallet_pays_for_every_kind_of_batch_with_the_limits_that_its_page_gives(amsterdam, client, key):
    for name, of_block in [*KINDS.items(), ("slots at a time", KINDS["slots"])]:
        amsterdam.mine(2)
        number = amsterdam.head() - 1
        body = self_funded.itself(request(number, of_block))
        if "time" in name:
            # No node can simulate the slots' proof before the time's.
            moment = int(amsterdam.rpc("eth_getBlockByNumber", hex(number), False)["timestamp"], 16)
            body["data"] = {str(CHAIN_ID): {f"timestamp:{moment}": of_block}}
        expected = estimate(client, key, body)["gas"]["expected"]
        batch, used = service.submit(key, body), 0
        service.work(2)
        with self_funded.nothing_spent(amsterdam):
            while transactions := left_on_page(batch)["transactions"]:
                for tx in transactions:
                    receipt = paid(amsterdam, tx)
                    assert receipt["status"] == "0x1", name
                    used += int(receipt["gasUsed"], 16)
            service.done(batch, amsterdam)
        assert used == pytest.approx(expected, rel=0.1 if "zero" in name else 0.06), name


def left_on_page(batch: Batch) -> Any:
    """Return what the script of the batch's page gets to send."""
    return (
        client_of(_ALICE)
        .post(f"/explorer/query/{batch.pk}/transactions", headers={"accept": "application/json"})
        .json()
    )


def paid(node: DrivenGeth, tx: dict[str, Any]) -> Any:
    """Send the transaction as a wallet does, with the page's gas limit. Return its receipt."""
    payer, secret = ACCOUNTS[1]
    nonce = int(node.rpc("eth_getTransactionCount", payer, "latest"), 16)
    fees = {"nonce": nonce, "chainId": CHAIN_ID, "maxFeePerGas": 10**11, "maxPriorityFeePerGas": 10**9}
    fields = {name: tx[name] for name in ("to", "data", "value", "gas")} | fees
    sent = node.rpc("eth_sendRawTransaction", Account.sign_transaction(fields, secret).raw_transaction.to_0x_hex())
    node.mine()
    return node.rpc("eth_getTransactionReceipt", sent)


@pytest.mark.long
def test_the_page_names_what_a_stored_slot_and_a_shown_one_cost_at_amsterdam_s_prices(key, client, settings, tmp_path):
    node, slots = DrivenGeth(CHAIN_ID, amsterdam_time=0), [f"0x{keccak(n.to_bytes(32)).hex()}" for n in range(600)]
    node.genesis["alloc"][genesis.HOLDS_SLOTS]["storage"] = dict.fromkeys(slots, f"0x{10**18 + 1:064x}")
    with node:
        node.mine(3)
        connect(settings, tmp_path, node)
        deployed_on(CHAIN_ID, node.mine)
        with mining(node.mine):
            call_command("deploy_reader", str(CHAIN_ID), stdout=io.StringIO())
        node.mine(2)
        block, some = node.head() - 1, slots[:20]
        figures = slot_costs.told(CHAIN_ID, block, genesis.HOLDS_SLOTS, some)
        assert figures
        stored, read, shown, readings = figures
        # A new word takes 110,020 gas.
        assert stored > 110_020
        assert readings == stored // (shown - read) == 1
        of_account = {"accounts": {genesis.HOLDS_SLOTS: {"props": ["STORAGE_ROOT"], "slots": some}}}
        service.done(submit(key, node, of_account, block), node)
        taken = slot_costs.taken(client, key, node, block, genesis.HOLDS_SLOTS, some[0])
        assert (read, shown) == pytest.approx(taken, rel=0.06)


@pytest.mark.long
def test_expected_gas_counts_an_attestation_at_amsterdam_s_prices(amsterdam, chain, key, settings, tmp_path):
    """The other chain is the source."""
    chain.mine(8)
    with attesting(tmp_path / "attester", chain, KEYS[0]) as attester:
        with mining(amsterdam.mine):
            deployed_for(chain, amsterdam, attester, settings, tmp_path)
        asked = {f"block:{chain.head() - 4}": KINDS["a balance"]}
        batch = service.submit(key, service.asking(asked, source=chain.chain_id, destination=CHAIN_ID))
        service.done(batch, amsterdam)
    (tx,) = Transaction.objects.filter(queries__batch=batch).distinct()
    assert tx.succeeded
    assert tx.expected_gas == pytest.approx(tx.gas_used, rel=0.06)
    assert tx.gas_used > 350_000


def test_cancellations_are_believed_and_stop_no_signer(amsterdam, key):
    for _ in range(3):
        amsterdam.mine(2)
        batch = submit(key, amsterdam, KINDS["a balance"])
        service.work()
        assert Transaction.objects.filter(state=TransactionState.PENDING).count() == 1
        answer = Client().post(f"/batch-queries/{batch.pk}/cancel", headers=service.header(key))
        assert answer.status_code == 200
        service.work(rounds=4)
        service.work(rounds=8, chain=amsterdam)
    versions = SignedTransaction.objects.filter(is_cancellation=True)
    cancelled = [(each.transaction.state, each.transaction.gas_used, each.gas) for each in versions]
    assert cancelled == [(TransactionState.FINAL, 12_000, 21_000)] * 3
    assert not Stop.objects.exists()
    assert Signer.objects.get().receipt_fault is None
    service.done(submit(key, amsterdam, KINDS["a balance"]), amsterdam)


def test_what_is_signed_before_the_fork_fails_once_at_most(key, settings, tmp_path):
    with DrivenGeth(CHAIN_ID, amsterdam_time=int(time.time()) + 300) as node:
        node.mine(3)
        connect(settings, tmp_path, node)
        deployed_on(CHAIN_ID, node.mine)
        node.mine(2)
        names = ("a balance", "an account", "a header's field", "zero slots")
        batches = [submit(key, node, KINDS[name]) for name in names]
        service.work()
        signed_before = list(Transaction.objects.filter(state=TransactionState.PENDING))
        assert signed_before
        node.mine_until_amsterdam()
        later = submit(key, node, KINDS["five fields"], node.head() + 3)
        for batch in (*batches, later):
            service.done(batch, node, rounds=25)
        failed = Transaction.objects.filter(succeeded=False)
        assert {tx.pk for tx in failed} <= {tx.pk for tx in signed_before}
        nonces = Transaction.objects.order_by("nonce").values_list("nonce", flat=True)
        assert list(nonces) == list(range(nonces[0], nonces[0] + len(nonces)))
        assert {service.fresh(batch).status for batch in batches} == {BatchStatus.DONE}


def test_a_batch_whose_fee_the_fork_exceeds_names_it_and_is_done_when_gas_is_cheaper(key, settings, tmp_path):
    """In a fork's last hour, estimates have its prices already."""
    with DrivenGeth(CHAIN_ID, amsterdam_time=int(time.time()) + 4_000) as node:
        node.mine(3)
        settings.ALLOWED_ADDRESSES = ["*"]
        connect(settings, tmp_path, node, chain="test_network = false")
        deployed_on(CHAIN_ID, node.mine)
        batch = service.submit(key, request(node.head() - 1, KINDS["a balance"]) | {"fee": "auto"})
        with money.stopped():
            service.work()
            node.mine_until_amsterdam()
            node.mine(2)
            service.work()
        service.work()
        assert not Transaction.objects.filter(queries__batch=batch).exists()
        (wait,) = Client().get(f"/batch-queries/{batch.pk}", headers=service.header(key)).json()["waits"]
        assert wait["code"] == "fee_before_fork"
        assert f"before the fork Amsterdam of chain {CHAIN_ID}" in wait["sentence"]
        # The base fee falls with each empty block.
        node.mine(20)
        service.done(batch, node)
        assert service.fresh(batch).spent <= batch.fee
