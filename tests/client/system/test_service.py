"""The library and `bqs` against a real service and chain, used as programs and people use them."""

import asyncio
import io
import json
import queue
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keyring
import pytest
import requests
from eth_account import Account as Wallet
from eth_account.messages import encode_defunct
from keyring.backends import fail
from web3 import AsyncHTTPProvider, AsyncWeb3, Web3

import batch_query_client as client
from batch_query_client import registry
from batch_query_client.command_line.exit_codes import ExitCode
from batch_query_client.command_line.output import amount
from batch_query_client.command_line.running import run
from batch_query_client.json_rpc import Node
from demo.client import take_webhook_secret
from demo.installation import CHAIN_ID, CHAINS_TOML, Service
from devnet import devchain, foreign_contracts, ports
from tests import factories, http_server
from tests.explorer import shown_code

pytestmark = pytest.mark.outside

(ALICE, ALICE_KEY), (BOB, BOB_KEY), (CHARLIE, _), (_, SIGNER_KEY) = devchain.ACCOUNTS
VYPER_TOKEN = devchain.PROJECT / "tests" / "proving" / "vyper" / "Token-0.2.12.hex"
CONTRACT = "0x0000F90827F1C53a10cb7A02335B175320002935"
SECONDS = 240
PATIENCE = client.Patience(seconds=30)


def sign(key: str) -> Any:
    return lambda text: Wallet.sign_message(encode_defunct(text=text), key).signature.to_0x_hex()


@dataclass(frozen=True)
class Live:
    """A service, its chain, and one of its users."""

    url: str
    chain: devchain.DevChain
    registry: str
    api_key: str
    database: Path

    @property
    def service(self) -> client.BatchQueryService:
        return client.BatchQueryService(self.url, api_key=self.api_key, patience=PATIENCE)

    def answer(self, path: str) -> Any:
        """Return the API's raw answer."""
        return requests.get(f"{self.url}/{path}", headers={"api-key": self.api_key}, timeout=20).json()

    def balance(self, address: str, block: int) -> int:
        return int(self.chain.rpc("eth_getBalance", address, hex(block)), 16)


@pytest.fixture(scope="module")
def live(tmp_path_factory) -> Iterator[Live]:
    with ExitStack() as running:
        chain = running.enter_context(devchain.DevChain(block_seconds=0.5))
        folder = tmp_path_factory.mktemp("service") / "state"
        service = Service(running, folder, CHAINS_TOML % chain.url, SIGNER_KEY, ports.free_port())
        registry = service.deploy_registry(CHAIN_ID, CHAIN_ID)
        service.serve()
        key = client.sign_in(service.base_url, address=ALICE, sign=sign(ALICE_KEY))
        yield Live(service.base_url, chain, registry, key, folder / "db.sqlite3")


@pytest.fixture(autouse=True)
def few_searches(request) -> None:
    """Let each test search as if the others had not: a user may do so ten times in a minute."""
    if "live" in request.fixturenames:
        with closing(sqlite3.connect(request.getfixturevalue("live").database, timeout=20)) as stored, stored:
            stored.execute("DELETE FROM accounts_throttlecount")


@dataclass(frozen=True)
class Proven:
    batch: client.Batch
    block: int
    details: client.BatchDetails


@pytest.fixture(scope="module")
def proven(live: Live) -> Proven:
    """Return a DONE batch with a balance, two slots, and a header's time and gas limit."""
    block = live.chain.head()
    batch = live.service.submit(
        destination=CHAIN_ID,
        queries=[
            client.Account(BOB, chain=CHAIN_ID, block=block, props=["BALANCE"]),
            client.Account(CONTRACT, chain=CHAIN_ID, block=block, slots=[1, 0xFFFF]),
            client.Header(["TIMESTAMP", "GAS_LIMIT"], chain=CHAIN_ID, block=block),
        ],
    )
    return Proven(batch, block, batch.wait(SECONDS))


def test_proven_facts_equal_what_the_chain_has(live, proven):
    facts = {(fact.account.lower(), fact.property, fact.slot): fact for fact in proven.details.facts}
    assert facts[BOB.lower(), "BALANCE", ""].value == live.balance(BOB, proven.block)
    block = live.chain.rpc("eth_getBlockByNumber", hex(proven.block), False)
    assert facts["", "TIMESTAMP", ""].value == int(block["timestamp"], 16)
    for slot in (1, 0xFFFF):
        word = live.chain.rpc("eth_getStorageAt", CONTRACT, hex(slot), hex(proven.block))
        assert facts[CONTRACT.lower(), "SLOT", f"0x{slot:064x}"].value == int(word, 16)
    assert len(facts) == 5


