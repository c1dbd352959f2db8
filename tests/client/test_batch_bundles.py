"""Bundles of whole batches are verified by the client's code and by the service's: neither takes a forgery."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.test import Client
from eth_utils.crypto import keccak
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
from explorer.bundles import batch_verifying, verifying
from tests import headers
from tests.client.answers import batch as details_of_batch
from tests.client.answers import query as details_of_query
from tests.client.world import PATIENCE, World, answer
from tests.explorer.batches import CONTRACT, DEAD_NODE, SOURCE, path, word
from tests.explorer.made_tries import FIELDS, asked_of_everything, prove
from tests.service import BOB, chains_toml

pytestmark = pytest.mark.django_db

Bundle = dict[str, Any]
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


@contextmanager
def remember(bundle: Bundle) -> Iterator[None]:
    """Forgeries take what they add from this bundle."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(_REMEMBERED, "bundle", bundle)
        yield


def hashes() -> dict[tuple[int, int], str]:
    """Return the hashes that nodes would tell: of all blocks, and of those after them that are known."""
    proven = batch_verifying.verify(json.dumps(_REMEMBERED["bundle"]))
    return {(int(chain), number): block_hash for (chain, number), block_hash in proven.hashes.items()}


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


def of_query(which: int, /, **parts: Any) -> Callable[[Bundle], object]:
    return lambda b: b["queries"][which - 1].update(parts)


def of_block(at: int, /, **parts: Any) -> Callable[[Bundle], object]:
    return lambda b: b["blocks"][at].update(parts)


def swap(b: Bundle, name: str, first: int, second: int) -> None:
    b[name][first], b[name][second] = b[name][second], b[name][first]


def place(number: int, at: object) -> Callable[[Bundle], object]:
    """The last of the proof of a query's account."""
    return lambda b: b["queries"][number - 1]["accountProof"].__setitem__(-1, at)


def slot(**parts: Any) -> Callable[[Bundle], object]:
    return lambda b: b["queries"][1]["slots"][word(5)].update(parts)


def exchange_proofs(b: Bundle) -> None:
    for name in ("accountProof", "slots"):
        b["queries"][1][name], b["queries"][4][name] = b["queries"][4][name], b["queries"][1][name]


def block_more(b: Bundle, **parts: Any) -> None:
    """One that is used, by one header's query more."""
    b["blocks"].append(b["blocks"][0] | parts)
    query = b["queries"][2] | {"number": len(b["queries"]) + 1, "block": len(b["blocks"]) - 1}
    number = word(int(b["blocks"][-1]["blockNumber"]))
    b["queries"].append(query | {"facts": query["facts"] | {"BLOCK_NUMBER": number}})


def next_as_block(b: Bundle) -> None:
    """Another one than that by which a time is shown."""
    header = headers.encode({**FIELDS, "number": 15, "extraData": b"another"})
    block_more(b, blockNumber="15", header=f"0x{header.hex()}", blockHash=f"0x{keccak(header).hex()}")


