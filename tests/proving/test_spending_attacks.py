"""What people have tried who know the rules about money: to stall others, to be paid for, to burn a fee on a part."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db.models import Q
from django.utils import timezone
from eth_account import Account

from accounts.models import ApiKey
from chains.encoding import hex_data
from config.configured_chains import forget_chains, get_rpc
from devnet.devchain import ACCOUNTS, DevChain
from proving.acceptance import accept
from proving.health import report
from proving.models import FactsRegistry, Share, SignedTransaction, Transaction, TransactionState
from proving.reconcile.block import reconcile
from proving.registry.deploying import deploy
from proving.spending import promised
from proving.transactions import pauses, sending, signing, stop_switch, tending
from queries import progress
from queries.clock import Clock
from queries.models import Batch, BatchStatus, Block, ServiceClock
from queries.rejection_codes import RejectionCode
from tests.chains.lying_node import ask, between
from tests.contracts.l1_block import L1Block
from tests.headers import with_hash
from tests.proving import sources
from tests.proving.money import ETHER, GWEI, asking, mine_at, pending, price_of
from tests.proving.transactions import age, send_from_elsewhere
from tests.service import (
    ALICE,
    BOB,
    CHARLIE,
    SIGNER,
    a_key,
    fresh,
    reconfigure,
    request,
    submit,
    waiting,
    work,
    work_until_done,
)

# --- Stalling others --------------------------------------------------------------------------------------------------


def test_a_transaction_that_its_fee_lets_nobody_mine_is_cancelled_for_those_behind_it(costly, key):
    mine_at(costly, 1)
    block = costly.head()
    poor = submit(key, request(ALICE, block=block, fee=ETHER))
    accept(poor.pk)
    Batch.objects.filter(pk=poor.pk).update(fee=302_000 * 3 * GWEI)
    tx = pending(poor)
    mine_at(costly, 20)
    rich = submit(a_key(BOB), request(BOB, block=block - 1, fee=ETHER))
    for _ in range(8):
        work()
        age()
        mine_at(costly, 20)
    assert fresh(rich).status == BatchStatus.DONE
    assert fresh(poor).status == BatchStatus.IN_PROGRESS
    assert tx.newest.is_cancellation
    assert any(said.startswith("1 query is left undone") for said in waiting())


def two_of_the_same_accounts(chain: DevChain, key: ApiKey) -> list[Callable[[], Batch]]:
    """To submit them. Their block is known, and each writes the same storage."""
    addresses = [f"0x{(place + 1) * 7919:040x}" for place in range(10)]
    for address in addresses:
        chain.rpc("anvil_setBalance", address, hex(ETHER))
    chain.mine()
    block = chain.head()
    chain.mine()
    work_until_done(submit(a_key(CHARLIE), request(SIGNER, block=block, fee=ETHER)), chain)
    mine_at(chain, 1)

    def asked(name: str) -> dict[str, Any]:
        return asking(block, ETHER, **{one: {"props": [name], "slots": []} for one in addresses})

    return [partial(submit, key, asked("BALANCE")), partial(submit, a_key(BOB), asked("NONCE"))]


def by_their_user(batch: Batch) -> None:
    assert progress.cancel(batch.pk, code=RejectionCode.CANCELLED_BY_USER, reason="Cancelled.")


def for_their_fee(batch: Batch) -> None:
    Batch.objects.filter(pk=batch.pk).update(fee=1)


@pytest.mark.parametrize("cancel", [by_their_user, for_their_fee])
def test_what_is_cancelled_makes_nothing_fail_that_was_sent_behind_it(costly, key, cancel):
    """The storage that the first one would have written costs the second one more."""
    first, second = (pending(batch()) for batch in two_of_the_same_accounts(costly, key))
    cancel(first.queries.all()[0].batch)
    mine_at(costly, 20)
    for _ in range(4):
        age()
        work()
        mine_at(costly, 1 if first.newest.is_cancellation else 20)
    for tx in (first, second):
        tx.refresh_from_db()
    assert (first.newest.is_cancellation, first.succeeded, second.succeeded) == (True, False, True)


def test_what_a_stranger_has_pending_and_replaces_makes_nothing_fail(costly, key):
    """A stranger proves the same to the registry, waits until it was simulated upon, and takes it back."""
    submit_first, submit_second = two_of_the_same_accounts(costly, key)
    copied = pending(batch := submit_first())
    to, data, gas = copied.to, bytes(copied.data), copied.gas_limit
    costly.rpc("anvil_dropAllTransactions")
    copied.delete()
    batch.delete()
    stranger, stranger_key = ACCOUNTS[0]
    nonce = int(costly.rpc("eth_getTransactionCount", stranger, "latest"), 16)

    def send(to: str, data: bytes, gas: int, tip: int) -> None:
        fees = {"maxFeePerGas": 2 * tip * GWEI, "maxPriorityFeePerGas": tip * GWEI}
        fields = {"type": 2, "chainId": 31337, "nonce": nonce, "to": to, "value": 0, "data": data, "gas": gas, **fees}
        costly.rpc("eth_sendRawTransaction", hex_data(Account.from_key(stranger_key).sign_transaction(fields)[0]))

    mine_at(costly, 1)
    send(to, data, gas, tip=10)
    tx = pending(submit_second())
    send(stranger, b"", 21_000, tip=20)
    costly.mine()
    work()
    tx.refresh_from_db()
    assert tx.succeeded


def test_alone_it_waits_for_the_price_to_fall(costly, key):
    mine_at(costly, 1)
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    Batch.objects.filter(pk=batch.pk).update(fee=302_000 * 3 * GWEI)
    tx = pending(batch)
    for _ in range(3):
        mine_at(costly, 20)
        age()
        work()
    assert not tx.newest.is_cancellation
    mine_at(costly, 1)
    costly.mine()
    assert work_until_done(batch, costly).status == BatchStatus.DONE


def test_nothing_is_signed_that_the_next_block_may_be_too_dear_for(costly, key):
    mine_at(costly, 8)
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    estimated = fresh(batch).estimated_gas or 0
    Batch.objects.filter(pk=batch.pk).update(fee=estimated * price_of(costly))
    reconfigure_batch_estimate(batch, 1)
    work()
    tx = Transaction.objects.get()
    assert tx.newest.max_fee_per_gas >= 10 * GWEI  # 9/8 of 8 and the tip.
    assert tx.cost <= fresh(batch).fee
    costly.rpc("anvil_dropAllTransactions")
    Transaction.objects.all().delete()
    Batch.objects.filter(pk=batch.pk).update(fee=tx.gas_limit * price_of(costly) * 102 // 100)
    work()
    work()
    assert not Transaction.objects.exists()


def reconfigure_batch_estimate(batch: Batch, gas: int) -> None:
    """So that what is signed alone counts."""
    Batch.objects.filter(pk=batch.pk).update(estimated_gas=gas)


def test_who_cannot_pay_holds_up_nobody_where_a_hash_is_recorded_first(chain, key, settings, tmp_path):
    with DevChain(chain_id=sources.THERE) as there:
        sources.grow(there, 30)
        chain.rpc("anvil_setBalance", SIGNER, hex(1000 * ETHER))
        settings.ALLOWED_ADDRESSES = ["*"]
        l1 = L1Block(chain)
        sources.connect(settings, tmp_path, chain, there.url)
        reconfigure(settings, "test_network = true", "test_network = false\nminimum_signer_balance = '0'")
        block, head = there.head() - 5, get_rpc(sources.THERE).head()
        l1.tell(head.number, head.hash)
        poor = submit(key, sources.asking(there=[block], address=ALICE) | {"fee": str(ETHER)})
        accept(poor.pk)
        Batch.objects.filter(pk=poor.pk).update(fee=1)
        rich = submit(a_key(BOB), sources.asking(there=[block]) | {"fee": str(ETHER)})
        assert work_until_done(rich, chain, rounds=20).status == BatchStatus.DONE
        assert (fresh(poor).status, poor.gas_used) == (BatchStatus.IN_PROGRESS, 0)
    forget_chains()


def test_who_asks_for_more_than_the_day_leaves_holds_up_nobody_at_the_same_block(costly, key, settings):
    mine_at(costly, 10)
    block = costly.head()
    costly.rpc("evm_setAutomine", True)
    work_until_done(submit(a_key(CHARLIE), request(SIGNER, block=block, fee=ETHER)), costly)
    work()
    Transaction.objects.all().delete()
    much_money = "test_network = false\ndaily_limit = '100'\ndaily_limit_per_user = '100'"
    reconfigure(settings, "test_network = false", much_money)
    slots = [hex(slot * 7919 * 2**40) for slot in range(100)]
    much = submit(key, asking(block, ETHER, **{CHARLIE: {"props": ["BALANCE"], "slots": slots}}))
    little = submit(a_key(BOB), request(ALICE, block=block, fee=ETHER))
    for batch in (much, little):
        accept(batch.pk)
    reconfigure(settings, "daily_limit = '100'", "daily_limit = '0.01'")
    assert work_until_done(little, costly).status == BatchStatus.DONE
    assert fresh(much).status == BatchStatus.IN_PROGRESS


def test_who_cannot_pay_has_one_turn_with_paths_however_many_blocks_wait(costly, key, settings):
    reconfigure(settings, 'block_hash_source = "native"', 'block_hash_source = "native"\nwindow = 40')
    costly.rpc("evm_setAutomine", True)
    FactsRegistry.objects.all().delete()
    deploy(31337, 31337)
    Transaction.objects.all().delete()
    costly.mine(60)
    low = costly.head()
    costly.mine(400)
    assert (
        work_until_done(submit(a_key(BOB), request(BOB, block=low + 200, fee=ETHER)), costly).status == BatchStatus.DONE
    )
    paths = Transaction.objects.exclude(extends=None)
    sent = paths.count()
    costly.mine(4)
    work()
    work()
    for place in range(10):
        poor = submit(key, request(ALICE, block=low - place, fee=ETHER))
        accept(poor.pk)
        Batch.objects.filter(pk=poor.pk).update(fee=1)
    # As while somebody's path is under way.
    later = timezone.now() + timedelta(minutes=10)
    Block.objects.filter(number__lte=low).update(due_at=later, waits_for_path=True)
    rich = submit(a_key(BOB, "another"), request(BOB, block=low + 7, fee=ETHER))
    accept(rich.pk)
    block = Block.objects.get(number=low + 7)
    for _ in range(2):
        reconcile(block.pk)
    assert paths.count() == sent + 1


# --- Being paid for ---------------------------------------------------------------------------------------------------


def test_what_was_proven_before_makes_nobody_pay_for_others(costly, key):
    block = costly.head()
    costly.rpc("evm_setAutomine", True)
    slots = [hex(slot) for slot in range(300)]
    work_until_done(submit(key, asking(block, ETHER, **{CHARLIE: {"props": ["BALANCE"], "slots": slots}})), costly)
    work()
    costly.rpc("evm_setAutomine", False)
    Transaction.objects.all().delete()
    one_more = {CHARLIE: {"props": ["BALANCE"], "slots": [*slots, hex(10**6)]}}
    victim = submit(a_key(BOB), asking(block, ETHER, **one_more))
    sixty = {ALICE: {"props": ["BALANCE"], "slots": [hex(slot * 2**30 + 5) for slot in range(60)]}}
    thief = submit(key, asking(block, ETHER, **sixty))
    costly.rpc("evm_setAutomine", True)
    for batch in (victim, thief):
        assert work_until_done(batch, costly).status == BatchStatus.DONE
    work()
    assert fresh(victim).gas_used < (victim.estimated_gas or 0) < 100_000 < fresh(thief).gas_used


# --- A fee and its estimate -------------------------------------------------------------------------------------------


def blocks_of(chain: DevChain, count: int, wanted: dict[str, Any]) -> dict[str, Any]:
    head = chain.head()
    return {f"block:{head - place}": wanted for place in range(count)}


def header_requests(*names: str) -> dict[str, Any]:
    return {"header": list(names)}


@pytest.mark.parametrize(
    "wanted",
    [
        header_requests("GAS_LIMIT"),
        header_requests("GAS_LIMIT", "DIFFICULTY"),
        {"accounts": {ALICE: {"props": ["BALANCE"], "slots": []}}},
        {"accounts": {ALICE: {"props": ["BALANCE"], "slots": ["0x1", "0x2"]}}, "header": ["GAS_USED"]},
    ],
    ids=["one property", "two properties", "accounts", "slots and a property"],
)
def test_at_a_constant_price_what_was_estimated_suffices(costly, key, wanted):
    costly.mine(15)
    mine_at(costly, 1)
    data = {"31337": blocks_of(costly, 8, wanted)}
    batch = submit(key, {"destinationChainId": "31337", "fee": str(ETHER), "data": data})
    accept(batch.pk)
    Batch.objects.filter(pk=batch.pk).update(fee=fresh(batch).estimated_wei)
    for _ in range(30):
        work()
        mine_at(costly, 1)
    assert fresh(batch).status == BatchStatus.DONE, waiting()


def test_at_a_constant_price_it_suffices_for_times_with_properties_too(costly, key):
    costly.rpc("anvil_setBlockTimestampInterval", 5)
    costly.mine(12)
    mine_at(costly, 1)
    head = costly.head()
    headers = get_rpc(31337).headers([head - place for place in range(2, 8)])
    times = [header.timestamp for header in headers if header]
    data = {"31337": {f"timestamp:{time}": header_requests("GAS_LIMIT") for time in times}}
    batch = submit(key, {"destinationChainId": "31337", "fee": str(ETHER), "data": data})
    accept(batch.pk)
    Batch.objects.filter(pk=batch.pk).update(fee=fresh(batch).estimated_wei)
    for _ in range(40):
        work()
        mine_at(costly, 1)
    assert fresh(batch).status == BatchStatus.DONE, waiting()


def test_a_fee_spike_burns_no_fee_on_a_part_of_a_query(costly, key, settings):
    """One account with so many slots that they take several transactions."""
    mine_at(costly, 1)
    settings.DAILY_GAS_BUDGET = 10**9
    limits = "test_network = false\ndaily_limit = '100'\ndaily_limit_per_user = '100'"
    reconfigure(settings, "test_network = false", limits)
    slots = [hex(slot * 7919 * 2**40) for slot in range(1000)]
    batch = submit(key, asking(costly.head(), ETHER, **{CHARLIE: {"props": ["BALANCE"], "slots": slots}}))
    accept(batch.pk)
    Batch.objects.filter(pk=batch.pk).update(fee=fresh(batch).estimated_wei)
    mine_at(costly, 12)
    for _ in range(4):
        work()
        mine_at(costly, 12)
    assert not Transaction.objects.exists()
    for _ in range(12):
        work()
        mine_at(costly, 1)
    assert fresh(batch).status == BatchStatus.DONE, waiting()


def test_what_is_not_admitted_yet_is_reserved_for_too(costly, key):
    """A second source chain that can't be asked now: its part of the fee isn't burnt on the first."""
    mine_at(costly, 1)
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    query = batch.queries.get()
    for position in range(1, 9):
        query.pk, query.position, query.source_chain_id, query.is_admitted = None, position, 5, False
        query.save()
    Batch.objects.filter(pk=batch.pk).update(fee=302_000 * 2 * GWEI)
    work()
    work()
    assert not Transaction.objects.exists()
    Batch.objects.filter(pk=batch.pk).update(fee=9 * 302_000 * 4 * GWEI)
    work()
    assert Transaction.objects.count() == 1


# --- The stop switch --------------------------------------------------------------------------------------------------


def test_a_stop_between_signature_and_broadcast_is_seen(costly, key, monkeypatch):
    broadcast = signing.broadcast

    def stopped_just_now(*arguments):
        stop_switch.stop(31337)
        broadcast(*arguments)

    monkeypatch.setattr(sending, "broadcast", stopped_just_now)
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    work()
    work()
    assert SignedTransaction.objects.get().broadcast_at is None
    assert costly.rpc("txpool_status") == {"pending": "0x0", "queued": "0x0"}
    monkeypatch.setattr(sending, "broadcast", broadcast)
    stop_switch.resume(31337)
    costly.rpc("evm_setAutomine", True)
    assert work_until_done(batch, costly).status == BatchStatus.DONE


def test_what_was_displaced_costs_nobody_anything(costly, key):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    tx = pending(batch)
    assert Share.objects.filter(batch=batch).exists()
    costly.rpc("anvil_dropTransaction", tx.newest.hash)
    send_from_elsewhere(costly, tx.nonce)
    costly.mine(4)
    work()
    tx.refresh_from_db()
    assert tx.state == TransactionState.DISPLACED
    assert not Share.objects.filter(transaction=tx, wei__gt=0).exists()


# --- The day ----------------------------------------------------------------------------------------------------------


def test_what_a_clock_far_ahead_has_signed_counts_for_a_day_and_no_longer(costly, key, monkeypatch):
    Clock().read([])
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    now = timezone.now
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: now() + timedelta(days=365))
        pending(batch)
    Transaction.objects.update(state=TransactionState.FINAL, gas_used=1, gas_price=1)
    assert promised.on_chain(31337) == Transaction.objects.get().reserved > 1
    ServiceClock.objects.update(at=now() + timedelta(days=2))
    assert promised.on_chain(31337) == 0


def test_adding_up_a_day_reads_no_calldata(costly, key, django_assert_num_queries):
    batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
    accept(batch.pk)
    pending(batch)
    with django_assert_num_queries(3) as statements:
        assert promised.on_chain(31337) > 0
    for of_calldata in ('"data"', '"raw"'):
        assert not any(of_calldata in statement["sql"] for statement in statements)


# --- Nodes that lie about what was paid -------------------------------------------------------------------------------

LIMITED = "test_network = false\ndaily_limit = '0.002'\ndaily_limit_per_user = '0.002'"


def paid(chain: DevChain, before: int) -> int:
    return before - int(chain.rpc("eth_getBalance", SIGNER, "latest"), 16)


def test_no_limit_is_passed_where_a_node_says_that_others_used_the_nonces(costly, key, settings):
    """It hides receipts, tells nonces that are past, and a registry that holds nothing."""
    reconfigure(settings, "test_network = false", LIMITED)
    costly.mine(70)
    mine_at(costly, 1)
    is_lying, began = False, 0

    def change(question: Any, reply: Any) -> list[Any]:
        if not is_lying:
            return [reply]
        match question["method"], question["params"]:
            case "eth_getTransactionCount", [_, block] if block == hex(max(0, costly.head() - 64)):
                return [reply | {"result": hex(10**6)}]
            case "eth_getTransactionCount", [_, "latest"]:
                return [reply | {"result": hex(int(reply["result"], 16))}]
            case "eth_getTransactionReceipt", _:
                return [reply | {"result": None}]
            case "eth_call", [call, block] if block != "pending":
                return [ask(costly.url, {**question, "params": [call, hex(began)]})]
        return [reply]

    before = int(costly.rpc("eth_getBalance", SIGNER, "latest"), 16)
    with between(costly.url, change) as url:
        reconfigure(settings, costly.url, url)
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER // 1000))
        accept(batch.pk)
        began, is_lying = costly.head(), True
        for _ in range(30):
            work()
            mine_at(costly, 1)
            Block.objects.update(due_at=timezone.now(), attempts=0)
    assert Transaction.objects.filter(state=TransactionState.DISPLACED).exists()
    assert 0 < paid(costly, before) <= promised.on_chain(31337) <= 2 * 10**15
    assert [problem.code for problem in report.stops()] == ["node_doubtful"]
    assert fresh(batch).status == BatchStatus.IN_PROGRESS


def test_a_day_costs_at_most_four_limits_where_a_node_makes_up_finality_and_prices(costly, key, settings):
    """Of blocks that it calls final it makes up headers, without a base fee, and receipts with the least of gas."""
    limit = 3 * 10**14
    reconfigure(settings, "test_network = false", LIMITED.replace("0.002", "0.0003"))
    costly.mine(70)
    mine_at(costly, 1)
    forged: dict[str, Any] = {}

    def asked(method: str, *params: Any) -> Any:
        return ask(costly.url, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})["result"]

    def change(question: Any, reply: Any) -> list[Any]:
        match question["method"], question["params"]:
            case "eth_maxPriorityFeePerGas", _:
                return [reply | {"result": hex(10**6)}]
            case "eth_getBlockByNumber", ["finalized", _]:
                return [reply | {"result": asked("eth_getBlockByNumber", "latest", False)}]
            case "eth_getBlockByNumber", [number, _] if number in forged:
                return [reply | {"result": forged[number]}]
            case "eth_getTransactionReceipt", [tx_hash] if receipt := reply["result"]:
                number = receipt["blockNumber"]
                forged[number] = with_hash(asked("eth_getBlockByNumber", number, False) | {"baseFeePerGas": "0x0"})
                raw = bytes.fromhex(asked("eth_getRawTransactionByHash", tx_hash)[2:])
                lies = {"blockHash": forged[number]["hash"], "gasUsed": hex(tending._intrinsic_gas(raw))}
                return [reply | {"result": receipt | lies}]
        return [reply]

    before = int(costly.rpc("eth_getBalance", SIGNER, "latest"), 16)
    with between(costly.url, change) as url:
        reconfigure(settings, costly.url, url)
        first = costly.head() - 1
        for number in range(16):
            mine_at(costly, 1)
            submit(key, request(ALICE, block=first - number, fee=ETHER // 1000))
            for _ in range(4):
                work()
                mine_at(costly, 1)
    assert Transaction.objects.filter(state=TransactionState.FINAL, gas_used__lt=50_000).exists()
    assert 0 < paid(costly, before) <= 4 * limit


@pytest.mark.parametrize(
    ("while_tending", "while_sending", "repaid"),
    [(lambda _: 1, lambda nonce: nonce, 3), (lambda nonce: nonce, lambda nonce: nonce + 16, 3 * 16)],
    ids=["left behind", "filled"],
)
def test_a_signer_whose_gaps_were_repaired_three_times_in_a_day_pauses(
    costly, key, settings, monkeypatch, while_tending, while_sending, repaid
):
    """A node tells one nonce before it sends, and another one after it: each repair is paid for."""
    costly.rpc("anvil_setNonce", SIGNER, hex(500))
    costly.mine(2)
    mine_at(costly, 1)
    is_tending, tend = False, tending._tend

    def note_tending(*arguments: Any) -> None:
        nonlocal is_tending
        is_tending = True
        try:
            tend(*arguments)
        finally:
            is_tending = False

    def change(question: Any, reply: Any) -> list[Any]:
        match question["method"]:
            case "eth_getTransactionCount":
                told = while_tending if is_tending else while_sending
                return [reply | {"result": hex(told(int(reply["result"], 16)))}]
            case "eth_getTransactionReceipt" if while_tending(500) == 1:
                return [reply | {"result": None}]
        return [reply]

    monkeypatch.setattr(tending, "_tend", note_tending)
    with between(costly.url, change) as url:
        reconfigure(settings, costly.url, url)
        for number in range(5):
            mine_at(costly, 1)
            submit(key, request(ALICE, block=costly.head() - 1 - number, fee=ETHER // 1000))
            for _ in range(6):
                work()
                mine_at(costly, 1)
                age()
    assert Transaction.objects.filter(Q(to=SIGNER) | Q(state=TransactionState.DISPLACED)).count() == repaid
    assert "node_doubtful" in [problem.code for problem in report.stops()]


def test_a_signer_of_which_three_receipts_can_t_be_true_pauses(costly, key, settings):
    reconfigure(settings, "test_network = false", LIMITED)
    mine_at(costly, 1)

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getTransactionReceipt" and reply.get("result"):
            reply["result"]["gasUsed"] = "0x1"
        return [reply]

    before = int(costly.rpc("eth_getBalance", SIGNER, "latest"), 16)
    with between(costly.url, change) as url:
        reconfigure(settings, costly.url, url)
        batches = []
        for number in range(5):
            mine_at(costly, 1)
            batches.append(submit(key, request(ALICE, block=costly.head() - 1 - number, fee=ETHER // 3000)))
            for _ in range(3):
                work()
                mine_at(costly, 1)
    assert Transaction.objects.filter(queries__batch__in=batches).distinct().count() == 3
    assert 0 < paid(costly, before) <= promised.on_chain(31337) <= 2 * 10**15
    assert [problem.code for problem in report.stops()] == ["node_doubtful"]
    pauses.resume_signer(31337, SIGNER)
    reconfigure(settings, url, costly.url)
    for batch in batches:
        work_until_done(batch, costly, rounds=20)
    assert not list(report.stops())


def test_a_lie_about_what_data_has_cost_leaves_others_their_day(costly, key, settings):
    """Less than the signer holds, and twice the daily limit."""
    reconfigure(settings, "test_network = false", LIMITED.replace("0.002", "0.5"))
    mine_at(costly, 1)

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getTransactionReceipt" and reply.get("result"):
            reply["result"]["l1Fee"] = hex(ETHER)
        return [reply]

    with between(costly.url, change) as url:
        reconfigure(settings, costly.url, url)
        batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER // 100))
        assert work_until_done(batch, costly).status == BatchStatus.DONE
    assert 0 < batch.spent <= batch.fee
    assert promised.on_chain(31337) < ETHER // 100


def test_until_it_is_final_what_was_sent_counts_at_its_most_and_others_wait(costly, key, settings):
    costly.mine(70)
    mine_at(costly, 1)
    first = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER // 1000))
    tx = pending(first)
    most = tx.cost
    # Enough for one more and what the first has really cost, and too little for one more and what it may have cost.
    limit = most * 14 // 10
    reconfigure(
        settings,
        "test_network = false",
        f"test_network = false\ndaily_limit = '{limit / ETHER:.18f}'\ndaily_limit_per_user = '{limit / ETHER:.18f}'",
    )
    assert work_until_done(first, costly).status == BatchStatus.DONE
    tx.refresh_from_db()
    assert tx.cost < most == promised.on_chain(31337)
    (share,) = Share.objects.filter(transaction=tx)
    assert (share.wei, share.reserved_wei, share.reserved_gas) == (tx.cost, most, tx.gas_limit)
    mine_at(costly, 1)
    second = submit(key, request(BOB, block=costly.head() - 3, fee=ETHER // 1000))
    for _ in range(3):
        work()
    assert fresh(second).status == BatchStatus.IN_PROGRESS
    assert "The operator's limit" in waiting()[0]
    costly.mine(70)
    mine_at(costly, 1)
    tending.tend(tx.signer_id)
    assert promised.on_chain(31337) == tx.cost
    assert work_until_done(second, costly, rounds=20).status == BatchStatus.DONE


# --- Odd numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fee", ["auto", str(ETHER)])
@pytest.mark.parametrize(
    ("method", "number"),
    [("eth_estimateGas", 0), ("eth_maxPriorityFeePerGas", 2**255), ("eth_maxPriorityFeePerGas", 2**95)],
)
def test_an_odd_number_is_waited_out(costly, key, settings, method, number, fee):
    is_told = True

    def change(question: Any, reply: Any) -> list[Any]:
        return [reply | {"result": hex(number)} if is_told and question["method"] == method else reply]

    with between(costly.url, change) as url:
        reconfigure(settings, costly.url, url)
        batch = submit(key, request(ALICE, block=costly.head()) | {"fee": fee})
        for _ in range(4):
            work()
            costly.mine()
        assert not Transaction.objects.filter(queries__batch=batch).exists()
        if fresh(batch).status == BatchStatus.REJECTED:
            assert batch.rejection_retryable
            return
        is_told = False
        assert work_until_done(batch, costly, rounds=20).status == BatchStatus.DONE
