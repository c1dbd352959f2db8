"""The client verifies bundles against trusted hashes, with code that is independent of the service's."""

import copy
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from eth_utils.address import to_checksum_address
from hypothesis import given, settings
from hypothesis import strategies as st

import batch_query_client as client
from batch_query_client import claimed_hashes as claimed
from batch_query_client.bundles import MAX_BYTES
from batch_query_client.command_line.running import run
from batch_query_client.effects import HttpAnswer
from batch_query_client.json_rpc import Node
from batch_query_client.operations import Access
from devnet.devchain import PROJECT
from queries.models import Block
from tests.client.answers import batch as details_of_batch
from tests.client.answers import query as details_of_query
from tests.client.forged_bundles import FORGERIES, FORGERIES_OF_0_4_0, HASH, Bundle, alone, with_transactions
from tests.client.world import PATIENCE, World, answer
from tests.explorer.batches import DEAD_NODE, SOURCE, bundle_of, word
from tests.explorer.made_tries import asked_of_everything, balance, prove, slot_value
from tests.service import ALICE, BOB, chains_toml

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

_REMEMBERED: dict[str, Any] = {}


@pytest.fixture
def made(settings, tmp_path) -> Bundle:
    """Return the service's bundle for two source chains, with transactions of another block.

    It is made once, and each test changes a copy.
    """
    if not _REMEMBERED:
        settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE)
        batch = asked_of_everything(tmp_path)
        prove(batch)
        _REMEMBERED["bundle"] = with_transactions(bundle_of(batch))
        _REMEMBERED["alone"] = {number: bundle_of(batch, number) for number in range(1, batch.queries.count() + 1)}
        _REMEMBERED["alone"] |= {number: alone(_REMEMBERED["bundle"], number) for number in (8, 9)}
        _REMEMBERED["hashes"] = {(block.source_chain_id, block.number): block.hash for block in Block.objects.all()}
        _REMEMBERED["hashes"][31337, 20] = _REMEMBERED["bundle"]["blocks"][-1]["blockHash"]
    return copy.deepcopy(_REMEMBERED["bundle"])


def hashes() -> dict[tuple[int, int], str]:
    """Return the hashes that nodes would give."""
    return dict(_REMEMBERED["hashes"])


def verify(bundle: Bundle, known: Mapping[tuple[int, int], str] | None = None) -> client.VerifiedBundle:
    return client.verify_bundle(json.dumps(bundle), block_hashes=hashes() if known is None else known)


def test_verify_returns_every_proven_fact_of_a_bundle(made):
    proven = verify(made)
    assert (proven.batch, proven.destination_chain_id) == (made["batch"], 31337)
    account, slots, header, *_, timed, other, by_index, by_hash = proven.queries.values()
    assert int.from_bytes(account.facts["BALANCE"]) == balance(ALICE)
    assert (account.account, account.exists, account.block_number) == (ALICE, True, 12)
    assert {int(slot, 16): int.from_bytes(shown) for slot, shown in slots.slots.items()} == {
        slot: slot_value(word(slot)) for slot in (5, 6)
    }
    assert (header.account, int.from_bytes(header.facts["BLOCK_NUMBER"])) == (None, 12)
    assert (timed.timestamp, timed.claimed_timestamp) == (None, 1_700_000_005)
    assert (other.source_chain_id, other.block_number, other.account) == (SOURCE, 9, BOB)
    told = by_index.account, by_index.transaction, by_index.transaction_hash, [*by_index.logs]
    assert told == (None, 0, None, [0, 2])
    assert (by_index.logs[0].data, by_index.logs[0].topics) == (b"data", (b"\1" * 32, b"\2" * 32))
    assert (by_hash.transaction, by_hash.transaction_hash, by_hash.exists) == (129, HASH, False)
    assert {name: int.from_bytes(word) for name, word in by_hash.facts.items() if name != "HASH"} == {
        "TYPE": 2,
        "CUMULATIVE_GAS_USED": 130 * 21_000,
        "LOG_COUNT": 1,
        "STATUS": 0,
    }
    assert claimed(json.dumps(made)) == hashes()


def test_the_file_of_one_query_agrees_with_that_of_the_batch(made):
    proven = verify(made)
    for number, bundle in _REMEMBERED["alone"].items():
        assert verify(bundle).queries == {number: proven.queries[number]}
    assert list(proven.queries) == list(_REMEMBERED["alone"])


