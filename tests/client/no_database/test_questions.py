"""Arguments become the API's request body. The client refuses invalid ones before it sends anything."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from batch_query_client import (
    ACCOUNT_PROPERTIES,
    HEADER_PROPERTIES,
    Account,
    BatchQueryService,
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
    return body(**{"destination": 10, "queries": queries} | more)["data"]  # type: ignore[arg-type]


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


class Integer:
    """An integer as numpy and like libraries have it: no `int`, but an index."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def test_an_integer_of_any_type_is_one_everywhere():
    slot, place, block, chain = map(Integer, (5, 2, 7, 1))
    queries = (
        Account(ALICE, chain=chain, block=block, slots=[slot]),  # type: ignore[arg-type, list-item]
        Transaction(0, chain=1, time=Integer(9), logs=[place], block_logs=[place]),  # type: ignore[arg-type, list-item]
        Withdrawals([place], chain=1, block=7),  # type: ignore[list-item]
    )
    plain = (
        Account(ALICE, chain=1, block=7, slots=[5]),
        Transaction(0, chain=1, time=9, logs=[2], block_logs=[2]),
        Withdrawals([2], chain=1, block=7),
    )
    assert queries == plain
    assert body(destination=Integer(10), queries=queries, fee=Integer(5)) == body(  # type: ignore[arg-type]
        destination=10, queries=plain, fee=5
    )


WRONG: tuple[Any, ...] = (None, 1.5, b"x", bytearray(b"x"), {}, object(), True, float("nan"), "BALANCE", "x" * 10_000)
FIELDS: dict[str, Callable[[Any], object]] = {
    "address": lambda wrong: Account(wrong, chain=1, block=1, props=["BALANCE"]),
    "chain": lambda wrong: Account(ALICE, chain=wrong, block=1, props=["BALANCE"]),
    "block": lambda wrong: Header(["TIMESTAMP"], chain=1, block=wrong),
    "time": lambda wrong: Header(["TIMESTAMP"], chain=1, time=wrong),
    "properties": lambda wrong: Account(ALICE, chain=1, block=1, props=wrong),
    "a property": lambda wrong: Header([wrong], chain=1, block=1),
    "slots": lambda wrong: Account(ALICE, chain=1, block=1, slots=wrong),
    "a slot": lambda wrong: Account(ALICE, chain=1, block=1, slots=[wrong]),
    "a transaction": lambda wrong: Transaction(wrong, chain=1, block=1, props=["STATUS"]),
    "logs": lambda wrong: Transaction(0, chain=1, block=1, logs=wrong),
    "a log": lambda wrong: Transaction(0, chain=1, block=1, block_logs=[wrong]),
    "places": lambda wrong: Withdrawals(wrong, chain=1, block=1),
    "a place": lambda wrong: Withdrawals([wrong], chain=1, block=1),
    "queries": lambda wrong: body(destination=1, queries=wrong),
    "a query": lambda wrong: body(destination=1, queries=[wrong]),
    "a webhook": lambda wrong: asked(Header(["TIMESTAMP"], chain=1, block=1), webhook=wrong),
    "a webhook's URL": Webhook,
    "headers": lambda wrong: Webhook("https://a.example", headers=wrong),
    "a header": lambda wrong: Webhook("https://a.example", headers={"a": wrong}),
    "events": lambda wrong: Webhook("https://a.example", events=wrong),
    "an event": lambda wrong: Webhook("https://a.example", events=[wrong]),
    "the service": BatchQueryService,
    "a key": lambda wrong: BatchQueryService("https://a.example", api_key=wrong),
    "a batch": lambda wrong: BatchQueryService("https://a.example").batch(wrong),
    "destination": lambda wrong: asked(Header(["TIMESTAMP"], chain=1, block=1), destination=wrong),
}
# Text is an address, a name of a property, or what the service refuses; time may be in parts of seconds.
TAKEN = {
    *{("address", str), ("a property", str), ("time", float), *(("a slot", kind) for kind in (bytes, bytearray, dict))},
    *{("a webhook", type(None)), ("a webhook's URL", str), ("headers", dict), ("a header", str), ("an event", str)},
    *{("a key", str), ("a batch", str)},
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:20].partition(" at ")[0])
def test_a_wrong_type_is_refused_in_a_sentence(field, wrong):
    if (field, type(wrong)) in TAKEN and wrong == wrong:  # noqa: PLR0124 (not a number isn't)
        FIELDS[field](wrong)
        return
    with pytest.raises(ValueError, match=r"^[A-Z].{1,300}\.$"):
        FIELDS[field](wrong)


def test_the_fields_beside_the_data():
    query = Account(ALICE, chain=1, block=1, props=["BALANCE"])
    hook = Webhook("https://a.example", {"x-token": "secret"}, ["DONE"])
    document = body(destination=10, queries=[query], fee=5, webhook=hook, label="Payroll")
    assert (document["fee"], document["label"]) == ("5", "Payroll")
    assert document["webhook"] == {"url": "https://a.example", "headers": {"x-token": "secret"}, "events": ["DONE"]}
    assert "secret" not in repr(hook)
    paid = body(destination=10, queries=[query], is_paid_by_caller=True)
    assert (paid["sender"], paid.keys() & {"fee", "webhook", "label"}) == ("self", set())


def test_the_names_are_those_of_the_service():
    assert list(HEADER_PROPERTIES) == HEADER_FIELDS
    assert list(ACCOUNT_PROPERTIES) == ACCOUNT_FIELDS
