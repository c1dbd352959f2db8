"""Data fees of rollups are estimated, limited and counted like gas."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from config.configured_chains import forget_chains
from devnet.devchain import DevChain
from proving.models import Transaction, TransactionState
from queries.models import BatchStatus
from tests.proving import money, prices, receipts, rollups, transactions
from tests.service import ALICE, BOB, SIGNER, fresh, request, submit, waiting, work, work_until_done

pytestmark = [pytest.mark.outside, pytest.mark.long]

# Arbitrum's precompiled contracts. ArbGasInfo exists on the chain, and NodeInterface only in its nodes.
NODE_INTERFACE = "0x00000000000000000000000000000000000000C8"


def set_data_fee(chain: DevChain, of_a_byte: int, of_gas: int = 0, *, is_before_fjord: bool = False) -> None:
    """Set the fee of a byte, and the operator's fee of a unit of gas, in wei."""
    rollups.oracle_at(chain, rollups.GAS_PRICE_ORACLE).send("set", of_a_byte, of_gas, is_before_fjord)


# --- Counting ---------------------------------------------------------------------------------------------------------


def test_a_cancellation_is_within_the_daily_limit_with_the_data_fee(op_stack, key, settings, tmp_path):
    money.serve(settings, tmp_path, op_stack)
    op_stack.rpc("evm_setAutomine", False)
    batch, tx = money.in_mempool(op_stack, key)
    op_stack.rpc("anvil_dropAllTransactions")
    most = tx.reserved + prices.GWEI
    money.limit(settings, daily_limit=most)
    money.cancel(batch)
    prices.mine_at(op_stack, 100)
    transactions.work_aged(3)
    assert tx.newest.is_cancellation
    assert (money.spent_today() or 0) <= most + prices.GWEI


@pytest.mark.parametrize(
    ("accounts", "oracle", "told"),
    [
        ((ALICE, BOB), {}, {}),
        ((ALICE, BOB), {}, None),
        # Since Isthmus, a receipt has the operator fee's parameters, and the predeploy computes the fee.
        ((ALICE,), {"of_gas": 7}, {"operatorFeeScalar": "0x1", "operatorFeeConstant": "0x0"}),
        ((ALICE,), {"is_before_fjord": True}, None),
    ],
    ids=[
        "receipts tell it",
        "receipts don't tell, so the expected one counts",
        "an operator's fee too",
        "before Fjord, where each byte is asked for",
    ],
)
def test_data_fees_of_an_op_stack_chain_count_as_spent(op_stack, key, settings, tmp_path, accounts, oracle, told):
    set_data_fee(op_stack, rollups.FEE_OF_A_BYTE, **oracle)
    with nullcontext("") if told is None else receipts.telling_receipts(op_stack, **told) as url:
        money.serve(settings, tmp_path, op_stack, url)
        before = receipts.balance(op_stack)
        batch = work_until_done(submit(key, request(*accounts, block=op_stack.head(), fee=prices.ETHER)))
        work()
    paid = before - receipts.balance(op_stack)
    tx = Transaction.objects.get()
    if told is None:
        assert paid <= fresh(batch).spent
    else:
        # anvil charges no operator fee.
        assert fresh(batch).spent == paid + oracle.get("of_gas", 0) * tx.gas_used
    assert batch.spent <= (batch.estimated_wei or 0)
    assert tx.data_fee > tx.gas_used * tx.gas_price // 10  # the data fee is a large part


def test_arbitrums_gas_for_data_is_in_the_estimate_and_counted_once(chain, key, settings, tmp_path):
    money.serve(settings, tmp_path, chain)
    elsewhere = money.accepted(key, request(ALICE, block=chain.head() - 1, fee=prices.ETHER))
    chain.rpc("anvil_setCode", rollups.ARB_GAS_INFO, "0xfe")
    rollups.oracle_at(chain, NODE_INTERFACE).send("set", 50, 0, False)
    forget_chains()
    before = receipts.balance(chain)
    batch = money.accepted(key, request(ALICE, block=chain.head(), fee=prices.ETHER))
    of_data = (batch.estimated_gas or 0) - (elsewhere.estimated_gas or 0)
    # The estimate doubles the gas of a byte. The header has about 600 bytes.
    assert 2 * 50 * 600 < of_data < 2 * 50 * 1800
    assert work_until_done(batch).status == work_until_done(elsewhere).status == BatchStatus.DONE
    work()
    assert fresh(batch).spent + fresh(elsewhere).spent in {spent := before - receipts.balance(chain), spent - 1}