def test_the_hashes_that_count_are_the_caller_s(made):
    for about in hashes():
        with pytest.raises(client.InvalidBundle, match="with another hash than those that you trust"):
            verify(made, hashes() | {about: word(1)})
    known = hashes()
    del known[SOURCE, 9]
    with pytest.raises(client.InvalidBundle, match=rf"block 9 of chain {SOURCE} with another hash .*: 0x\w{{64}}\."):
        verify(made, known)
    for wrong in ("", "0x12", "no hash"):
        with pytest.raises(client.InvalidBundle, match="32 bytes"):
            verify(made, hashes() | {(1, 1): wrong})
    # A header doesn't contain its chain's id, so only the hash shows the wrong chain.
    made["blocks"][0]["sourceChainId"] = "1"
    with pytest.raises(client.InvalidBundle, match="block 12 of chain 1 with another hash"):
        verify(made)


def test_the_command_prints_transactions_and_logs_whole(made, tmp_path, capsys):
    file = tmp_path / "bundle.json"
    file.write_text(json.dumps(made))
    arguments = ["verify", str(file), *(part for digest in hashes().values() for part in ("--block-hash", digest))]
    assert run(arguments) == 0
    out = capsys.readouterr().out
    log = made["queries"][8]["logs"]["0"]
    emitter = to_checksum_address(log["emitter"])
    shown = f"log 0 by {emitter}, topics {' '.join(log['topics'])}, data {log['data']}"
    assert re.search(
        rf"20 +transaction 129 {HASH} .*CUMULATIVE_GAS_USED 2730000, .*STATUS 0, HASH {HASH}, {shown}", out
    )
    assert re.search(r"20 +transaction 0  +TYPE 0, ", out)
    assert run([*arguments, "--json"]) == 0
    query = json.loads(capsys.readouterr().out)["queries"][8]
    whole = {name: log[name] for name in ("topics", "data")} | {"index": "0", "emitter": emitter}
    assert (query["transaction"], query["transactionHash"], query["logs"]) == (129, HASH, {"0": whole})


# --- Forgeries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORGERIES)
def test_no_forgery_holds(made, name):
    change, sentence = FORGERIES[name]
    change(made)
    with pytest.raises(client.InvalidBundle, match=rf"^[^\n]*({sentence})[^\n]*\.$"):
        verify(made)


@pytest.mark.parametrize(
    "content", [b"{", b"[" * 1_000_000, b'{"blocks":' * 100_000, b"[]", b"{}", b"", b"\xff", b"[0"]
)
def test_content_that_is_no_bundle_is_refused_in_a_sentence(content):
    for refuse in (lambda: client.verify_bundle(content, block_hashes={}), lambda: claimed(content)):
        with pytest.raises(client.InvalidBundle, match=r"^The (file|bundle).*\.$"):
            refuse()


@pytest.mark.parametrize("content", [b"[0" + b",0" * 10_000_000, "[" + "[]," * 5_000_000, b" " * (MAX_BYTES + 1)])
def test_a_bundle_that_would_take_much_memory_is_not_parsed(content):
    with pytest.raises(client.InvalidBundle, match=r"more than 10000000 values|larger than \d+ bytes"):
        client.verify_bundle(content, block_hashes={})


@pytest.mark.long
def test_no_flip_of_a_byte_holds(made):
    """Bytes are flipped in each node, header and word, so each of them is verified."""
    places: list[tuple[Any, Any]] = [(made["nodes"], at) for at in range(len(made["nodes"]))]
    for block in made["blocks"]:
        places += [(block, name) for name in ("header", "blockHash")]
    for query in made["queries"]:
        places += [(query["facts"], name) for name in query["facts"]]
        places += [(entry, "word") for entry in query["slots"].values()]
        for log in query.get("logs", {}).values():
            places += [(log, name) for name in ("word", "emitter", "data") if log[name] != "0x"]
            places += [(log["topics"], at) for at in range(len(log["topics"]))]
        if (query.get("transaction") or {}).get("hash"):
            places.append((query["transaction"], "hash"))

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(st.sampled_from(range(len(places))), st.integers(0, 10_000), st.integers(1, 255))
    def flip(which: int, offset: int, mask: int) -> None:
        holder, name = places[which]
        before = holder[name]
        changed = bytearray(bytes.fromhex(before[2:]))
        changed[offset % len(changed)] ^= mask
        holder[name] = f"0x{changed.hex()}"
        document = json.dumps(made)
        holder[name] = before
        with pytest.raises(client.InvalidBundle):
            client.verify_bundle(document, block_hashes=hashes())

    flip()


# --- Hashes from nodes ------------------------------------------------------------------------------------------------


