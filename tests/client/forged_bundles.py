"""Forged bundles of a batch that requests facts of every kind, with the verifier's errors."""

from collections.abc import Callable
from typing import Any

import rlp
from eth_utils.crypto import keccak

from tests import headers
from tests.explorer.batches import CONTRACT, word
from tests.explorer.made_tries import FIELDS
from tests.service import BOB

Bundle = dict[str, Any]


def of_query(which: int, /, **parts: Any) -> Callable[[Bundle], object]:
    return lambda b: b["queries"][which - 1].update(parts)


def of_block(at: int, /, **parts: Any) -> Callable[[Bundle], object]:
    return lambda b: b["blocks"][at].update(parts)


def swap(b: Bundle, name: str, first: int, second: int) -> None:
    b[name][first], b[name][second] = b[name][second], b[name][first]


def swap_headers(b: Bundle) -> None:
    first, second = b["blocks"][:2]
    first["header"], second["header"] = second["header"], first["header"]


def place(number: int, at: object) -> Callable[[Bundle], object]:
    """Return a function that replaces the last node in the proof of a query's account."""
    return lambda b: b["queries"][number - 1]["accountProof"].__setitem__(-1, at)


def slot(**parts: Any) -> Callable[[Bundle], object]:
    return lambda b: b["queries"][1]["slots"][word(5)].update(parts)


def exchange_proofs(b: Bundle) -> None:
    for name in ("accountProof", "slots"):
        b["queries"][1][name], b["queries"][4][name] = b["queries"][4][name], b["queries"][1][name]


def richer(b: Bundle) -> None:
    """Replace the first account's balance in the leaf. The new one has another size."""
    index = b["queries"][0]["accountProof"][-1]
    key, value = rlp.decode(bytes.fromhex(b["nodes"][index][2:]))
    nonce, _, storage, code = rlp.decode(value)
    b["nodes"][index] = f"0x{rlp.encode([key, rlp.encode([nonce, b'richer', storage, code])]).hex()}"


def block_more(b: Bundle, **parts: Any) -> None:
    """Add a block, and a header query that uses it."""
    b["blocks"].append(b["blocks"][0] | parts)
    query = b["queries"][2] | {"number": len(b["queries"]) + 1, "block": len(b["blocks"]) - 1}
    number = word(int(b["blocks"][-1]["blockNumber"]))
    b["queries"].append(query | {"facts": query["facts"] | {"BLOCK_NUMBER": number}})


def next_as_block(b: Bundle) -> None:
    """Add block 15 with another header than the one that proves the time."""
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
    "a block that is not there": (of_query(1, block=9), "block is no place|names a block that the bundle lacks"),
    "the block just behind the last": (of_query(1, block=4), "block is no place|names a block that the bundle lacks"),
    "a block before the first": (of_query(1, block=-1), "block is no place|block is missing or malformed"),
    "a block that is false": (of_query(1, block=False), "block is no place|block is missing or malformed"),
    "no block": (of_query(1, block=None), "block is no place|block is missing or malformed"),
    "another block of the bundle": (of_query(1, block=1), "Query 1: The proof"),
    "another block of a header's query": (of_query(3, block=3), "Query 3: The proof shows another"),
    "swapped blocks": (lambda b: swap(b, "blocks", 0, 1), "Query 1: The proof"),
    "swapped headers": (swap_headers, "The header's hash is not the block's hash"),
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
    "the slots' proofs of another account": (exchange_proofs, "Query 2: The proof"),
    "no proof of an account": (of_query(1, accountProof=None), "Query 1: The (accountProof|proof)"),
    "an empty proof": (of_query(1, accountProof=[]), "Query 1: The proof ends"),
    "the nodes in another order": (lambda b: b["queries"][0]["accountProof"].reverse(), "Query 1: The proof"),
    "nodes in other places": (lambda b: b["nodes"].reverse(), "Query 1: The proof"),
    "a proof that is shortened": (lambda b: b["queries"][0]["accountProof"].pop(), "Query 1: The proof ends"),
    "a proof without its root": (lambda b: b["queries"][0]["accountProof"].pop(0), "Query 1: The proof"),
    "a node more at the end": (lambda b: b["queries"][0]["accountProof"].append(0), "Query 1: The proof has"),
    "another account's whole proof": (of_query(1, account=CONTRACT), "Query 1: The proof"),
    "an account that is said not to exist": (
        of_query(1, accountProof=[], facts={"BALANCE": word(0)}),
        "Query 1: The proof ends",
    ),
    "a leaf with another balance": (richer, "Query 1: The proof"),
    "a slot by the proof of another": (
        lambda b: b["queries"][1].update(slots={word(7): b["queries"][1]["slots"][word(5)]}),
        "Query 2: The proof",
    ),
    "a slot's proof without its root": (
        lambda b: b["queries"][1]["slots"][word(5)]["proof"].pop(0),
        "Query 2: The proof",
    ),
    "nodes that are no list": (lambda b: b.update(nodes=None), "nodes (are not a list|is missing or malformed)"),
    "nodes that are numbers": (
        lambda b: b["nodes"].__setitem__(0, 7),
        r"nodes\.0 is (not hex|missing or malformed)",
    ),
    "slots of no account": (of_query(2, account=None), "Query 2: "),
    "no facts": (of_query(1, facts={}), "Query 1: The bundle claims no facts"),
    "facts that are no object": (of_query(1, facts=[]), "facts (are not an object|is missing or malformed)"),
    "a time before the block": (of_query(6, timestamp="1"), "Query 6: The block is of 1700000000 s, after the time 1 "),
    "a time after the next block": (of_query(6, timestamp=str(2**62)), "Query 6: The next block is of"),
    "another header as the next one": (
        lambda b: b["blocks"][2].update(nextHeader=b["blocks"][0]["header"]),
        "The nextHeader is not that of the block after it",
    ),
    "itself as the next block": (
        lambda b: b["blocks"][2].update(nextHeader=b["blocks"][2]["header"]),
        "The nextHeader is not that of the block after it",
    ),
    "a header that is a list": (of_block(0, header="0xc0"), "header"),
    "a header of nothing": (of_block(0, header="0x"), "header"),
    "a word that is too short": (of_query(1, facts={"BALANCE": "0x01"}), "another BALANCE|BALANCE is missing or"),
    "a slot that is too short": (
        lambda b: b["queries"][1].update(slots={"0x5": b["queries"][1]["slots"][word(5)]}),
        r"slot is not 32 bytes|slots\.0x5.* is missing or",
    ),
    "a batch that is none": (lambda b: b.update(batch="\x1b[2J"), "batch is (not the identifier|missing or malformed)"),
    "a destination that is none": (
        lambda b: b.update(destinationChainId="no"),
        "destinationChainId is (not a chain id|missing or malformed)",
    ),
    "an unknown format": (lambda b: b.update(format="facts-1"), "not a proof bundle of the format facts-3"),
    "a format that is none": (lambda b: b.update(format=[]), "not a proof bundle of the format facts-3"),
    "no format": (lambda b: b.pop("format"), "not a proof bundle of the format facts-3"),
}
