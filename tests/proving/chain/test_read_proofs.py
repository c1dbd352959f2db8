"""`POST /read-proofs`: what it gives is what the views of a real `FactsReader` take."""

import io
import json
import tracemalloc
from typing import Any

import pytest
import rlp
from django.core.management import call_command
from django.test import Client
from eth_abi.abi import decode
from eth_utils.crypto import keccak

from proving.models import AccountProof, FactsRegistry
from queries.models import Batch, Block
from tests.chains.lying_node import error, result
from tests.contracts.tries import EMPTY_CODE_HASH, EMPTY_ROOT, hex_prefix
from tests.headers import with_hash
from tests.proving.logs import block_of, block_with_logs, emitting, hashes_of
from tests.service import ALICE, BOB, asking, changed_replies, header, recorded_methods, submit, work_until_done

pytestmark = pytest.mark.outside

# The contract of EIP-2935.
HISTORY_CONTRACT = "0x0000F90827F1C53a10cb7A02335B175320002935"
# An address that nobody has used, and two slots of the history contract, of which one is empty.
NOBODY = "0x00000000000000000000000000000000000000B0"
REVERTS = "execution reverted"


def read(client: Client, key, blocks, **more):
    body = asking(blocks)
    del body["fee"]
    return client.post("/read-proofs", body | more, content_type="application/json", headers=header(key))


def asked(service) -> dict[str, object]:
    number = service.head() - 1
    properties = ["NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH"]
    accounts = {
        HISTORY_CONTRACT: {"props": properties, "slots": [f"{number - 1:x}", "ffff"]},
        **{address: {"props": properties, "slots": ["0"]} for address in (ALICE, NOBODY)},
    }
    return {f"block:{number}": {"accounts": accounts}}


def shown_on_chain(service, proof) -> bytes:
    return bytes.fromhex(
        service.rpc("eth_call", {"to": proof["view"]["to"], "data": proof["view"]["data"]}, "latest")[2:]
    )


@pytest.mark.story
def test_the_reader_answers_each_once_its_root_is_a_fact(service, client, key):
    call_command("deploy_reader", 31337, stdout=io.StringIO())
    blocks = asked(service)
    told = read(client, key, blocks).json()["proofs"]
    assert len(told) == 3 * 4 + 4
    assert not Batch.objects.exists()
    assert not Block.objects.exists()
    for proof in told:
        assert not proof["root"]["isFact"]
        with pytest.raises(Exception, match=REVERTS):
            shown_on_chain(service, proof)
    for batch in {json.dumps(proof["root"]["batch"]) for proof in told}:
        work_until_done(submit(key, json.loads(batch) | {"fee": "0"}), service)
    number = told[0]["blockNumber"]
    again = read(client, key, blocks).json()["proofs"]
    order = ["NONCE", "BALANCE", "CODE_HASH", "STORAGE_ROOT"]
    for proof in again:
        assert (proof["root"]["isFact"], proof["root"]["batch"]) == (True, None)
        words = shown_on_chain(service, proof)
        place = 0 if proof["slot"] else 32 * order.index(proof["property"])
        assert words[place : place + 32].hex() == proof["word"][2:], proof
        assert len(words) == (32 if proof["slot"] else 128)
    values = {(proof["account"], proof["property"], proof["slot"]): proof["value"] for proof in again}
    assert int(values[ALICE, "BALANCE", None]) == int(service.rpc("eth_getBalance", ALICE, hex(int(number))), 16)
    assert values[NOBODY, "BALANCE", None] == "0"
    filled = [value for (account, name, _), value in values.items() if account == HISTORY_CONTRACT and name == "SLOT"]
    assert sorted(value != "0" for value in filled) == [False, True]
    assert not AccountProof.objects.filter(address=BOB).exists()


