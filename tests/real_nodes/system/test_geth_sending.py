"""Sending on geth: what its settings, its pool and its chain may do to transactions. Nothing is lost or paid twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from config.configured_chains import forget_chains
from proving.models import SignedTransaction, Signer, Transaction, TransactionState
from queries.models import Batch, BatchStatus
from tests.chains.geth_answers import SYNCS
from tests.proving import chain_state, transactions
from tests.real_nodes.deploying import deployed_on
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth
from tests.service import ALICE, SIGNER, chains_toml, fresh, reconfigure, request, submit, waiting, work

pytestmark = [pytest.mark.geth, pytest.mark.outside, pytest.mark.django_db]

GWEI, ETHER = 10**9, 10**18
BLOCKS, ACCOUNTS_OF_BLOCK = 4, 32
DEPLOY = ("deploy_registry", str(CHAIN_ID), str(CHAIN_ID))


@contextmanager
def serving(settings, folder, *, base_fee: int = GWEI, chain: str = "", **options: Any) -> Iterator[DrivenGeth]:
    """Start a geth and name it in chains.toml."""
    node = DrivenGeth(CHAIN_ID, namespaces="eth,txpool", **options)
    node.genesis["baseFeePerGas"] = hex(base_fee)
    with node:
        settings.CHAINS_FILE = chains_toml(folder, node.url, chain_id=CHAIN_ID, chain=chain)
        forget_chains()
        yield node


@contextmanager
def with_registry(settings, folder, *, flags: tuple[str, ...] = (), **options: Any) -> Iterator[DrivenGeth]:
    """Start a geth with a registry, and then with these flags. A kill loses no block before this start."""
    with serving(settings, folder, **options) as node:
        node.mine(2)
        deployed_on(CHAIN_ID, node.mine)
        restart(node, *flags)
        yield node


def restart(node: DrivenGeth, *flags: str) -> None:
    node.stop()
    node.flags = flags
    node.start()
    node.forget_lost_blocks()


def ask_for(node: DrivenGeth, key: Any, count: int = 1, back: int = 1) -> Batch:
    """Submit a batch about balances of a recent block."""
    accounts = [ALICE, *(f"0x{place:040x}" for place in range(0xC0FFEE, 0xC0FFEE + count - 1))]
    return submit(key, request(*accounts, block=node.head() - back, chain_id=CHAIN_ID))


def several(node: DrivenGeth, key: Any) -> list[Batch]:
    """Return batches that have a transaction each, since two would be too large for one. All are pending."""
    node.mine(BLOCKS)
    batches = [ask_for(node, key, ACCOUNTS_OF_BLOCK, back=place) for place in range(1, BLOCKS + 1)]
    work(2)
    assert len(pending()) == BLOCKS
    return batches


def told(code: str) -> list[str]:
    """Return the sentences of `/healthz` for operators with this code."""
    health = Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()
    return [sentence for of, sentence in zip(health["codes"], health["problems"], strict=True) if of == code]


def later() -> None:
    """Let all pauses between two broadcasts pass. No version looks old enough for higher fees."""
    long_ago = timezone.now() - timedelta(hours=1)
    SignedTransaction.objects.exclude(refused_at=None).update(refused_at=long_ago)
    SignedTransaction.objects.exclude(broadcast_at=None).update(broadcast_at=long_ago)


def finish(node: DrivenGeth, *batches: Batch, rounds: int = 30) -> None:
    """Work and mine until these batches are done, and each transaction is mined. Each nonce must be used once."""
    for _ in range(rounds):
        if all(fresh(batch).status == BatchStatus.DONE for batch in batches) and not pending():
            break
        later()
        work()
        node.mine()
    assert [fresh(batch).status for batch in batches] == [BatchStatus.DONE] * len(batches), waiting()
    assert not pending()
    nonces = [*Transaction.objects.order_by("nonce").values_list("nonce", flat=True)]
    assert nonces == [*range(nonces[0], chain_state.signer_nonce(node))]
    assert int(node.rpc("eth_getTransactionCount", SIGNER, "pending"), 16) == nonces[-1] + 1


def pending() -> list[Transaction]:
    return [*Transaction.objects.filter(state=TransactionState.PENDING).order_by("nonce")]


def proven(node: DrivenGeth) -> int:
    """Return how many properties of accounts the registry has stored."""
    registry = chain_state.registry(CHAIN_ID).address
    asked = {"address": registry, "topics": [chain_state.ACCOUNT_PROVEN], "fromBlock": "0x0"}
    return len(node.rpc("eth_getLogs", asked))


# --- Settings that refuse ---------------------------------------------------------------------------------------------

SETTINGS = {
    "txfeecap": ("--rpc.txfeecap=0.000001", "tx fee ("),
    "pricelimit": ("--txpool.pricelimit=5000000000", "transaction gas price below minimum: gas tip cap"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_operators_read_why_geth_takes_no_transaction_until_it_does(key, settings, tmp_path, setting):
    flag, words = SETTINGS[setting]
    with with_registry(settings, tmp_path, flags=(flag,)) as node:
        batch = ask_for(node, key)
        work(2)
        (tx,) = pending()
        (sentence,) = told("signer_waits")
        assert f"nonce {tx.nonce} of the signer {SIGNER}" in sentence
        assert f"the node said: “{words}" in sentence
        with pytest.raises(CommandError, match=r"signer_waits: .*the node said"):
            call_command("check_chains", stdout=StringIO())
        assert words not in Client().get("/chains", REMOTE_ADDR="8.8.8.8").text
        assert words not in Client().get(f"/explorer/query/{batch.pk}", REMOTE_ADDR="8.8.8.8").text
        # Long after the time at which fees are raised.
        for _ in range(2):
            transactions.age()
            work()
        assert tx.versions.count() == 1
        restart(node)
        finish(node, batch)
        assert tx.versions.count() == 1
        assert told("signer_waits") == []


def test_a_raised_minimum_priority_fee_meets_the_price_limit_of_geth(key, settings, tmp_path):
    with with_registry(settings, tmp_path, flags=(SETTINGS["pricelimit"][0],)) as node:
        batch = ask_for(node, key)
        work(2)
        (tx,) = pending()
        reconfigure(settings, "block_seconds = 1", "block_seconds = 1\nmin_priority_fee_gwei = 5")
        transactions.age()
        work()
        assert tx.versions.count() == 2
        finish(node, batch)


def test_a_deployment_at_a_high_base_fee_stays_below_the_usual_fee_cap(settings, tmp_path):
    """geth takes no transaction that may cost more than an ether, unless --rpc.txfeecap says otherwise."""
    chain = "max_fee_per_gas_gwei = 1000"
    with serving(settings, tmp_path, base_fee=260 * GWEI, chain=chain) as node:
        node.mine()
        # An empty block lowers the base fee.
        deployed_on(CHAIN_ID, lambda: node.mine() if pending() else None)
        costly = 0
        for tx in Transaction.objects.all():
            mined_in = node.rpc("eth_getBlockByNumber", hex(tx.block_number or 0), False)
            assert tx.most_for_gas <= 0.9 * ETHER
            # The block before, in which it was signed, had no lower base fee.
            costly += 2 * int(mined_in["baseFeePerGas"], 16) * tx.gas_limit > 0.9 * ETHER
        assert costly


def test_operators_read_why_geth_estimates_no_gas_until_it_does(key, settings, tmp_path):
    with with_registry(settings, tmp_path, flags=("--rpc.gascap=200000",)) as node:
        batch = ask_for(node, key, count=8)
        work(2)
        (sentence,) = told("signer_waits")
        assert "geth's --rpc.gascap" in sentence
        assert "gas required" not in Client().get("/chains", REMOTE_ADDR="8.8.8.8").text
        assert not pending()
        restart(node)
        finish(node, batch)


# --- Receipts and nonces of a geth that has no blocks yet -------------------------------------------------------------


def test_a_geth_that_indexes_makes_no_receipt_unusable(key, settings, tmp_path, caplog):
    """It refuses the receipts of waiting transactions until its first block, here of one that was signed before."""
    with (
        with_registry(settings, tmp_path, flags=("--txpool.nolocals",)) as node,
        DrivenGeth(CHAIN_ID, genesis_time=int(node.genesis["timestamp"], 16)) as empty,
    ):
        ask_for(node, key)
        work(2)
        (tx,) = pending()
        with pytest.raises(Exception, match="indexing is in progress"):
            empty.rpc("eth_getTransactionReceipt", tx.latest_hash)
        reconfigure(settings, node.url, empty.url)
        work(2)
        assert told("receipt_unusable") == []
        assert "can't be used" not in caplog.text
        assert fresh(tx).state == TransactionState.PENDING


def use_nonces(node: DrivenGeth, count: int = 3) -> None:
    """Send from the signer's account, as an earlier installation did."""
    for _ in range(count):
        before = chain_state.signer_nonce(node)
        transactions.send_from_elsewhere(node, before)
        while chain_state.signer_nonce(node) == before:
            node.mine()


