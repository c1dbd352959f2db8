"""`POST /read-proofs` about withdrawals. Development chains make none, so a node in between tells recorded ones."""

from typing import Any

import pytest
from django.test import Client
from eth_abi.abi import decode
from eth_utils.crypto import keccak

from tests import fixtures_folder, headers
from tests.chains.lying_node import error, result
from tests.contracts import deployed, tries
from tests.headers import with_hash
from tests.service import ALICE, asking, changed_replies, header

pytestmark = pytest.mark.outside

WITHDRAWALS_ROOT = 16
RECORDED = fixtures_folder.load_fixture("withdrawals/eth-mainnet-19426587.json")["withdrawals"]
MESSAGE_PASSER = "0x4200000000000000000000000000000000000016"


def read(client: Client, key, blocks):
    body = asking(blocks)
    del body["fee"]
    return client.post("/read-proofs", body, content_type="application/json", headers=header(key))


@pytest.fixture
def node(service, settings):
    """Return a list whose only entry changes the replies of the service's node."""
    changes = [lambda _, reply: [reply]]

    def change(question, reply):
        if question["method"] == "eth_getProof" and "error" in reply:
            # The chain doesn't know the hash of a block that was changed.
            reply = result(question, service.rpc("eth_getProof", *question["params"][:2], hex(service.head() - 1)))
        return changes[0](question, reply)

    with changed_replies(settings, service, change):
        yield changes


def value_of(told: dict[str, Any]) -> bytes:
    index, validator, amount = (int(told[name], 16) for name in ("index", "validatorIndex", "amount"))
    return tries.encode([index, validator, bytes.fromhex(told["address"][2:]), amount])


def paying_out(told: list[dict[str, Any]], root: bytes | None = None, more: dict[str, Any] | None = None):
    """Return a change of replies, after which each block has these withdrawals."""
    made = root_of([value_of(each) for each in told]) if root is None else root

    def change(question, reply):
        if question["method"] != "eth_getBlockByNumber" or not reply["result"]:
            return [reply]
        block = with_hash(reply["result"] | {"withdrawalsRoot": f"0x{made.hex()}"})
        return [reply | {"result": block | {"withdrawals": told} | (more or {})}]

    return change


def root_of(values: list[bytes]) -> bytes:
    return bytes(tries.build({tries.encode(place): value for place, value in enumerate(values)}).root_hash)


def own_reader(service, block: dict[str, Any]) -> deployed.Deployed:
    """Return a reader of a registry that holds the root of withdrawals of a block, as nodes tell it."""
    source = deployed.Deployed(service, "test/SettableBlockHashSource", 31337)
    registry = deployed.Deployed(service, "FactsRegistry", 31337, source.address, 8191, "0x" + "00" * 20)
    source.send("set", int(block["number"], 16), bytes.fromhex(block["hash"][2:]))
    # The header, its field 16, and the header's end (docs/developing/proof-format.md).
    registry.send_raw(headers.told(block) + bytes.fromhex("31" + "80010000" + "37"))
    return deployed.Deployed(service, "FactsReader", [registry.address])


def test_recorded_withdrawals_are_shown_with_proofs_that_the_view_takes(service, client, key, node):
    number = service.head() - 1
    places = ["15", "0", "7", "0"]
    account = {ALICE: {"props": ["BALANCE"]}}
    node[0] = paying_out(RECORDED)
    [reply] = paying_out(RECORDED)(
        {"method": "eth_getBlockByNumber"}, {"result": service.rpc("eth_getBlockByNumber", hex(number), False)}
    )
    answer = read(client, key, {f"block:{number}": {"withdrawals": places, "accounts": account}})
    assert answer.status_code == 200, answer.text
    balance, *told = answer.json()["proofs"]
    assert (balance["property"], balance["withdrawal"]) == ("BALANCE", None)
    assert [proof["withdrawal"]["place"] for proof in told] == ["15", "0", "7"]
    reader = own_reader(service, reply["result"])
    for proof in told:
        recorded = RECORDED[int(proof["withdrawal"]["place"])]
        assert (proof["property"], proof["account"], proof["transaction"], proof["log"]) == (
            "WITHDRAWAL",
            None,
            None,
            None,
        )
        shown = {name: proof["withdrawal"][name] for name in ("index", "validatorIndex", "amount")}
        assert shown == {name: str(int(recorded[name], 16)) for name in shown}
        assert proof["withdrawal"]["address"].lower() == recorded["address"]
        assert (proof["value"], int(proof["word"], 16)) == (shown["amount"], int(shown["amount"]))
        root = proof["root"]
        assert (root["property"], root["isFact"]) == ("WITHDRAWALS_ROOT", False)
        assert root["batch"]["data"] == {"31337": {f"block:{number}": {"header": ["WITHDRAWALS_ROOT"]}}}
        assert proof["view"]["function"] == "withdrawalByProof"
        words = reader.call_raw(bytes.fromhex(proof["view"]["data"][2:]))
        index, validator, address, amount = decode(["uint64", "uint64", "address", "uint64"], words)
        assert [index, validator, amount] == [int(shown[name]) for name in ("index", "validatorIndex", "amount")]
        assert address == recorded["address"]


