"""`GET /facts` lists facts in the registries that were proven through this service."""

import codecs
import csv
import io
import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from eth_utils.crypto import keccak

from accounts.models import ApiKey
from proving.models import AccountProof, FactsRegistry, SlotProof
from queries.models import Batch, Block, Query, StepKind
from tests.explorer import batches
from tests.factories import client_of
from tests.plans import plans
from tests.service import ALICE, BOB, CHARLIE, a_key, asking, header, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def asked(**parameters: Any) -> Any:
    key = ApiKey.objects.first() or a_key()
    return Client().get("/facts", parameters, headers=header(key))


def facts(**parameters: Any) -> dict[str, Any]:
    answer = asked(**parameters)
    assert answer.status_code == 200, answer.content
    body: dict[str, Any] = answer.json()
    return body


def named(body: dict[str, Any]) -> list[tuple[str, str | None, str]]:
    return [(fact["blockNumber"], fact["account"], fact["slot"] or fact["property"]) for fact in body["facts"]]


def everywhere(limit: int, **parameters: Any) -> list[tuple[str, str | None, str]]:
    """Return the facts of all pages."""
    body = facts(limit=limit, **parameters)
    listed = named(body)
    for _ in range(1000):
        if not body["next"]:
            return listed
        body = facts(limit=limit, cursor=body["next"], **parameters)
        assert len(body["facts"]) <= limit
        listed += named(body)
    raise AssertionError("it leads in a circle")


def test_held_facts_list_every_users_proven_facts_with_the_call_that_reads_them():
    batch = batches.fetch_proofs(batches.accept(submit(a_key(BOB), request(ALICE, block=12))))
    batches.complete(batch, *list(StepKind)[:-1])
    assert facts(account=ALICE) == {"facts": [], "next": None}
    batches.complete(batch, StepKind.FACTS_PROVEN, transaction_hash=batches.TRANSACTION)
    (fact,) = facts(account=ALICE)["facts"]
    assert fact["call"].pop("data").startswith("0x7177899b")
    assert fact == {
        "sourceChainId": "31337",
        "destinationChainId": "31337",
        "blockNumber": "12",
        "account": ALICE,
        "property": "BALANCE",
        "slot": None,
        "slotName": None,
        "transaction": None,
        "log": None,
        "word": batches.word(batches.BALANCE),
        "value": str(batches.BALANCE),
        "registry": batches.REGISTRY,
        "call": {"to": batches.REGISTRY},
        "transactionHash": batches.TRANSACTION,
    }
    assert Client().get("/facts", {"account": ALICE}).status_code == 401


def test_held_facts_leave_out_facts_that_were_lost_or_rejected():
    batch = batches.finish(batches.a_batch())
    assert facts(block="12")["facts"]
    batches.reopen(batch, StepKind.FACTS_PROVEN)
    assert not facts(block="12")["facts"]
    batches.complete(batch, StepKind.FACTS_PROVEN)
    assert facts(block="12")["facts"]
    Batch.objects.update(status="IN_PROGRESS")
    batches.reject(batch)
    assert not facts(block="12")["facts"]


def test_only_registries_in_use_count():
    batches.finish(batches.a_batch())
    Batch.objects.update(finished_at=timezone.now() - timedelta(days=1))
    FactsRegistry.objects.update(refused="Its code is another.")
    assert not facts(account=ALICE)["facts"]
    FactsRegistry.objects.update(refused="", replaced_at=timezone.now())
    assert not facts(account=ALICE)["facts"]
    other = batches.deployed()
    FactsRegistry.objects.filter(pk=other.pk).update(replaced_at=timezone.now() - timedelta(hours=1))
    values = {"destination_chain_id": 31337, "source_chain_id": 31337, "deployed_at": timezone.now()}
    FactsRegistry.objects.create(address=BOB, block_hash_source=BOB, **values)
    assert not facts(account=ALICE)["facts"]
    Batch.objects.update(finished_at=timezone.now())
    assert [fact["registry"] for fact in facts(account=ALICE)["facts"]] == [BOB]


def test_the_same_is_told_once_whoever_asked_for_it():
    for props in (["BALANCE"], ["BALANCE", "NONCE"], ["BALANCE"]):
        batch = batches.accept(batches.a_batch(props=props))
        if Batch.objects.count() == 1:
            batches.fetch_proofs(batch)
        batches.complete(batch, *StepKind)
    assert named(facts(account=ALICE)) == [("12", ALICE, "BALANCE"), ("12", ALICE, "NONCE")]
    # Pages are read separately, so a fact of two queries may appear on both.
    assert [what for *_, what in everywhere(1, account=ALICE)] == ["BALANCE", "NONCE", "BALANCE", "BALANCE"]


