"""The form's text as the API's JSON and back, and which field a fault of the JSON is about. No chain, no database."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from chains.chains_file import Chains
from config.configured_chains import get_chains
from explorer.formatting.amounts import whole_units
from explorer.new_batch import drafts, pasted_rows, shown_faults
from explorer.new_batch.drafts import Draft, Row
from queries import batch_request
from queries.batch_request import Fault, InvalidRequest
from tests.explorer.batches import connect_source
from tests.service import ALICE, BOB, CHARLIE

HERE = "31337"


@pytest.fixture
def chains(settings, tmp_path) -> Chains:
    connect_source(tmp_path)
    return get_chains()


def written(*rows: Row, **others: str) -> dict[str, Any]:
    return Draft(destination=HERE, rows=rows, **others).request(1000).document


def shown(chains: Chains, *rows: Row, **others: str) -> shown_faults.ShownFaults:
    """Return what the API says of the draft."""
    draft = Draft(**({"destination": HERE} | others), rows=rows)
    request = draft.request(1000)
    with pytest.raises(InvalidRequest) as invalid:
        batch_request.parse(request.body, chains, max_queries=1000)
    return shown_faults.shown(draft, request, invalid.value.faults)


def faults(chains: Chains, *rows: Row, **others: str) -> dict[tuple[int | None, str], list[str]]:
    """The same by the field, without the words of the sentences."""
    found = shown(chains, *rows, **others).by_field
    return {place: [one.partition(" ")[0] for one in sentences] for place, sentences in found.items()}


@pytest.mark.parametrize(
    ("row", "data"),
    [
        (Row(HERE, accounts=ALICE), {"latest": {"accounts": {ALICE: {"props": ["BALANCE"]}}}}),
        (
            Row(HERE, "block", block="26,441,180", accounts=f"{ALICE},\n\n {BOB}", props=()),
            {"block:26441180": {"accounts": {ALICE: {}, BOB: {}}}},
        ),
        (
            Row(HERE, "time", time="2026-11-20T12:00", accounts="vitalik.eth", props=("NONCE",), slots="0x1\n2"),
            {"timestamp:1795176000": {"accounts": {"vitalik.eth": {"props": ["NONCE"], "slots": ["0x1", "2"]}}}},
        ),
        (
            Row(HERE, "time", time="2026-11-20T13:00:00+01:00", header=("TIMESTAMP",)),
            {"timestamp:1795176000": {"header": ["TIMESTAMP"]}},
        ),
        (
            Row(HERE, "finalized", accounts=ALICE, header=("TIMESTAMP",)),
            {"finalized": {"accounts": {ALICE: {"props": ["BALANCE"]}}, "header": ["TIMESTAMP"]}},
        ),
        # What is missing is asked for all the same, so that the answer says so.
        (Row(HERE, "block", block="x"), {"block:x": {"accounts": {"": {"props": ["BALANCE"]}}}}),
        (Row(HERE, "time", time="noon", props=()), {"timestamp:noon": {}}),
    ],
)
def test_a_row_becomes_a_part_of_the_request(row, data):
    assert written(row)["data"] == {HERE: data}


def test_rows_that_meet_are_asked_for_together_and_blank_ones_not_at_all():
    document = written(
        Row(HERE, accounts=ALICE),
        Row(HERE),
        Row(HERE, accounts=f"{BOB} {ALICE}", props=("NONCE", "BALANCE"), slots="0x1"),
        Row("5", accounts=ALICE, header=("GAS_USED",)),
    )
    alice, bob = {"props": ["BALANCE", "NONCE"], "slots": ["0x1"]}, {"props": ["NONCE", "BALANCE"], "slots": ["0x1"]}
    assert document["data"] == {
        HERE: {"latest": {"accounts": {ALICE: alice, BOB: bob}}},
        "5": {"latest": {"accounts": {ALICE: {"props": ["BALANCE"]}}, "header": ["GAS_USED"]}},
    }


@pytest.mark.parametrize(
    ("typed", "wei"),
    [
        ("", "auto"),
        ("0", "0"),
        ("0.002", "2000000000000000"),
        ("1,000", "1000000000000000000000"),
        ("1,234,567.5", "1234567500000000000000000"),
        ("1.000000000000000001", "1000000000000000001"),
        (whole_units(2**256 - 1), str(2**256 - 1)),
        # What is no amount is refused as it is.
        ("much", "much"),
        ("0,0015", "0,0015"),
        ("0,015", "0,015"),
        ("1,00", "1,00"),
        ("1,0000", "1,0000"),
        ("1000,000", "1000,000"),
        ("1.500,25", "1.500,25"),
        ("1e3", "1e3"),
        ("0.0000000000000000001", "0.0000000000000000001"),
    ],
)
def test_a_fee_is_typed_in_whole_units(typed, wei):
    assert written(Row(HERE, accounts=ALICE), fee=typed)["fee"] == wei


def test_a_fault_of_the_fee_is_told_in_the_unit_in_which_it_is_typed(chains):
    for typed, said in (("0,0015", "must be an amount in ETH, such as 0.002"), ("9" * 60, "is too large.")):
        (sentence,) = shown(chains, Row(HERE, accounts=ALICE), fee=typed).by_field[None, "fee"]
        assert said in sentence
        assert "wei" not in sentence


@pytest.mark.parametrize("sender", ["evil", "", "Self"])
def test_the_service_pays_only_where_it_is_asked_to(chains, sender):
    assert faults(chains, Row(HERE, accounts=ALICE), sender=sender) == {(None, "sender"): ["The"]}


def test_who_pays_themselves_names_no_fee():
    document = written(Row(HERE, accounts=ALICE), fee="1", sender="self")
    assert (document["sender"], "fee" in document) == ("self", False)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Row("7", accounts=ALICE), {(0, "source"): ["It"]}),
        (Row(HERE, "block", block="-1", accounts=ALICE), {(0, "block"): ["A"]}),
        (Row(HERE, "block", accounts=ALICE), {(0, "block"): ["It"]}),
        (Row(HERE, "time", time="noon", accounts=ALICE), {(0, "time"): ["A"]}),
        (Row(HERE, "sometime", accounts=ALICE), {(0, "at"): ["A"]}),
        (Row(HERE), {(0, "accounts"): ["It"]}),
        (Row(HERE, props=()), {(0, "accounts"): ["It"]}),
        (Row(HERE, accounts=ALICE, props=()), {(0, "props"): ["Tick"]}),
        (Row(HERE, accounts=ALICE, props=("COLOUR",)), {(0, "props"): ["'COLOUR'"]}),
        (Row(HERE, accounts=ALICE, header=("COLOUR",)), {(0, "header"): ["'COLOUR'"]}),
        (Row(HERE, accounts=ALICE, slots="0x1\nxyz"), {(0, "slots"): ["Line"]}),
        (Row(HERE, accounts=f"{ALICE}\n{BOB}\n0x12"), {(0, "accounts"): ["Line"]}),
        (Row(HERE, accounts="x" * 30), {(0, "accounts"): [f"'{'x' * 30}'"]}),
        (Row(HERE, accounts="0/~" + "x" * 90), {(0, "accounts"): [f"'0/~{'x' * 76}…'"]}),
        (Row(HERE, accounts="vitalik.eth"), {(0, "accounts"): ["This"]}),
    ],
)
def test_a_fault_stands_at_the_field_that_it_is_about(chains, row, expected):
    assert faults(chains, row) == expected


def test_all_faults_are_told_each_in_its_row(chains):
    right = Row(HERE, accounts=ALICE)
    assert faults(chains, right, Row("5", accounts="0x1"), Row(HERE, "block", header=("X",)), destination="8") == {
        (None, "destination"): ["No"],
        (1, "accounts"): ["'0x1'"],
        (2, "block"): ["It"],
        (2, "header"): ["'X'"],
    }
    assert faults(chains, right, fee="much") == {(None, "fee"): ["The"]}


def test_of_many_faults_some_are_told_and_the_others_counted(chains):
    found = shown(chains, Row(HERE, accounts="\n".join(f"0x{n}" for n in range(200))))
    assert (len(found.listed), found.more, found.count) == (20, 180, 200)
    assert found.by_field[0, "accounts"][-1] == "And 195 more like these."


def test_more_than_a_batch_may_ever_name_is_not_multiplied_out():
    many = "\n".join(f"{number:x}" for number in range(5000))
    with pytest.raises(InvalidRequest, match="25005000 accounts, slots and headers are too many"):
        Draft(destination=HERE, rows=(Row(HERE, accounts=many, slots=many),)).request(1000)


@pytest.mark.parametrize(
    "row",
    [
        Row(HERE, accounts="a " * 50_000),
        Row(HERE, accounts=ALICE, slots="0 " * 50_000),
        Row(HERE, accounts="\n".join(f"{number:x}" for number in range(9000)), props=tuple("ABCDEFGHI")),
        Row(HERE, header=tuple(f"H{number}" for number in range(50_000))),
    ],
    ids=["accounts", "slots", "properties", "header"],
)
def test_nothing_is_made_of_more_than_can_be_right(row):
    with pytest.raises(InvalidRequest, match="are too many"):
        Draft(destination=HERE, rows=(row,)).request(10_000)


def test_what_is_typed_again_and_again_is_joined_once():
    draft = Draft(HERE, rows=(Row(HERE, accounts="a " * 15_000, slots=" ".join(map(str, range(8000)))),))
    began = time.process_time()
    request = draft.request(10_000)
    assert len(request.document["data"][HERE]["latest"]["accounts"]["a"]["slots"]) == 8000
    assert len(request.places(Fault(f"/data/{HERE}/latest/accounts/a", "", is_of_name=True))) == 15_000
    assert time.process_time() - began < 5


def test_many_faults_among_many_lines_are_told_at_once(chains):
    """Two million line breaks were looked through for each of them."""
    typed = "\n" * 2_000_000 + "\n".join(f"0x{n}" for n in range(1000))
    began = time.process_time()
    found = shown(chains, Row(HERE, accounts=typed))
    assert time.process_time() - began < 5
    assert found.by_field[0, "accounts"][0].startswith("Line 2000001: '0x0' is not")


def test_what_is_the_same_in_several_spellings_is_asked_for_and_counted_once(chains):
    rows = (
        Row(HERE, accounts=f"{ALICE}\n{ALICE.lower()}", slots="0 0x0 0x00\n0x0A"),
        Row(HERE, accounts=f"0x{ALICE[2:].upper()} {BOB}", slots="a 0xb", header=("TIMESTAMP",)),
        Row(HERE, header=("TIMESTAMP", "GAS_USED")),
    )
    draft = Draft(destination=HERE, rows=rows)
    request = draft.request(1000)
    assert request.document["data"][HERE]["latest"]["accounts"] == {
        ALICE: {"props": ["BALANCE"], "slots": ["0", "0x0A", "0xb"]},
        BOB: {"props": ["BALANCE"], "slots": ["a", "0xb"]},
    }
    parts = batch_request.parse(request.body, chains, max_queries=1000).parts()
    assert [(part.size, part.fields.bit_count()) for part in parts] == [(4, 1), (3, 1), (1, 2)]
    assert draft.facts == 4 + 3 + 2
    assert [row.facts for row in rows] == [3, 7, 2]
    assert draft.repeats_facts
    assert not Draft(destination=HERE, rows=rows[:1]).repeats_facts


def test_a_wrong_checksum_is_no_other_spelling(chains):
    wrong = ALICE[:-1] + ALICE[-1].swapcase() if ALICE[-1].isalpha() else ALICE.swapcase().replace("X", "x")
    assert faults(chains, Row(HERE, accounts=f"{ALICE}\n{wrong}")) == {(0, "accounts"): ["The"]}
    assert faults(chains, Row(HERE, accounts=f"{ALICE}\n{ALICE.lower()}\n{wrong[:-1]}")) == {(0, "accounts"): ["Line"]}


def test_a_stored_request_fills_the_form_in_and_comes_out_the_same(chains):
    alike = {"props": ["BALANCE", "NONCE"], "slots": ["0x1"]}
    document = {
        "destinationChainId": HERE,
        "fee": "2500000000000001",
        "data": {
            HERE: {
                "block:12": {
                    "accounts": {ALICE: alike, BOB: {"slots": ["0x2"]}, CHARLIE: alike},
                    "header": ["GAS_USED"],
                },
                "timestamp:1795176001": {"header": ["TIMESTAMP"]},
                "latest": {"accounts": {ALICE: {"props": ["NONCE"]}}},
            },
            "5": {"finalized": {"accounts": {ALICE: {"props": ["NONCE"]}}}},
        },
    }
    draft = drafts.of_document(document)
    assert [(row.selector, row.facts) for row in draft.rows] == [
        ("block:12", 7),
        ("block:12", 1),
        ("timestamp:1795176001", 1),
        ("latest", 1),
        ("finalized", 1),
    ]
    again = draft.request(1000)
    assert batch_request.parse(again.body, chains, max_queries=1000) == batch_request.parse(
        json.dumps(document).encode(), chains, max_queries=1000
    )
    own = {key: value for key, value in document.items() if key != "fee"} | {"sender": "self"}
    assert drafts.of_document(own).request(1000).document["sender"] == "self"


# --- Lists and tables -------------------------------------------------------------------------------------------------

LIKE = Row(HERE, "block", block="12", props=("NONCE",))
NAMES = {"other chain": "5"}


def read(text: str) -> pasted_rows.Pasted:
    return pasted_rows.read(text, LIKE, NAMES, 1000)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (f"{ALICE}\n\n{BOB}\n", [Row(HERE, "block", block="12", accounts=f"{ALICE}\n{BOB}", props=("NONCE",))]),
        (
            f"{ALICE},15,balance nonce\n{BOB},15,BALANCE|NONCE",
            [Row(HERE, "block", block="15", accounts=f"{ALICE}\n{BOB}", props=("BALANCE", "NONCE"))],
        ),
        (
            f"\ufeffChain;Account;Slot\nOther chain;{ALICE};0x1\n5;{BOB};0x1\n",
            [Row("5", "block", block="12", accounts=f"{ALICE}\n{BOB}", props=(), slots="0x1")],
        ),
        (
            f'address\tblock\theader\n{ALICE}\tlatest\t\n\t"2026-11-20 12:00"\tgas_used',
            [
                Row(HERE, accounts=ALICE, props=("NONCE",)),
                Row(HERE, "time", time="2026-11-20T12:00:00", props=(), header=("GAS_USED",)),
            ],
        ),
        (
            f"{ALICE}, {BOB},\n{CHARLIE}",
            [Row(HERE, "block", block="12", accounts=f"{ALICE}\n{BOB}\n{CHARLIE}", props=("NONCE",))],
        ),
        (
            f'{ALICE},,,"0x1\n0x2\r\n0x3"',
            [Row(HERE, "block", block="12", accounts=ALICE, props=(), slots="0x1\n0x2\n0x3")],
        ),
        (
            f"{ALICE},timestamp:1795176000\n{ALICE},block:7",
            [
                Row(HERE, "time", time="2026-11-20T12:00:00", accounts=ALICE, props=("NONCE",)),
                Row(HERE, "block", block="7", accounts=ALICE, props=("NONCE",)),
            ],
        ),
    ],
)
def test_lines_that_ask_the_same_share_a_row(text, rows):  # and what they leave out is as in `LIKE`
    pasted = read(text)
    assert (list(pasted.rows), pasted.faults) == (rows, ())


def test_rows_that_were_written_as_a_file_ask_the_same_again():
    rows = (
        Row(HERE, "block", block="1,2", accounts=f"{ALICE}\r\nbob.eth", slots="0x1\r\n0x2", header=("GAS_USED",)),
        Row("5", "time", time="2026-11-20T12:00:00", accounts=BOB, props=("NONCE", "BALANCE")),
        Row(HERE, "finalized", props=(), header=("TIMESTAMP", "GAS_USED")),
        Row(HERE, "latest", accounts=CHARLIE, props=(), slots="0x3"),
    )
    again = read("".join(pasted_rows.written(rows)))
    assert again.faults == ()
    assert written(*again.rows) == written(*rows)


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("", 0, "nothing in it"),
        (f"address,colour\n{ALICE},red", 1, "'colour' is no column"),
        ("address,block\n", 0, "nothing below the names"),
        ("\n" * 1001 + ALICE, 0, "more than 1,000 lines"),
        (f"{ALICE}\n{ALICE},{BOB},NONCE", 2, "another address. Put each address on a line of its own"),
        (f"{ALICE}\n{ALICE},1,BALANCE,0x1,GAS_USED,5,more", 2, "7 columns instead of at most 6"),
        (f"{ALICE}\n,15,BALANCE", 2, "no address"),
        (f'{ALICE}\n"{ALICE}', 0, "can't be read as CSV"),
        ("\n".join(f"{ALICE},{block}" for block in range(51)), 0, "51 different things"),
    ],
)
def test_what_is_no_table_is_said_by_the_line(text, line, sentence):
    (fault,) = read(text).faults
    assert fault.line == line
    assert sentence in fault.sentence


def test_a_fault_of_a_row_is_told_by_the_line_of_the_text():
    pasted = read(f"address,block\n{ALICE},1\n\n{BOB},2\n{CHARLIE},1")
    assert [pasted.line(row, line) for row, line in [(0, 1), (0, 2), (1, 1), (1, 0), (None, 0)]] == [2, 5, 4, 4, 0]
    # A line without accounts takes no place among those of accounts, and a cell may have several lines.
    pasted = read(f',1,,,GAS_USED\n{ALICE} {BOB},1,,,"GAS_USED\n"\n{CHARLIE},1,,,GAS_USED\n,2,,,GAS_USED')
    assert [pasted.line(0, line) for line in (1, 2, 3)] == [2, 2, 4]
    assert (pasted.line(1, 0), pasted.count) == (5, 4)


def test_below_a_row_about_a_header_alone_a_list_is_about_balances():
    like = Row(HERE, "block", block="12", props=(), header=("GAS_USED",))
    (row,) = pasted_rows.read(f"{ALICE}\n{BOB}", like, NAMES, 1000).rows
    assert row == Row(HERE, "block", block="12", accounts=f"{ALICE}\n{BOB}")
    (row,) = pasted_rows.read(ALICE, replace(like, slots="0x1"), NAMES, 1000).rows
    assert (row.props, row.slots) == ((), "0x1")
