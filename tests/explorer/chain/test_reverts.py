"""The page "Why does my read revert?", beside a real registry: from an error to the request that mends it."""

import json
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from devnet.devchain import DevChain
from proving.models import FactsRegistry
from queries.models import Batch
from tests.contracts.deployed import Deployed
from tests.explorer.batches import read_files
from tests.explorer.pages import text_of
from tests.factories import client_of
from tests.service import ALICE, BOB, a_key, done, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

SLOT = f"0x{7:064x}"


def asked(**parameters: Any) -> Any:
    return client_of(ALICE).get("/facts/why", parameters)


def requests_of(html: str) -> list[dict[str, Any]]:
    return [json.loads(unescape(text)) for text in re.findall(r"<pre[^>]*><code>(\{.*?\})</code>", html, re.DOTALL)]


def reverting(chain: DevChain, function: str, *arguments: object) -> str:
    """Return the data with which the registry refuses a read, as a node tells it."""
    registry = Deployed(chain, "FactsRegistry", address=FactsRegistry.in_use.get().address)
    call = {"to": registry.address, "data": "0x" + registry.calldata(function, *arguments).hex()}
    return str(chain.ask("eth_call", call, "latest")["error"]["data"])


def revert(signature: str, *values: object) -> str:
    types = signature.partition("(")[2][:-1].split(",")
    return "0x" + (keccak(text=signature)[:4] + encode(types, values)).hex()


def reads(block: int) -> dict[str, tuple[Any, ...]]:
    """Return a read of each kind: function, arguments, fields of the form, and the request's block."""
    account, slot = {"props": ["BALANCE"]}, {"slots": [SLOT]}
    of_account = {"account": BOB, "block": block}
    at = f"block:{block}"
    return {
        "an account": (
            *("accountField(address,uint256,uint8)", (BOB, block, 1)),
            *({**of_account, "property": "BALANCE"}, {at: {"accounts": {BOB: account}}}),
        ),
        "a slot": (
            *("accountStorageSlotValues", (BOB, block, bytes.fromhex(SLOT[2:]))),
            *({**of_account, "slot": SLOT}, {at: {"accounts": {BOB: slot}}}),
        ),
        "a header": (
            "headerField",
            (block, 11),
            {"block": block, "property": "TIMESTAMP"},
            {at: {"header": ["TIMESTAMP"]}},
        ),
        "a receipt": (
            *("receiptField", (block, 0, 0), {"block": block, "transaction": 0, "property": "STATUS"}),
            {at: {"transactions": {"0": {"props": ["STATUS"]}}}},
        ),
        "a transaction": (
            *("transactionHash", (block, 0), {"block": block, "transaction": 0, "property": "HASH"}),
            {at: {"transactions": {"0": {"props": ["HASH"]}}}},
        ),
        "a log": (
            *("logHash", (block, 0, 1), {"block": block, "transaction": 0, "log": 1}),
            {at: {"transactions": {"0": {"logs": ["1"]}}}},
        ),
    }


@pytest.mark.long
def test_what_a_read_reverts_with_leads_to_the_request_that_mends_it(service: DevChain):
    block = service.head() - 1
    for function, arguments, fields, requested in reads(block).values():
        pasted, filled = asked(revert=reverting(service, function, *arguments)), asked(**fields)
        assert (pasted.status_code, filled.status_code) == (200, 200)
        document, *others = requests_of(filled.text)
        assert requests_of(pasted.text) == [document, *others]
        assert document == {"destinationChainId": "31337", "fee": "auto", "data": {"31337": requested}}
        assert "NotProven(" in pasted.text
        # A header has no root above it, and no view takes the proof of a transaction.
        assert len(others) == (function not in {"headerField", "transactionHash"})
        for name, value in fields.items():
            assert re.search(rf'name="{name}"[^>]*value="{value}"|<option\s+selected>{value}<', pasted.text)

    # The request can be sent as it is, and the read answers afterwards.
    balance, of_root = requests_of(asked(account=BOB, block=block, property="BALANCE").text)
    done(submit(a_key(), balance), service)
    held = asked(account=BOB, block=block, property="BALANCE")
    assert requests_of(held.text) == []
    assert f"{int(service.rpc('eth_getBalance', BOB, hex(block)), 16):064x}" in held.text
    assert of_root["data"] == {"31337": {f"block:{block}": {"header": ["STATE_ROOT"]}}}


def test_a_time_is_asked_for_by_its_timestamp(service: DevChain):
    pasted = asked(revert=reverting(service, "blockAtTimestamp", 1_700_000_000))
    (document,) = requests_of(pasted.text)
    assert document["data"] == {"31337": {"timestamp:1700000000": {"header": ["BLOCK_NUMBER"]}}}