@pytest.fixture
def young(settings, tmp_path) -> Iterator[tuple[DrivenGeth, DrivenGeth]]:
    """Yield two nodes of a chain whose signer has used nonces. The first one syncs, and has no block yet."""
    with serving(settings, tmp_path) as node:
        use_nonces(node)
        node.mine(40)
        with DrivenGeth(CHAIN_ID, genesis_time=int(node.genesis["timestamp"], 16)) as syncing:
            syncing.follow_unknown()
            yield syncing, node


def test_no_nonce_of_a_geth_that_syncs_is_signed_next_to_another(young, settings, caplog):
    syncing, node = young
    reconfigure(settings, f'"{node.url}"', f'"{syncing.url}", "{node.url}"')
    first = chain_state.signer_nonce(node)
    deployed_on(CHAIN_ID, node.mine)
    work()
    nonces = Transaction.objects.order_by("nonce").values_list("nonce", "succeeded")
    assert [*nonces] == [(first + place, True) for place in range(len(nonces))]
    assert "foreign" not in caplog.text
    (sentence,) = told("node_syncing")
    assert syncing.url.removeprefix("http://") in sentence
    assert told("foreign_transactions") == []


def test_a_geth_that_syncs_alone_signs_nothing_and_tells_no_theft_later(young, settings):
    syncing, node = young
    reconfigure(settings, node.url, syncing.url)
    with pytest.raises(CommandError, match="sync, or are behind"):
        call_command(*DEPLOY, stdout=StringIO())
    assert not Transaction.objects.exists()
    assert SYNCS.items() <= syncing.rpc("eth_syncing").items()
    host = syncing.url.removeprefix("http://")
    with pytest.raises(CommandError, match=f"node_syncing: {host}"):
        call_command("check_chains", stdout=StringIO())
    assert f"{host}, a node of Development chain" in Client().get("/chains").text
    reconfigure(settings, syncing.url, node.url)
    work()
    assert told("foreign_transactions") == []
    assert Signer.objects.get(address=SIGNER).accounted_nonce == chain_state.signer_nonce(node)


