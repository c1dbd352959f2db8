"""Self-funded batches are prepared here and sent by others. They cost the operator nothing."""

from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client
from eth_utils.crypto import keccak

from chains.contract_artifacts import DEPLOYER
from devnet.devchain import DevChain
from proving.models import Transaction
from queries.models import Batch, BatchStatus, Query, Sender, StepKind
from tests.chains.lying_node import error, estimating
from tests.contracts import deployed, l1_block
from tests.deployed import deploy
from tests.explorer.batches import read_files
from tests.factories import client_of, until
from tests.proving import chain_state, money, paths, self_funded, sources, transactions
from tests.proving.prices import ETHER, mine_at
from tests.proving.proxy import Proxy
from tests.service import (
    asking,
    balances,
    changed_replies,
    done,
    expire,
    expire_leases,
    fresh,
    reconfigure,
    recorded_methods,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)
from tests.users import ALICE, BOB, CHARLIE, a_key, header

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

BLOCK_HASH_PROVEN = "0x" + keccak(text="BlockHashProven(bytes32)").hex()


def send_until_done(chain: DevChain, batch: Batch, rounds: int = 12) -> list[dict[str, Any]]:
    """Request transactions and send them until the batch is DONE. Return the answers."""
    told: list[dict[str, Any]] = []
    for _ in range(rounds):
        work()
        if fresh(batch).status == BatchStatus.DONE:
            return told
        told.append(self_funded.left_of(batch))
        self_funded.send(chain, told[-1]["transactions"])
    raise AssertionError(f"{batch.status}: {[answer['waits'] for answer in told]}")


# --- The whole way ----------------------------------------------------------------------------------------------------


@pytest.mark.story
def test_a_stranger_sends_what_the_api_tells_and_the_batch_is_done(service, key):
    block = service.head()
    with self_funded.nothing_spent(service):
        batch = submit(key, self_funded.itself(request(BOB, CHARLIE, block=block)))
        assert self_funded.get(batch).json()["waits"] == ["Waiting for a worker to check it against the chains."]
        work(2)
        answer = self_funded.get(batch).json()
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
        (sentence,) = status["info"]
        assert f"GET /batch-queries/{batch.pk}/transactions" in sentence
        service.rpc("anvil_setBalance", self_funded.STRANGER, hex(ETHER))
        service.rpc("anvil_impersonateAccount", self_funded.STRANGER)
        wallet = {name: tx[name] for name in ("to", "data", "value", "gas")} | {"from": self_funded.STRANGER}
        assert service.rpc("eth_sendTransactionSync", wallet)["status"] == "0x1"
        assert self_funded.get(batch).json()["transactions"] == []
        work()
        assert fresh(batch).status == BatchStatus.DONE
        assert (batch.fee, batch.gas_used, batch.spent) == (0, 0, 0)
    assert chain_state.field_on_chain(service, BOB, block, chain_state.AccountField.BALANCE) == chain_state.balance_at(
        service, BOB, block
    )
    assert self_funded.get(batch).json()["isComplete"]


@pytest.mark.long
def test_transactions_that_rest_on_another_have_a_gas_limit_that_suffices(service, key):
    block = service.head()
    slots = {"props": ["BALANCE", "CODE_HASH"], "slots": [hex(slot * 7919) for slot in range(40)]}
    body = self_funded.itself(request(*(f"0x{number:040x}" for number in range(1000, 1300)), block=block))
    body["data"]["31337"][f"block:{block}"]["accounts"][chain_state.registry().address] = slots
    batch = submit(key, body)
    with self_funded.nothing_spent(service):
        (answer,) = send_until_done(service, batch)
    assert answer["isComplete"]
    assert len(answer["transactions"]) == 3
    assert [tx["what"].startswith("Accumulates") for tx in answer["transactions"]] == [True, False, False]
    assert len(chain_state.events(service, chain_state.HEADER_ACCUMULATED)) == 1


