"""A batch's fee: the estimate is enough, and no fee is spent on part of a batch that can't be finished."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from devnet.devchain import DevChain
from proving.models import SignedTransaction, Transaction
from queries.models import Batch, BatchStatus, Block
from tests.proving import dear_registry, estimated_batches, money, paths, receipts, transactions
from tests.proving.prices import ACCOUNT_GAS, ETHER, GWEI, go_on, mine_at, price_of
from tests.service import (
    ALICE,
    BOB,
    asking,
    balances,
    expire,
    fresh,
    header,
    reconfigure,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)

pytestmark = [pytest.mark.outside, pytest.mark.long]

# --- Rejection before spending ----------------------------------------------------------------------------------------


def test_a_batch_that_lacks_a_header_property_is_rejected_before_anything_is_paid(tmp_path, key, settings):
    with DevChain(hardfork="cancun") as chain:
        money.serve(settings, tmp_path, chain)
        chain.mine(14)
        head = chain.head()
        blocks = {f"block:{head - back}": {"header": ["STATE_ROOT", "TIMESTAMP"]} for back in range(12)}
        # The newest block is checked last.
        blocks[f"block:{head}"] = {"header": ["STATE_ROOT", "REQUESTS_HASH"]}
        batch = submit(key, asking(blocks, fee=ETHER))
        assert work_until_done(batch).rejection_code == "header_property_missing"
        assert not Transaction.objects.exists()


def test_a_batch_shows_what_it_has_spent_when_that_is_confirmed(costly, key, settings):
    costly.mine(5)
    reconfigure(settings, "confirmations = 1", "confirmations = 3")
    batch, tx = money.in_mempool(costly, key)
    assert (fresh(batch).gas_used, batch.spent) == (0, 0)
    costly.mine()
    work()
    assert (fresh(batch).gas_used, batch.spent) == (0, 0)
    costly.mine(3)
    work()
    assert (fresh(batch).gas_used, batch.spent) == (fresh(tx).gas_used, tx.gas_used * tx.gas_price)


# --- The estimate -----------------------------------------------------------------------------------------------------


def eight_blocks(chain: DevChain) -> list[str]:
    return [f"block:{chain.head() - back}" for back in range(8)]


def six_times(chain: DevChain) -> list[str]:
    blocks = [chain.rpc("eth_getBlockByNumber", hex(chain.head() - back), False) for back in range(2, 8)]
    return [f"timestamp:{int(block['timestamp'], 16)}" for block in blocks]


@pytest.mark.parametrize(
    ("selectors", "requested"),
    [
        pytest.param(eight_blocks, {"header": ["GAS_LIMIT"]}, id="one property", marks=pytest.mark.long),
        pytest.param(
            eight_blocks, {"header": ["GAS_LIMIT", "DIFFICULTY"]}, id="two properties", marks=pytest.mark.long
        ),
        pytest.param(
            eight_blocks,
            {"accounts": {ALICE: {"props": ["BALANCE"], "slots": []}}},
            id="accounts",
            marks=pytest.mark.long,
        ),
        pytest.param(
            eight_blocks,
            {"accounts": {ALICE: {"props": ["BALANCE"], "slots": ["0x1", "0x2"]}}, "header": ["GAS_USED"]},
            id="slots and a property",
        ),
        pytest.param(six_times, {"header": ["GAS_LIMIT"]}, id="times and a property"),
    ],
)
def test_at_a_constant_price_what_was_estimated_suffices(
    costly, key, selectors: Callable[[DevChain], list[str]], requested: dict[str, Any]
):
    if selectors is six_times:
        costly.rpc("anvil_setBlockTimestampInterval", 5)
    costly.mine(15)
    mine_at(costly, 1)
    batch = money.accepted(key, asking(dict.fromkeys(selectors(costly), requested), fee=ETHER))
    money.set_fee(batch, batch.estimated_wei or 0)
    for _ in range(30):
        go_on(costly, 1, rounds=1)
        if fresh(batch).status == BatchStatus.DONE:
            return
    raise AssertionError(waiting())


def test_a_path_counts_once(costly, key, settings):
    """The gas for the path is part of the estimate, so it must not be added again."""
    block = paths.old_block(costly, settings, depth=100)
    costly.rpc("evm_setAutomine", True)
    batch = money.accepted(key, request(ALICE, block=block, fee=ETHER), fee=2 * 250_000 * price_of(costly) * 105 // 100)
    assert work_until_done(batch, costly).status == BatchStatus.DONE


# --- Rising gas prices ------------------------------------------------------------------------------------------------


def test_a_fee_spike_spends_no_more_than_the_fee(costly, key):
    """The batch needs six transactions, one for each block. At the higher price, the fee covers four."""
    mine_at(costly, 1)
    costly.mine(6)
    head = costly.head()
    batch = money.accepted(key, asking(balances(range(head, head - 6, -1)), fee=6 * ACCOUNT_GAS * 3 * GWEI))
    before = receipts.balance(costly)
    mine_at(costly, 10)
    go_on(costly, 10, rounds=4)
    assert before - receipts.balance(costly) <= batch.fee
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    assert any("The batch's fee leaves " in sentence for sentence in waiting())


def test_a_reorganisation_takes_no_batch_above_its_fee(costly, key, settings):
    """After a reorg, a transaction that was mined cheaply may be mined again at the full price offered."""
    money.without_limits(settings)
    mine_at(costly, 20)
    block = costly.head()
    batch = money.accepted(key, asking(balances([block, block - 1]), fee=ETHER), fee=6 * 10**15)
    # With such a low estimate, each transaction may be offered all that the fee leaves.
    Batch.objects.update(estimated_gas=1)
    money.pending(batch)
    snapshot = costly.rpc("evm_snapshot")
    mine_at(costly, 1)
    mine_at(costly, 20)
    for _ in range(3):
        Block.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
        work()
    transactions.roll_back(costly, snapshot)
    for _ in range(5):
        SignedTransaction.objects.update(broadcast_at=None)
        work()
        mine_at(costly, 38)
    costly.mine(5)
    work()
    assert 0 < fresh(batch).spent <= batch.fee


@pytest.mark.parametrize("fee", ["auto", "number"])
def test_a_transaction_out_of_gas_uses_up_no_auto_fee_and_never_exceeds_a_number(costly, client, key, fee):
    """The registry takes more gas than nodes have estimated."""
    mine_at(costly, 1)
    before, body = receipts.balance(costly), request(ALICE, block=costly.head() - 1)
    number = estimated_batches.estimate(client, key, body)["wei"]["bound"]
    batch = submit(key, body | {"fee": fee if fee == "auto" else number})
    work(2)
    dear_registry.mine_dear(costly, 250_000, lambda: mine_at(costly, 1))
    costly.mine(70)
    for _ in range(4):
        work()
        mine_at(costly, 1)
    paid, failed = before - receipts.balance(costly), Transaction.objects.filter(succeeded=False).count()
    assert failed
    assert 0 < fresh(batch).spent <= batch.fee
    if fee == "auto":
        assert batch.status == BatchStatus.DONE, waiting()
        assert paid > batch.fee
    else:
        assert batch.status == BatchStatus.IN_PROGRESS
        assert paid == batch.spent


def test_a_batch_whose_fee_is_from_before_a_fork_names_the_fork_and_may_be_sent_again(costly, client, key, settings):
    """`chains.toml` gives the chain the fork's prices. By these, the service knows its nodes' estimates to be false."""
    record = "gas_prices = '{}'\n[chains.signer]"
    reconfigure(settings, "[chains.signer]", record.format("osaka"))
    mine_at(costly, 1)
    before = submit(key, request(ALICE, block=costly.head()) | {"fee": "auto"})
    with money.stopped():
        work(2)
        reconfigure(settings, record.format("osaka"), record.format("amsterdam"))
        work()
    after = money.accepted(key, request(BOB, block=costly.head() - 1, fee=ETHER), fee=GWEI)
    go_on(costly, 1, rounds=2)
    assert not Transaction.objects.exists()
    (told,), (other,) = (
        client.get(f"/batch-queries/{batch.pk}", headers=header(key)).json()["waits"] for batch in (before, after)
    )
    assert (told["code"], other["code"]) == ("fee_before_fork", "fee_limit")
    assert "accepted before the fork Amsterdam of chain 31337, whose new prices take more gas" in told["sentence"]
    expire(Batch.objects.filter(pk=before.pk))
    work()
    assert (fresh(before).rejection_code, before.rejection_retryable) == ("deadline_exceeded", True)
    assert told["sentence"] in str(before.rejection_reason)


def test_nothing_is_signed_that_the_next_block_may_be_too_dear_for(costly, key):
    mine_at(costly, 8)
    batch = money.accepted(key, request(ALICE, block=costly.head(), fee=ETHER))
    money.set_fee(batch, (batch.estimated_gas or 0) * price_of(costly) * 5 // 4)
    # With such a low estimate, only the signed amount counts.
    Batch.objects.filter(pk=batch.pk).update(estimated_gas=1)
    work()
    tx = Transaction.objects.get()
    assert tx.newest.max_fee_per_gas >= 10 * GWEI  # 9/8 of 8 gwei, and the tip
    assert tx.cost <= fresh(batch).fee
    costly.rpc("anvil_dropAllTransactions")
    Transaction.objects.all().delete()
    money.set_fee(batch, tx.gas_limit * price_of(costly) * 102 // 100)
    work(2)
    assert not Transaction.objects.exists()
