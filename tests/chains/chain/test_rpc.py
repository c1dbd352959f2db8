import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

import pytest
from eth_utils.crypto import keccak

from chains.chains_file import Chain
from chains.encoding import hex_data
from chains.nodes import questions
from chains.nodes.node_batches import ExchangeBudget, OutOfExchanges
from chains.nodes.node_errors import InvalidReply, Reverted, RpcRefused
from chains.nodes.questions import ProofRequest, Receipt, VerifiedAccountProof
from chains.nodes.rpc import RpcClient
from chains.prices import OSAKA
from devnet.devchain import DevChain
from tests.chains.lying_node import Raw, ask, each, error, is_chain_id, lying_node, recording, result
from tests.chains.transfers import ALICE, BOB, CONTRACT, send, signed


def receipt_of(client: RpcClient, tx_hash: bytes) -> Receipt:
    """Wait for the receipt. A development chain mines just after it has answered."""
    deadline = time.monotonic() + 10
    while (receipt := client.answer(questions.receipt(tx_hash))) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return receipt


# --- Against a real node ----------------------------------------------------------------------------------------------


def test_headers_and_their_hashes_are_read_by_number_tag_and_hash(devchain, client_of):
    devchain.mine(3)
    client = client_of(devchain.url)
    head = client.head()
    assert head.number == devchain.head()
    block = devchain.rpc("eth_getBlockByNumber", hex(head.number), False)
    assert hex_data(head.hash) == block["hash"]
    assert client.header(head.number) == head
    assert client.answer(questions.header_by_hash(head.hash)) == head
    finalized = client.header("finalized")
    assert finalized is not None
    assert finalized.number == head.number - 2
    missing = head.number + 10
    assert client.headers([head.number, missing, 1]) == [head, None, client.header(1)]
    assert client.headers([]) == []
    assert (
        client.header(missing)
        is client.answer(questions.header_by_hash(b"\1" * 32))
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


@pytest.mark.parametrize("to", [BOB, None], ids=["a call", "a creation"])
@pytest.mark.parametrize("data", [b"", bytes(3000), bytes(500) + b"\1" * 500], ids=["nothing", "zeros", "mixed"])
def test_a_node_asks_for_as_much_gas_as_we_know(devchain, client_of, to, data):
    """The code of the contract that is created stops at once."""
    # The search for the least sufficient gas may end one above.
    assert client_of(devchain.url).estimate_gas(ALICE, to, data) - OSAKA.least_limit(to, data) in {0, 1}


def test_storage_is_read_at_a_block(devchain, client_of):
    client = client_of(devchain.url)
    before = client.head()
    devchain.mine()
    devchain.rpc("anvil_setStorageAt", CONTRACT, f"0x{2:064x}", f"0x{2**255:064x}")
    devchain.mine()
    assert client.storages([(CONTRACT, 2, "latest")])[0] == 2**255
    assert client.storages([(CONTRACT, 2, "latest"), (CONTRACT, 2, before.number), (CONTRACT, 2, before.hash)]) == [
        2**255,
        0,
        0,
    ]


@pytest.mark.parametrize(("value", "word"), [("0x", 0), ("0x00", 0), ("0x0100", 256), ("0x" + "ff" * 32, 2**256 - 1)])
def test_storage_may_come_without_leading_zeros(client_of, value, word):
    with lying_node(lambda body: result(body, "0x7a69" if is_chain_id(body) else value)) as url:
        assert client_of(url).storages([(CONTRACT, 1, "latest")])[0] == word


def test_logs_of_a_range_are_read(client_of):
    emits_its_calldata_under_topics_1_and_2 = "0x365f5f37" + "60026001365fa200"
    with DevChain() as chain:
        client = client_of(chain.url)
        chain.rpc("anvil_setCode", CONTRACT, emits_its_calldata_under_topics_1_and_2)
        for data in ("0xaa", "0x", "0xbbbb"):
            chain.rpc("eth_sendTransaction", {"from": ALICE, "to": CONTRACT, "data": data})
            chain.mine()
        head = chain.head()
        first_topic, second_topic = (number.to_bytes(32, "big") for number in (1, 2))
        logs = client.logs(CONTRACT, [first_topic], 0, head)
        assert [log.data for log in logs] == [b"\xaa", b"", b"\xbb\xbb"]
        assert {log.topics for log in logs} == {(first_topic, second_topic)}
        middle = logs[1].block_number
        assert client.logs(CONTRACT, [None, second_topic], middle, middle) == [logs[1]]
        assert client.logs(CONTRACT, [second_topic], 0, head) == []
        assert client.logs(BOB, [], 0, head) == []


def test_balance_code_and_nonce_are_read_at_a_block(devchain, client_of):
    client = client_of(devchain.url)
    before = client.head()
    devchain.mine()  # the changes belong to the latest block once it is mined
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
    devchain.rpc("anvil_setCode", CONTRACT, "0x61dead60005260206000fd")  # code that reverts with the word 0xdead
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


def test_transactions_are_sent_and_their_receipts_read(client_of):
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
        assert (receipt.tx_hash, receipt.status, receipt.gas_used) == (tx_hash, 1, 21_000)
        header = client.header(receipt.block_number)
        assert header is not None
        assert receipt.block_hash == header.hash
        assert client.nonce(ALICE) == 1

        assert send(client, raw) == tx_hash, "in a block already: sending it again is a success"
        with pytest.raises(RpcRefused):
            send(client, signed(0, value=2))
        with pytest.raises(RpcRefused):
            send(client, signed(1, value=10**30))

        chain.rpc("evm_setAutomine", False)
        waiting = signed(1, tip=2 * 10**9)
        assert send(client, waiting) == keccak(waiting)
        assert client.answer(questions.receipt(keccak(waiting))) is None
        assert send(client, waiting) == keccak(waiting), "waiting already: sending it again is a success"
        with pytest.raises(RpcRefused):
            send(client, signed(1, tip=10**9))


RECEIPT = {
    "transactionHash": "0x" + "01" * 32,
    "blockHash": "0x" + "02" * 32,
    "blockNumber": "0x3",
    "gasUsed": "0x5208",
    "status": "0x1",
    "effectiveGasPrice": "0x7",
}
MISSING = object()


def receipt_with(**fields: Any) -> Any:
    """Return the receipt that the client reads from these fields."""
    told = {name: value for name, value in (RECEIPT | fields).items() if value is not MISSING}
    return questions.receipt(b"\1" * 32).read(told)


@pytest.mark.parametrize(
    ("fields", "changes"),
    [
        # METADIUM/go-metadium 105, bnb-chain/bsc 1980.
        ({"effectiveGasPrice": None}, {"effective_gas_price": None}),
        # neonevm/neon-evm 469, iotexproject/iotex-core 4478, foundry-rs/foundry 7640.
        ({"effectiveGasPrice": MISSING}, {"effective_gas_price": None}),
        # celo-org/op-geth 204, hiero-ledger/hiero-json-rpc-relay 561.
        ({"effectiveGasPrice": "null"}, {"effective_gas_price": None}),
        ({"effectiveGasPrice": "0xNaN"}, {"effective_gas_price": None}),
        # godwokenrises/godwoken-web3 360, harmony-one/harmony 4759, oasisprotocol/oasis-web3-gateway 53.
        ({"contractAddress": "0x", "from": "one1zksj3evekayy90xt4psrz8h6j2v3hla4qwz4ur"}, {}),
        ({"contractAddress": "", "to": "", "from": None, "logsBloom": "0x", "root": "0x"}, {}),
        # scroll-tech/go-ethereum 254, rotki/rotki 10334, ethereum-optimism/optimism 9859.
        ({"l1Fee": 500}, {"data_fee": 500}),
        ({"l1Fee": None}, {}),
        ({"l1Fee": "0.5", "l1FeeScalar": "0.684"}, {}),
        (
            {"l1Fee": "0x5", "operatorFeeScalar": "", "operatorFeeConstant": None},
            {"data_fee": 5, "has_operator_fee": True},
        ),
        # polkadot-evm/frontier 213, bnb-chain/bsc 753, openethereum/parity-ethereum 10870.
        ({"status": MISSING, "root": "0x" + "00" * 32}, {"status": None}),
        ({"status": None}, {"status": None}),
        ({"status": False}, {"status": 0}),
    ],
)
def test_a_receipt_is_read_though_a_field_is_odd_that_is_not_needed(fields, changes):
    assert receipt_with(**fields) == replace(receipt_with(), **changes)


# openethereum/parity-ethereum 3482.
def test_a_receipt_of_a_pending_transaction_is_none():
    assert receipt_with(blockNumber=None, blockHash=None) is None


@pytest.mark.parametrize("field", ["transactionHash", "blockHash", "blockNumber", "gasUsed"])
@pytest.mark.parametrize("value", [None, MISSING, "", "0x", 1.5])
def test_a_receipt_without_a_field_that_is_needed_can_t_be_read_and_the_field_is_named(field, value):
    with pytest.raises(ValueError, match=f" as {field}$"):
        receipt_with(**{field: value})


NO_TIP = error({"id": 1}, -32601, "Method not found")["error"]
GWEI = 10**9


def tells_fees(devchain: DevChain, suggested: Any, paid: Any) -> AbstractContextManager[str]:
    """Return a node with these answers about tips. `paid` are the rewards of its last blocks, in wei."""
    history = {"reward": [[hex(wei)] for wei in paid]} if isinstance(paid, list) else paid

    @each
    def answer(body: Any) -> Any:
        told = {"eth_maxPriorityFeePerGas": suggested, "eth_feeHistory": history}.get(body["method"], MISSING)
        if body["method"] not in {"eth_maxPriorityFeePerGas", "eth_feeHistory"}:
            return ask(devchain.url, body)
        if isinstance(told, Raw):
            return told
        reply = {"jsonrpc": "2.0", "id": body["id"]}
        return reply if told is MISSING else reply | {"error" if told == NO_TIP else "result": told}

    return lying_node(answer)


@pytest.mark.parametrize(
    ("suggested", "paid", "least", "tip"),
    [
        (NO_TIP, [], 0, 10**6),
        (NO_TIP, [], 1.5, 1_500_000_000),
        ("0x5", [], 0, 5),
        ("0x0", [], 0, 0),
        ("0x5", [], 1.5, 1_500_000_000),
        ("0x77359400", [], 1.5, 2_000_000_000),
        # hiero-ledger/hiero-json-rpc-relay answers "0x". An answer that is no fee counts as none.
        ("0x", [], 0, 10**6),
        (None, [], 0, 10**6),
        # status-im/status-go leaves null out. A proxy may refuse the method alone, by a status.
        (MISSING, [], 0, 10**6),
        *((Raw(b"no", status), [], 0, 10**6) for status in (400, 403, 404, 405, 500, 501)),
        (hex(2**255), [], 0, 10**6),
        # A suggestion far above what blocks took counts as much as that.
        (hex(150 * GWEI), [GWEI, 2 * GWEI, 3 * GWEI], 0, 2 * GWEI),
        (hex(8 * GWEI), [GWEI, 2 * GWEI, 3 * GWEI], 0, 8 * GWEI),
        (hex(150 * GWEI), [0, GWEI, 0, 2 * GWEI, 3 * GWEI, 0, 0, 0, 0, 0], 0, 2 * GWEI),
        (hex(150 * GWEI), [100 * GWEI] * 5, 0, 150 * GWEI),
        (hex(150 * GWEI), [GWEI] * 5, 30, 30 * GWEI),
        # Blocks without transactions, or with few, say nothing.
        (hex(150 * GWEI), [0] * 10, 0, 150 * GWEI),
        (hex(150 * GWEI), [0, GWEI, GWEI, 0], 0, 150 * GWEI),
        (hex(GWEI), [1, 1, 1], 0, 10**6),
        *((hex(GWEI), paid, 0, GWEI) for paid in (NO_TIP, None, MISSING, {}, {"reward": None}, {"reward": [None, []]})),
    ],
)
def test_the_tip_is_what_the_node_suggests_within_four_times_what_blocks_took(devchain, suggested, paid, least, tip):
    with tells_fees(devchain, suggested, paid) as url:
        chain = Chain(id=31337, name="Test chain", rpc_urls=(url,), min_priority_fee_gwei=least)
        rpc = RpcClient(chain, timeout_seconds=5)
        assert rpc.fees().priority_fee == tip
        assert not rpc.resting_nodes()


@pytest.mark.parametrize(
    ("first", "second", "usual", "tip", "is_told"),
    [
        (150, 1, 0, 1, True),
        (150, 1, 1, 1, True),
        (150, 1, 30, 30, True),
        (150, 150, 1, 150, False),
        (8, 2, 1, 8, False),
        (9, 2, 1, 2, False),
        (1, 150, 0, 1, True),
        # The first node tells nothing odd, so the operator needn't know what the second one tells.
        (4, 1, 1, 4, False),
        (1, 150, 1, 1, False),
        (10, None, 1, 10, False),
    ],
)
def test_a_tip_far_above_the_usual_one_is_compared_with_another_node(devchain, first, second, usual, tip, is_told):
    """All in gwei. Each node's fee history bears out its suggestion."""
    with ExitStack() as stack:
        urls = [
            stack.enter_context(tells_fees(devchain, hex(gwei * GWEI), [gwei * GWEI] * 10))
            if gwei
            else "http://127.0.0.1:1"
            for gwei in (first, second)
        ]
        chain = Chain(id=31337, name="Test chain", rpc_urls=tuple(urls))
        fees = RpcClient(chain, timeout_seconds=5).fees(usual * GWEI)
    assert fees.priority_fee == tip * GWEI
    hosts = [url.removeprefix("http://").rstrip("/") for url in urls]
    assert bool(fees.doubt) == is_told
    assert not is_told or all(host in fees.doubt for host in hosts)


def test_tips_are_compared_once_in_ten_minutes_while_they_are_usual(devchain, pass_time):
    asked: list[Any] = []
    with (
        tells_fees(devchain, hex(GWEI), [GWEI] * 10) as first,
        lying_node(recording(asked, lambda body: ask(devchain.url, body))) as second,
    ):
        client = RpcClient(Chain(id=31337, name="Test chain", rpc_urls=(first, second)))
        for seconds, times in ((0, 1), (590, 1), (601, 2)):
            pass_time(seconds)
            client.fees(GWEI)
            assert str(asked).count("eth_feeHistory") == times


def test_one_call_asks_for_proofs_at_several_blocks(devchain, client_of):
    devchain.mine(2)
    client = client_of(devchain.url)
    # The state of an earlier block may have been changed by a test before.
    blocks = [client.header(client.head().number - 1), client.head()]
    proof_requests = [ProofRequest(block.number, block.hash, block.state_root, ALICE, [1]) for block in blocks]
    node_requests: list[Any] = []
    with lying_node(recording(node_requests, lambda body: ask(devchain.url, body))) as url:
        proofs = client_of(url).proofs(proof_requests)
    assert all(isinstance(proof, VerifiedAccountProof) for proof in proofs)
    assert len(node_requests) == 2, "one batch, after the chain id"


@pytest.mark.parametrize(("exchanges", "seconds", "words"), [(9, 0, "takes too long"), (0, 9, "too many requests")])
def test_a_client_whose_budget_is_used_up_asks_no_node(devchain, client_of, exchanges, seconds, words):
    asked: list[Any] = []
    with (
        lying_node(recording(asked, lambda body: ask(devchain.url, body))) as url,
        pytest.raises(OutOfExchanges, match=words),
    ):
        client_of(url, budget=ExchangeBudget(exchanges, seconds)).head()
    assert asked == []
