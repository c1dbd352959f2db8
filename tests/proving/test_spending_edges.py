"""What could make somebody pay more than was promised, or hold up others: each was so once."""

import random
from typing import Any

import pytest
import requests
from django.utils import timezone
from eth_utils.crypto import keccak

from benchmarks import gas as bench
from benchmarks.gas import Case, Lab
from chains import packed
from chains.packed import AccountToProve
from chains.rollups import GAS_PRICE_ORACLE
from devnet.devchain import DevChain
from proving.acceptance import accept
from proving.models import FactsRegistry, Share, Signer, Transaction, TransactionState
from proving.reconcile.block import reconcile
from proving.registry.deploying import deploy
from proving.spending import promised, shares
from proving.spending.estimates import RIDER_GAS
from proving.transactions.intents import NotPaid
from proving.transactions.tending import tend
from queries import progress, submission
from queries.models import Batch, BatchStatus, Block
from tests.chains.lying_node import ask, error, lying_node
from tests.contracts import tries
from tests.proving.money import ETHER, GWEI, asking, mine_at, pending, price_of, rejected_late, serve
from tests.proving.receipts import changed_receipts, telling_receipts
from tests.proving.rollups import FEE_OF_A_BYTE, oracle_at
from tests.proving.transactions import age
from tests.service import ALICE, BOB, CHARLIE, SIGNER, a_key, fresh, reconfigure, request, submit, waiting, work


def poor_one(key, chain: DevChain, *accounts: str, block: int, gwei: float = 3) -> tuple[Batch, Transaction]:
    """A batch whose fee suffices for gas at so much, with its transaction in the mempool."""
    batch = submit(key, request(*accounts, block=block, fee=ETHER))
    accept(batch.pk)
    Batch.objects.filter(pk=batch.pk).update(fee=int(302_000 * gwei * GWEI))
    return batch, pending(batch)


# --- Stalling others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("account", [ALICE, BOB], ids=["the same account", "another account"])
def test_who_asks_at_a_block_whose_transaction_its_fee_lets_nobody_mine_is_not_held_up(costly, key, account):
    """Nothing is behind it in the mempool, since all who need the block's header wait for it."""
    mine_at(costly, 1)
    block = costly.head()
    _, tx = poor_one(key, costly, ALICE, block=block)
    mine_at(costly, 20)
    rich = submit(a_key(BOB), request(account, block=block, fee=ETHER))
    for _ in range(10):
        work()
        age()
        mine_at(costly, 20)
    assert fresh(rich).status == BatchStatus.DONE, waiting()
    assert tx.newest.is_cancellation


def old_blocks(chain: DevChain, settings, depth: int = 120) -> int:
    """A registry whose source vouches for 40 blocks; a block that is `depth` below the newest one."""
    reconfigure(settings, 'block_hash_source = "native"', 'block_hash_source = "native"\nwindow = 40')
    chain.rpc("evm_setAutomine", True)
    FactsRegistry.objects.all().delete()
    deploy(31337, 31337)
    Transaction.objects.all().delete()
    chain.mine(60)
    block = chain.head()
    chain.mine(depth)
    chain.rpc("evm_setAutomine", False)
    return block


def test_a_path_that_its_fee_lets_nobody_mine_holds_up_no_other_path(costly, key, settings):
    block = old_blocks(costly, settings)
    mine_at(costly, 1)
    poor = submit(key, request(ALICE, block=block, fee=ETHER))
    accept(poor.pk)
    Batch.objects.filter(pk=poor.pk).update(fee=int((fresh(poor).estimated_gas or 0) * 3 * GWEI))
    tx = pending(poor)
    assert tx.extends_id is not None
    mine_at(costly, 20)
    rich = submit(a_key(BOB), request(BOB, block=block - 5, fee=ETHER))
    for _ in range(5):
        work()
        age()
        mine_at(costly, 20)
    assert rich.queries.filter(transactions__isnull=False).exists(), waiting()
    assert tx.newest.is_cancellation


