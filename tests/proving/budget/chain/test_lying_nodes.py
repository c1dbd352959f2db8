"""Nodes that lie about receipts, nonces, finality and prices: the possible damage, and when signers pause."""

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
import rlp
from django.core.management import call_command
from django.test import Client

from devnet.devchain import DevChain
from proving.models import Share, Signer, Transaction, TransactionState
from queries.models import BatchStatus
from tests import service
from tests.chains import geth_answers
from tests.chains.lying_node import ask, between, error, lying_node, result
from tests.headers import with_hash
from tests.proving import chain_state, money, prices, receipts, transactions

# The sequences of tests/proving/chain/test_money.py also contain each kind of lie.
pytestmark = [pytest.mark.long, pytest.mark.outside]

MILLIETHER = prices.ETHER // 1000


def limit_both(settings, wei: int) -> None:
    money.limit(settings, daily_limit=wei, daily_limit_per_user=wei)


def told_operators() -> Any:
    return Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()


def doubts() -> bool:
    """Return whether a notice tells the operator that a signer pauses because its node is doubtful."""
    return "node_doubtful" in Client().get("/healthz").json()["codes"]


def receipt_of(chain: DevChain, tx: Transaction) -> Any:
    tx.refresh_from_db()
    return chain.rpc("eth_getTransactionReceipt", tx.latest_hash)


def gas_of_data(raw: bytes) -> int:
    """Return a transaction's intrinsic gas, which is the least that a receipt can show."""
    data = rlp.decode(raw[1:])[7]
    return 21_000 + sum(16 if byte else 4 for byte in data)


# --- Receipts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gas_used",
    [0, 21_000 + 10_000, 10**9],
    ids=["no gas", "less than its calldata takes", "more gas than it has"],
)
def test_a_receipt_that_no_block_can_have_is_not_believed(costly, key, settings, gas_used):
    batch, tx = money.in_mempool(costly, key)
    most, least = tx.cost, 40_000
    with receipts.changed_receipts(costly, gasUsed=hex(gas_used)) as url:
        service.reconfigure(settings, costly.url, url)
        costly.mine()
        service.work()
        service.work()
        money.cancel(batch)
        share = Share.objects.get(batch=batch)
        assert least < share.gas <= tx.gas_limit
        assert 0 < share.wei <= most
        assert money.counts_of_day(settings, key, costly, share.wei)


@pytest.mark.parametrize("told", [0, 1, 10**6 * prices.GWEI], ids=["nothing", "the tip alone", "more than was offered"])
def test_the_price_is_that_of_the_header_and_the_transaction_whatever_the_node_says(costly, key, settings, told):
    _, tx = money.in_mempool(costly, key)
    with receipts.changed_receipts(costly, effectiveGasPrice=hex(told)) as url:
        service.reconfigure(settings, costly.url, url)
        costly.mine()
        service.work()
    tx.refresh_from_db()
    assert tx.state != TransactionState.PENDING
    receipt = costly.rpc("eth_getTransactionReceipt", tx.hash)
    assert tx.gas_price == int(receipt["effectiveGasPrice"], 16) != told


# Sources: tests/chains/chain/test_rpc.py. The chain has no contract that computes an operator fee.
ODD_FIELDS = {
    "no price": {"effectiveGasPrice": None},
    "no contract": {"contractAddress": "0x", "from": None, "logsBloom": "", "status": None, "l1Fee": "null"},
    "odd fees": {"l1Fee": "0x1", "operatorFeeScalar": "0.5"},
}


@pytest.mark.parametrize("fields", ODD_FIELDS.values(), ids=ODD_FIELDS.keys())
def test_a_transaction_is_mined_though_a_field_is_odd_that_nobody_needs(costly, key, settings, fields):
    with receipts.changed_receipts(costly, **fields) as url:
        service.reconfigure(settings, costly.url, url)
        batch = service.submit(key, service.request(service.ALICE, block=costly.head(), fee=prices.ETHER))
        assert service.work_until_done(batch, costly).status == BatchStatus.DONE
    tx = Transaction.objects.get(queries__batch=batch)
    assert (tx.succeeded, tx.gas_price) == (True, int(receipt_of(costly, tx)["effectiveGasPrice"], 16))
    assert "receipt_unusable" not in told_operators()["codes"]


