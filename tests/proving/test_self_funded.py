"""Batches that pay themselves: prepared here, sent by others, and never by the operator, to the wei."""

from datetime import timedelta
from typing import Any, NoReturn

import pytest
import rlp
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from eth_utils.crypto import keccak

from chains.header import Header
from chains.rpc import NodeUnavailable, Reverted, RpcClient
from config import rpc_bulkhead
from config.configured_chains import forget_chains, get_rpc
from devnet.devchain import DevChain
from explorer.formatting import amounts
from proving.admission.admit import admit
from proving.budget import cost_allocation, reservations
from proving.models import Transaction
from proving.paths import building, upkeep
from proving.paths import events as registry_events
from proving.reconcile import observe, unsigned
from proving.reconcile.unsigned import Left
from proving.registry.contract import in_one_call
from proving.registry.deploying import DeploymentError, deploy
from proving.transactions.fees import market_fees
from proving.worker.due import reject_overdue
from queries import turns
from queries.models import Batch, BatchStatus, Block, Query, Sender, StepKind
from queries.properties import AccountField
from tests.chains.lying_node import between, error
from tests.contracts.l1_block import L1Block
from tests.factories import until
from tests.inside.killer import Killer
from tests.inside.working import a_worker
from tests.proving import paths, sources
from tests.proving.chain_state import ACCOUNT_PROVEN, HEADER_ACCUMULATED, balance_at, events, field_on_chain, registry
from tests.proving.kills import Killed, exchanges
from tests.proving.money import ETHER, mine_at, pending
from tests.proving.paths import WINDOW
from tests.proving.self_funded import itself, nothing_spent
from tests.proving.transactions import age
from tests.service import (
    ALICE,
    BOB,
    CHARLIE,
    a_key,
    asking,
    balances,
    expire_leases,
    fresh,
    header,
    reconfigure,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)

BLOCK_HASH_PROVEN = "0x" + keccak(text="BlockHashProven(bytes32)").hex()
# Nobody whom the service knows: it has money, and anvil signs for it.
STRANGER = "0x00000000000000000000000000000000c0ffee00"


def send(chain: DevChain, transactions: Any, sender: str = STRANGER) -> None:
    """One after another, each with the gas limit that it came with."""
    chain.rpc("anvil_setBalance", sender, hex(1000 * ETHER))
    chain.rpc("anvil_impersonateAccount", sender)
    for tx in transactions:
        sent = {"from": sender, "to": tx.to, "data": "0x" + tx.data.hex(), "gas": hex(tx.gas)}
        receipt = chain.rpc("eth_sendTransactionSync", sent)
        assert receipt["status"] == "0x1", tx.what
        assert int(receipt["gasUsed"], 16) <= tx.gas


def send_until_done(chain: DevChain, batch: Batch, rounds: int = 12) -> list[Left]:
    """Ask what is left, send it, and ask again until the batch is done. Return what was told each time."""
    told: list[Left] = []
    for _ in range(rounds):
        work()
        if fresh(batch).status == BatchStatus.DONE:
            return told
        told.append(unsigned.left_of(batch))
        send(chain, told[-1].transactions)
    raise AssertionError(f"{batch.status}: {[left.waits for left in told]}")


def get(batch: Batch, address: str = ALICE) -> Any:
    path = f"/batch-queries/{batch.pk}/transactions"
    return Client().get(path, headers=header(a_key(address, f"key {timezone.now()}")))


# --- The whole way ----------------------------------------------------------------------------------------------------


