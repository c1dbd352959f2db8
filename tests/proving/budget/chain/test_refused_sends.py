"""The state of the chain decides what follows a refused broadcast. A node's words, in any language, decide nothing."""

import json
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import rlp
from django.utils import timezone

from devnet.devchain import DevChain
from proving.models import SignedTransaction, Transaction, TransactionState
from queries.models import BatchStatus
from tests.chains.geth_answers import REFUSED_SENDS_IF_NOT_KEPT
from tests.chains.lying_node import ask, each, lying_node
from tests.proving.chain_state import ACCOUNT_PROVEN, events, signer_nonce
from tests.proving.money import pending
from tests.proving.prices import ETHER, mine_at
from tests.proving.transactions import age, send_from_elsewhere, sign_otherwise
from tests.service import fresh, reconfigure, request, submit, waiting, work
from tests.users import ALICE, SIGNER

pytestmark = [pytest.mark.long, pytest.mark.outside, pytest.mark.django_db(transaction=True)]

# Sentences of public reports: the client, what it meant, and its words.
ROWS: Sequence[dict[str, str]] = json.loads((Path(__file__).parents[1] / "refused_sends.json").read_text("utf-8"))
# Errors from the sources and documentation of further clients.
FURTHER: Sequence[tuple[str, str, dict[str, Any]]] = (
    (
        "Conflux",
        "NonceTooLow",
        {"code": -32602, "message": "Invalid parameters: tx", "data": "is discarded due to a too stale nonce"},
    ),
    (
        "Reth",
        "NonceTooLow",
        {"code": -32003, "message": "transaction nonce is not consistent: next nonce 5, tx nonce 4"},
    ),
    ("Aurora", "NonceTooLow", {"code": -32000, "message": "ERR_INCORRECT_NONCE"}),
    ("Lotus", "NonceTooLow", {"code": 1, "message": "minimum expected nonce is 5: message nonce too low"}),
    ("Conflux", "AlreadyKnown", {"code": -32602, "message": "Invalid parameters: tx", "data": "tx already exist"}),
    ("Erigon", "AlreadyKnown", {"code": -32000, "message": "INTERNAL_ERROR: existing tx with same hash"}),
    (
        "Conflux",
        "ReplacementUnderpriced",
        {"code": -32602, "message": "Invalid parameters: tx", "data": "Tx with same nonce already inserted."},
    ),
    (
        "Reth",
        "InsufficientFunds",
        {"code": -32003, "message": "sender does not have enough funds (1) to cover transaction fees: 2"},
    ),
    ("Hedera", "FeeTooLow", {"code": -32009, "message": "Gas price '1' is below configured minimum gas price '710'"}),
    ("Besu", "FeeTooLow", {"code": -32009, "message": "Gas price below current base fee"}),
    ("Subnet-EVM", "RpcRefused", {"code": -32000, "message": "cannot issue transaction from non-allow listed address"}),
    (
        "QuickNode",
        "RpcRefused",
        {"code": -32007, "message": "50/second request limit reached - reduce calls per second"},
    ),
    ("Alchemy", "RpcRefused", {"code": 429, "message": "Your app has exceeded its compute units per second capacity."}),
)
OTHER_WORDS: Sequence[dict[str, Any]] = (
    {"code": -32000, "message": ""},
    {"code": -32000},
    {"code": "-32000", "message": None},
    {"code": -32000, "message": "nonce zu niedrig: nächste Nonce 5"},
    {"code": -32000, "message": "交易 nonce 过低"},
    {"code": -32003, "message": "fonds insuffisants pour le gaz"},
    {"code": -32010, "message": "транзакция уже известна"},
    {"code": -32005, "message": "手数料が低すぎます"},
    {"code": 3, "message": "رصيد غير كاف"},
)
REFUSALS: Sequence[tuple[str, dict[str, Any]]] = (
    *((row["kind"], {"code": -32000, "message": row["message"]}) for row in ROWS),
    *((kind, refusal) for _, kind, refusal in FURTHER),
    *(("RpcRefused", {"code": -32000, "message": words}) for words in REFUSED_SENDS_IF_NOT_KEPT.values()),
)
IDS = [
    *(f"{row['client']}: {row['message'][:50]}" for row in ROWS),
    *(f"{name}, {kind}" for name, kind, _ in FURTHER),
    *(f"geth: {case}" for case in REFUSED_SENDS_IF_NOT_KEPT),
]


def is_about_refusal(body: Any) -> bool:
    return isinstance(body, list) and any(question["method"] == "eth_getTransactionByHash" for question in body)


