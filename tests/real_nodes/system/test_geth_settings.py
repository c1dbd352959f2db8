"""geth with the settings that docs/operating/needs.md names, and without them."""

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import requests
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from eth_account import Account

from devnet.devchain import ACCOUNTS
from devnet.geth import Geth
from devnet.json_rpc import NodeErrorReply, post
from devnet.ports import free_port
from proving.models import ChainWatch
from queries.models import BatchStatus
from tests import service
from tests.chains.geth_answers import REFUSALS, REFUSED_HTTP, REFUSED_SENDS, no_method
from tests.explorer.batches import beat
from tests.factories import until
from tests.proving import estimated_batches
from tests.real_nodes import deploying
from tests.real_nodes.driven_geth import CHAIN_ID, DrivenGeth

pytestmark = [pytest.mark.geth, pytest.mark.django_db, pytest.mark.outside]

ADDRESS = "127.0.0.1"
_STATUS, _WORDS = REFUSED_HTTP["another host name"]
_OTHER_HOST = f"answered with HTTP status {_STATUS}; the node said: “{_WORDS.decode().strip()}”"


def check_node(url: str) -> tuple[list[str], str]:
    """Return the lines of `check_chains --node`, and its fault."""
    output, fault = io.StringIO(), ""
    try:
        call_command("check_chains", node=url, stdout=output)
    except CommandError as error:
        fault = str(error)
    return output.getvalue().splitlines(), fault


@pytest.fixture
def configured(request, settings, tmp_path) -> Iterator[DrivenGeth]:
    """Yield geth with these flags. The service proves the chain's facts on the chain itself."""
    with DrivenGeth(CHAIN_ID, flags=request.param.split()) as node:
        node.mine(2)
        settings.CHAINS_FILE = service.chains_toml(tmp_path, node.url, chain_id=CHAIN_ID)
        deploying.deployed_on(CHAIN_ID, node.mine)
        yield node


# --- Old states -------------------------------------------------------------------------------------------------------

# How far back geth proves, and whether `check_chains` names the settings that are missing.
STATES = {
    "--gcmode=full": ("at least 128 blocks back", False),
    "--state.scheme=hash": ("at least 120 blocks back", False),
    "--gcmode=archive": ("at least 128 blocks back", True),
    "--gcmode=archive --history.trienode=0": ("back to block 1", False),
    "--gcmode=archive --state.scheme=hash": ("back to block 1", False),
}


@pytest.mark.long(*STATES.keys() - {"--gcmode=archive"})
@pytest.mark.parametrize("flags", STATES)
def test_the_depth_of_proofs_is_told_with_the_settings_that_increase_it(flags):
    depth, is_helped = STATES[flags]
    with DrivenGeth(CHAIN_ID, flags=flags.split()) as node:
        node.mine(140)
        printed: list[str] = []

        def is_told() -> bool:
            printed[:], fault = check_node(node.url)
            names_settings = "--history.trienode 0 or --state.scheme hash" in " ".join(printed)
            return printed[2].endswith(f"  {depth}") and names_settings == is_helped and not fault

        # geth indexes its states for some seconds.
        until(is_told, depth, says=lambda: printed)
    assert any("historical state [" in line for line in printed) is False


# Code that stores 1001 at slot 0, and then leaves code that returns the slot's word.
_CREATION = "6103e95f55600960116000396009 6000f3".replace(" ", "") + "5f545f5260205ff3"


def created(node: DrivenGeth, code: str) -> str:
    """Return the address of a new contract."""
    fields = {"chainId": CHAIN_ID, "nonce": 0, "gas": 10**6, "gasPrice": 10**11, "data": f"0x{code}"}
    raw = Account.sign_transaction(fields, ACCOUNTS[2][1]).raw_transaction.to_0x_hex()
    sent = node.rpc("eth_sendRawTransaction", raw)
    # geth may begin a block before its pool has taken the transaction over.
    while int(node.rpc("eth_getTransactionCount", ACCOUNTS[2][0], "latest"), 16) == 0:
        node.mine()
    contract = ""

    def is_indexed() -> bool:
        nonlocal contract
        with suppress(NodeErrorReply):
            contract = node.rpc("eth_getTransactionReceipt", sent)["contractAddress"]
        return bool(contract)

    until(is_indexed, "the receipt")
    return contract


