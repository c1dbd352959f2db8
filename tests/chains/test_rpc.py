import json
import random
import re
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from eth_account import Account
from eth_utils.crypto import keccak

from chains import questions
from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.node_errors import AlreadyKnown, FeeTooLow, read_refusal
from chains.node_pool import FAIL_FAST_SECONDS
from chains.rpc import (
    AccountProof,
    InsufficientFunds,
    InvalidReply,
    NodeUnavailable,
    NonceTooLow,
    ProofRequest,
    Question,
    Receipt,
    ReplacementUnderpriced,
    Reverted,
    RpcClient,
    RpcRefused,
    WrongChain,
)
from chains.trie import EMPTY_TRIE_ROOT
from devnet.devchain import ACCOUNTS, DevChain
from tests.chains.lying_node import Raw, ask, between, error, is_chain_id, lying_node, recording, result
from tests.headers import with_hash

ALICE, BOB = (address for address, _ in ACCOUNTS[:2])
CONTRACT = "0x" + "33" * 20
# Nothing listens there: port 1 needs rights that no test has.
DEAD = "http://127.0.0.1:1/secret-path"


def signed(nonce: int, *, key: str = ACCOUNTS[0][1], value: int = 1, tip: int = 10**9) -> bytes:
    return bytes(
        Account.sign_transaction(
            {
                "chainId": 31337,
                "nonce": nonce,
                "to": BOB,
                "value": value,
                "gas": 21_000,
                "maxFeePerGas": 20 * 10**9 + tip,
                "maxPriorityFeePerGas": tip,
            },
            key,
        ).raw_transaction
    )


def receipt_of(client: RpcClient, tx_hash: bytes) -> Receipt:
    """A development chain mines a transaction just after it answered that it has it."""
    deadline = time.monotonic() + 10
    while (receipt := client.answer(questions.receipt(tx_hash))) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return receipt


def honest(body: Any) -> Any:
    """Answers a chain id, and each other request with its own first parameter."""
    if isinstance(body, list):
        return [honest(one) for one in body]
    return result(body, "0x7a69" if is_chain_id(body) else body["params"][0])


def send(client: RpcClient, raw: bytes) -> bytes:
    return client.sent(raw, client.ask([questions.raw_transaction(raw)])[0])


def echoes(count: int) -> list[Question[Any]]:
    return [questions.plain("echo", number) for number in range(count)]


# --- Against a real node ----------------------------------------------------------------------------------------------


def test_it_reads_headers_and_their_hashes(devchain, client_of):
    devchain.mine(3)
    client = client_of(devchain.url)
    head = client.head()
    assert head.number == devchain.head()
    block = devchain.rpc("eth_getBlockByNumber", hex(head.number), False)
    assert hex_data(head.hash) == block["hash"]
    assert client.header(head.number) == head
    assert client.header_by_hash(head.hash) == head
    finalized = client.header("finalized")
    assert finalized is not None
    assert finalized.number == head.number - 2
    missing = head.number + 10
    assert client.headers([head.number, missing, 1]) == [head, None, client.header(1)]
    assert client.headers([]) == []
    assert (
        client.header(missing)
        is client.header_by_hash(b"\1" * 32)
        is client.answer(questions.receipt(b"\1" * 32))
        is None
    )


def test_a_node_that_lacks_a_block_below_the_head_is_not_believed(devchain, client_of):
    client = client_of(devchain.url)
    head = client.head()
    assert client.known_header(head.number) == head
    assert client.known_headers([head.number, 0]) == [head, client.header(0)]
    lacking = f"chain 31337 doesn't have block {head.number + 1}, below its own head"
    with pytest.raises(InvalidReply, match=lacking):
        client.known_header(head.number + 1)
    with pytest.raises(InvalidReply, match=lacking):
        client.known_headers([head.number, head.number + 1])


def test_it_reads_storage_at_a_block(devchain, client_of):
    client = client_of(devchain.url)
    before = client.head()
    devchain.mine()
    devchain.rpc("anvil_setStorageAt", CONTRACT, f"0x{2:064x}", f"0x{2**255:064x}")
    devchain.mine()
    assert client.storage(CONTRACT, 2) == 2**255
    assert client.storages([(CONTRACT, 2, "latest"), (CONTRACT, 2, before.number), (CONTRACT, 2, before.hash)]) == [
        2**255,
        0,
        0,
    ]


@pytest.mark.parametrize(("value", "word"), [("0x", 0), ("0x00", 0), ("0x0100", 256), ("0x" + "ff" * 32, 2**256 - 1)])
def test_storage_may_come_without_leading_zeros(client_of, value, word):
    with lying_node(lambda body: honest(body) if is_chain_id(body) else result(body, value)) as url:
        assert client_of(url).storage(CONTRACT, 1) == word