@pytest.mark.parametrize("node", ["url", "web3", "provider"])
def test_facts_are_read_from_the_chain_itself(live, proven, node):
    connection = Web3(Web3.HTTPProvider(live.chain.url))
    by = {"url": live.chain.url, "web3": connection, "provider": connection.provider}[node]
    assert [fact.word for fact in proven.batch.facts_on_chain(by)] == [fact.word for fact in proven.details.facts]


def test_facts_that_the_registry_contradicts_or_lacks_are_reported(live, proven):
    fact, node = proven.details.facts[0], Node(live.chain.url, PATIENCE)
    with pytest.raises(client.WrongFact, match="holds another value than the service reports: BALANCE of 0x"):
        client.drivers.run(registry.require_facts(node, [fact.model_copy(update={"word": bytes(32)})]))
    other_chain = SimpleNamespace(make_request=lambda *_: {"result": "0x5"})
    with pytest.raises(client.WrongChain):
        proven.batch.facts_on_chain(other_chain)
    other = fact.model_copy(update={"property": "CODE_HASH", "word": None})
    with pytest.raises(client.NotProven, match="doesn't hold the CODE_HASH of 0x"):
        client.drivers.run(registry.require_facts(node, [other]))


def test_proofs_are_verified_by_nodes_of_one_s_own(live, proven):
    by = [live.chain.url, Web3(Web3.HTTPProvider(live.chain.url))]
    verified = proven.batch.verify(*by)
    assert list(verified.queries) == [query.number for query in proven.details.query_list]
    for query in proven.details.query_list:
        shown = verified.queries[query.number]
        words = [shown.slots.get(fact.slot) or shown.facts[fact.property] for fact in query.facts]
        assert words == [fact.word for fact in query.facts]
        assert proven.batch.verify(live.chain.url, number=query.number).queries == {query.number: shown}


def test_values_and_logs_come_with_the_proofs_that_a_contract_takes(live, proven):
    filters = {"address": live.registry, "fromBlock": "0x0"}
    log = live.chain.rpc("eth_getLogs", filters)[-1]
    receipt, block = live.chain.rpc("eth_getTransactionReceipt", log["transactionHash"]), int(log["blockNumber"], 16)
    transaction = client.Transaction(
        log["transactionHash"], chain=CHAIN_ID, block=block, props=["LOG_COUNT"], block_logs=[int(log["logIndex"], 16)]
    )
    account = client.Account(BOB, chain=CHAIN_ID, block=block, props=["BALANCE"])
    balance, shown, count = live.service.read_proofs(destination=CHAIN_ID, queries=[transaction, account])[::-1]
    assert int.from_bytes(balance.word) == live.balance(BOB, block)
    assert (balance.account, balance.transaction, balance.log) == (BOB, None, None)
    assert int.from_bytes(count.word) == len(receipt["logs"])
    assert (shown.log.emitter, [f"0x{topic.hex()}" for topic in shown.log.topics]) == (
        Web3.to_checksum_address(live.registry),
        log["topics"],
    )
    assert (f"0x{shown.log.data.hex()}", shown.transaction.hash) == (log["data"], log["transactionHash"])
    assert (shown.root.property, shown.view.function) == ("RECEIPTS_ROOT", "logByProof")


@pytest.mark.long
def test_callers_that_do_not_block_get_the_same(live):
    async def ask() -> set[int]:
        told = []

        async def progress(batch: client.BatchDetails) -> None:
            told.append(batch.status)

        async with client.AsyncBatchQueryService(live.url, api_key=live.api_key, patience=PATIENCE) as service:
            query = client.Account(CHARLIE, chain=CHAIN_ID, block="latest", props=["BALANCE"])
            batch = await service.submit(destination=CHAIN_ID, queries=[query])
            done = await batch.wait(SECONDS, progress=progress)
            async_web3 = AsyncWeb3(AsyncHTTPProvider(live.chain.url))
            (fact,) = await batch.facts_on_chain(async_web3)
            await async_web3.provider.disconnect()
            verified = await batch.verify(live.chain.url)
            assert told[-1] == "DONE"
            return {done.facts[0].value, fact.value, int.from_bytes(verified.queries[1].facts["BALANCE"])}

    # No test sends from or to this account, so its balance is the same in all blocks.
    assert asyncio.run(ask()) == {live.balance(CHARLIE, live.chain.head())}


