"""Replacements and cancellations: their prices, and their effects on later transactions of the signer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from eth_account import Account

from accounts.models import ApiKey
from devnet.devchain import ACCOUNTS, DevChain
from proving.models import Share, Transaction
from queries.models import Batch, BatchStatus
from tests.chains.lying_node import ask, error, estimating, lying_node, recording, result
from tests.proving.money import cancel, in_mempool, limit, paying_up_to, pending, set_fee
from tests.proving.prices import ACCOUNT_GAS, ETHER, GWEI, go_on, mine_at
from tests.proving.transactions import age, work_aged
from tests.service import changed_replies, fresh, reconfigure, request, submit, waiting, work, work_until_done
from tests.users import ALICE, BOB, CHARLIE, SIGNER, a_key

pytestmark = pytest.mark.outside

# --- Offers of a replacement ------------------------------------------------------------------------------------------


@pytest.mark.story
def test_a_replacement_takes_no_more_than_what_the_fee_leaves(costly, key):
    mine_at(costly, 1)
    batch = submit(key, request(ALICE, block=costly.head(), fee=ACCOUNT_GAS * 4 * GWEI))
    tx = pending(batch)
    costly.rpc("anvil_dropAllTransactions")
    # A replacement at twice the price would be below the cap, but above the batch's fee.
    set_fee(batch, tx.cost + tx.gas_limit)
    mine_at(costly, 5)
    work_aged()
    assert tx.versions.count() == 1
    # The share of the replaced transaction doesn't count.
    set_fee(batch, tx.cost * 3 // 2)
    work_aged()
    assert tx.versions.count() == 2
    assert Share.objects.get(transaction=tx).wei == tx.newest.max_fee_per_gas * tx.gas_limit


@pytest.mark.long
def test_the_first_offer_leaves_room_for_a_replacement_below_the_cap(costly, key, settings):
    mine_at(costly, 10)
    reconfigure(settings, "test_network = false", "test_network = false\nmax_fee_per_gas_gwei = 15")
    _, tx = in_mempool(costly, key)
    costly.rpc("anvil_dropAllTransactions")
    work_aged()
    first, second = tx.versions.order_by("pk")
    assert first.max_fee_per_gas < second.max_fee_per_gas <= 15 * GWEI


# --- A transaction that can't be mined at its fee ---------------------------------------------------------------------


BEHIND = {
    "another block": (BOB, 1, 20),
    "another block, at a price far above": (BOB, 1, 90),
    "the same account of the same block": (ALICE, 0, 20),
    "another account of the same block": (BOB, 0, 20),
}


@pytest.mark.long
@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND)
def test_a_transaction_priced_out_is_cancelled_for_those_who_wait_behind_it(costly, key, behind):
    """In the last two cases, the other batch waits for the same block's header, so it has no transaction in the mempool
    yet.
    """
    account, before, gwei = behind
    mine_at(costly, 1)
    block = costly.head()
    poor, tx = paying_up_to(3, key, ALICE, block=block)
    mine_at(costly, gwei)
    rich = submit(a_key(BOB), request(account, block=block - before, fee=ETHER))
    go_on(costly, gwei, rounds=8, aged=True)
    assert fresh(rich).status == BatchStatus.DONE, waiting()
    assert tx.newest.is_cancellation
    # Even with a cancellation, a batch costs at most its fee.
    assert fresh(poor).spent <= poor.fee
    if before:
        assert poor.status == BatchStatus.IN_PROGRESS
        assert any(sentence.startswith("The batch's fee leaves") for sentence in waiting())


@pytest.mark.long
def test_a_transaction_priced_out_is_cancelled_though_its_fee_exceeds_its_offer_a_little(costly, key):
    """The market price is 5 % above the price offered. The fee allows 10 % more, but a replacement needs 13 %."""
    mine_at(costly, 25)
    block = costly.head()
    poor, tx = paying_up_to(60, key, ALICE, block=block)
    offered = tx.newest.max_fee_per_gas
    set_fee(poor, tx.gas_limit * offered * 110 // 100)
    price = offered * 105 / 100 / GWEI - 1  # minus the tip of 1 gwei
    mine_at(costly, price)
    rich = submit(a_key(BOB), request(BOB, block=block - 1, fee=ETHER))
    go_on(costly, price, rounds=8, aged=True)
    assert fresh(rich).status == BatchStatus.DONE, waiting()


@pytest.mark.long
def test_a_false_balance_of_the_signer_cancels_nothing(costly, key, settings):
    mine_at(costly, 1)
    block = costly.head()
    _, first = paying_up_to(3, key, ALICE, block=block)
    pending(submit(a_key(BOB), request(BOB, block=block - 1, fee=ETHER)))

    def change(question: Any, reply: Any) -> list[Any]:
        return [reply | {"result": "0x1"} if question["method"] == "eth_getBalance" else reply]

    with changed_replies(settings, costly, change):
        go_on(costly, 20, rounds=4, aged=True)
    assert not first.newest.is_cancellation


@pytest.mark.long
def test_a_nonce_is_cancelled_on_a_chain_that_takes_gas_for_data(costly, key, settings):
    """Arbitrum's nodes refuse a transaction whose gas doesn't cover its share of L1's cost."""
    takes = [25_000]

    def answer(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_sendRawTransaction" and len(body["params"][0]) < 2 * 200:
            return error(body, -32000, "intrinsic gas too low")
        if isinstance(body, dict) and body["method"] == "eth_estimateGas" and len(str(body["params"][0])) < 300:
            return result(body, hex(takes[-1]))
        return ask(costly.url, body)

    with lying_node(answer) as url:
        reconfigure(settings, costly.url, url)
        batch, tx = in_mempool(costly, key)
        costly.rpc("anvil_dropAllTransactions")
        cancel(batch)
        work()
        assert tx.newest.is_cancellation
        assert tx.newest.gas >= 25_000
        # A chain whose nodes refuse less takes it, however much it is.
        for gas in (60_000, 600_000):
            takes.append(gas)
            work_aged()
            assert tx.newest.gas >= gas


@pytest.mark.long
@pytest.mark.parametrize("times", [10, 0])
def test_a_cancellation_takes_its_own_gas_whatever_a_node_estimates(costly, key, settings, times):
    with estimating(costly.url, lambda gas: times * gas) as url:
        batch, tx = in_mempool(costly, key)
        cancel(batch)
        reconfigure(settings, costly.url, url)
        work()
        costly.mine()
        work()
    assert (fresh(tx).newest.is_cancellation, tx.newest.gas, tx.gas_used) == (True, 21_000, 21_000)


@pytest.mark.long
def test_a_cancellation_uses_up_a_fee_of_auto_too(costly, key):
    mine_at(costly, 1)
    poor, _ = paying_up_to(3, key, ALICE, block=costly.head())
    Batch.objects.filter(pk=poor.pk).update(fee_is_estimate=True)
    mine_at(costly, 90)
    submit(a_key(BOB), request(BOB, block=costly.head() - 2, fee=ETHER))
    go_on(costly, 90, rounds=8, aged=True)
    costly.mine(5)
    go_on(costly, 1, rounds=6)
    assert fresh(poor).spent == poor.fee
    assert poor.status == BatchStatus.IN_PROGRESS


@pytest.mark.long
def test_a_transaction_priced_out_waits_for_the_price_to_fall_if_none_waits_behind_it(costly, key):
    mine_at(costly, 1)
    batch, tx = paying_up_to(3, key, ALICE, block=costly.head())
    for _ in range(3):
        mine_at(costly, 20)
        work_aged()
    assert not tx.newest.is_cancellation
    mine_at(costly, 1)
    costly.mine()
    age()
    assert work_until_done(batch, costly).status == BatchStatus.DONE


@pytest.mark.long
def test_no_batch_is_ruined_by_one_that_waits_for_a_later_block(costly, key):
    """No transaction waits behind it, and a cancellation would use up the batch's fee."""
    mine_at(costly, 1)
    batch, _ = paying_up_to(3, key, ALICE, block=costly.head())
    submit(a_key(BOB), request(BOB, block=costly.head() + 60, fee=ETHER))
    for _ in range(3):
        mine_at(costly, 50)
        work_aged()
    go_on(costly, 1, rounds=8, aged=True)
    assert fresh(batch).status == BatchStatus.DONE


@pytest.mark.long
def test_two_that_lack_the_same_daily_limit_are_not_cancelled_for_each_other(costly, key, settings):
    mine_at(costly, 1)
    block = costly.head()
    submit(key, request(ALICE, block=block, fee=ETHER))
    submit(a_key(BOB), request(BOB, block=block, fee=ETHER))
    work(2)
    tx = Transaction.objects.get()
    limit(settings, daily_limit=tx.cost * 5 // 4, daily_limit_per_user=ETHER)
    costly.rpc("anvil_dropAllTransactions")
    for _ in range(3):
        mine_at(costly, 20)
        work_aged()
    assert not tx.newest.is_cancellation


# --- Transactions simulated upon others -------------------------------------------------------------------------------


def two_of_the_same_accounts(chain: DevChain, key: ApiKey) -> list[Callable[[], Batch]]:
    """Return two functions that submit batches about the same accounts. The block is known, so both write the same
    storage.
    """
    addresses = [f"0x{(number + 1) * 7919:040x}" for number in range(10)]
    for address in addresses:
        chain.rpc("anvil_setBalance", address, hex(ETHER))
    chain.mine()
    block = chain.head()
    chain.mine()
    work_until_done(submit(a_key(CHARLIE), request(SIGNER, block=block, fee=ETHER)), chain)
    mine_at(chain, 1)
    return [
        partial(submit, api_key, request(*addresses, block=block, props=[name], fee=ETHER))
        for api_key, name in ((key, "BALANCE"), (a_key(BOB), "NONCE"))
    ]


def many(body: Any) -> list[Any]:
    return body if isinstance(body, list) else [body]


def for_their_fee(batch: Batch) -> None:
    set_fee(batch, 1)


@pytest.mark.long
@pytest.mark.parametrize("give_up", [cancel, for_their_fee])
def test_a_cancelled_transaction_makes_none_fail_that_was_sent_behind_it(costly, key, settings, give_up):
    """The second transaction was simulated after the first. If the first is cancelled, the second must pay for more
    storage. No other node is asked, because the estimate upon the first is low for a good reason.
    """
    asked: list[Any] = []
    submit_both = two_of_the_same_accounts(costly, key)
    with lying_node(recording(asked, partial(ask, costly.url))) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{costly.url}", "{url}"')
        first, second = (pending(batch()) for batch in submit_both)
        reconfigure(settings, f', "{url}"', "")
    assert not any(question["method"] == "eth_estimateGas" for body in asked for question in many(body))
    give_up(first.queries.all()[0].batch)
    mine_at(costly, 20)
    for _ in range(4):
        work_aged()
        mine_at(costly, 1 if first.newest.is_cancellation else 20)
    for tx in (first, second):
        tx.refresh_from_db()
    assert (first.newest.is_cancellation, first.succeeded, second.succeeded) == (True, False, True)


@pytest.mark.long
def test_a_strangers_replaced_pending_transaction_makes_none_fail(costly, key):
    """A stranger's pending transaction proves the same facts. The service simulates upon it, and the stranger then
    replaces it.
    """
    submit_first, submit_second = two_of_the_same_accounts(costly, key)
    copied = pending(batch := submit_first())
    to, data, gas = copied.to, bytes(copied.data), copied.gas_limit
    costly.rpc("anvil_dropAllTransactions")
    copied.queries.all().delete()
    copied.delete()
    batch.delete()
    stranger, stranger_key = ACCOUNTS[0]
    nonce = int(costly.rpc("eth_getTransactionCount", stranger, "latest"), 16)

    def send(to: str, data: bytes, gas: int, tip: int) -> None:
        fees = {"maxFeePerGas": 2 * tip * GWEI, "maxPriorityFeePerGas": tip * GWEI}
        fields = {"type": 2, "chainId": 31337, "nonce": nonce, "to": to, "value": 0, "data": data, "gas": gas, **fees}
        signed = Account.from_key(stranger_key).sign_transaction(fields)
        costly.rpc("eth_sendRawTransaction", signed.raw_transaction.to_0x_hex())

    mine_at(costly, 1)
    send(to, data, gas, tip=10)
    tx = pending(submit_second())
    send(stranger, b"", 21_000, tip=20)
    costly.mine()
    work()
    assert fresh(tx).succeeded