def test_it_reads_the_logs_of_a_range(client_of):
    emits_its_calldata_under_topics_1_and_2 = "0x365f5f37" + "60026001365fa200"
    with DevChain() as chain:
        client = client_of(chain.url)
        chain.rpc("anvil_setCode", CONTRACT, emits_its_calldata_under_topics_1_and_2)
        for data in ("0xaa", "0x", "0xbbbb"):
            chain.rpc("eth_sendTransaction", {"from": ALICE, "to": CONTRACT, "data": data})
            chain.mine()
        head = chain.head()
        one, two = (number.to_bytes(32, "big") for number in (1, 2))
        logs = client.logs(CONTRACT, [one], 0, head)
        assert [log.data for log in logs] == [b"\xaa", b"", b"\xbb\xbb"]
        assert {log.topics for log in logs} == {(one, two)}
        middle = logs[1].block_number
        assert client.logs(CONTRACT, [None, two], middle, middle) == [logs[1]]
        assert client.logs(CONTRACT, [two], 0, head) == []
        assert client.logs(BOB, [], 0, head) == []


def test_it_reads_state_at_a_block(devchain, client_of):
    client = client_of(devchain.url)
    before = client.head()
    devchain.mine()  # What is set now belongs to the latest block at once.
    devchain.rpc("anvil_setBalance", CONTRACT, hex(7))
    devchain.rpc("anvil_setCode", CONTRACT, "0x6001")
    devchain.mine()
    assert client.balance(CONTRACT) == 7
    assert client.balance(CONTRACT, before.number) == 0
    assert client.balance(CONTRACT, before.hash) == 0
    assert client.code(CONTRACT) == b"\x60\x01"
    assert client.code(CONTRACT, before.number) == b""
    assert client.nonce(CONTRACT) == 0


def test_calls_tell_reverts_from_results(devchain, client_of):
    client = client_of(devchain.url)
    devchain.rpc("anvil_setCode", CONTRACT, "0x61dead60005260206000fd")  # Reverts with the word 0xdead.
    word = (0xDEAD).to_bytes(32, "big")
    with pytest.raises(Reverted) as caught:
        client.eth_call(CONTRACT, b"")
    assert caught.value.data == word
    with pytest.raises(Reverted):
        client.estimate_gas(ALICE, CONTRACT, b"")
    reverted, empty = client.eth_calls([(CONTRACT, b""), (BOB, b"\1")])
    assert isinstance(reverted, Reverted)
    assert reverted.data == word
    assert empty == b""


def test_it_sends_transactions_and_reads_their_receipts(client_of):
    with DevChain() as chain:
        client = client_of(chain.url)
        fees = client.fees()
        assert fees.base_fee == client.head().base_fee_per_gas
        assert fees.priority_fee > 0
        assert client.estimate_gas(ALICE, BOB, b"") == 21_000
        raw = signed(0)
        tx_hash = send(client, raw)
        assert tx_hash == keccak(raw)
        receipt = receipt_of(client, tx_hash)
        assert (receipt.tx_hash, receipt.status, receipt.gas_used, receipt.sender) == (tx_hash, 1, 21_000, ALICE)
        assert receipt.contract_address is None
        header = client.header(receipt.block_number)
        assert header is not None
        assert receipt.block_hash == header.hash
        assert client.nonce(ALICE) == 1

        assert send(client, raw) == tx_hash, "in a block already: sending it again is a success"
        with pytest.raises(NonceTooLow):
            send(client, signed(0, value=2))
        with pytest.raises(InsufficientFunds):
            send(client, signed(1, value=10**30))

        chain.rpc("evm_setAutomine", False)
        waiting = signed(1, tip=2 * 10**9)
        assert send(client, waiting) == keccak(waiting)
        assert client.answer(questions.receipt(keccak(waiting))) is None
        assert send(client, waiting) == keccak(waiting), "waiting already: sending it again is a success"
        with pytest.raises(ReplacementUnderpriced):
            send(client, signed(1, tip=10**9))


NO_TIP = error({"id": 1}, -32601, "Method not found")["error"]


@pytest.mark.parametrize(
    ("suggested", "history", "least", "tip"),
    [
        (NO_TIP, {"reward": [["0x9"], ["0x2"], ["0x5"]]}, 0, 5),
        (NO_TIP, {"reward": [["0xb2d05e00"], ["0x0"], ["0x0"]], "gasUsedRatio": [0.1, 0, 0.0]}, 0, 3 * 10**9),
        (NO_TIP, {"reward": [["0x0"], ["0x0"]], "gasUsedRatio": [0, 0]}, 0, 10**6),
        (NO_TIP, {"reward": [["0x0"], ["0x0"]], "gasUsedRatio": [0, 0]}, 1.5, 1_500_000_000),
        # EthereumJS, of a chain of fewer blocks.
        (NO_TIP, {"code": -32602, "message": "specified block greater than current height"}, 0, 10**6),
        ("0x5", {}, 0, 5),
        ("0x0", {}, 0, 0),
        ("0x5", {}, 1.5, 1_500_000_000),
        ("0x77359400", {}, 1.5, 2_000_000_000),
    ],
)
def test_the_priority_fee_is_what_nodes_suggest_or_what_blocks_paid_and_never_below_the_least(
    devchain, suggested, history, least, tip
):
    said = {"eth_maxPriorityFeePerGas": suggested, "eth_feeHistory": {"oldestBlock": "0x1", **history}}

    def answer(body: Any) -> Any:
        if isinstance(body, list):
            return [answer(one) for one in body]
        given = said.get(body["method"])
        if given is None:
            return ask(devchain.url, body)
        return {"jsonrpc": "2.0", "id": body["id"], "error" if "code" in given else "result": given}

    with lying_node(answer) as url:
        chain = Chain(id=31337, name="Test chain", rpc_urls=(url,), min_priority_fee_gwei=least)
        assert RpcClient(chain, timeout_seconds=5).fees().priority_fee == tip


