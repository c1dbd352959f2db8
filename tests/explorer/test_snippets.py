"""The code that a page offers works as it stands."""

import json
import shlex
import subprocess

import pytest
from django.test import Client

from accounts import keys
from chains.devchain import PROJECT, DevChain
from explorer import first_query, snippets, submitted
from proving.models import ChainHead, FactsRegistry
from queries.models import AccountField, Batch
from tests.explorer.batches import a_batch, many_accounts, page, path
from tests.proving.test_worker import until
from tests.service import ALICE, BOB, a_key, request, submit, work_until_done

pytestmark = pytest.mark.django_db

_COMPILE = """
const solc = require('solc');
const input = {language: 'Solidity', sources: {'a.sol': {content: require('fs').readFileSync(0, 'utf8')}},
  settings: {outputSelection: {'*': {'*': ['evm.bytecode.object']}}}};
process.stdout.write(solc.compile(JSON.stringify(input)));
"""


def test_the_python_code_reads_the_value(service: DevChain, monkeypatch, capsys):
    work_until_done(submit(a_key(), request(BOB, block=3)), service)
    registry = FactsRegistry.objects.get().address
    code = {snippet.language: snippet.code for snippet in snippets.reading(registry, BOB, 3, AccountField.BALANCE)}
    monkeypatch.setenv("RPC_URL", service.url)
    exec(code["web3.py"], {})
    assert int(capsys.readouterr().out) == int(service.rpc("eth_getBalance", BOB, "0x3"), 16)


@pytest.mark.parametrize("field", AccountField)
def test_the_solidity_code_compiles_and_reads_the_value(service: DevChain, field):
    work_until_done(submit(a_key(), request(BOB, block=3, props=[field.name])), service)
    registry = FactsRegistry.objects.get().address
    code = {snippet.language: snippet.code for snippet in snippets.reading(registry, BOB, 3, field)}["Solidity"]
    source = f"// SPDX-License-Identifier: MIT\npragma solidity ^0.8.28;\n\n{code}"
    node = PROJECT / ".venv" / "bin" / "node"
    compiled = subprocess.run(
        [node, "-e", _COMPILE], input=source.encode(), capture_output=True, cwd=PROJECT, check=True
    )
    output = json.loads(compiled.stdout)
    assert [error["formattedMessage"] for error in output.get("errors", [])] == []
    creation = output["contracts"]["a.sol"]["Reader"]["evm"]["bytecode"]["object"]
    sent = service.rpc("eth_sendTransaction", {"from": ALICE, "data": f"0x{creation}", "gas": hex(1_000_000)})
    until(lambda: service.rpc("eth_getTransactionReceipt", sent) is not None, "a receipt")
    reader = service.rpc("eth_getTransactionReceipt", sent)["contractAddress"]
    read = service.rpc("eth_call", {"to": reader, "data": "0x57de26a4"}, "latest")  # read()
    registry_call = f"0x7177899b{int(BOB, 16):064x}{3:064x}{int(field):064x}"
    assert read == service.rpc("eth_call", {"to": registry, "data": registry_call}, "latest")


def body_of(command: str) -> str:
    """What the command would send."""
    words = shlex.split(command)
    assert words[:4] == ["curl", "--header", "api-key: $API_KEY", "--json"]
    return words[4]


def test_the_first_query_is_accepted_as_it_stands(service: DevChain, client: Client):
    key = a_key()
    work_until_done(submit(key, request(BOB, block=3)), service)  # so that the head and a registry are known
    for user in (None, key.user):
        command = first_query.command(user)
        assert command
        assert "<" not in command
        text = keys.reveal(key)
        assert text
        response = client.post(
            "/submit-batch-query", body_of(command), content_type="application/json", headers={"api-key": text}
        )
        assert response.status_code == 200
        assert work_until_done(Batch.objects.get(pk=response.json()["internalId"]), service).status == "DONE"


def test_the_first_query_leaves_to_fill_in_what_nobody_knows_yet():
    command = first_query.command(None)
    assert command
    assert "block:<number>" in command
    assert '"<address>"' in command
    ChainHead.objects.create(chain_id=31337, number=1, final=0, seen_at="2026-01-01T00:00:00Z")
    assert "block:0" in str(first_query.command(None))


@pytest.mark.parametrize("text", ["it's", "'", "''; rm -rf /; '", '{"a": "\\u0027"}', "$(id) `id` \\ !"])
def test_no_request_breaks_out_of_the_command(text):
    assert body_of(snippets.submitting("https://prover.example", text)) == text


# --- What was submitted -----------------------------------------------------------------------------------------------


def test_the_page_shows_the_request_and_the_command_that_sends_it_again():
    batch = a_batch()
    html = page(batch)
    assert "&quot;destinationChainId&quot;: &quot;31337&quot;" in html
    assert "curl --header &quot;api-key: $API_KEY&quot; --json &#x27;{" in html
    assert Client().get(f"{path(batch)}/request.json").json() == request(ALICE, block=12)


def test_a_long_request_is_offered_as_a_file():
    batch = a_batch(*many_accounts(1000))
    html = page(batch)
    assert "The request is too long to show here." in html
    assert f"--json @batch-{batch.pk}.json" in html
    assert len(html) < 60_000
    response = Client().get(f"{path(batch)}/request.json")
    assert response.headers["Content-Disposition"] == f'attachment; filename="batch-{batch.pk}.json"'
    assert len(response.json()["data"]["31337"]["block:12"]["accounts"]) == 1000


def test_nothing_of_a_webhook_is_shown_but_that_there_is_one():
    batch = a_batch()
    body = request(ALICE, block=12) | {
        "webhook": {"url": "https://me.example/?token=s3cret", "headers": {"x": "s3cret"}}
    }
    Batch.objects.update(request=json.dumps(body))
    for text in (page(batch), Client().get(f"{path(batch)}/request.json").text):
        assert "s3cret" not in text
        assert "webhook" in text
    batch.refresh_from_db()
    assert json.loads(batch.request) == body
    assert submitted.public_request(batch)["webhook"] == {"url": "(not shown)"}


def test_the_request_of_an_unknown_batch_is_not_found():
    assert Client().get("/explorer/query/x/request.json").json() == {"error": "No query found", "code": "not_found"}
