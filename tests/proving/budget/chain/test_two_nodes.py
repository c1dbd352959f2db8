"""Two nodes, one of which lies: its word alone pays for nothing, stops nothing and calls nobody."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from eth_utils.crypto import keccak

from accounts.models import ApiKey
from devnet.devchain import DevChain
from proving.models import (
    ChainHead,
    ChainWatch,
    FactsRegistry,
    SignedTransaction,
    Signer,
    Stop,
    Transaction,
    TransactionState,
)
from queries.models import Batch, BatchStatus
from tests.chains import geth_answers
from tests.chains.lying_node import Raw, ask, between, error, lying_node, result
from tests.explorer.batches import beat
from tests.headers import with_hash
from tests.proving import chain_state, estimated_batches, money, receipts, rollups, transactions
from tests.proving.money_node import Change, Liar, block_with, constant, higher_by, in_turn, multiplied_by, object_with
from tests.proving.prices import ETHER, GWEI, go_on, mine_at
from tests.service import ALICE, SIGNER, asking, fresh, reconfigure, request, submit, work, work_until_done

pytestmark = [pytest.mark.long, pytest.mark.outside]

BATCHES, ROUNDS = 3, 9
STALE_BLOCKS = 60
# Wei for transactions with a header and an account each, at a base fee and a tip of 1 gwei: at most 150,000 gas.
USUAL = BATCHES * 150_000 * 2 * GWEI


@pytest.fixture
def chain() -> Iterator[DevChain]:
    """Yield a chain whose blocks become final after 64, as Ethereum's do. All but the newest ones are an hour old."""
    with DevChain(slots_in_an_epoch=32, extra_args=["--timestamp", str(int(time.time()) - 3600)]) as chain:
        chain.mine(5)
        yield chain


def unless_newest(receipt: Any, chain: DevChain) -> Any:
    return receipt if int(receipt["blockNumber"], 16) < chain.head() else None


@dataclass(frozen=True)
class Lie:
    changes: Mapping[str, Change]
    code: str = ""
    """The code by which the first node's lie is told. Empty: nobody needs to act."""
    name: str = ""
    """A lie of `money_node`."""
    is_slow: bool = False
    """True if it is noticed when a transaction's fees are about to be raised."""
    is_old: bool = False
    """True if nobody has seen a higher head lately."""
    rests: bool = False
    """True if the node rests, wherever it stands."""


TIP = {"eth_maxPriorityFeePerGas": constant(hex(150 * GWEI))}
NO_RECEIPT = {"eth_getTransactionReceipt": constant(None)}
LIES = {
    "tip": Lie(TIP, "node_doubtful"),
    "tip and fee history": Lie(
        {**TIP, "eth_feeHistory": lambda history, _: history | {"reward": [[hex(150 * GWEI)]] * 10}}, "node_doubtful"
    ),
    "balance": Lie({"eth_getBalance": constant(hex(12_345))}, "node_doubtful"),
    "nonce too high": Lie({"eth_getTransactionCount": higher_by(3)}, "nonce_gap"),
    "nonce too low": Lie({"eth_getTransactionCount": higher_by(-3)}),
    "no receipts": Lie(NO_RECEIPT, "receipt_unusable"),
    "no receipts, and the nonce of before": Lie(
        {**NO_RECEIPT, "eth_getTransactionCount": higher_by(-1)}, "receipt_unusable", is_slow=True
    ),
    "late receipts": Lie({"eth_getTransactionReceipt": unless_newest}),
    "impossible receipts": Lie(
        {"eth_getTransactionReceipt": object_with("gasUsed", constant("0x1"))}, "receipt_unusable"
    ),
    "failed receipts": Lie({"eth_getTransactionReceipt": object_with("status", constant("0x0"))}, "receipt_unusable"),
    "old head": Lie({}, name="stale", rests=True),
    "old head from the start": Lie({}, name="stale", rests=True, is_old=True),
    "head ahead": Lie({"eth_getBlockByNumber": block_with("number", 50)}, rests=True),
    "base fee": Lie({"eth_getBlockByNumber": block_with("baseFeePerGas", 180 * GWEI)}),
    "estimates that revert": Lie({}, name="reverts"),
    "estimates that lack funds": Lie({}, name="poor"),
    "calls that revert": Lie({}, name="absent"),
}