def test_one_call_asks_for_proofs_at_several_blocks(devchain, client_of):
    devchain.mine(2)
    client = client_of(devchain.url)
    blocks = [client.header(1), client.head()]
    wanted = [ProofRequest(block.number, block.hash, block.state_root, ALICE, [1]) for block in blocks]
    asked: list[Any] = []
    with lying_node(recording(asked, lambda body: ask(devchain.url, body))) as url:
        proofs = client_of(url).proofs(wanted)
    assert all(isinstance(proof, AccountProof) for proof in proofs)
    assert len(asked) == 2, "one batch, after the chain id"


def test_proofs_of_an_unknown_block_are_refused(devchain, client_of):
    (refused,) = client_of(devchain.url).proofs([ProofRequest(10**6, b"\1" * 32, EMPTY_TRIE_ROOT, ALICE)])
    assert isinstance(refused, RpcRefused)
    assert not refused.may_pass


# What EthereumJS, ganache and geth without a pending block say.
NO_BLOCK_HASH = [(-32602, "invalid argument 2: argument must be a string"), (-32700, 'Cannot wrap a "object"')]
NO_PENDING = [(-32602, '"pending" is not yet supported'), (-32000, "pending block is not available")]


@pytest.mark.parametrize(("code", "message"), NO_BLOCK_HASH)
def test_a_node_that_takes_no_block_hash_is_asked_by_number_and_then_no_more_by_hash(
    devchain, client_of, code, message
):
    asked: list[Any] = []

    def answer(body: Any) -> Any:
        if isinstance(body, list):
            return [answer(one) for one in body]
        if is_chain_id(body):
            return result(body, "0x7a69")
        asked.append(body["params"][2])
        return error(body, code, message) if isinstance(body["params"][2], dict) else ask(devchain.url, body)

    devchain.mine()
    state_root = client_of(devchain.url).header(1).state_root
    with lying_node(answer) as url:
        client = client_of(url)
        for expected in (2, 1):
            asked.clear()
            (proof,) = client.proofs([ProofRequest(1, b"\1" * 32, state_root, ALICE)])
            assert isinstance(proof, AccountProof)
            assert asked == [{"blockHash": "0x" + "01" * 32}, "0x1"][-expected:]


def test_a_block_that_a_node_lacks_is_not_asked_for_by_number(devchain, client_of):
    """Another block has that number: its proof would be of no use."""
    asked: list[Any] = []
    with lying_node(recording(asked, lambda body: ask(devchain.url, body))) as url:
        client = client_of(url)
        for block_hash in (b"\1" * 32, b"\2" * 32):
            (proof,) = client.proofs([ProofRequest(0, block_hash, EMPTY_TRIE_ROOT, ALICE)])
            assert isinstance(proof, RpcRefused)
    blocks = [body["params"][2] for body in asked if not is_chain_id(body)]
    assert blocks == [{"blockHash": "0x" + "01" * 32}, {"blockHash": "0x" + "02" * 32}]


@pytest.mark.parametrize(("code", "message"), NO_PENDING)
def test_a_node_without_a_pending_block_is_asked_for_the_latest_and_another_for_its_own(
    devchain, client_of, code, message
):
    asked: list[Any] = []

    def answer(body: Any) -> Any:
        if isinstance(body, list):
            return [answer(one) for one in body]
        if is_chain_id(body):
            return result(body, "0x7a69")
        asked.append((body["method"], body["params"][1]))
        return error(body, code, message) if body["params"][1] == "pending" else ask(devchain.url, body)

    with lying_node(answer) as url:
        client = client_of(url)
        assert not client.asks_latest_for_pending
        assert client.estimate_gas(ALICE, BOB, b"") == 21_000
        assert client.asks_latest_for_pending
        assert client.estimate_gas(ALICE, BOB, b"") == 21_000
        assert [client.eth_call(BOB, b"", "pending") for _ in range(2)] == [b"", b""]
        assert client.eth_calls([(BOB, b""), (ALICE, b"")], "pending") == [b"", b""]
    assert asked == [
        *(("eth_estimateGas", block) for block in ("pending", "latest", "latest")),
        *(("eth_call", block) for block in ("pending", *["latest"] * 4)),
    ]
    other = client_of(devchain.url)
    assert other.estimate_gas(ALICE, BOB, b"") == 21_000
    assert not other.asks_latest_for_pending


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ((-32000, "gas required exceeds allowance (30000000)"), RpcRefused),
        ((3, "execution reverted: a change is pending", "0x12"), Reverted),
    ],
)
def test_what_only_the_pending_block_refuses_is_refused(client_of, refusal, kind):
    """The latest one has not what it rests on, or has not yet what is in its way."""
    asked: list[Any] = []
    with lying_node(recording(asked, refusing(*refusal))) as url, pytest.raises(kind):
        client_of(url).eth_call(CONTRACT, b"", "pending")
    assert [body["params"][1] for body in asked if not is_chain_id(body)] == ["pending"]