@pytest.mark.parametrize(("told", "counts_at_most"), [(None, True), ("0x0", True), ("0x7", False)])
def test_a_price_that_neither_the_header_nor_the_receipt_tells_counts_at_the_most(
    costly, key, settings, told, counts_at_most
):
    """The block's header has no base fee, as before London."""
    _, tx = money.in_mempool(costly, key)
    costly.mine()
    number = receipt_of(costly, tx)["blockNumber"]
    block = costly.rpc("eth_getBlockByNumber", number, False)
    later = (
        "baseFeePerGas",
        "withdrawalsRoot",
        "blobGasUsed",
        "excessBlobGas",
        "parentBeaconBlockRoot",
        "requestsHash",
    )
    old = with_hash({name: value for name, value in block.items() if name not in later})

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getBlockByNumber" and question["params"][0] in {number, "latest"}:
            return [reply | {"result": old}]
        if question["method"] == "eth_getTransactionReceipt":
            return [reply | {"result": reply["result"] | {"blockHash": old["hash"], "effectiveGasPrice": told}}]
        return [reply]

    with between(costly.url, change) as url:
        service.reconfigure(settings, costly.url, url)
        service.work()
    tx.refresh_from_db()
    assert tx.state != TransactionState.PENDING
    assert tx.gas_price == (tx.versions.get().max_fee_per_gas if counts_at_most else 7)


def with_gas(gas_used: str | None) -> Callable[[Any, Any], Any]:
    return lambda _, reply: reply | {"result": reply["result"] | {"gasUsed": gas_used}}


def refused(case: str) -> Callable[[Any, Any], Any]:
    return lambda question, _: error(question, *geth_answers.REFUSALS[case])


@pytest.mark.parametrize(
    ("method", "told", "nodes", "words"),
    [
        ("eth_getTransactionReceipt", with_gas(None), 1, ""),
        ("eth_getTransactionReceipt", with_gas(None), 2, ""),
        ("eth_getTransactionReceipt", with_gas("0x1"), 1, ""),
        ("eth_getTransactionReceipt", refused("transactions that are not indexed"), 1, "indexing is in progress"),
        ("eth_getBlockByNumber", refused("a pruned block"), 1, "Method not found"),
    ],
    ids=["no receipt", "no receipt, and no other node", "no block can have it", "refused", "no header"],
)
def test_a_receipt_that_can_t_be_used_holds_up_its_own_transaction_alone(
    costly, key, settings, method, told, nodes, words
):
    """The second node, if there is one, is down."""
    first, held = money.in_mempool(costly, key)
    costly.mine(2)
    tx_hash, block = held.latest_hash, receipt_of(costly, held)["blockNumber"]

    def change(question: Any, reply: Any) -> list[Any]:
        is_held = question["method"] == method and question["params"][0] in {tx_hash, block}
        return [told(question, reply) if is_held else reply]

    with between(costly.url, change) as url:
        urls = ", ".join(f'"{node_url}"' for node_url in [url, "http://127.0.0.1:1"][:nodes])
        service.reconfigure(settings, f'"{costly.url}"', urls)
        other = service.submit(key, service.request(service.BOB, block=costly.head(), fee=prices.ETHER))
        assert service.work_until_done(other, costly).status == BatchStatus.DONE
        # A refusal is told once the block is deep.
        costly.mine()
        service.work(2)
        wait = Client().get(f"/batch-queries/{first.pk}", headers=service.header(key)).json()["waits"][0]["sentence"]
        problems = told_operators()
    assert service.fresh(first).status == BatchStatus.IN_PROGRESS
    assert "receipt_unusable" in problems["codes"]
    sentence = next(sentence for sentence in problems["problems"] if tx_hash in sentence)
    public, _, quoted = sentence.partition("; the node said: ")
    assert public.removesuffix(".") in wait
    assert bool(quoted) == bool(words)
    assert words in quoted
    assert not words or words not in wait
    assert "A block comes" not in wait
    service.reconfigure(settings, urls, f'"{costly.url}"')
    assert service.work_until_done(first, costly).status == BatchStatus.DONE
    assert "receipt_unusable" not in told_operators()["codes"]