@pytest.mark.long
def test_the_reader_answers_receipts_and_logs_once_their_root_is_a_fact(service, client, key):
    call_command("deploy_reader", 31337, stdout=io.StringIO())
    number = block_with_logs(service)
    hashes = service.rpc("eth_getBlockByNumber", hex(number), False)["transactions"]
    properties = ["STATUS", "TYPE", "CUMULATIVE_GAS_USED", "LOG_COUNT"]
    transactions = {
        "0": {"props": properties, "logs": ["0"]},
        "1": {"props": properties},
        hashes[2].upper().replace("0X", "0x"): {"props": properties, "blockLogs": ["2", "1"]},
    }
    blocks = {f"block:{number}": {"transactions": transactions}}
    told = read(client, key, blocks).json()["proofs"]
    assert [proof["root"]["isFact"] for proof in told] == [False] * (3 * 4 + 3)
    (batch,) = {json.dumps(proof["root"]["batch"]) for proof in told}
    work_until_done(submit(key, json.loads(batch) | {"fee": "0"}), service)
    shown: dict[Any, Any] = {}
    for proof in read(client, key, blocks).json()["proofs"]:
        assert (proof["root"]["isFact"], proof["root"]["property"]) == (True, "RECEIPTS_ROOT")
        index, words = int(proof["transaction"]["index"]), shown_on_chain(service, proof)
        receipt = service.rpc("eth_getTransactionReceipt", hashes[index])
        assert proof["transaction"]["hash"] == hashes[index]
        if proof["property"] == "LOG":
            emitter, topics, data = decode(["address", "bytes32[]", "bytes"], words)
            log = receipt["logs"][int(proof["log"]["index"])]
            assert (emitter, [f"0x{topic.hex()}" for topic in topics]) == (log["address"], log["topics"])
            assert f"0x{data.hex()}" == log["data"] == proof["log"]["data"]
            assert (proof["log"]["emitter"].lower(), proof["log"]["topics"]) == (emitter, log["topics"])
            parts = b"".join(bytes.fromhex(part[2:].zfill(64)) for part in (emitter, *log["topics"]))
            assert proof["word"] == f"0x{keccak(parts + keccak(data)).hex()}"
        else:
            exists, has_status, *fields = decode(["bool", "bool", "uint8", "uint8", "uint64", "uint32"], words)
            assert (exists, has_status) == (True, True)
            assert proof["value"] == str(fields[properties.index(proof["property"])])
        shown.setdefault(index, []).append(proof["log"]["index"] if proof["log"] else int(proof["value"]))
    assert [shown[index][0] for index in range(3)] == [1, 0, 1]
    assert [shown[index][3] for index in range(3)] == [1, 0, 2]
    assert [shown[index][4:] for index in range(3)] == [["0"], [], ["1", "0"]]


RECEIPT_LIES: dict[Any, Any] = {
    ("another log", "eth_getBlockReceipts"): lambda told: [told[0] | {"logs": []}, *told[1:]],
    ("one less", "eth_getBlockReceipts"): lambda told: told[1:],
    ("another root", "eth_getBlockByNumber"): lambda told: with_hash(told | {"receiptsRoot": "0x" + 64 * "1"}),
    ("a deposit without a nonce", "eth_getBlockReceipts"): lambda told: [
        told[0] | {"type": "0x7e", "depositNonce": "0x1"},
        *(receipt | {"type": "0x7e"} for receipt in told[1:]),
    ],
    # The node answers one transaction's receipt at a time.
    ("no block", "eth_getBlockByHash"): lambda _: None,
    ("no list of transactions", "eth_getBlockByHash"): lambda told: told | {"transactions": None},
    ("no hash", "eth_getBlockByHash"): lambda told: told | {"transactions": [5]},
    ("one transaction less", "eth_getBlockByHash"): lambda told: told | {"transactions": told["transactions"][1:]},
    ("no receipt", "eth_getTransactionReceipt"): lambda _: None,
    ("a list", "eth_getTransactionReceipt"): lambda told: [told],
    ("other logs", "eth_getTransactionReceipt"): lambda told: told | {"logs": []},
}
ONE_BY_ONE = {"eth_getBlockByHash", "eth_getTransactionReceipt"}