FORGERIES: dict[str, tuple[Callable[[Bundle], object], str]] = {
    "another balance": (lambda b: b["queries"][0]["facts"].update(BALANCE=word(1)), "Query 1: .* another BALANCE"),
    "another word in a slot": (slot(word=word(1)), "Query 2: .* another word in slot"),
    "a slot that is said to be empty": (slot(word=word(0), proof=[]), "Query 2: The proof ends"),
    "a slot that is not proven": (
        lambda b: b["queries"][1]["slots"].update({word(8): b["queries"][1]["slots"][word(5)]}),
        "Query 2: ",
    ),
    "another account": (of_query(1, account=BOB), "Query 1: The proof"),
    "a header's word": (lambda b: b["queries"][2]["facts"].update(GAS_USED=word(1)), "Query 3: .* another GAS_USED"),
    "an account's word of a header": (lambda b: b["queries"][2]["facts"].update(BALANCE=word(1)), "Query 3: .*known"),
    "a query twice": (lambda b: b["queries"].insert(1, b["queries"][0]), "numbered from 1"),
    "a query's number twice": (of_query(2, number=1), "numbered from 1"),
    "a query less": (lambda b: b["queries"].pop(1), "numbered from 1"),
    "the first query missing": (lambda b: b["queries"].pop(0), "numbered from 1"),
    "queries in another order": (lambda b: swap(b, "queries", 0, 1), "numbered from 1"),
    "a number that is true": (of_query(1, number=True), r"numbered from 1|number is missing or malformed"),
    "a number that is text": (of_query(1, number="1"), r"numbered from 1|number is missing or malformed"),
    "a number that is a fraction": (
        of_query(1, number=1.0),
        r"numbered from 1|number (is missing or malformed|that is a fraction)",
    ),
    "no queries": (lambda b: b.update(queries=[]), "has no queries"),
    "queries that are no list": (lambda b: b.update(queries={}), "queries (are not a list|is missing or malformed)"),
    "blocks that are no list": (lambda b: b.update(blocks=None), "blocks (are not a list|is missing or malformed)"),
    "a query that is none": (lambda b: b["queries"].__setitem__(0, 7), r"numbered from 1|queries\.0 is missing"),
    "a block that is none": (lambda b: b["blocks"].__setitem__(0, 7), r"is none|blocks\.0 is missing"),
    "a block that is not there": (of_query(1, block=9), "block is no place|about a block that it has not"),
    "the block just behind the last": (of_query(1, block=4), "block is no place|about a block that it has not"),
    "a block before the first": (of_query(1, block=-1), "block is no place|block is missing or malformed"),
    "a block that is false": (of_query(1, block=False), "block is no place|block is missing or malformed"),
    "no block": (of_query(1, block=None), "block is no place|block is missing or malformed"),
    "another block of the bundle": (of_query(1, block=1), "Query 1: The proof"),
    "another block of a header's query": (of_query(3, block=3), "Query 3: The proof shows another"),
    "swapped blocks": (lambda b: swap(b, "blocks", 0, 1), "Query 1: The proof"),
    "swapped headers": (
        lambda b: [b["blocks"][at].update(header=_REMEMBERED["bundle"]["blocks"][1 - at]["header"]) for at in (0, 1)],
        "The header's hash is not the block's hash",
    ),
    "a block under another number": (of_block(0, blockNumber="11"), "The header is that of block 12"),
    "another block's hash": (of_block(0, blockHash=word(1)), "The header's hash is not the block's hash"),
    "a block twice": (block_more, "twice"),
    "two blocks of a number": (lambda b: block_more(b, header=b["blocks"][1]["header"]), "twice"),
    "a block that no query is about": (
        lambda b: b["blocks"].append(b["blocks"][0] | {"blockNumber": "77"}),
        "none of its queries is about",
    ),
    "a block after a time that is not the one after it": (
        next_as_block,
        "two headers of block 15|block 15 of chain 31337 with another hash",
    ),
    "a chain that is none": (of_block(0, sourceChainId="x"), "sourceChainId is (not a chain id|missing or malformed)"),
    "a chain that is nothing": (of_block(0, sourceChainId=None), "is none|sourceChainId is missing or malformed"),
    "a place of a node behind the last": (place(1, 10_000), "Query 1: .*(places|names nodes)"),
    "a place of a node of a later query": (place(1, 9), "Query 1: .*(places|names nodes)"),
    "a place before the first": (place(1, -1), r"Query 1: .*places|accountProof\.\d+ is missing or malformed"),
    "a place that is true": (place(1, True), r"Query 1: .*places|accountProof\.\d+ is missing or malformed"),
    "a place that is a fraction": (
        place(1, 1.0),
        r"Query 1: .*places|accountProof\.\d+ is missing or malformed|number that is a fraction",
    ),
    "a place that is text": (place(1, "1"), r"Query 1: .*places|accountProof\.\d+ is missing or malformed"),
    "a place that is a node": (place(1, "0x80"), r"Query 1: .*places|accountProof\.\d+ is missing or malformed"),
    "a slot's place behind the last": (slot(proof=[10_000]), "Query 2: .*(places|names nodes)"),
    "a slot's place before the first": (slot(proof=[-1]), "Query 2: .*places|slots.*missing or malformed"),
    "a slot's place that is true": (slot(proof=[True]), "Query 2: .*places|slots.*missing or malformed"),
    "a slot that is none": (lambda b: b["queries"][1]["slots"].update({word(5): 7}), "places|missing or malformed"),
    "slots that are no object": (of_query(2, slots=[]), "slots (are not an object|is missing or malformed)"),
    "the slots' proofs of another account": (exchange_proofs, "Query 2: .*(places|names nodes)"),
    "no proof of an account": (of_query(1, accountProof=None), "Query 1: The (accountProof|proof)"),
    "an empty proof": (of_query(1, accountProof=[]), "Query 1: The proof ends"),
    "the nodes in another order": (lambda b: b["queries"][0]["accountProof"].reverse(), "Query 1: The proof"),
    "nodes of another query": (
        lambda b: [b["queries"][1]["nodes"].insert(0, b["queries"][0]["nodes"].pop()), None],
        "Query 1: .*(places|names nodes)",
    ),
    "nodes that are no list": (of_query(1, nodes=None), "nodes (are not a list|is missing or malformed)"),
    "nodes that are numbers": (
        lambda b: b["queries"][0]["nodes"].__setitem__(0, 7),
        r"accountProof is not hex|nodes\.0 is (not hex|missing or malformed)",
    ),
    "slots of no account": (of_query(2, account=None), "Query 2: "),
    "no facts": (of_query(1, facts={}), "Query 1: The bundle claims no facts"),
    "facts that are no object": (of_query(1, facts=[]), "facts (are not an object|is missing or malformed)"),
    "a time before the block": (of_query(6, timestamp="1"), "Query 6: The block is of 1700000000 s, after the time 1 "),
    "a time after the next block": (of_query(6, timestamp=str(2**62)), "Query 6: The next block is of"),
    "another header as the next one": (
        lambda b: b["blocks"][2].update(nextHeader=b["blocks"][0]["header"]),
        "Query 6: The nextHeader is not that of the block after it",
    ),
    "a batch that is none": (lambda b: b.update(batch="\x1b[2J"), "batch is (not the identifier|missing or malformed)"),
    "a destination that is none": (
        lambda b: b.update(destinationChainId="no"),
        "destinationChainId is (not a chain id|missing or malformed)",
    ),
    "the format of a query's": (lambda b: b.update(format="facts-2"), "not a proof bundle of the format facts-batch-1"),
    "no format": (lambda b: b.pop("format"), "not a proof bundle of the format facts-batch-1"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_no_forgery_holds_for_either(made, name):
    change, said = FORGERIES[name]
    change(made)
    with pytest.raises(InvalidBundle, match=rf"^[^\n]*({said})[^\n]*\.$"):
        verify(made)
    with pytest.raises(verifying.InvalidBundle, match=rf"^[^\n]*({said})[^\n]*\.$"):
        batch_verifying.verify(json.dumps(made))


def test_a_block_of_another_chain_is_known_by_no_node_of_that_chain(made):
    """No header says of which chain it is: the service's verifier leaves that to whoever compares the hashes."""
    made["blocks"][0]["sourceChainId"] = "1"
    claimed = batch_verifying.verify(json.dumps(made))
    assert ("1", 12) in claimed.hashes
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
        (lambda: batch_verifying.verify(content), verifying.InvalidBundle),
    ):
        with pytest.raises(refusal, match=r"^The (file|bundle).*\.$"):
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
            shown = batch_verifying.verify(document)
        except verifying.InvalidBundle:
            return
        # The header after a block is vouched for by its hash alone, which is another one then.
        assert name == "nextHeader"
        assert {(int(chain), number): told for (chain, number), told in shown.hashes.items()} != known

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
    with pytest.raises(WrongChain, match=f"blocks of chain {SOURCE}, of which no node is given"):
        verify_batch_bundle_by_nodes(json.dumps(made), [node_of(31337)])
    with pytest.raises(WrongChain, match=f"blocks of chain 31337, {SOURCE}, of which no node is given"):
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
        (lambda: batch_verifying.verify(json.dumps(made)), verifying.InvalidBundle),
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