def test_a_signer_of_which_three_receipts_can_t_be_true_pauses(costly, key, settings, caplog):
    limit_both(settings, 2 * MILLIETHER)
    prices.mine_at(costly, 1)
    before = receipts.balance(costly)
    with receipts.changed_receipts(costly, gasUsed="0x1") as url:
        service.reconfigure(settings, costly.url, url)
        batches = []
        for number in range(5):
            prices.mine_at(costly, 1)
            batches.append(
                service.submit(
                    key, service.request(service.ALICE, block=costly.head() - 1 - number, fee=prices.ETHER // 3000)
                )
            )
            prices.go_on(costly, 1, rounds=3)
        assert doubts()
        # A worker, which stops the signer again in each turn, leaves the operator's reason.
        call_command("stop", "31337", signer=service.SIGNER, reason="The node is repaired.", stdout=StringIO())
        prices.go_on(costly, 1, rounds=3)
        assert not doubts()
        assert "The node is repaired." in str(told_operators()["problems"])
    assert Transaction.objects.filter(queries__batch__in=batches).distinct().count() == 3
    assert 0 < before - receipts.balance(costly) <= (money.spent_today() or 0) <= 2 * MILLIETHER
    assert caplog.text.count("A worker has stopped sending") == 1
    call_command("resume", "31337", signer=service.SIGNER, stdout=StringIO())
    service.reconfigure(settings, url, costly.url)
    for batch in batches:
        service.work_until_done(batch, costly, rounds=20)
    assert not doubts()


@pytest.mark.parametrize("data_fee", [2**256 - 1, 10**6 * prices.ETHER], ids=["beyond 256 bits", "more than there is"])
def test_a_data_fee_that_nobody_can_have_paid_stops_no_signer(op_stack, key, settings, tmp_path, data_fee):
    money.serve(settings, tmp_path, op_stack)
    op_stack.rpc("evm_setAutomine", False)
    batch = service.submit(key, service.request(service.ALICE, block=op_stack.head(), fee=prices.ETHER))
    money.pending(batch)
    with receipts.changed_receipts(op_stack, l1Fee=hex(data_fee)) as url:
        service.reconfigure(settings, op_stack.url, url)
        op_stack.mine()
        service.work(3)
    assert Signer.objects.get().failing_since is None
    assert (money.spent_today() or 0) <= batch.fee


def test_a_lie_about_what_data_has_cost_leaves_others_their_day(costly, key, settings):
    """The false data fee exceeds the batch's fee and the daily limit."""
    limit_both(settings, prices.ETHER // 2)
    prices.mine_at(costly, 1)
    with receipts.changed_receipts(costly, l1Fee=hex(prices.ETHER)) as url:
        service.reconfigure(settings, costly.url, url)
        batch = service.submit(key, service.request(service.ALICE, block=costly.head(), fee=prices.ETHER // 100))
        assert service.work_until_done(batch, costly).status == BatchStatus.DONE
    assert 0 < batch.spent <= batch.fee
    assert (money.spent_today() or 0) < prices.ETHER // 100


def test_transactions_become_final_without_old_states_of_a_node(op_stack, key, settings, tmp_path):
    """Most nodes drop the state of a block long before the block is final."""
    with receipts.telling_receipts(op_stack) as telling:

        def answer(body: Any) -> Any:
            if isinstance(body, dict) and body["method"] == "eth_getBalance" and body["params"][1] != "latest":
                return error(body, *geth_answers.REFUSALS["an old state"])
            return ask(telling, body)

        with lying_node(answer) as url:
            money.serve(settings, tmp_path, op_stack, url)
            op_stack.rpc("evm_setAutomine", False)
            _, tx = money.in_mempool(op_stack, key)
            expected = tx.data_fee
            op_stack.mine(200)
            service.work(3)
    tx.refresh_from_db()
    assert tx.state == TransactionState.FINAL
    assert tx.data_fee == expected
    assert Signer.objects.get().failing_since is None


# --- Nonces -----------------------------------------------------------------------------------------------------------


def test_a_transaction_left_behind_in_the_turn_that_raises_its_fee_counts_at_its_signed_fee(costly, key, settings):
    money.without_limits(settings)
    costly.rpc("anvil_setNonce", service.SIGNER, hex(500))
    costly.mine(2)
    prices.mine_at(costly, 1)
    _, tx = money.in_mempool(costly, key)
    costly.rpc("anvil_dropAllTransactions")
    prices.mine_at(costly, 10)
    transactions.age()

    def change(question: Any, reply: Any) -> list[Any]:
        return [reply | {"result": "0x1"} if question["method"] == "eth_getTransactionCount" else reply]

    with between(costly.url, change) as url:
        service.reconfigure(settings, costly.url, url)
        service.work()
    tx.refresh_from_db()
    assert (tx.state, tx.versions.count()) == (TransactionState.DISPLACED, 2)
    assert prices.GWEI * (tx.reserved_gwei or 0) == prices.up_to_a_gwei(tx.reserved)


def test_a_nonce_that_no_signer_can_reach_holds_no_worker(costly, key, settings):
    """The gap below has more nonces than memory."""
    nonce = chain_state.signer_nonce(costly)

    def change(question: Any, reply: Any) -> list[Any]:
        return [reply | {"result": hex(2**62)} if question["method"] == "eth_getTransactionCount" else reply]

    with between(costly.url, change) as url:
        service.reconfigure(settings, costly.url, url)
        batch = service.submit(key, service.request(service.ALICE, block=costly.head(), fee=prices.ETHER))
        service.work(2)
        assert Transaction.objects.get().nonce == 2**62
        service.reconfigure(settings, url, costly.url)
    for _ in range(3):
        transactions.age()
        service.work()
        prices.mine_at(costly, 1)
    service.work()
    assert service.fresh(batch).status == BatchStatus.DONE, service.waiting()
    assert chain_state.signer_nonce(costly) == nonce + 1
    assert len(chain_state.events(costly, chain_state.ACCOUNT_PROVEN)) == 1


def test_a_transaction_falsely_displaced_counts_when_it_is_mined_after_all(costly, key, settings):
    batch, tx = money.in_mempool(costly, key)

    def change(question: Any, reply: Any) -> list[Any]:
        return [reply | {"result": hex(tx.nonce + 1)} if question["method"] == "eth_getTransactionCount" else reply]

    before = receipts.balance(costly)
    with between(costly.url, change) as url:
        service.reconfigure(settings, costly.url, url)
        with money.stopped():
            service.work()
        tx.refresh_from_db()
        assert tx.state == TransactionState.DISPLACED
        service.reconfigure(settings, url, costly.url)
    money.cancel(batch)
    costly.mine()
    service.work(3, costly)
    paid = before - receipts.balance(costly)
    assert paid
    assert money.spent_today() == prices.up_to_a_gwei(paid)
    assert money.counts_of_day(settings, key, costly, paid)


def test_no_limit_is_passed_where_a_node_says_that_others_used_the_nonces(costly, key, settings):
    """The node hides receipts and blocks' transactions, reports nonces as used, and shows an empty registry."""
    limit_both(settings, 2 * MILLIETHER)
    costly.mine(70)
    prices.mine_at(costly, 1)
    is_lying, began = False, 0

    def change(question: Any, reply: Any) -> list[Any]:
        if not is_lying:
            return [reply]
        match question["method"], question["params"]:
            case "eth_getTransactionCount", [_, block] if block == hex(max(0, costly.head() - 64)):
                return [reply | {"result": hex(10**6)}]
            case "eth_getTransactionCount", [_, "latest"]:
                return [reply | {"result": hex(int(reply["result"], 16))}]
            case ("eth_getTransactionReceipt", _) | ("eth_getBlockByHash", [_, True]):
                return [result(question, None)]
            case "eth_call", [call, block] if block != "pending":
                return [ask(costly.url, {**question, "params": [call, hex(began)]})]
        return [reply]

    before = receipts.balance(costly)
    with between(costly.url, change) as url:
        service.reconfigure(settings, costly.url, url)
        batch = money.accepted(key, service.request(service.ALICE, block=costly.head() - 1, fee=MILLIETHER))
        began, is_lying = costly.head(), True
        for _ in range(30):
            service.work()
            prices.mine_at(costly, 1)
    assert Transaction.objects.filter(state=TransactionState.DISPLACED).exists()
    assert 0 < before - receipts.balance(costly) <= (money.spent_today() or 0) <= 2 * MILLIETHER
    assert doubts()
    assert service.fresh(batch).status == BatchStatus.IN_PROGRESS


# --- Finality and prices ----------------------------------------------------------------------------------------------


def test_a_day_costs_at_most_four_limits_where_a_node_makes_up_finality_and_prices(costly, key, settings):
    """The node makes up headers without a base fee for blocks that it calls final, and receipts with the least gas."""
    most = 3 * 10**14
    limit_both(settings, most)
    costly.mine(70)
    prices.mine_at(costly, 1)
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
                lies = {"blockHash": forged[number]["hash"], "gasUsed": hex(gas_of_data(raw))}
                return [reply | {"result": receipt | lies}]
        return [reply]

    before = receipts.balance(costly)
    with between(costly.url, change) as url:
        service.reconfigure(settings, costly.url, url)
        first = costly.head() - 1
        for number in range(16):
            prices.mine_at(costly, 1)
            service.submit(key, service.request(service.ALICE, block=first - number, fee=MILLIETHER))
            prices.go_on(costly, 1, rounds=4)
    assert Transaction.objects.filter(state=TransactionState.FINAL, gas_used__lt=50_000).exists()
    assert 0 < before - receipts.balance(costly) <= 4 * most


@pytest.mark.parametrize("fee", ["auto", str(prices.ETHER)])
@pytest.mark.parametrize(
    ("method", "number"),
    [("eth_getBalance", 0)],
)
def test_an_odd_number_is_waited_out(costly, key, settings, method, number, fee):
    is_told = True

    def change(question: Any, reply: Any) -> list[Any]:
        return [reply | {"result": hex(number)} if is_told and question["method"] == method else reply]

    with between(costly.url, change) as url:
        service.reconfigure(settings, costly.url, url)
        batch = service.submit(key, service.request(service.ALICE, block=costly.head()) | {"fee": fee})
        service.work(4, costly)
        assert not Transaction.objects.filter(queries__batch=batch).exists()
        if service.fresh(batch).status == BatchStatus.REJECTED:
            assert batch.rejection_retryable
            return
        is_told = False
        assert service.work_until_done(batch, costly, rounds=20).status == BatchStatus.DONE