# --- The pool and the chain -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_pool_with_room_for_one_transaction_loses_none(key, settings, tmp_path):
    """geth answers each send with its hash, and drops most of them."""
    limits = [f"--txpool.{name}=1" for name in ("accountslots", "globalslots", "accountqueue", "globalqueue")]
    with with_registry(settings, tmp_path, flags=(*limits, "--txpool.nolocals")) as node:
        batches = several(node, key)
        status = node.rpc("txpool_status")
        assert int(status["pending"], 16) + int(status["queued"], 16) < len(pending())
        finish(node, *batches, rounds=60)
        assert proven(node) == BLOCKS * ACCOUNTS_OF_BLOCK


@pytest.mark.long
@pytest.mark.parametrize("flags", [(), ("--txpool.nolocals",)], ids=["with its journal", "without a journal"])
def test_transactions_of_a_killed_geth_are_sent_again(key, settings, tmp_path, flags):
    with with_registry(settings, tmp_path, flags=flags) as node:
        batches = several(node, key)
        sent = {tx.nonce for tx in pending()}
        before = node.head()
        node.kill()
        node.start()
        node.forget_lost_blocks()
        assert node.head() < before
        assert node.rpc("txpool_status") == {"pending": "0x0", "queued": "0x0"} or not flags
        finish(node, *batches)
        assert {tx.nonce for tx in Transaction.objects.filter(nonce__in=sent)} == sent
        assert proven(node) == BLOCKS * ACCOUNTS_OF_BLOCK


@pytest.mark.long
def test_transactions_that_a_reorganisation_of_five_blocks_drops_are_mined_again(key, settings, tmp_path):
    with with_registry(settings, tmp_path) as node:
        node.mine(7)
        number = node.head() - 1
        batches = [submit(key, request(ALICE, block=number - place, chain_id=CHAIN_ID)) for place in (0, 1)]
        finish(node, *batches)
        count = Transaction.objects.count()
        node.mine(2)
        node.drop(5)
        finish(node, *batches)
        assert proven(node) == 2
        assert Transaction.objects.count() == count
        assert chain_state.signer_nonce(node) == count


@pytest.mark.long
def test_a_gap_of_nonces_that_a_pool_lost_is_filled_by_its_own_transactions(key, settings, tmp_path):
    """The lowest transaction is lost, and later ones wait in geth's queue."""
    with with_registry(settings, tmp_path, flags=("--txpool.nolocals",)) as node:
        batches = several(node, key)
        first, *others = pending()
        restart(node, "--txpool.nolocals")
        for tx in others:
            node.rpc("eth_sendRawTransaction", "0x" + bytes(tx.newest.raw).hex())
        assert int(node.rpc("txpool_status")["queued"], 16) == len(others)
        node.mine()
        assert fresh(first).state == TransactionState.PENDING
        finish(node, *batches)
        assert not Transaction.objects.filter(to=SIGNER).exists()
        assert proven(node) == BLOCKS * ACCOUNTS_OF_BLOCK