def healthz() -> Any:
    return Client().get("/healthz", REMOTE_ADDR="127.0.0.1").json()


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_all_is_done_at_the_usual_cost_and_the_liar_is_named(costly, key, settings, lie, is_first):
    reconfigure(settings, "minimum_signer_balance = '0'", "minimum_signer_balance = '0.01'")
    costly.mine(2 * STALE_BLOCKS)
    costly.rpc("evm_setNextBlockTimestamp", int(time.time()))
    mine_at(costly, 1)
    head = costly.head()
    work_until_done(submit(key, request(ALICE, block=head, fee=ETHER)), costly)
    mine_at(costly, 1)
    if lie.is_old:
        ChainHead.objects.all().delete()
    before, liar, told = receipts.balance(costly), Liar(costly), list[Any]()
    with lying_node(liar) as url:
        urls = [url, costly.url] if is_first else [costly.url, url]
        reconfigure(settings, f'"{costly.url}"', f'"{urls[0]}", "{urls[1]}"')
        liar.lie, liar.changes = lie.name, lie.changes
        batches = []
        for number in range(1, ROUNDS):
            if number <= BATCHES:
                batches.append(submit(key, request(ALICE, block=head - number, fee=ETHER)))
            go_on(costly, 1, rounds=1, aged=lie.is_slow)
            beat()
            told.append(healthz())
    assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}
    assert USUAL / 2 < before - receipts.balance(costly) < USUAL
    assert not Transaction.objects.filter(to=SIGNER).exists()
    codes = {lie.code if is_first else ""} - {""}
    assert set(told[-1]["codes"]) == codes
    assert {code for health in told for code in health["codes"]} == codes
    resting = ChainWatch.objects.get().resting_nodes
    assert bool(resting) == lie.rests
    if codes or resting:
        assert url.removeprefix("http://").rstrip("/") in f"{told[-1]['problems']}{resting}"


@pytest.mark.parametrize(
    ("name", "beside"), [("tip and fee history", "eth_estimateGas"), ("balance", "eth_getBalance")]
)
def test_a_node_that_falls_silent_when_it_is_compared_is_not_believed(costly, key, settings, proven, name, beside):
    """It lies first where it is also asked for something else."""
    reconfigure(settings, "minimum_signer_balance = '0'", "minimum_signer_balance = '0.01'")
    before, liar, codes = receipts.balance(costly), Liar(costly), set[str]()
    lie, compared, has_lied = LIES[name].changes, 3 if name != "balance" else 1, False

    def answer(body: Any) -> Any:
        nonlocal has_lied
        asked = [question["method"] for question in (body if isinstance(body, list) else [body])]
        is_asked = not lie.keys().isdisjoint(asked)
        if has_lied and len(asked) <= compared:
            return Raw(status=503)
        liar.changes = lie if beside in asked else {}
        has_lied = has_lied or (is_asked and beside in asked)
        return liar(body)

    with lying_node(answer) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        batches = [
            submit(key, request(ALICE, block=costly.head() - 9 - number, fee=ETHER)) for number in range(BATCHES)
        ]
        for _ in range(6):
            go_on(costly, 1, rounds=1)
            codes.update(healthz()["codes"])
    assert not codes & {"signer_unfunded", "signer_waits"}
    assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}
    assert before - receipts.balance(costly) < USUAL


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_no_node_makes_an_honest_one_rest_by_blocks_that_it_invents(costly, key, settings, is_first):
    """The honest one's newest block is young, so that there can't be so many later ones. The liar tells a tip, too."""
    costly.mine(80)
    costly.rpc("evm_setNextBlockTimestamp", int(time.time()))
    mine_at(costly, 1)
    before, newest = receipts.balance(costly), costly.rpc("eth_getBlockByNumber", "latest", False)
    liar = Liar(costly, changes=LIES["tip and fee history"].changes)
    ahead = block_with("number", 50)

    def invent(question: Any, reply: Any) -> list[Any]:
        selected = question["params"][:1]
        if question["method"] != "eth_getBlockByNumber" or (reply["result"] and selected != ["latest"]):
            return [reply]
        invented = ahead(newest, costly) if reply["result"] else with_hash(newest | {"number": selected[0]})
        return [reply | {"result": invented}]

    with lying_node(liar) as paid_url, between(paid_url, invent) as url:
        urls = [url, costly.url] if is_first else [costly.url, url]
        reconfigure(settings, f'"{costly.url}"', f'"{urls[0]}", "{urls[1]}"')
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
        go_on(costly, 1, rounds=6)
        assert costly.url.removeprefix("http://").rstrip("/") not in str(ChainWatch.objects.get().resting_nodes)
    assert is_first or fresh(batch).status == BatchStatus.DONE
    assert before - receipts.balance(costly) < USUAL


def test_no_batch_is_lost_where_the_first_node_invents_a_head(costly, key, settings):
    """The batch waits, because the newest block that the node tells is the one that `latest` means."""
    before, liar = receipts.balance(costly), Liar(costly)
    with lying_node(liar) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        liar.changes = {"eth_getBlockByNumber": block_with("number", 50)}
        batch = submit(key, request(ALICE, block=costly.head(), fee=ETHER))
        go_on(costly, 1, rounds=3)
        liar.changes = {}
        assert work_until_done(batch, costly).status == BatchStatus.DONE
    assert before - receipts.balance(costly) < USUAL


def test_the_second_node_is_asked_where_the_first_calls_a_block_final_above_its_newest_one(costly, key, settings):
    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] != "eth_getBlockByNumber" or question["params"][0] != "finalized":
            return [reply]
        return [reply | {"result": with_hash(reply["result"] | {"number": hex(10**6)})}]

    mine_at(costly, 1)
    with between(costly.url, change) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
        assert work_until_done(batch, costly).status == BatchStatus.DONE
    assert "above its newest one" in str(ChainWatch.objects.get().resting_nodes)