def test_a_key_sent_twice_makes_one_batch(live):
    queries = [client.Account(BOB, chain=CHAIN_ID, block=1, props=["NONCE"])]
    first, again = (
        live.service.submit(destination=CHAIN_ID, queries=queries, idempotency_key="the same") for _ in range(2)
    )
    assert first.id == again.id


def soon(live: Live) -> client.Batch:
    """Return a batch about a block that isn't mined yet."""
    query = client.Account(BOB, chain=CHAIN_ID, block=live.chain.head() + 60, props=["NONCE"])
    return live.service.submit(destination=CHAIN_ID, queries=[query])


def test_lists_come_in_parts(live, proven):
    queries = [client.Header(["GAS_LIMIT"], chain=CHAIN_ID, block=live.chain.head())]
    newest = live.service.submit(destination=CHAIN_ID, queries=queries, label="The newest")
    page = live.service.batches(limit=1)
    assert [(batch.internal_id, batch.label) for batch in page.batch_queries] == [(newest.id, "The newest")]
    assert [batch.internal_id for batch in live.service.batches(label="The newest").batch_queries] == [newest.id]
    assert newest.id not in {batch.internal_id for batch in live.service.batches(cursor=page.next).batch_queries}
    balances = live.service.facts(account=BOB, property="BALANCE", block=proven.block).facts
    assert [fact.value for fact in balances] == [live.balance(BOB, proven.block)]