# --- Nodes that fail --------------------------------------------------------------------------------------------------


def test_a_dead_node_is_passed_over_and_rests(devchain, client_of):
    now = 0.0
    tried: list[Any] = []
    with lying_node(recording(tried, lambda _: Raw(status=503))) as broken:
        client = client_of(broken, devchain.url, clock=lambda: now)
        for _ in range(3):
            assert client.head().number == devchain.head()
        assert len(tried) == 1
        now = 1.5
        client.head()
        assert len(tried) == 2, "rested for a second"
        now = 3.0
        client.head()
        assert len(tried) == 2, "and now for two"
        now = 3.6
        client.head()
        assert len(tried) == 3


def test_a_node_that_comes_back_is_used_again(client_of):
    now, status = 0.0, 503
    with lying_node(lambda body: Raw(status=status) if status != 200 else honest(body)) as url:
        client = client_of(url, clock=lambda: now)
        with pytest.raises(NodeUnavailable):
            client.call("echo", 1)
        status = 200
        now = FAIL_FAST_SECONDS + 1
        assert client.call("echo", 1) == 1, "the only node is asked even while it should rest"


def test_a_node_that_has_just_failed_is_not_waited_for_again(client_of):
    now, asked = 0.0, 0

    def count(body):
        nonlocal asked
        asked += 1
        return Raw(status=503)

    with lying_node(count) as url:
        client = client_of(url, clock=lambda: now)
        for _ in range(3):
            with pytest.raises(NodeUnavailable, match="503"):
                client.call("echo", 1)
        assert asked == 1
        now = FAIL_FAST_SECONDS + 1
        with pytest.raises(NodeUnavailable):
            client.call("echo", 1)
        assert asked == 2


def test_a_node_that_comes_back_with_another_chain_is_not_used(client_of):
    now, chain_id, status = 0.0, "0x7a69", 200

    def answer(body):
        if status != 200:
            return Raw(status=status)
        return result(body, chain_id) if is_chain_id(body) else honest(body)

    with lying_node(answer) as url:
        client = client_of(url, clock=lambda: now)
        assert client.call("echo", 1) == 1
        status = 503
        with pytest.raises(NodeUnavailable):
            client.call("echo", 1)
        now, status, chain_id = FAIL_FAST_SECONDS + 1, 200, "0x1"
        with pytest.raises(WrongChain):
            client.call("echo", 1)


def test_a_url_that_leads_to_another_chain_one_day_is_noticed_within_a_minute(client_of):
    now, chain_id = 0.0, "0x7a69"
    asked: list[Any] = []

    with lying_node(
        recording(asked, lambda body: result(body, chain_id) if is_chain_id(body) else honest(body))
    ) as url:
        client = client_of(url, clock=lambda: now)
        assert client.call("echo", 1) == 1
        chain_id, now = "0x1", 59.0
        with pytest.raises(WrongChain):
            client.call("echo", 1)
    assert len([body for body in asked if not is_chain_id(body)]) == 1


def test_no_error_or_representation_shows_a_url(client_of):
    with lying_node(lambda _: Raw(status=500)) as url:
        client = client_of(DEAD, f"{url}/secret-path?key=secret-key", "http://user:secret-word@127.0.0.1:1")
        with pytest.raises(NodeUnavailable) as caught:
            client.head()
    shown = "".join([repr(client), *traceback.format_exception(caught.value), repr(client._nodes.__dict__)])
    assert "127.0.0.1:1 can't be reached" in str(caught.value)
    assert "HTTP status 500" in str(caught.value)
    assert "secret" not in shown
    cause: BaseException | None = caught.value
    while cause is not None:
        assert "secret" not in str(cause)
        cause = cause.__cause__ or cause.__context__


def test_a_node_of_another_chain_is_never_used(devchain, client_of):
    client = client_of(devchain.url, chain_id=1)
    with pytest.raises(WrongChain, match=r"is a node of chain 31337, not of 1\."):
        send(client, signed(0))
    assert client_of(devchain.url).nonce(ALICE) == 0