@dataclass
class RefusingNode:
    """A node before the chain. It refuses transactions with `refusal`, after it has made the cause by `arrange`."""

    chain: DevChain
    refusal: dict[str, Any] | None = None
    arrange: Callable[[Any], object] = lambda _: None
    bodies: list[Any] = field(default_factory=list)
    refused: int = 0
    kills_at: str = ""
    """The exchange at which the worker is killed, before it gets the answer."""

    @property
    def questions(self) -> list[Any]:
        """Return the bodies that ask for a refused transaction."""
        return [body for body in self.bodies if is_about_refusal(body)]

    def __call__(self, body: Any) -> Any:
        self.bodies.append(body)
        answered = each(self._answer)(body)
        if (self.kills_at == "questions" and is_about_refusal(body)) or (self.kills_at == "refusal" and self.refused):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        return answered

    def _answer(self, question: Any) -> Any:
        if question["method"] != "eth_sendRawTransaction" or self.refusal is None:
            return ask(self.chain.url, question)
        self.refused += 1
        self.arrange(question)
        return {"jsonrpc": "2.0", "id": question["id"], "error": self.refusal}


@pytest.fixture
def node(costly: DevChain, settings) -> Iterator[RefusingNode]:
    node = RefusingNode(costly)
    with lying_node(node) as url:
        reconfigure(settings, costly.url, url)
        mine_at(costly, 1)
        yield node


def nonce_of(question: Any) -> int:
    return int.from_bytes(rlp.decode(bytes.fromhex(question["params"][0][4:]))[1])


def try_again() -> None:
    """Let the pause after a refusal end, and do all work once. Nothing looks old enough for higher fees."""
    now = timezone.now()
    SignedTransaction.objects.update(created_at=now)
    SignedTransaction.objects.exclude(refused_at=None).update(refused_at=now - timedelta(hours=1))
    SignedTransaction.objects.exclude(broadcast_at=None).update(broadcast_at=now - timedelta(hours=1))
    work()


# --- Causes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """A state of the chain that explains a refusal, and the code of the wait that is shown for it."""

    arrange: Callable[[DevChain, Any], object]
    code: str
    mend: Callable[[DevChain], object] = lambda _: None
    is_replacement: bool = False
    """True if a version with higher fees is refused."""


KNOWN = State(lambda chain, question: ask(chain.url, question), "")
STATES = {
    "AlreadyKnown": KNOWN,
    "NonceTooLow": State(lambda chain, _: mine_at(chain, 1), "", is_replacement=True),
    "ReplacementUnderpriced": State(lambda *_: None, "replacement_fees_too_low", is_replacement=True),
    "InsufficientFunds": State(
        lambda chain, _: chain.rpc("anvil_setBalance", SIGNER, "0x1"),
        "signer_cant_pay",
        lambda chain: chain.rpc("anvil_setBalance", SIGNER, hex(1000 * ETHER)),
    ),
    "FeeTooLow": State(lambda chain, _: mine_at(chain, 50), "fees_too_low"),
    "RpcRefused": State(lambda *_: None, "node_fails"),
}


def code_of(tx: Transaction) -> str:
    return tx.error.code if tx.error else ""


@pytest.mark.parametrize(("kind", "refusal"), REFUSALS, ids=IDS)
def test_each_refused_broadcast_is_decided_by_the_state_and_paid_once(costly, key, node, kind, refusal):
    state, nonce = STATES[kind], signer_nonce(costly)
    batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
    if state.is_replacement:
        pending(batch)
        age()
    node.refusal, node.arrange = refusal, lambda question: state.arrange(costly, question)
    work(1 if state.is_replacement else 2)
    tx = Transaction.objects.get()
    assert node.refused == 1
    assert code_of(tx) == state.code
    assert bool(tx.newest.broadcast_at) == (state is KNOWN)
    assert bool(tx.newest.refused_at) == (state is not KNOWN)
    node.refusal = None
    state.mend(costly)
    for _ in range(3):
        mine_at(costly, 1)
        try_again()
    assert fresh(batch).status == BatchStatus.DONE, waiting()
    assert signer_nonce(costly) == signer_nonce(costly, "pending") == nonce + 1
    assert len(events(costly, ACCOUNT_PROVEN)) == Transaction.objects.count() == 1


def forget(chain: DevChain, _: Transaction) -> None:
    chain.rpc("anvil_dropAllTransactions")


def keep(chain: DevChain, tx: Transaction) -> None:
    """The transaction stays in the mempool."""


def take_nonce(chain: DevChain, tx: Transaction) -> None:
    forget(chain, tx)
    send_from_elsewhere(chain, tx.nonce)


def take_funds(chain: DevChain, tx: Transaction) -> None:
    forget(chain, tx)
    chain.rpc("anvil_setBalance", SIGNER, hex(tx.cost - 1))


def raise_base_fee(chain: DevChain, tx: Transaction) -> None:
    forget(chain, tx)
    mine_at(chain, 50)