@pytest.mark.long
def test_a_webhook_receiver_gets_what_the_service_has_signed(live):
    received: queue.Queue[tuple[bytes, dict[str, str]]] = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put((self.rfile.read(int(self.headers["content-length"])), dict(self.headers)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Suppress the log."""

    secret = take_webhook_secret(live.url, ALICE, ALICE_KEY, CHAIN_ID)
    with http_server.serving(Receiver) as url:
        hook = client.Webhook(f"{url}/", {"x-token": "a token"}, ["DONE"])
        queries = [client.Header(["GAS_USED"], chain=CHAIN_ID, block=live.chain.head())]
        batch = live.service.submit(destination=CHAIN_ID, queries=queries, webhook=hook)
        body, headers = received.get(timeout=SECONDS)
    event = client.verify_webhook(body, headers, secret)
    assert (event.type, event.data.internal_id, event.data.query_status) == ("batch_query.done", batch.id, "DONE")
    assert event.id.startswith("msg_")
    assert headers["x-token"] == "a token"
    with pytest.raises(client.InvalidWebhook):
        client.verify_webhook(body, headers, "whsec_" + "a" * 32)


# --- The command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def bqs(live: Live, monkeypatch, tmp_path, capsys) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs `bqs` as a logged-in user. It returns exit code, output and errors."""
    for name, value in {"URL": live.url, "API_KEY": live.api_key, "PATIENCE": "30"}.items():
        monkeypatch.setenv(f"BQS_{name}", value)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call] # keyring's

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        output = capsys.readouterr()
        assert live.api_key not in output.out + output.err
        return code, output.out, output.err

    return call


@pytest.mark.story
def test_a_batch_is_submitted_followed_and_its_facts_are_printed(live, bqs, tmp_path):
    block = live.chain.head()
    where = ["--destination", str(CHAIN_ID), "--fee", "0"]
    (tmp_path / "accounts.csv").write_text(
        f"chain,block,account,props,slots,header\n{CHAIN_ID},{block},{ALICE},BALANCE,,\n{CHAIN_ID},{block},,,,TIMESTAMP\n"
    )
    code, out, errors = bqs("submit", "accounts.csv", *where, "--wait", "--timeout", str(SECONDS))
    assert code == 0, errors
    assert re.search(
        rf"{CHAIN_ID} +{block} +{ALICE} +BALANCE +{amount(live.balance(ALICE, block))}$", out, re.MULTILINE
    )
    assert re.search(rf"{CHAIN_ID} +{block} +TIMESTAMP +\d+$", out, re.MULTILINE)
    # Without a terminal, `bqs` prints the batch, and each kind of wait once.
    assert errors.startswith("The page of batch ")
    assert len({*errors.splitlines()}) == len(errors.splitlines())
    options = ["--chain", str(CHAIN_ID), "--block", str(block), "--account", ALICE, "--prop", "BALANCE"]
    code, out, errors = bqs("submit", *where, *options)
    assert (code, re.fullmatch(r"[0-9A-Z]{26}\n", out) is not None) == (0, True)
    code, out, _ = bqs("watch", out.strip(), "--timeout", str(SECONDS), "--json")
    shown = json.loads(out)
    assert shown == live.answer(f"batch-queries/{shown['internalId']}")
    (fact,) = shown["queryList"][0]["facts"]
    assert (code, fact["value"]) == (0, str(live.balance(ALICE, block)))
    code, out, _ = bqs("read", shown["internalId"], "--json")
    read = json.loads(out)["facts"]
    code, out, _ = bqs("read", "--account", ALICE, "--block", str(block), "--json")
    of_no_transaction = {"transaction": None, "log": None}
    listed = json.loads(out)["facts"]
    assert [of_no_transaction | printed_fact | {"transactionHash": None} for printed_fact in listed] == read


@pytest.mark.long
def test_facts_and_proofs_are_read_and_verified(live, bqs, proven, tmp_path):
    balance = live.balance(BOB, proven.block)
    for more in ([], ["--rpc-url", live.chain.url], ["--rpc-url", live.chain.url, "--registry", live.registry]):
        code, out, errors = bqs("read", proven.batch.id, *more)
        assert code == 0, errors
        assert f"BALANCE {amount(balance)}" in " ".join(out.split())
    where = ["--destination", str(CHAIN_ID), "--chain", str(CHAIN_ID), "--block", str(proven.block)]
    code, out, errors = bqs("proofs", *where, "--account", BOB, "--prop", "BALANCE", "--slot", "1")
    assert code == 0, errors
    assert f"BALANCE {amount(balance)} a fact" in (out := " ".join(out.split()))
    assert f"slot 0x1 (1) 0x{0:064x} STORAGE_ROOT is no fact yet" in out
    code, _, errors = bqs("read", proven.batch.id, "--rpc-url", live.chain.url, "--registry", CONTRACT)
    assert (code, "no facts registry" in errors) == (ExitCode.NOT_TRUE, True)


@pytest.mark.long
def test_proofs_are_verified_with_one_command(live, bqs, proven, tmp_path):
    by, table = ["--rpc-url", live.chain.url], ["query", "1", "2", "3"]
    for more, rows in ([], table), (["--query", "1"], table[:2]):
        code, out, errors = bqs("verify", proven.batch.id.lower(), *by, *more)
        assert (code, errors) == (0, f"Everything checked is correct, for the batch {proven.batch.id}.\n")
        assert f"BALANCE {amount(live.balance(BOB, proven.block))}" in out
        assert [line.split()[0] for line in out.splitlines()] == rows
    file = f"proof-{proven.batch.id}.json"
    assert bqs("bundle", proven.batch.id)[0] == bqs("bundle", proven.batch.id, "--query", "1", "-o", "one.json")[0] == 0
    code, _, errors = bqs("verify", file)
    assert (code, re.findall(r"chain (\d+)  block (\d+)", errors)) == (2, [(str(CHAIN_ID), str(proven.block))])
    (block_hash,) = re.findall("0x[0-9a-f]{64}", errors)
    for checked in (by, by + by, ["--block-hash", block_hash, "--block-hash", "0x" + "11" * 32]):
        code, out, _ = bqs("verify", file, *checked, "--json")
        shown = json.loads(out)
        assert (code, shown["batch"], shown["destinationChainId"]) == (0, proven.batch.id, str(CHAIN_ID))
        assert [query["number"] for query in shown["queries"]] == [1, 2, 3]
        code, out, _ = bqs("verify", "one.json", *checked, "--json")
        assert (code, json.loads(out)["queries"]) == (0, shown["queries"][:1])
    for more, expected, sentence in (
        ([file, "--block-hash", "0x" + "11" * 32], ExitCode.NOT_TRUE, "another hash than those that you trust"),
        ([file, "--block-hash", "0x00"], ExitCode.USAGE, "0x and 64 hexadecimal digits"),
        ([file, *by, "--query", "2"], ExitCode.USAGE, "--query works with a BATCH only"),
        ([proven.batch.id, *by, "--query", "9"], ExitCode.NOT_FOUND, "No query found"),
    ):
        code, _, errors = bqs("verify", *more)
        assert (code, sentence in errors) == (expected, True), errors


@pytest.fixture(scope="module")
def token(live) -> str:
    """Return a token of which Alice holds 1001."""
    address = foreign_contracts.create(live.chain, VYPER_TOKEN.read_text().strip())
    foreign_contracts.send(live.chain, address, "fill(address)", ALICE)
    return address


@pytest.mark.long
def test_a_token_s_balance_is_proven_by_token_and_holder(live, bqs, token):
    (slot,) = live.service.find_slots(token, "balanceOf(address)", ALICE, chain=CHAIN_ID).slots
    assert (slot.is_answer, slot.value, slot.part.size, slot.layout) == (True, "1001", 256, "vyper")
    assert slot.slot_name["call"] == "balanceOf(address)"
    query = client.Account(slot.account, chain=CHAIN_ID, block="latest", slots=[slot.slot_name])
    (proof,) = live.service.read_proofs(destination=CHAIN_ID, queries=[query])
    assert (proof.slot, int.from_bytes(proof.word)) == (slot.slot, 1001)
    chains = ("--destination", str(CHAIN_ID), "--chain", str(CHAIN_ID))
    asked = (*chains, "--token", token, "--holder", ALICE)
    code, out, errors = bqs("submit", *asked, "--wait", "--json", "--timeout", str(SECONDS))
    assert (code, f"is 1001, in {slot.slot} (vyper)." in errors) == (0, True), errors
    (fact,) = json.loads(out)["queryList"][0]["facts"]
    assert (fact["slot"], fact["slotName"], int(fact["word"], 16)) == (slot.slot, slot.slot_name, 1001)
    code, read, _ = bqs("read", json.loads(out)["internalId"], "--json")
    (listed,) = json.loads(read)["facts"]
    assert (code, {**fact, **listed}, listed["value"]) == (0, listed, fact["value"])
    assert bqs("estimate", *asked[4:])[0] == 0
    code, out, _ = bqs("proofs", *asked[4:])
    assert (code, "slot said to be balanceOf 0xf39F…2266 1001 " in " ".join(out.split())) == (0, True), out
    for more in (("--account", ALICE), ("--slot", "0x1"), ("--prop", "NONCE"), ("--time", "5")):
        assert bqs("submit", *asked, *more)[0] == ExitCode.USAGE
    for part in (asked[:-2], asked[2:4] + asked[6:], asked[:2] + asked[4:]):
        code, _, errors = bqs("submit", *part)
        assert (code, "A token's balance needs --" in errors) == (ExitCode.USAGE, True)


_PACKAGE = "@batch-query-service/contracts/src"
_FLAGGED = """
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// As USDC: a balance has a flag in the highest bit of its word. As OpenZeppelin: the mapping is in a namespace.
contract Flagged {
    bytes32 public constant symbol = "LEND";
    uint8 public constant decimals = 3;

    struct Storage { mapping(address => uint256) words; }

    constructor(address holder) { _storage().words[holder] = 1001 | 1 << 255; }

    function balanceOf(address holder) external view returns (uint256) {
        return _storage().words[holder] & ~uint256(1 << 255);
    }

    function _storage() private pure returns (Storage storage found) {
        assembly { found.slot := 0x52c63247e1f47db19d5ce0460030c497f067ca4cebf71ba98eeadabe20bace00 }
    }
}"""
_FAR = """
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

contract Far {
    uint256[300] private gap;
    mapping(address => uint256) public balanceOf;

    constructor(address holder) { balanceOf[holder] = 1001; }
}"""
_ODD = """
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

contract Odd {
    mapping(address => uint256) private words;
    mapping(address => uint8) private flags;

    constructor(address holder) { words[holder] = 1001; flags[holder] = 2; }

    function balanceOf(address holder) external view returns (uint256) {
        return ANSWER;
    }
}"""
_READER = """
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {IFactsRegistry} from "%s/IFactsRegistry.sol";
import {ProvenFacts} from "%s/ProvenFacts.sol";

contract Reader {
    using ProvenFacts for IFactsRegistry;

    function read(IFactsRegistry registry, address holder, uint256 blockNumber) external view returns (uint256) {
        return CODE;
    }
}""".replace("%s", _PACKAGE)


@pytest.mark.long
def test_one_hint_names_the_slots_of_all_holders(live, bqs):
    code = shown_code.creation_codes({"Far.sol": _FAR})["Far.sol"]["Far"]
    token = foreign_contracts.create(live.chain, code + f"{ALICE[2:].lower():0>64}")
    asked = ("--chain", str(CHAIN_ID), "--token", token, "--holder", BOB, "--holder", ALICE)
    code, _, errors = bqs("proofs", *asked)
    assert (code, "a batch of its own" in errors) == (ExitCode.USAGE, True)
    for base in ("300", "0x12c"):
        code, out, errors = bqs("proofs", *asked, "--base", base)
        assert code == 0, errors
        assert "balanceOf 0xf39F…2266 1001 " in " ".join(out.split())
        assert f"mappingSlot({300:#x}, holder)" in errors
    code, out, _ = bqs("find-slots", token, "balanceOf(address)", ALICE, "--chain", str(CHAIN_ID), "--base", "300")
    assert (code, '"slot": "0x12c"' in out) == (0, True)
    assert bqs("proofs", "--chain", str(CHAIN_ID), "--base", "300")[0] == ExitCode.USAGE
    (slot,) = live.service.find_slots(token, "balanceOf(address)", ALICE, chain=CHAIN_ID, base=300).slots
    assert slot.layout == "solidity"


@pytest.mark.long
def test_a_balance_that_is_a_part_of_a_word_is_read_by_the_code_that_bqs_prints(live, bqs):
    codes = shown_code.creation_codes({"Flagged.sol": _FLAGGED})
    token = foreign_contracts.create(live.chain, codes["Flagged.sol"]["Flagged"] + f"{ALICE[2:].lower():0>64}")
    chains = ("--destination", str(CHAIN_ID), "--chain", str(CHAIN_ID))
    asked = (*chains, "--token", token, "--holder", ALICE, "--wait", "--json", "--timeout", str(SECONDS))
    code, out, errors = bqs("submit", *asked)
    assert code == 0, errors
    assert "is 1001 (1.001 LEND), in " in errors
    assert "What tokens call themselves is their own claim, which nothing proves: LEND." in errors
    assert f"The answer is the part in bits 0 to 254 of the word 0x8{'0' * 60}3e9." in errors
    assert re.search("^0x52c6[0-9a-f]{56}ce00 is erc7201:openzeppelin.storage.ERC20.$", errors, re.MULTILINE)
    (query,) = json.loads(out)["queryList"]
    (fact,) = query["facts"]
    assert (int(fact["word"], 16), fact["value"]) == (1001 | 1 << 255, "1001")
    (listed,) = live.answer(f"facts?account={token}&limit=5")["facts"]
    assert listed["value"] == "1001"
    batch = live.service.batch(json.loads(out)["internalId"])
    assert [each.value for each in batch.wait().facts] == [1001]
    code, read, _ = bqs("read", batch.id)
    assert (code, " ".join(read.split()).endswith("LEND balance of 0xf39F…2266 1.001 LEND")) == (0, True), read
    code, out, _ = bqs("proofs", *asked[2:8])
    assert (code, " 1.001 LEND STORAGE_ROOT " in " ".join(out.split())) == (0, True), out

    assert read_by_contract(live, errors, int(query["blockNumber"])) == 1001


def read_by_contract(live: Live, errors: str, block: int) -> int:
    """Return what a contract reads of Alice's balance with the code that bqs prints."""
    shown = re.search("A contract reads it with (.*)", errors)
    assert shown
    folder = devchain.PROJECT / "client" / "solidity" / "src"
    sources = {f"{_PACKAGE}/{path.name}": path.read_text() for path in folder.glob("*.sol")}
    sources["Reader.sol"] = _READER.replace("CODE", shown[1])
    reader = foreign_contracts.create(live.chain, shown_code.creation_codes(sources)["Reader.sol"]["Reader"])
    words = f"{live.registry[2:].lower():0>64}{ALICE[2:].lower():0>64}{block:064x}"
    call = {"to": reader, "data": f"0x{registry.selector('read(address,address,uint256)').hex()}{words}"}
    return int(live.chain.rpc("eth_call", call, "latest"), 16)


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "balance"),
    [
        ("words[holder] & ~uint256(0xff)", 0x300),
        ("words[holder] << 8", 1001 << 8),
        ("flags[holder] != 0 ? 1 : 0", 1),
    ],
)
def test_a_balance_of_another_form_is_what_the_token_answers(live, bqs, answer, balance):
    codes = shown_code.creation_codes({"Odd.sol": _ODD.replace("ANSWER", answer)})
    token = foreign_contracts.create(live.chain, codes["Odd.sol"]["Odd"] + f"{ALICE[2:].lower():0>64}")
    chains = ("--destination", str(CHAIN_ID), "--chain", str(CHAIN_ID))
    asked = (*chains, "--token", token, "--holder", ALICE, "--wait", "--json", "--timeout", str(SECONDS))
    code, out, errors = bqs("submit", *asked)
    assert (code, f"is {balance}, in " in errors) == (0, True), errors
    (query,) = json.loads(out)["queryList"]
    assert [fact["value"] for fact in query["facts"]] == [str(balance)]
    code, read, _ = bqs("read", json.loads(out)["internalId"])
    assert (code, " ".join(read.split()).endswith(f"slot said to be balanceOf 0xf39F…2266 {balance}")) == (0, True)
    assert read_by_contract(live, errors, int(query["blockNumber"])) == balance


