"""Code shown on pages works unchanged."""

import io
import json
import shlex
import shutil
import subprocess

import pytest
from django.core.management import call_command
from django.test import Client
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector

from accounts import keys
from api import submitted_request
from chains.encoding import hex_data
from config.configured_chains import get_rpc
from devnet.devchain import PROJECT, DevChain
from explorer.batch import code_snippets
from explorer.lists import first_query
from proving import facts
from proving.registries import deployments
from queries.columns import AccountField
from queries.models import Batch, Query
from tests.explorer import shown_code
from tests.explorer.batches import a_batch, everything, page, path
from tests.proving.logs import block_with_logs
from tests.service import ALICE, BOB, PRAGUE_FIELDS, a_key, asking, fresh, request, submit, work_until_done

pytestmark = pytest.mark.django_db

Codes = list[tuple[dict[str, str], bytes]]


def codes_of_everything(service: DevChain) -> Codes:
    """Return the shown code by language, and the registry's word, for each kind of fact."""
    batch = everything(service)
    call_command("deploy_reader", 31337, stdout=io.StringIO())
    registry, row = deployments.find(31337, 31337), deployments.deployed(31337, 31337)
    assert row
    snippets = []
    of_log = asking(
        {f"block:{block_with_logs(service)}": {"transactions": {"2": {"props": ["STATUS", "HASH"], "logs": ["1"]}}}}
    )
    logs = work_until_done(submit(batch.api_key, of_log), service)
    for query in Query.objects.filter(batch__in=[batch, logs]).select_related("block"):
        assert query.block
        number, expected = query.block.number, facts.of(query)
        words = facts.read(get_rpc(31337), registry.contract, number, expected, at="latest").facts
        for fact in expected:
            word = words[fact]
            assert word is not None
            code = code_snippets.reading(row, number, fact)
            snippets.append(({snippet.language: snippet.code for snippet in code}, word))
    assert len(snippets) == len(AccountField) + 2 + len(PRAGUE_FIELDS) + 2 + 3
    return snippets


@pytest.mark.long
def test_the_code_of_each_language_reads_every_fact(service: DevChain, monkeypatch, capsys, tmp_path):
    codes = codes_of_everything(service)
    assert [code["Solidity"].count("ProvenFacts.requireLog") for code, _ in codes if "logHash" in code["cast"]] == [1]
    monkeypatch.setenv("RPC_URL", service.url)
    for code, word in codes:
        exec(code["web3.py"], {})
        assert int(capsys.readouterr().out, 0) == int.from_bytes(word)
        assert service.rpc("eth_call", call_of(code["cast"]), "latest") == hex_data(word)
    programs = [code["viem"] for code, _ in codes]
    printed = [int(text, 0) for text in shown_code.printed(programs, service.url, tmp_path)]
    assert printed == [int.from_bytes(word) for _, word in codes]
    assert read_by_solidity(codes, service, "Solidity") == [hex_data(word) for _, word in codes]
    of_reader = [(code, word) for code, word in codes if "FactsReader" in code]
    # Satellite's reads have no properties of later forks, nor LOGS_BLOOM and EXTRA_DATA.
    assert len(codes) - len(of_reader) == len(PRAGUE_FIELDS) - 13
    # The code hash of an account without code is the keccak-256 of nothing, as Satellite has it.
    assert read_by_solidity(of_reader, service, "FactsReader") == [hex_data(word) for _, word in of_reader]


@pytest.mark.long
@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq")
def test_a_slot_under_a_storage_root_is_read_by_proof(service: DevChain) -> None:
    (code,) = [code["eth_getProof"] for code, _ in codes_of_everything(service) if "eth_getProof" in code]
    account, block = code.split(" --block ")[1].split()[1], int(code.split(" --block ")[1].split()[0])
    slot = hex_data((0).to_bytes(32))
    environment = {
        "RPC_URL": service.url,
        "SOURCE_RPC_URL": service.url,
        "PATH": f"{PROJECT}/node_modules/.bin:/bin:/usr/bin",
    }
    ran = subprocess.run(["bash", "-euc", code], capture_output=True, check=True, env=environment, text=True)
    assert ran.stdout.strip() == service.rpc("eth_getStorageAt", account, slot, hex(block))