def test_a_fact_keeps_its_transaction_when_it_is_asked_for_again():
    """Later batches send no transaction for it, or one for their other facts."""
    header = {"block:12": {"header": ["STATE_ROOT", "TIMESTAMP"]}}
    batches.fetch_proofs(batches.accept(batches.a_batch()))
    key = a_key(BOB)
    for body, of_header, of_facts in (
        (request(ALICE, block=12, props=["BALANCE"]), "0xa1", "0xa2"),
        (request(ALICE, block=12, props=["BALANCE", "NONCE"]), "", "0xa3"),
        (request(ALICE, block=12, props=["BALANCE", "NONCE"]), "", ""),
        (asking(header), "0xa4", ""),
        (asking(header), "", ""),
    ):
        batch = batches.accept(submit(key, body))
        batches.complete(batch, StepKind.INITIAL_STATE, StepKind.BLOCKHASH_AVAILABLE)
        batches.complete(batch, StepKind.HEADER_ACCUMULATED, transaction_hash=of_header)
        batches.complete(batch, StepKind.FACTS_PROVEN, transaction_hash=of_facts)
    told = {"BALANCE": "0xa2", "NONCE": "0xa3", "STATE_ROOT": "0xa4", "TIMESTAMP": "0xa4"}
    assert transactions_by_property() == told
    # Nobody corrects a rejected batch after a reorganisation. Its transaction is told only where there is no other.
    Batch.objects.filter(pk=Batch.objects.order_by("created_at")[1].pk).update(status="REJECTED")
    assert transactions_by_property() == told | {"BALANCE": "0xa3"}


def transactions_by_property() -> dict[str, str]:
    return {fact["property"]: fact["transactionHash"] for fact in facts(block="12")["facts"]}


def test_the_name_of_a_slot_is_told_only_to_who_may_know_the_batch(settings):
    # The slot of 0x1 and member 1 is also that of 0x2 and member 0.
    names = [{"slot": hex(2 - place), "keys": [{"member": str(place)}], "layout": "solidity"} for place in (1, 0)]
    alice, bob, charlie = map(a_key, (ALICE, BOB, CHARLIE))
    first, second = (
        submit(key, asking({"block:12": {"accounts": {ALICE: {"slots": [name]}}}}))
        for key, name in zip((alice, bob), names, strict=True)
    )
    batches.finish(first)
    assert [told_name(key) for key in (alice, bob, charlie)] == [names[0], None, None]
    batches.accept(second)
    batches.complete(second, *StepKind)
    assert [told_name(key) for key in (alice, bob, charlie)] == [*names, None]
    settings.PUBLIC_BATCH_LIST = True
    assert told_name(charlie) in names


@pytest.mark.parametrize("form", ["unsigned", "bool", "left", "typed"])
def test_another_user_s_name_changes_no_value_and_no_code(settings, form):
    settings.PUBLIC_BATCH_LIST = True
    name = {"slot": "0x0", "keys": [CHARLIE], "layout": "solidity", "call": "balanceOf(address)"}
    part = {"part": {"offset": 0, "size": 8, "form": form}, "decimals": 2, "symbol": "LEND"}
    stated = name | ({"call": "balanceOf(address)(bool)"} if form == "typed" else part)
    slot = f"0x{keccak(bytes.fromhex(CHARLIE[2:]).rjust(32, bytes(1)) + bytes(32)).hex()}"
    alice, bob, charlie = map(a_key, (ALICE, BOB, CHARLIE))
    plain = submit(alice, asking({"block:12": {"accounts": {ALICE: {"slots": [slot]}}}}))
    batches.finish(plain)
    SlotProof.objects.update(value=0x1234)
    before = seen_by(alice, ALICE)
    assert (before[0], before) == ([str(0x1234)] * 2, seen_by(charlie, CHARLIE))
    batch = batches.accept(submit(bob, asking({"block:12": {"accounts": {ALICE: {"slots": [stated]}}}})))
    batches.complete(batch, *StepKind)
    assert seen_by(alice, ALICE) == seen_by(charlie, CHARLIE) == before
    # Nobody else reads the name's part, but its user does.
    own = {"unsigned": 0x34, "bool": 1, "left": 0x34 << 248, "typed": 1}[form]
    values, code = seen_by(bob, BOB)
    assert values == [str(own)] * 2
    assert "balanceOf(address holder" in code
    anonymous = Client().get(f"/facts?account={ALICE}", headers={"accept": "text/html"}).text
    assert "bits 0 to 7" not in anonymous
    assert "divided by" not in anonymous
    assert "LEND" not in anonymous
    (told,) = Client().get("/facts", {"account": ALICE}, headers=header(alice)).json()["facts"]
    assert "symbol" not in (told["slotName"] or {})