@pytest.mark.parametrize("false", [lambda _: 30_000, lambda gas: gas * 10], ids=["30,000", "tenfold"])
def test_a_false_estimate_gives_nobody_too_little_or_too_much_gas(service, key, settings, false):
    batch = submit(key, self_funded.itself(request(ALICE, block=service.head())))
    with estimating(service.url, false) as url:
        reconfigure(settings, service.url, url)
        work()
        (tx,) = self_funded.left_of(batch)["transactions"]
    assert int(tx["gas"], 16) < 300_000
    self_funded.send(service, [tx])


@pytest.mark.long
def test_a_wallet_may_make_all_calls_in_one_transaction(service, key):
    head = service.head()
    body = self_funded.itself(request(ALICE, block=head))
    body["data"]["31337"] |= {
        f"block:{head - 1}": {"header": ["GAS_LIMIT"], "accounts": {BOB: {"props": ["NONCE"]}}},
        f"block:{head - 2}": {"accounts": {BOB: {"slots": ["0x1"]}}},
    }
    batch = submit(key, body)
    work(2)
    answer = self_funded.left_of(batch)
    assert len(answer["transactions"]) == 3
    multicall = deployed.Deployed(service, "Multicall", address=chain_state.registry().multicall)
    calls = [(tx["to"], bytes.fromhex(tx["data"][2:])) for tx in answer["transactions"]]
    gas = sum(int(tx["gas"], 16) for tx in answer["transactions"])
    data = "0x" + multicall.calldata("run", calls).hex()
    sent = {"from": BOB, "to": multicall.address, "data": data, "gas": hex(gas)}
    assert service.rpc("eth_sendTransactionSync", sent)["status"] == "0x1"
    work()
    assert fresh(batch).status == BatchStatus.DONE


@pytest.mark.long
def test_times_come_with_the_accounts_of_their_block(service, key):
    sources.grow(service, 4)
    times = [
        int(service.rpc("eth_getBlockByNumber", hex(service.head() - back), False)["timestamp"], 16) for back in (1, 2)
    ]
    accounts = {"accounts": {ALICE: {"props": ["BALANCE"]}}}
    data = {f"timestamp:{time}": accounts for time in times} | {f"block:{service.head() - 1}": {"header": ["GAS_USED"]}}
    batch = submit(key, self_funded.itself(asking(data)))
    with self_funded.nothing_spent(service):
        told = send_until_done(service, batch)
    # The header's property is proven after the time, which stores the header. A worker may notice both at once.
    assert [answer["isComplete"] for answer in told][-2:] in ([False, True], [True])


# --- Old blocks -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_long_path_is_sent_in_rounds(old, key, settings):
    reconfigure(settings, f"window = {paths.WINDOW}", "window = 1")
    block = old.head() - 50
    batch = submit(key, self_funded.itself(request(CHARLIE, block=block)))
    with self_funded.nothing_spent(old):
        told = send_until_done(old, batch)
    assert 2 <= len(told) <= 3
    assert [answer["isComplete"] for answer in told] == [*[False] * (len(told) - 1), True]
    assert chain_state.field_on_chain(old, CHARLIE, block, chain_state.AccountField.BALANCE) == chain_state.balance_at(
        old, CHARLIE, block
    )


@pytest.mark.long
def test_blocks_that_a_path_passes_come_with_it_and_need_no_path_of_their_own(old, key):
    first = old.head() - 3 * paths.WINDOW - 5
    body = self_funded.itself(request(CHARLIE, block=first))
    (accounts,) = body["data"]["31337"].values()
    time = int(old.rpc("eth_getBlockByNumber", hex(first + 3), False)["timestamp"], 16)
    body["data"]["31337"] |= {f"block:{first + 1}": accounts, f"timestamp:{time}": accounts}
    batch = submit(key, body)
    with self_funded.nothing_spent(old):
        (answer,) = send_until_done(old, batch)
    assert answer["isComplete"]
    assert [tx["what"].startswith("Leads") for tx in answer["transactions"]].count(True) == 1