def test_a_stranger_sends_what_the_api_tells_and_the_batch_is_done(service, key):
    block = service.head()
    with nothing_spent(service):
        batch = submit(key, itself(request(BOB, CHARLIE, block=block)))
        assert get(batch).json()["waits"] == ["Waiting for a worker to check it against the chains."]
        work()
        work()
        answer = get(batch).json()
        (tx,) = answer["transactions"]
        assert (answer["chainId"], answer["isComplete"], answer["waits"]) == ("31337", True, [])
        assert (tx["value"], tx["chainId"], tx["queries"]) == ("0x0", "0x7a69", [1, 2])
        assert tx["what"].startswith(f"Accumulates the header of block {block} of chain 31337")
        assert answer["calls"] == {
            "version": "2.0.0",
            "chainId": "0x7a69",
            "atomicRequired": False,
            "calls": [{name: tx[name] for name in ("to", "data", "value")}],
        }
        status = Client().get("/batch-query-status", {"batchQueryId": batch.pk}, headers=header(key)).json()
        (said,) = status["info"]
        assert f"GET /batch-queries/{batch.pk}/transactions" in said
        service.rpc("anvil_setBalance", STRANGER, hex(ETHER))
        service.rpc("anvil_impersonateAccount", STRANGER)
        wallet = {name: tx[name] for name in ("to", "data", "value", "gas")} | {"from": STRANGER}
        assert service.rpc("eth_sendTransactionSync", wallet)["status"] == "0x1"
        assert get(batch).json()["transactions"] == []
        work()
        assert fresh(batch).status == BatchStatus.DONE
        assert (batch.fee, batch.gas_used, batch.spent) == (0, 0, 0)
    assert field_on_chain(service, BOB, block, AccountField.BALANCE) == balance_at(service, BOB, block)
    assert get(batch).json()["isComplete"]


def test_what_rests_on_another_has_a_gas_limit_that_suffices(service, key):
    block = service.head()
    slots = {"props": ["BALANCE", "CODE_HASH"], "slots": [hex(slot * 7919) for slot in range(40)]}
    body = itself(request(*(f"0x{number:040x}" for number in range(1000, 1300)), block=block))
    body["data"]["31337"][f"block:{block}"]["accounts"][registry().address] = slots
    batch = submit(key, body)
    with nothing_spent(service):
        (left,) = send_until_done(service, batch)
    assert left.is_complete
    assert len(left.transactions) == 3
    assert [tx.what.startswith("Accumulates") for tx in left.transactions] == [True, False, False]
    assert len(events(service, HEADER_ACCUMULATED)) == 1


def test_a_wallet_may_make_all_calls_in_one_transaction(service, key):
    head = service.head()
    body = itself(request(ALICE, block=head))
    body["data"]["31337"] |= {
        f"block:{head - 1}": {"header": ["GAS_LIMIT"], "accounts": {BOB: {"props": ["NONCE"]}}},
        f"block:{head - 2}": {"accounts": {BOB: {"slots": ["0x1"]}}},
    }
    batch = submit(key, body)
    work()
    work()
    left = unsigned.left_of(batch)
    assert len(left.transactions) == 3
    to, data = in_one_call(registry().multicall, [(tx.to, tx.data) for tx in left.transactions])
    sent = {"from": BOB, "to": to, "data": "0x" + data.hex(), "gas": hex(sum(tx.gas for tx in left.transactions))}
    assert service.rpc("eth_sendTransactionSync", sent)["status"] == "0x1"
    work()
    assert fresh(batch).status == BatchStatus.DONE


def test_times_come_with_the_accounts_of_their_block(service, key):
    sources.grow(service, 4)
    times = [
        int(service.rpc("eth_getBlockByNumber", hex(service.head() - back), False)["timestamp"], 16) for back in (1, 2)
    ]
    accounts = {"accounts": {ALICE: {"props": ["BALANCE"]}}}
    data = {f"timestamp:{time}": accounts for time in times} | {f"block:{service.head() - 1}": {"header": ["GAS_USED"]}}
    batch = submit(key, itself(asking(data)))
    with nothing_spent(service):
        told = send_until_done(service, batch)
    # The property of the header comes when the time has brought the header, which may be while the worker looks.
    assert [left.is_complete for left in told][-2:] in ([False, True], [True])


# --- Old blocks -------------------------------------------------------------------------------------------------------


