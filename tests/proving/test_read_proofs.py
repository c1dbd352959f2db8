"""`POST /read-proofs`: what it gives is what the views of a real `FactsReader` take."""

import io
import json

import pytest
from django.core.management import call_command
from django.test import Client

from proving.models import AccountProof
from queries.models import Batch, Block
from tests.chains.lying_node import between
from tests.service import ALICE, BOB, asking, header, reconfigure, submit, work_until_done

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


def test_a_reader_that_is_not_deployed_is_not_named(service, client, key):
    for proof in read(client, key, asked(service)).json()["proofs"]:
        assert proof["view"]["to"] is None


def test_a_node_that_shows_another_slot_is_not_believed(service, client, key, settings):
    def change(question, reply):
        if question["method"] == "eth_getProof":
            first, second = (each["proof"] for each in reply["result"]["storageProof"])
            for each, proof in zip(reply["result"]["storageProof"], (second, first), strict=True):
                each["proof"] = proof
        return [reply]

    blocks = {f"block:{service.head() - 1}": {"accounts": {HISTORY_CONTRACT: {"slots": ["1", "ffff"]}}}}
    with between(service.url, change) as url:
        reconfigure(settings, service.url, url)
        refused = read(client, key, blocks)
    assert (refused.status_code, refused.json()["code"]) == (503, "chain_unavailable")
    assert url not in refused.text


@pytest.mark.parametrize(
    ("blocks", "status", "code"),
    [
        ({"block:1": {"header": ["TIMESTAMP"]}}, 400, "unsupported"),
        ({"block:1": {"accounts": {ALICE: {"slots": [f"{slot:x}" for slot in range(100)]}}}}, 400, "invalid_request"),
        ({"block:999999": {"accounts": {ALICE: {"props": ["NONCE"]}}}}, 503, "chain_unavailable"),
        ({"timestamp:1": {"accounts": {ALICE: {"props": ["NONCE"]}}}}, 503, "chain_unavailable"),
    ],
)
def test_what_it_cannot_show_is_refused(service, client, key, blocks, status, code):
    refused = read(client, key, blocks)
    assert (refused.status_code, refused.json()["code"]) == (status, code)


def test_it_has_a_limit_of_its_own(service, client, key, settings):
    settings.MAX_BATCHES_PER_MINUTE = 2
    answers = [read(client, key, asked(service)).status_code for _ in range(3)]
    assert answers == [200, 200, 429]
    submit(key, asking({f"block:{service.head()}": {"accounts": {ALICE: {"props": ["NONCE"]}}}}))