@pytest.mark.long
def test_receipts_that_make_another_root_are_not_believed(service, client, key, settings):
    settings.MAX_BATCHES_PER_MINUTE = 100
    blocks = {f"block:{block_with_logs(service)}": {"transactions": {"0": {"props": ["STATUS"], "logs": ["0"]}}}}
    told, lies = read(client, key, blocks).json()["proofs"], dict(RECEIPT_LIES)

    def change(question, reply):
        if question["method"] == "debug_getRawReceipts":
            return [error(question, -32601, "the method does not exist")]
        (_, method), lie = next(iter(lies.items()), (("", "eth_getTransactionReceipt"), lambda told: told))
        if question["method"] == "eth_getBlockReceipts" and method in ONE_BY_ONE:
            return [error(question, -32601, "the method does not exist")]
        return [reply | {"result": lie(reply["result"])} if question["method"] == method else reply]

    with changed_replies(settings, service, change) as url:
        while lies:
            refused = read(client, key, blocks)
            assert (refused.status_code, refused.json()["code"]) == (503, "chain_unavailable"), next(iter(lies))
            assert url not in refused.text
            del lies[next(iter(lies))]
        assert read(client, key, blocks).json()["proofs"] == told


def test_the_place_of_what_a_block_does_not_have_is_told(service, client, key):
    number = block_with_logs(service)
    tx_hash = service.rpc("eth_getBlockByNumber", hex(number), False)["transactions"][0]
    status = {"props": ["STATUS"]}
    for transactions, place, why in (
        ({"3": status}, "3", "3 transactions, so none has index 3"),
        ({"0": status, tx_hash: status}, tx_hash, "named twice"),
        ({"1": {"logs": ["0"]}}, "1/logs/0", "it has none"),
        ({"2": {"logs": ["0", "2"]}}, "2/logs/1", "its logs are 0 to 1. Indexes count within the receipt"),
        ({"0": {"logs": ["1"]}}, "0/logs/0", "its only log is 0. Indexes count within the receipt; for a node's"),
        ({"2": {"blockLogs": ["1", "0"]}}, "2/blockLogs/1", "no log 0 of the block: its logs are 1 to 2 of the block"),
        ({"0": {"blockLogs": ["1"]}}, "0/blockLogs/0", "its only log is 0 of the block."),
    ):
        refused = read(client, key, {f"block:{number}": {"transactions": transactions}})
        assert refused.status_code == 400
        (fault,) = refused.json()["details"]
        assert fault["path"] == f"/data/31337/block:{number}/transactions/{place}"
        assert why in fault["message"]


def test_a_block_that_many_selectors_name_is_read_once(service, client, key, settings):
    number = block_of(service, [emitting(32)] * 24)
    hashes = hashes_of(service, number)

    blocks = {
        f"transaction:{tx_hash}": {"transactions": {str(index): {"props": ["STATUS"], "logs": ["0"]}}}
        for index, tx_hash in enumerate(hashes)
    }
    blocks |= {f"block:{number}": {"transactions": {hashes[0]: {"props": ["STATUS"]}}}}
    with recorded_methods(settings, service) as methods:
        told = read(client, key, blocks).json()["proofs"]
    assert [proof["selector"] for proof in told] == [name for name in blocks for _ in range(2)][:-1]
    assert [int(proof["transaction"]["index"]) for proof in told[::2]] == [*range(24), 0]
    assert (methods.count("eth_getBlockReceipts"), methods.count("eth_getBlockByHash")) == (1, 1)


def test_a_block_is_named_in_any_way_and_without_a_registry_nothing_is_shown(service, client, key):
    service.rpc("evm_increaseTime", 5)
    service.mine()
    accounts = {"accounts": {ALICE: {"props": ["NONCE"], "slots": ["0"]}}}
    number, time = service.head(), int(service.rpc("eth_getBlockByNumber", "latest", False)["timestamp"], 16)
    blocks = {"latest": accounts, f"block:{number}": accounts, f"timestamp:{time - 1}": accounts}
    told = read(client, key, blocks)
    assert told.status_code == 200, told.text
    told = told.json()["proofs"]
    assert [proof["selector"] for proof in told] == [selector for selector in blocks for _ in range(2)]
    assert [int(proof["blockNumber"]) for proof in told] == [number] * 4 + [number - 1] * 2
    assert told[0]["view"] == told[2]["view"] != told[4]["view"]
    for proof in told:
        assert proof["view"]["to"] is None  # no reader is deployed
    FactsRegistry.objects.all().delete()
    refused = read(client, key, blocks)
    assert (refused.status_code, refused.json()["code"]) == (503, "chain_unavailable")