def seen_by(key: ApiKey, address: str) -> tuple[list[str], str]:
    """Return the value of Alice's only slot in the API and the file, and the code of its page, for a user."""
    (fact,) = Client().get("/facts", {"account": ALICE}, headers=header(key)).json()["facts"]
    user = client_of(address)
    (line,) = csv.DictReader(io.StringIO(user.get(f"/facts.csv?account={ALICE}").text))
    html = user.get(f"/facts?account={ALICE}", headers={"accept": "text/html"}).text
    return [fact["value"], line["value"]], unescape("".join(re.findall("(?s)<pre.*?</pre>", html)))


def told_name(key: ApiKey) -> Any:
    (fact,) = Client().get("/facts", {"account": ALICE}, headers=header(key)).json()["facts"]
    assert fact["slot"] == batches.word(2)
    return fact["slotName"]


@pytest.mark.long
def test_each_filter_leaves_others_out(tmp_path):
    batches.connect_source(tmp_path)
    batches.deployed(5)
    slots = [batches.word(slot) for slot in range(3)]
    first_batch = batches.batch_at(
        block_12={
            "accounts": {ALICE: {"props": ["NONCE", "BALANCE"], "slots": slots}},
            "header": ["NONCE", "TIMESTAMP"],
        },
        timestamp_1700000005={"accounts": {BOB: {"props": ["NONCE"]}}},
    )
    batches.find_block(first_batch, 13)
    batches.finish(first_batch)
    two = batches.accept(batches.of_two_sources(), 5)
    fetch_proofs_of_other_chain(two)
    nonce, balance = ("12", ALICE, "NONCE"), ("12", ALICE, "BALANCE")
    of_header = [("12", None, "TIMESTAMP"), ("12", None, "NONCE")]
    of_slots = [("12", ALICE, slot) for slot in slots]
    there = ("9", ALICE, "BALANCE")
    at_time = ("13", None, "BLOCK_AT_TIMESTAMP")
    for parameters, expected in (
        ({"block": "12"}, [*of_header, nonce, balance, *of_slots]),
        ({"account": ALICE}, [there, nonce, balance, *of_slots]),
        ({"account": ALICE, "sourceChainId": "5"}, [there]),
        ({"account": ALICE, "sourceChainId": "31337"}, [nonce, balance, *of_slots]),
        ({"account": ALICE, "destinationChainId": "5"}, []),
        ({"account": ALICE, "block": "9"}, [there]),
        ({"account": ALICE.lower(), "property": "BALANCE"}, [there, balance]),
        ({"block": "12", "property": "NONCE"}, [of_header[1], nonce]),
        ({"block": "12", "property": "TIMESTAMP"}, of_header[:1]),
        ({"account": ALICE, "property": "TIMESTAMP"}, []),
        ({"account": ALICE, "property": "SLOT"}, of_slots),
        ({"account": ALICE, "slot": "0x2"}, of_slots[2:]),
        ({"account": ALICE, "slot": "3"}, []),
        ({"account": ALICE, "slot": "2", "property": "NONCE"}, []),
        ({"block": "13"}, [("13", BOB, "NONCE"), at_time]),
        ({"block": "13", "property": "BLOCK_AT_TIMESTAMP"}, [at_time]),
        ({"account": BOB}, [("13", BOB, "NONCE")]),
        ({"account": CHARLIE}, []),
        ({"block": "99"}, []),
    ):
        for limit in (100, 2, 1):
            assert everywhere(limit, **parameters) == expected, (parameters, limit)


def fetch_proofs_of_other_chain(batch: Batch) -> None:
    here, there = batches.queries_of(batch)
    Query.objects.filter(pk=here).delete()
    batches.fetch_proofs(batch)
    batches.complete(batch, *StepKind, of=[there])


