"""The answers about facts of transactions: details, lists, files and bundles."""

import csv
import io
from typing import Any

import pytest
import rlp
from django.test import Client
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from trie import HexaryTrie

from proving.models import BlockTrie, Transaction
from queries.models import Batch, BatchStatus, Step, StepKind
from tests.explorer import batches
from tests.proving.logs import block_with_logs
from tests.service import asking, header, submit, work_until_done

pytestmark = pytest.mark.django_db

ALL = ["STATUS", "TYPE", "CUMULATIVE_GAS_USED", "LOG_COUNT", "HASH"]


def hash_of(log: Any) -> str:
    parts = b"".join(bytes.fromhex(part[2:].zfill(64)) for part in (log["address"], *log["topics"]))
    return f"0x{keccak(parts + keccak(bytes.fromhex(log['data'][2:]))).hex()}"


@pytest.fixture
def told(service, key) -> tuple[Batch, int, list[str]]:
    """Return a DONE batch of four queries about the three transactions of a block, its number, and their hashes."""
    number = block_with_logs(service)
    hashes: list[str] = service.rpc("eth_getBlockByNumber", hex(number), False)["transactions"]
    at_block = {
        "0": {"props": ALL},
        hashes[1]: {"props": ["STATUS"]},
        "2": {"logs": ["1"], "blockLogs": ["1", "2"]},
    }
    of_hash = {"transactions": {"2": {"props": ["HASH"]}}}
    body = asking({f"block:{number}": {"transactions": at_block}, f"transaction:{hashes[0]}": of_hash})
    return work_until_done(submit(key, body), service), number, hashes


def details(batch: Batch, key) -> list[dict[str, Any]]:
    queries: list[dict[str, Any]] = Client().get(f"/batch-queries/{batch.pk}", headers=header(key)).json()["queryList"]
    return queries


def log_of(receipt: dict[str, Any], index: int) -> dict[str, Any]:
    log = receipt["logs"][index]
    return {"emitter": to_checksum_address(log["address"]), "topics": log["topics"], "data": log["data"]}


def test_answers_tell_each_fact_with_its_transaction_and_log(service, key, told):
    batch, number, hashes = told
    receipts = [service.rpc("eth_getTransactionReceipt", tx_hash) for tx_hash in hashes]
    queries = details(batch, key)
    # The third names no hash, but the fourth asks for the HASH of the same transaction.
    transactions = [{"index": str(index), "hash": hashes[index]} for index in (0, 1, 2, 2)]
    assert [query["transaction"] for query in queries] == transactions
    present = Client().get(f"/get_queries/{batch.pk}", headers=header(key)).json()["queries"]
    assert {query["typ"] for query in present} == {"TRANSACTION"}
    assert [query["selector"] for query in queries] == [f"block:{number}"] * 3 + [f"transaction:{hashes[0]}"]
    for query in queries:
        assert query["account"] is None
        for fact in query["facts"]:
            assert fact["transaction"] == query["transaction"]
            answer = service.rpc("eth_call", fact["call"], "latest")
            assert answer == fact["word"]
            index, log = int(fact["transaction"]["index"]), fact["log"]
            match fact["property"]:
                case "LOG":
                    content = log_of(receipts[index], int(log["index"]))
                    assert log == {"index": log["index"], **content}
                    assert (fact["word"], fact["value"]) == (hash_of(receipts[index]["logs"][int(log["index"])]), None)
                case "HASH":
                    assert (fact["word"], fact["value"], log) == (hashes[index], None, None)
                case "STATUS":
                    assert (fact["value"], log) == (str(int(receipts[index]["status"], 16)), None)
    assert [[fact["property"] for fact in query["facts"]] for query in queries] == [
        ALL,
        ["STATUS"],
        ["LOG", "LOG"],
        ["HASH"],
    ]
    assert [fact["log"]["index"] for fact in queries[2]["facts"]] == ["1", "0"]


