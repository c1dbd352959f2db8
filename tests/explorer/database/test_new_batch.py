"""The form for a new batch. Its chain has a node only where a test estimates."""

import json
import re
from html import unescape
from typing import Any

import click
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, RequestFactory
from django.utils import timezone

from accounts.models import ApiKey, User
from batch_query_client.command_line.asked_in_files import BatchOptions, batch_body
from explorer.new_batch.forms import RowForm
from proving.models import ChainWatch
from queries import batch_states
from queries.columns import RejectionCode
from queries.models import Batch
from queries.waits import wait
from tests.explorer.batch_forms import faults_in, filled, form, post, request_of, values
from tests.explorer.batches import DEAD_NODE, TRANSACTION, batch_at, many_accounts, path
from tests.explorer.pages import text_of
from tests.golden_pages import compare
from tests.proving.logs import block_with_logs
from tests.proving.money import COSTLY, serve
from tests.service import (
    ACCOUNT_FIELDS,
    ALICE,
    BOB,
    CHARLIE,
    HEADER_FIELDS,
    chains_toml,
    request,
    secret_of,
    submit,
    work_until_done,
)

pytestmark = pytest.mark.django_db
HTMX = {"hx-request": "true"}
MAX_ROWS = 50


@pytest.fixture
def alice(key, alice) -> Client:
    """Return a client in which Alice is signed in and has a key."""
    signed_in: Client = alice
    return signed_in


def rejected() -> Batch:
    batch = batch_at(
        block_13={"accounts": {ALICE: {"slots": ["0x1"]}, BOB: {"slots": ["0x1"]}}, "header": ["GAS_USED"]}
    )
    reason = wait("too_many_hops", block=13, chain=31337, hops=4, origin=98_765, gas=1_060_000, most=2, way_out="")
    batch_states.reject([batch.pk], code=RejectionCode.BLOCK_TOO_OLD, reason=reason, retryable=False)
    return batch


POSTS = {
    "faults": form(
        {"accounts": f"{ALICE}\r\n0x12", "slots": "0x1\r\nxyz"},
        {"at": "block", "block": "twelve", "accounts": BOB, "props": [], "slot_key": "7"},
        fee="much",
        pasted="x,y",
        do="submit",
    ),
    "pasted": form({}, pasted=f"chain,block,address\n,15,{ALICE}\n,15,{BOB}\n,2026-11-20 12:00,{BOB}", do="paste"),
    "slot": form({"accounts": ALICE, "slots": "0x5", "slot_base": "1", "slot_key": BOB}, do="slot-0"),
}


@pytest.mark.parametrize("name", ["rejected", *POSTS])
def test_the_form_is_as_it_was(alice, name):
    answer = alice.post("/new-batch", POSTS[name]) if name in POSTS else alice.get(f"/new-batch?from={rejected().pk}")
    compare(answer.text, f"new-batch-{name}.html")


# --- Permissions ------------------------------------------------------------------------------------------------------


def test_a_refused_post_keeps_the_typed_values(alice, settings, monkeypatch):
    monkeypatch.setattr(RowForm, "clean", lambda _: pytest.fail("It is looked at for whoever sends it."))
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.for_address(BOB))
    settings.ALLOWED_ADDRESSES = [BOB]
    signed_out = "You are signed out."
    refused = ((Client(), 401, signed_out), (strict, 403, "from another site"), (alice, 401, signed_out))
    for sender, status, why in refused:
        for do in ("submit", "add", "estimate"):
            html = post(sender, do, {"accounts": ALICE}, status=status)
            assert why in html
            assert values(html, "accounts") == [ALICE]
            assert "do" not in filled(html)
        assert why in sender.post("/new-batch/estimate", form({"accounts": ALICE}), headers=HTMX).text
    # Reading a large form takes long, and anybody may post one.
    large = {"accounts": " ".join([ALICE] * 3200)}
    assert [ALICE in post(sender, "add", large, status=status) for sender, status, _ in refused] == [False, True, False]
    assert not Batch.objects.exists()
    assert Client().get("/new-batch?from=X").headers["Location"] == "/sign-in?next=/new-batch%3Ffrom%3DX"


@pytest.mark.parametrize(
    ("setting", "value", "status", "sentence"),
    [
        (
            "MAX_QUERIES_PER_BATCH",
            1,
            400,
            "2 accounts, slots, headers, transactions and logs are too many; a batch may name 1.",
        ),
        ("MAX_OPEN_BATCHES", 0, 403, "You may have 0 batches open at a time"),
        ("MAX_BATCHES_PER_MINUTE", 1, 429, "You may submit 1 batches a minute"),
        (None, None, 403, "You have no API key with full access."),
    ],
)
def test_limits_are_those_of_the_api(alice, settings, setting, value, status, sentence):
    if setting:
        setattr(settings, setting, value)
        post(alice, "submit", {"accounts": "0x12"}, status=400)  # counts toward the limit
    else:
        ApiKey.objects.update(revoked_at=timezone.now())
    assert sentence in post(alice, "submit", {"accounts": f"{ALICE}\n{BOB}"}, status=status)
    assert not Batch.objects.exists()


# --- The request ------------------------------------------------------------------------------------------------------


def test_a_submitted_form_makes_the_batch_that_the_api_would_make(alice):
    rows: tuple[dict[str, Any], ...] = (
        {"at": "block", "block": "1,2", "accounts": f"{ALICE}\r\n{BOB}, {ALICE.lower()}", "slots": "0xa 0xA"},
        {},
        {"at": "block", "block": "12", "accounts": ALICE.lower(), "props": ["NONCE"], "slots": "0xA"},
        {"at": "time", "time": "2026-11-20T13:00:00+01:00", "props": [], "header": ["GAS_USED", "TIMESTAMP"]},
    )
    others = {"fee": "0.5", "webhook": "https://93.184.215.14/?secret"}
    alice_asked, bob_asked = ({"props": props, "slots": ["0xa"]} for props in (["BALANCE", "NONCE"], ["BALANCE"]))
    assert request_of(alice, form(*rows, **others)) == {
        "destinationChainId": "31337",
        "fee": "500000000000000000",
        "data": {
            "31337": {
                "block:12": {"accounts": {ALICE: alice_asked, BOB: bob_asked}},
                "timestamp:1795176000": {"header": ["GAS_USED", "TIMESTAMP"]},
            }
        },
        "webhook": {"url": "https://93.184.215.14/?secret"},
    }
    # A double click or a retry sends the form twice, which makes only one batch.
    for _ in range(2):
        assert alice.post("/new-batch", form(*rows, **others) | {"do": "submit"}).url == path(Batch.objects.get())
    for other in ({"token": "another"}, {"fee": "1"}):
        alice.post("/new-batch", form(*rows, **others | other) | {"do": "submit"})
    assert [batch.size for batch in Batch.objects.all()] == [5] * 3