def test_a_known_root_is_told(service, client, key, node):
    """The registry is asked for the root. A word of the storage stands for a proof of a header that no chain has."""
    number = service.head() - 1
    held = root_of([value_of(each) for each in RECORDED])

    def change(question, reply):
        data = question["params"][0].get("data", "") if question["method"] == "eth_call" else ""
        if data.endswith(f"{number:064x}{WITHDRAWALS_ROOT:064x}"):
            return [reply | {"result": f"0x{1:064x}{held.hex()}"}]
        return paying_out(RECORDED)(question, reply)

    node[0] = change
    [proof] = read(client, key, {f"block:{number}": {"withdrawals": ["3"]}}).json()["proofs"]
    assert (proof["root"]["isFact"], proof["root"]["batch"]) == (True, None)


def test_a_block_of_withdrawals_is_named_in_any_way_and_read_once(service, client, key, node):
    number, methods = service.head(), list[Any]()
    sixteen = list(map(str, range(16)))
    many = [*RECORDED, *RECORDED[:4]]

    def change(question, reply):
        methods.append((question["method"], question["params"]))
        return paying_out(many)(question, reply)

    node[0] = change
    blocks = {f"block:{number}": {"withdrawals": sixteen}, "latest": {"withdrawals": ["16", "19"]}}
    told = read(client, key, blocks).json()["proofs"]
    assert [proof["withdrawal"]["place"] for proof in told] == [*sixteen, "16", "19"]
    assert {proof["blockNumber"] for proof in told} == {str(number)}
    # Once for the header, and once for its withdrawals.
    assert methods.count(("eth_getBlockByNumber", [hex(number), False])) == 2


LIES: dict[str, Any] = {
    "another amount": {"withdrawals": [RECORDED[0] | {"amount": "0x1"}, *RECORDED[1:]]},
    "one less": {"withdrawals": RECORDED[:-1]},
    "one more": {"withdrawals": [*RECORDED, RECORDED[0]]},
    "another order": {"withdrawals": RECORDED[::-1]},
    "none": {"withdrawals": []},
    "null": {"withdrawals": None},
    "an object": {"withdrawals": {"0": RECORDED[0]}},
    "a list of numbers": {"withdrawals": [1]},
    "no index": {"withdrawals": [{**RECORDED[0], "index": None}]},
    "a short address": {"withdrawals": [{**RECORDED[0], "address": "0x11"}]},
    "a long number": {"withdrawals": [{**RECORDED[0], "amount": hex(2**64)}]},
    "too many": {"withdrawals": RECORDED[:1] * 1025},
}


def test_withdrawals_that_make_another_root_are_not_believed(client, key, node, service, settings):
    settings.MAX_BATCHES_PER_MINUTE = 100
    number = service.head() - 1
    for lie, more in LIES.items():
        node[0] = paying_out(RECORDED, more=more)
        refused = read(client, key, {f"block:{number}": {"withdrawals": ["0"]}})
        assert (refused.status_code, refused.json()["code"]) == (503, "chain_unavailable"), lie
        assert "http://" not in refused.text
    node[0] = paying_out(RECORDED)
    assert read(client, key, {f"block:{number}": {"withdrawals": ["0"]}}).status_code == 200


def test_lists_that_would_take_long_are_not_hashed_and_wide_numbers_not_shown(service, client, key, node):
    """Their roots are as told: a chain that has such lists isn't read."""
    number = service.head() - 1
    wide = [RECORDED[0] | {"amount": hex(2**64)}]
    for told, status in ((RECORDED[:1] * 1024, 200), (RECORDED[:1] * 1025, 503), (wide, 503)):
        node[0] = paying_out(told)
        answer = read(client, key, {f"block:{number}": {"withdrawals": ["0"]}})
        assert answer.status_code == status


def test_a_withdrawal_of_another_block_is_not_believed(service, client, key, node):
    """The node's number names another block by the time it is asked again."""
    number, asked = service.head() - 1, list[str]()

    def change(question, reply):
        if question["method"] == "eth_getBlockByNumber" and question["params"][0] == hex(number):
            asked.append(question["method"])
            if len(asked) > 1:
                moved = with_hash(reply["result"] | {"extraData": "0x01"})
                return paying_out(RECORDED)(question, reply | {"result": moved})
        return paying_out(RECORDED)(question, reply)

    node[0] = change
    refused = read(client, key, {f"block:{number}": {"withdrawals": ["0"]}})
    assert (refused.status_code, refused.json()["code"]) == (503, "chain_unavailable")
    assert len(asked) > 1