@pytest.mark.long
def test_bqs_find_slots_shows_the_slot_of_a_view_call(live, bqs, token):
    def find(*arguments: str) -> tuple[int, str, str]:
        # On a loaded machine, the seconds of a search may be over too early. Its user asks again, within the limits.
        code, out, errors = bqs("find-slots", *arguments)
        while code == ExitCode.UNAVAILABLE:
            code, out, errors = bqs("find-slots", *arguments)
        return code, out, errors

    asked = (token, "slopeEnd(address,address)", ALICE, token, "--chain", str(CHAIN_ID))
    code, out, errors = find(*asked, "--block", str(live.chain.head()))
    told = " ".join(out.split())
    assert (code, f"is_value {token} " in told, told.endswith("vyper-0.2.12 1005")) == (0, True, True), (out, errors)
    assert re.fullmatch(r"Found at block \d+ by eth_createAccessList\.\nOnly the node \S+ confirms this\.\n", errors)
    code, out, errors = find(*asked, "--json")
    assert code == 0, errors
    assert json.loads(out)["slots"][0]["slotName"]["keys"] == [ALICE, token, {"member": "2"}]
    code, _, errors = find(token, "totalSupply()", "--chain", str(CHAIN_ID))
    assert (code, f"totalSupply() of {token} reverts." in errors) == (ExitCode.USAGE, True)


