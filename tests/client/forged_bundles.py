"""Forged bundles of a batch that requests facts of every kind, with the verifier's errors."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import rlp
from eth_utils.crypto import keccak

from tests import headers
from tests.contracts import tries
from tests.explorer.batches import CONTRACT, word
from tests.explorer.made_tries import FIELDS
from tests.service import BOB

Bundle = dict[str, Any]


# Logs of three receipts, by the index of the transaction: emitter, topics and data.
LOGS: dict[int, list[tuple[bytes, list[bytes], bytes]]] = {
    0: [(b"\xaa" * 20, [b"\1" * 32, b"\2" * 32], b"data"), (b"\xbb" * 20, [], b""), (b"\xaa" * 20, [b"\1" * 32], b"")],
    # The first log of another receipt is the same.
    1: [(b"\xaa" * 20, [b"\1" * 32, b"\2" * 32], b"data")],
    129: [(b"\xcc" * 20, [b"\3" * 32] * 4, b"\5" * 70)],
}
TRANSACTIONS = [b"\2" + rlp.encode([index, b"a transaction" * 3]) for index in range(130)]
HASH = f"0x{keccak(TRANSACTIONS[129]).hex()}"


def with_transactions(bundle: Bundle) -> Bundle:
    """Add a block and two queries about its transactions: of index 0, and of index 129, which is named by its hash."""
    values = [
        (b"\2" if index else b"")
        + rlp.encode([int(index != 129), 21_000 * (index + 1), bytes(256), [list(log) for log in LOGS.get(index, [])]])
        for index in range(130)
    ]
    built = [
        tries.build({rlp.encode(index): value for index, value in enumerate(leaves)})
        for leaves in (TRANSACTIONS, values)
    ]
    roots = {"transactionsRoot": built[0].root_hash, "receiptsRoot": built[1].root_hash}
    header = headers.encode({**FIELDS, "number": 20, **roots})
    changed = copy.deepcopy(bundle)
    changed["blocks"].append(
        bundle["blocks"][0]
        | {"blockNumber": "20", "blockHash": f"0x{keccak(header).hex()}", "header": f"0x{header.hex()}"}
    )

    def proof(which: int, index: int) -> list[int]:
        nodes = [f"0x{node.hex()}" for node in tries.proof(built[which], rlp.encode(index))]
        changed["nodes"] += [node for node in nodes if node not in changed["nodes"]]
        return [changed["nodes"].index(node) for node in nodes]

    names = ("TYPE", "CUMULATIVE_GAS_USED", "LOG_COUNT", "STATUS")
    for index, logs in ((0, [0, 2]), (129, [0])):
        words = (2 if index else 0, 21_000 * (index + 1), len(LOGS[index]), int(index != 129))
        changed["queries"].append(
            bundle["queries"][2]
            | {
                "number": len(changed["queries"]) + 1,
                "block": len(changed["blocks"]) - 1,
                "selector": f"transaction:{HASH}" if index else "block:20",
                "transaction": {"index": str(index), "hash": HASH if index else None},
                "receiptProof": proof(1, index),
                "transactionProof": proof(0, index) if index else None,
                "facts": dict(zip(names, map(word, words), strict=True)) | ({"HASH": HASH} if index else {}),
                "logs": {str(log): shown_log(*LOGS[index][log]) for log in logs},
            }
        )
    return changed


def shown_log(emitter: bytes, topics: Sequence[bytes], data: bytes) -> dict[str, Any]:
    return {
        "word": f"0x{keccak(bytes(12) + emitter + b''.join(topics) + keccak(data)).hex()}",
        "emitter": f"0x{emitter.hex()}",
        "topics": [f"0x{topic.hex()}" for topic in topics],
        "data": f"0x{data.hex()}",
    }


def alone(bundle: Bundle, number: int) -> Bundle:
    """Return the bundle of one query."""
    query = bundle["queries"][number - 1]
    return bundle | {"blocks": [bundle["blocks"][query["block"]]], "queries": [query | {"block": 0}]}


def log(name: str, **parts: Any) -> Callable[[Bundle], object]:
    """Return a function that changes a log of the first transaction."""
    return lambda b: b["queries"][7]["logs"][name].update(parts)


def swap_proofs(b: Bundle) -> None:
    query = b["queries"][8]
    query["receiptProof"], query["transactionProof"] = query["transactionProof"], query["receiptProof"]


def of_query(which: int, /, **parts: Any) -> Callable[[Bundle], object]:
    return lambda b: b["queries"][which - 1].update(parts)


def facts(which: int, /, **words: str) -> Callable[[Bundle], object]:
    return lambda b: b["queries"][which - 1]["facts"].update(words)


def named(which: int, index: object, tx_hash: str | None = None) -> Callable[[Bundle], object]:
    """Return a function that names another transaction in a query."""
    return of_query(which, transaction={"index": index, "hash": tx_hash})


def copied(which: int, other: int, name: str) -> Callable[[Bundle], object]:
    """Return a function that gives a query this part of another one."""
    return lambda b: b["queries"][which - 1].update({name: b["queries"][other - 1][name]})


def log_at(place: str) -> Callable[[Bundle], object]:
    """Return a function that claims the first log of the first transaction in another place."""
    return lambda b: b["queries"][7].update(logs={place: b["queries"][7]["logs"]["0"]})


def slot_at(place: str) -> Callable[[Bundle], object]:
    """Return a function that claims the word and the proof of a slot for another one."""
    return lambda b: b["queries"][1].update(slots={place: b["queries"][1]["slots"][word(5)]})


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


FORGERIES: dict[str, tuple[Callable[[Bundle], object], str]] = {
    "another balance": (facts(1, BALANCE=word(1)), "Query 1: .* another BALANCE"),
    "another word in a slot": (slot(word=word(1)), "Query 2: .* another word in slot"),
    "a slot that is said to be empty": (slot(word=word(0), proof=[]), "Query 2: The proof ends"),
    "a slot that is not proven": (
        lambda b: b["queries"][1]["slots"].update({word(8): b["queries"][1]["slots"][word(5)]}),
        "Query 2: ",
    ),
    "another account": (of_query(1, account=BOB), "Query 1: The proof"),
    "a header's word": (facts(3, GAS_USED=word(1)), "Query 3: .* another GAS_USED"),
    "an account's word of a header": (facts(3, BALANCE=word(1)), "Query 3: .*known"),
    "a query twice": (lambda b: b["queries"].insert(1, b["queries"][0]), "numbered from 1"),
    "a query's number twice": (of_query(2, number=1), "numbered from 1"),
    "a query less": (lambda b: b["queries"].pop(1), "numbered from 1"),
    "the first query missing": (lambda b: b["queries"].pop(0), "numbered from 1"),
    "queries in another order": (lambda b: swap(b, "queries", 0, 1), "numbered from 1"),
    "a number that is true": (of_query(1, number=True), r"numbered from 1|number is missing or malformed"),
    "a number that is text": (of_query(1, number="1"), r"numbered from 1|number is missing or malformed"),
    "a number that is not a whole number": (
        of_query(1, number=1.0),
        r"numbered from 1|number (is missing or malformed|that is not a whole number)",
    ),
    "no queries": (lambda b: b.update(queries=[]), "has no queries"),
    "queries that are no list": (lambda b: b.update(queries={}), "queries (are not a list|is missing or malformed)"),
    "blocks that are no list": (lambda b: b.update(blocks=None), "blocks (are not a list|is missing or malformed)"),
    "a query that is none": (lambda b: b["queries"].__setitem__(0, 7), r"numbered from 1|queries\.0 is missing"),
    "a block that is none": (lambda b: b["blocks"].__setitem__(0, 7), r"is not a block|blocks\.0 is missing"),
    "a block that is not there": (of_query(1, block=9), "block is not a position|names a block that the bundle lacks"),
    "the block just behind the last": (
        of_query(1, block=5),
        "block is not a position|names a block that the bundle lacks",
    ),
    "a block before the first": (of_query(1, block=-1), "block is not a position|block is missing or malformed"),
    "a block that is false": (of_query(1, block=False), "block is not a position|block is missing or malformed"),
    "no block": (of_query(1, block=None), "block is not a position|block is missing or malformed"),
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
        "No query of the bundle uses",
    ),
    "a chain that is none": (of_block(0, sourceChainId="x"), "sourceChainId is (not a chain id|missing or malformed)"),
    "a chain that is nothing": (of_block(0, sourceChainId=None), "not a block|sourceChainId is missing or malformed"),
    "a place of a node behind the last": (place(1, 10_000), "Query 1: .*(positions|names trie nodes)"),
    "a place before the first": (place(1, -1), r"Query 1: .*positions|accountProof\.\d+ is missing or malformed"),
    "a place that is true": (place(1, True), r"Query 1: .*positions|accountProof\.\d+ is missing or malformed"),
    "a place that is not a whole number": (
        place(1, 1.0),
        r"Query 1: .*positions|accountProof\.\d+ is missing or malformed|number that is not a whole number",
    ),
    "a place that is text": (place(1, "1"), r"Query 1: .*positions|accountProof\.\d+ is missing or malformed"),
    "a place that is a node": (place(1, "0x80"), r"Query 1: .*positions|accountProof\.\d+ is missing or malformed"),
    "a slot's place behind the last": (slot(proof=[10_000]), "Query 2: .*(positions|names trie nodes)"),
    "a slot's place before the first": (slot(proof=[-1]), "Query 2: .*positions|slots.*missing or malformed"),
    "a slot's place that is true": (slot(proof=[True]), "Query 2: .*positions|slots.*missing or malformed"),
    "a slot that is none": (lambda b: b["queries"][1]["slots"].update({word(5): 7}), "positions|missing or malformed"),
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
    "a slot by the proof of another": (slot_at(word(7)), "Query 2: The proof"),
    "a slot's proof without its root": (
        lambda b: b["queries"][1]["slots"][word(5)]["proof"].pop(0),
        "Query 2: The proof",
    ),
    "nodes that are no list": (lambda b: b.update(nodes=None), "nodes (are not a list|is missing or malformed)"),
    "nodes that are numbers": (lambda b: b["nodes"].__setitem__(0, 7), r"nodes\.0 is (not hex|missing or malformed)"),
    "slots of no account": (of_query(2, account=None), "Query 2: "),
    "another status": (facts(8, STATUS=word(0)), "Query 8: .* another STATUS"),
    "another number of logs": (facts(9, LOG_COUNT=word(2)), "Query 9: .* another LOG_COUNT"),
    "an account's word of a transaction": (
        of_query(8, facts={"BALANCE": word(0)}),
        "Query 8: .* unknown fact: 'BALANCE'",
    ),
    "the receipt of another transaction": (copied(9, 8, "receiptProof"), "Query 9: The proof"),
    "a receipt as that of another transaction": (named(8, "1"), "Query 8: The proof"),
    "a receipt of a transaction that the block doesn't have": (named(8, "130"), "Query 8: The proof"),
    "a receipt of another block": (of_query(8, block=0), "Query 8: The proof"),
    "a receipt and a transaction in each other's place": (swap_proofs, "Query 9: The proof"),
    "a receipt that is not proven": (of_query(8, receiptProof=None), "Query 8: .* unknown fact"),
    "a receipt's proof that is shortened": (lambda b: b["queries"][7]["receiptProof"].pop(), "Query 8: The proof"),
    "a receipt's proof of nothing": (of_query(8, receiptProof=[]), "Query 8: The proof ends"),
    "a receipt's proof that is no list": (
        of_query(8, receiptProof={}),
        "Query 8: The receiptProof|receiptProof is missing or malformed",
    ),
    "a receipt's place behind the last": (
        of_query(8, receiptProof=[10_000]),
        "Query 8: .*(positions|names trie nodes)",
    ),
    "a transaction's place that is true": (
        of_query(9, transactionProof=[True]),
        r"Query 9: .*positions|transactionProof\.0 is missing or malformed",
    ),
    "another hash of a transaction": (facts(9, HASH=word(1)), "Query 9: .* another HASH"),
    "the hash of another transaction": (
        named(9, "129", f"0x{keccak(TRANSACTIONS[128]).hex()}"),
        "Query 9: The proof doesn't show the transaction's hash",
    ),
    "a hash that is not proven": (
        lambda b: b["queries"][8].update(transactionProof=None, facts={"STATUS": word(0)}),
        "Query 9: The proof doesn't show the transaction's hash",
    ),
    "a hash that is none": (
        named(9, "129", "0x12"),
        r"transaction\.hash is (not 32 bytes in hex|missing or malformed)",
    ),
    "an index with a zero before it": (named(8, "00"), r"transaction\.index is (not an index|missing or malformed)"),
    "an index that is a number": (named(8, 0), r"transaction\.index is (not an index|missing or malformed)"),
    "a transaction that is none": (of_query(8, transaction=7), "transaction(.index)? is (not an|missing or malformed)"),
    "an account and a transaction": (named(1, "0"), "Query 1: The bundle names an account and a transaction"),
    "a log as another one of its receipt": (log_at("1"), "Query 8: The proof shows another log 1"),
    "a log of another receipt": (copied(9, 8, "logs"), "Query 9: The proof shows (another log 0|no log 2)"),
    "a log that the receipt doesn't have": (log_at("3"), "Query 8: The proof shows no log 3"),
    "a log of an index that is not a number": (
        log_at("00"),
        r"an index that is not a number|logs\.00\S* is missing or malformed",
    ),
    "another word of a log": (log("0", word=word(1)), "Query 8: The proof shows another log 0"),
    "another emitter of a log": (log("0", emitter="0x" + "ab" * 20), "Query 8: The proof shows another log 0"),
    "another topic of a log": (log("2", topics=[word(1)]), "Query 8: The proof shows another log 2"),
    "a topic less": (log("2", topics=[]), "Query 8: The proof shows another log 2"),
    "other data of a log": (log("0", data="0x"), "Query 8: The proof shows another log 0"),
    "another log with its own hash": (
        log("0", **shown_log(b"\xcc" * 20, [], b"")),
        "Query 8: The proof shows another log 0",
    ),
    "topics that are no list": (log("0", topics=None), r"topics (are not a list|is missing or malformed)"),
    "a log that is none": (
        lambda b: b["queries"][7]["logs"].update({"0": 7}),
        r"logs\.0 is (not an object|missing or malformed)",
    ),
    "logs that are no object": (of_query(8, logs=[]), "logs (are not an object|is missing or malformed)"),
    "logs of a header": (copied(3, 8, "logs"), "Query 3: The proof shows no log 0"),
    "slots of a transaction": (copied(8, 2, "slots"), "Query 8: The bundle claims slots without an account"),
    "no facts": (of_query(1, facts={}), "Query 1: The bundle claims no facts"),
    "facts that are no object": (of_query(1, facts=[]), "facts (are not an object|is missing or malformed)"),
    "a time before the block": (
        of_query(6, timestamp="1"),
        "Query 6: The block's time is 1700000000 s, after the time 1 ",
    ),
    "a header that is a list": (of_block(0, header="0xc0"), "header"),
    "a header of nothing": (of_block(0, header="0x"), "header"),
    "a word that is too short": (of_query(1, facts={"BALANCE": "0x01"}), "another BALANCE|BALANCE is missing or"),
    "a slot that is too short": (slot_at("0x5"), r"slot is not 32 bytes|slots\.0x5.* is missing or"),
    "a batch that is none": (lambda b: b.update(batch="\x1b[2J"), "batch is (not the identifier|missing or malformed)"),
    "a destination that is none": (
        lambda b: b.update(destinationChainId="no"),
        "destinationChainId is (not a chain id|missing or malformed)",
    ),
    "an unknown format": (lambda b: b.update(format="facts-1"), "not a proof bundle of the format facts-3"),
    "a format that is none": (lambda b: b.update(format=[]), "not a proof bundle of the format facts-3"),
    "no format": (lambda b: b.pop("format"), "not a proof bundle of the format facts-3"),
}


# --- The next header, which bundles of 0.4.0 have ---------------------------------------------------------------------


def next_header(at: int) -> Callable[[Bundle], object]:
    return lambda b: b["blocks"][2].update(nextHeader=b["blocks"][at]["header"])


def next_as_block(b: Bundle) -> None:
    """Add block 15 with another header than the one that proves the time."""
    header = headers.encode({**FIELDS, "number": 15, "extraData": b"another"})
    block_more(b, blockNumber="15", header=f"0x{header.hex()}", blockHash=f"0x{keccak(header).hex()}")


FORGERIES_OF_0_4_0: dict[str, tuple[Callable[[Bundle], object], str]] = {
    "a block after a time that is not the one after it": (next_as_block, "two headers of block 15"),
    "a time after the next block": (of_query(6, timestamp=str(2**62)), "Query 6: The next block's time is"),
    "another header as the next one": (next_header(0), "The nextHeader is not the header of the next block"),
    "itself as the next block": (next_header(2), "The nextHeader is not the header of the next block"),
}