def test_what_all_nodes_get_goes_to_none_of_another_chain_and_to_none_that_rests(client_of):
    raw, now = signed(0), 0.0
    asked: dict[str, list[Any]] = {name: [] for name in ("first", "foreign", "failing", "last")}

    def takes(body: Any) -> Any:
        return result(body, "0x7a69" if is_chain_id(body) else hex_data(keccak(raw)))

    with (
        lying_node(recording(asked["first"], takes)) as first,
        lying_node(recording(asked["foreign"], lambda body: result(body, "0x1"))) as foreign,
        lying_node(recording(asked["failing"], lambda _: Raw(status=503))) as failing,
        lying_node(recording(asked["last"], takes)) as last,
    ):
        client = client_of(first, foreign, failing, last, clock=lambda: now)
        for _ in range(2):
            client.tell_all(questions.raw_transaction(raw))
            assert send(client, raw) == keccak(raw)
        sent = {name: sum(not is_chain_id(body) for body in bodies) for name, bodies in asked.items()}
        # The first answers besides what became of it.
        assert sent == {"first": 4, "foreign": 0, "failing": 0, "last": 2}
        assert [len(asked[name]) for name in ("foreign", "failing")] == [1, 1]


def test_every_node_is_asked_anew_for_its_chain_where_that_is_the_question(client_of):
    chains = ["0x7a69"]
    with lying_node(lambda body: result(body, chains[-1])) as url:
        client = client_of(url)
        assert client.wrong_chains() == {}
        chains.append("0x1")
        (error,) = client.wrong_chains().values()
        assert str(error).endswith("is a node of chain 1, not of 31337")


def refusing(code: int, message: str, data: str | None = None) -> Callable[[Any], Any]:
    return lambda body: honest(body) if is_chain_id(body) else error(body, code, message, data)


NO_ID = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no such thing"}}).encode()
UNAVAILABLE = [
    (Raw(status=429), "HTTP status 429"),
    (Raw(status=401), "HTTP status 401"),
    (Raw(status=301, headers={"Location": "/elsewhere"}), "HTTP status 301"),
    (Raw(b"<html>"), "not JSON"),
    (Raw(b""), "not JSON"),
    (Raw(b"[" * 15_000), "not JSON"),
    (Raw(b"1"), "belongs to no request"),
    (Raw(b"[]"), "without a reply"),
    (Raw(b"{}"), "belongs to no request"),
    (Raw(b"x", headers={"Content-Length": "100"}), "can't be reached|broke off"),
]
LIMITS = [
    (-32005, "daily request count exceeded"),
    (429, "slow down"),
    (-32000, "Too Many Requests"),
    (-32000, "Your app has exceeded its compute units per second capacity"),
    (-32000, "rate limit reached"),
]
# What a node answers, what it is told as, and the words.
BEHAVIOURS = [
    *((lambda _, raw=raw: raw, NodeUnavailable, words) for raw, words in UNAVAILABLE),
    *((refusing(*limit), NodeUnavailable, "limits our requests") for limit in LIMITS),
    *(
        (lambda body, status=status: honest(body) if is_chain_id(body) else Raw(NO_ID, status), RpcRefused, "no such")
        for status in (200, 400)
    ),
    (lambda body: result(body, "0x1"), WrongChain, "is a node of chain 1, not of 31337"),
    (refusing(-32000, "header not found"), RpcRefused, "header not found"),
    (refusing(3, "execution reverted", "0x1234"), Reverted, "execution reverted"),
]


@pytest.mark.parametrize(("answer", "kind", "words"), BEHAVIOURS)
def test_what_one_node_does_not_serve_another_may_but_for_a_revert(client_of, answer, kind, words):
    asked: list[Any] = []
    with lying_node(answer) as bad, lying_node(recording(asked, lambda body: result(body, "0x7a69"))) as good:
        with pytest.raises(kind) as caught:
            client_of(bad).eth_call(CONTRACT, b"")
        assert re.search(words, caught.value.for_operators)
        client = client_of(bad, good)
        if kind is Reverted:
            with pytest.raises(Reverted):
                client.eth_call(CONTRACT, b"")
            assert asked == []
        else:
            assert client.eth_call(CONTRACT, b"") == b"\x7a\x69"


def test_what_one_node_refuses_another_may_serve(devchain, client_of):
    def pruned(body):
        return honest(body) if is_chain_id(body) else error(body, -32000, "missing trie node")

    devchain.mine()
    with lying_node(pruned) as url:
        client = client_of(url, devchain.url)
        head = client.head()
        (proof,) = client.proofs([ProofRequest(head.number, head.hash, head.state_root, ALICE)])
        assert isinstance(proof, AccountProof)
        with pytest.raises(RpcRefused) as caught:
            client_of(url).head()
        assert caught.value.message == "missing trie node"
        assert not caught.value.may_pass
        with pytest.raises(RpcRefused) as caught:
            client_of(url, DEAD).head()
        assert caught.value.may_pass, "the dead node might have served it"


# --- Nodes that lie ---------------------------------------------------------------------------------------------------