@pytest.mark.long
def test_pages_tell_each_slot_once_and_go_through_queries_and_blocks():
    for block in (12, 13):
        for start in (0, 150):
            slots = [batches.word(slot) for slot in range(start, start + 150)]
            batch = batches.batch_at(**{f"block_{block}": {"accounts": {ALICE: {"props": ["NONCE"], "slots": slots}}}})
            if start:
                batches.accept(batch)
                add_slots(batch)
                batches.complete(batch, *StepKind)
            else:
                batches.finish(batch)
    names = ["NONCE", *map(batches.word, range(300))]
    for limit in (7, 50, 100):
        listed = everywhere(limit, account=ALICE)
        assert set(listed) == {(str(block), ALICE, name) for block in (12, 13) for name in names}
        # Two queries about a block requested the nonce, so it may appear twice.
        assert len(listed) - len(set(listed)) <= 2
        assert [block for block, *_ in listed] == sorted((block for block, *_ in listed), reverse=True)


def add_slots(batch: Batch) -> None:
    query = batch.queries.get()
    proof = AccountProof.objects.get(block=query.block)
    SlotProof.objects.bulk_create(
        [SlotProof(account=proof, slot=slot, nodes=[], value=int(slot, 16)) for slot in query.slots]
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"limit": "101"},
        {"property": "\x00"},
        {"slot": "1" * 65},
        {"account": "vitalik.eth"},
        {"sourceChainId": "9" * 30},
        *({"cursor": cursor} for cursor in ("x", "1.2", "1.2.3.4", f"{'9' * 19}.0.0", "\u0661.0.0", "-1.0.0")),
    ],
    ids=str,
)
def test_a_malformed_parameter_is_named(parameters):
    answer = asked(**({"account": ALICE} | parameters))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    (name,) = parameters
    assert name in answer.json()["error"]


def test_an_account_or_a_block_is_needed():
    answer = asked(sourceChainId="31337", property="BALANCE")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")
    assert "account and block" in answer.json()["error"]


@pytest.mark.long
@pytest.mark.parametrize(
    "parameters", [{"account": ALICE}, {"block": "12"}, {"account": ALICE, "block": "12"}], ids=str
)
def test_held_facts_take_a_bounded_number_of_statements_and_read_by_an_index(parameters):
    batches.finish(batches.a_batch())
    taken = []
    for count in (1, 12):
        for number in range(count):
            batch = batches.batch_at(block_12={"accounts": {ALICE: {"slots": [batches.word(count * 100 + number)]}}})
            batches.accept(batch)
            add_slots(batch)
            batches.complete(batch, *StepKind)
        with CaptureQueriesContext(connection) as statements:
            assert len(facts(limit=100, **parameters)["facts"]) > count
        taken.append(len(statements))
        reads_all = r"SCAN (q|b|d|e|k|queries_\w+|proving_\w*proof)\b|Seq Scan on (queries|proving_\w+proof)"
        plan_lines = plans(statements)
        assert not [line for line in plan_lines if re.match(reads_all, line.strip())]
        assert "account" not in parameters or [line for line in plan_lines if "facts_by_account" in line]
        # The query must not sort, so that it can stop at the end of the page.
        assert not [line for line in plan_lines if "TEMP B-TREE" in line], plan_lines
    assert taken[0] == taken[1] <= 10


def test_searches_by_a_slot_are_counted_with_files():
    batches.finish(batches.a_batch())
    page = {"account": ALICE, "slot": "2"}
    batches.read_files()
    for answer in (asked(**page), client_of(BOB).get("/facts", page, headers=BROWSER)):
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
        assert int(answer.headers["Retry-After"]) > 0
    assert asked(account=ALICE).status_code == 200


# --- The page ---------------------------------------------------------------------------------------------------------

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def opened(who: Client, address: str = "/facts", **parameters: str) -> str:
    response = who.get(address, parameters, headers=BROWSER)
    assert response.status_code == 200
    return str(response.text)


def test_the_page_tells_what_the_api_tells_with_the_call_and_never_whose_batch_it_was():
    batches.finish(batch := batches.a_batch(props=["BALANCE"]))
    html = opened(bob := client_of(BOB), account=ALICE.lower())
    assert f'Facts of <span class="short" title="{ALICE}"' in html
    assert "123,456,789.0123" in html
    for part in ("cast call --rpc-url", "from web3 import Web3", "interface IFactsRegistry", batches.REGISTRY):
        assert part in html
    for page in (html, opened(bob, "/facts.csv", account=ALICE), opened(bob, block="12")):
        assert batch.pk not in page
        assert BOB not in page.partition("<main")[2]
    assert "No matching facts yet." in opened(bob, account=CHARLIE)