@pytest.mark.long
def test_transactions_that_rest_on_a_path_are_not_listed_without_it(old, key, settings):
    first = old.head() - 3 * paths.WINDOW - 5
    body = self_funded.itself(request(CHARLIE, block=first))
    (accounts,) = body["data"]["31337"].values()
    body["data"]["31337"] |= {f"block:{first + 1}": accounts}
    batch = submit(key, body)
    work(2)
    assert len(self_funded.left_of(batch)["transactions"]) == 2

    def change(question: Any, reply: Any) -> list[Any]:
        reverts = question["method"] == "eth_estimateGas"
        return [error(question, 3, "execution reverted", "0x") if reverts else reply]

    with changed_replies(settings, old, change):
        answer = self_funded.left_of(batch)
    assert (answer["transactions"], answer["isComplete"]) == ([], False)


@pytest.mark.long
def test_recording_a_hash_is_part_of_what_is_sent(chain, settings, tmp_path, key):
    with DevChain(chain_id=sources.THERE) as there:
        sources.grow(there, 30)
        l1 = l1_block.L1Block(chain)
        sources.connect(settings, tmp_path, chain, there.url)
        block = there.head() - 5
        l1.tell_of(there)
        batch = submit(key, self_funded.itself(sources.of_chains(there=[block])))
        with self_funded.nothing_spent(chain):
            told = send_until_done(chain, batch)
        assert [answer["isComplete"] for answer in told] == [False, True]
        assert told[0]["transactions"][0]["what"].startswith("Records a hash")
        assert sources.balance_proven(chain, block) == chain_state.balance_at(there, CHARLIE, block)


@pytest.mark.long
def test_signatures_of_attesters_are_part_of_what_is_sent(chain, settings, tmp_path, key):
    with DevChain(chain_id=sources.THERE) as there:
        sources.grow(there, 30)
        block = there.head() - 10
        signed = bytes.fromhex(there.rpc("eth_getBlockByNumber", hex(block), False)["hash"][2:])
        with sources.liar(sources.KEYS[0], signed) as honest:
            sources.connect(settings, tmp_path, chain, there.url, attesters=[honest], threshold=1)
            batch = submit(key, self_funded.itself(sources.of_chains(there=[block])))
            with self_funded.nothing_spent(chain):
                (answer,) = send_until_done(chain, batch)
            assert answer["isComplete"]
        assert sources.balance_proven(chain, block) == chain_state.balance_at(there, CHARLIE, block)


# --- Facts that others send -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_transaction_that_somebody_else_has_sent_is_not_listed_again(service, key):
    head = service.head()
    body = self_funded.itself(request(ALICE, block=head))
    body["data"]["31337"][f"block:{head - 1}"] = {"accounts": {BOB: {"props": ["NONCE"]}}}
    batch = submit(key, body)
    work(2)
    first, second = self_funded.left_of(batch)["transactions"]
    self_funded.send(service, [second], BOB)
    assert [tx["data"] for tx in self_funded.left_of(batch)["transactions"]] == [first["data"]]
    work()
    assert sorted(Query.objects.values_list("block__number", "step")) == [
        (head - 1, StepKind.HEADER_ACCUMULATED),
        (head, None),
    ]
    self_funded.send(service, [first], CHARLIE)
    work()
    assert fresh(batch).status == BatchStatus.DONE


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_a_sent_transaction_is_seen_once_somebody_asks_and_none_is_left(service, key, settings, start_worker):
    """The nodes serve no events, by which the service would notice the transaction."""

    def change(question: Any, reply: Any) -> list[Any]:
        return [error(question, -32601, "no such method") if question["method"] == "eth_getLogs" else reply]

    with changed_replies(settings, service, change):
        batch = submit(key, self_funded.itself(request(ALICE, block=service.head())))
        work(2)
        (tx,) = self_funded.get(batch).json()["transactions"]
        start_worker()
        sent = {name: tx[name] for name in ("to", "data", "gas")} | {"from": BOB}
        assert service.rpc("eth_sendTransactionSync", sent)["status"] == "0x1"
        assert self_funded.get(batch).json()["transactions"] == []
        until(lambda: fresh(batch).status == BatchStatus.DONE, "what was sent is seen")