@pytest.mark.parametrize(
    "words", [geth_answers.REFUSED_SENDS[case] for case in ("insufficient funds", "already known")]
)
def test_a_transaction_that_the_first_node_refuses_is_sent_to_the_second(costly, key, settings, words):
    def answer(body: Any) -> Any:
        is_sending = isinstance(body, dict) and body["method"] == "eth_sendRawTransaction"
        return error(body, -32000, words) if is_sending else ask(costly.url, body)

    mine_at(costly, 1)
    with lying_node(answer) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
        for _ in range(5):
            go_on(costly, 1, rounds=1)
            SignedTransaction.objects.exclude(refused_at=None).update(refused_at=F("created_at") - timedelta(hours=1))
        assert fresh(batch).status == BatchStatus.DONE
    assert SignedTransaction.objects.count() == 1


def test_no_batch_is_paid_for_again_where_the_first_node_says_that_it_ran_out_of_gas(costly, key, settings):
    """The node calls every block final, and shows a registry without the facts."""
    is_lying, began = False, 0

    def asked(method: str, *params: Any) -> Any:
        return ask(costly.url, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})["result"]

    def change(question: Any, reply: Any) -> list[Any]:
        match question["method"], question["params"]:
            case _ if not is_lying:
                return [reply]
            case "eth_getBlockByNumber", ["finalized", _]:
                return [reply | {"result": asked("eth_getBlockByNumber", "latest", False)}]
            case "eth_getTransactionReceipt", [tx_hash] if receipt := reply["result"]:
                gas = asked("eth_getTransactionByHash", tx_hash)["gas"]
                return [reply | {"result": receipt | {"status": "0x0", "gasUsed": gas}}]
            case "eth_call" | "eth_estimateGas", [call, *_]:
                return [ask(costly.url, {**question, "params": [call, hex(began)]})]
        return [reply]

    costly.mine(70)
    mine_at(costly, 1)
    with between(costly.url, change) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        batch = submit(key, request(ALICE, block=costly.head() - 1) | {"fee": "auto"})
        is_lying, began = True, costly.head()
        go_on(costly, 1, rounds=15)
        is_lying = False
        assert work_until_done(batch, costly).status == BatchStatus.DONE
    assert Transaction.objects.get(queries__batch=batch).succeeded


@pytest.mark.parametrize("address", [rollups.GAS_PRICE_ORACLE, rollups.ARB_GAS_INFO])
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_predeploy_that_a_node_invents_is_forgotten(costly, key, settings, nodes, address):
    is_lying = True

    def change(question: Any, reply: Any) -> list[Any]:
        is_asked = question["method"] == "eth_getCode" and question["params"][0] == address
        return [reply | {"result": "0x6001"} if is_asked and is_lying else reply]

    mine_at(costly, 1)
    with between(costly.url, change) as url:
        urls = ", ".join(f'"{node_url}"' for node_url in [url, costly.url][:nodes])
        reconfigure(settings, f'"{costly.url}"', urls)
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
        go_on(costly, 1, rounds=3)
        is_lying = False
        assert work_until_done(batch, costly).status == BatchStatus.DONE


@pytest.mark.parametrize("is_there", [True, False], ids=["hidden", "invented"])
def test_a_predeploy_is_asked_for_again_after_ten_minutes(chain, key, settings, tmp_path, pass_time, is_there):
    """Nothing contradicts the first node: it tells a fee of the predeploy that it has invented."""
    is_lying = True

    def change(question: Any, reply: Any) -> list[Any]:
        if rollups.GAS_PRICE_ORACLE not in str(question["params"]):
            return [reply]
        if question["method"] == "eth_getCode" and is_lying:
            return [reply | {"result": "0x" if is_there else "0x6001"}]
        is_fee = question["method"] == "eth_call" and not is_there
        return [result(question, f"0x{10**15:064x}") if is_fee else reply]

    def cost() -> int:
        return int(estimated_batches.estimate(Client(), key, request(ALICE, block=1, fee=ETHER))["wei"]["bound"])

    if is_there:
        rollups.oracle_at(chain, rollups.GAS_PRICE_ORACLE).send("set", rollups.FEE_OF_A_BYTE, 0, False)
    money.serve(settings, tmp_path, chain)
    mine_at(chain, 1)
    honest = cost()
    with between(chain.url, change) as url:
        reconfigure(settings, f'"{chain.url}"', f'"{url}", "{chain.url}"')
        lied = cost()
        assert (lied < honest) if is_there else (lied > honest)
        is_lying = False
        pass_time(590)
        assert cost() == lied
        pass_time(610)
        assert cost() == honest


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_a_batch_pays_the_usual_data_fee_where_one_node_tells_a_thousand_times_as_much(
    op_stack, key, settings, tmp_path, is_first
):
    def change(question: Any, reply: Any) -> list[Any]:
        is_fee = question["method"] == "eth_call" and question["params"][0].get("to") == rollups.GAS_PRICE_ORACLE
        return [reply | {"result": f"0x{1000 * int(reply['result'], 16):064x}"} if is_fee else reply]

    money.serve(settings, tmp_path, op_stack)
    batches = [submit(key, request(ALICE, block=op_stack.head() - 1) | {"fee": "auto"})]
    work_until_done(batches[0], op_stack)
    with between(op_stack.url, change) as url:
        urls = [url, op_stack.url] if is_first else [op_stack.url, url]
        reconfigure(settings, f'"{op_stack.url}"', f'"{urls[0]}", "{urls[1]}"')
        for _ in range(2):
            batches.append(submit(key, request(ALICE, block=op_stack.head()) | {"fee": "auto"}))
            assert work_until_done(batches[-1], op_stack).status == BatchStatus.DONE
            assert batches[-1].fee < 2 * fresh(batches[0]).fee