def test_the_page_tells_which_transaction_of_a_block_a_fact_is_about():
    batch = batches.batch_at(block_12={"transactions": {batches.TRANSACTION: {"props": ["STATUS"], "logs": ["0"]}}})
    batches.finish(batches.fetch_proofs(batch, [batches.transfer(1)]))
    index = batch.queries.get().transaction_index
    html = " ".join(opened(client_of(BOB), block="12").split())
    assert html.count(f"of transaction {index} of the block") == 2


def test_the_page_leads_to_batches_that_its_reader_may_know(settings):
    batches.finish(others := batches.a_batch())
    own = batches.accept(submit(a_key(BOB), request(ALICE, block=12)))
    batches.complete(own, *StepKind)
    for reader, named, hidden in ((BOB, own, others), (ALICE, others, own)):
        html = opened(client_of(reader), account=ALICE)
        assert (batches.path(named) in html, hidden.pk in html) == (True, False)
    assert "/explorer/query/" not in opened(client_of(CHARLIE), account=ALICE)
    settings.PUBLIC_BATCH_LIST = True
    assert batches.path(own) in opened(Client())


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"account": "0x12"}, "The account has 2 hexadecimal digits after 0x, and an address has 40."),
        ({"block": "abc"}, "The block must be a number, in decimal digits."),
        ({"property": "balance"}, "There is no such property."),
        ({"slot": "0xg"}, "The slot must be 0x and up to 64 hexadecimal digits."),
        ({"transaction": "0x12"}, "The transaction must be a hash, or an index in decimal digits."),
        ({"sourceChainId": "x"}, "The source chain must be a chain id, in decimal digits."),
        ({"cursor": "1.2"}, "There is no such page of the list."),
        ({"height": "12"}, "There is no filter called 'height'."),
        ({"account": "", "property": "BALANCE"}, "Name an account or a block."),
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_read_is_refused_in_the_form_that_is_asked_for(parameters, sentence):
    batches.finish(batches.a_batch())
    asked_for = {"account": ALICE} | parameters
    bob = client_of(BOB)
    page, file, program = (
        bob.get("/facts", asked_for, headers=BROWSER),
        bob.get("/facts.csv", asked_for),
        asked(**asked_for),
    )
    assert [answer.status_code for answer in (page, file, program)] == [400] * 3
    assert sentence in unescape(page.text)
    assert "123,456,789" not in page.text
    assert list(csv.reader(io.StringIO(file.content.decode("utf-8-sig")))) == [["error"], [sentence]]
    assert program.json()["code"] == "invalid_request"


@pytest.mark.long
def test_the_latest_facts_go_on_page_by_page(settings):
    settings.PUBLIC_BATCH_LIST = True
    expected: list[str] = []
    for block in range(20, 50):
        batches.finish(batch := batches.a_batch(block=block))
        expected.insert(0, batches.path(batch))
    batches.reject(batches.a_batch(block=50))
    listed: list[str] = []
    address = "/facts"
    while address:
        html = opened(Client(), address)
        listed += re.findall(r'href="(/explorer/query/\w{26})"', html)
        following = re.search(r'href="([^"]+)" rel="next"', html)
        address = f"/facts{following[1]}" if following else ""
    assert listed == expected


def test_a_user_who_may_not_list_all_batches_signs_in_first(settings):
    batches.finish(batches.a_batch())
    for address in ("/facts", "/facts.csv"):
        answer = Client().get(address, {"account": ALICE}, headers=BROWSER)
        assert (answer.status_code, answer.headers["Location"][:9]) == (302, "/sign-in?")
    settings.PUBLIC_BATCH_LIST = True
    assert "123,456,789.0123" in opened(Client(), account=ALICE)


@pytest.mark.parametrize("headers", [{}, {"accept": "*/*"}, {"accept": "application/json"}])
def test_programs_and_who_sends_a_key_are_answered_by_the_api(headers):
    batches.finish(batches.a_batch())
    signed_in, key = client_of(BOB), a_key(BOB)
    assert signed_in.get("/facts", {"account": ALICE}, headers=headers).status_code == 401
    for sent in (headers, BROWSER):
        answer = signed_in.get("/facts", {"account": ALICE}, headers=sent | header(key))
        assert answer.json()["facts"][0]["property"] == "BALANCE"
    assert signed_in.post("/facts", headers=BROWSER).status_code == 405