@pytest.mark.long
def test_unproven_transactions_are_shown_as_the_request_names_them(service, key):
    number = block_with_logs(service)
    tx_hash = service.rpc("eth_getBlockByNumber", hex(number), False)["transactions"][2]
    transactions = {tx_hash: {"logs": ["1"]}, "1": {"props": ["STATUS"]}, "2": {"logs": ["0"]}}
    body = asking({f"block:{number}": {"transactions": transactions}})
    estimate = Client().post("/estimate-batch-query", body, content_type="application/json", headers=header(key)).json()
    parts = estimate["sources"][0]["parts"]
    assert [(part, parts[part]["count"]) for part in ("transactions", "logs")] == [("transactions", 2), ("logs", 2)]
    batch = submit(key, body)
    named, by_index, of_log = details(batch, key)
    assert (named["transaction"], named["facts"]) == ({"index": None, "hash": tx_hash}, [])
    assert by_index["transaction"] == by_index["facts"][0]["transaction"] == {"index": "1", "hash": None}
    assert (of_log["facts"][0]["word"], of_log["facts"][0]["log"]) == (None, None)
    batch = work_until_done(batch, service)
    # Values of a rejected batch are not told, nor is a hash that only the block's transactions show.
    Batch.objects.update(status=BatchStatus.REJECTED)
    named, _, of_log = details(batch, key)
    assert (named["transaction"], named["facts"][0]["log"]) == ({"index": "2", "hash": tx_hash}, None)
    assert of_log["transaction"] == {"index": "2", "hash": None}


SEARCHES: list[tuple[dict[str, str], list[str]]] = [
    ({}, ["2 HASH", "2 1", "2 0", "1 STATUS", "0 STATUS", "0 TYPE", "0 CUMULATIVE_GAS_USED", "0 LOG_COUNT", "0 HASH"]),
    ({"property": "LOG"}, ["2 1", "2 0"]),
    ({"property": "STATUS"}, ["1 STATUS", "0 STATUS"]),
    ({"property": "HASH"}, ["2 HASH", "0 HASH"]),
    ({"transaction": "1"}, ["1 STATUS"]),
    ({"transaction": "hash 2"}, ["2 HASH", "2 1", "2 0"]),
    ({"transaction": "hash 2", "property": "HASH"}, ["2 HASH"]),
    # TYPE and LOG_COUNT have the numbers of BALANCE, UNCLES_HASH and of CODE_HASH, STATE_ROOT.
    ({"property": "BALANCE"}, []),
    ({"property": "STATE_ROOT"}, []),
    ({"transaction": "3"}, []),
]


@pytest.mark.long
def test_a_search_finds_facts_about_transactions_by_property_index_and_hash(key, told):
    batch, number, hashes = told
    proven_by: set[str] = set()
    capital = f"0x{hashes[2][2:].upper()}"
    # The last step tells which transaction proved a fact about a transaction.
    Step.objects.filter(kind=StepKind.HEADER_ACCUMULATED).update(transaction_hash="")
    for filters, expected in SEARCHES:
        wanted = {name: capital if value == "hash 2" else value for name, value in filters.items()}
        pages = list[dict[str, Any]]()
        cursor: str | None = ""
        while cursor is not None:
            parameters = {"block": str(number), "limit": "1", **wanted, **({"cursor": cursor} if cursor else {})}
            answer = Client().get("/facts", parameters, headers=header(key)).json()
            assert answer["facts"] or answer["next"] is None  # Only the last page may be empty.
            pages += answer["facts"]
            cursor = answer["next"]
        found = [
            f"{fact['transaction']['index']} {fact['log']['index'] if fact['log'] else fact['property']}"
            for fact in pages
        ]
        assert found == expected, filters
        proven_by |= {fact["transactionHash"] for fact in pages}
        assert all(fact["account"] is None for fact in pages)
    assert proven_by == {Transaction.objects.distinct().get(queries__batch=batch).hash}
    # The block at a time is no fact about a transaction, though a query asks for both.
    batch.queries.filter(position=1).update(timestamp=1)
    counts = [
        len(Client().get("/facts", {"block": str(number), **more}, headers=header(key)).json()["facts"])
        for more in ({}, {"transaction": "1"})
    ]
    assert counts == [10, 1]
    assert Client().get("/facts", {"transaction": hashes[2]}, headers=header(key)).status_code == 400
    wrong = {"block": str(number), "transaction": "0x12"}
    assert Client().get("/facts", wrong, headers=header(key)).status_code == 400