def test_a_long_path_is_sent_in_rounds(old, key, monkeypatch):
    monkeypatch.setattr(building, "_MAX_HOPS", 2)
    block = old.head() - 5 * WINDOW + 2
    batch = submit(key, itself(request(CHARLIE, block=block)))
    with nothing_spent(old):
        told = send_until_done(old, batch)
    assert 2 <= len(told) <= 3
    assert [left.is_complete for left in told] == [*[False] * (len(told) - 1), True]
    assert field_on_chain(old, CHARLIE, block, AccountField.BALANCE) == balance_at(old, CHARLIE, block)


def test_a_long_walk_is_sent_in_rounds_each_of_which_goes_on_where_the_last_has_ended(
    without_history, key, monkeypatch
):
    monkeypatch.setattr(building, "_MAX_HEADERS", 8)
    head = without_history.head()
    batch = submit(key, itself(request(CHARLIE, block=head - 2 * WINDOW)))
    with nothing_spent(without_history):
        told = send_until_done(without_history, batch)
    assert 2 <= len(told) <= 4


def test_workers_learn_from_events_how_far_somebody_has_walked(without_history, key, monkeypatch):
    """A path goes on much later, and what has happened since is more than is read for an answer."""
    monkeypatch.setattr(building, "_MAX_HEADERS", 8)
    monkeypatch.setattr(registry_events, "_MOST_UNREAD", 0)
    batch = submit(key, itself(request(CHARLIE, block=without_history.head() - 2 * WINDOW)))
    work()
    work()
    # 20 headers at the most: as many more would be walked anew each time.
    for _ in range(4):
        left = unsigned.left_of(batch)
        send(without_history, left.transactions)
        if left.is_complete:
            return
        without_history.mine(3)
        upkeep.look_after(registry().pk)
    raise AssertionError(left.waits)


def test_blocks_that_a_path_passes_come_with_it_and_need_no_path_of_their_own(old, key):
    first = old.head() - 3 * WINDOW - 5
    body = itself(request(CHARLIE, block=first))
    (accounts,) = body["data"]["31337"].values()
    time = int(old.rpc("eth_getBlockByNumber", hex(first + 3), False)["timestamp"], 16)
    body["data"]["31337"] |= {f"block:{first + 1}": accounts, f"timestamp:{time}": accounts}
    batch = submit(key, body)
    with nothing_spent(old):
        (left,) = send_until_done(old, batch)
    assert left.is_complete
    assert [tx.what.startswith("Leads") for tx in left.transactions].count(True) == 1


def test_what_rests_on_a_path_is_not_listed_without_it(old, key, monkeypatch):
    first = old.head() - 3 * WINDOW - 5
    body = itself(request(CHARLIE, block=first))
    (accounts,) = body["data"]["31337"].values()
    body["data"]["31337"] |= {f"block:{first + 1}": accounts}
    batch = submit(key, body)
    work()
    work()
    assert len(unsigned.left_of(batch).transactions) == 2

    def reverts(*_: object) -> NoReturn:
        raise Reverted(3, "execution reverted", b"")

    monkeypatch.setattr(RpcClient, "estimate_gas", reverts)
    left = unsigned.left_of(batch)
    assert (left.transactions, left.is_complete) == ([], False)


def test_an_old_time_is_proven_behind_its_path(old, key):
    time = int(old.rpc("eth_getBlockByNumber", hex(old.head() - 3 * WINDOW), False)["timestamp"], 16)
    data = {f"timestamp:{time}": {"accounts": {CHARLIE: {"props": ["BALANCE"]}}}}
    batch = submit(key, itself(asking(data)))
    with nothing_spent(old):
        (left,) = send_until_done(old, batch)
    assert len(left.transactions) == 3


def test_recording_a_hash_is_part_of_what_is_sent(chain, settings, tmp_path, key):
    with DevChain(chain_id=sources.THERE) as there:
        sources.grow(there, 30)
        l1 = L1Block(chain)
        sources.connect(settings, tmp_path, chain, there.url)
        block, head = there.head() - 5, get_rpc(sources.THERE).head()
        l1.tell(head.number, head.hash)
        batch = submit(key, itself(sources.of_chains(there=[block])))
        with nothing_spent(chain):
            told = send_until_done(chain, batch)
        assert [left.is_complete for left in told] == [False, True]
        assert told[0].transactions[0].what.startswith("Records a hash")
        assert sources.balance_proven(chain, block) == balance_at(there, CHARLIE, block)
    forget_chains()


