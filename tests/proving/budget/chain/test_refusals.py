"""Each refusal of a broadcast ends with the fault of the nodes. Nobody frees a signer, and nothing is paid twice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import rlp
from django.db.models import F
from django.db.models.functions import Now

from accounts.models import ApiKey
from devnet.devchain import DevChain
from proving.models import SignedTransaction, Transaction
from queries.models import Batch, BatchStatus
from tests import headers, users
from tests.chains import geth_answers
from tests.chains.lying_node import Raw, ask, between, error, estimating, lying_node
from tests.proving import chain_state, kills, prices, transactions
from tests.proving.money import cancel, limit, pending, set_fee, spent_today
from tests.service import done, fresh, reconfigure, request, submit, waiting, work, work_until_done

pytestmark = [pytest.mark.outside, pytest.mark.django_db(transaction=True)]

# test_refused_sends.py has the words of other clients than geth.
REFUSALS = {
    **geth_answers.REFUSED_SENDS,
    "pool full": geth_answers.REFUSED_SENDS_IF_NOT_KEPT["pool full"],
    "unknown sentence": "computer says no",
    "silence": "",
}
# The rounds in which a node refuses all.
ROUNDS = 12


class RefusingNode:
    """A node before the chain that takes no transaction for which `why` has a sentence. Without words it is silent."""

    def __init__(self, chain: DevChain) -> None:
        self.url = chain.url
        self.why: Callable[[bytes], str | None] = lambda _: None
        self.refused = self.taken = 0

    def __call__(self, body: Any) -> Any:
        if isinstance(body, dict) and body["method"] == "eth_sendRawTransaction":
            words = self.why(bytes.fromhex(body["params"][0][2:]))
            if words is not None:
                self.refused += 1
                return error(body, -32000, words) if words else Raw(status=504)
            self.taken += 1
        return ask(self.url, body)


@pytest.fixture
def node(costly: DevChain, settings) -> Iterator[RefusingNode]:
    node = RefusingNode(costly)
    with lying_node(node) as url:
        reconfigure(settings, costly.url, url)
        prices.mine_at(costly, 1)
        yield node


def later() -> None:
    """Let so much time pass that everything is tried again."""
    transactions.age()
    SignedTransaction.objects.exclude(broadcast_at=None).update(broadcast_at=F("created_at"))


def go_on(chain: DevChain, rounds: int) -> None:
    """Work and mine a block, with so much time before each round that everything is tried again."""
    for _ in range(rounds):
        later()
        work()
        prices.mine_at(chain, 1)


@contextmanager
def refusing(node: RefusingNode, words: str) -> Iterator[None]:
    """Let the node refuse all transactions for long."""
    node.why, before = lambda _: words, node.refused
    yield
    for _ in range(ROUNDS):
        later()
        work()
    assert node.refused > before
    node.why = lambda _: None


def reserved(chain: DevChain, node: RefusingNode, killing: kills.Killer, words: str, batch: Batch) -> None:
    """The worker is killed before it signs."""
    with killing.once(SignedTransaction.objects.filter(hash=None).exists):
        work_until_done(batch, rounds=2)
    assert killing.killed
    with refusing(node, words):
        pass


def signed(chain: DevChain, node: RefusingNode, killing: kills.Killer, words: str, batch: Batch) -> None:
    with refusing(node, words):
        pending(batch)


def sent(chain: DevChain, node: RefusingNode, killing: kills.Killer, words: str, batch: Batch) -> None:
    """Nodes forget the transaction."""
    pending(batch)
    chain.rpc("anvil_dropAllTransactions")
    with refusing(node, words):
        pass


def replaced(chain: DevChain, node: RefusingNode, killing: kills.Killer, words: str, batch: Batch) -> None:
    """Nodes keep the version before."""
    pending(batch)
    with refusing(node, words):
        pass


def cancelling(chain: DevChain, node: RefusingNode, killing: kills.Killer, words: str, batch: Batch) -> None:
    """Another transaction stands before that of the batch, and is cancelled."""
    pending(batch)
    cancel(batch)
    with refusing(node, words):
        pass


STATES = (reserved, signed, sent, replaced, cancelling)
CASES = {f"{name}, {state.__name__}": (state, words) for name, words in REFUSALS.items() for state in STATES}


@pytest.mark.long
@pytest.mark.story("gas too low, signed")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_refusal_ends_with_the_fault_of_the_nodes(costly, key, node, killing, case):
    state, words = case
    block, nonce = costly.head(), chain_state.signer_nonce(costly)
    batch = submit(key, request(users.ALICE, block=block, fee=prices.ETHER))
    state(costly, node, killing, words, batch)
    behind = submit(key, request(users.BOB, block=block - 1, fee=prices.ETHER))
    go_on(costly, 4)
    proven = 1 if state is cancelling else 2
    assert [fresh(each).status for each in (behind, batch)[:proven]] == [BatchStatus.DONE] * proven, waiting()
    assert chain_state.signer_nonce(costly) == chain_state.signer_nonce(costly, "pending") == nonce + 2
    assert len(chain_state.events(costly, chain_state.ACCOUNT_PROVEN)) == proven


@pytest.mark.long
def test_a_refused_version_rests_and_a_version_never_sent_goes_at_once(costly, key, node, caplog):
    node.why = lambda _: REFUSALS["pool full"]
    submit(key, request(users.ALICE, block=costly.head(), fee=prices.ETHER))
    for _ in range(4):
        work()
        SignedTransaction.objects.update(refused_at=Now())
    assert node.refused == 1
    transactions.age()
    SignedTransaction.objects.update(refused_at=Now())
    work()
    assert node.refused == SignedTransaction.objects.count() == 1
    transactions.age()
    # A higher fee would be refused too.
    work(2)
    assert (node.refused, SignedTransaction.objects.count()) == (2, 1)
    node.why = lambda _: None
    SignedTransaction.objects.update(refused_at=F("created_at") - timedelta(hours=1))
    work()
    assert (node.taken, SignedTransaction.objects.count()) == (1, 1)
    # The transaction is old, so its fees rise.
    work(2)
    assert (node.taken, SignedTransaction.objects.count()) == (2, 2)
    logged = [record.getMessage() for record in caplog.records]
    assert sum(message.startswith(f"broadcasting for {users.SIGNER}") for message in logged) == 2


# --- Versions that no node takes again --------------------------------------------------------------------------------


def lacks_gas(raw: bytes) -> str | None:
    """Return geth's words if a transaction lacks the gas that its bytes take, and the least for them (EIP-7623)."""
    fields = rlp.decode(raw[1:])
    gas, units = int.from_bytes(fields[4]), 4 * len(fields[7]) - 3 * fields[7].count(0)
    for case, least in (("gas too low", 21_000 + 4 * units), ("gas too low for the data", 21_000 + 10 * units)):
        if gas < least:
            return f"{REFUSALS[case].partition(':')[0]}: gas {gas}, minimum needed {least}"
    return None