def lying_about(url: str, **changes: Any) -> AbstractContextManager[str]:
    """A node in front of a real one, with some fields of its results changed."""

    def answer(body):
        reply = ask(url, body)
        if isinstance(reply, dict) and isinstance(reply.get("result"), dict):
            reply["result"] |= changes
        return reply

    return lying_node(answer)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stateRoot", "0x" + "ab" * 32),
        ("timestamp", "0x1"),
        ("hash", "0x" + "ab" * 32),
        ("hash", None),
        ("withdrawalsRoot", None),
        ("number", "latest"),
    ],
)
def test_a_header_that_is_not_its_hash_is_a_lie(devchain, client_of, field, value):
    with lying_about(devchain.url, **{field: value}) as liar:
        with pytest.raises(NodeUnavailable):
            client_of(liar).head()
        assert client_of(liar, devchain.url).head().number == devchain.head()


def test_another_block_than_was_asked_for_is_a_lie(devchain, client_of):
    devchain.mine(2)
    first = devchain.rpc("eth_getBlockByNumber", "0x1", False)
    with lying_about(devchain.url, **first) as liar:
        client = client_of(liar)
        assert client.header(1) is not None
        with pytest.raises(InvalidReply, match="another block"):
            client.header(2)
        with pytest.raises(InvalidReply, match="another block"):
            client_of(liar).headers([2])
        with pytest.raises(InvalidReply, match="another block"):
            client.header_by_hash(bytes.fromhex(devchain.rpc("eth_getBlockByNumber", "0x2", False)["hash"][2:]))


def test_a_receipt_or_hash_of_another_transaction_is_a_lie(devchain, client_of):
    receipt = {
        "transactionHash": "0x" + "01" * 32,
        "blockNumber": "0x1",
        "blockHash": "0x" + "02" * 32,
        "status": "0x1",
        "gasUsed": "0x5208",
        "effectiveGasPrice": "0x1",
        "contractAddress": None,
        "from": ALICE,
    }

    def answer(body):
        if body["method"] == "eth_sendRawTransaction":
            return result(body, "0x" + "01" * 32)
        return result(body, receipt) if body["method"] == "eth_getTransactionReceipt" else honest(body)

    with lying_node(answer) as liar:
        client = client_of(liar)
        assert client.answer(questions.receipt(b"\1" * 32)) is not None
        with pytest.raises(InvalidReply, match="another transaction's receipt"):
            client.answer(questions.receipt(b"\2" * 32))
        client = client_of(liar)
        with pytest.raises(InvalidReply, match="another transaction's hash"):
            send(client, signed(0))


LOG: dict[str, Any] = {
    "address": CONTRACT,
    "blockNumber": "0x5",
    "topics": ["0x" + "01" * 32, "0x" + "02" * 32],
    "data": "0x",
}
NO_QUANTITIES = (None, 1, "1", "0x", "0xzz", "-0x1", "0x" + "1" * 65, ["0x1"])
NO_LOGS: list[tuple[dict[str, Any], str]] = [
    ({"address": BOB}, "another contract's log"),
    ({"blockNumber": "0x4"}, "other logs"),
    ({"blockNumber": "0x7"}, "other logs"),
    ({"topics": ["0x" + "02" * 32]}, "other logs"),
    ({"topics": []}, "other logs"),
    ({"topics": None}, "what is no JSON list"),
    ({"topics": ["0x01"]}, "1 bytes instead of 32"),
    ({"data": None}, "data that is not hexadecimal"),
    ({"blockNumber": None}, "a quantity that is not hexadecimal"),
]
NO_PROOFS: list[Any] = [
    None,
    [],
    {"accountProof": None, "storageProof": [{"key": "0x1", "proof": []}]},
    {"accountProof": ["0x1"], "storageProof": [{"key": "0x1", "proof": []}]},
    {"accountProof": [], "storageProof": []},
    {"accountProof": [], "storageProof": [{"key": "0x2", "proof": []}]},
    {"accountProof": [], "storageProof": [{"key": "0x1", "proof": []}, {"key": "0x1", "proof": []}]},
    {"accountProof": [], "storageProof": [{"key": "0x1"}]},
    {"accountProof": [], "storageProof": ["0x1"]},
]


def prove(client: RpcClient) -> None:
    (answer,) = client.proofs([ProofRequest(1, b"\1" * 32, EMPTY_TRIE_ROOT, ALICE, [1])])
    assert isinstance(answer, InvalidReply)
    raise answer


def estimate(client: RpcClient) -> int:
    return client.estimate_gas(ALICE, BOB, b"")