class Told:
    """A connection to a node with web3.py's interface. It records its requests."""

    def __init__(self, chain_id: int, blocks: dict[int, str]) -> None:
        self.chain_id, self.blocks = chain_id, blocks
        self.asked: list[str] = []

    def make_request(self, method: str, params: list[Any]) -> dict[str, Any]:
        if method == "eth_chainId":
            return {"result": hex(self.chain_id)}
        self.asked.append(params[0])
        block = self.blocks.get(int(params[0], 16))
        return {"result": block and {"hash": block}}


def node_of(chain_id: int) -> Told:
    return Told(chain_id, {number: told for (chain, number), told in hashes().items() if chain == chain_id})


def test_each_chain_s_node_is_asked_once_for_each_block(made):
    nodes = [node_of(SOURCE), node_of(31337), node_of(1)]
    assert client.verify_bundle_by_nodes(json.dumps(made), nodes) == verify(made)
    assert [node.asked for node in nodes] == [["0x9"], ["0xc", "0xd", "0xe", "0x14"], []]


def test_without_a_node_of_a_chain_nothing_is_verified(made):
    with pytest.raises(client.WrongChain, match=rf"blocks of chain {SOURCE}\. Name a node"):
        client.verify_bundle_by_nodes(json.dumps(made), [node_of(31337)])
    with pytest.raises(client.WrongChain, match=r"blocks of chain 31337\. Name a node"):
        client.verify_bundle_by_nodes(json.dumps(made), [])


def test_every_node_of_a_chain_must_know_the_block(made):
    for number, sentence in ((9, "knows another block 9"), (None, "knows another block 9")):
        lagging = Told(SOURCE, {} if number is None else {number: word(1)})
        for nodes in ([lagging, node_of(SOURCE)], [node_of(SOURCE), lagging]):
            with pytest.raises(client.InvalidBundle, match=sentence):
                client.verify_bundle_by_nodes(json.dumps(made), [node_of(31337), *nodes])


# --- A bundle of 0.4.0, with the header of the next block -------------------------------------------------------------

COMMIT_OF_0_4_0 = "58456207"
OF_0_4_0 = (Path(__file__).parents[1] / "bundle_of_0_4_0.json").read_text()


def test_an_earlier_bundle_still_proves_a_time_by_the_hash_of_the_next_block():
    known = claimed(OF_0_4_0)
    assert (31337, 15) in known
    timed = client.verify_bundle(OF_0_4_0, block_hashes=known).queries[6]
    assert (timed.timestamp, timed.claimed_timestamp) == (1_700_000_005, 1_700_000_005)
    del known[31337, 15]
    timed = client.verify_bundle(OF_0_4_0, block_hashes=known).queries[6]
    assert (timed.timestamp, timed.claimed_timestamp) == (None, 1_700_000_005)