def lower_gas(chain: DevChain, tx: Transaction) -> None:
    sign_otherwise(tx, gas=34_500, price=tx.newest.max_fee_per_gas)
    forget(chain, tx)


# The code that is shown, and the clause in the log.
CAUSES: dict[Callable[[DevChain, Transaction], None], tuple[str, str]] = {
    keep: ("", ""),
    take_nonce: ("replacement_fees_too_low", "nodes have another transaction with its nonce"),
    take_funds: ("signer_cant_pay", "its signer has less than it may cost"),
    raise_base_fee: ("fees_too_low", "its fee is below the base fee"),
    lower_gas: ("node_fails", "its gas limit is below what its bytes take"),
    forget: ("node_fails", "nothing on the chain explains the refusal"),
}


@pytest.mark.parametrize(("arrange", "shown"), CAUSES.items(), ids=[arrange.__name__ for arrange in CAUSES])
def test_refusals_are_decided_alike_whatever_a_node_says(costly, key, node, caplog, arrange, shown):
    code, clause = shown
    submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
    work(2)
    arrange(costly, Transaction.objects.get())
    before = SignedTransaction.objects.get().hash
    one_of_each_kind = dict(REFUSALS).values()
    for number, refusal in enumerate([*OTHER_WORDS, *one_of_each_kind], 1):
        node.refusal = refusal
        caplog.clear()
        try_again()
        tx = Transaction.objects.get()
        assert node.refused == number, refusal
        assert (code_of(tx), tx.state, tx.latest_hash) == (code, TransactionState.PENDING, before), refusal
        assert bool(tx.newest.refused_at) == (arrange is not keep), refusal
        if clause:
            (logged,) = (line for line in caplog.messages if line.startswith("broadcasting "))
            assert clause in logged
            # The words are for people.
            assert str(refusal.get("message") or "")[:40] in logged


def test_a_signer_must_be_able_to_pay_for_what_comes_before(costly, key, node, separate_transactions):
    for place in (1, 2):
        submit(key, request(ALICE, block=costly.head() - place, fee=ETHER))
    work(2)
    lower, upper = Transaction.objects.order_by("nonce")
    costly.rpc("anvil_dropTransaction", upper.latest_hash)
    for lacking, code in ((1, "signer_cant_pay"), (0, "node_fails")):
        costly.rpc("anvil_setBalance", SIGNER, hex(lower.cost + upper.cost - lacking))
        node.refusal = OTHER_WORDS[0]
        try_again()
        assert [code_of(fresh(tx)) for tx in (lower, upper)] == ["", code]


def test_an_earlier_version_in_a_block_explains_the_refusal_before_it_is_confirmed(costly, key, settings, node):
    reconfigure(settings, "confirmations = 1", "confirmations = 9")
    costly.mine(9)
    mine_at(costly, 1)
    pending(submit(key, request(ALICE, block=costly.head() - 9, fee=ETHER)))
    age()
    node.refusal, node.arrange = OTHER_WORDS[0], lambda _: mine_at(costly, 1)
    work()
    assert node.refused == 1
    assert code_of(Transaction.objects.get()) == ""


@pytest.mark.parametrize("refusal", [OTHER_WORDS[0], OTHER_WORDS[3]])
def test_a_transaction_behind_one_that_nodes_lack_goes_with_it(costly, key, node, separate_transactions, refusal):
    node.refusal = refusal
    batches = [submit(key, request(ALICE, block=costly.head() - place, fee=ETHER)) for place in (1, 2)]
    work(2)
    lower, upper = Transaction.objects.order_by("nonce")
    assert (code_of(lower), code_of(upper)) == ("node_fails", "")
    node.refusal = None
    mine_at(costly, 1)
    try_again()
    mine_at(costly, 1)
    work()
    assert {fresh(batch).status for batch in batches} == {BatchStatus.DONE}, waiting()


# --- One node that tells a nonce too high -----------------------------------------------------------------------------


@dataclass
class NonceLiar(RefusingNode):
    """A node that refuses, and then tells a nonce that is too high at these blocks."""

    lies_at: Collection[str] = ()

    def __call__(self, body: Any) -> Any:
        answered = super().__call__(body)
        asked, answers = (part if isinstance(part, list) else [part] for part in (body, answered))
        for question, answer in zip(asked, answers, strict=True):
            if self.refusal and question["method"] == "eth_getTransactionCount":
                block = question["params"][1]
                # The monitor's questions are answered truly: it wouldn't broadcast what it takes for mined.
                named = block if is_about_refusal(body) else "by the monitor"
                if ("number" if block.startswith("0x") else named) in self.lies_at:
                    answer["result"] = hex(int(answer["result"], 16) + 3)
        return answered