@pytest.mark.parametrize("configured", ["--gcmode=archive"], indirect=True)
def test_blocks_that_geth_reads_and_does_not_prove_are_refused_as_for_a_batch(configured, client, key):
    contract, number = created(configured, _CREATION), configured.head()
    of_accounts = service.request(service.ALICE, block=number, chain_id=CHAIN_ID)
    of_accounts["destinationChainId"] = str(CHAIN_ID)
    of_slots = {"sourceChainId": str(CHAIN_ID), "contract": contract, "signature": "f()", "block": f"block:{number}"}

    def ask() -> list[Any]:
        bodies = {"/read-proofs": of_accounts, "/find-slots": of_slots}
        headers = service.header(key)
        return [
            client.post(path, body, content_type="application/json", headers=headers) for path, body in bodies.items()
        ]

    def is_read() -> bool:
        with suppress(NodeErrorReply):
            configured.rpc("eth_call", {"to": contract}, hex(number))
            return True
        return False

    assert [answer.status_code for answer in ask()] == [200, 200]
    configured.mine(130)
    # geth indexes its states for some seconds.
    until(is_read, "the old state")
    (rejection,) = estimated_batches.estimate(client, key, of_accounts)["rejections"]
    for answer in ask():
        assert (answer.status_code, answer.json()["code"], "Retry-After" in answer) == (422, "proof_unavailable", False)
        assert "Accounts and slots at old blocks need an archive node." in answer.json()["error"]
    assert ask()[0].json()["error"] == rejection["error"]


# --- Limits -----------------------------------------------------------------------------------------------------------

_LONG = {"data": "0x5b5f56"}  # an endless loop
_MANY = [("eth_getBlockByNumber", "latest", False)] * 9
# Requests above the limit, and a part of geth's refusal.
LIMITS: dict[str, tuple[list[tuple[Any, ...]], str]] = {
    "--rpc.batch-request-limit=2": ([("eth_chainId",)] * 3, REFUSALS["a batch of too many requests"][1]),
    "--rpc.batch-response-max-size=4000": (_MANY, REFUSALS["a batch of too long answers"][1]),
    "--rpc.http-body-limit=1": ([("eth_call", {"data": f"0x{'11' * 600_000}"})], "content length too large"),
    "--rpc.rangelimit=5": (
        [("eth_getLogs", {"fromBlock": "0x0", "toBlock": "0x6"})],
        REFUSALS["a long range of logs"][1],
    ),
    "--rpc.logquerylimit=1": ([("eth_getLogs", {"address": [ACCOUNTS[0][0]] * 2})], "exceed max addresses or topics"),
    "--rpc.evmtimeout=1ms": ([("eth_call", _LONG)], REFUSALS["a call that takes too long"][1]),
}


def answered(url: str, asked: list[tuple[Any, ...]]) -> str:
    """Return the node's answer to a JSON-RPC batch, as text."""
    body = [
        {"jsonrpc": "2.0", "id": place, "method": method, "params": params}
        for place, (method, *params) in enumerate(asked)
    ]
    return requests.post(url, json=body if len(body) > 1 else body[0], timeout=10).text


@pytest.mark.long(*LIMITS.keys() - {"--rpc.batch-request-limit=2"})
@pytest.mark.parametrize("configured", LIMITS, indirect=True)
def test_a_batch_is_proven_within_the_limit(request, configured, key):
    above, words = LIMITS[request.node.callspec.params["configured"]]
    assert words in answered(configured.url, above)
    configured.mine(6)
    accounts = {f"0x{place:040x}": {"props": ["BALANCE"]} for place in range(1, 61)}
    body = service.asking(
        {f"block:{configured.head() - 3}": {"accounts": accounts}}, source=CHAIN_ID, destination=CHAIN_ID
    )
    assert service.work_until_done(service.submit(key, body), configured, rounds=20).status == BatchStatus.DONE
    printed, fault = check_node(configured.url)
    assert (len(printed), fault) == (3, "")