def test_questions_about_transactions_make_the_request_of_the_api(alice):
    upper = f"0x{TRANSACTION[2:].upper()}"
    rows: tuple[dict[str, Any], ...] = (
        {
            "at": "block",
            "block": "12",
            "transactions": f"{upper}\n5",
            "logs": "1 0 1",
            "block_logs": "7",
            "tx_props": [],
        },
        {"at": "block", "block": "12", "transactions": TRANSACTION, "tx_props": ["HASH"], "accounts": ALICE},
        {"at": "transaction", "block_of": upper, "transactions": "0", "tx_props": ["STATUS"], "header": ["GAS_USED"]},
    )
    of_both = {"logs": ["1", "0"], "blockLogs": ["7"]}
    assert request_of(alice, form(*rows))["data"]["31337"] == {
        "block:12": {
            "accounts": {ALICE: {"props": ["BALANCE"]}},
            "transactions": {upper: {"props": ["HASH"], **of_both}, "5": of_both},
        },
        f"transaction:{TRANSACTION}": {"transactions": {"0": {"props": ["STATUS"]}}, "header": ["GAS_USED"]},
    }
    assert ">10 facts<" in " ".join(alice.post("/new-batch/estimate", form(*rows), headers=HTMX).text.split())
    assert alice.post("/new-batch", form(*rows) | {"do": "submit"}).status_code == 303
    again = filled(alice.get(f"/new-batch?from={Batch.objects.get().pk}").text)
    assert request_of(alice, again)["data"] == request_of(alice, form(*rows))["data"]


DECIMAL = "must be a decimal string without sign or leading zeros, not"
NO_TRANSACTION = f"Name a transaction by its hash, or by its index in the block, which {DECIMAL} '0x12'."
NO_NUMBER = "A block number has decimal digits, such as 26,441,180."
NO_TIME = "Write a time after 1970 as 2026-11-20 12:00:00, in UTC."
NO_HASH = "The hash of a transaction is 0x and 64 hexadecimal digits."
NO_AMOUNT = "The fee cap is an amount such as 0.002 or 1500.25, with up to 18 decimal places."

ALL_KINDS = {
    "at": "block",
    "block": "12",
    "accounts": ALICE,
    "slots": "0x5",
    "transactions": "3",
    "logs": "0",
    "tx_props": ["STATUS"],
    "header": ["GAS_USED"],
    "token": BOB,
    "holder": ALICE,
}
OF_KINDS: dict[str, dict[str, Any]] = {
    "balance": {"accounts": {ALICE: {"props": ["BALANCE"]}}},
    "slot": {"accounts": {ALICE: {"slots": ["0x5"]}}},
    "event": {"transactions": {"3": {"props": ["STATUS"], "logs": ["0"]}}},
    "header": {"header": ["GAS_USED"]},
}
OF_ALL = {**OF_KINDS["event"], **OF_KINDS["header"], "accounts": {ALICE: {"props": ["BALANCE"], "slots": ["0x5"]}}}


@pytest.mark.parametrize(("kind", "asked"), [*OF_KINDS.items(), ("several", OF_ALL), ("", OF_ALL)])
def test_a_row_asks_for_what_it_is_said_to_prove_and_keeps_the_rest_as_it_was_typed(alice, kind, asked):
    assert request_of(alice, form(ALL_KINDS | {"kind": kind}))["data"]["31337"] == {"block:12": asked}
    html = post(alice, "add", ALL_KINDS | {"kind": kind})
    kept = filled(html)
    assert [kept[f"rows-0-{name}"] for name in ("accounts", "slots", "logs", "header")] == [
        [ALICE],
        ["0x5"],
        ["0"],
        ["GAS_USED"],
    ]
    assert kept["rows-0-kind"] == [kind or "several"]
    assert ('value="several"' in html) is (kind in {"", "several"})
    # A further row proves the same kind of things.
    assert kept["rows-1-kind"] == [kind if kind in OF_KINDS else "balance"]


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({}, "balance"),
        ({"accounts": ALICE}, "balance"),
        ({"accounts": ALICE, "props": []}, "balance"),
        ({"accounts": ALICE, "slots": "1", "props": []}, "slot"),
        ({"accounts": ALICE, "slots": "1"}, "several"),
        ({"transactions": "1"}, "event"),
        ({"block_logs": "1"}, "event"),
        ({"header": ["NONCE"]}, "header"),
        ({"transactions": "1", "header": ["NONCE"]}, "several"),
    ],
)
def test_a_form_without_a_choice_shows_what_its_fields_are_about(alice, row, kind):
    assert filled(post(alice, "add", row))["rows-0-kind"] == [kind]


@pytest.mark.parametrize(
    ("row", "control", "sentence"),
    [
        ({"kind": "tokens"}, "kind_0", "Select a valid choice. tokens is not one of the available choices."),
        ({"kind": "slot"}, "slots", "Name a slot."),
        ({"kind": "event", "accounts": ""}, "transactions", "It is empty."),
        ({"kind": "header", "accounts": ""}, "header_0", "It is empty."),
        ({"kind": "token", "accounts": ""}, "token", "It is empty."),
        ({"kind": "token", "token": BOB}, "holder", "It is empty."),
        ({"kind": "votes", "holder": BOB}, "token", "It is empty."),
        ({"kind": "event", "at": "transaction", "transactions": "1"}, "block_of", NO_HASH),
    ],
)
def test_a_fault_stands_at_a_field_that_the_choice_shows(alice, row, control, sentence):
    html = post(alice, "submit", {"accounts": ALICE, "tx_props": ["HASH"]} | row, status=400)
    assert faults_in(html) == [(f"id_rows-0-{control}", sentence)]