def test_signatures_of_attesters_are_part_of_what_is_sent(chain, settings, tmp_path, key):
    with DevChain(chain_id=sources.THERE) as there:
        sources.grow(there, 30)
        block = there.head() - 10
        signed = get_rpc_of(there, block)
        with sources.liar(sources.KEYS[0], signed) as honest:
            sources.connect(settings, tmp_path, chain, there.url, attesters=[honest], threshold=1)
            batch = submit(key, itself(sources.of_chains(there=[block])))
            with nothing_spent(chain):
                (left,) = send_until_done(chain, batch)
            assert left.is_complete
        assert sources.balance_proven(chain, block) == balance_at(there, CHARLIE, block)
    forget_chains()


def get_rpc_of(chain: DevChain, block: int) -> bytes:
    return bytes.fromhex(chain.rpc("eth_getBlockByNumber", hex(block), False)["hash"][2:])


# --- As facts appear --------------------------------------------------------------------------------------------------


def test_what_somebody_else_has_sent_is_not_to_be_sent_again(service, key):
    head = service.head()
    body = itself(request(ALICE, block=head))
    body["data"]["31337"][f"block:{head - 1}"] = {"accounts": {BOB: {"props": ["NONCE"]}}}
    batch = submit(key, body)
    work()
    work()
    first, second = unsigned.left_of(batch).transactions
    send(service, [second], BOB)
    assert [tx.data for tx in unsigned.left_of(batch).transactions] == [first.data]
    work()
    assert sorted(Query.objects.values_list("block__number", "step")) == [
        (head - 1, StepKind.HEADER_ACCUMULATED),
        (head, None),
    ]
    send(service, [first], CHARLIE)
    work()
    assert fresh(batch).status == BatchStatus.DONE


@pytest.mark.django_db(transaction=True)
def test_what_was_sent_is_seen_once_somebody_asks_and_none_is_left(service, key, settings, start_worker):
    """Also where nodes serve no events, which tell of it otherwise."""

    def change(question: Any, reply: Any) -> list[Any]:
        return [error(question, -32601, "no such method") if question["method"] == "eth_getLogs" else reply]

    with between(service.url, change) as url:
        reconfigure(settings, service.url, url)
        batch = submit(key, itself(request(ALICE, block=service.head())))
        work()
        work()
        (tx,) = get(batch).json()["transactions"]
        start_worker()
        sent = {name: tx[name] for name in ("to", "data", "gas")} | {"from": BOB}
        assert service.rpc("eth_sendTransactionSync", sent)["status"] == "0x1"
        assert get(batch).json()["transactions"] == []
        until(lambda: fresh(batch).status == BatchStatus.DONE, "what was sent is seen")


def test_a_fact_that_a_reorg_takes_is_to_be_sent_again(service, key):
    block = service.head()
    service.mine(3)
    batch = submit(key, itself(request(ALICE, block=block)))
    send_until_done(service, batch)
    service.rpc("anvil_reorg", 1, [])
    work()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    assert len(unsigned.left_of(batch).transactions) == 1
    with nothing_spent(service):
        assert len(send_until_done(service, batch)) == 1