def test_a_cap_of_gas_below_that_of_proofs_is_told_with_the_setting():
    with DrivenGeth(CHAIN_ID, flags=["--rpc.gascap=1000000"]) as node:
        node.mine(2)
        assert REFUSALS["an estimate above the limit"][1].partition(" (")[0] in answered(
            node.url, [("eth_estimateGas", _LONG)]
        )
        (*_, told), fault = check_node(node.url)
    assert re.search(r" gives calls and estimates only 9\d\d,\d\d\d gas, .* --rpc\.gascap\.$", told)
    assert fault == ""


@pytest.mark.parametrize("cap", [29_000_000, 30_000_000])
def test_amsterdam_needs_a_higher_cap_of_gas(cap):
    with DrivenGeth(CHAIN_ID, amsterdam_time=0, flags=[f"--rpc.gascap={cap}"]) as node:
        node.mine(2)
        told = "\n".join(check_node(node.url)[0])
    assert ("only 29,000,000 gas, and proofs may need 30,000,000. The setting of geth is --rpc.gascap." in told) == (
        cap < 30_000_000
    )


def test_geth_sends_no_transaction_above_its_cap_of_fees():
    with DrivenGeth(CHAIN_ID, flags=["--rpc.txfeecap=0.5"]) as node:
        node.mine()
        fields = {"chainId": CHAIN_ID, "nonce": 0, "gas": 10**6, "gasPrice": 6 * 10**11, "data": "0x00"}
        raw = Account.sign_transaction(fields, ACCOUNTS[2][1]).raw_transaction.to_0x_hex()
        with pytest.raises(NodeErrorReply) as refused:
            node.rpc("eth_sendRawTransaction", raw)
    assert REFUSED_SENDS["fee too high"].partition(") ")[2].partition(" (")[0] in str(refused.value)


# --- Doors ------------------------------------------------------------------------------------------------------------


class SilentGeth(Geth):
    """geth that answers no method of `eth`."""

    def _answers(self) -> bool:
        try:
            return bool(post(self.url, "net_version", []) == str(self.chain_id))
        except OSError:
            return False


def test_a_host_name_that_geth_does_not_list_is_told_with_its_words(settings, tmp_path):
    beat()
    with DrivenGeth(CHAIN_ID, flags=["--http.vhosts=node.example"]) as node:
        node.mine(2)
        named = node.url.replace(ADDRESS, "localhost")
        why = f"{named.removeprefix('http://')} {_OTHER_HOST}"
        assert check_node(named) == ([], f"chain_unavailable: {why}.")
        settings.CHAINS_FILE = service.chains_toml(tmp_path, named, chain_id=CHAIN_ID)
        service.work()
        assert f"No node of Development chain ({CHAIN_ID}) can be used: {why}." in problems()
        service.reconfigure(settings, f'"{named}"', f'"{named}", "{node.url}"')
        service.work()
        (resting,) = ChainWatch.objects.get().resting_nodes
        since = (timezone.now() - timedelta(minutes=11)).isoformat()
        ChainWatch.objects.update(resting_nodes=[resting | {"since": since}])
        service.work()
        assert (
            f"A node of Development chain ({CHAIN_ID}) has failed for 10 minutes, and others work: {why}." in problems()
        )
        node.stop()
        node.flags = ["--http.vhosts=localhost"]
        node.start()
        assert check_node(named)[1] == ""


def problems() -> list[str]:
    sentences: list[str] = Client().get("/healthz").json()["problems"]
    return sentences


def test_ports_without_json_rpc_over_http_are_told_with_their_words():
    port = free_port()
    with SilentGeth(
        CHAIN_ID, namespaces="net,web3", flags=["--ws", f"--ws.addr={ADDRESS}", f"--ws.port={port}"]
    ) as node:
        code, words, *_ = no_method("eth_chainId")
        assert check_node(node.url)[1].endswith(f" refuses every request ({code}); the node said: “{words}”.")
        status, engine_words = REFUSED_HTTP["the port of the Engine API"]
        told = f" answered with HTTP status {status}; the node said: “{engine_words.decode().strip()}”."
        assert check_node(node.engine_url)[1].endswith(told)
        assert (
            check_node(f"http://{ADDRESS}:{port}")[1]
            == f"chain_unavailable: {ADDRESS}:{port} answered with HTTP status 404."
        )
        assert "must be an http or https URL" in check_node(f"ws://{ADDRESS}:{port}")[1]