def test_a_transaction_is_named_once(alice):
    other = f"0x{'cd' * 32}"
    asked = {"props": ["HASH"]}
    own = {f"transaction:{name}": {"transactions": {name: asked}} for name in (TRANSACTION, other)}
    row = {"kind": "event", "transactions": f"{TRANSACTION} {other}", "tx_props": ["HASH"]}
    # Latest is what a browser without scripts sends.
    for at in ("transaction", "latest", "finalized"):
        assert request_of(alice, form(row | {"at": at}))["data"]["31337"] == own
    numbered = request_of(alice, form(row | {"at": "block", "block": "12"}))["data"]["31337"]
    assert numbered == {"block:12": {"transactions": {TRANSACTION: asked, other: asked}}}
    at_latest = request_of(alice, form(row | {"transactions": f"{TRANSACTION} 5"}))["data"]["31337"]
    assert at_latest == {"latest": {"transactions": {"5": asked}}} | dict([*own.items()][:1])
    html = post(alice, "submit", row | {"logs": "70000"}, status=400)
    assert "blocks of the transactions" in text_of(html)
    assert faults_in(html) == [("id_rows-0-logs", "The index of a log is too large: '70000'.")]
    assert post(alice, "submit", row | {"at": "transaction"}, status=303) == ""
    again = filled(alice.get(f"/new-batch?from={Batch.objects.get().pk}").text)
    assert [again[f"rows-{at}-block_of"] for at in range(2)] == [[""], [""]]
    assert request_of(alice, again)["data"]["31337"] == own
    pasted = post(alice, "paste", {}, pasted=f"tx,log\n{TRANSACTION},0\n")
    assert (values(pasted, "block_of"), values(pasted, "transactions")) == ([""], [TRANSACTION])


def test_pasted_lines_take_nothing_from_what_a_row_hides(alice):
    row = {"kind": "token", "token": BOB, "holder": ALICE, "slots": "0x5", "accounts": BOB, "header": ["NONCE"]}
    html = post(alice, "paste", row, pasted=f"{B}\n")
    lines = {name: value for name, value in filled(html).items() if not name.startswith("rows-0-")}
    asked = request_of(alice, {name.replace("rows-1-", "rows-0-"): value for name, value in lines.items()})
    assert asked["data"]["31337"] == {"latest": {"accounts": {B: {"props": ["BALANCE"]}}}}


@pytest.mark.parametrize(
    ("typed", "wei"),
    [("", "auto"), ("0", "0"), ("1.000000000000000001", str(10**18 + 1)), ("1500", str(1500 * 10**18))],
)
def test_a_fee_is_typed_in_whole_units(alice, typed, wei):
    assert request_of(alice, form({"accounts": ALICE}, fee=typed))["fee"] == wei
    assert "fee" not in request_of(alice, form({"accounts": ALICE}, fee="much", sender="self"))


@pytest.mark.parametrize(
    ("row", "control", "sentence"),
    [
        ({"source": "7"}, "source", "This chain can't be proven on the destination that you chose."),
        ({"at": "block", "block": "-1"}, "block", NO_NUMBER),
        ({"at": "block"}, "block", NO_NUMBER),
        *(({"at": "time", "time": time}, "time", NO_TIME) for time in ("noon", "5", "", "1960-01-01")),
        ({"at": "sometime"}, "at_0", "Select a valid choice. sometime is not one of the available choices."),
        ({"accounts": ""}, "accounts", "Name an account or a transaction, or tick a header field."),
        ({"accounts": "", "slots": "1", "header": ["TIMESTAMP"]}, "accounts", "It is empty."),
        ({"props": []}, "props_0", "Tick a property, or name a slot."),
        ({"at": "transaction", "block_of": "0x12"}, "block_of", NO_HASH),
        ({"at": "transaction"}, "block_of", NO_HASH),
        ({"logs": "1"}, "transactions", "It is empty."),
        ({"transactions": "1"}, "tx_props_0", "Tick a property, or name a log."),
        ({"transactions": "1 0x12", "logs": "1"}, "transactions", NO_TRANSACTION),
        (
            {"transactions": "1", "block_logs": "1 -1"},
            "block_logs",
            f"The index of a log {DECIMAL} '-1'.",
        ),
        ({"transactions": "65535", "logs": "65535 65536"}, "logs", "The index of a log is too large: '65536'."),
        ({"slots": "xyz"}, "slots", "A storage slot is up to 64 hexadecimal digits, not 'xyz'."),
        ({"slots": '{"slot": "1", "keys": []}'}, "slots", "'keys' is empty: nothing to prove."),
        (
            {"slots": '{"slot": "1", "keys": ["1"]'},
            "slots",
            'A storage slot is up to 64 hexadecimal digits, not \'{"slot": "1", "keys": ["1"]\'.',
        ),
        (
            {"accounts": "vitalik.eth"},
            "accounts",
            "This service resolves no names, so send the address of 'vitalik.eth'.",
        ),
        ({"accounts": f"{ALICE}\0"}, "accounts", "Null characters are not allowed."),
        *(({"fee": fee}, "id_fee", NO_AMOUNT) for fee in ("0,015", "-1", ".", "0.0000000000000000001", "much")),
        *(({"fee": fee}, "id_fee", NO_AMOUNT) for fee in ("1e99999999", "9" * 5000, "9" * 61)),
        (
            {"webhook": "http://x"},
            "id_webhook",
            "The name in a webhook's URL must be a full one, such as hooks.example.org.",
        ),
        ({"destination": "8"}, "id_destination", "This service can't make facts readable on this chain."),
    ],
)
def test_a_fault_stands_at_the_field_that_it_is_about(alice, row, control, sentence):
    others = {name: row[name] for name in row.keys() & {"fee", "webhook", "destination"}}
    control = control if others else f"id_rows-1-{control}"
    rows = [{}, {"accounts": ALICE, **row}] if row.get("accounts") != "" or row.get("slots") else [row]
    html = post(alice, "submit", *rows, status=400, **others)
    assert faults_in(html) == [(control.replace("rows-1", f"rows-{len(rows) - 1}"), sentence)]