def call_of(command: str) -> dict[str, str]:
    """Return the call that the shell's command makes."""
    cast, call, _, _, registry, signature, *arguments = shlex.split(command)
    assert (cast, call) == ("cast", "call")
    function, _, answer = signature.rpartition("(")
    assert answer in {"bytes32)", "uint256)"}
    types = function.partition("(")[2].removesuffix(")").split(",")
    values = [
        int(text) if kind.startswith("uint") else text if kind == "address" else bytes.fromhex(text[2:])
        for kind, text in zip(types, arguments, strict=True)
    ]
    return {"to": registry, "data": hex_data(function_signature_to_4byte_selector(function) + encode(types, values))}


def read_by_solidity(codes: Codes, service: DevChain, language: str) -> list[str]:
    sources = {f"{index}.sol": code[language] for index, (code, _) in enumerate(codes)}
    # This is the selector of read().
    return list(shown_code.returned(sources, dict.fromkeys(sources, ("Example", "0x57de26a4")), service).values())


def body_of(command: str) -> str:
    """Return the body that the curl command would send."""
    words = shlex.split(command)
    assert words[:4] == ["curl", "--header", "api-key: $API_KEY", "--json"]
    return words[4]


@pytest.mark.long
def test_the_first_query_is_accepted_as_it_stands_and_proves_a_balance(service: DevChain, client: Client):
    key = a_key()
    work_until_done(submit(key, request(BOB, block=3)), service)  # stores a head, a signer and a registry
    command = first_query.command()
    assert command
    assert "<" not in command
    text = keys.reveal(key)
    assert text
    response = client.post(
        "/submit-batch-query", body_of(command), content_type="application/json", headers={"api-key": text}
    )
    assert response.status_code == 200
    batch = work_until_done(Batch.objects.get(pk=response.json()["internalId"]), service)
    assert batch.status == "DONE"
    (query,) = client.get(f"{path(batch)}.json").json()["queryList"]
    assert int(query["facts"][0]["word"], 16) > 0


@pytest.mark.parametrize("text", ["it's", "'", "''; rm -rf /; '", '{"a": "\\u0027"}', "$(id) `id` \\ !"])
def test_no_request_breaks_out_of_the_command(text):
    assert body_of(code_snippets.submitting("https://prover.example", text)) == text


# --- The submitted request --------------------------------------------------------------------------------------------


def test_a_request_hides_no_character(client: Client):
    key = {"key": "\u202egnp \U000e0041\u3164\ufe0f \u05d0 \U0001f600", "type": "string"}
    body = request(ALICE, block=12)
    ((_, blocks),) = body["data"].items()
    ((_, asked),) = blocks.items()
    asked["accounts"][ALICE] = {"slots": [{"slot": "0x1", "keys": [key]}]}
    batch = submit(a_key(ALICE), body)
    file = client.get(f"{path(batch)}/request.json").text
    for shown in (file, client.get(path(batch), headers={"accept": "text/html"}).text):
        assert "\\u202egnp \\udb40\\udc41\\u3164\\ufe0f \u05d0 \U0001f600" in shown
        assert "\u202e" not in shown
    assert json.loads(file) == body


def test_nothing_of_a_webhook_is_shown_but_that_there_is_one():
    batch = a_batch()
    body = request(ALICE, block=12) | {
        "webhook": {"url": "https://me.example/?token=s3cret", "headers": {"x": "s3cret"}}
    }
    Batch.objects.update(request=json.dumps(body))
    for text in (page(batch), Client().get(f"{path(batch)}/request.json").text):
        assert "s3cret" not in text
        assert "webhook" in text
    assert json.loads(fresh(batch).request) == body
    assert submitted_request.public_request(batch)["webhook"] == {"url": "(not shown)"}