@pytest.mark.parametrize("name", reads(0))
def test_its_button_opens_the_form_of_a_new_batch_filled_in(service: DevChain, name: str):
    *_, fields, requested = reads(3)[name]
    page = asked(**fields).text
    form = re.search(r'<form method="post" action="/new-batch">(.*?)</form>', page, re.DOTALL)
    assert form
    inputs = {unescape(name): unescape(value) for name, value in re.findall(r'name="([^"]+)" value="([^"]*)"', form[1])}
    client = client_of(ALICE)
    opened = client.post("/new-batch", inputs)
    assert opened.status_code == 200
    downloaded = client.post("/new-batch", inputs | {"do": "json"}).json()
    assert downloaded["data"] == {"31337": requested}
    assert "One thing needs" not in text_of(opened.text)
    assert not Batch.objects.exists()


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"revert": "0x123456"}, "This isn't the whole revert data"),
        ({"revert": "0x123"}, "This isn't the whole revert data"),
        ({"revert": "hello"}, "This isn't the whole revert data"),
        ({"revert": revert("Error(string)", "nope")[:-64]}, "This isn't the whole revert data"),
        ({"revert": revert("Error(string)", "nope")[:10] + "f" * 64}, "This isn't the whole revert data"),
        ({"revert": revert("Panic(uint256)", 1)[:-2]}, "This isn't the whole revert data"),
        ({"revert": revert("NotProven(address,uint256,uint8)", BOB, 1, 9)}, "There is no such property"),
        (
            {"revert": revert("NotProven(address,uint256,uint8)", BOB, 1, 1)[:10]},
            "This isn't the whole revert data",
        ),
        ({"account": "0x12", "block": "1"}, "The account"),
        ({"block": "x"}, "The block must be a number"),
        ({"block": "9" * 90}, "The block must be a number"),
        ({"block": "1", "slot": "zz", "account": BOB}, "The slot must be"),
        ({"block": "1", "account": BOB, "property": "TIMESTAMP"}, "Choose a property"),
        ({"block": "1", "property": "BALANCE"}, "Choose a property"),
        ({"block": "1", "transaction": "-1"}, "The transaction must be"),
        ({"block": "1", "transaction": f"0x{1:064x}", "property": "STATUS"}, "by its index"),
        ({"block": "1", "transaction": "0", "log": "x"}, "The log must be"),
        ({"timestamp": "noon"}, "The time must be"),
        ({"block": "1", "property": "TIMESTAMP", "sourceChainId": "5"}, "no facts registry for these chains"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(service: DevChain, parameters: dict[str, str], sentence: str):
    refused = asked(**parameters)
    assert refused.status_code == 400
    assert sentence in unescape(text_of(refused.text))
    assert requests_of(refused.text) == []


def explained(data: str) -> str:
    answer = asked(revert=data)
    assert answer.status_code == 200
    return unescape(text_of(answer.text)).partition(" The error ")[2]


NOT_SAVED = "Nothing proves the fact or the proof's root, or registryOf(chainId) is zero."


@pytest.mark.parametrize(
    ("text", "sentence"),
    {
        **{
            f"{item}_NOT_SAVED": NOT_SAVED
            for item in ("HEADER_FIELD", "ACCOUNT_FIELD", "SLOT", "TIMESTAMP", "RECEIPT_FIELD", "LOG", "TRANSACTION")
        },
        "BLOCK_NUMBER_TOO_HIGH": "The block number is too high",
        "TIMESTAMP_NOT_BETWEEN_BLOCKS": "The time isn't between the timestamps of the block and the next one.",
    }.items(),
)
def test_a_text_of_the_reader_says_what_it_means(text: str, sentence: str):
    shown = explained(revert("Error(string)", f"STORAGE_PROOF_{text}"))
    assert (f"“STORAGE_PROOF_{text}”" in shown, sentence in shown, OTHERS in shown) == (True, True, False)


def test_an_error_without_a_fact_says_what_it_means():
    assert "Make the proof again" in explained("0x09bde339")


OTHERS = "No registry, reader or library reverts with this. The error comes from the caller's contract"
NESTED = revert("SlotNotProven(address,uint256,bytes32)", BOB, 3, bytes.fromhex(SLOT[2:]))


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (revert("Error(string)", "ERC20: nope"), "Error(string) {} “ERC20: nope”"),
        (revert("Error(string)", ""), "Error(string) {} “”"),
        (revert("Error(string)", "x" * 1800), "x" * 1800),
        # A text about a fact of ours isn't ours.
        (revert("Error(string)", "STORAGE_PROOF_SLOT_NOT_SAVED!"), "{} “STORAGE_PROOF_SLOT_NOT_SAVED!”"),
        # Some contracts write their text's last word without zeros behind it.
        (revert("Error(string)", "nope").rstrip("0"), "“nope”"),
        (revert("Error(string)", "a\u202eb\n"), "“a\\u202eb\\n”"),
        (revert("Unauthorized(address)", BOB), f"{{}} 0x{BOB[2:].lower():0>64}"),
        ("0x12345678", "0x12345678 {} 0x"),
        (revert("Failed(bytes)", b""), "{}"),
        (revert("Failed(bytes)", bytes.fromhex(revert("Error(string)", "inner")[2:])), "Error(string) {} “inner”"),
    ],
)  # fmt: skip
def test_an_error_of_another_contract_is_said_to_be_one(data: str, shown: str):
    page = re.sub(r"(?<=calls)\.", "", explained(data))
    assert shown.format(f"{OTHERS}, or from a contract that it calls") in page
    assert NOT_SAVED not in page