def test_a_fault_stands_at_the_row_that_spells_the_account_otherwise(alice):
    html = post(alice, "submit", {"accounts": ALICE}, {"accounts": ALICE.lower(), "slots": "xyz"}, status=400)
    assert [control for control, _ in faults_in(html)] == ["id_rows-1-slots"]


@pytest.mark.parametrize("do", ["submit", "estimate"])
def test_blocks_and_times_far_above_the_stored_head_are_refused_at_their_fields(alice, do):
    ChainWatch.objects.create(chain_id=31337, number=100, timestamp=5, seen_at=timezone.now())
    block, time = {"at": "block", "block": "99,999,999"}, {"at": "time", "time": "2999-01-01 00:00:00"}
    html = post(alice, do, *({"accounts": ALICE} | at for at in (block, time, {})), status=422)
    (at_block, why), (at_time, sentence) = faults_in(html)
    assert (at_block, at_time) == ("id_rows-0-block", "id_rows-1-time")
    assert why.startswith("Block 99,999,999 of Development chain is 99,999,899 blocks above the newest one, 100. ")
    assert sentence.endswith(
        " s after the newest block of Development chain. Send the batch again when the time is nearer."
    )
    assert not Batch.objects.exists()


@pytest.mark.long
def test_of_many_faults_some_are_told_and_the_others_counted(alice):
    html = post(alice, "submit", {"accounts": "\n".join(f"0x{n}" for n in range(200))}, status=400)
    assert faults_in(html)[0] == ("", "There are 180 more faults like these.")
    assert len(faults_in(html)) == 21
    html = post(alice, "submit", *[{"accounts": "0x12", "slots": "xyz"}] * 51, status=400)
    assert [control for control, _ in faults_in(html)] == ["id_rows-0-accounts", "id_rows-0-slots", ""]
    assert text_of(html).count("Row 1 and 49 more, ") == 2
    assert "The form holds 50 rows. A row holds any number of accounts." in html


@pytest.mark.long
def test_the_largest_forms_are_taken(alice, settings):
    settings.CONFIRM_ABOVE_QUERIES = 10_000
    row = {"props": ACCOUNT_FIELDS, "header": HEADER_FIELDS, "slot_base": "0", "slot_key": "0"}
    html = post(alice, "add", *(row | {"accounts": account} for account in many_accounts(MAX_ROWS)))
    assert "The form holds 50 rows." in html
    assert values(html, "accounts") == list(many_accounts(MAX_ROWS))
    html = post(alice, "paste", {}, pasted="\n".join(many_accounts(10_000)))
    assert (html.count('<details class="ask'), len(html) < 600_000) == (1, True)
    post(alice, "submit", {"accounts": values(html, "accounts")[0]}, status=303)
    assert Batch.objects.get().size == 10_000
    for size, kept in ((1, 1), (2**22 + 1, 0)):  # larger files are not written to disk
        sent = RequestFactory().post("/new-batch", {"file": SimpleUploadedFile("x", bytes(size))})
        assert len(sent.FILES) == kept


# --- Lists, tables, slots ---------------------------------------------------------------------------------------------