@pytest.mark.long
def test_the_payer_of_a_batch_is_told_the_command_that_sends_it(live, bqs):
    chains = ("--destination", str(CHAIN_ID), "--chain", str(CHAIN_ID))
    code, out, errors = bqs("submit", "--pay-myself", *chains, "--block", "latest", "--account", BOB, "--prop", "NONCE")
    assert code == 0, errors
    batch = live.service.batch(out.split()[0])
    factories.until(
        lambda: "left_to_payer" in {wait.code for wait in batch.details().waits}, "the payer's turn", says=batch.details
    )
    code, _, errors = bqs("watch", batch.id, "--timeout", "1")
    assert (code, f"`bqs send {batch.id}`" in errors) == (ExitCode.NOT_DONE, True), errors


@pytest.mark.long
def test_batches_are_listed_and_cancelled(live, bqs, proven, tmp_path):
    batch = soon(live)
    code, out, _ = bqs("list", "--status", "done", "--limit", "3", "--after", "2026-01-01")
    assert code == 0
    assert "DONE" in out
    assert batch.id not in out
    assert bqs("watch", batch.id, "--timeout", "1")[0] == ExitCode.NOT_DONE
    assert bqs("cancel", batch.id)[0] == 0
    (tmp_path / "batch.json").write_text(json.dumps(live.answer(f"explorer/query/{batch.id}/request.json")))
    code, again, _ = bqs("submit", "batch.json", "--label", "Once more")
    assert (code, bqs("cancel", again.strip())[0]) == (0, 0)
    code, out, _ = bqs("list", "--label", "Once more", "--status", "cancelled")
    assert (code, again.strip() in out, "Once more" in out, batch.id in out) == (0, True, True, False)
    code, _, errors = bqs("watch", batch.id, "--json")
    assert (code, json.loads(errors.splitlines()[-1])["code"]) == (ExitCode.REJECTED, "cancelled_by_user")
    # The batch is cancelled, so no worker changes it between the two lists.
    code, out, _ = bqs("list", "--json", "--limit", "1")
    listed = live.answer("batch-queries?limit=1")
    assert json.loads(out) == listed
    assert [entry["internalId"] for entry in listed["batchQueries"]] == [again.strip()]
    assert bqs("cancel", proven.batch.id)[0] == ExitCode.REJECTED
    assert bqs("watch", "0" * 26)[0] == ExitCode.NOT_FOUND