def test_a_transaction_that_one_node_calls_displaced_is_kept_and_sent_again(costly, key, settings):
    costly.mine(70)
    mine_at(costly, 1)
    batch, tx = money.in_mempool(costly, key)
    costly.rpc("anvil_dropAllTransactions")
    SignedTransaction.objects.update(broadcast_at=None)
    liar = Liar(costly, changes={"eth_getTransactionCount": lambda *_: hex(tx.nonce + 1)})
    with lying_node(liar) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        work()
        tx.refresh_from_db()
        assert tx.state == TransactionState.PENDING
        assert work_until_done(batch, costly).status == BatchStatus.DONE
    assert Transaction.objects.filter(queries__batch=batch).distinct().count() == 1


def test_a_receipt_of_another_node_is_found_though_nodes_refused_a_later_version(costly, key, settings):
    """The first node alone hides that the transaction is mined, so that its fees are raised."""
    mine_at(costly, 1)
    batch, tx = money.in_mempool(costly, key)
    mine_at(costly, 1)
    liar = Liar(costly, changes={**NO_RECEIPT, "eth_getTransactionCount": lambda *_: hex(tx.nonce)})
    with lying_node(liar) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}"')
        transactions.age()
        work()
        assert [bool(version.refused_at) for version in tx.versions.order_by("pk")] == [False, True]
        reconfigure(settings, f'"{url}"', f'"{url}", "{costly.url}"')
        transactions.age()
        assert work_until_done(batch, costly).status == BatchStatus.DONE


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_no_nonce_is_filled_that_one_node_alone_calls_unused(costly, key, settings, is_first):
    """Another program has used the nonce before, so that no row has it."""
    nonce = int(costly.rpc("eth_getTransactionCount", SIGNER, "latest"), 16)
    transactions.send_from_elsewhere(costly, nonce)
    costly.mine()
    batch, _ = money.in_mempool(costly, key)
    liar = Liar(costly, changes={"eth_getTransactionCount": lambda *_: hex(nonce)})
    with lying_node(liar) as url:
        urls = [url, costly.url] if is_first else [costly.url, url]
        reconfigure(settings, f'"{costly.url}"', f'"{urls[0]}", "{urls[1]}"')
        work()
        assert "nonce_gap" not in healthz()["codes"]
        assert work_until_done(batch, costly).status == BatchStatus.DONE
    assert not Transaction.objects.filter(to=SIGNER).exists()


def test_a_tip_that_was_bound_too_low_is_raised_as_the_market_shows_it(costly, key, settings):
    """A node suggests ten times what blocks took; then blocks take that much, too."""
    mine_at(costly, 1)
    paid = [GWEI]
    liar = Liar(
        costly,
        changes={
            "eth_maxPriorityFeePerGas": constant(hex(10 * GWEI)),
            "eth_feeHistory": lambda history, _: history | {"reward": [[hex(paid[-1])]] * 10},
        },
    )
    with lying_node(liar) as url:
        reconfigure(settings, costly.url, url)
        _, tx = money.in_mempool(costly, key)
        assert tx.newest.max_priority_fee_per_gas == GWEI
        paid.append(10 * GWEI)
        costly.rpc("anvil_dropAllTransactions")
        transactions.age()
        work()
        assert tx.newest.max_priority_fee_per_gas == 10 * GWEI