@pytest.mark.parametrize(
    ("number", "meaning"), [(17, "is called. A calculation overflowed. 17"), (99, "is called. 99")]
)
def test_a_panic_may_come_from_a_library(number: int, meaning: str):
    page = explained(revert("Panic(uint256)", number))
    assert "in a library, such as ProvenFacts.part" in page
    assert meaning in page
    assert OTHERS not in page


def test_markup_in_an_error_is_text():
    page = asked(revert=revert("Error(string)", "<script>alert(1)</script>")).text
    assert "<script>alert" not in page
    assert "“&lt;script&gt;alert(1)&lt;/script&gt;”" in page


@pytest.mark.parametrize(
    ("wrapper", "data"),
    {
        "bytes": revert("CallFailed(bytes)", bytes.fromhex(NESTED[2:])),
        "ERC-7751": revert(
            "WrappedError(address,bytes4,bytes,bytes)", BOB, bytes(4), bytes.fromhex(NESTED[2:]), b"details"
        ),
        "a text": "0x" + (keccak(text="Error(string)")[:4] + encode(["bytes"], [bytes.fromhex(NESTED[2:])])).hex(),
        "two": revert(
            "Outer(uint256,bytes)", 7, bytes.fromhex(revert("CallFailed(bytes)", bytes.fromhex(NESTED[2:]))[2:])
        ),
    }.items(),
)
def test_an_error_of_ours_in_another_contracts_is_found(service: DevChain, wrapper: str, data: str):
    pasted = asked(revert=data)
    assert requests_of(pasted.text) == requests_of(asked(account=BOB, block=3, slot=SLOT).text) != []
    named = "Error(string)" if wrapper == "a text" else data[:10]
    assert "SlotNotProven(address,uint256,bytes32) This slot isn't proven at this block." in unescape(
        text_of(pasted.text)
    )
    assert f"Another contract returns it in its own error {named} ." in text_of(pasted.text)


@pytest.mark.parametrize("data", ["0x", " 0x\n", '"0x"', "0X", ""])
def test_empty_data_is_explained(data: str):
    sentence = "Empty revert data: there is no contract at this address, or the arguments don't decode."
    assert sentence in explained(data)


@pytest.mark.parametrize("form", ["{}", " {}\n", '"{}"', "{},", "  '{}'"])
def test_data_may_be_pasted_with_what_is_around_it(form: str):
    data = revert("Error(string)", "nope")
    for text in (data, data[2:], data.upper(), data[:70] + "\n" + data[70:]):
        assert "“nope”" in explained(form.format(text))


def test_it_reads_a_chain_only_for_those_who_may_search_facts_and_not_too_often(service: DevChain, settings):
    asking = {"block": "1", "property": "TIMESTAMP"}
    assert Client().get("/facts/why", asking).status_code == 302
    assert asked(**asking).status_code == 200
    read_files()
    refused = asked(**asking)
    assert (refused.status_code, 1 <= int(refused.headers["Retry-After"]) <= 60) == (429, True)
    # The form alone asks nobody.
    assert asked().status_code == 200
    settings.PUBLIC_BATCH_LIST = True
    assert Client().get("/facts/why").status_code == 200
    assert Client().post("/facts/why").status_code == 405


def test_a_node_that_is_down_is_said_in_a_sentence(service: DevChain, unreachable_chain):
    page = asked(block="1", property="TIMESTAMP")
    assert page.status_code == 200
    assert "The chain could not be read." in text_of(page.text)