@pytest.mark.long
def test_the_client_of_0_4_0_verifies_a_bundle_of_this_version(made, tmp_path):
    command = ["git", "archive", COMMIT_OF_0_4_0, "client/src"]
    archive = subprocess.run(command, cwd=PROJECT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip("git lacks the commit of 0.4.0")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(tmp_path, filter="data")
    (tmp_path / "bundle.json").write_text(json.dumps(made))
    verified = subprocess.run(
        [
            *(sys.executable, "-m", "batch_query_client.command_line", "verify", "bundle.json", "--json"),
            *(part for digest in hashes().values() for part in ("--block-hash", digest)),
        ],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": "client/src"},
        capture_output=True,
        check=True,
    )
    shown = {query["number"]: query["facts"] for query in json.loads(verified.stdout)["queries"]}
    assert shown == {query["number"]: query["facts"] for query in made["queries"]}


@pytest.mark.parametrize("name", FORGERIES_OF_0_4_0)
def test_no_forgery_of_an_earlier_bundle_holds(name):
    known, forged = claimed(OF_0_4_0), json.loads(OF_0_4_0)
    change, sentence = FORGERIES_OF_0_4_0[name]
    change(forged)
    with pytest.raises(client.InvalidBundle, match=sentence):
        client.verify_bundle(json.dumps(forged), block_hashes=known)


def test_nodes_that_differ_about_the_next_block_show_no_time():
    known = claimed(OF_0_4_0)

    def node(chain_id: int) -> Told:
        return Told(chain_id, {number: told for (chain, number), told in known.items() if chain == chain_id})

    other = node(31337)
    other.blocks[15] = word(1)
    with pytest.raises(client.InvalidBundle, match="knows another block 15 of chain 31337"):
        client.verify_bundle_by_nodes(OF_0_4_0, [node(31337), other, node(SOURCE)])
    del other.blocks[15]
    proven = client.verify_bundle_by_nodes(OF_0_4_0, [other, node(SOURCE)])
    assert {query.timestamp for query in proven.queries.values()} == {None}


# --- Comparison with the service's answer about the batch -------------------------------------------------------------


def told_of(made: Bundle) -> list[dict[str, Any]]:
    """Return the bundle's queries in the form of the API's list of queries."""
    told = []
    for query in made["queries"]:
        facts = [{"property": name, "word": shown} for name, shown in query["facts"].items()]
        facts += [{"property": "SLOT", "slot": slot, "word": entry["word"]} for slot, entry in query["slots"].items()]
        if query["timestamp"]:
            facts.append({"property": "BLOCK_AT_TIMESTAMP", "word": word(14)})
        for index, log in query.get("logs", {}).items():
            shown = {name: log[name] for name in ("emitter", "topics", "data")} | {"index": index}
            facts.append({"property": "LOG", "word": log["word"], "log": shown})
        block = made["blocks"][query["block"]]
        about = {"sourceChainId": block["sourceChainId"], "blockNumber": int(block["blockNumber"])}
        about |= {"selector": query["selector"], "transaction": copy.deepcopy(query.get("transaction"))}
        told.append(details_of_query(query["number"], *facts, **about, account=query["account"] or ""))
    return told


def verify_told(made: Bundle, told: list[dict[str, Any]]) -> client.VerifiedBundle:
    world = World(
        HttpAnswer(200, (), json.dumps(made).encode()), answer(200, details_of_batch(queryList=told, queries=len(told)))
    )
    nodes = [Node(node_of(chain), PATIENCE) for chain in (31337, SOURCE)]
    access = Access("http://service.example", "key", PATIENCE)
    verified: client.VerifiedBundle = world.run(client.operations.verify(access, made["batch"], None, nodes))
    assert [header for header in world.requests[0].headers if header[0] == "api-key"] == []
    return verified


def test_verify_told_accepts_a_batch_as_the_service_reports_it(made):
    told = told_of(made)
    assert verify_told(made, told) == verify(made)
    # The service may know a hash by another batch that asked for it.
    told[7]["transaction"]["hash"] = word(1)
    assert verify_told(made, told).queries[8].transaction_hash is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda told: told.pop(), "other queries than the requested ones"),
        (lambda told: told.append(told[0] | {"number": 10}), "other queries than the requested ones"),
        (
            lambda told: told[0].update(account=BOB),
            "Query 1: The bundle and the query differ in account, block or chain",
        ),
        (
            lambda told: told[0].update(blockNumber=13, selector="latest"),
            "Query 1: The bundle and the query differ in account, block or chain",
        ),
        (
            lambda told: told[6].update(sourceChainId="1"),
            "Query 7: The bundle and the query differ in account, block or chain",
        ),
        (lambda told: told[0]["facts"][0].update(word=word(1)), "Query 1: The bundle shows another BALANCE than the"),
        (lambda told: told[1]["facts"][0].update(word=word(1)), f"Query 2: The bundle shows another SLOT {word(5)}"),
        (
            lambda told: told[0].update(selector="timestamp:1900000000"),
            "Query 1: The bundle and the query differ in time",
        ),
        (lambda told: told[0].update(selector="block:11"), "Query 1: The service reports another block"),
        (lambda told: told[0]["facts"].pop(0), "Query 1: The bundle shows BALANCE, which the service doesn't report"),
        (lambda told: told[1]["facts"].append({"property": "NONCE", "word": word(1)}), "Query 2: .* another NONCE"),
        (
            lambda told: told[7]["transaction"].update(index="1"),
            "Query 8: The bundle and the query differ in transaction",
        ),
        (lambda told: told[7].update(transaction=None), "Query 8: The bundle and the query differ in transaction"),
        (
            lambda told: told[8]["transaction"].update(hash=word(1)),
            "Query 9: The bundle and the query differ in transaction",
        ),
        (lambda told: told[7]["facts"][-1].update(word=word(1)), "Query 8: The bundle shows another LOG 2 than the"),
        (
            lambda told: told[7]["facts"][-1]["log"].update(data="0x12"),
            "Query 8: The bundle shows another LOG 2 than the",
        ),
        (
            lambda told: told[7]["facts"][-1].update(log=None),
            "Query 8: The bundle shows LOG 2, which the service doesn't",
        ),
    ],
)
def test_verify_told_refuses_a_batch_reported_otherwise_than_its_bundle(made, change, sentence):
    told = told_of(made)
    change(told)
    with pytest.raises(client.InvalidBundle, match=sentence):
        verify_told(made, told)