def test_files_go_through_the_facts_in_their_order():
    slots = [batches.word(slot) for slot in range(1001)]
    batches.finish(batches.batch_at(block_12={"accounts": {ALICE: {"props": ["NONCE"], "slots": slots}}}))
    bob = client_of(BOB)
    file = bob.get("/facts.csv", {"account": ALICE})
    rows = list(csv.DictReader(io.StringIO(file.content.decode("utf-8-sig"))))
    assert [(row["property"], row["slot"], row["value"]) for row in rows] == [
        ("NONCE", "", "7"),
        *(("SLOT", slot, str(int(slot, 16))) for slot in slots[:999]),
    ]
    assert {(row["block"], row["account"], row["registry"]) for row in rows} == {("12", ALICE, batches.REGISTRY)}
    following = re.fullmatch('<([^>]+)>; rel="next"', file.headers["Link"])
    assert following
    second_file = bob.get(f"/facts.csv{following[1]}")
    assert [row["slot"] for row in csv.DictReader(io.StringIO(second_file.text))] == slots[999:]
    assert "Link" not in second_file.headers


# --- The facts of a batch as CSV for spreadsheets ---------------------------------------------------------------------


def lines(batch: Batch) -> list[dict[str, str]]:
    answer = get(batch)
    assert answer.status_code == 200
    assert answer.content.startswith(codecs.BOM_UTF8)  # tells Excel the encoding
    return list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))


def get(batch: Batch) -> Any:
    return Client().get(f"{batches.path(batch)}/facts.csv")


def test_each_fact_has_a_line_with_its_value():
    accounts = {ALICE: {"props": ["BALANCE", "CODE_HASH"], "slots": ["0x5"]}}
    batch = batches.batch_at(timestamp_1700000005={"accounts": accounts, "header": ["GAS_USED"]})
    batches.find_block(batch)
    batches.finish(batch)
    Block.objects.update(hash=batches.HASH)
    rows = lines(batch)
    assert [(line["query"], line["property"], line["slot"], line["value"], line["word"]) for line in rows] == [
        ("1", "BALANCE", "", str(batches.BALANCE), batches.word(batches.BALANCE)),
        ("1", "CODE_HASH", "", "", "0x" + "22" * 32),
        ("1", "SLOT", batches.word(5), "5", batches.word(5)),
        ("1", "BLOCK_AT_TIMESTAMP", "", "12", batches.word(12)),
        ("2", "GAS_USED", "", "21000", batches.word(21_000)),
        ("2", "BLOCK_AT_TIMESTAMP", "", "12", batches.word(12)),
    ]
    assert [line["account"] for line in rows] == [ALICE] * 3 + [""] * 3
    assert {(line["source_chain_id"], line["block"], line["block_hash"], line["state"]) for line in rows} == {
        ("31337", "12", batches.HASH, "proven")
    }


def test_unproven_and_rejected_facts_have_no_value():
    batch = batches.fetch_proofs(batches.accept(batches.a_batch(*batches.many_accounts(2))))
    batches.complete(batch, *StepKind, of=batches.queries_of(batch)[:1])
    assert [(line["state"], line["value"]) for line in lines(batch)] == [("proven", str(batches.BALANCE)), ("open", "")]
    batches.reject(batch)
    assert [(line["state"], line["value"]) for line in lines(batch)] == [("rejected", "")] * 2


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=HYPERLINK("http://x")'])
def test_no_cell_is_taken_for_a_formula(name):
    batch = batches.a_batch()
    Query.objects.update(name=name)
    for cell in next(csv.reader(io.StringIO(get(batch).text.partition("\n")[2]))):
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert lines(batch)[0]["name"] == f"'{name}"


def test_facts_csv_is_a_download_and_an_unknown_batch_has_none():
    batch = batches.a_batch()
    answer = get(batch)
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="facts-{batch.pk}.csv"'
    assert "no-store" in answer.headers["Cache-Control"]
    assert Client().get("/explorer/query/x/facts.csv").status_code == 404


def test_facts_csv_has_all_queries_and_reads_them_in_large_parts():
    batch = batches.accept(batches.a_batch(*batches.many_accounts(501)))
    with CaptureQueriesContext(connection) as statements:
        rows = lines(batch)
    assert [line["query"] for line in rows] == [str(number) for number in range(1, 502)]
    # One statement finds the batch, four count the read, two size the file, and three read each part.
    assert len(statements) <= 1 + 4 + 2 + 3 * 2