def another_slots(told):
    first, second = told["storageProof"]
    first["proof"], second["proof"] = second["proof"], first["proof"]
    return told


LIES = {
    ("another slot's proof", "eth_getProof"): another_slots,
    ("no proof", "eth_getProof"): lambda _: None,
    ("the end is missing", "eth_getProof"): lambda told: told | {"accountProof": told["accountProof"][:-1]},
    ("one node is missing or too many", "eth_getProof"): lambda told: told | {"accountProof": told["accountProof"] * 2},
    ("another block's state", "eth_getBlockByNumber"): lambda told: with_hash(told | {"stateRoot": "0x" + 64 * "1"}),
    ("a byte for a word", "eth_call"): lambda _: "0x01",
    ("an unknown boolean, cut", "eth_call"): lambda _: "0x" + 63 * "2",
    ("more than two words", "eth_call"): lambda _: "0x" + 2000 * "01",
}


def with_empty_nodes(told):
    """Add what Nethermind has sent: NethermindEth/nethermind, issue 7759."""
    slots = [slot | {"proof": [*slot["proof"], "0x", "0x"]} for slot in told["storageProof"]]
    return told | {"accountProof": [*told["accountProof"], "0x"], "storageProof": slots}


def test_a_node_that_lies_is_not_believed(service, client, key, settings):
    settings.MAX_BATCHES_PER_MINUTE = 100
    lies: dict[Any, Any] = {**LIES, ("no lie", "eth_getProof"): with_empty_nodes}
    blocks = {f"block:{service.head() - 1}": {"accounts": {HISTORY_CONTRACT: {"slots": ["1", "ffff"]}}}}

    def change(question, reply):
        (_, method), lie = next(iter(lies.items()))
        return [reply | {"result": lie(reply["result"])} if question["method"] == method else reply]

    told = read(client, key, blocks).json()["proofs"]
    with changed_replies(settings, service, change) as url:
        while len(lies) > 1:
            refused = read(client, key, blocks)
            assert (refused.status_code, refused.json()["code"]) == (503, "chain_unavailable"), next(iter(lies))
            assert url not in refused.text
            del lies[next(iter(lies))]
        assert read(client, key, blocks).json()["proofs"] == told


def deep_account(address: str) -> tuple[bytes, list[bytes]]:
    """Return the root and the nodes of a proof in a trie as deep as its keys."""
    digits = keccak(bytes.fromhex(address[2:])).hex()
    nodes = [rlp.encode([hex_prefix("", leaf=True), rlp.encode([1, 1, EMPTY_ROOT, EMPTY_CODE_HASH])])]
    for digit in reversed(digits):
        places = [bytes([place]) * 32 for place in range(1, 17)]
        places[int(digit, 16)] = keccak(nodes[0])
        nodes.insert(0, rlp.encode([*places, b""]))
    return keccak(nodes[0]), nodes


def test_an_answer_has_four_megabytes_at_most(service, client, key, settings):
    service.mine(8)
    root, nodes = deep_account(ALICE)

    def change(question, reply):
        if question["method"] == "eth_getBlockByNumber":
            return [reply | {"result": with_hash(reply["result"] | {"stateRoot": f"0x{root.hex()}"})}]
        if question["method"] == "eth_getProof":
            return [result(question, {"accountProof": [f"0x{node.hex()}" for node in nodes], "storageProof": []})]
        return [reply]

    accounts = {"accounts": {ALICE: {"props": ["NONCE", "BALANCE", "STORAGE_ROOT", "CODE_HASH"]}}}
    blocks = [(f"block:{service.head() - number}", accounts) for number in range(8)]
    with changed_replies(settings, service, change):
        told, refused = (read(client, key, dict(blocks[:count])) for count in (7, 8))
    assert told.status_code == 200, told.text
    assert 0.9 * 4 * 2**20 < len(told.content) <= 4 * 2**20
    assert (refused.status_code, refused.json()["code"]) == (403, "too_large_for_limit")


