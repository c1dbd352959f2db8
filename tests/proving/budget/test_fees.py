"""The fee of a batch: it suffices where it is the estimate, and none of it is burnt on a part of what is asked for."""

from collections.abc import Callable
from typing import Any

import pytest

from config.configured_chains import get_rpc
from devnet.devchain import DevChain
from proving.admission.admit import admit
from proving.models import Transaction
from queries.models import Batch, BatchStatus
from tests.proving.money import (
    ACCOUNT_GAS,
    ETHER,
    GWEI,
    accepted,
    go_on,
    in_mempool,
    mine_at,
    price_of,
    scattered_slots,
    serve,
    set_fee,
    without_limits,
)
from tests.service import (
    ALICE,
    BOB,
    a_key,
    asking,
    balances,
    fresh,
    reconfigure,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)

# --- What it is asked to do for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("percent", "status"), [(90, BatchStatus.REJECTED), (110, BatchStatus.IN_PROGRESS)])
def test_the_fee_must_do_for_what_was_caused_before_the_rest_was_admitted(costly, key, percent, status):
    """It may have been dearer than it was estimated."""
    batch, tx = in_mempool(costly, key)
    query = batch.queries.get()
    query.pk, query.position, query.address, query.is_admitted = None, 1, BOB, False
    query.save()
    same = accepted(a_key(BOB), request(BOB, block=costly.head(), fee=ETHER))
    more = same.estimated_wei or 0
    Batch.objects.filter(pk=batch.pk).update(estimated_wei=1, fee=more + tx.cost * percent // 100)
    admit(batch.pk)
    assert fresh(batch).status == status, batch.rejection_reason


def test_a_batch_that_lacks_a_header_property_is_rejected_before_anything_is_paid(tmp_path, key, settings):
    with DevChain(hardfork="cancun") as chain:
        serve(settings, tmp_path, chain)
        chain.mine(14)
        head = chain.head()
        blocks = {f"block:{head - place}": {"header": ["STATE_ROOT", "TIMESTAMP"]} for place in range(12)}
        # The last one to be looked at.
        blocks[f"block:{head}"] = {"header": ["STATE_ROOT", "REQUESTS_HASH"]}
        batch = submit(key, asking(blocks, fee=ETHER))
        work()
        assert fresh(batch).rejection_code == "header_property_missing"
        assert not Transaction.objects.exists()


def test_a_batch_shows_what_it_has_spent_when_that_is_confirmed(costly, key, settings):
    costly.mine(5)
    reconfigure(settings, "confirmations = 1", "confirmations = 3")
    batch, tx = in_mempool(costly, key)
    assert (fresh(batch).gas_used, batch.spent) == (0, 0)
    costly.mine()
    work()
    assert (fresh(batch).gas_used, batch.spent) == (0, 0)
    costly.mine(3)
    work()
    tx.refresh_from_db()
    assert (fresh(batch).gas_used, batch.spent) == (tx.gas_used, tx.gas_used * tx.gas_price)


# --- Its estimate -----------------------------------------------------------------------------------------------------


def eight_blocks(chain: DevChain) -> list[str]:
    return [f"block:{chain.head() - place}" for place in range(8)]


def six_times(chain: DevChain) -> list[str]:
    headers = get_rpc(31337).headers([chain.head() - place for place in range(2, 8)])
    return [f"timestamp:{header.timestamp}" for header in headers if header]


@pytest.mark.parametrize(
    ("selectors", "wanted"),
    [
        pytest.param(eight_blocks, {"header": ["GAS_LIMIT"]}, id="one property"),
        pytest.param(eight_blocks, {"header": ["GAS_LIMIT", "DIFFICULTY"]}, id="two properties"),
        pytest.param(eight_blocks, {"accounts": {ALICE: {"props": ["BALANCE"], "slots": []}}}, id="accounts"),
        pytest.param(
            eight_blocks,
            {"accounts": {ALICE: {"props": ["BALANCE"], "slots": ["0x1", "0x2"]}}, "header": ["GAS_USED"]},
            id="slots and a property",
        ),
        pytest.param(six_times, {"header": ["GAS_LIMIT"]}, id="times and a property"),
    ],
)
def test_at_a_constant_price_what_was_estimated_suffices(
    costly, key, selectors: Callable[[DevChain], list[str]], wanted: dict[str, Any]
):
    if selectors is six_times:
        costly.rpc("anvil_setBlockTimestampInterval", 5)
    costly.mine(15)
    mine_at(costly, 1)
    batch = accepted(key, asking(dict.fromkeys(selectors(costly), wanted), fee=ETHER))
    set_fee(batch, batch.estimated_wei or 0)
    go_on(costly, 1, rounds=30)
    assert fresh(batch).status == BatchStatus.DONE, waiting()


# --- Gas that becomes dearer ------------------------------------------------------------------------------------------


def test_a_fee_spike_burns_no_fee_on_a_part_of_the_batch(costly, key):
    """Six blocks, each a transaction. At the high price the fee would do for the first four."""
    mine_at(costly, 1)
    costly.mine(6)
    head = costly.head()
    batch = accepted(key, asking(balances(range(head, head - 6, -1)), fee=6 * ACCOUNT_GAS * 3 * GWEI))
    mine_at(costly, 10)
    for _ in range(4):
        work()
    assert not Transaction.objects.exists()
    said = min(waiting(), key=len)
    assert said.startswith("6 queries are left undone: at the present gas price of chain 31337, ")
    assert "the batch's fee leaves 0.005436 ETH. Waiting for gas at " in said
    mine_at(costly, 1)
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(batch, costly, rounds=20).status == BatchStatus.DONE
    work()
    assert 0 < fresh(batch).spent <= batch.fee


def test_a_fee_spike_burns_no_fee_on_a_part_of_a_query(costly, key, settings):
    """One account with so many slots that they take several transactions."""
    mine_at(costly, 1)
    without_limits(settings)
    batch = accepted(key, asking({f"block:{costly.head()}": {"accounts": scattered_slots(1000)}}, fee=ETHER))
    set_fee(batch, batch.estimated_wei or 0)
    mine_at(costly, 12)
    go_on(costly, 12, rounds=4)
    assert not Transaction.objects.exists()
    go_on(costly, 1, rounds=12)
    assert fresh(batch).status == BatchStatus.DONE, waiting()


def test_nothing_is_signed_that_the_next_block_may_be_too_dear_for(costly, key):
    mine_at(costly, 8)
    batch = accepted(key, request(ALICE, block=costly.head(), fee=ETHER))
    set_fee(batch, (batch.estimated_gas or 0) * price_of(costly))
    # So that what is signed alone counts.
    Batch.objects.filter(pk=batch.pk).update(estimated_gas=1)
    work()
    tx = Transaction.objects.get()
    assert tx.newest.max_fee_per_gas >= 10 * GWEI  # 9/8 of 8 and the tip.
    assert tx.cost <= fresh(batch).fee
    costly.rpc("anvil_dropAllTransactions")
    Transaction.objects.all().delete()
    set_fee(batch, tx.gas_limit * price_of(costly) * 102 // 100)
    work()
    work()
    assert not Transaction.objects.exists()