def test_a_data_fee_taken_back_by_a_reorg_counts_with_its_margin_again(op_stack, key, settings, tmp_path):
    with receipts.telling_receipts(op_stack) as url:
        money.serve(settings, tmp_path, op_stack, url)
        op_stack.rpc("evm_setAutomine", False)
        _, tx = money.in_mempool(op_stack, key)
        expected = tx.data_fee
        snapshot = op_stack.rpc("evm_snapshot")
        op_stack.mine()
        work()
        assert fresh(tx).state != TransactionState.PENDING
        assert tx.data_fee < expected
        transactions.roll_back(op_stack, snapshot)
        work()
    assert fresh(tx).state == TransactionState.PENDING
    assert tx.data_fee >= expected


# --- High prices ------------------------------------------------------------------------------------------------------


def the_daily_limit(chain: DevChain, settings) -> None:
    money.limit(settings, daily_limit=prices.ETHER * 4 // 10_000)


def the_users_daily_limit(chain: DevChain, settings) -> None:
    money.limit(settings, daily_limit_per_user=prices.ETHER * 4 // 10_000)


def the_signers_balance(chain: DevChain, settings) -> None:
    # The fee applies to later blocks. The batch names the newest block, so a block is mined first.
    chain.mine()
    chain.rpc("anvil_setBalance", SIGNER, hex(10**15))
    chain.mine()
    set_data_fee(chain, 10 * rollups.FEE_OF_A_BYTE)


def the_fee(chain: DevChain, settings) -> None:
    set_data_fee(chain, 100 * rollups.FEE_OF_A_BYTE)


@pytest.mark.parametrize(
    ("too_low", "fee", "sentence", "relieved"),
    [
        (the_daily_limit, prices.ETHER, "The operator's limit of 0.0004 ETH", 0),
        (the_users_daily_limit, prices.ETHER, "The daily limit of its user", 0),
        (the_signers_balance, prices.ETHER, "and may have to pay", rollups.FEE_OF_A_BYTE),
        (the_fee, 10**16, "The batch's fee leaves", rollups.FEE_OF_A_BYTE),
    ],
    ids=["the daily limit", "the user's daily limit", "the signer's balance", "the fee"],
)
def test_data_that_is_too_dear_is_waited_out(
    op_stack,
    key,
    settings,
    tmp_path,
    too_low: Callable[[DevChain, object], None],
    fee,
    sentence,
    relieved,
):
    """The limit, balance or fee covers only the gas now. When the batch was accepted, it also covered the data fee."""
    money.serve(settings, tmp_path, op_stack)
    batch = money.accepted(key, request(ALICE, block=op_stack.head(), fee=fee))
    too_low(op_stack, settings)
    work(2)
    assert not Transaction.objects.exists()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    assert sentence in waiting()[0]
    set_data_fee(op_stack, relieved)
    assert work_until_done(batch).status == BatchStatus.DONE


def test_a_fee_that_suffices_for_the_gas_alone_is_too_low_there(op_stack, key, settings, tmp_path):
    money.serve(settings, tmp_path, op_stack)
    batch = submit(key, request(ALICE, block=op_stack.head(), fee=150_000 * 2 * prices.GWEI))
    assert work_until_done(batch).rejection_code == "fee_too_low"
    assert " wei for its data, " in batch.rejection_reason


def test_fees_are_not_raised_where_the_days_limit_leaves_only_the_data_fee(op_stack, key, settings, tmp_path):
    money.serve(settings, tmp_path, op_stack)
    op_stack.rpc("evm_setAutomine", False)
    _, tx = money.in_mempool(op_stack, key)
    most = tx.cost * 105 // 100
    # If the data fee didn't count, the limit would allow higher fees.
    assert most > (tx.cost - tx.data_fee) * 120 // 100
    money.limit(settings, daily_limit=most)
    transactions.work_aged()
    assert tx.versions.count() == 1


def test_fees_are_not_raised_where_the_data_has_become_too_dear(op_stack, key, settings, tmp_path):
    money.serve(settings, tmp_path, op_stack)
    op_stack.rpc("evm_setAutomine", False)
    batch = money.accepted(key, request(ALICE, block=op_stack.head(), fee=prices.ETHER))
    money.set_fee(batch, (batch.estimated_wei or 0) * 3)
    tx = money.pending(batch)
    assert tx.data_fee
    op_stack.rpc("anvil_dropAllTransactions")
    op_stack.rpc("evm_setAutomine", True)
    set_data_fee(op_stack, 100 * rollups.FEE_OF_A_BYTE)
    op_stack.rpc("evm_setAutomine", False)
    assert tx.data_fee * 50 > fresh(batch).fee
    transactions.work_aged()
    assert tx.versions.count() == 1