def signed_otherwise(chain: DevChain, key: ApiKey, *, gas: int, gwei: int) -> list[Batch]:
    """Return three batches, whose transactions have this gas limit and price, on a chain with small blocks."""
    batches = [submit(key, request(users.ALICE, block=chain.head() - place, fee=prices.ETHER)) for place in range(3)]
    for batch in batches:
        batch.refresh_from_db()
    work(2)
    for tx in Transaction.objects.all():
        transactions.sign_otherwise(tx, gas=gas, price=gwei * prices.GWEI)
    chain.rpc("anvil_dropAllTransactions")
    chain.rpc("evm_setBlockGasLimit", hex(1_000_000))
    prices.mine_at(chain, 1)
    work()
    return batches


# The market's offer is 3 gwei, and fees rise up to three times as much. In order: the gas limit, the price, the node.
WRONG = {
    "too little for the bytes, and the node refuses it": (34_500, 9, lacks_gas),
    "too little for the bytes, and the node keeps it for ever": (34_500, 9, lambda _: None),
    "more than a block has": (1_500_000, 9, lambda _: None),
    "too little for the bytes, at the highest price": (34_500, 190, lacks_gas),
}


@pytest.mark.long
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_version_signed_with_an_impossible_gas_limit_is_signed_anew(costly, key, node, separate_transactions, wrong):
    gas, gwei, node.why = wrong
    batches = signed_otherwise(costly, key, gas=gas, gwei=gwei)
    go_on(costly, 10)
    assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}, waiting()
    assert len(chain_state.events(costly, chain_state.ACCOUNT_PROVEN)) == 3
    # At the highest price, only a cancellation offers more.
    failed = [tx for tx in Transaction.objects.all() if not tx.succeeded]
    assert all(tx.newest.is_cancellation and gwei == 190 for tx in failed)