@pytest.mark.long
def test_a_fact_that_a_reorg_takes_is_to_be_sent_again(service, key):
    block = service.head()
    service.mine(3)
    batch = submit(key, self_funded.itself(request(ALICE, block=block)))
    send_until_done(service, batch)
    service.rpc("anvil_reorg", 1, [])
    work()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    assert len(self_funded.left_of(batch)["transactions"]) == 1
    with self_funded.nothing_spent(service):
        assert len(send_until_done(service, batch)) == 1


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
def test_an_unsent_self_funded_batch_costs_nodes_little_and_is_rejected_at_its_deadline(
    service, key, settings, start_worker
):
    settings.BATCH_DEADLINE_SECONDS = 3600
    service.mine(40)
    with recorded_methods(settings, service) as methods:
        batch = submit(key, self_funded.itself(asking(balances(range(1, 41)))))
        work(4)
        methods.clear()
        worker = start_worker()
        until(lambda: methods.count("eth_getLogs") > 3, "events are read")
        # Requests are for the chain's head and events, and not for each block.
        assert len(methods) < 60, methods
        self_funded.send(service, self_funded.left_of(batch)["transactions"][:1])
        # The worker notices the fact by events, without another request for transactions.
        until(lambda: batch.queries.filter(step=None).exists(), "what was sent is seen")
        worker.kill()
        worker.wait()
    expire_leases()
    expire()
    work()
    assert (fresh(batch).status, batch.rejection_code) == (BatchStatus.REJECTED, "deadline_exceeded")
    assert "GET /batch-queries/" in batch.rejection_reason
    assert self_funded.get(batch).status_code == 409


@pytest.mark.release
def test_a_self_funded_batch_is_done_wherever_the_worker_is_killed(service, key, killing):
    for number, exchange in enumerate(killing.exchanges()):
        service.mine(3)
        batch = submit(key, self_funded.itself(request(ALICE, block=service.head())))
        with self_funded.nothing_spent(service):
            # The kill is before the node acts in every other round, and after it in the rest.
            with killing.at(exchange, after=number % 2 == 0):
                work(2)
                self_funded.send(service, self_funded.left_of(batch)["transactions"])
                work()
            send_until_done(service, batch)
    assert exchange > 4


# --- Batches of the operator at the same blocks -----------------------------------------------------------------------


@pytest.mark.long
def test_the_operator_proves_at_a_shared_block_only_what_it_pays_for(service, key):
    block = service.head()
    # The self-funded batch needs the same account with the same property and another one.
    oneself = submit(a_key(BOB), self_funded.itself(request(ALICE, BOB, block=block, props=["BALANCE", "CODE_HASH"])))
    paid = submit(key, request(ALICE, block=block))
    work_until_done(paid, service)
    (tx,) = Transaction.objects.exclude(to=DEPLOYER)
    assert (
        set(tx.queries.values_list("batch", flat=True)) == {paid.pk} == set(tx.shares.values_list("batch", flat=True))
    )
    (proven,) = chain_state.events(service, chain_state.ACCOUNT_PROVEN)
    assert int(proven["topics"][1], 16) == int(ALICE, 16)
    assert fresh(paid).gas_used == tx.gas_used
    with self_funded.nothing_spent(service):
        work(3)
        assert fresh(oneself).status == BatchStatus.IN_PROGRESS
        (answer,) = send_until_done(service, oneself)
        assert not answer["transactions"][0]["what"].startswith("Accumulates")
    assert oneself.gas_used == 0


@pytest.mark.long
def test_a_path_that_the_operator_pays_for_takes_no_rider_who_is_self_funded(old, key):
    first = old.head() - 3 * paths.WINDOW - 5
    riding = submit(a_key(BOB), self_funded.itself(request(CHARLIE, block=first + 1)))
    work(3)
    paid = done(submit(key, request(CHARLIE, block=first)), old, rounds=20)
    (tx,) = paths.extending()
    assert set(tx.queries.values_list("batch", flat=True)) == {paid.pk}
    assert len(chain_state.events(old, BLOCK_HASH_PROVEN)) == 3
    with self_funded.nothing_spent(old):
        send_until_done(old, riding)