@pytest.mark.django_db(transaction=True)
def test_what_nobody_sends_costs_nodes_little_and_is_rejected_at_its_deadline(service, key, settings):
    settings.BATCH_DEADLINE_SECONDS = 3600
    service.mine(40)
    asked: list[str] = []

    def change(question: Any, reply: Any) -> list[Any]:
        asked.append(question["method"])
        return [reply]

    with between(service.url, change) as url:
        reconfigure(settings, service.url, url)
        batch = submit(key, itself(asking(balances(range(1, 41)))))
        for _ in range(4):
            work()
        asked.clear()
        with a_worker():
            until(lambda: asked.count("eth_getLogs") > 3, "events are read")
            # Some for the heads of the chain and its events, none for each block.
            assert len(asked) < 60, asked
            sent = get(batch).json()["transactions"][0]
            # It is seen without asking again.
            service.rpc("eth_sendTransactionSync", {"from": BOB, "to": sent["to"], "data": sent["data"]})
            until(lambda: batch.queries.filter(step=None).exists(), "what was sent is seen")
    reject_overdue(timezone.now() + timedelta(hours=2))
    assert (fresh(batch).status, batch.rejection_code) == (BatchStatus.REJECTED, "deadline_exceeded")
    assert "GET /batch-queries/" in batch.rejection_reason
    assert get(batch).status_code == 409


def test_it_is_done_wherever_the_worker_is_killed(service, key, monkeypatch):
    killer = Killer(monkeypatch)
    for number, exchange in enumerate(exchanges("paid by oneself")):
        service.mine(3)
        batch = submit(key, itself(request(ALICE, block=service.head())))
        with nothing_spent(service):
            # By turns before the node acts, and after it acted.
            killer.arm(exchange, after=number % 2 == 0)
            killed = until_killed_or_sent(service, batch)
            killer.disarm()
            send_until_done(service, batch)
        if not killed:
            break
    assert exchange > 4


def until_killed_or_sent(chain: DevChain, batch: Batch) -> bool:
    """Work, and send what is left. Return whether the worker was killed."""
    try:
        for _ in range(2):
            work()
        send(chain, unsigned.left_of(batch).transactions)
        work()
    except Killed:
        expire_leases()
        return True
    return False


# --- Beside what the operator pays for --------------------------------------------------------------------------------


def test_the_operator_proves_at_a_shared_block_only_what_it_pays_for(service, key):
    block = service.head()
    # The same account, too: for another property, and for the same.
    oneself = submit(a_key(BOB), itself(request(ALICE, BOB, block=block, props=["BALANCE", "CODE_HASH"])))
    paid = submit(key, request(ALICE, block=block))
    work_until_done(paid, service)
    (tx,) = Transaction.objects.exclude(to="")
    assert (
        set(tx.queries.values_list("batch", flat=True)) == {paid.pk} == set(tx.shares.values_list("batch", flat=True))
    )
    (proven,) = events(service, ACCOUNT_PROVEN)
    assert int(proven["topics"][1], 16) == int(ALICE, 16)
    assert fresh(paid).gas_used == tx.gas_used
    with nothing_spent(service):
        for _ in range(3):
            work()
        assert fresh(oneself).status == BatchStatus.IN_PROGRESS
        (left,) = send_until_done(service, oneself)
        assert not left.transactions[0].what.startswith("Accumulates")
    assert oneself.gas_used == 0


def test_a_path_that_the_operator_pays_for_takes_no_rider_who_is_self_funded(old, key):
    first = old.head() - 3 * WINDOW - 5
    riding = submit(a_key(BOB), itself(request(CHARLIE, block=first + 1)))
    for _ in range(3):
        work()
    paid = submit(key, request(CHARLIE, block=first))
    assert work_until_done(paid, old, rounds=20).status == BatchStatus.DONE
    (tx,) = paths.extending()
    assert set(tx.queries.values_list("batch", flat=True)) == {paid.pk}
    assert len(events(old, BLOCK_HASH_PROVEN)) == 3
    with nothing_spent(old):
        send_until_done(old, riding)


def test_a_time_that_is_left_to_others_makes_no_path_longer(old, key):
    """It needs the header after its block; what the operator pays for does not."""
    block = old.head() - 3 * WINDOW
    time = int(old.rpc("eth_getBlockByNumber", hex(block), False)["timestamp"], 16)
    data = {f"timestamp:{time}": {"accounts": {CHARLIE: {"props": ["NONCE"]}}}}
    submit(a_key(BOB), itself(asking(data)))
    work()
    work()
    before = Transaction.objects.count()
    paid = submit(key, request(CHARLIE, block=block))
    assert work_until_done(paid, old, rounds=20).status == BatchStatus.DONE
    assert Transaction.objects.count() == before + 1


