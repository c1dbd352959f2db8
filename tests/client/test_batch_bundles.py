"""Bundles of whole batches are verified by the client's code and by the service's: neither takes a forgery."""

import copy
import json
import re
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_query_client import (
    InvalidBundle,
    NodeRefused,
    VerifiedBatchBundle,
    WrongChain,
    bundle_blocks,
    operations,
    verify_batch_bundle,
    verify_batch_bundle_by_nodes,
    verify_bundle,
)
from batch_query_client.bundles import MAX_BYTES
from batch_query_client.effects import Answer
from batch_query_client.json_rpc import Node
from batch_query_client.operations import Access
from tests.client.answers import batch as details_of_batch
from tests.client.answers import query as details_of_query
from tests.client.forged_bundles import FORGERIES, Bundle
from tests.client.world import PATIENCE, World, answer
from tests.explorer.batches import CONTRACT, DEAD_NODE, SOURCE, path, said_of, word
from tests.explorer.made_tries import asked_of_everything, prove
from tests.service import BOB, chains_toml

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

_REMEMBERED: dict[str, Any] = {}


@pytest.fixture
def made(settings, tmp_path) -> Bundle:
    """Return the bundle that the service writes for two source chains. It is written once; each test changes a copy."""
    if not _REMEMBERED:
        settings.CHAINS_FILE = chains_toml(tmp_path, DEAD_NODE)
        batch = asked_of_everything(tmp_path)
        prove(batch)
        client = Client()
        _REMEMBERED["bundle"] = json.loads(client.get(f"{path(batch)}/bundle.json").getvalue())
        _REMEMBERED["alone"] = {
            number: client.get(f"{path(batch)}/{number}/bundle.json").content
            for number in range(1, batch.queries.count() + 1)
        }
    return copy.deepcopy(_REMEMBERED["bundle"])


def hashes() -> dict[tuple[int, int], str]:
    """Return the hashes that nodes would tell: of all blocks, and of those after them that are known."""
    return hashes_of(said_of(json.dumps(_REMEMBERED["bundle"])))


def hashes_of(said: str) -> dict[tuple[int, int], str]:
    found = re.findall(r"^  chain (\d+)  block (\d+)  (0x\w+)$", said, re.MULTILINE)
    return {(int(chain), int(number)): block_hash for chain, number, block_hash in found}


def verify(bundle: Bundle) -> VerifiedBatchBundle:
    return verify_batch_bundle(json.dumps(bundle), block_hashes=hashes())


def test_it_shows_what_the_bundle_of_each_query_shows(made):
    proven = verify(made)
    known = hashes()
    for number, document in _REMEMBERED["alone"].items():
        shown = proven.queries[number]
        about = shown.source_chain_id, shown.block_number
        following = known.get((about[0], about[1] + 1))
        assert shown == verify_bundle(document, block_hash=known[about], next_block_hash=following)
    assert list(proven.queries) == list(_REMEMBERED["alone"])
    assert (proven.batch, proven.destination_chain_id) == (made["batch"], 31337)
    assert bundle_blocks(json.dumps(made)) == ((31337, 12), (31337, 13), (31337, 14), (SOURCE, 9))


def test_a_time_is_shown_only_by_the_hash_of_the_next_block(made):
    timed = next(query["number"] for query in made["queries"] if query["timestamp"])
    assert verify(made).queries[timed].timestamp == 1_700_000_005
    known = {about: block_hash for about, block_hash in hashes().items() if about != (31337, 15)}
    proven = verify_batch_bundle(json.dumps(made), block_hashes=known).queries[timed]
    assert (proven.timestamp, proven.claimed_timestamp) == (None, 1_700_000_005)


def test_the_hashes_that_count_are_the_caller_s(made):
    for about in ((31337, 12), (31337, 13), (31337, 14), (SOURCE, 9), (31337, 15)):
        with pytest.raises(InvalidBundle, match="with another hash than yours"):
            verify_batch_bundle(json.dumps(made), block_hashes=hashes() | {about: word(1)})
    known = hashes()
    del known[SOURCE, 9]
    with pytest.raises(InvalidBundle, match=rf"block 9 of chain {SOURCE}, whose hash is not given"):
        verify_batch_bundle(json.dumps(made), block_hashes=known)
    with pytest.raises(InvalidBundle, match="32 bytes"):
        verify_batch_bundle(json.dumps(made), block_hashes=hashes() | {(1, 1): "0x12"})