def test_no_node_raises_the_tip_step_by_step(costly, key, settings):
    """It always tells four times what was paid before, in the history of fees too."""
    costly.mine(20)
    mine_at(costly, 1)
    highest = [GWEI]
    liar = Liar(
        costly,
        changes={
            "eth_maxPriorityFeePerGas": lambda *_: hex(4 * highest[-1]),
            "eth_feeHistory": lambda history, _: history | {"reward": [[hex(4 * highest[-1])]] * 10},
        },
    )
    # Other blocks than ours make a network's usual tip.
    honest = Liar(
        costly,
        changes={
            "eth_maxPriorityFeePerGas": constant(hex(GWEI)),
            "eth_feeHistory": lambda history, _: history | {"reward": [[hex(GWEI)]] * 10},
        },
    )
    with lying_node(liar) as first_url, lying_node(honest) as second_url:
        reconfigure(settings, f'"{costly.url}"', f'"{first_url}", "{second_url}"')
        for before in range(9):
            batch = submit(key, request(ALICE, block=costly.head() - before, fee=ETHER))
            go_on(costly, 1, rounds=4)
            assert fresh(batch).status == BatchStatus.DONE
            tips = SignedTransaction.objects.values_list("max_priority_fee_per_gas", flat=True)
            highest.append(max(tips))
    assert highest[-1] <= 4 * GWEI


# --- Rejections and alerts --------------------------------------------------------------------------------------------

HISTORY_CONTRACT = "0x0000F90827F1C53a10cb7A02335B175320002935"
Answers = Callable[[Any, Any], list[Any]]


def told_by(method: str, parameter: str, value: Any) -> Answers:
    """Return the change of a node that tells this result of requests with this parameter."""

    def change(question: Any, reply: Any) -> list[Any]:
        is_asked = question["method"] == method and parameter.lower() in str(question["params"]).lower()
        return [reply | {"result": value} if is_asked else reply]

    return change


def blocks_with(name: str, alter: Callable[[str], str], *, of_newest: bool = True, of_others: bool = True) -> Answers:
    """Return the change of a node that invents headers, in which this field is altered."""

    def change(question: Any, reply: Any) -> list[Any]:
        is_altered = of_newest if question["params"][:1] == ["latest"] else of_others
        if question["method"] != "eth_getBlockByNumber" or not reply["result"] or not is_altered:
            return [reply]
        return [reply | {"result": with_hash(reply["result"] | {name: alter(reply["result"][name])})}]

    return change


def later(time_of_block: str) -> str:
    return hex(int(time_of_block, 16) + 4000)


INVENTED = {
    "no final block": told_by("eth_getBlockByNumber", "finalized", None),
    "no transaction": told_by("eth_getTransactionByHash", "0x", None),
    "state roots": blocks_with("stateRoot", lambda _: "0x" + "11" * 32),
    "state roots below the newest block": blocks_with("stateRoot", lambda _: "0x" + "11" * 32, of_newest=False),
    "later times": blocks_with("timestamp", later),
    "a newest block of the future": blocks_with("timestamp", later, of_others=False),
    "hashes by the history contract": told_by("eth_call", HISTORY_CONTRACT, "0x" + "22" * 32),
    "hashes in slots of the history contract": told_by("eth_getStorageAt", HISTORY_CONTRACT, "0x" + "22" * 32),
}
RESTING = set(INVENTED) - {"no final block", "no transaction"}


@pytest.fixture
def proven(costly, key) -> str:
    """Return the hash of a transaction of the service on a chain whose newest blocks are young."""
    costly.mine(80)
    costly.rpc("evm_setNextBlockTimestamp", int(time.time()))
    mine_at(costly, 1)
    work_until_done(submit(key, request(ALICE, block=costly.head(), fee=ETHER)), costly)
    beat()
    return Transaction.objects.exclude(queries=None).values_list("hash", flat=True).get()


def of_each_kind(chain: DevChain, key: ApiKey, tx_hash: str) -> list[Batch]:
    """Submit a batch for each way to select a block."""
    at = int(chain.rpc("eth_getBlockByNumber", hex(chain.head() - 30), False)["timestamp"], 16)
    selectors = (f"block:{chain.head() - 1}", "finalized", f"timestamp:{at}", f"transaction:{tx_hash}")
    return [submit(key, asking({selector: {"header": ["STATE_ROOT"]}}, fee=ETHER)) for selector in selectors]


@pytest.mark.parametrize("lie", INVENTED)
def test_no_batch_is_rejected_and_nobody_called_for_what_the_first_node_invents(costly, key, settings, proven, lie):
    codes = set[str]()
    with between(costly.url, INVENTED[lie]) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        batches = of_each_kind(costly, key, proven)
        for _ in range(9):
            go_on(costly, 1, rounds=1)
            beat()
            codes.update(healthz()["codes"])
    assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}
    assert not codes
    assert bool(ChainWatch.objects.get().resting_nodes) == (lie in RESTING)


def test_a_node_that_begins_to_tell_a_block_of_the_future_rests(costly, settings, proven, pass_time):
    lie, is_lying = INVENTED["a newest block of the future"], False
    with between(costly.url, lambda question, reply: lie(question, reply) if is_lying else [reply]) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        work()
        is_lying = True
        pass_time(61)
        work()
        assert "clock" not in healthz()["codes"]
    assert "alone tells a newest block" in str(ChainWatch.objects.get().resting_nodes)