B = "0x" + "bb" * 20
# The text, and how many facts it asks for.
FILES = {
    "a list": (f"{ALICE}\n\n{B}\n", 2),
    "several on a line": (f"{ALICE}, {B}\n", 2),
    "a list of a spreadsheet": (f'\ufeff"{ALICE}";;\r\n;;\r\n{B};;\r\n', 2),
    "a list with comments": (f'# by hand, "5"\n#\n{ALICE}\n# {B}\n', 1),
    "one column with its name": (f"address\n{ALICE}\n{B}\n", 2),
    "named": (
        f"Chain,Block,Account,Props,Slots,Header\n,finalized,{ALICE} {B},BALANCE,,\n31337,1_000,,,,timestamp\n",
        3,
    ),
    "of a spreadsheet": (f"\ufeffaddress;chain;block\r\n{ALICE};31337;2026-01-01 00:00\r\n", 1),
    "tabs": (f"block\taddress\n2026-01-01T00:00:00Z\t{ALICE}\nblock:16\t{B}\ntimestamp:5\t{B}\n", 3),
    "quoted": (f'address,slots\n"{ALICE}\n{B}","1, 2"\n', 4),
    "empty columns behind": (f"address,block,,\n{ALICE},16,,\n{B},17\n", 2),
    "empty columns behind, with tabs": (f"address\tblock\t\n{ALICE}\t16\t\t\t\n", 1),
    "a spreadsheet's numbered lines": (f",address,block\n,{ALICE},16\n", 1),
    "a hint": (f"sep=;\r\naddress;block\r\n{ALICE};16\r\n", 1),
    "a quoted hint, saved again": (f'\ufeff\n"SEP=;",,\naddress,block,\n{ALICE},16,\n', 1),
    "a hint of another delimiter": (f"sep=|\naddress|block|properties\n{ALICE}|1,600|BALANCE,NONCE\n", 2),
    "comments": (f'# by hand, "5"\n\nAddress;Block\n# B;\n{ALICE};16\n', 1),
    "grouped digits": (f"address;block\n{ALICE}\u00a0;19\u202f000\u00a0000\n{B};19'000'000\n", 2),
    "decimals of a spreadsheet": (
        f"address,chain,block,slots,logs,tx\n{ALICE},31337.0,16.0,5.0 6,,\n,,16.0,,2.0,3.0\n",
        3,
    ),
    "zeros behind a decimal point": (f"address,block\n{ALICE},16.00\n", 1),
    "invisible characters": (f"address,block\n\u200b{ALICE}\u200b,16\u2060\n\u202a{B}\u202c,\u00ad17\n", 2),
    "apostrophes before text": (f"address,block\n'{ALICE},'16\n", 1),
    "apostrophes in a list": (f"'{ALICE}\n'{B}\u200b\n", 2),
    "accounts and blocks alone": (f"address,block\n{ALICE},16\n{B},17\n", 2),
    "returns alone": (f"address,block\r{ALICE},16\r", 1),
    "two spellings": (f"address,block,props\n{ALICE},16,BALANCE\n{ALICE.lower()},16,NONCE\n", 2),
    "transactions": (f"tx,block,props,log\n{TRANSACTION},16,status,0 1\n3 4,16,,\n5,transaction:{TRANSACTION},,2\n", 6),
    "a hash that names its block": (f"transaction,logs\n{TRANSACTION},\n{TRANSACTION},1\n", 2),
    "transactions and accounts": (f"tx,block,props,address\n5,16,nonce HASH,{ALICE}\n6,16,,{B}\n", 4),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_asks_for_the_same_here_and_on_the_command_line(alice, tmp_path, name):
    """The form and `bqs` fill in the same defaults."""
    text, count = FILES[name]
    file = SimpleUploadedFile("asked.csv", text.encode())
    html = post(alice, "paste", {"at": "block", "block": "15"}, file=file)
    parts = of_all(request_of(alice, filled(html)))
    assert len(parts) == count
    assert parts == of_all(asked_there(tmp_path, text.encode()))
    assert {fact[1] for fact in parts if len(fact) == 3} <= {ALICE, B, TRANSACTION, "3", "4", "5", "6"}


def test_a_file_may_ask_for_transactions(alice):
    lines = (
        "tx,block,props,log,address",
        f"{TRANSACTION},16,status,0 1,",
        "3,16,status,0 1,",
        f"4,transaction:{TRANSACTION},,,",
        f"{TRANSACTION},,hash,,",
        f",16,,,{ALICE}",
        "6,16,,,",
        f"5,16,nonce HASH,,{ALICE}",
    )
    html = post(alice, "paste", {"at": "block", "block": "15"}, pasted="\n".join(lines))
    logs = {"props": ["STATUS"], "logs": ["0", "1"]}
    assert request_of(alice, filled(html))["data"]["31337"] == {
        "block:16": {
            "transactions": {TRANSACTION: logs, "3": logs, "6": {"props": ["STATUS"]}, "5": {"props": ["HASH"]}},
            "accounts": {ALICE: {"props": ["BALANCE", "NONCE"]}},
        },
        f"transaction:{TRANSACTION}": {
            "transactions": {"4": {"props": ["STATUS"]}, TRANSACTION: {"props": ["HASH"]}},
        },
    }


def asked_there(tmp_path, content: bytes) -> Any:
    """Return the request that `bqs` makes of the file."""
    (tmp_path / "asked.csv").write_bytes(content)
    options: Any = dict.fromkeys(BatchOptions.__dataclass_fields__)
    options |= dict.fromkeys(("accounts", "props", "slots", "transactions", "logs", "block_logs", "header"), ())
    options |= {"file": str(tmp_path / "asked.csv"), "destination": 31337, "chain": 31337, "block": "15"}
    return batch_body(BatchOptions(**options), lambda: {"development chain": 31337}).document


NO_COLUMNS = "A table's first line names its columns: address, "
NO_ACCOUNT = "Neither an address, which begins with 0x, nor a name: "
# The lines that are told, and the beginning of a sentence about the first of them.
WRONG_LINES: dict[str, tuple[str | bytes, str, str]] = {
    "a banner": (f"Holders\n\nAddress,Block\n{ALICE},16\n", "1 3 4", f"{NO_ACCOUNT}'Holders'. {NO_COLUMNS}"),
    "no names of columns": (f"{ALICE},15,BALANCE\n{B}\n", "1", f"{NO_ACCOUNT}'15', 'BALANCE'. {NO_COLUMNS}"),
    "a day and digits that are no groups": (
        f"address,block\n{ALICE},20 11 2026\n{B},12'30\n",
        "2 3",
        "'20 11 2026' is not a block. Name it by its number in digits alone, by a time such as ",
    ),
    "a spreadsheet's decimal": (
        f"address,block\n{ALICE},5.5\n",
        "2",
        "'5.5' is not a block. Name it by its number in ",
    ),
    "a chain before an address": (
        f"address\neth:{ALICE}\nethereum:{ALICE}@1\n",
        "2 3",
        "Name the address alone, from 0x on, and its chain in the column chain: ",
    ),
    "rounded numbers": (
        f"address,block,slots\n{ALICE},1.6E+05,\n{ALICE},16,1E+05\n{ALICE},16,1.23457E17\n",
        "2 3 4",
        "A spreadsheet has rounded '1.6E+05'. Format its cells as text, and enter all digits again.",
    ),
    "rounded numbers of other countries": (
        f"tx;logs\n{TRANSACTION};1,23457E+17\n",
        "2",
        "A spreadsheet has rounded '1,23457E+17'.",
    ),
    "a cell behind the columns": (
        f"address,block,\n{ALICE},16,x\n{B},16,,x\n",
        "2 3",
        "Some cells have no column: 'x'.",
    ),
    "a cell without a name": (f",address,block\n0,{ALICE},16\n,{B},17\n", "2", "Some cells have no column: '0'."),
    "no column": (f"address,balance,usd\n{ALICE},1,2\n", "1", "Not a column: 'balance', 'usd'. The columns are "),
    "a column twice": (f"address,account\n{ALICE},{B}\n", "1", "The first line names the column address twice."),
    "the names of an explorer": (f'"HolderAddress","Balance"\n"{ALICE}","5171.25"\n', "1 2", NO_ACCOUNT),
    "names once more": (f"address,block\n{ALICE},16\naddress,block\n{B},block:\n", "3 4", NO_ACCOUNT),
    "no subject": (f"address,block\n{ALICE},16\n,15\n", "3", "It has no address."),
    "a line behind": (f"{ALICE}\n{B}\nTotal: 2 holders.\n", "3", NO_ACCOUNT),
    "a log without a number": (f"tx,log\n{TRANSACTION},one\n", "2", "The index of a log "),
    "lines after breaks in a cell": (
        f'\nsep=;\naddress;block\n"{ALICE}\n{B}";soon\n{B};noon\n',
        "4 6",
        "'soon' is not a block.",
    ),
    "a quotation mark": (f'sep=,\naddress\n"{B}\n\n\n', "3", "This is not valid CSV: check the quotation marks."),
    "a spreadsheet": (
        b"PK\x03\x04\x14\0",
        "",
        "The file is a spreadsheet, such as .xlsx. In that program, save the file as ",
    ),
    "UTF-16": (f"address\n{ALICE}".encode("utf-16"), "", "The file is not UTF-8 text. In a spreadsheet, save it as "),
    "UTF-16 without its mark": (f"address\n{ALICE}".encode("utf-16-le"), "", "The file is not UTF-8 text. "),
    "another code": (b"\xc4ddress\n", "", "The file is not UTF-8 text. In a spreadsheet, save it as “CSV UTF-8”."),
    "nothing": (b"address,block\n", "", "No line "),
}


@pytest.mark.parametrize("name", WRONG_LINES)
def test_a_file_is_refused_for_the_same_lines_here_and_on_the_command_line(alice, tmp_path, name):
    given, lines, sentence = WRONG_LINES[name]
    content = given.encode() if isinstance(given, str) else given
    html = post(alice, "paste", {}, file=SimpleUploadedFile("asked.csv", content), status=400)
    told = [told for _, told in faults_in(html)]
    with pytest.raises(click.UsageError) as refused:
        asked_there(tmp_path, content)
    for sentences in (told, refused.value.message.removeprefix("The file has faults:\n").split("\n")):
        named = [numbers for told in sentences for numbers in re.findall(r"^(?:  line|Line)s? ([\d, ]*\d):", told)]
        assert list(dict.fromkeys(", ".join(named).split(", "))) == (lines.split() or [""])
        assert any(re.sub(r"^ *(?:line|Line)s? [^:]*: ", "", told).startswith(sentence) for told in sentences)


def test_a_pasted_spreadsheet_is_refused_as_a_file_is(alice):
    html = post(alice, "paste", {}, pasted="PK\x03\x04\x14\x06", status=400)
    ((_, told),) = faults_in(html)
    assert told.startswith("Line 1: The file is a spreadsheet, such as .xlsx. In that program, save the file as ")


def test_pasted_lines_keep_a_faulty_selector_of_the_form_for_later_correction(alice):
    html = post(alice, "paste", {"at": "block", "block": "soon"}, pasted=f"{ALICE}\n{B}\n")
    assert (values(html, "accounts"), values(html, "block")) == ([f"{ALICE}\n{B}"], ["soon"])


def of_all(request: Any) -> set[tuple[object, ...]]:
    """Return all parts of a request, whatever its spelling is."""
    parts: set[tuple[object, ...]] = set()
    for at, block in request["data"]["31337"].items():
        parts |= {(at, name) for name in block.get("header", ())}
        for account, entry in block.get("accounts", {}).items():
            parts |= {(at, account, name) for name in entry.get("props", ())}
            parts |= {(at, account, int(slot, 16)) for slot in entry.get("slots", ())}
        for name, entry in block.get("transactions", {}).items():
            parts |= {(at, name, fact) for fact in (*entry.get("props", ()), *entry.get("logs", ()))}
    return parts


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "No line has an account, a transaction or a header field."),
        (f"tx,log\n{TRANSACTION},one", "Line 2: The index of a log must be a decimal string without sign "),
        (f"tx,block\n{TRANSACTION}1,1", "Line 2: Name a transaction by its hash, or by its index in the "),
        (
            f"tx,props\n{TRANSACTION},BALANCE",
            "Line 2: 'BALANCE' must be 'STATUS', 'TYPE', 'CUMULATIVE_GAS_USED', 'LOG_COUNT' or 'HASH'.",
        ),
        (f"address,props\n{ALICE},STATUS", "Line 2: 'STATUS' must be 'NONCE', "),
        (f"address,block\n{ALICE},transaction:0x12", "Line 2: 'transaction:0x12' is not a block."),
        (f"address,block\n{ALICE},transaction:5", "Line 2: 'transaction:5' is not a block."),
        (f"address,props\n{ALICE},BALANCE NONCEE", "Line 2: 'NONCEE' must be 'NONCE', "),
        ("header\nGAS", "Line 2: 'GAS' must be 'PARENT_HASH', "),
        (
            "address,block\n" + "\n".join(f"{ALICE},{block}" for block in range(51)),
            "It has 51 different blocks or facts.",
        ),
        (
            "address,block\n" + "\n".join(f"{ALICE},{block}" for block in range(50)),
            "The form would have 51 rows, and it holds 50.",
        ),
        ("a\n" * 10_001, "It has more than 10,000 lines."),
    ],
)
def test_pasted_text_that_is_no_table_is_refused_and_adds_nothing(alice, text, sentence):
    html = post(alice, "paste", {"accounts": ALICE}, status=400, pasted=text)
    ((control, shown_fault),) = faults_in(html)
    assert (control, shown_fault[: len(sentence)]) == ("id_pasted", sentence)
    assert (values(html, "accounts"), values(html, "pasted")) == ([ALICE], [text])