# --- Forgeries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORGERIES)
def test_no_forgery_holds_for_either(made, name):
    change, said = FORGERIES[name]
    change(made)
    with pytest.raises(InvalidBundle, match=rf"^[^\n]*({said})[^\n]*\.$"):
        verify(made)
    # The command takes another format too.
    with pytest.raises(CommandError, match=rf"^[^\n]*({said if 'format' not in name else ''})[^\n]*\.$"):
        said_of(json.dumps(made))


def test_a_block_of_another_chain_is_known_by_no_node_of_that_chain(made):
    """No header says of which chain it is: the service's verifier leaves that to the reader who compares the hashes."""
    made["blocks"][0]["sourceChainId"] = "1"
    assert (1, 12) in hashes_of(said_of(json.dumps(made)))
    with pytest.raises(InvalidBundle, match="block 12 of chain 1, whose hash is not given"):
        verify(made)
    made["blocks"][0]["sourceChainId"] = str(SOURCE)
    with pytest.raises(InvalidBundle, match=f"block 12 of chain {SOURCE} with another hash than yours"):
        verify_batch_bundle(json.dumps(made), block_hashes=hashes() | {(SOURCE, 12): word(12)})


@pytest.mark.parametrize(
    "content", [b"{", b"[" * 1_000_000, b'{"blocks":' * 100_000, b"[]", b"{}", b"", b"\xff", b'{"format": []}', b"[0"]
)
def test_what_is_no_bundle_is_said_in_a_sentence(content):
    for refuse, refusal in (
        (lambda: verify_batch_bundle(content, block_hashes={}), InvalidBundle),
        (lambda: bundle_blocks(content), InvalidBundle),
        (lambda: said_of(content), CommandError),
    ):
        with pytest.raises(refusal, match=r"^(The bundle does not hold: )?The (file|bundle).*\.$"):
            refuse()


@pytest.mark.parametrize("content", [b"[0" + b",0" * 10_000_000, "[" + "[]," * 5_000_000, b" " * (MAX_BYTES + 1)])
def test_what_would_take_much_memory_is_not_read(content):
    with pytest.raises(InvalidBundle, match=r"more than 10000000 values|larger than \d+ bytes"):
        verify_batch_bundle(content, block_hashes={})


def test_no_flip_of_a_byte_holds(made):
    """Each node, header and word is tried: all of them are used."""
    places: list[tuple[Any, Any]] = []
    for block in made["blocks"]:
        places += [(block, name) for name in ("header", "blockHash", "nextHeader") if block[name]]
    for query in made["queries"]:
        places += [(query["nodes"], at) for at in range(len(query["nodes"]))]
        places += [(query["facts"], name) for name in query["facts"]]
        places += [(entry, "word") for entry in query["slots"].values()]
    known = hashes()

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
        with pytest.raises(InvalidBundle):
            verify_batch_bundle(document, block_hashes=known)
        try:
            shown = hashes_of(said_of(document))
        except CommandError:
            return
        # The header after a block is vouched for by its hash alone, which is another one then.
        assert name == "nextHeader"
        assert shown != known

    flip()


# --- By nodes ---------------------------------------------------------------------------------------------------------


class Told:
    """A connection to a node, as web3.py's, and what it was asked for."""

    def __init__(self, chain_id: int, blocks: dict[int, str]) -> None:
        self.chain_id, self.blocks = chain_id, blocks
        self.asked: list[str] = []

    def make_request(self, method: str, params: list[Any]) -> dict[str, Any]:
        if method == "eth_chainId":
            return {"result": hex(self.chain_id)}
        self.asked.append(params[0])
        found = self.blocks.get(int(params[0], 16))
        return {"result": found and {"hash": found}}


def node_of(chain_id: int) -> Told:
    return Told(chain_id, {number: told for (chain, number), told in hashes().items() if chain == chain_id})


def test_each_chain_s_node_is_asked_once_for_each_block(made):
    nodes = [node_of(SOURCE), node_of(31337), node_of(1)]
    assert verify_batch_bundle_by_nodes(json.dumps(made), nodes) == verify(made)
    assert [node.asked for node in nodes] == [["0x9"], ["0xc", "0xd", "0xe", "0xf"], []]


def test_without_a_node_of_a_chain_nothing_is_verified(made):
    with pytest.raises(WrongChain, match=f"blocks of chain {SOURCE}, and no node of it is given"):
        verify_batch_bundle_by_nodes(json.dumps(made), [node_of(31337)])
    with pytest.raises(WrongChain, match=f"blocks of chain 31337, {SOURCE}, and no node of it is given"):
        verify_batch_bundle_by_nodes(json.dumps(made), [])


