"""Whose money is spent, how much of it at the most, and what counts as spent. Everybody here wants more than that."""

import re
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from eth_utils.crypto import keccak

from accounts.models import User
from chains.rollups import ARB_GAS_INFO, GAS_PRICE_ORACLE, NODE_INTERFACE, data_cost
from chains.rpc import _read_receipt
from config.configured_chains import forget_chains, get_chains, get_rpc
from devnet.devchain import DevChain
from proving.acceptance import accept
from proving.models import FactsRegistry, Share, SignedTransaction, Signer, Transaction, TransactionState
from proving.reconcile.block import reconcile
from proving.registry.deploying import deploy
from proving.spending import limits, promised, shares
from proving.spending.estimates import HOP_GAS, RIDER_GAS, WALKED_HEADER_GAS, Undone, gas_of, unproven
from proving.transactions import funds, stop_switch, tending
from queries.clock import Clock
from queries.models import Batch, BatchStatus, Block, PathUnit, Query
from tests.proving.money import COSTLY, ETHER, GWEI, asking, mine_at, pending, price_of, rejected_late, serve
from tests.proving.receipts import balance, telling_receipts
from tests.proving.rollups import FEE_OF_A_BYTE, oracle_at
from tests.proving.transactions import age
from tests.service import (
    ALICE,
    BOB,
    CHARLIE,
    SIGNER,
    a_key,
    chains_toml,
    fresh,
    reconfigure,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)

# --- Budgets ----------------------------------------------------------------------------------------------------------


