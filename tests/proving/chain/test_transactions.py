"""Each nonce is used once and none stays open, even if node and market misbehave."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from eth_utils.crypto import keccak

from chains.contract_artifacts import DEPLOYER
from devnet.devchain import DevChain
from proving.models import SignedTransaction, Signer, Transaction, TransactionState
from queries.models import BatchStatus
from queries.waits import wait
from tests.chains.lying_node import ask, between, error, lying_node, result
from tests.metrics import chain_events
from tests.proving import chain_state, receipts, transactions
from tests.proving.money import cancel, cancel_by_command, pending, stopped
from tests.service import changed_replies, expire_leases, fresh, reconfigure, request, submit, work, work_until_done
from tests.users import ALICE, BOB, SIGNER, SIGNER_KEY, a_key

pytestmark = pytest.mark.outside


@pytest.fixture
def mempool(service: DevChain) -> DevChain:
    """Return a chain that mines only on request, connected to the service."""
    service.rpc("evm_setAutomine", False)
    return service


@pytest.fixture
def batch(service):
    return submit(a_key(), request(ALICE, block=service.head()))


def the_transaction() -> Transaction:
    return Transaction.objects.exclude(to=DEPLOYER).get()


def sent_hashes(chain: DevChain) -> set[str]:
    pending = chain.rpc("txpool_content")["pending"]
    return {tx["hash"] for by_nonce in pending.values() for tx in by_nonce.values()}


@pytest.mark.long
def test_a_signed_transaction_is_stored_before_it_is_broadcast(mempool, batch, settings):
    sent: list[bytes] = []

    def keep(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_sendRawTransaction":
            sent.append(bytes.fromhex(body["params"][0][2:]))
            return error(body, -32000, "internal error")
        return ask(mempool.url, body)

    def kill() -> None:
        raise KeyboardInterrupt

    with lying_node(keep) as url:
        reconfigure(settings, mempool.url, url)
        with pytest.raises(KeyboardInterrupt), transactions.between_statements(lambda _: sent, kill):
            work()
        reconfigure(settings, url, mempool.url)
    expire_leases()
    assert not sent_hashes(mempool)
    stored = the_transaction().versions.get()
    assert (bytes(stored.raw), stored.broadcast_at) == (sent[0], None)
    assert work_until_done(batch, mempool).status == BatchStatus.DONE
    assert the_transaction().hash == stored.hash


@pytest.mark.long
def test_a_transaction_that_one_node_keeps_to_itself_is_handed_to_the_others(mempool, batch, settings):
    def keep(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_sendRawTransaction":
            return result(body, "0x" + keccak(hexstr=body["params"][0]).hex())
        return ask(mempool.url, body)

    with lying_node(keep) as url:
        reconfigure(settings, f'"{mempool.url}"', f'"{url}", "{mempool.url}"')
        work(2)
        assert not sent_hashes(mempool)
        SignedTransaction.objects.update(broadcast_at=timezone.now() - timedelta(minutes=1))
        work()
        assert sent_hashes(mempool) == {the_transaction().latest_hash}


@pytest.mark.long
def test_a_retry_sends_the_same_bytes(mempool, batch):
    pending(batch)
    (first,) = sent_hashes(mempool)
    mempool.rpc("anvil_dropTransaction", first)
    assert not sent_hashes(mempool)
    SignedTransaction.objects.update(broadcast_at=timezone.now() - timedelta(minutes=1))
    work()
    assert sent_hashes(mempool) == {first}
    assert the_transaction().versions.count() == 1


@pytest.mark.long
def test_a_transaction_too_cheap_for_the_node_is_reported_in_our_words(mempool, batch):
    pending(batch)
    mempool.rpc("anvil_dropAllTransactions")
    mempool.rpc("anvil_setNextBlockBaseFeePerGas", hex(2 * the_transaction().versions.get().max_fee_per_gas))
    mempool.mine()
    SignedTransaction.objects.update(broadcast_at=timezone.now() - timedelta(minutes=1))
    work()
    assert str(the_transaction().error) == "The node wants higher fees."
    assert not sent_hashes(mempool)


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_waits_too_long_gets_higher_fees_under_its_nonce(mempool, batch):
    first = pending(batch).versions.get()
    before = chain_events()
    transactions.work_aged()
    work()
    assert chain_events() - before == {"replaced": 1}
    second = the_transaction().versions.exclude(pk=first.pk).get()
    assert second.max_fee_per_gas * 10 >= first.max_fee_per_gas * 11
    assert second.max_priority_fee_per_gas * 10 >= first.max_priority_fee_per_gas * 11
    assert sent_hashes(mempool) == {second.hash}
    assert work_until_done(batch, mempool).status == BatchStatus.DONE
    assert (the_transaction().hash, the_transaction().succeeded) == (second.hash, True)


@pytest.mark.long
def test_fees_never_rise_above_the_cap(mempool, batch, settings):
    highest = pending(batch).versions.get().max_fee_per_gas
    cap = f"block_seconds = 1\nmax_fee_per_gas_gwei = {highest * 1.2 / 10**9}"
    reconfigure(settings, "block_seconds = 1", cap)
    transactions.work_aged(5)
    assert max(the_transaction().versions.values_list("max_fee_per_gas", flat=True)) <= highest * 1.2
    assert the_transaction().versions.count() == 2


@pytest.mark.long
def test_fees_rise_with_the_market_and_not_for_ever_above_it(mempool, batch):
    market = pending(batch).versions.get().max_fee_per_gas
    # Ten replacements, each an eighth above the one before, would be above three times the market.
    transactions.work_aged(12)
    assert max(the_transaction().versions.values_list("max_fee_per_gas", flat=True)) <= 3 * market


@pytest.mark.long
def test_only_the_lowest_open_nonce_gets_higher_fees(mempool, batch):
    other = submit(a_key(BOB), request(ALICE, block=mempool.head() - 1))
    work(2)
    lowest, highest = Transaction.objects.exclude(to=DEPLOYER).order_by("nonce")
    transactions.work_aged()
    assert (lowest.versions.count(), highest.versions.count()) == (2, 1)
    work_until_done(other, mempool)


@pytest.mark.long
def test_at_a_high_gas_price_a_transaction_is_still_replaced_up_to_the_cap(mempool, batch):
    first = pending(batch).versions.get()
    mempool.rpc("anvil_setNextBlockBaseFeePerGas", hex(110 * 10**9))  # twice this is above the cap of 200 gwei
    mempool.rpc("anvil_dropTransaction", first.hash)
    mempool.mine()
    transactions.work_aged()
    newest = the_transaction().versions.order_by("-pk")[0]
    assert newest.pk != first.pk
    assert 110 * 10**9 < newest.max_fee_per_gas <= 200 * 10**9


@pytest.mark.long
@pytest.mark.parametrize("told", [None, {}], ids=["no receipt", "one that can't be read"])
def test_a_node_that_lags_is_no_reorg_and_no_stranger(service, batch, settings, caplog, told):
    work_until_done(batch)
    work()
    tx = the_transaction()
    assert tx.state == TransactionState.CONFIRMED

    def lag(question: Any, reply: Any) -> list[Any]:
        return [reply | {"result": told} if question["method"] == "eth_getTransactionReceipt" else reply]

    with changed_replies(settings, service, lag) as url:
        work()
        assert bool(the_transaction().error) == (told is not None)
        reconfigure(settings, url, service.url)
        work()
        assert the_transaction().error is None
        reconfigure(settings, service.url, url)
        service.mine(5)
        work()
    assert fresh(tx).state == TransactionState.CONFIRMED
    assert "reorganised" not in caplog.text
    assert "isn't ours" not in caplog.text


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("cancel", [cancel, cancel_by_command])
def test_a_transaction_whose_purpose_is_gone_is_replaced_by_an_empty_one(mempool, batch, cancel):
    nonce = pending(batch).nonce
    before = chain_events()
    cancel(batch)
    work(2)
    assert chain_events() - before == {"cancelled": 1}
    empty = the_transaction().versions.get(is_cancellation=True)
    assert sent_hashes(mempool) == {empty.hash}
    mempool.mine()
    work()
    assert chain_state.signer_nonce(mempool) == nonce + 1
    assert the_transaction().hash == empty.hash
    # The mined transaction is the empty one, so nothing is proven.
    assert (the_transaction().succeeded, the_transaction().state) == (False, TransactionState.CONFIRMED)
    assert fresh(batch).status == BatchStatus.REJECTED


@pytest.mark.long
def test_a_transaction_that_would_revert_by_now_is_cancelled_instead_of_paid_for(mempool, batch, client):
    ours = pending(batch)
    code = mempool.rpc("eth_getCode", ours.to, "latest")
    mempool.rpc("anvil_setCode", ours.to, "0x60006000fd")  # every call reverts
    transactions.work_aged()
    assert the_transaction().versions.filter(is_cancellation=True).exists()
    # Somebody else proves it meanwhile. The batch has paid for the cancellation all the same.
    mempool.mine()
    mempool.rpc("anvil_setCode", ours.to, code)
    mempool.rpc("eth_sendTransaction", {"from": BOB, "to": ours.to, "data": f"0x{ours.data.hex()}", "gas": "0x2dc6c0"})
    mempool.mine()
    assert work_until_done(batch, mempool).status == BatchStatus.DONE
    assert batch.gas_used > 0
    assert not Transaction.objects.filter(queries__batch=batch, succeeded=True).exists()
    assert "so the service sent nothing" not in client.get(f"/explorer/query/{batch.pk}").text


@pytest.mark.long
def test_a_transaction_sent_after_the_backup_that_reserves_it_is_recognised(service, batch):
    nonce = chain_state.signer_nonce(service)
    assert work_until_done(batch).status == BatchStatus.DONE
    sent = the_transaction().hash
    SignedTransaction.objects.filter(hash=sent).update(hash=None, raw=b"", broadcast_at=None)
    Transaction.objects.filter(hash=sent).update(
        state=TransactionState.PENDING, hash="", block_number=None, block_hash="", succeeded=None
    )
    work()
    tx = the_transaction()
    assert (tx.state, tx.hash, tx.succeeded) == (TransactionState.CONFIRMED, sent, True)
    assert chain_state.signer_nonce(service, "pending") == nonce + 1


@pytest.mark.long
def test_a_nonce_that_something_else_used_is_noticed_and_the_proof_sent_again(mempool, batch):
    ours = pending(batch)
    mempool.rpc("anvil_dropTransaction", ours.versions.get().hash)
    transactions.send_from_elsewhere(mempool, ours.nonce)
    mempool.mine()
    assert work_until_done(batch, mempool).status == BatchStatus.DONE
    assert fresh(ours).state == TransactionState.DISPLACED
    assert Transaction.objects.exclude(to=DEPLOYER).exclude(pk=ours.pk).get().nonce == ours.nonce + 1


@pytest.mark.long
def test_nonces_that_something_else_used_before_are_skipped(service, batch):
    nonce = chain_state.signer_nonce(service)
    transactions.send_from_elsewhere(service, nonce)
    assert work_until_done(batch).status == BatchStatus.DONE
    assert the_transaction().nonce == nonce + 1


# How often a nonce is asked for before it is used.
ASKED_BEFORE_SENDING = 2
LIES = {
    "3 more": ("latest", 3),
    "1000 more": ("latest", 1000),
    "far more": ("latest", 2**63),
    "of the mempool": ("pending", 1000),
}


@pytest.mark.long
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.django_db(transaction=True)
def test_one_lie_about_a_nonce_stops_no_signer(mempool, batch, settings, lie):
    block, more = lie
    told: list[str] = []
    asked: set[str] = set()
    before = chain_events()
    let_all_be_final(mempool)

    def lie_once(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_estimateGas" and "to" in question["params"][0]:
            asked.add("estimate")  # one of a creation measures prices
        is_sending = "estimate" in asked  # workers ask for nonces before, as they look at the chain
        is_asked = question["method"] == "eth_getTransactionCount" and question["params"][1] == block
        if is_sending and is_asked and len(told) < ASKED_BEFORE_SENDING:
            told.append(reply["result"])
            reply["result"] = hex(int(reply["result"], 16) + more)
        return [reply]

    problems = set()
    with changed_replies(settings, mempool, lie_once):
        for _ in range(8):
            work()
            problems |= doubts()
            mempool.mine()
        later = submit(a_key(BOB), request(BOB, block=mempool.head()))
        for each in (batch, later):
            assert work_until_done(each, mempool, rounds=20).status == BatchStatus.DONE
        mempool.mine()
        work()
    assert told or block == "pending"
    assert bool(problems) == (block == "latest" and more < 2**63)
    events = chain_events() - before
    assert (events["nonce_gap"], events["nonce_filled"]) == (len(problems), more * (more == 3))
    assert not doubts()


def test_a_signer_s_problems_are_told_no_longer_than_its_transactions_are_watched(mempool):
    let_all_be_final(mempool)
    faults = {"receipt_fault": wait("node_fails", problem="A test."), "nonce_fault": wait("nonce_left_behind")}
    Signer.objects.update(**faults, due_at=timezone.now())
    assert {"receipt_unusable", "nonce_gap"} <= {*Client().get("/healthz").json()["codes"]}
    work()
    assert not {"receipt_unusable", "nonce_gap"}.intersection(Client().get("/healthz").json()["codes"])


@pytest.mark.long
def test_the_nonce_of_a_transaction_left_behind_is_used_up_when_it_is_reached(mempool, batch, settings):
    """A displaced transaction, signed beyond a gap in the nonces, may still be mined."""
    leave_behind(mempool, settings, by=40)
    behind = Transaction.objects.get(state=TransactionState.DISPLACED)
    assert work_until_done(batch, mempool, rounds=20).status == BatchStatus.DONE
    used = int(mempool.rpc("eth_getTransactionCount", SIGNER, "latest"), 16)
    mempool.rpc("anvil_dropAllTransactions")
    mempool.rpc("anvil_setNonce", SIGNER, hex(behind.nonce))
    mempool.mine()
    assert used < behind.nonce
    later = submit(a_key(BOB), request(BOB, block=mempool.head()))
    assert work_until_done(later, mempool, rounds=20).status == BatchStatus.DONE
    mempool.mine()
    work()
    assert fresh(behind).state != TransactionState.DISPLACED
    assert later.queries.get().transactions.get().nonce == behind.nonce + 1


@pytest.mark.long
@pytest.mark.parametrize("by", [1, 40], ids=["called used", "left behind"])
def test_a_displaced_transaction_in_mempools_is_cancelled_once_its_facts_are_sent_anew(mempool, batch, settings, by):
    if by == 1:
        call_used(mempool, settings, pending(batch).nonce)
    else:
        leave_behind(mempool, settings, by=by)
    displaced = Transaction.objects.get(state=TransactionState.DISPLACED)
    work(2)
    assert Transaction.objects.filter(queries__batch=batch).count() == 2
    assert all(version.broadcast_at or by == 1 for version in displaced.versions.all())
    mempool.rpc("anvil_dropAllTransactions")
    mempool.rpc("anvil_setNonce", SIGNER, hex(displaced.nonce))
    for version in displaced.versions.order_by("pk"):
        # Nodes may still hold every version that they were sent.
        mempool.rpc("eth_sendRawTransaction", "0x" + bytes(version.raw).hex())
    mempool.mine()
    work()
    assert (fresh(displaced).succeeded, displaced.gas_used) == (False, 21_000)
    # The node has dropped the new transaction, too. It is sent again after some seconds.
    SignedTransaction.objects.update(broadcast_at=timezone.now() - timedelta(minutes=1))
    assert work_until_done(batch, mempool, rounds=20).status == BatchStatus.DONE


def call_used(chain: DevChain, settings: Any, nonce: int) -> None:
    """Let a node report this nonce of the signer as used by another transaction."""

    def lie(question: Any, reply: Any) -> list[Any]:
        return [reply | {"result": hex(nonce + 1)} if question["method"] == "eth_getTransactionCount" else reply]

    with between(chain.url, lie) as url, stopped():
        reconfigure(settings, chain.url, url)
        work()
        reconfigure(settings, url, chain.url)


def doubts() -> set[str]:
    """Return the present codes of notices about nonces."""
    return {"nonce_gap", "node_doubtful"} & set(Client().get("/healthz").json()["codes"])


def let_all_be_final(chain: DevChain) -> None:
    """Make all transactions final, after which only new transactions read nonces."""
    chain.mine(70)
    with stopped():
        work()
    assert Signer.objects.get().due_at is None


def leave_behind(chain: DevChain, settings: Any, *, by: int) -> None:
    told: list[str] = []
    asked: set[str] = set()
    let_all_be_final(chain)

    def lie_once(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_estimateGas" and "to" in question["params"][0]:
            asked.add("estimate")  # one of a creation measures prices
        is_sending = "estimate" in asked  # workers ask for nonces before, as they look at the chain
        is_asked = question["method"] == "eth_getTransactionCount"
        if is_sending and is_asked and len(told) < ASKED_BEFORE_SENDING:
            told.append(reply["result"])
            reply["result"] = hex(int(reply["result"], 16) + by)
        return [reply]

    with changed_replies(settings, chain, lie_once) as url:
        work(2)
        reconfigure(settings, url, chain.url)


@pytest.mark.long
def test_final_transactions_that_the_chain_has_lost_are_sent_again(mempool, batch):
    assert work_until_done(batch, mempool).status == BatchStatus.DONE
    mempool.mine(70)
    work()
    lost = the_transaction()
    assert lost.state == TransactionState.FINAL
    signer = Signer.objects.get()
    assert lost.block_number is not None
    mempool.rpc("anvil_reorg", mempool.head() - lost.block_number + 1, [])
    assert chain_state.signer_nonce(mempool) <= lost.nonce
    later = submit(a_key(BOB), request(BOB, block=1))
    assert work_until_done(later, mempool, rounds=20).status == BatchStatus.DONE
    assert work_until_done(batch, mempool, rounds=20).status == BatchStatus.DONE
    mempool.mine(70)
    work()
    assert fresh(lost).state == TransactionState.FINAL
    assert fresh(signer).final_count == Transaction.objects.filter(signer=signer, state=TransactionState.FINAL).count()


@pytest.mark.long
@pytest.mark.parametrize("fields", [{}, {"status": None}], ids=["told", "not told"])
def test_a_reverted_transaction_is_followed_by_another_try(mempool, batch, settings, fields):
    first = pending(batch)
    code = mempool.rpc("eth_getCode", first.to, "latest")
    mempool.rpc("anvil_setCode", first.to, "0xfe")
    mempool.mine()
    mempool.rpc("anvil_setCode", first.to, code)
    with receipts.changed_receipts(mempool, **fields) as url:
        reconfigure(settings, mempool.url, url)
        assert work_until_done(batch, mempool).status == BatchStatus.DONE
        reconfigure(settings, url, mempool.url)
    assert (fresh(first).succeeded, str(first.error)) == (False, "The transaction was mined, but it reverted.")
    assert Transaction.objects.exclude(to=DEPLOYER).count() == 2
    batch.refresh_from_db()
    work()
    assert fresh(batch).gas_used > first.gas_used  # the reverted transaction's gas counts, too


def test_the_signers_key_is_in_no_log(mempool, batch, caplog):
    caplog.set_level("DEBUG")
    work_until_done(batch, mempool)
    assert caplog.text
    assert SIGNER_KEY[2:] not in caplog.text