def test_the_clock_is_wrong_if_all_nodes_tell_a_block_of_the_future(costly, settings, proven):
    lie = INVENTED["a newest block of the future"]
    with between(costly.url, lie) as first_url, between(costly.url, lie) as second_url:
        reconfigure(settings, f'"{costly.url}"', f'"{first_url}", "{second_url}"')
        work()
        assert "clock" in healthz()["codes"]
    assert ChainWatch.objects.get().resting_nodes == []


def test_a_wrong_history_is_told_although_the_second_node_refuses_to_tell_it(costly, settings, proven):
    def refuse(question: Any, reply: Any) -> list[Any]:
        is_asked = question["method"] in {"eth_call", "eth_getStorageAt"} and HISTORY_CONTRACT in str(
            question["params"]
        )
        return [error(question, *geth_answers.REFUSALS["a block number to come"]) if is_asked else reply]

    wrong = INVENTED["hashes by the history contract"]
    with between(costly.url, wrong) as first_url, between(costly.url, refuse) as second_url:
        reconfigure(settings, f'"{costly.url}"', f'"{first_url}", "{second_url}"')
        work()
        assert "wrong_history" in healthz()["codes"]


def test_a_batch_waits_while_the_first_node_invents_its_block(costly, key, settings, proven):
    """No observation shows it: no other block is invented."""
    number = costly.head() - 30
    invented = blocks_with("stateRoot", lambda _: "0x" + "11" * 32)

    def change(question: Any, reply: Any) -> list[Any]:
        return invented(question, reply) if question["params"][:1] == [hex(number)] else [reply]

    with between(costly.url, change) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        batch = submit(key, request(ALICE, block=number, fee=ETHER))
        work(9)
        waits = str(fresh(batch).wait)
        assert f"tell different hashes of block {number}: " in waits
        assert all(f"by {node.removeprefix('http://').rstrip('/')}" in waits for node in (url, costly.url))
    reconfigure(settings, f'"{url}", ', "")
    assert work_until_done(batch, costly).status == BatchStatus.DONE


def moved(question: Any, reply: Any) -> list[Any]:
    """Tell that a transaction is in the block before its own."""
    if question["method"] != "eth_getTransactionByHash" or not (told := reply["result"]):
        return [reply]
    return [reply | {"result": told | {"blockNumber": hex(int(told["blockNumber"], 16) - 1)}}]


def dear(question: Any, reply: Any) -> list[Any]:
    """Tell a base fee at which the batch would cost more than its user may spend, and the offer is below the cap."""
    if question["method"] != "eth_getBlockByNumber" or question["params"][0] != "latest":
        return [reply]
    return [reply | {"result": with_hash(reply["result"] | {"baseFeePerGas": hex(60 * GWEI)})}]


def late(question: Any, reply: Any) -> list[Any]:
    """Tell that no block is as old as an hour. A block that is asked for beside others is told truly."""
    block, young = reply["result"], int(time.time()) - 1000
    if question["method"] != "eth_getBlockByNumber" or not block or int(block["timestamp"], 16) > young:
        return [reply]
    return [reply | {"result": with_hash(block | {"timestamp": hex(int(time.time()) - 600)})}]