def test_bqs_estimate_shows_the_cost_by_part(bqs):
    question = ("--destination", str(CHAIN_ID), "--chain", str(CHAIN_ID), "--account", BOB, "--prop", "NONCE")
    code, out, errors = bqs("estimate", *question, "--block", "2")
    assert (code, errors) == (0, "")
    assert re.search(rf"^{CHAIN_ID} +accounts +1 +0 +\d+ +\d+$", out, re.MULTILINE)
    code, by_default, errors = bqs("estimate", *question[4:], "--block", "2")
    # Cost and gas depend on the newest block and on what is stored, and other tests change both meanwhile.
    rows, alike = (re.sub(r"^cost .*$|\b\d{5,6}\b", "", text, flags=re.MULTILINE).split() for text in (out, by_default))
    assert (code, alike, errors) == (0, rows, "")
    code, _, errors = bqs("estimate", *question, "--block", str(10**4))
    assert (code, "It would be rejected (block_too_far_ahead)" in errors) == (ExitCode.REJECTED, True)


def test_bqs_chains_lists_sources_and_destinations(bqs):
    name = f"Development chain ({CHAIN_ID})"
    assert bqs("chains") == (0, f"{'source':<{len(name)}}  destination\n{name}  {name}\n", "")
    told = json.loads(bqs("chains", "--json")[1])
    (chain,) = told["chains"]
    assert (chain["chainId"], chain["name"], chain["isDestination"]) == (str(CHAIN_ID), "Development chain", True)