@pytest.mark.parametrize(
    ("kind", "words", "keys"),
    [
        ("mapping", f"{ALICE.lower()} -7", [ALICE.lower(), "-7"]),
        ("string", 'a "b", {c}', [{"key": 'a "b", {c}', "type": "string"}]),
        ("array", "7", [{"index": "7"}]),
    ],
)
def test_the_slot_of_a_value_is_named_as_the_api_names_it(alice, key, kind, words, keys):
    row = {"accounts": ALICE, "slots": "0x5", "slot_of": kind, "slot_layout": "vyper", "slot_key": words}
    (slots,) = values(post(alice, "slot-0", row | {"slot_base": "10"}), "slots")
    name = {"slot": "0xa", "keys": keys, "layout": "vyper"}
    assert (slots.split("\n")[0], json.loads(slots.split("\n")[1])) == ("0x5", name)
    post(alice, "submit", {"accounts": ALICE, "slots": slots + "\n" + slots}, status=303)
    batch = Batch.objects.get()
    assert json.loads(batch.request)["data"]["31337"]["latest"]["accounts"][ALICE]["slots"] == ["0x5", name]
    assert values(alice.get(f"/new-batch?from={batch.pk}").text, "slots") == [slots]
    for wrong, field in (({"slot_base": "-1"}, "slot_base"), ({"slot_key": "1.0"}, "slot_key")):
        fault = {"slot_base": "10", "slot_of": "array"} | wrong
        html = post(alice, "slot-0", row | fault, status=400)
        assert [control for control, _ in faults_in(html)] == [f"id_rows-0-{field}"]