def test_what_a_rejected_batch_has_in_the_mempool_counts(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 200_000
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    rejected_late(batch)
    assert promised.to_user(key.user_id, [31337]).gas == tx.gas_limit
    again = submit(key, request(BOB, block=costly.head(), fee=ETHER))
    work()
    assert fresh(again).rejection_code == "budget_exceeded"


def test_what_a_rejected_batch_has_in_a_block_counts_before_it_is_confirmed(costly, key, settings):
    costly.mine(150)
    reconfigure(settings, "confirmations = 1", "confirmations = 150")
    settings.DAILY_GAS_BUDGET = 200_000
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    costly.mine()
    work()
    rejected_late(batch)
    tx.refresh_from_db()
    assert tx.state == TransactionState.MINED
    promise = promised.to_user(key.user_id, [31337])
    assert (promise.gas, promise.wei) == (tx.gas_used, tx.gas_used * tx.gas_price)
    again = submit(key, request(BOB, block=costly.head(), fee=ETHER))
    work()
    assert fresh(again).rejection_code == "budget_exceeded"


def test_an_open_batch_counts_as_its_estimate_until_it_has_caused_more(costly, key):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    assert tx.gas_limit < (fresh(batch).estimated_gas or 0)
    promise = promised.to_user(key.user_id, [31337])
    assert (promise.gas, promise.wei) == (batch.estimated_gas, max(batch.estimated_wei or 0, tx.cost))
    Batch.objects.update(estimated_gas=1, estimated_wei=1)
    promise = promised.to_user(key.user_id, [31337])
    assert (promise.gas, promise.wei) == (tx.gas_limit, tx.cost)


def test_what_is_pending_counts_however_old_it_is(costly, key):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    rejected_late(batch)
    Transaction.objects.update(spent_at=timezone.now() - timedelta(days=2))
    assert promised.to_user(key.user_id, [31337]).wei == tx.cost == promised.on_chain(31337)
    # The day begins when it is mined.
    costly.mine()
    work()
    tx.refresh_from_db()
    assert promised.to_user(key.user_id, [31337]).wei == tx.cost < tx.reserved == promised.on_chain(31337)
    Transaction.objects.update(spent_at=timezone.now() - timedelta(days=2))
    assert promised.to_user(key.user_id, [31337]).wei == 0 == promised.on_chain(31337)


def test_a_clock_that_jumps_gives_no_budget_anew(costly, key, monkeypatch):
    clock = Clock()
    clock.read([])
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    costly.mine()
    work()
    rejected_late(batch)
    counted = promised.to_user(key.user_id, [31337])
    assert counted.gas > 0
    now = timezone.now
    for hours in (25, -50):
        monkeypatch.setattr(timezone, "now", lambda hours=hours: now() + timedelta(hours=hours))
        assert promised.to_user(key.user_id, [31337]) == counted
    # What is stored by a clock that is behind is no older than it is.
    other = submit(key, request(BOB, block=costly.head() - 1, fee=ETHER))
    late = pending(other)
    assert late.spent_at > tx.spent_at - timedelta(minutes=1)


@pytest.mark.parametrize(("percent", "status"), [(90, BatchStatus.REJECTED), (110, BatchStatus.IN_PROGRESS)])
def test_the_fee_must_do_for_what_was_caused_before_the_rest_was_admitted(costly, key, percent, status):
    """It may have been dearer than it was estimated."""
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    query = batch.queries.get()
    query.pk, query.position, query.address, query.is_admitted = None, 1, BOB, False
    query.save()
    same = submit(a_key(BOB), request(BOB, block=costly.head(), fee=ETHER))
    accept(same.pk)
    more = fresh(same).estimated_wei or 0
    Batch.objects.filter(pk=batch.pk).update(estimated_wei=1, fee=more + tx.cost * percent // 100)
    accept(batch.pk)
    assert fresh(batch).status == status, batch.rejection_reason


def test_what_was_spent_by_a_user_on_test_networks_is_no_matter(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 200_000
    elsewhere = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    Batch.objects.filter(pk=elsewhere.pk).update(destination_chain_id=5, estimated_gas=10**9, status="IN_PROGRESS")
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    work()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS


def test_who_has_nothing_left_is_refused_before_any_node_is_asked(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 0
    reconfigure(settings, costly.url, "http://127.0.0.1:1")
    batch = submit(key, request(ALICE, block=1, fee=ETHER))
    work()
    # It never has any, so that sending it again is of no use.
    assert (fresh(batch).rejection_code, batch.rejection_retryable) == ("too_large_for_budget", False)


def test_what_can_never_fit_the_budget_has_a_code_of_its_own(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 100_000
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    work()
    assert (fresh(batch).rejection_code, batch.rejection_retryable) == ("too_large_for_budget", False)
    assert "Send it in parts." in batch.rejection_reason


def test_a_users_own_budget_counts_instead_of_the_installations(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 0
    User.objects.update(daily_gas_budget=10**9)
    pending(submit(key, request(ALICE, block=costly.head(), fee=ETHER)))
    settings.DAILY_GAS_BUDGET = 10**9
    User.objects.update(daily_gas_budget=0)
    batch = submit(key, request(BOB, block=costly.head(), fee=ETHER))
    work()
    assert fresh(batch).rejection_code == "too_large_for_budget"


def test_a_users_own_budget_counts_when_a_transaction_is_signed(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 10**9
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    User.objects.update(daily_gas_budget=5)
    work()
    assert "of the 5 gas that a user's batches may use in 24 hours 5 are left" in waiting()[0]
    assert not Transaction.objects.exists()
    settings.DAILY_GAS_BUDGET = 5
    User.objects.update(daily_gas_budget=10**9)
    work()
    assert Transaction.objects.count() == 1


def test_a_users_own_limit_in_money_counts_instead_of_the_chains(costly, key, settings):
    reconfigure(settings, "test_network = false", "test_network = false\ndaily_limit_per_user = '0'")
    User.objects.update(daily_limits_wei={"31337": str(ETHER), "5": "0"})
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    # It is asked anew before anything is signed.
    User.objects.update(daily_limits_wei=None)
    work()
    assert "the daily limit of its user leaves 0.000000 ETH" in waiting()[0]
    User.objects.update(daily_limits_wei={"31337": str(ETHER)})
    work()
    assert Transaction.objects.count() == 1
    reconfigure(settings, "daily_limit_per_user = '0'", "daily_limit_per_user = '100'")
    User.objects.update(daily_limits_wei={"31337": "0"})
    batch = submit(key, request(BOB, block=costly.head(), fee=ETHER))
    work()
    assert fresh(batch).rejection_code == "too_large_for_budget"


def test_a_batch_that_lacks_a_header_property_is_rejected_before_anything_is_paid(tmp_path, key, settings):
    with DevChain(hardfork="cancun") as chain:
        serve(settings, tmp_path, chain)
        chain.mine(14)
        head = chain.head()
        blocks = {f"block:{head - place}": {"header": ["STATE_ROOT", "TIMESTAMP"]} for place in range(12)}
        # The last one to be looked at.
        blocks[f"block:{head}"] = {"header": ["STATE_ROOT", "REQUESTS_HASH"]}
        body = {"destinationChainId": "31337", "fee": str(ETHER), "data": {"31337": blocks}}
        batch = submit(key, body)
        work()
        assert fresh(batch).rejection_code == "header_property_missing"
        assert not Transaction.objects.exists()


# --- Fees -------------------------------------------------------------------------------------------------------------


def test_a_fee_spike_burns_no_fee_on_a_part_of_the_batch(costly, key):
    """Six blocks, each a transaction. At the high price the fee would do for the first four."""
    mine_at(costly, 1)
    costly.mine(6)
    head = costly.head()
    blocks = {f"block:{head - place}": {"accounts": {ALICE: {"props": ["BALANCE"]}}} for place in range(6)}
    body = {"destinationChainId": "31337", "data": {"31337": blocks}}
    batch = submit(key, body | {"fee": str(6 * 302_000 * 3 * GWEI)})
    accept(batch.pk)
    assert fresh(batch).status == BatchStatus.ACCEPTED
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


def test_a_replacement_takes_no_more_than_what_the_fee_leaves(costly, key):
    mine_at(costly, 1)
    batch = submit(key, request(ALICE, block=costly.head(), fee=302_000 * 4 * GWEI))
    tx = pending(batch)
    costly.rpc("anvil_dropAllTransactions")
    # Twice what it offered would be below the cap, and above the fee.
    Batch.objects.update(fee=tx.cost + tx.gas_limit)
    mine_at(costly, 5)
    age()
    work()
    assert tx.versions.count() == 1
    # Its own share doesn't count.
    Batch.objects.update(fee=tx.cost * 3 // 2)
    age()
    work()
    assert tx.versions.count() == 2
    assert Share.objects.get(transaction=tx).wei == tx.newest.max_fee_per_gas * tx.gas_limit


@pytest.fixture
def one_by_one(costly, key, monkeypatch) -> int:
    """A block whose header is accumulated; its number. Three accounts take two transactions."""
    monkeypatch.setattr("proving.registry.packing.MAX_BYTES", 1000)
    block: int = costly.head()
    costly.rpc("evm_setAutomine", True)
    work_until_done(submit(key, request(SIGNER, block=block, fee=ETHER)), costly)
    costly.rpc("evm_setAutomine", False)
    work()
    Transaction.objects.all().delete()
    return block


def test_the_transactions_behind_one_are_reserved_for(costly, key, one_by_one, monkeypatch):
    monkeypatch.setattr("proving.spending.limits.estimates.unproven", lambda *_, **__: Undone())
    batch = submit(key, request(ALICE, BOB, CHARLIE, block=one_by_one, fee=ETHER))
    accept(batch.pk)
    # Nothing at first, then enough for two of three.
    Batch.objects.filter(pk=batch.pk).update(fee=0)
    work()
    work()
    (needed,) = re.findall(r"3 queries are left undone: .* gwei, they take about (\d+) gas, ", waiting()[0])
    Batch.objects.filter(pk=batch.pk).update(fee=int(needed) * price_of(costly) * 9 // 10)
    work()
    assert not Transaction.objects.exists()
    Batch.objects.filter(pk=batch.pk).update(fee=ETHER)
    work()
    assert Transaction.objects.count() == 2
    assert int(needed) == sum(tx.gas_limit for tx in Transaction.objects.all())


def test_a_transaction_for_who_cannot_pay_holds_up_none_before_it(costly, key, one_by_one):
    first, second = sorted((ALICE, BOB), key=lambda address: keccak(bytes.fromhex(address[2:])))
    rich = submit(key, request(first, block=one_by_one, fee=ETHER))
    poor = submit(a_key(BOB), request(second, block=one_by_one, fee=ETHER))
    for batch in (rich, poor):
        accept(batch.pk)
    Batch.objects.filter(pk=poor.pk).update(fee=1)
    work()
    assert {tx.queries.get().batch_id for tx in Transaction.objects.all()} == {rich.pk}
    assert sorted(Share.objects.values_list("batch", flat=True)) == [rich.pk]


def test_the_data_of_what_is_still_to_do_is_reserved_for_too(costly, key):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    tx.data_fee = 1000 * tx.gas_limit
    Batch.objects.update(estimated_gas=10**8)
    rest = {batch.pk: Undone(proof_gas=1_800_000)}
    ((by_fee, *_),) = limits.for_each(get_chains().chain(31337), {tx: shares.weights_of(tx)}, rest)
    assert by_fee.gas == tx.gas_limit + rest[batch.pk].gas
    assert by_fee.left == ETHER - 1000 * by_fee.gas


def test_a_batch_shows_what_it_has_spent_when_that_is_confirmed(costly, key, settings):
    costly.mine(5)
    reconfigure(settings, "confirmations = 1", "confirmations = 3")
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    assert (fresh(batch).gas_used, batch.spent) == (0, 0)
    costly.mine()
    work()
    assert (fresh(batch).gas_used, batch.spent) == (0, 0)
    costly.mine(3)
    work()
    tx.refresh_from_db()
    assert (fresh(batch).gas_used, batch.spent) == (tx.gas_used, tx.gas_used * tx.gas_price)


def test_paths_that_lead_over_the_same_blocks_are_reserved_for_once(costly, key):
    head = costly.head()
    blocks = {f"block:{head - place}": {"accounts": {ALICE: {"props": ["BALANCE"]}}} for place in range(3)}
    batch = submit(key, {"destinationChainId": "31337", "fee": str(ETHER), "data": {"31337": blocks}})
    accept(batch.pk)
    for place, (unit, left) in enumerate([(PathUnit.HOPS, 3), (PathUnit.HOPS, 5), (PathUnit.HEADERS, 40)]):
        Block.objects.filter(number=head - place).update(path_unit=unit, path_left=left)
    assert unproven(batch, with_paths=True).path_gas == max(5 * HOP_GAS, 40 * WALKED_HEADER_GAS)
    assert unproven(batch, with_paths=False).path_gas == 0
    assert unproven(batch, with_paths=False).gas == sum(gas_of(query) for query in batch.queries.all())


def test_what_is_under_way_is_not_reserved_for_again(costly, key, monkeypatch):
    monkeypatch.setattr("proving.registry.packing.MAX_BYTES", 1000)
    batch = submit(key, request(ALICE, BOB, CHARLIE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    whole = unproven(batch, with_paths=False)
    assert 0 <= (fresh(batch).estimated_gas or 0) - whole.gas < 3
    work()
    assert Transaction.objects.get().accumulates.exists()
    rest = unproven(batch, with_paths=False)
    assert 0 < rest.gas < whole.gas


def test_of_a_path_what_its_transaction_does_not_take_is_reserved_for(costly, key):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    Batch.objects.update(estimated_gas=10**8)
    rest = {batch.pk: Undone(path_gas=4 * HOP_GAS)}
    ((by_fee, *_),) = limits.for_each(get_chains().chain(31337), {tx: shares.weights_of(tx)}, rest)
    assert by_fee.gas == rest[batch.pk].gas > tx.gas_limit


def test_of_what_is_not_admitted_each_header_is_reserved_for(costly, key):
    body = request(ALICE, BOB, block=costly.head(), fee=ETHER)
    body["data"]["31337"]["block:1"] = {"accounts": {ALICE: {"props": ["NONCE"]}}}
    batch = submit(key, body)
    # What so much takes on mainnet, and what is signed above that.
    assert unproven(batch, with_paths=True).unadmitted_gas > (280_000 + 172_000) * 1.2


def test_who_asks_for_a_header_pays_for_its_accumulation(costly, key):
    data = {"31337": {f"block:{costly.head()}": {"header": ["GAS_LIMIT"]}}}
    batch = submit(key, {"destinationChainId": "31337", "fee": str(ETHER), "data": data})
    assert gas_of(batch.queries.get()) > 65_000 + 22_000


@pytest.fixture
def two_old_blocks(costly, key, settings) -> tuple[Batch, Block]:
    """A batch that asks for them, and the first, whose path is next."""
    reconfigure(settings, 'block_hash_source = "native"', 'block_hash_source = "native"\nwindow = 40')
    FactsRegistry.objects.all().delete()
    costly.rpc("evm_setAutomine", True)
    deploy(31337, 31337)
    Transaction.objects.all().delete()
    block = costly.head()
    costly.mine(100)
    costly.rpc("evm_setAutomine", False)
    mine_at(costly, 1)
    blocks = {f"block:{block - place}": {"accounts": {ALICE: {"props": ["BALANCE"]}}} for place in (0, 1)}
    batch = submit(key, {"destinationChainId": "31337", "fee": str(ETHER), "data": {"31337": blocks}})
    accept(batch.pk)
    return batch, Block.objects.get(number=block)


def need_hops(batch: Batch, block: Block, count: int) -> None:
    """As if it had been planned that the path to the batch's other block takes so many."""
    others = Block.objects.filter(queries__batch=batch).exclude(pk=block.pk)
    others.update(path_unit=PathUnit.HOPS, path_left=count)
    Batch.objects.update(estimated_gas=10**8)


def test_a_path_is_not_begun_where_the_fee_does_not_do_for_the_other_paths(costly, two_old_blocks):
    batch, block = two_old_blocks
    need_hops(batch, block, 20)
    price = price_of(costly) * 5 // 4
    Batch.objects.update(fee=10 * HOP_GAS * price)
    reconcile(block.pk)
    assert not Transaction.objects.exists()
    Batch.objects.update(fee=30 * HOP_GAS * price)
    reconcile(block.pk)
    assert Transaction.objects.get().extends_id is not None


def test_a_path_is_not_raised_above_what_the_other_paths_leave(costly, two_old_blocks):
    batch, block = two_old_blocks
    reconcile(block.pk)
    tx = Transaction.objects.get()
    assert tx.extends_id is not None
    costly.rpc("anvil_dropAllTransactions")
    need_hops(batch, block, 20)
    rest = unproven(batch, with_paths=False).gas
    offered = tx.newest.max_fee_per_gas
    Batch.objects.update(fee=(tx.gas_limit + rest) * offered * 2)
    mine_at(costly, 8)
    age()
    work()
    assert tx.versions.count() == 1
    Batch.objects.update(fee=(tx.gas_limit + rest + 20 * HOP_GAS) * offered * 2)
    age()
    work()
    assert tx.versions.count() == 2


def test_what_is_offered_first_leaves_room_for_a_replacement_below_the_cap(costly, key, settings):
    mine_at(costly, 10)
    reconfigure(settings, "test_network = false", "test_network = false\nmax_fee_per_gas_gwei = 15")
    tx = pending(submit(key, request(ALICE, block=costly.head(), fee=ETHER)))
    costly.rpc("anvil_dropAllTransactions")
    age()
    work()
    first, second = tx.versions.order_by("pk")
    assert first.max_fee_per_gas < second.max_fee_per_gas <= 15 * GWEI


def test_the_signers_balance_must_do_for_what_is_pending_too(costly, key):
    tx = pending(submit(key, request(ALICE, block=costly.head(), fee=ETHER)))
    costly.rpc("anvil_setBalance", SIGNER, hex(tx.cost * 3 // 2))
    submit(key, request(BOB, block=costly.head() - 1, fee=ETHER))
    work()
    work()
    assert Transaction.objects.count() == 1
    assert "that it may have to pay" in Signer.objects.get().notice


def test_what_completes_queries_is_raised_though_the_fee_does_not_do_for_the_paths(costly, key):
    mine_at(costly, 1)
    head = costly.head()
    blocks = {f"block:{head - place}": {"accounts": {ALICE: {"props": ["BALANCE"]}}} for place in (0, 1)}
    batch = submit(key, {"destinationChainId": "31337", "fee": str(ETHER), "data": {"31337": blocks}})
    accept(batch.pk)
    block = Block.objects.get(number=head)
    reconcile(block.pk)
    tx = Transaction.objects.get()
    costly.rpc("anvil_dropAllTransactions")
    need_hops(batch, block, 20)
    rest = unproven(batch, with_paths=False).gas
    Batch.objects.update(fee=(tx.gas_limit + rest) * tx.newest.max_fee_per_gas * 2)
    mine_at(costly, 8)
    age()
    tending.tend(tx.signer_id)
    assert tx.versions.count() == 2


def test_a_header_that_is_known_is_not_reserved_for(costly, key, one_by_one):
    batch = submit(key, request(ALICE, block=one_by_one, fee=ETHER))
    stop_switch.stop(31337)
    for _ in range(3):
        work()
    elsewhere = submit(key, request(ALICE, block=one_by_one - 1, fee=ETHER))
    accept(elsewhere.pk)
    assert unproven(batch, with_paths=True).gas < unproven(elsewhere, with_paths=True).gas - 40_000


# --- Those who ask at the same block ----------------------------------------------------------------------------------


def test_who_asks_for_little_pays_little_whoever_else_asks_for_much(costly, key):
    block = costly.head()
    little = submit(key, request(ALICE, block=block, fee=ETHER))
    slots = [hex(slot << 30) for slot in range(60)]
    much = submit(a_key(BOB), asking(block, ETHER, **{CHARLIE: {"props": ["BALANCE"], "slots": slots}}))
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(little, costly).status == work_until_done(much, costly).status == BatchStatus.DONE
    work()
    tx = Transaction.objects.get()
    assert fresh(little).gas_used < tx.gas_used // 10
    assert little.gas_used + fresh(much).gas_used in {tx.gas_used, tx.gas_used - 1}


@pytest.mark.parametrize("depth", [0, 120], ids=["young", "old"])
def test_who_cannot_pay_holds_up_nobody_at_the_same_block(costly, key, settings, depth):
    reconfigure(settings, 'block_hash_source = "native"', 'block_hash_source = "native"\nwindow = 40')
    costly.rpc("evm_setAutomine", True)
    FactsRegistry.objects.all().delete()
    deploy(31337, 31337)
    block = costly.head()
    costly.mine(depth)
    poor = submit(key, request(ALICE, BOB, block=block, fee=ETHER))
    accept(poor.pk)
    # As if gas had become dearer since.
    Batch.objects.filter(pk=poor.pk).update(fee=1)
    rich = submit(a_key(BOB), request(CHARLIE, BOB, block=block, fee=ETHER))
    assert work_until_done(rich, costly, rounds=20).status == BatchStatus.DONE
    assert Transaction.objects.exclude(extends=None).exists() == bool(depth)
    assert (fresh(poor).status, poor.gas_used) == (BatchStatus.IN_PROGRESS, 0)
    Batch.objects.filter(pk=poor.pk).update(fee=ETHER)
    assert work_until_done(poor, costly).status == BatchStatus.DONE


def test_a_path_counts_once(costly, key, settings):
    """What its transaction takes is a part of what was planned for it."""
    reconfigure(settings, 'block_hash_source = "native"', 'block_hash_source = "native"\nwindow = 40')
    FactsRegistry.objects.all().delete()
    costly.rpc("evm_setAutomine", True)
    deploy(31337, 31337)
    Transaction.objects.all().delete()
    block = costly.head()
    costly.mine(100)
    batch = submit(key, request(ALICE, block=block, fee=ETHER))
    accept(batch.pk)
    Batch.objects.update(fee=2 * 250_000 * price_of(costly) * 105 // 100)
    assert work_until_done(batch, costly).status == BatchStatus.DONE


def test_of_a_path_riders_pay_a_bounded_part_and_never_more_than_an_equal_one(costly, key):
    head = costly.head()
    far = submit(key, request(ALICE, block=head, fee=ETHER))
    near = [submit(a_key(BOB, f"key {place}"), request(BOB, block=head - 1, fee=ETHER)) for place in range(2)]
    for batch in (far, *near):
        accept(batch.pk)
    signer = Signer.objects.create(chain_id=31337, address=ALICE)

    def weights(nonce: int, gas_limit: int) -> dict[str, int]:
        path = Transaction.objects.create(
            signer=signer, nonce=nonce, data=b"", gas_limit=gas_limit, leads_to=Block.objects.get(number=head)
        )
        path.queries.set(Query.objects.filter(batch__in=[far, *near]))
        return shares.weights_of(path)

    half = RIDER_GAS // 2
    assert weights(0, 10**6) == {far.pk: 10**6 - RIDER_GAS, near[0].pk: half, near[1].pk: half}
    assert weights(1, 21_000) == {far.pk: 10_500, near[0].pk: 5_250, near[1].pk: 5_250}


def test_what_a_reorg_takes_back_counts_as_the_most_that_it_can_cost(costly, key):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    most = tx.cost
    snapshot = costly.rpc("evm_snapshot")
    costly.mine()
    tending.tend(tx.signer_id)
    assert Share.objects.get(batch=batch).wei < most
    costly.rpc("evm_revert", snapshot)
    costly.rpc("anvil_dropAllTransactions")
    costly.rpc("evm_setNextBlockTimestamp", hex(int(timezone.now().timestamp()) + 100))
    costly.mine(3)
    tending.tend(tx.signer_id)
    tx.refresh_from_db()
    assert tx.state == TransactionState.PENDING
    assert (Share.objects.get(batch=batch).gas, Share.objects.get(batch=batch).wei) == (tx.gas_limit, most)


# --- Limits in money --------------------------------------------------------------------------------------------------


def test_where_money_is_real_there_are_limits_though_nobody_wrote_any(costly):
    chain = get_chains().chain(31337)
    assert (chain.daily_limit_wei, chain.daily_limit_per_user_wei) == (ETHER // 2, ETHER // 10)


def test_the_signer_spends_no_more_in_a_day_than_its_limit(costly, key, settings):
    mine_at(costly, 10)
    block = costly.head()
    first = submit(key, request(ALICE, block=block, fee=ETHER))
    other = submit(a_key(BOB), request(BOB, block=block - 1, fee=ETHER))
    for batch in (first, other):
        accept(batch.pk)
    reconfigure(settings, "test_network = false", "test_network = false\ndaily_limit = '0.0035'")
    for _ in range(4):
        work()
    (tx,) = Transaction.objects.all()
    assert tx.cost <= ETHER * 35 // 10_000
    assert Transaction.objects.count() == 1
    notice = Signer.objects.get().notice
    assert notice.startswith("The operator's limit of 0.0035 ETH in 24 hours on chain 31337 leaves ")
    assert notice in waiting()
    # A day later.
    costly.rpc("evm_setAutomine", True)
    costly.mine()
    work()
    Transaction.objects.update(spent_at=tx.created_at.replace(year=2020))
    assert work_until_done(first, costly).status == BatchStatus.DONE
    assert work_until_done(other, costly).status == BatchStatus.DONE
    assert Signer.objects.get().notice == ""


@pytest.mark.parametrize(("percent", "versions"), [(105, 1), (150, 2)])
def test_fees_are_not_raised_above_the_days_limit(costly, key, settings, percent, versions):
    """Its own cost is no other's."""
    mine_at(costly, 2)
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    costly.rpc("anvil_dropAllTransactions")
    limit = tx.cost * percent // 100
    reconfigure(settings, "test_network = false", f"test_network = false\ndaily_limit = '{limit / ETHER:.18f}'")
    mine_at(costly, 8)
    age()
    work()
    assert tx.versions.count() == versions


def test_fees_are_not_raised_above_a_users_limit(costly, key, settings):
    mine_at(costly, 2)
    tx = pending(submit(key, request(ALICE, block=costly.head(), fee=ETHER)))
    costly.rpc("anvil_dropAllTransactions")
    mine_at(costly, 8)
    limit = "test_network = false"
    for percent, versions in ((105, 1), (150, 2)):
        ether = tx.cost * percent // 100 / ETHER
        reconfigure(settings, limit, f"test_network = false\ndaily_limit_per_user = '{ether:.18f}'")
        limit = f"test_network = false\ndaily_limit_per_user = '{ether:.18f}'"
        age()
        work()
        assert SignedTransaction.objects.count() == versions


def test_the_operators_own_transactions_count_for_the_days_limit(chain, key, settings, tmp_path):
    settings.ALLOWED_ADDRESSES = ["*"]
    settings.CHAINS_FILE = chains_toml(tmp_path, chain.url, chain=f"{COSTLY}\ndaily_limit = '0.000001'")
    with pytest.raises(CommandError, match=r"limit of 0\.000001 ETH in 24 hours"):
        call_command("deploy_registry", "31337", "31337")
    assert not Transaction.objects.exists()


def test_a_user_spends_no_more_in_a_day_than_a_users_limit(costly, key, settings):
    mine_at(costly, 1)
    reconfigure(settings, "test_network = false", "test_network = false\ndaily_limit_per_user = '0.0008'")
    costly.rpc("evm_setAutomine", True)
    head = costly.head()
    said = set()
    done = 0
    for place in range(6):
        batch = submit(key, request(ALICE, block=head - place, fee=ETHER))
        for _ in range(4):
            work()
        said.add(fresh(batch).rejection_code)
        done += batch.status == BatchStatus.DONE
    assert said == {"", "budget_exceeded"}
    assert 0 < done < 6
    assert sum(tx.cost for tx in Transaction.objects.all()) <= ETHER * 8 // 10_000
    # Another's is another.
    other = submit(a_key(BOB), request(BOB, block=head, fee=ETHER))
    assert work_until_done(other).status == BatchStatus.DONE


def test_what_a_user_has_spent_in_another_currency_is_no_matter(costly, key, settings):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    elsewhere = submit(key, request(BOB, block=costly.head(), fee=ETHER))
    Batch.objects.filter(pk=elsewhere.pk).update(destination_chain_id=5)
    signer = Signer.objects.create(chain_id=5, address=SIGNER)
    mined = Transaction.objects.create(
        signer=signer, nonce=0, data=b"", gas_limit=1, state=TransactionState.FINAL, gas_used=1, gas_price=ETHER
    )
    Share.objects.create(transaction=mined, batch=elsewhere, gas=1, wei=ETHER, weight=1)
    assert (promised.on_chain(31337), promised.on_chain(5)) == (0, ETHER)
    pending(batch)


def test_what_a_user_has_spent_longer_than_a_day_ago_is_no_matter(costly, key, settings):
    earlier = submit(key, request(BOB, block=costly.head(), fee=ETHER))
    signer = Signer.objects.create(chain_id=31337, address=ALICE)
    mined = Transaction.objects.create(
        signer=signer,
        nonce=0,
        data=b"",
        gas_limit=1,
        state=TransactionState.FINAL,
        spent_at=timezone.now() - timedelta(days=2),
    )
    Share.objects.create(transaction=mined, batch=earlier, gas=1, wei=ETHER, weight=1)
    rejected_late(earlier)
    pending(submit(key, request(ALICE, block=costly.head(), fee=ETHER)))


def test_a_price_that_rises_takes_nobody_above_a_users_limit(costly, key, settings):
    """Accepted at one price, it isn't sent at another that would take more than the user may cause."""
    mine_at(costly, 1)
    reconfigure(settings, "test_network = false", "test_network = false\ndaily_limit_per_user = '0.0008'")
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    assert fresh(batch).status == BatchStatus.ACCEPTED
    mine_at(costly, 20)
    work()
    work()
    assert not Transaction.objects.exists()
    assert "the daily limit of its user leaves 0.000800 ETH" in waiting()[0]


# --- The stop switch --------------------------------------------------------------------------------------------------


def test_a_stop_takes_effect_before_the_next_signature(costly, key):
    call_command("stop_signing", "31337", "--reason", "The key may have leaked.")
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    for _ in range(3):
        work()
    assert not SignedTransaction.objects.exists()
    assert waiting() == ["The operator has stopped sending on chain 31337. The reason given: The key may have leaked."]
    call_command("resume_signing")
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(batch, costly).status == BatchStatus.DONE
    assert Signer.objects.get().notice == ""


def test_a_stop_between_the_check_and_the_signature_is_seen(costly, key, monkeypatch):
    affordable = funds.affordable

    def stopped_just_now(*arguments):
        can_pay = affordable(*arguments)
        stop_switch.stop(31337)
        return can_pay

    monkeypatch.setattr(funds, "affordable", stopped_just_now)
    submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    for _ in range(3):
        work()
    assert not Transaction.objects.exists()
    assert waiting() == ["The operator has stopped sending on chain 31337."]


def test_a_stop_holds_for_replacements_and_broadcasts_too(costly, key):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    costly.rpc("anvil_dropAllTransactions")
    stop_switch.stop(31337)
    age()
    SignedTransaction.objects.update(broadcast_at=None)
    work()
    rejected_late(batch)  # Else replaced by an empty one.
    work()
    assert tx.versions.count() == 1
    assert costly.rpc("txpool_status") == {"pending": "0x0", "queued": "0x0"}
    stop_switch.resume(31337)
    work()
    assert tx.versions.count() == 2


def test_only_destinations_can_be_stopped(costly):
    with pytest.raises(CommandError, match="Not a destination chain: 5"):
        call_command("stop_signing", "5")


# --- Rollups ----------------------------------------------------------------------------------------------------------


def test_what_an_op_stack_chain_takes_for_data_is_spent_too(op_stack, key, settings, tmp_path):
    with telling_receipts(op_stack) as url:
        serve(settings, tmp_path, op_stack, url)
        before = balance(op_stack)
        batch = work_until_done(submit(key, request(ALICE, BOB, block=op_stack.head(), fee=ETHER)))
        work()
    assert fresh(batch).spent == before - balance(op_stack)
    assert batch.spent <= (batch.estimated_wei or 0)
    tx = Transaction.objects.get()
    assert tx.data_fee > tx.gas_used * tx.gas_price // 10  # No small matter.


def test_where_receipts_do_not_tell_the_data_fee_the_expected_one_counts(op_stack, key, settings, tmp_path):
    serve(settings, tmp_path, op_stack)
    before = balance(op_stack)
    batch = work_until_done(submit(key, request(ALICE, BOB, block=op_stack.head(), fee=ETHER)))
    work()
    assert before - balance(op_stack) <= fresh(batch).spent <= (batch.estimated_wei or 0)


@pytest.mark.parametrize("limit", ["daily_limit", "daily_limit_per_user"])
def test_limits_in_money_hold_for_data_fees_too(op_stack, key, settings, tmp_path, limit):
    """A limit that suffices for the gas alone, and was no matter when the batch was accepted."""
    serve(settings, tmp_path, op_stack)
    batch = submit(key, request(ALICE, block=op_stack.head(), fee=ETHER))
    accept(batch.pk)
    reconfigure(settings, "test_network = false", f"test_network = false\n{limit} = '0.0004'")
    work()
    work()
    assert not Transaction.objects.exists()
    assert fresh(batch).status == BatchStatus.IN_PROGRESS
    oracle_at(op_stack, GAS_PRICE_ORACLE).send("set", 0, 0, False)
    assert work_until_done(batch).status == BatchStatus.DONE


def test_fees_are_not_raised_where_the_days_limit_leaves_only_the_data_fee(op_stack, key, settings, tmp_path):
    serve(settings, tmp_path, op_stack)
    op_stack.rpc("evm_setAutomine", False)
    tx = pending(submit(key, request(ALICE, block=op_stack.head(), fee=ETHER)))
    limit = tx.cost * 105 // 100
    # Without the data fee there would be room for higher ones.
    assert limit > (tx.cost - tx.data_fee) * 120 // 100
    reconfigure(settings, "test_network = false", f"test_network = false\ndaily_limit = '{limit / ETHER:.18f}'")
    age()
    work()
    assert tx.versions.count() == 1


def test_a_fee_that_suffices_for_the_gas_alone_is_too_low_there(op_stack, key, settings, tmp_path):
    serve(settings, tmp_path, op_stack)
    batch = submit(key, request(ALICE, block=op_stack.head(), fee=150_000 * 2 * GWEI))
    work()
    assert fresh(batch).rejection_code == "fee_too_low"
    assert " wei for its data, " in batch.rejection_reason


def test_a_data_fee_that_has_risen_is_waited_out(op_stack, key, settings, tmp_path):
    serve(settings, tmp_path, op_stack)
    batch = submit(key, request(ALICE, block=op_stack.head(), fee=10**16))
    accept(batch.pk)
    assert fresh(batch).status == BatchStatus.ACCEPTED
    oracle = oracle_at(op_stack, GAS_PRICE_ORACLE)
    oracle.send("set", 100 * FEE_OF_A_BYTE, 0, False)
    work()
    work()
    assert not Transaction.objects.exists()
    assert "1 query is left undone" in waiting()[0]
    oracle.send("set", FEE_OF_A_BYTE, 0, False)
    assert work_until_done(batch).status == BatchStatus.DONE


def test_the_signers_balance_must_do_for_the_data_fee(op_stack, key, settings, tmp_path):
    serve(settings, tmp_path, op_stack)
    op_stack.rpc("anvil_setBalance", SIGNER, hex(10**15))
    op_stack.mine()
    submit(key, request(ALICE, block=op_stack.head(), fee=ETHER))
    oracle_at(op_stack, GAS_PRICE_ORACLE).send("set", 10 * FEE_OF_A_BYTE, 0, False)
    work()
    work()
    assert not Transaction.objects.exists()
    assert "that it may have to pay" in waiting()[0]


def test_an_operators_fee_is_spent_too(op_stack, key, settings, tmp_path):
    """Since Isthmus. A receipt tells how it is set, and the predeploy how it is computed from that."""
    oracle_at(op_stack, GAS_PRICE_ORACLE).send("set", FEE_OF_A_BYTE, 7, False)
    with telling_receipts(op_stack, operatorFeeScalar="0x1", operatorFeeConstant="0x0") as url:
        serve(settings, tmp_path, op_stack, url)
        before = balance(op_stack)
        batch = work_until_done(submit(key, request(ALICE, block=op_stack.head(), fee=ETHER)))
        work()
    tx = Transaction.objects.get()
    # anvil doesn't take it.
    assert fresh(batch).spent == before - balance(op_stack) + 7 * tx.gas_used


def test_what_is_too_long_for_one_transaction_takes_the_fees_of_several(op_stack, key, settings, tmp_path):
    serve(settings, tmp_path, op_stack)
    oracle_at(op_stack, GAS_PRICE_ORACLE).send("set", FEE_OF_A_BYTE, 7, False)
    assert data_cost(get_rpc(31337), 250_000, 1000).wei == 3 * (2 * FEE_OF_A_BYTE * (250_000 // 3 + 200) + 7 * 1000)


def test_before_fjord_each_byte_is_asked_for(op_stack, key, settings, tmp_path):
    oracle_at(op_stack, GAS_PRICE_ORACLE).send("set", FEE_OF_A_BYTE, 0, True)
    serve(settings, tmp_path, op_stack)
    before = balance(op_stack)
    batch = work_until_done(submit(key, request(ALICE, block=op_stack.head(), fee=ETHER)))
    work()
    assert before - balance(op_stack) <= fresh(batch).spent


def test_arbitrums_gas_for_data_is_in_the_estimate_and_counted_once(chain, key, settings, tmp_path):
    serve(settings, tmp_path, chain)
    elsewhere = submit(key, request(ALICE, block=chain.head() - 1, fee=ETHER))
    accept(elsewhere.pk)
    chain.rpc("anvil_setCode", ARB_GAS_INFO, "0xfe")
    oracle_at(chain, NODE_INTERFACE).send("set", 50, 0, False)
    forget_chains()
    before = balance(chain)
    batch = submit(key, request(ALICE, block=chain.head(), fee=ETHER))
    accept(batch.pk)
    of_data = (fresh(batch).estimated_gas or 0) - (fresh(elsewhere).estimated_gas or 0)
    # Twice what a byte takes, of a header of 600 or so and an account.
    assert 2 * 50 * 600 < of_data < 2 * 50 * 1800
    assert work_until_done(batch).status == work_until_done(elsewhere).status == BatchStatus.DONE
    work()
    assert fresh(batch).spent + fresh(elsewhere).spent in {spent := before - balance(chain), spent - 1}


# As Optimism's node tells them since Ecotone, since Isthmus, and Arbitrum's.
RECEIPTS = {
    "l1Fee": ({"l1Fee": "0x24a1e7f3", "l1GasUsed": "0x640", "l1FeeScalar": None}, 0x24A1E7F3, False),
    "operator": ({"l1Fee": "0x8", "operatorFeeScalar": "0x0", "operatorFeeConstant": "0x5"}, 8, True),
    "no operator": ({"l1Fee": "0x8", "operatorFeeScalar": "0x0", "operatorFeeConstant": "0x0"}, 8, False),
    "arbitrum": ({"gasUsedForL1": "0x1f4", "l1BlockNumber": "0x1", "timeboosted": False}, None, False),
    "ethereum": ({}, None, False),
}


@pytest.mark.parametrize(("more", "data_fee", "has_operator_fee"), RECEIPTS.values(), ids=RECEIPTS.keys())
def test_receipts_of_rollups_are_read(chain, more, data_fee, has_operator_fee):
    sent = chain.rpc("eth_sendTransactionSync", {"from": ALICE, "to": BOB, "value": "0x1"})
    reader = _read_receipt(sent | more)
    assert (reader.data_fee, reader.has_operator_fee) == (data_fee, has_operator_fee)
    assert reader.gas_used == int(sent["gasUsed"], 16)