@pytest.mark.long
@pytest.mark.parametrize("times", [0, 10])
def test_a_transaction_lacking_gas_gets_the_expected_gas_while_nodes_estimate_falsely(
    costly, key, node, separate_transactions, times
):
    batches = signed_otherwise(costly, key, gas=34_500, gwei=3)
    with estimating(node.url, lambda gas: times * gas) as node.url:
        go_on(costly, 8)
        assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}, waiting()
    assert not Transaction.objects.exclude(succeeded=True).exists()
    assert max(version.gas for version in SignedTransaction.objects.all()) < 300_000


@pytest.mark.long
def test_a_chain_that_takes_more_gas_than_others_gets_it_once_it_has_refused_less(costly, key, node):
    """Some rollups charge gas for data."""
    node.why = lambda raw: "intrinsic gas too low" if int.from_bytes(rlp.decode(raw[1:])[4]) < 500_000 else None
    with estimating(node.url, lambda gas: 10 * gas) as node.url:
        batch = submit(key, request(users.ALICE, block=costly.head() - 1, fee=prices.ETHER))
        for _ in range(4):
            work()
            later()
            prices.mine_at(costly, 1)
        assert fresh(batch).status == BatchStatus.DONE, waiting()
    assert node.refused


@pytest.mark.long
def test_no_fee_is_raised_above_what_the_signer_can_pay(costly, key, node):
    batch = submit(key, request(users.ALICE, block=costly.head(), fee=prices.ETHER))
    tx = pending(batch)
    costly.rpc("anvil_dropAllTransactions")
    costly.rpc("anvil_setBalance", users.SIGNER, hex(tx.cost * 3 // 2))
    with refusing(node, REFUSALS["pool full"]):
        pass
    go_on(costly, 4)
    assert fresh(batch).status == BatchStatus.DONE, waiting()


@pytest.mark.long
def test_a_transaction_whose_fee_leaves_too_little_gas_is_cancelled_for_those_behind_it(
    costly, key, node, separate_transactions
):
    node.why = lacks_gas
    poor, *others = signed_otherwise(costly, key, gas=34_500, gwei=3)
    set_fee(poor, 34_500 * 4 * prices.GWEI)
    go_on(costly, 8)
    assert {fresh(batch).status for batch in others} == {BatchStatus.DONE}, waiting()
    assert Transaction.objects.get(queries__batch=poor).newest.is_cancellation
    assert fresh(poor).spent <= poor.fee


@pytest.mark.long
def test_more_gas_is_within_the_daily_limit(costly, key, node, settings):
    batches = signed_otherwise(costly, key, gas=34_500, gwei=3)
    limit(settings, daily_limit=4 * 34_500 * 3 * prices.GWEI, daily_limit_per_user=prices.ETHER)
    go_on(costly, 3)
    # One is cancelled for those behind it.
    assert {version.gas for version in SignedTransaction.objects.all()} <= {34_500, 21_000}
    assert (spent_today() or 0) <= 4 * 34_500 * 3 * prices.GWEI
    limit(settings, daily_limit=prices.ETHER, daily_limit_per_user=prices.ETHER)
    go_on(costly, 8)
    assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}, waiting()


@pytest.mark.long
def test_a_chain_whose_blocks_have_no_gas_limit_takes_proofs(costly, key, node):
    def change(question: Any, reply: Any) -> list[Any]:
        is_head = question["method"] == "eth_getBlockByNumber" and question["params"][0] == "latest"
        return [reply | {"result": headers.with_hash(reply["result"] | {"gasLimit": "0x0"})} if is_head else reply]

    with between(node.url, change) as node.url:
        done(submit(key, request(users.ALICE, block=costly.head() - 2, fee=prices.ETHER)), costly)


@pytest.mark.long
def test_a_transaction_too_large_for_any_block_is_not_signed(costly, key, node):
    limit = costly.rpc("eth_getBlockByNumber", "latest", False)["gasLimit"]
    costly.rpc("evm_setBlockGasLimit", hex(90_000))
    prices.mine_at(costly, 1)
    costly.rpc("evm_setBlockGasLimit", limit)
    batch = submit(key, request(users.ALICE, block=costly.head() - 1, fee=prices.ETHER))
    work(2)
    assert not Transaction.objects.exists()
    assert any(sentence.startswith("A transaction would need ") for sentence in waiting())
    assert work_until_done(batch, costly).status == BatchStatus.DONE