@pytest.mark.parametrize(
    "text", ["\u2028\u2029\x85\v", "a" * 1024, "\x01" * 1024, "[" * 100], ids=("lines", "long", "escapes", "brackets")
)
def test_a_name_that_the_api_takes_comes_back_to_the_form(alice, key, text):
    name = {"slot": "0x1", "keys": [{"key": text, "type": "string"}] * 16}
    batch = batch_at(block_12={"accounts": {ALICE: {"slots": [name]}}})
    again = request_of(alice, filled(alice.get(f"/new-batch?from={batch.pk}").text))
    assert again["data"]["31337"]["block:12"]["accounts"][ALICE]["slots"] == [name]


NAME = '{"slot": "1", "keys": ["1"]'


@pytest.mark.parametrize(
    ("do", "row", "control", "sentence"),
    [
        ("json", {"slots": NAME + ', "slot": "2"}'}, "slots", "The key 'slot' appears twice in one object."),
        ("json", {"slots": NAME + " " * 200_000 + "}"}, "slots", "The name of a slot has at most "),
        ("submit", {"slots": "{" + "[" * 65}, "slots", "A storage slot is up to 64 hexadecimal digits"),
        (
            "json",
            {"accounts": "\n".join(map("0x{:040x}".format, range(50))), "slots": NAME + " " * 90_000 + "}"},
            "",
            "The slot names have more than 4,194,304",
        ),
        *(
            ("slot-0", {"slot_base": base, "slot_key": "1"}, "slot_base", "This slot is a number below 2^256")
            for base in ("0b11", "1_0", "\u0661", "")
        ),
        ("slot-0", {"slot_base": "1"}, "slot_key", "'keys' is empty: nothing to prove."),
        ("slot-0", {"slot_base": "1", "slot_key": "1 " * 17}, "slot_key", "'keys' has more than 16 entries."),
    ],
)
def test_names_that_the_api_would_refuse_are_refused_with_a_sentence(alice, do, row, control, sentence):
    html = post(alice, do, {"accounts": ALICE, "slot_of": "mapping"} | row, status=400)
    ((where, shown_fault),) = faults_in(html)
    assert (where, shown_fault[: len(sentence)]) == (control and f"id_rows-0-{control}", sentence)


# --- Confirmation -----------------------------------------------------------------------------------------------------


def submitted(client: Client, do: str, *rows: dict[str, Any], **others: Any) -> tuple[str, str]:
    """Return the sentence that asks once more and the value of its button, or else the new batch's address."""
    answer = client.post("/new-batch", form(*rows, **others) | {"do": do})
    if answer.status_code == 303:
        return "", answer.headers["Location"]
    asked = re.search(r"yet.</strong>(.*?)</p>\s*<p><button name=\"do\" value=\"(submit-\w+)\"", answer.text, re.DOTALL)
    assert answer.status_code == 200, answer.text
    assert asked, answer.text
    assert values(answer.text, "accounts") == [row["accounts"].replace("\n", "\r\n") for row in rows]
    assert filled(answer.text)["token"] == ["a-token"]
    return " ".join(asked[1].split()), asked[2]


@pytest.mark.long
def test_a_batch_above_the_operator_s_limits_is_confirmed_once(chain, alice, settings, tmp_path):
    serve(settings, tmp_path, chain)
    settings.CONFIRM_ABOVE_QUERIES, settings.CONFIRM_ABOVE_WEI = 2, 10**18
    two, three = ({"accounts": " ".join(accounts)} for accounts in ([ALICE, BOB], [ALICE, BOB, CHARLIE]))
    sentence, confirm = submitted(alice, "submit", three)
    assert re.fullmatch(r"This batch has 3 queries. It costs at most 0\.0\d+ ETH.", sentence)
    assert submitted(alice, confirm, two | {"header": ["GAS_USED"]}) != submitted(alice, "submit", three)
    assert not Batch.objects.exists()
    for _ in range(2):  # posted twice
        assert submitted(alice, confirm, three) == ("", path(Batch.objects.get()))
    assert submitted(alice, "submit", two)[0] == ""
    settings.CONFIRM_ABOVE_WEI, one = 10**9, {"accounts": ALICE}
    sentence, confirm = submitted(alice, "submit", one)
    assert "has 1 query. It costs at most 0.0" in sentence
    stored = Batch.objects.count()
    for do, others in ((confirm, {}), ("submit", {"fee": "0.000000001"}), ("submit", {"sender": "self"})):
        assert submitted(alice, do, one, **others)[0] == ""
    assert Batch.objects.count() == stored + 3


def test_only_the_size_is_asked_about_while_nodes_are_down(alice, settings, tmp_path):
    settings.CHAINS_FILE, settings.ALLOWED_ADDRESSES = chains_toml(tmp_path, DEAD_NODE, chain=COSTLY), ["*"]
    settings.CONFIRM_ABOVE_QUERIES, settings.CONFIRM_ABOVE_WEI = 1, 0
    assert submitted(alice, "submit", {"accounts": ALICE})[0] == ""
    sentence, confirm = submitted(alice, "submit", {"accounts": f"{ALICE} {BOB}"})
    assert sentence == "This batch has 2 queries. Its cost can't be estimated now."
    assert submitted(alice, confirm, {"accounts": f"{ALICE} {BOB}"})[0] == ""