@pytest.mark.long
def test_a_time_that_is_left_to_others_makes_no_path_longer(old, key):
    """The self-funded batch's time needs the next header, but the operator's batch doesn't."""
    block = old.head() - 3 * paths.WINDOW
    time = int(old.rpc("eth_getBlockByNumber", hex(block), False)["timestamp"], 16)
    data = {f"timestamp:{time}": {"accounts": {CHARLIE: {"props": ["NONCE"]}}}}
    submit(a_key(BOB), self_funded.itself(asking(data)))
    work(2)
    before = Transaction.objects.count()
    done(submit(key, request(CHARLIE, block=block)), old, rounds=20)
    assert Transaction.objects.count() == before + 1


@pytest.mark.long
def test_a_stuck_transaction_is_not_cancelled_for_who_is_self_funded(costly, key):
    """A cancellation costs money, and no batch that the operator pays for is waiting."""
    mine_at(costly, 1)
    block = costly.head()
    batch = money.accepted(key, request(ALICE, block=block, fee=ETHER), fee=302_000 * 3 * 10**9)
    tx = money.pending(batch)
    oneself = submit(a_key(BOB), self_funded.itself(request(BOB, block=block)))
    for _ in range(4):
        mine_at(costly, 20)
        transactions.work_aged()
    assert fresh(oneself).status == BatchStatus.IN_PROGRESS
    assert not tx.newest.is_cancellation


def test_a_self_funded_batch_takes_nothing_of_any_budget_and_needs_no_fee(costly, key, settings):
    money.limit(settings, daily_limit=0, daily_limit_per_user=0)
    batch = submit(key, self_funded.itself(request(ALICE, block=costly.head())))
    costly.rpc("evm_setAutomine", True)
    with self_funded.nothing_spent(costly):
        send_until_done(costly, batch)
    assert (batch.estimated_gas or 0) > 0


# --- Without a signer -------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_service_without_a_signer_proves_what_others_send(service, key, settings):
    before = submit(key, request(ALICE, block=service.head()))
    reconfigure(settings, '[chains.signer]\nkey_file = "signer.key"', "")
    with self_funded.nothing_spent(service):
        refused = post(key, request(ALICE, block=service.head()))
        assert refused.status_code == 400
        (fault,) = refused.json()["details"]
        assert (fault["path"], fault["code"]) == ("/sender", "unsupported")
        assert '"sender": "self"' in fault["message"]
        work()
        assert (fresh(before).status, before.rejection_code) == (BatchStatus.REJECTED, "no_signer")
        batch = submit(key, self_funded.itself(request(ALICE, block=service.head())))
        send_until_done(service, batch)
        reconfigure(settings, "id = 31337\n", "id = 31337\nhistory_window = 9000\n")
        with pytest.raises(CommandError, match="has no signer"):
            deploy(31337, 31337, "--replace")


def test_an_accepted_batch_waits_if_the_signer_is_taken_away(service, key, settings):
    batch = money.accepted(key, request(ALICE, block=service.head()))
    reconfigure(settings, '[chains.signer]\nkey_file = "signer.key"', "")
    with self_funded.nothing_spent(service):
        work()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    assert "has no signer on chain 31337" in waiting()[0]


def post(key, body: dict[str, Any]) -> Any:
    return Client().post("/submit-batch-query", body, content_type="application/json", headers=header(key))


# --- The endpoint -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_more_than_one_answer_holds_comes_in_the_next(service, key):
    service.mine(18)
    told = send_until_done(service, submit(key, self_funded.itself(asking(balances(range(3, 21))))))
    assert [(len(answer["transactions"]), answer["isComplete"]) for answer in told] == [(16, False), (2, True)]