def test_a_stuck_transaction_is_not_cancelled_for_who_is_self_funded(costly, key):
    """To cancel takes money, and here nobody waits who would pay."""
    mine_at(costly, 1)
    block = costly.head()
    batch = submit(key, request(ALICE, block=block, fee=ETHER))
    admit(batch.pk)
    Batch.objects.filter(pk=batch.pk).update(fee=302_000 * 3 * 10**9)
    tx = pending(batch)
    oneself = submit(a_key(BOB), itself(request(BOB, block=block)))
    for _ in range(4):
        mine_at(costly, 20)
        age()
        work()
    assert fresh(oneself).status == BatchStatus.IN_PROGRESS
    assert not tx.newest.is_cancellation


def test_it_takes_nothing_of_any_budget_and_needs_no_fee(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 0
    batch = submit(key, itself(request(ALICE, block=costly.head())))
    costly.rpc("evm_setAutomine", True)
    with nothing_spent(costly):
        admit(batch.pk)
        assert fresh(batch).status == BatchStatus.ACCEPTED
        assert (batch.estimated_gas or 0) > 0
        assert reservations.to_user(batch.user_id, [31337]) == reservations.Reservation(0, 0)
        send_until_done(costly, batch)


def test_a_batch_that_is_self_funded_takes_no_turn_from_others_and_cuts_no_pause_short(service, key):
    block = service.head()
    paid = submit(key, request(ALICE, block=block))
    admit(paid.pk)
    later = timezone.now() + timedelta(seconds=30)
    Block.objects.update(due_at=later, attempts=3)
    oneself = submit(a_key(BOB), itself(request(ALICE, block=block)))
    admit(oneself.pk)
    row = Block.objects.get()
    assert (row.turn_of_id, row.due_at) == (paid.user_id, later)
    assert list(turns.asking([row])[0].in_turns) == [paid.user_id]
    # Where nothing is open that is paid for, it is worked on as any other.
    Batch.objects.filter(pk=paid.pk).update(status=BatchStatus.REJECTED)
    another = submit(oneself.api_key, itself(request(BOB, block=block)))
    admit(another.pk)
    row.refresh_from_db()
    assert row.due_at
    assert row.due_at < later
    assert list(turns.asking([row])[0].in_turns) == [oneself.user_id]


def test_nothing_is_ever_shared_with_who_is_self_funded(service, key):
    """The last line of defence: whatever has led to it, such a transaction is not stored."""
    work_until_done(submit(key, request(ALICE, block=service.head())), service)
    tx = Transaction.objects.exclude(to="").get()
    tx.shares.all().delete()
    Batch.objects.update(sender="self")
    with pytest.raises(cost_allocation.NotOurs):
        cost_allocation.portions_of(tx)


def test_of_a_crowd_that_waits_for_others_all_are_looked_at_in_time(service, key, monkeypatch):
    monkeypatch.setattr(observe, "_QUERIES_PER_LOOK", 2)
    block = service.head()
    other = a_key(BOB)
    nobody_sends = [submit(other, itself(request(f"0x{number:040x}", block=block))) for number in range(1, 5)]
    paid = submit(key, request(BOB, block=block))
    oneself = submit(key, itself(request(CHARLIE, block=block)))
    work_until_done(paid, service)
    send(service, unsigned.left_of(oneself).transactions)
    for _ in range(60):
        work()
        if fresh(oneself).status == BatchStatus.DONE:
            break
    assert oneself.status == BatchStatus.DONE
    assert {fresh(batch).status for batch in nobody_sends} == {BatchStatus.IN_PROGRESS}


# --- Without a signer -------------------------------------------------------------------------------------------------


def test_a_service_without_a_signer_proves_what_others_send(service, key, settings):
    text = settings.CHAINS_FILE.read_text()
    before = submit(key, request(ALICE, block=service.head()))
    settings.CHAINS_FILE.write_text(text.replace('[chains.signer]\nkey_file = "signer.key"', ""))
    forget_chains()
    with nothing_spent(service):
        refused = post(key, request(ALICE, block=service.head()))
        assert refused.status_code == 400
        (fault,) = refused.json()["details"]
        assert (fault["path"], fault["code"]) == ("/sender", "unsupported")
        assert '"sender": "self"' in fault["message"]
        work()
        assert (fresh(before).status, before.rejection_code) == (BatchStatus.REJECTED, "no_signer")
        batch = submit(key, itself(request(ALICE, block=service.head())))
        send_until_done(service, batch)
        upkeep.look_after(registry().pk)
        with pytest.raises(DeploymentError, match="has no signer"):
            registry().delete() and deploy(31337, 31337)


def test_what_was_accepted_waits_where_the_signer_is_taken_away(service, key, settings):
    batch = submit(key, request(ALICE, block=service.head()))
    admit(batch.pk)
    text = settings.CHAINS_FILE.read_text()
    settings.CHAINS_FILE.write_text(text.replace('[chains.signer]\nkey_file = "signer.key"', ""))
    forget_chains()
    with nothing_spent(service):
        work()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    assert "has no signer on chain 31337" in waiting()[0]


def post(key, body: dict[str, Any]) -> Any:
    return Client().post("/submit-batch-query", body, content_type="application/json", headers=header(key))


# --- The endpoint -----------------------------------------------------------------------------------------------------


def test_it_only_reads(service, key):
    batch = submit(key, itself(request(ALICE, block=service.head())))
    work()
    work()
    with CaptureQueriesContext(connection) as statements:
        assert len(unsigned.left_of(batch).transactions) == 1
    assert {one["sql"].split()[0] for one in statements} <= {"SELECT", "WITH"}


def test_more_than_one_answer_holds_comes_in_the_next(service, key, monkeypatch):
    monkeypatch.setattr(unsigned, "_MOST", 2)
    service.mine(5)
    body = itself(request(ALICE, block=service.head()))
    (accounts,) = body["data"]["31337"].values()
    body["data"]["31337"] |= {f"block:{service.head() - back}": accounts for back in range(1, 5)}
    told = send_until_done(service, submit(key, body))
    assert [(len(left.transactions), left.is_complete) for left in told] == [(2, False), (2, False), (1, True)]


def test_only_its_user_is_told_and_only_of_what_is_self_funded(service, key):
    paid, oneself = submit(key, request(ALICE, block=3)), submit(key, itself(request(ALICE, block=3)))
    assert get(oneself, BOB).status_code == 404
    assert get(oneself, BOB).json()["error"] == "No query found"
    assert Client().get(f"/batch-queries/{oneself.pk}/transactions").status_code == 401
    answer = get(paid)
    assert (answer.status_code, answer.json()["code"]) == (409, "paid_by_operator")
    unknown = Client().get("/batch-queries/a\0b/transactions", headers=header(key))
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


def test_it_is_503_while_the_chain_can_not_be_asked_or_others_ask(service, key, monkeypatch):
    batch = submit(key, itself(request(ALICE, block=service.head())))
    work()
    work()
    with monkeypatch.context() as patch:
        patch.setattr(rpc_bulkhead, "_most", 0)
        answer = get(batch)
        assert (answer.status_code, answer.json()["code"], "Retry-After" in answer) == (503, "busy", True)
    with monkeypatch.context() as patch:
        patch.setattr(unsigned, "_SECONDS", -1)
        assert (get(batch).status_code, get(batch).json()["code"]) == (503, "chain_unavailable")

    def down(*_: object) -> NoReturn:
        raise NodeUnavailable("No node of Development chain (31337) answers.")

    monkeypatch.setattr(RpcClient, "head", down)
    answer = get(batch)
    assert (answer.status_code, answer.json()["code"], "Retry-After" in answer) == (503, "chain_unavailable", True)
    assert "No node of Development chain (31337) answers." in answer.json()["error"]


def test_a_user_may_ask_so_often(service, key, monkeypatch):
    monkeypatch.setattr("api.transactions._MOST_PER_MINUTE", 2)
    batch = submit(key, itself(request(ALICE, block=service.head())))
    assert [get(batch).status_code for _ in range(3)] == [200, 200, 429]
    assert int(get(batch)["Retry-After"]) > 0


def test_a_registry_that_does_not_take_a_proof_is_told(service, key, monkeypatch):
    batch = submit(key, itself(request(ALICE, block=service.head())))
    work()
    work()
    row = Block.objects.get()
    # A branch of the source chain that is gone by now.
    changed = Header.decode(bytes(row.header_rlp or b"")).fields
    Block.objects.update(header_rlp=rlp.encode([*changed[:12], b"gone", *changed[13:]]))
    monkeypatch.setattr(observe, "_vouches", lambda *_, **__: True)
    left = unsigned.left_of(batch)
    assert (left.transactions, left.is_complete) == ([], False)
    assert left.waits[0].startswith("The registry does not accept a proof at this moment: HeaderMismatch")


# --- The page ---------------------------------------------------------------------------------------------------------


def test_its_page_tells_who_pays_and_lists_what_to_send(service, key):
    batch = submit(key, itself(request(ALICE, block=service.head())))
    work()
    work()
    page = Client().get(f"/explorer/query/{batch.pk}").text
    assert "<dt>Who pays</dt><dd>Its submitter" in page
    assert "It is not proven yet." in page
    assert "It goes on once its transactions are on the chain." in page
    assert "GET /batch-queries" not in page
    path = f"/explorer/query/{batch.pk}/transactions"
    assert f'action="{path}"' in page
    assert Client().get(path).status_code == 302
    listed = Client().post(path).text
    assert "1 transaction to send on Development chain (31337)" in listed
    (tx,) = unsigned.left_of(batch).transactions
    assert f"0x{tx.data.hex()}" in listed
    assert Client().get(f"/explorer/query/{batch.pk}.json").json()["sender"] == "self"
    send_until_done(service, batch)
    assert path not in Client().get(f"/explorer/query/{batch.pk}").text
    assert Client().post(path).status_code == 302


def test_scripts_of_its_page_are_told_what_to_send_and_what_that_costs(service, key, settings):
    settings.MAX_READS_PER_MINUTE = 4
    batch = submit(key, itself(request(ALICE, block=service.head())))
    work()
    work()

    def post() -> Any:
        return Client().post(f"/explorer/query/{batch.pk}/transactions", headers={"accept": "application/json"})

    told = post().json()
    (tx,) = unsigned.left_of(batch).transactions
    assert told["chain"] == {"id": "0x7a69", "name": "Development chain", "currency": "ETH"}
    assert (told["block"], told["isComplete"], told["waits"]) == (service.head(), True, [])
    assert told["transactions"] == [
        {"to": tx.to, "data": f"0x{tx.data.hex()}", "value": "0x0", "gas": hex(tx.gas), "what": tx.what}
    ]
    fees = market_fees(get_rpc(31337))
    assert (told["gas"], told["cost"]) == (tx.gas, amounts.cost(tx.gas * fees.base_and_tip))
    send_until_done(service, batch)
    told = post().json()
    assert (told["block"], told["isComplete"], told["transactions"], told["cost"]) == (None, True, [], "0")
    Batch.objects.update(status=BatchStatus.REJECTED, rejection_reason="It took too long.")
    assert (post().status_code, post().json()["code"]) == (409, "already_finished")
    Batch.objects.update(status=BatchStatus.IN_PROGRESS, sender=Sender.OPERATOR)
    assert (post().status_code, post().json()["code"]) == (409, "paid_by_operator")
    Batch.objects.update(sender=Sender.SELF)
    post()
    post()
    assert (post().status_code, post().json()["code"]) == (429, "too_many_requests")