def test_a_proof_of_megabytes_takes_little_memory(service, client, key, settings):
    number, size = service.head() - 1, 2**21
    log = {"address": ALICE, "topics": [], "data": "0x" + size * "11"}
    receipt = {"status": "0x1", "cumulativeGasUsed": "0x0", "logs": [log], "logsBloom": "0x" + 256 * "00"}
    value = rlp.encode([b"\1", b"", bytes(256), [[bytes.fromhex(ALICE[2:]), [], size * b"\x11"]]])
    root = keccak(rlp.encode([hex_prefix("80", leaf=True), value])).hex()

    def change(question, reply):
        if question["method"] == "eth_getBlockByNumber":
            return [reply | {"result": with_hash(reply["result"] | {"receiptsRoot": f"0x{root}"})}]
        return [result(question, [receipt]) if question["method"] == "eth_getBlockReceipts" else reply]

    with changed_replies(settings, service, change):
        tracemalloc.start()
        refused = read(client, key, {f"block:{number}": {"transactions": {"0": {"logs": ["0"]}}}})
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert (refused.status_code, refused.json()["code"]) == (403, "too_large_for_limit")
    assert most < 24 * size, most / size


@pytest.mark.parametrize(
    ("blocks", "status", "code"),
    [
        ({"block:1": {"header": ["TIMESTAMP"]}}, 400, "unsupported"),
        ({"block:1": {"accounts": {ALICE: {"slots": [f"{slot:x}" for slot in range(100)]}}}}, 400, "invalid_request"),
        ({"block:1": {"transactions": {"0": {"props": ["STATUS"]}}}}, 400, "invalid_request"),
        ({"block:1": {"transactions": {"0x" + "11" * 32: {"logs": ["0"]}}}}, 400, "invalid_request"),
        ({"block:1": {"transactions": {"65536": {"logs": ["0"]}}}}, 400, "invalid_request"),
        ({"block:1": {"transactions": {"0": {}}}}, 400, "invalid_request"),
        (
            {"block:1": {"transactions": {"0": {"props": ["STATUS", "HASH"]}}, "header": ["TIMESTAMP"]}},
            400,
            "unsupported",
        ),
        ({"transaction:0x" + "11" * 32: {"accounts": {ALICE: {"props": ["NONCE"]}}}}, 503, "chain_unavailable"),
        ({"block:1": {"transactions": {"0": {"logs": list(map(str, range(100)))}}}}, 400, "invalid_request"),
        ({"block:999999": {"accounts": {ALICE: {"props": ["NONCE"]}}}}, 503, "chain_unavailable"),
        ({"timestamp:1": {"accounts": {ALICE: {"props": ["NONCE"]}}}}, 400, "invalid_request"),
        ({"timestamp:1700000000000": {"accounts": {ALICE: {"props": ["NONCE"]}}}}, 400, "invalid_request"),
    ],
)
def test_read_proofs_refuses_questions_that_the_views_cannot_answer(service, client, key, blocks, status, code):
    refused = read(client, key, blocks)
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    if "HASH" in str(blocks):
        told = {fault["path"]: fault["code"] for fault in refused.json()["details"]}
        block = "/data/31337/block:1"
        assert told == {f"{block}/transactions/0/props": code, f"{block}/header": code}


def test_read_proofs_has_a_rate_limit_of_its_own(service, client, key, settings):
    settings.MAX_BATCHES_PER_MINUTE = 2
    answers = [read(client, key, asked(service)).status_code for _ in range(3)]
    assert answers == [200, 200, 429]
    submit(key, asking({f"block:{service.head()}": {"accounts": {ALICE: {"props": ["NONCE"]}}}}))