def test_a_file_may_name_a_chain_as_the_service_does(bqs, tmp_path):
    (tmp_path / "asked.csv").write_text(f"address,chain\n{BOB},development chain\n{ALICE},\n{BOB},Atlantis\n")
    options = ("--destination", str(CHAIN_ID), "--chain", str(CHAIN_ID), "--block", "2", "--prop", "NONCE")
    code, _, errors = bqs("estimate", "asked.csv", *options)
    assert (code, re.findall(r"line (\d): (.*)", errors)) == (2, [("4", "'Atlantis' is no chain of this service.")])
    (tmp_path / "asked.csv").write_text(f"address,chain\n{BOB},development chain\n{ALICE},\n")
    code, out, errors = bqs("estimate", "asked.csv", *options)
    assert (code, errors) == (0, "")
    assert re.search(rf"^{CHAIN_ID} +accounts +2 ", out, re.MULTILINE)
    assert re.search(r"^cost +0\.\d+ ETH, at most 0\.\d+ ETH$", out, re.MULTILINE)


def test_a_key_is_taken_by_a_keystore_or_by_standard_input_if_it_works(live, bqs, monkeypatch, tmp_path):
    monkeypatch.delenv("BQS_API_KEY")
    keystore = Wallet.encrypt(bytes.fromhex(BOB_KEY[2:]), "a password", kdf="pbkdf2", iterations=1000)
    (tmp_path / "key.json").write_text(json.dumps(keystore))
    (tmp_path / "password").write_text("a password\n")
    code, out, errors = bqs("login", live.url, "--keystore", "key.json", "--password-file", "password")
    assert (code, out) == (0, ""), errors
    assert "because this system offers no keyring; only you may read it." in errors
    assert bqs("list", "--json")[:2] == (0, '{"batchQueries": [], "next": null}\n')
    assert bqs("logout")[0] == 0
    assert bqs("list")[0] == ExitCode.NOT_ALLOWED
    for key, code in ((live.api_key, ExitCode.OK), ("bqs_" + "0" * 43, ExitCode.NOT_ALLOWED), ("", ExitCode.USAGE)):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{key}\n"))
        exit_code, out, errors = bqs("login", live.url)
        assert (exit_code, "bqs_0" in out + errors) == (code, False)
    assert bqs("list", "--limit", "1")[0] == 0