@pytest.mark.parametrize(
    ("ask", "method", "told", "fault"),
    [
        *((lambda rpc: rpc.balance(ALICE), "eth_getBalance", one, "that is not hexadecimal") for one in NO_QUANTITIES),
        *(
            (lambda rpc: rpc.storage(CONTRACT, 1), "eth_getStorageAt", word, "eth_getStorageAt")
            for word in (None, 1, "0x1", "1", "0x" + "00" * 33)
        ),
        *(
            (lambda rpc: rpc.logs(CONTRACT, [b"\1" * 32], 5, 6), "eth_getLogs", [LOG | changes], fault)
            for changes, fault in NO_LOGS
        ),
        *((prove, "eth_getProof", proof, "eth_getProof") for proof in NO_PROOFS),
        (estimate, "eth_estimateGas", "0x0", "0 gas, less than every transaction"),
        (estimate, "eth_estimateGas", hex(20_999), "20999 gas"),
        (lambda rpc: rpc.fees(), "eth_maxPriorityFeePerGas", hex(2**255), "a price that nobody can pay"),
        (lambda rpc: rpc.nonce(ALICE), "eth_getTransactionCount", hex(2**63), "no account can have reached"),
        (lambda rpc: rpc.head(), "eth_getBlockByNumber", {"number": hex(2**63)}, "no chain can have reached"),
    ],
)
def test_nonsense_is_refused(devchain, client_of, ask, method, told, fault):
    def change(question: Any, reply: Any) -> list[Any]:
        if question["method"] != method:
            return [reply]
        is_header = method == "eth_getBlockByNumber"
        return [result(question, with_hash(reply["result"] | told) if is_header else told)]

    with between(devchain.url, change) as url, pytest.raises(InvalidReply, match=fault):
        ask(client_of(url))


# --- Batches ----------------------------------------------------------------------------------------------------------


def test_replies_are_matched_by_id_whatever_their_order(client_of):
    shuffle = random.Random(1)

    def answer(body):
        replies = honest(body)
        if isinstance(replies, list):
            shuffle.shuffle(replies)
        return replies

    with lying_node(answer) as url:
        assert client_of(url).answers(echoes(120)) == list(range(120))


def test_batches_are_bounded(client_of):
    sizes = []

    def answer(body):
        if isinstance(body, list):
            sizes.append(len(body))
        return honest(body)

    with lying_node(answer) as url:
        assert client_of(url).answers(echoes(420)) == list(range(420))
        assert client_of(url).ask([]) == []
    assert sizes == [200, 200, 20]


@pytest.mark.parametrize("limit", [1, 7, 10])
def test_a_node_with_a_lower_limit_gets_smaller_batches(client_of, limit):
    def answer(body):
        if isinstance(body, list) and len(body) > limit:
            return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "batch too large"}}
        return honest(body)

    with lying_node(answer) as url:
        assert client_of(url).answers(echoes(60)) == list(range(60))


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda replies: replies[1:], "without a reply"),
        (lambda replies: [replies[0], *replies], "belongs to no request"),
        (lambda replies: [*replies[1:], {**replies[0], "id": 10**9}], "belongs to no request"),
        (lambda replies: [*replies[1:], {**replies[0], "id": str(replies[0]["id"])}], "belongs to no request"),
        (lambda replies: [*replies[1:], {**replies[0], "id": float(replies[0]["id"])}], "belongs to no request"),
        (lambda replies: [*replies[1:], {**replies[0], "id": None}], "belongs to no request"),
        (lambda replies: [*replies[1:], "reply"], "belongs to no request"),
        (lambda replies: [*replies[1:], {"id": replies[0]["id"]}], "neither a result nor an error"),
        (lambda replies: [*replies[1:], {"id": replies[0]["id"], "error": "no"}], "neither a result nor an error"),
        (lambda replies: replies[0], "without a reply"),
    ],
)
def test_a_batch_with_replies_amiss_is_refused_whole(client_of, spoil, fault):
    with (
        lying_node(lambda body: spoil(honest(body)) if isinstance(body, list) else honest(body)) as url,
        pytest.raises(InvalidReply, match=fault),
    ):
        client_of(url).answers(echoes(5))


def test_a_refusal_takes_the_place_of_its_result_alone(devchain, client_of):
    asked = [questions.plain(method) for method in ("eth_chainId", "nonsense", "eth_chainId")]
    first, refused, last = client_of(devchain.url).ask(asked)
    assert first == last == "0x7a69"
    assert isinstance(refused, RpcRefused)
    assert refused.code == -32601


def test_what_one_node_answered_is_not_asked_of_the_next(client_of):
    asked: list[int] = []

    def half(body):
        if isinstance(body, list):
            return [honest(one) if one["params"][0] % 2 else error(one, -32000, "not here") for one in body]
        return honest(body)

    def rest(body):
        asked.extend(one["params"][0] for one in body if isinstance(body, list))
        return honest(body)

    with lying_node(half) as first, lying_node(rest) as second:
        assert client_of(first, second).answers(echoes(10)) == list(range(10))
    assert asked == [0, 2, 4, 6, 8]


def test_many_threads_may_share_a_client(client_of):
    with lying_node(honest) as url:
        client = client_of(url)
        with ThreadPoolExecutor(8) as pool:
            batches = list(pool.map(lambda _: client.answers(echoes(60)), range(24)))
    assert batches == [list(range(60))] * 24


# --- Refusals of transactions, in the words of each kind of node ------------------------------------------------------