NAMED, ALL = ("latest", "pending"), ("latest", "pending", "number")
TELLING: Sequence[tuple[Sequence[Collection[str]], str]] = (
    ([NAMED], "node_fails"),
    ([ALL], ""),
    ([ALL, ()], "node_fails"),
    ([(), ALL], "node_fails"),
    ([ALL, ALL], ""),
)


@pytest.mark.parametrize(("lies", "code"), TELLING)
def test_no_nonce_is_given_up_where_nodes_call_it_too_low(costly, key, settings, lies, code):
    """Only a second node or a confirmed block shows a nonce as used. Even these give up nothing."""
    mine_at(costly, 1)
    nonce, nodes = signer_nonce(costly), [NonceLiar(costly, lies_at=lie) for lie in lies]
    with ExitStack() as stack:
        urls = ", ".join(f'"{stack.enter_context(lying_node(node))}"' for node in nodes)
        reconfigure(settings, f'"{costly.url}"', urls)
        for node in nodes:
            node.refusal = {"code": -32000, "message": "nonce too low"}
        batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
        work(2)
        for _ in range(3):
            tx = Transaction.objects.get()
            assert (code_of(tx), tx.state, tx.versions.count()) == (code, TransactionState.PENDING, 1)
            try_again()
        for node in nodes:
            node.refusal = None
        for _ in range(3):
            mine_at(costly, 1)
            try_again()
        assert fresh(batch).status == BatchStatus.DONE, waiting()
    assert signer_nonce(costly) == signer_nonce(costly, "pending") == nonce + 1
    assert len(events(costly, ACCOUNT_PROVEN)) == SignedTransaction.objects.count() == 1


# --- Pauses, exchanges and kills --------------------------------------------------------------------------------------

# Seconds for which refusals have gone on unexplained, and until the next broadcast.
PAUSES = {0: 10, 10: 20, 30: 40, 70: 80, 150: 160, 310: 300, 86_400: 300}


@pytest.mark.parametrize(("seconds", "pause"), PAUSES.items())
def test_a_send_refused_without_a_known_cause_rests_longer_each_time(costly, key, node, seconds, pause):
    node.refusal = {"code": -32000, "message": ""}
    submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
    work(2)
    assert node.refused == 1
    for early, refused in ((5, 1), (-1, 2)):
        now = timezone.now()
        refused_at = now - timedelta(seconds=pause - early)
        Transaction.objects.update(spent_at=refused_at - timedelta(seconds=seconds))
        SignedTransaction.objects.update(created_at=now, refused_at=refused_at)
        work()
        assert node.refused == refused


@pytest.mark.parametrize("transactions", [1, 2], ids=["one transaction", "two transactions"])
@pytest.mark.parametrize("nodes", [1, 2], ids=["one node", "two nodes"])
def test_a_refusal_takes_three_exchanges_at_most(costly, key, settings, separate_transactions, nodes, transactions):
    mine_at(costly, 1)
    refusing = [RefusingNode(costly) for _ in range(nodes)]
    with ExitStack() as stack:
        urls = ", ".join(f'"{stack.enter_context(lying_node(node))}"' for node in refusing)
        reconfigure(settings, f'"{costly.url}"', urls)
        for place in range(transactions):
            submit(key, request(ALICE, block=costly.head() - 1 - place, fee=ETHER))
        work(2)
        exchanges = []
        for refusal in (None, {"code": -32000, "message": ""}):
            costly.rpc("anvil_dropAllTransactions")
            for node in refusing:
                node.refusal = refusal
                node.bodies.clear()
            try_again()
            exchanges.append(sum(len(node.bodies) for node in refusing))
        assert any(node.refused for node in refusing)
    taken, refused = exchanges
    assert 0 < refused - taken <= 3 * transactions


@pytest.mark.parametrize("exchange", ["refusal", "questions"])
def test_a_kill_after_a_refusal_loses_nothing(costly, key, node, killing, exchange):
    """Nothing is stored about a refusal before its cause, so the next worker broadcasts again at once."""
    nonce, node.refusal = signer_nonce(costly), {"code": -32000, "message": ""}
    batch = submit(key, request(ALICE, block=costly.head() - 1, fee=ETHER))
    node.kills_at = exchange
    with killing.dying():
        work(2)
    assert killing.killed
    assert (node.refused, len(node.questions)) == (1, exchange == "questions")
    assert SignedTransaction.objects.get(refused_at=None, broadcast_at=None).hash
    node.refusal, node.kills_at = None, ""
    work()
    assert SignedTransaction.objects.get().broadcast_at
    mine_at(costly, 1)
    work()
    assert fresh(batch).status == BatchStatus.DONE, waiting()
    assert signer_nonce(costly) == signer_nonce(costly, "pending") == nonce + 1