@pytest.mark.parametrize(("lie", "selector"), [(moved, "transaction"), (dear, "block"), (late, "timestamp")])
def test_no_batch_is_rejected_for_what_no_hash_of_a_block_shows(costly, key, settings, proven, lie, selector):
    money.limit(settings, daily_limit=ETHER, daily_limit_per_user=ETHER // 100)
    costly.mine(9)  # The history contract contradicts no block that a node invents further below.
    mine_at(costly, 1)
    blocks = {"transaction": proven, "block": costly.head() - 19, "timestamp": int(time.time()) - 3500}

    def answer(body: Any) -> Any:
        return lie(body, ask(costly.url, body))[0] if isinstance(body, dict) else ask(false_url, body)

    with between(costly.url, lie if lie != late else lambda _, reply: [reply]) as false_url, lying_node(answer) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        account = {"accounts": {ALICE: {"props": ["BALANCE"]}}}
        batch = submit(key, asking({f"{selector}:{blocks[selector]}": account}, fee=ETHER // 200))
        work(9)
        assert "node" in str(fresh(batch).wait)
        assert fresh(batch).status == BatchStatus.RECEIVED
    reconfigure(settings, f'"{url}", ', "")
    assert work_until_done(batch, costly).status == BatchStatus.DONE


def test_no_batch_is_rejected_because_of_a_node_that_is_right_where_it_is_compared(costly, key, settings, proven):
    number, invented = costly.head() - 30, blocks_with("stateRoot", lambda _: "0x" + "11" * 32)
    compared = {hex(number), hex(costly.head())}

    def answer(body: Any) -> Any:
        asked, replies = body if isinstance(body, list) else [body], ask(costly.url, body)
        if {str(question["params"][:1]) for question in asked} == {str([block]) for block in compared}:
            return replies
        by_id = {reply["id"]: reply for reply in (replies if isinstance(replies, list) else [replies])}
        told = [
            *(
                reply
                for question in asked
                for reply in invented(question, by_id[question["id"]])
                if hex(number) in question["params"][:1]
            ),
            *(by_id[question["id"]] for question in asked if hex(number) not in question["params"][:1]),
        ]
        return told if isinstance(body, list) else told[0]

    with lying_node(answer) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        batch = submit(key, request(ALICE, block=number, fee=ETHER))
        work(9)
        assert "an earlier answer" in str(fresh(batch).wait)


# --- Registries -------------------------------------------------------------------------------------------------------

OTHER_CODE = "0x5f195f5260205ff3"


def codes_of(address: str, code: str, *, is_lying: Callable[[], bool], proves: bool) -> Callable[[Any, Any], list[Any]]:
    """Return the change of a node that tells this code of a contract while it lies, and proves accounts or does not."""

    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] == "eth_getProof" and not proves:
            return [error(question, -32601, "no such method")]
        is_asked = question["method"] == "eth_getCode" and question["params"][0] == address
        return [reply | {"result": code} if is_asked and is_lying() else reply]

    return change


@pytest.mark.parametrize(("contract", "code"), [("address", "0x"), ("address", OTHER_CODE), ("multicall", "0x")])
def test_no_registry_is_refused_whose_code_the_first_node_hides(costly, key, settings, contract, code):
    address = getattr(FactsRegistry.in_use.get(), contract)
    mine_at(costly, 1)
    with between(costly.url, codes_of(address, code, is_lying=lambda: True, proves=True)) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
        assert work_until_done(batch, costly).status == BatchStatus.DONE
        assert "registry_refused" not in healthz()["codes"]
    assert f"tells other code at {address}" in str(ChainWatch.objects.get().resting_nodes)


@pytest.mark.parametrize("is_gone", [True, False], ids=["the second invents it", "the first hides it"])
@pytest.mark.parametrize("proves", [True, False], ids=["proven", "not proven"])
def test_a_registry_about_which_nodes_differ_is_neither_refused_nor_used(
    costly, key, settings, pass_time, is_gone, proves
):
    """A proof that there was no code doesn't count, because a node may be behind."""
    row, is_lying = FactsRegistry.in_use.get(), [True]
    code = costly.rpc("eth_getCode", row.address, "latest")
    mine_at(costly, 1)
    if is_gone:
        costly.rpc("anvil_setCode", row.address, "0x")
        costly.rpc("anvil_setBalance", row.address, "0x1")
        costly.mine(5)
        mine_at(costly, 1)
    false = codes_of(row.address, code if is_gone else "0x", is_lying=lambda: is_lying[0], proves=proves)
    true = codes_of(row.address, "", is_lying=lambda: False, proves=proves)
    with between(costly.url, false) as liar, between(costly.url, true) as honest:
        urls = [honest, liar] if is_gone else [liar, honest]
        reconfigure(settings, f'"{costly.url}"', f'"{urls[0]}", "{urls[1]}"')
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
        work(3)
        assert FactsRegistry.in_use.get().refused == ""
        if is_gone or not proves:
            assert not batch.queries.exclude(transactions=None).exists()
            waits = str(fresh(batch).wait)
            assert all(url.removeprefix("http://").rstrip("/") in waits for url in urls)
        is_lying[0] = False
        pass_time(11)
        work()
        assert bool(FactsRegistry.in_use.get().refused) == is_gone


def test_a_registry_with_other_code_is_refused_although_the_second_node_shows_the_right_one(costly, settings):
    address = FactsRegistry.in_use.get().address
    right = costly.rpc("eth_getCode", address, "latest")
    costly.rpc("anvil_setCode", address, OTHER_CODE)
    costly.mine(5)
    with between(costly.url, codes_of(address, right, is_lying=lambda: True, proves=True)) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{costly.url}", "{url}"')
        work()
    assert "its code differs from this version's contract" in FactsRegistry.in_use.get().refused


def test_no_registry_is_refused_whose_code_the_first_node_hides_once(costly, key, settings):
    address, mine = FactsRegistry.in_use.get().address, [True]
    mine_at(costly, 1)
    hidden = codes_of(address, "0x", is_lying=lambda: mine.pop() if mine else False, proves=True)
    with between(costly.url, hidden) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        work()
        assert not mine
        assert FactsRegistry.in_use.get().refused == ""


@pytest.mark.parametrize("lie", ["reverts", "poor"])
def test_nothing_is_cancelled_where_the_first_node_alone_says_that_it_fails(costly, key, settings, lie):
    mine_at(costly, 1)
    batch, tx = money.in_mempool(costly, key)
    costly.rpc("anvil_dropAllTransactions")
    transactions.age()
    with lying_node(Liar(costly, lie=lie)) as url:
        reconfigure(settings, f'"{costly.url}"', f'"{url}", "{costly.url}"')
        work()
        assert [version.is_cancellation for version in tx.versions.all()] == [False, False]
        assert work_until_done(batch, costly).status == BatchStatus.DONE


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("is_new", [True, False], ids=["new database", "older backup"])
def test_a_used_nonce_that_a_node_calls_unused_stops_nobody_for_longer_than_the_lie(
    costly, key, settings, separate_transactions, nodes, is_new
):
    """The signer has used 500 nonces that the database doesn't know. Where it knows none, two nodes are compared."""
    batches = [] if is_new else [submit(key, request(ALICE, block=costly.head(), fee=ETHER))]
    for batch in batches:
        work_until_done(batch, costly)
    costly.rpc("anvil_setNonce", SIGNER, hex(500))
    costly.mine(70)
    costly.rpc("evm_setNextBlockTimestamp", int(time.time()))
    mine_at(costly, 1)
    before, block = receipts.balance(costly), costly.head()
    liar = Liar(costly, changes={"eth_getTransactionCount": constant("0x0")})
    with lying_node(liar) as url:
        urls = ", ".join(f'"{node_url}"' for node_url in [url, costly.url][:nodes])
        reconfigure(settings, f'"{costly.url}"', urls)
        later = [submit(key, request(ALICE, block=block - number, fee=ETHER)) for number in range(5)]
        go_on(costly, 1, rounds=4, aged=True)
        assert {fresh(batch).status == BatchStatus.DONE for batch in later} == {nodes == 2 and is_new}
        liar.changes = {}
        for batch in later:
            assert work_until_done(batch, costly, rounds=20).status == BatchStatus.DONE
        beat()
        work()
        # The first nonce that a worker sees counts. It is compared, or proven.
        assert healthz()["codes"] == []
    assert len(chain_state.events(costly, chain_state.ACCOUNT_PROVEN)) == len([*batches, *later])
    assert 0 < before - receipts.balance(costly) < len(later) * USUAL / BATCHES


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_a_node_that_calls_used_nonces_unused_and_takes_their_transactions_stops_nobody(
    costly, key, settings, separate_transactions, is_first
):
    """The database is new. The node lies until the transactions are sent, and has no blocks to prove an account."""
    costly.rpc("anvil_setNonce", SIGNER, hex(500))
    costly.mine(70)
    costly.rpc("evm_setNextBlockTimestamp", int(time.time()))
    mine_at(costly, 1)
    block, is_lying = costly.head(), True

    def change(question: Any, reply: Any) -> list[Any]:
        match question["method"], question["params"]:
            case "eth_getTransactionCount", _ if is_lying:
                return [reply | {"result": "0x0"}]
            case "eth_getBlockByNumber", [str(selected), _] if is_lying and selected.startswith("0x"):
                return [result(question, None)]
            case "eth_sendRawTransaction", [raw] if is_lying:
                return [result(question, "0x" + keccak(bytes.fromhex(raw[2:])).hex())]
        return [reply]

    with between(costly.url, change) as url:
        urls = [url, costly.url] if is_first else [costly.url, url]
        reconfigure(settings, f'"{costly.url}"', f'"{urls[0]}", "{urls[1]}"')
        batches = [submit(key, request(ALICE, block=block - number, fee=ETHER)) for number in range(4)]
        go_on(costly, 1, rounds=4)
        is_lying = False
        costly.mine(70)
        go_on(costly, 1, rounds=6)
        assert not Stop.objects.exists()
        assert not Signer.objects.exclude(foreign_count=0).exists()
        for batch in batches:
            assert work_until_done(batch, costly).status == BatchStatus.DONE


NONCES = {"eth_getTransactionCount": in_turn(higher_by(3), higher_by(-3), constant("0x0"))}
WAVERING = {
    "nonces": NONCES,
    "nonces, estimates and receipts": {
        **NONCES,
        "eth_estimateGas": in_turn(multiplied_by(10), constant(hex(30_000)), multiplied_by(1)),
        "eth_getTransactionReceipt": in_turn(constant(None), lambda receipt, _: receipt),
    },
}


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("changes", WAVERING.values(), ids=WAVERING.keys())
def test_nobody_is_needed_after_a_node_has_told_another_lie_at_each_answer(costly, key, settings, nodes, changes):
    """Blocks are replaced meanwhile."""
    costly.mine(70)
    costly.rpc("evm_setNextBlockTimestamp", int(time.time()))
    mine_at(costly, 1)
    head = costly.head()
    batches = [submit(key, request(ALICE, block=head, fee=ETHER))]
    work_until_done(batches[0], costly)
    liar = Liar(costly, changes=changes)
    with lying_node(liar) as url:
        urls = ", ".join(f'"{node_url}"' for node_url in [url, costly.url][:nodes])
        reconfigure(settings, f'"{costly.url}"', urls)
        for number in range(1, 7):
            batches.append(submit(key, request(ALICE, block=head - number, fee=ETHER)))
            go_on(costly, 1, rounds=1, aged=number > 4)
            if number == 3:
                costly.rpc("anvil_reorg", 2, [])
        liar.changes = {}
        go_on(costly, 1, rounds=9, aged=True)
        beat()
        assert healthz()["codes"] == []
    assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}
    assert len(chain_state.events(costly, chain_state.ACCOUNT_PROVEN)) == len(batches)
