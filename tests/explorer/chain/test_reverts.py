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
        ({"revert": "0x12345678"}, "No registry, reader or library reverts with this"),
        ({"revert": "hello"}, "No registry, reader or library reverts with this"),
        ({"revert": revert("Error(string)", "x" * 1000)}, "No registry, reader or library reverts with this"),
        ({"revert": revert("NotProven(address,uint256,uint8)", BOB, 1, 9)}, "There is no such property"),
        (
            {"revert": revert("NotProven(address,uint256,uint8)", BOB, 1, 1)[:10]},
            "No registry, reader or library reverts with this",
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
    assert sentence in text_of(refused.text)
    assert requests_of(refused.text) == []


def test_an_error_without_a_fact_says_what_it_means(service: DevChain):
    page = text_of(asked(revert=revert("Error(string)", "STORAGE_PROOF_SLOT_NOT_SAVED")).text)
    assert "STORAGE_PROOF_SLOT_NOT_SAVED" in page
    assert "root, or registryOf(chainId) is zero." in page
    assert "Make the proof again" in text_of(asked(revert="0x09bde339").text)


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