def test_only_its_user_is_told_and_only_of_what_is_self_funded(service, key):
    paid, oneself = submit(key, request(ALICE, block=3)), submit(key, self_funded.itself(request(ALICE, block=3)))
    other = a_key(BOB)
    assert self_funded.get(oneself, other).status_code == 404
    assert self_funded.get(oneself, other).json()["error"] == "No query found"
    assert Client().get(f"/batch-queries/{oneself.pk}/transactions").status_code == 401
    answer = self_funded.get(paid)
    assert (answer.status_code, answer.json()["code"]) == (409, "paid_by_operator")
    unknown = Client().get("/batch-queries/a\0b/transactions", headers=header(key))
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


def test_the_list_of_transactions_is_503_while_the_chain_cannot_be_asked(service, key, settings):
    with Proxy(service.url) as proxy:
        reconfigure(settings, service.url, proxy.url)
        batch = submit(key, self_funded.itself(request(ALICE, block=service.head())))
        work(2)
        proxy.down()
        answer = self_funded.get(batch)
        proxy.up()
    assert (answer.status_code, answer.json()["code"], "Retry-After" in answer) == (503, "chain_unavailable", True)
    assert "No node of Development chain (31337) can be used" in answer.json()["error"]


def test_a_user_may_ask_so_often(service, key):
    batch = submit(key, self_funded.itself(request(ALICE, block=service.head())))
    assert {self_funded.get(batch).status_code for _ in range(60)} == {200}
    assert self_funded.get(batch).status_code == 429
    assert int(self_funded.get(batch)["Retry-After"]) > 0


# --- The page ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_its_page_tells_who_pays_and_lists_what_to_send(service, key):
    batch = submit(key, self_funded.itself(request(ALICE, block=service.head())))
    work(2)
    page = Client().get(f"/explorer/query/{batch.pk}").text
    assert "<dt>Who pays</dt><dd>Its submitter" in page
    assert "Waiting for its submitter to send" in page
    assert "Waiting for you to send" in client_of(ALICE).get(f"/explorer/query/{batch.pk}").text
    assert "GET /batch-queries" not in page
    path = f"/explorer/query/{batch.pk}/transactions"
    assert f'action="{path}"' in page
    assert Client().get(path).status_code == 302
    listed = Client().post(path).text
    assert "1 transaction to send on Development chain (31337)" in " ".join(listed.split())
    (tx,) = self_funded.left_of(batch)["transactions"]
    assert tx["data"] in listed
    send_until_done(service, batch)
    assert path not in Client().get(f"/explorer/query/{batch.pk}").text
    assert Client().post(path).status_code == 302


@pytest.mark.long
def test_scripts_of_its_page_are_told_what_to_send_and_what_that_costs(service, key):
    batch = submit(key, self_funded.itself(request(ALICE, block=service.head())))
    work(2)

    def post() -> Any:
        return Client().post(f"/explorer/query/{batch.pk}/transactions", headers={"accept": "application/json"})

    told = post().json()
    (tx,) = self_funded.left_of(batch)["transactions"]
    assert told["chain"] == {"id": "0x7a69", "name": "Development chain", "currency": "ETH"}
    assert (told["block"], told["isComplete"], told["waits"]) == (service.head(), True, [])
    assert told["transactions"] == [{name: tx[name] for name in ("to", "data", "value", "gas", "what")}]
    assert told["gas"] == int(tx["gas"], 16)
    assert float(told["cost"]) * ETHER == pytest.approx(told["gas"] * int(service.rpc("eth_gasPrice"), 16), rel=0.1)
    send_until_done(service, batch)
    told = post().json()
    assert (told["block"], told["isComplete"], told["transactions"], told["cost"]) == (None, True, [], "0")
    Batch.objects.update(status=BatchStatus.REJECTED, rejection_reason="It took too long.")
    assert (post().status_code, post().json()["code"]) == (409, "already_finished")
    Batch.objects.update(status=BatchStatus.IN_PROGRESS, sender=Sender.OPERATOR)
    assert (post().status_code, post().json()["code"]) == (409, "paid_by_operator")
    Batch.objects.update(sender=Sender.SELF)
    read_files()
    assert (post().status_code, post().json()["code"]) == (429, "too_many_requests")