def refusal(client, key, number: int, withdrawals: list[str]) -> tuple[int, str, str]:
    """Return the status, the code, and the path of the fault below the block."""
    answer = read(client, key, {f"block:{number}": {"withdrawals": withdrawals}})
    [fault] = answer.json()["details"]
    return answer.status_code, answer.json()["code"], fault["path"].removeprefix(f"/data/31337/block:{number}/")


def test_what_a_block_does_not_have_is_told(service, client, key, node):
    number = service.head() - 1
    node[0] = paying_out(RECORDED)
    assert refusal(client, key, number, ["0", "16"]) == (400, "invalid_request", "withdrawals/1")
    # A development chain's own blocks have none.
    node[0] = lambda _, reply: [reply]
    assert refusal(client, key, number, ["0"]) == (400, "invalid_request", "withdrawals/0")

    def before_shanghai(question, reply):
        if question["method"] != "eth_getBlockByNumber":
            return [reply]
        since = (
            "withdrawalsRoot",
            "withdrawals",
            "blobGasUsed",
            "excessBlobGas",
            "parentBeaconBlockRoot",
            "requestsHash",
        )
        return [reply | {"result": with_hash({k: v for k, v in reply["result"].items() if k not in since})}]

    node[0] = before_shanghai
    assert refusal(client, key, number, ["0"]) == (400, "invalid_request", "withdrawals")


def test_withdrawals_that_no_view_takes_are_refused(service, client, key, node):
    """The short ones of a young chain are embedded in the branch above."""
    number = service.head() - 1
    short = {"index": "0x5", "validatorIndex": "0x7", "address": ALICE, "amount": hex(2**24 - 1)}
    long = short | {"amount": hex(2**24)}
    # The only one is a root, which may not be as short either.
    only, shortest = [short], [short | {"amount": "0x1"}]
    shown = (([short] * 3, False), ([long] * 3, True), ([long, short, long], False), (only, True), (shortest, False))
    for told, is_shown in shown:
        node[0] = paying_out(told)
        if is_shown:
            place = str(len(told) - 1)
            assert read(client, key, {f"block:{number}": {"withdrawals": [place]}}).status_code == 200
        else:
            place = str(len(told) - 1)
            assert refusal(client, key, number, [place]) == (400, "unsupported", "withdrawals/0")


def test_a_root_of_storage_is_told_from_a_root_that_no_list_makes(service, client, key, node):
    """The field of OP Stack chains since Isthmus."""
    service.rpc("anvil_setStorageAt", MESSAGE_PASSER, f"0x{5:064x}", f"0x{1:064x}")
    service.rpc("anvil_setBalance", MESSAGE_PASSER, "0x1")
    service.mine(2)
    number = service.head() - 1
    proof = service.rpc("eth_getProof", MESSAGE_PASSER, [], hex(number))
    root = bytes.fromhex(proof["storageHash"][2:])
    assert root != tries.EMPTY_ROOT
    node[0] = paying_out([], root)
    assert refusal(client, key, number, ["0"]) == (400, "unsupported", "withdrawals")
    node[0] = paying_out([], keccak(root))
    unknown = read(client, key, {f"block:{number}": {"withdrawals": ["0"]}})

    def without_proofs(question, reply):
        if question["method"] == "eth_getProof":
            return [error(question, -32000, "proofs are off")]
        return paying_out([], root)(question, reply)

    node[0] = without_proofs
    unproven = read(client, key, {f"block:{number}": {"withdrawals": ["0"]}})
    for answer in (unknown, unproven):
        assert (answer.status_code, answer.json()["code"]) == (503, "chain_unavailable")


@pytest.mark.parametrize("withdrawals", [["65536"], ["-1"], ["0x1"], [0], "0", {"0": {}}, [["0"]]])
def test_places_that_are_none_are_refused(service, client, key, withdrawals):
    refused = read(client, key, {f"block:{service.head()}": {"withdrawals": withdrawals}})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert all("withdrawals" in fault["path"] for fault in refused.json()["details"])


def test_withdrawals_count_for_limits(service, client, key, node, settings):
    many = read(client, key, {f"block:{service.head()}": {"withdrawals": [*map(str, range(101))]}})
    [fault] = many.json()["details"]
    assert (many.status_code, fault["path"]) == (400, "/data")
    settings.MAX_QUERIES_PER_MINUTE = 30
    node[0] = paying_out(RECORDED)
    blocks = {f"block:{service.head() - 1}": {"withdrawals": [*map(str, range(16))]}}
    assert [read(client, key, blocks).status_code for _ in range(2)] == [200, 429]


def test_no_batch_stores_withdrawals(service, client, key):
    blocks = {f"block:{service.head()}": {"withdrawals": ["0"]}}
    for path in ("/submit-batch-query", "/estimate-batch-query"):
        refused = client.post(path, asking(blocks), content_type="application/json", headers=header(key))
        assert (refused.status_code, refused.json()["code"]) == (400, "unsupported")
        assert "/read-proofs" in refused.json()["error"]