# The words of geth, Nethermind, Besu, Erigon, Reth, EthereumJS, hardhat, ganache and anvil, old versions too, as their
# sources have them or as they answered, with the values that they put in.
REFUSALS: dict[type[RpcRefused], list[str]] = {
    AlreadyKnown: [
        "already known",
        "known transaction: 12",
        "AlreadyKnown",
        "existing txn with same hash",
        "existing tx with same hash",
        "0x12: this transaction is already in the TxPool",
        "transaction already imported",
    ],
    NonceTooLow: [
        "nonce too low: next nonce 5, tx nonce 4",
        "OldNonce",
        "INTERNAL_ERROR: nonce too low",
        "0x12 tries to send a tx with nonce 0, but account has nonce 1 (tx nonce too low)",
        "Transaction nonce too low. Expected nonce to be at least 1 but got 0.",
    ],
    ReplacementUnderpriced: [
        "replacement transaction underpriced: new tx gas fee cap 1 < 2 queued",
        "ReplacementNotAllowed",
        "could not replace existing tx",
        "replacement gas too low, got tip 1, min: 2, got fee 3, min: 4",
        "Replacement transaction underpriced. A gasPrice/maxFeePerGas of at least 3 is necessary to replace",
    ],
    InsufficientFunds: [
        "insufficient funds for gas * price + value: balance 0, tx cost 1, overshot 1",
        "InsufficientFunds, Account balance: 0, cumulative cost: 1",
        "Upfront cost exceeds account balance",
        "insufficient funds",
        "0x12 does not have enough balance to cover transaction costs, need 1, but have 0 (insufficient balance)",
        "Sender doesn't have enough funds to send tx. The max upfront cost is: 1 and the sender's balance is: 0.",
    ],
    FeeTooLow: [
        "transaction underpriced",
        "transaction gas price below minimum: gas tip cap 1, minimum needed 1000000",
        "max fee per gas less than block base fee: address 0x12, maxFeePerGas: 1, baseFee: 7",
        "FeeTooLow",
        "FeeTooLowToCompete",
        "Gas price below configured minimum gas price",
        "Gas price below current base fee",
        "underpriced",
        "fee too low",
        "transaction priority fee below minimum required priority fee 1000000",
        "Tx does not pay the minimum gas price of 1",
        "Tx cannot pay basefee of 7, have 1 (not within 50% range of current basefee)",
        "Transaction maxFeePerGas (1) is too low for the next block, which has a baseFeePerGas of 7",
    ],
    RpcRefused: [
        "nonce too high",
        "exceeds block gas limit",
        "in-flight transaction limit reached for delegated accounts",
        "nonce too far in future",
        "An invalid transaction with a lower nonce exists",
        "gas limit is too high",
        "txpool is full",
        "Tx gaslimit of 2 exceeds block gas limit of 1 (exceeds last block gas limit)",
        "Transaction requires at least 21000 gas but got 20000",
        "intrinsic gas too low",
    ],
}


@pytest.mark.parametrize(("message", "kind"), [(words, kind) for kind, all_ in REFUSALS.items() for words in all_])
def test_refused_transactions_are_told_apart(message, kind):
    refusal = read_refusal("host", "eth_sendRawTransaction", {"code": -32000, "message": message})
    assert type(refusal) is kind


@pytest.mark.parametrize(
    ("method", "message"),
    [
        # Those of Besu.
        ("eth_sendRawTransaction", "Transaction gas limit exceeds block gas limit"),
        ("eth_sendRawTransaction", "Transaction gas limit cap exceeded"),
        ("eth_getLogs", "Requested range exceeds maximum RPC range limit"),
        ("eth_getProof", "Number of requests exceeds max batch size"),
        # One that providers send.
        ("eth_getLogs", "query returned more than 10000 results"),
    ],
)
def test_a_limit_of_one_request_is_no_limit_of_how_many_may_be_sent(method, message):
    """They have the code of EIP-1474 for "limit exceeded", by which others refuse too many requests a second."""
    assert type(read_refusal("host", method, {"code": -32005, "message": message})) is RpcRefused


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ({"code": 3, "message": "execution reverted", "data": "0x12"}, b"\x12"),
        ({"code": -32015, "message": "VM execution error.", "data": "Reverted 0x12"}, b"\x12"),
        ({"code": -32000, "message": "execution reverted"}, b""),
        ({"code": -32000, "message": "VM Exception: revert", "data": {"data": "0x12"}}, b"\x12"),
        ({"code": 3, "message": "execution reverted: rate limit", "data": "0x12"}, b"\x12"),
        ({"code": 3, "message": "execution reverted: insufficient funds", "data": 12}, b""),
    ],
)
def test_reverts_are_known_in_every_form(given, data):
    refusal = read_refusal("host", "eth_call", given)
    assert isinstance(refusal, Reverted)
    assert refusal.data == data


def test_the_words_of_a_node_are_bounded_and_printable():
    refusal = read_refusal("host", "eth_call", {"code": True, "message": "a\n\x1b[31m" + "b" * 10_000})
    assert refusal.code == 0
    assert refusal.message.isprintable()
    assert len(refusal.message) <= 300