def test_every_node_of_a_chain_must_know_the_block(made):
    for number, said in ((9, "knows another block 9"), (None, "knows another block 9")):
        lagging = Told(SOURCE, {} if number is None else {number: word(1)})
        for nodes in ([lagging, node_of(SOURCE)], [node_of(SOURCE), lagging]):
            with pytest.raises(InvalidBundle, match=said):
                verify_batch_bundle_by_nodes(json.dumps(made), [node_of(31337), *nodes])


def test_nodes_that_differ_about_the_next_block_show_no_time(made):
    other = node_of(31337)
    other.blocks[15] = word(1)
    with pytest.raises(InvalidBundle, match="Your nodes know different blocks 15 of chain 31337"):
        verify_batch_bundle_by_nodes(json.dumps(made), [node_of(31337), other, node_of(SOURCE)])
    del other.blocks[15]
    proven = verify_batch_bundle_by_nodes(json.dumps(made), [other, node_of(SOURCE)])
    assert {query.timestamp for query in proven.queries.values()} == {None}


class Refusing(Told):
    def make_request(self, method: str, params: list[Any]) -> dict[str, Any]:
        return super().make_request(method, params) if method == "eth_chainId" else {"error": {"message": "no archive"}}


def test_a_node_that_refuses_is_said(made):
    with pytest.raises(NodeRefused, match="no archive"):
        verify_batch_bundle_by_nodes(json.dumps(made), [Refusing(SOURCE, {}), node_of(31337)])


def test_the_account_of_another_block_is_not_taken_for_one_of_this(made):
    """The pool has the nodes of both blocks, and places lead to either."""
    contract = [query for query in made["queries"] if query["account"] and query["account"].lower() == CONTRACT]
    assert len(contract) == 2
    contract[0]["accountProof"], contract[1]["accountProof"] = contract[1]["accountProof"], contract[0]["accountProof"]
    for refuse, refusal in (
        (lambda: verify(made), InvalidBundle),
        (lambda: said_of(json.dumps(made)), CommandError),
    ):
        with pytest.raises(refusal, match="Query 2: "):
            refuse()


# --- Beside what the service tells of the batch -----------------------------------------------------------------------


def told_of(made: Bundle) -> list[dict[str, Any]]:
    """Return the bundle's queries as the service's list of queries has them."""
    told = []
    for query in made["queries"]:
        facts = [{"property": name, "word": shown} for name, shown in query["facts"].items()]
        facts += [{"property": "SLOT", "slot": slot, "word": entry["word"]} for slot, entry in query["slots"].items()]
        if query["timestamp"]:
            facts.append({"property": "BLOCK_AT_TIMESTAMP", "word": word(14)})
        block = made["blocks"][query["block"]]
        about = {"sourceChainId": block["sourceChainId"], "blockNumber": int(block["blockNumber"])}
        told.append(details_of_query(query["number"], *facts, **about, account=query["account"] or ""))
    return told


def verify_told(made: Bundle, told: list[dict[str, Any]]) -> VerifiedBatchBundle:
    world = World(
        answer(200, details_of_batch(queryList=told, queries=len(told))),
        Answer(200, (), json.dumps(made).encode()),
    )
    nodes = [Node(node_of(chain), PATIENCE) for chain in (31337, SOURCE)]
    access = Access("http://service.example", "key", PATIENCE)
    found: VerifiedBatchBundle = world.run(operations.verify_whole(access, made["batch"], nodes))
    assert [header for header in world.requests[1].headers if header[0] == "api-key"] == []
    return found


def test_what_the_service_tells_of_the_batch_is_what_its_bundle_shows(made):
    assert verify_told(made, told_of(made)) == verify(made)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda told: told.pop(), "The bundle has 7 queries, and the batch 6"),
        (lambda told: told.append(told[0] | {"number": 8}), "The bundle has 7 queries, and the batch 8"),
        (lambda told: told[0].update(account=BOB), "Query 1: The bundle is of another account, block or chain"),
        (lambda told: told[0].update(blockNumber=13), "Query 1: The bundle is of another account, block or chain"),
        (lambda told: told[6].update(sourceChainId="1"), "Query 7: The bundle is of another account, block or chain"),
        (lambda told: told[0]["facts"][0].update(word=word(1)), "Query 1: The bundle shows another BALANCE than the"),
        (lambda told: told[1]["facts"][0].update(word=word(1)), f"Query 2: The bundle shows another SLOT {word(5)}"),
        (lambda told: told[1]["facts"].append({"property": "NONCE", "word": word(1)}), "Query 2: .* another NONCE"),
    ],
)
def test_what_the_service_tells_otherwise_is_noticed(made, change, said):
    told = told_of(made)
    change(told)
    with pytest.raises(InvalidBundle, match=said):
        verify_told(made, told)
