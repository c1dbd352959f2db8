"""Arguments become the API's request body. The client refuses invalid ones before it sends anything."""

from datetime import UTC, datetime

import pytest

from batch_query_client import (
    ACCOUNT_PROPERTIES,
    HEADER_PROPERTIES,
    Account,
    Header,
    Transaction,
    Webhook,
    Withdrawals,
)
from batch_query_client.questions import body
from tests.service import ACCOUNT_FIELDS, HEADER_FIELDS

pytestmark = pytest.mark.outside

ALICE, BOB = "0x" + "aa" * 20, "0x" + "bb" * 20


def asked(*queries: Account | Header | Transaction | Withdrawals, **more: object) -> object:
    return body(destination=10, queries=queries, **more)["data"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "selector"),
    [
        ({"block": 15}, "block:15"),
        ({"block": 0}, "block:0"),
        ({"block": "latest"}, "latest"),
        ({"block": "finalized"}, "finalized"),
        ({"block": "block:7"}, "block:7"),
        ({"block": f"transaction:0x{'7a' * 32}"}, f"transaction:0x{'7a' * 32}"),
        ({"time": 1_700_000_000}, "timestamp:1700000000"),
        ({"time": datetime(2026, 1, 1, tzinfo=UTC)}, "timestamp:1767225600"),
    ],
)
def test_a_block_is_named_in_many_ways(where, selector):
    assert Account(ALICE, chain=1, props=["BALANCE"], **where).selector == selector


@pytest.mark.parametrize("slot", [5, "5", "0x5", "0x05", "0" * 63 + "5", (5).to_bytes(32)])
def test_a_slot_is_written_in_many_ways(slot):
    entry = asked(Account(ALICE, chain=1, block=1, slots=[slot]))["1"]["block:1"]["accounts"][ALICE]  # type: ignore[index]
    assert entry == {"props": [], "slots": ["0x" + "0" * 63 + "5"]}


def test_a_slot_may_be_named():
    name = {"slot": "0x5", "keys": [ALICE, {"member": "1"}], "layout": "vyper"}
    entry = asked(Account(ALICE, chain=1, block=1, slots=[name, 5, dict(name)]))["1"]["block:1"]["accounts"][ALICE]  # type: ignore[index]
    assert entry == {"props": [], "slots": [name, f"0x{5:064x}"]}


def test_questions_about_one_account_at_one_block_are_merged():
    data = asked(
        Account(ALICE, chain=1, block=1, props=["BALANCE"]),
        Account(ALICE.upper().replace("0X", "0x"), chain=1, block=1, props=["NONCE", "BALANCE"], slots=[5, "0x5"]),
        Account(ALICE, chain=1, block=2, props=["NONCE"]),
        Header(["TIMESTAMP"], chain=1, block=2),
        Header(["GAS_USED", "TIMESTAMP"], chain=1, block=2),
        Account("vitalik.eth", chain=5, block=1, props=["NONCE"]),
    )
    assert data == {
        "1": {
            "block:1": {"accounts": {ALICE: {"props": ["BALANCE", "NONCE"], "slots": ["0x" + "0" * 63 + "5"]}}},
            "block:2": {"accounts": {ALICE: {"props": ["NONCE"], "slots": []}}, "header": ["TIMESTAMP", "GAS_USED"]},
        },
        "5": {"block:1": {"accounts": {"vitalik.eth": {"props": ["NONCE"], "slots": []}}}},
    }


def test_withdrawals_are_named_by_their_places_and_put_together():
    data = asked(Withdrawals([3, 0], chain=1, block=1), Withdrawals([0, 15], chain=1, block=1))
    assert data == {"1": {"block:1": {"withdrawals": ["3", "0", "15"]}}}
    with pytest.raises(ValueError, match="places"):
        Withdrawals([], chain=1, block=1)
    with pytest.raises(ValueError, match="block"):
        Withdrawals([0], chain=1)


def test_transactions_are_named_by_hash_or_index_and_put_together():
    digest = "0x" + "aB" * 32
    data = asked(
        Transaction(digest, chain=1, block=1, props=["STATUS"], logs=[0, 1]),
        Transaction(digest.lower(), chain=1, block=1, logs=[1], block_logs=[7]),
        Transaction(0, chain=1, block=1, logs=[0]),
    )
    # A hash without a block names its own.
    assert asked(Transaction(digest, chain=1, props=["HASH"])) == {
        "1": {
            f"transaction:{digest.lower()}": {
                "transactions": {digest.lower(): {"props": ["HASH"], "logs": [], "blockLogs": []}}
            }
        }
    }
    named = {"props": ["STATUS"], "logs": ["0", "1"], "blockLogs": ["7"]}
    first = {"props": [], "logs": ["0"], "blockLogs": []}
    assert data == {"1": {"block:1": {"transactions": {digest.lower(): named, "0": first}}}}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Account(ALICE, chain=1, props=["BALANCE"]),
        lambda: Account(ALICE, chain=1, block=1, time=1, props=["BALANCE"]),
        lambda: Account(ALICE, chain=1, block="newest", props=["BALANCE"]),
        lambda: Account(ALICE, chain=1, block=-1, props=["BALANCE"]),
        lambda: Account(ALICE, chain=1, time=datetime(2026, 1, 1), props=["BALANCE"]),  # noqa: DTZ001 (that is the fault)
        lambda: Account(ALICE, chain=1, block=1),
        lambda: Header([], chain=1, block=1),
        lambda: Transaction(0, chain=1, props=["STATUS"]),
        lambda: Transaction("0x12", chain=1, block=1, props=["STATUS"]),
        lambda: Transaction(-1, chain=1, block=1, props=["STATUS"]),
        lambda: Transaction(0, chain=1, block=1),
        asked,
        *(lambda slot=slot: asked(Account(ALICE, chain=1, block=1, slots=[slot])) for slot in (-1, 1 << 256, "x", "")),
    ],
)
def test_an_invalid_question_is_refused_at_once(wrong):
    with pytest.raises(ValueError, match=r"\.$"):
        wrong()


def test_the_fields_beside_the_data():
    query = Account(ALICE, chain=1, block=1, props=["BALANCE"])
    hook = Webhook("https://a.example", {"x-token": "secret"}, ["DONE"])
    document = body(destination=10, queries=[query], fee=5, webhook=hook)
    assert document["fee"] == "5"
    assert document["webhook"] == {"url": "https://a.example", "headers": {"x-token": "secret"}, "events": ["DONE"]}
    assert "secret" not in repr(hook)
    paid = body(destination=10, queries=[query], is_paid_by_caller=True)
    assert (paid["sender"], "fee" in paid, "webhook" in paid) == ("self", False, False)


def test_the_names_are_those_of_the_service():
    assert list(HEADER_PROPERTIES) == HEADER_FIELDS
    assert list(ACCOUNT_PROPERTIES) == ACCOUNT_FIELDS