def test_files_for_spreadsheets_have_columns_for_transactions_and_logs(service, told, settings):
    settings.PUBLIC_BATCH_LIST = True
    batch, number, hashes = told
    log = log_of(service.rpc("eth_getTransactionReceipt", hashes[2]), 1)
    expected = [
        ["0", hashes[0], "", "", "", ""],
        ["2", hashes[2], "1", log["emitter"], " ".join(log["topics"]), log["data"]],
    ]
    for path in (f"{batches.path(batch)}/facts.csv", f"/facts.csv?block={number}"):
        content = Client().get(path).content.decode("utf-8-sig")
        names, *rows = csv.reader(io.StringIO(content))
        first = names.index("source_transaction")
        assert names[first:] == [
            *("source_transaction", "source_transaction_hash", "log", "log_emitter", "log_topics", "log_data"),
            "slot_said_to_be",
        ]
        assert [row for row in expected if row in [cells[first : first + 6] for cells in rows]] == expected
    header_alone = batches.batch_at(block_12={"header": ["GAS_USED"]})
    (row,) = csv.reader(io.StringIO(Client().get(f"{batches.path(header_alone)}/facts.csv").text.split("\n", 1)[1]))
    assert row[-6:] == [""] * 6


# --- Bundles ----------------------------------------------------------------------------------------------------------


def shown(bundle: dict[str, Any], query: dict[str, Any], proof: str, root: int) -> bytes | None:
    """Return the value that a query's proof shows below a root in the header."""
    if query[proof] is None:
        return None
    header_fields = rlp.decode(bytes.fromhex(bundle["blocks"][query["block"]]["header"][2:]))
    nodes = [rlp.decode(bytes.fromhex(bundle["nodes"][place][2:])) for place in query[proof]]
    key = rlp.encode(int(query["transaction"]["index"]))
    value: bytes = HexaryTrie.get_from_proof(header_fields[root], key, nodes)
    return value


def test_bundles_prove_receipts_logs_and_hashes(service, key, told):
    batch, _, hashes = told
    for bundle in (batches.bundle_of(batch), *(batches.bundle_of(batch, number) for number in range(1, 5))):
        assert len(bundle["nodes"]) == len(set(bundle["nodes"]))
        for query in bundle["queries"]:
            of_query = details(batch, key)[query["number"] - 1]
            index = int(query["transaction"]["index"])
            receipt, transaction = (
                shown(bundle, query, *proof) for proof in (("receiptProof", 5), ("transactionProof", 4))
            )
            # Queries 1 and 4 ask for the HASH, 2 names it, and 3 does neither. Query 4 asks for nothing of the receipt.
            assert (receipt is None, transaction is None) == (query["number"] == 4, query["number"] == 3)
            assert query["transaction"]["hash"] == (hashes[index] if transaction else None)
            assert transaction is None or keccak(transaction).hex() == hashes[index][2:]
            if receipt is not None:
                told_receipt = service.rpc("eth_getTransactionReceipt", hashes[index])
                logs = rlp.decode(receipt[1:])[3]
                assert [f"0x{log[2].hex()}" for log in logs] == [log["data"] for log in told_receipt["logs"]]
            words = {fact["property"]: fact["word"] for fact in of_query["facts"] if fact["property"] != "LOG"}
            facts_of_logs = {
                fact["log"].pop("index"): {"word": fact["word"], **fact["log"]}
                for fact in of_query["facts"]
                if fact["log"]
            }
            assert (query["facts"], query["logs"]) == (words, facts_of_logs)
            assert (query["account"], query["accountProof"], query["slots"]) == (None, None, {})


def test_there_is_no_bundle_without_what_proves_it(told):
    batch, *_ = told
    stored = list(BlockTrie.objects.all())
    for root, lacking in ((4, {1, 2, 4}), (5, {1, 2, 3})):
        BlockTrie.objects.filter(root=root).delete()
        for number in range(1, 5):
            answer = Client().get(f"{batches.path(batch)}/{number}/bundle.json")
            assert answer.status_code == (404 if number in lacking else 200), (root, number)
        BlockTrie.objects.bulk_create(trie for trie in stored if trie.root == root)
    # A bundle ends where receipts are deleted while it is written.
    parts = iter(Client().get(f"{batches.path(batch)}/bundle.json"))
    next(parts)
    BlockTrie.objects.all().delete()
    with pytest.raises(Exception, match="no longer stored"):
        list(parts)