def test_a_nonce_is_cancelled_though_the_fee_leaves_a_little_more_than_was_offered(costly, key):
    """The market asks for 5 % more than was offered, the money allows 10 %, and a replacement takes 13 %."""
    mine_at(costly, 25)
    block = costly.head()
    poor, tx = poor_one(key, costly, ALICE, block=block, gwei=60)
    offered = tx.newest.max_fee_per_gas
    Batch.objects.filter(pk=poor.pk).update(fee=tx.gas_limit * offered * 110 // 100)
    price = offered * 105 / 100 / GWEI - 1  # The tip is 1 gwei.
    mine_at(costly, price)
    rich = submit(a_key(BOB), request(BOB, block=block - 1, fee=ETHER))
    for _ in range(8):
        work()
        age()
        mine_at(costly, price)
    assert fresh(rich).status == BatchStatus.DONE, waiting()


def fill_history(chain: DevChain) -> None:
    """As that of a chain that has been there for long: the history contract's storage is a full ring."""
    words = random.Random(17)
    for slots in (range(first, min(first + 500, bench.WINDOW)) for first in range(2_000, bench.WINDOW, 500)):
        body = [
            {
                "jsonrpc": "2.0",
                "id": slot,
                "method": "anvil_setStorageAt",
                "params": [bench.HISTORY, f"0x{slot:064x}", f"0x{words.randrange(1, 2**256):064x}"],
            }
            for slot in slots
        ]
        assert requests.post(chain.url, json=body, timeout=60).ok


@pytest.mark.parametrize("riders", [0, 12])
def test_riders_who_cannot_pay_hold_up_nobody_on_whose_path_they_are(costly, key, settings, riders):
    settings.DAILY_GAS_BUDGET = 10**9
    fill_history(costly)
    block = old_blocks(costly, settings, depth=60)
    mine_at(costly, 1)
    victim = submit(a_key(BOB), request(BOB, block=block, fee=ETHER))
    accept(victim.pk)
    Batch.objects.filter(pk=victim.pk).update(fee=fresh(victim).estimated_wei)
    if riders:
        wanted = {"accounts": {ALICE: {"props": ["BALANCE"], "slots": []}}}
        data = {"31337": {f"block:{block + 1 + place}": wanted for place in range(riders)}}
        poor = submit(key, {"destinationChainId": "31337", "fee": str(ETHER), "data": data})
        accept(poor.pk)
        assert fresh(poor).status == BatchStatus.ACCEPTED, poor.rejection_reason
        Batch.objects.filter(pk=poor.pk).update(fee=1)
    for _ in range(5):
        work()
        mine_at(costly, 1)
    assert fresh(victim).status == BatchStatus.DONE, waiting()


def test_where_a_transaction_takes_gas_for_its_data_a_nonce_is_cancelled_too(costly, key, settings):
    """As on Arbitrum, whose nodes refuse what has not enough gas for its part of L1's."""
    takes = [25_000]

    def answer(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_sendRawTransaction" and len(body["params"][0]) < 2 * 200:
            return error(body, -32000, "intrinsic gas too low")
        if isinstance(body, dict) and body["method"] == "eth_estimateGas" and len(str(body["params"][0])) < 300:
            return {"jsonrpc": "2.0", "id": body["id"], "result": hex(takes[-1])}
        return ask(costly.url, body)

    with lying_node(answer) as url:
        reconfigure(settings, costly.url, url)
        batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
        tx = pending(batch)
        costly.rpc("anvil_dropAllTransactions")
        rejected_late(batch)
        work()
        assert tx.newest.is_cancellation
        assert tx.newest.gas >= 25_000
        takes.append(60_000)
        age()
        work()
        assert tx.newest.gas >= 60_000


@pytest.mark.parametrize("wanted", [{"accounts": {BOB: {"props": ["BALANCE"]}}}, "timed"], ids=["an account", "a time"])
def test_who_cannot_pay_for_a_time_holds_up_nobody_at_its_block(costly, key, wanted):
    costly.rpc("anvil_setBlockTimestampInterval", 10)
    costly.mine(12)
    mine_at(costly, 1)
    block = costly.head() - 6
    time = int(costly.rpc("eth_getBlockByNumber", hex(block), False)["timestamp"], 16)
    of_poor = {f"timestamp:{time + 1}": {"accounts": {ALICE: {"props": ["BALANCE"]}}}}
    of_rich = (
        {f"timestamp:{time + 2}": of_poor[f"timestamp:{time + 1}"]} if wanted == "timed" else {f"block:{block}": wanted}
    )
    poor, rich = (
        submit(one, {"destinationChainId": "31337", "fee": str(ETHER), "data": {"31337": data}})
        for one, data in ((key, of_poor), (a_key(BOB), of_rich))
    )
    for batch in (poor, rich):
        accept(batch.pk)
        assert fresh(batch).status == BatchStatus.ACCEPTED, batch.rejection_reason
    assert poor.queries.get().block == rich.queries.get().block
    Batch.objects.filter(pk=poor.pk).update(fee=1)
    for _ in range(8):
        work()
        mine_at(costly, 1)
    assert fresh(rich).status == BatchStatus.DONE, waiting()
    assert fresh(poor).spent == 0


def test_many_queries_that_cannot_be_paid_for_keep_nobody_from_being_looked_at(costly, key, monkeypatch):
    monkeypatch.setattr("proving.reconcile.observe._QUERIES_PER_LOOK", 2)
    mine_at(costly, 1)
    block = costly.head()
    poor = submit(key, request(ALICE, BOB, CHARLIE, block=block, fee=ETHER))
    rich = submit(a_key(BOB), request(SIGNER, block=block, fee=ETHER))
    for batch in (poor, rich):
        accept(batch.pk)
    Batch.objects.filter(pk=poor.pk).update(fee=1)
    for _ in range(8):
        work()
        mine_at(costly, 1)
    assert fresh(rich).status == BatchStatus.DONE, waiting()


def test_a_batch_that_is_rejected_while_it_cannot_pay_is_left_alone(costly, key, monkeypatch):
    """As at its deadline, which most often comes while it waits for cheaper gas."""
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    asked = []

    def too_dear(*_: Any, **__: Any) -> NotPaid:
        asked.append(1)
        assert len(asked) < 3
        rejected_late(batch)
        return NotPaid("Too dear.", frozenset({batch.pk}))

    monkeypatch.setattr("proving.transactions.sending.submit_all", too_dear)
    reconcile(Block.objects.get(queries__batch=batch).pk)
    assert asked == [1]


# --- A fee ------------------------------------------------------------------------------------------------------------


def test_a_cancellation_costs_no_batch_more_than_its_fee(costly, key):
    mine_at(costly, 1)
    block = costly.head()
    poor, tx = poor_one(key, costly, ALICE, block=block)
    mine_at(costly, 90)
    rich = submit(a_key(BOB), request(BOB, block=block - 1, fee=ETHER))
    for _ in range(8):
        work()
        age()
        mine_at(costly, 90)
    assert fresh(rich).status == BatchStatus.DONE
    assert tx.newest.is_cancellation
    assert fresh(poor).spent <= poor.fee


def test_a_cancellation_is_within_the_daily_limit(costly, key, settings):
    mine_at(costly, 1)
    batch, tx = poor_one(key, costly, ALICE, block=costly.head())
    most = tx.cost * 105 // 100
    reconfigure(settings, "test_network = false", f"test_network = false\ndaily_limit = '{most / ETHER:.18f}'")
    rejected_late(batch)
    mine_at(costly, 150)
    for _ in range(4):
        age()
        work()
        mine_at(costly, 150)
    assert tx.newest.is_cancellation
    assert promised.on_chain(31337) <= most
    mine_at(costly, 1)
    for _ in range(4):
        age()
        work()
        mine_at(costly, 1)
    tx.refresh_from_db()
    assert tx.state != TransactionState.PENDING
    assert promised.on_chain(31337) <= most


def test_a_replacement_burns_no_fee_on_a_part_of_a_query(costly, key, settings):
    """One account with so many slots that they take several transactions: gas becomes dearer when one is sent."""
    mine_at(costly, 1)
    settings.DAILY_GAS_BUDGET = 10**9
    much_money = "test_network = false\ndaily_limit = '100'\ndaily_limit_per_user = '100'"
    reconfigure(settings, "test_network = false", much_money)
    slots = [hex(slot * 7919 * 2**40) for slot in range(1000)]
    batch = submit(key, asking(costly.head(), ETHER, **{CHARLIE: {"props": ["BALANCE"], "slots": slots}}))
    accept(batch.pk)
    Batch.objects.filter(pk=batch.pk).update(fee=fresh(batch).estimated_wei)
    tx = pending(batch)
    costly.rpc("anvil_dropAllTransactions")
    mine_at(costly, 12)
    first = tx.newest.max_fee_per_gas
    for _ in range(4):
        age()
        work()
    offered = tx.newest.max_fee_per_gas
    assert offered <= max(first, (batch.estimated_wei or 0) // (batch.estimated_gas or 1) * 2), (first, offered)


def test_what_is_left_of_a_query_that_was_begun_is_reserved_for(costly, key, settings):
    """Two blocks with an account of many slots: the one that is begun is not paid for yet."""
    settings.DAILY_GAS_BUDGET = 10**9
    much_money = "test_network = false\ndaily_limit = '100'\ndaily_limit_per_user = '100'"
    reconfigure(settings, "test_network = false", much_money)
    costly.mine(2)
    mine_at(costly, 1)
    slots = [hex(slot * 7919 * 2**40) for slot in range(1000)]
    wanted = {"accounts": {CHARLIE: {"props": ["BALANCE"], "slots": slots}}}
    head = costly.head()
    data = {"31337": {f"block:{head - place}": wanted for place in range(2)}}
    batch = submit(key, {"destinationChainId": "31337", "fee": str(100 * ETHER), "data": data})
    accept(batch.pk)
    assert fresh(batch).status == BatchStatus.ACCEPTED, batch.rejection_reason
    first, second = Block.objects.filter(number__in=(head, head - 1)).order_by("number")
    reconcile(first.pk)
    assert Transaction.objects.count() == 1
    # Enough for a half and a little more, at the price that comes.
    mine_at(costly, 12)
    Batch.objects.filter(pk=batch.pk).update(fee=(fresh(batch).estimated_gas or 0) * price_of(costly) * 65 // 100)
    reconcile(second.pk)
    assert Transaction.objects.count() == 1


# --- Shares -----------------------------------------------------------------------------------------------------------


def path_with_a_rider(chain: DevChain, key, settings) -> tuple[Batch, Batch, Transaction]:
    """Who goes to an old block, who rides along, and the path, which is pending."""
    block = old_blocks(chain, settings, depth=60)
    mine_at(chain, 1)
    far = submit(key, request(CHARLIE, block=block, fee=ETHER))
    near = submit(a_key(BOB), request(BOB, block=block + 3, fee=ETHER))
    for batch in (far, near):
        accept(batch.pk)
    reconcile(Block.objects.get(number=block).pk)
    return far, near, Transaction.objects.exclude(extends=None).get()


def test_who_rides_along_pays_no_path_when_a_reorg_moves_the_other_to_another_block(costly, key, settings):
    far, near, path = path_with_a_rider(costly, key, settings)
    before = Share.objects.get(batch=near).wei
    assert 0 < before < Share.objects.get(batch=far).wei
    # As a reorg of the source chain does with what names a time.
    query = far.queries.get()
    assert query.block is not None
    pair = (31337, query.block.number + 1)
    progress.move([query.pk], submission.find_blocks(31337, {pair})[pair], reason="The chain was reorganised.")
    shares.divide(path)
    assert Share.objects.get(batch=near).wei <= before


def test_who_goes_to_an_old_block_does_not_pay_for_those_who_ride_along(costly, key, settings):
    """Alone it takes 213,000."""
    settings.DAILY_GAS_BUDGET = 10**9
    fill_history(costly)
    block = old_blocks(costly, settings, depth=60)
    mine_at(costly, 1)
    victim = submit(a_key(BOB), request(BOB, block=block, fee=ETHER))
    wanted = {"accounts": {ALICE: {"props": ["BALANCE"], "slots": []}}}
    data = {"31337": {f"block:{block + 1 + place}": wanted for place in range(35)}}
    riding = submit(key, {"destinationChainId": "31337", "fee": str(ETHER), "data": data})
    for batch in (victim, riding):
        accept(batch.pk)
    reconcile(Block.objects.get(number=block).pk)
    path = Transaction.objects.get()
    assert path.queries.count() > 20
    for _ in range(2):
        mine_at(costly, 1)
        tend(path.signer_id)
    path.refresh_from_db()
    assert path.state != TransactionState.PENDING
    assert Share.objects.get(transaction=path, batch=victim).gas <= 300_000


def test_a_second_source_chain_makes_no_batch_pay_more_of_what_was_signed(costly, key):
    """What was nearly all proven before counted little; with more admitted it counts whole, also of what was signed."""
    block = costly.head()
    slots = {ALICE: {"props": ["BALANCE"], "slots": ["0x1", "0x2"]}}
    two = submit(key, asking(block, ETHER, **slots))
    other = submit(a_key(BOB), request(CHARLIE, block=block, fee=ETHER))
    for batch in (two, other):
        accept(batch.pk)
    # As if a part of it had been proven before.
    Batch.objects.filter(pk=two.pk).update(estimated_gas=20_000)
    tx = pending(two)
    share = Share.objects.get(batch=two)
    Batch.objects.filter(pk=two.pk).update(fee=share.wei)
    progress.admit(fresh(two), 5, estimated_gas=1_000_000, estimated_wei=1)
    costly.mine(3)
    work()
    tx.refresh_from_db()
    assert tx.state != TransactionState.PENDING
    assert Share.objects.get(batch=two, transaction=tx).gas <= share.gas


# --- Budgets ----------------------------------------------------------------------------------------------------------


def test_what_reverts_and_is_sent_again_stays_within_the_budget(costly, key, settings):
    settings.DAILY_GAS_BUDGET = 200_000
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    code = costly.rpc("eth_getCode", tx.to, "latest")
    for _ in range(4):
        costly.rpc("anvil_setCode", tx.to, "0xfe")
        costly.mine()
        costly.rpc("anvil_setCode", tx.to, code)
        for _ in range(4):
            work()
    used = sum(tx.gas for tx in Transaction.objects.all())
    assert used <= 320_000, (Transaction.objects.count(), used)


# --- Nodes that lie ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"gasUsed": "0x0"},
        {"gasUsed": hex(21_000 + 10_000)},
        {"gasUsed": hex(10**9)},
    ],
    ids=["no gas", "less than its calldata takes", "more gas than it has"],
)
def test_a_receipt_that_no_block_can_have_is_not_believed(costly, key, settings, fields):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    most, least = tx.cost, 40_000
    with changed_receipts(costly, **fields) as url:
        reconfigure(settings, costly.url, url)
        costly.mine()
        work()
        work()
        rejected_late(batch)
        promise = promised.to_user(key.user_id, [31337])
    assert least < promise.gas <= tx.gas_limit
    assert 0 < promise.wei <= most


@pytest.mark.parametrize("told", [0, 1, 10**6 * GWEI], ids=["nothing", "the tip alone", "more than was offered"])
def test_the_price_is_that_of_the_header_and_the_transaction_whatever_the_node_says(costly, key, settings, told):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    with changed_receipts(costly, effectiveGasPrice=hex(told)) as url:
        reconfigure(settings, costly.url, url)
        costly.mine()
        work()
    tx.refresh_from_db()
    assert tx.state != TransactionState.PENDING
    receipt = costly.rpc("eth_getTransactionReceipt", tx.hash)
    assert tx.gas_price == int(receipt["effectiveGasPrice"], 16) != told


def test_where_a_node_has_no_old_states_transactions_become_final_all_the_same(op_stack, key, settings, tmp_path):
    """Most nodes have forgotten the state of a block long before it is final."""
    with telling_receipts(op_stack) as telling:

        def answer(body: Any) -> Any:
            if isinstance(body, dict) and body["method"] == "eth_getBalance" and body["params"][1] != "latest":
                return error(body, -32000, "missing trie node")
            return requests.post(telling, json=body, timeout=10).json()

        with lying_node(answer) as url:
            serve(settings, tmp_path, op_stack, url)
            op_stack.rpc("evm_setAutomine", False)
            tx = pending(submit(key, request(ALICE, block=op_stack.head(), fee=ETHER)))
            expected = tx.data_fee
            op_stack.mine(200)
            for _ in range(3):
                work()
    tx.refresh_from_db()
    assert tx.state == TransactionState.FINAL
    assert tx.data_fee == expected
    assert Signer.objects.get().failing_since is None


@pytest.mark.parametrize("data_fee", [2**256 - 1, 10**6 * ETHER], ids=["beyond 256 bits", "more than there is"])
def test_a_data_fee_that_nobody_can_have_paid_stops_no_signer(op_stack, key, settings, tmp_path, data_fee):
    serve(settings, tmp_path, op_stack)
    op_stack.rpc("evm_setAutomine", False)
    batch = submit(key, request(ALICE, block=op_stack.head(), fee=ETHER))
    pending(batch)
    with changed_receipts(op_stack, l1Fee=hex(data_fee)) as url:
        reconfigure(settings, op_stack.url, url)
        op_stack.mine()
        for _ in range(3):
            work()
    signer = Signer.objects.get()
    assert signer.failing_since is None
    assert promised.on_chain(31337) <= batch.fee


def test_what_was_said_to_be_displaced_counts_when_it_is_mined_after_all(costly, key, settings):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)

    def answer(body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_getTransactionCount":
            return {"jsonrpc": "2.0", "id": body["id"], "result": hex(tx.nonce + 1)}
        return ask(costly.url, body)

    before = int(costly.rpc("eth_getBalance", SIGNER, "latest"), 16)
    with lying_node(answer) as url:
        reconfigure(settings, costly.url, url)
        tend(tx.signer_id)
        reconfigure(settings, url, costly.url)
    rejected_late(batch)
    costly.mine()
    for _ in range(3):
        work()
        costly.mine()
    paid = before - int(costly.rpc("eth_getBalance", SIGNER, "latest"), 16)
    assert paid
    assert promised.to_user(key.user_id, [31337]).wei == promised.on_chain(31337) == paid


# --- Data fees --------------------------------------------------------------------------------------------------------


def test_fees_are_not_raised_where_the_data_has_become_too_dear(op_stack, key, settings, tmp_path):
    serve(settings, tmp_path, op_stack)
    op_stack.rpc("evm_setAutomine", False)
    batch = submit(key, request(ALICE, block=op_stack.head(), fee=ETHER))
    accept(batch.pk)
    Batch.objects.filter(pk=batch.pk).update(fee=(fresh(batch).estimated_wei or 0) * 3)
    tx = pending(batch)
    assert tx.data_fee
    op_stack.rpc("anvil_dropAllTransactions")
    op_stack.rpc("evm_setAutomine", True)
    oracle_at(op_stack, GAS_PRICE_ORACLE).send("set", 100 * FEE_OF_A_BYTE, 0, False)
    op_stack.rpc("evm_setAutomine", False)
    assert tx.data_fee * 50 > fresh(batch).fee
    age()
    work()
    assert tx.versions.count() == 1


def test_what_a_reorg_takes_back_counts_with_the_margin_again(op_stack, key, settings, tmp_path):
    with telling_receipts(op_stack) as url:
        serve(settings, tmp_path, op_stack, url)
        op_stack.rpc("evm_setAutomine", False)
        batch = submit(key, request(ALICE, block=op_stack.head(), fee=ETHER))
        tx = pending(batch)
        expected = tx.data_fee
        snapshot = op_stack.rpc("evm_snapshot")
        op_stack.mine()
        for signer in Signer.objects.all():
            tend(signer.pk)
        tx.refresh_from_db()
        assert tx.state != TransactionState.PENDING
        assert tx.data_fee < expected
        op_stack.rpc("evm_revert", snapshot)
        op_stack.rpc("anvil_dropAllTransactions")
        op_stack.rpc("evm_setNextBlockTimestamp", hex(int(timezone.now().timestamp()) + 100))
        op_stack.mine(3)
        Signer.objects.update(due_at=timezone.now())
        for signer in Signer.objects.all():
            tend(signer.pk)
    tx.refresh_from_db()
    assert tx.state == TransactionState.PENDING
    assert tx.data_fee >= expected


# --- Estimates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 20])
def test_what_rides_along_takes_no_more_than_is_counted_for_it(count):
    """The history contract's storage is the real trie of a full ring."""
    chance = random.Random(17)
    ring = tries.build(
        {keccak(slot.to_bytes(32)): tries.encode(chance.randrange(1, 2**256)) for slot in range(bench.WINDOW)}
    )
    number = 17_463_226
    used = []
    with Lab(number) as lab:
        for riders in (0, count):
            slots = [(number + place * 7) % bench.WINDOW for place in range(riders + 1)]
            account_key = keccak(packed.HISTORY_ADDRESS)
            account = tries.account(1, 0, ring.root_hash, chance.randbytes(32))
            root, proofs = tries.shaped({account_key: account}, chance)
            hashes = {slot: tries.proof(ring, keccak(slot.to_bytes(32))) for slot in slots}
            history = AccountToProve(packed.HISTORY_ADDRESS, 0, proofs[account_key], {}, hashes)
            header = bench.prague_header(number, root, chance.randbytes(32), chance)
            data, before = packed.encode(number, root, [history]), [packed.encode(header, root)]
            used.append(lab.run(Case("path", number, keccak(header), data, before=before)).tx)
    assert used[1] - used[0] <= count * RIDER_GAS