@pytest.mark.long
def test_a_form_without_estimates_left_submits_nothing_unasked(chain, alice, settings, tmp_path):
    serve(settings, tmp_path, chain)
    settings.CONFIRM_ABOVE_WEI, settings.MAX_QUERIES_PER_BATCH, settings.MAX_QUERIES_PER_MINUTE = 10**9, 3, 3
    two = {"accounts": f"{ALICE} {BOB}"}
    assert "It costs at most 0.0" in submitted(alice, "submit", two)[0]
    assert alice.post("/new-batch", form(two) | {"do": "submit"}).status_code == 429
    assert not Batch.objects.exists()


def test_a_read_only_key_submits_nothing_and_takes_no_room_of_its_owner(alice, key, settings):
    settings.MAX_BATCHES_PER_MINUTE, row = 2, {"accounts": ALICE, "at": "block", "block": "3"}
    type(key).objects.update(access="read")
    program, address = Client(headers={"api-key": secret_of(key)}), "/estimate-batch-query"
    answers = [program.post(address, {}, content_type="application/json").status_code for _ in range(3)]
    assert answers == [400, 400, 429]
    assert alice.post("/new-batch", form(row) | {"do": "submit"}).status_code == 403
    type(key).objects.update(access="full")
    assert submitted(alice, "submit", row) == ("", path(Batch.objects.get()))


# --- Estimates --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_estimate_is_that_of_the_api_and_knows_what_is_proven(service, alice, key):
    row = {"at": "block", "block": str(service.head()), "accounts": f"{ALICE}\n{BOB}"}
    rows = (row, {"accounts": ALICE}, {"at": "block", "block": "99", "accounts": ALICE})
    told = " ".join(alice.post("/new-batch/estimate", form(row), headers=HTMX).text.split())
    body = request_of(alice, form(row))
    api = alice.post(
        "/estimate-batch-query", body, content_type="application/json", headers={"api-key": secret_of(key)}
    )
    for sentence in (
        f"Gas</dt><dd>{api.json()['gas']['expected']:,}<",
        "<dt>Already proven</dt><dd>none",
        ">2 facts<",
        ", the newest",
    ):
        assert sentence in told
    far = " ".join(alice.post("/new-batch/estimate", form(*rows), headers=HTMX).text.split())
    for sentence in ("<code>block_too_far_ahead</code>", f"(now {service.head()})", "99, still to come"):
        assert sentence in far
    alice.post("/new-batch", form(row) | {"do": "submit"})
    work_until_done(Batch.objects.get(), service)
    assert "all, free" in post(alice, "estimate", row)
    of_entries = {"at": "block", "block": str(block_with_logs(service)), "transactions": "0 2", "logs": "0"}
    assert "some, free" in post(alice, "estimate", row, of_entries)
    told = " ".join(post(alice, "estimate", of_entries | {"tx_props": ["STATUS"]}).split())
    for sentence in ("<dt>Receipts and hashes</dt> <dd>2</dd>", "<dt>Logs</dt><dd>2</dd>", "2 transactions"):
        assert sentence in told


def test_why_there_is_no_estimate_is_said(alice, settings):
    settings.MAX_BATCHES_PER_MINUTE = 2
    for row, sentence in (
        ({}, "to see the cost"),
        ({"accounts": ALICE}, "Nothing was stored"),
        ({"accounts": ALICE}, "You may estimate 2 batches a minute"),
    ):
        assert sentence in alice.post("/new-batch/estimate", form(row), headers=HTMX).text


@pytest.mark.parametrize("do", ["add", "remove-0", "slot-0", "submit-0", "submit", "json", "estimate", "paste", ""])
def test_each_post_is_counted(alice, settings, do):
    settings.MAX_BATCHES_PER_MINUTE = 1
    # A submission without a key is refused, and doesn't count.
    ApiKey.objects.update(revoked_at=timezone.now())
    alice.post("/new-batch", form({}) | {"do": do})
    refused = alice.post("/new-batch", form({"accounts": ALICE}, pasted=ALICE) | {"do": do})
    assert (refused.status_code, "Retry-After" in refused.headers) == (429, True)
    assert "1 batches a minute" in refused.text
    assert values(unescape(refused.text), "accounts") == [ALICE]


@pytest.mark.parametrize("path", ["/new-batch", "/new-batch/estimate"])
def test_a_row_that_others_are_missing_before_makes_no_form(alice, settings, path):
    settings.MAX_BATCHES_PER_MINUTE = 1
    answer = alice.post(path, {"do": "add", "rows-49-a": ""})
    assert answer.status_code == (400 if path == "/new-batch" else 200)
    assert "The form has row 50 but not row 1." in answer.text
    assert 'id="id_rows-' not in answer.text
    assert "You may estimate 1 batches" in alice.post(path, form({})).text


# --- Submitting again -------------------------------------------------------------------------------------------------


def test_the_form_is_filled_in_from_a_batch_of_ones_own(alice, key):
    batch = submit(
        key, request(ALICE, BOB, block=12, fee=2**256 - 1) | {"webhook": {"url": "https://93.184.215.14/?s"}}
    )
    html = alice.get(f"/new-batch?from={batch.pk}").text
    assert "The form leaves out the webhook" in html
    assert "93.184" not in html
    again, first = request_of(alice, filled(html)), json.loads(batch.request)
    assert (again["fee"], of_all(again)) == (first["fee"], of_all(first))
    stranger = Client()
    stranger.force_login(User.objects.for_address(BOB))
    assert f"You have no batch {batch.pk}." in stranger.get(f"/new-batch?from={batch.pk}").text
    many = batch_at(
        block_12={"accounts": {account: {"slots": [f"{at:x}"]} for at, account in enumerate(many_accounts(51))}}
    )
    assert "is too large for this form" in alice.get(f"/new-batch?from={many.pk}").text
