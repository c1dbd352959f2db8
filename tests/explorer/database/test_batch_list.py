"""Lists of batches: owners, filters, search and pages."""

import csv
import io
import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from explorer.lists import batch_list
from proving.models import SlotProof
from queries import batch_states, ens_names
from queries.columns import RejectionCode
from queries.ens_names import Account, NoAccount
from queries.models import Batch, Block, StepKind
from tests.explorer import batches
from tests.explorer.pages import text_of
from tests.factories import client_of
from tests.service import ALICE, BOB, CHARLIE, a_key, request, submit

pytestmark = pytest.mark.django_db

COMMON = {"destination_chain_id": 31337, "fee": 0, "request": "{}", "deadline_at": timezone.now() + timedelta(days=1)}


def ids(html: str) -> list[str]:
    return re.findall(r'class="full">\s*<a class="title" href="/explorer/query/(\w{26})">', html)


def listed(client: Client, **parameters: str) -> list[str]:
    return ids(client.get("/explorer", parameters).text)


# --- Owners -----------------------------------------------------------------------------------------------------------


def test_one_sees_one_s_own_batches_newest_first_and_nobody_else_s(alice):
    first, second = batches.a_batch(), batches.a_batch(block=13)
    submit(a_key(BOB), request(BOB, block=12))
    assert listed(alice) == [second.pk, first.pk]
    assert listed(client_of(CHARLIE)) == []


def test_a_visitor_sees_no_batch_but_how_to_sign_in(client):
    batch = batches.a_batch()
    html = client.get("/explorer").text
    assert batch.pk not in html
    assert 'href="/sign-in"' in html
    assert listed(client, q=ALICE) == []
    assert listed(client, of="everybody") == []


def test_everybody_sees_all_batches_if_the_operator_allows_it(client, alice, settings):
    settings.PUBLIC_BATCH_LIST = True
    mine, others = batches.a_batch(), submit(a_key(BOB), request(BOB, block=12))
    assert listed(client) == [others.pk, mine.pk]
    assert listed(alice) == [mine.pk]
    assert listed(alice, of="everybody") == [others.pk, mine.pk]


def test_nobody_sees_all_batches_unless_the_operator_allows_it(alice):
    submit(a_key(BOB), request(BOB, block=12))
    assert listed(alice, of="everybody") == []


# --- Search and filters -----------------------------------------------------------------------------------------------


def test_a_filter_that_is_repeated_is_refused(alice):
    batches.a_batch()
    page, file = (alice.get(f"{address}?status=X&status=RECEIVED") for address in ("/explorer", "/explorer.csv"))
    assert (page.status_code, file.status_code) == (400, 400)
    assert alice.get("/explorer?status=&status=RECEIVED").status_code == 200


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"status": "NOTHING"}, "There is no such status."),
        ({"chain": "x"}, "The destination chain must be a chain id, in decimal digits."),
        ({"source": "1e3"}, "The source chain must be a chain id, in decimal digits."),
        ({"property": "balance"}, "There is no such property."),
        *(
            ({name: day}, "A day is written as 2026-01-31.")
            for name in ("since", "until")
            for day in ("2026-02-30", "31.1.")
        ),
        ({"until": "9999-12-31"}, "A day is written as 2026-01-31."),
        ({"beginning": "2026-01-31"}, "There is no filter called 'beginning'."),
        ({"{0}": "x"}, "There is no filter called '{0}'."),
        ({"of": "nobody"}, "The list is of everybody, or your own."),
        ({"since": "2026-01-01, 2026-01-01"}, "A day is written as 2026-01-31."),
        *(({name: "X"}, "There is no such page of the list.") for name in ("before", "after")),
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_read_is_refused_by_the_page_and_its_file(alice, parameters, sentence):
    batch = batches.a_batch()
    page, file = (alice.get(address, {"status": "RECEIVED"} | parameters) for address in ("/explorer", "/explorer.csv"))
    assert (page.status_code, file.status_code) == (400, 400)
    assert sentence in unescape(page.text)
    ((name, text),) = parameters.items()
    assert text in page.text or name in {"of", "status", "chain", "source", "property", "before", "after", "beginning"}
    assert batch.pk not in page.text
    assert file.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert list(csv.reader(io.StringIO(file.content.decode("utf-8-sig")))) == [["error"], [sentence]]


@pytest.mark.parametrize("written", [str, str.lower, " {} ".format])
def test_an_identifier_leads_to_its_batch_for_anyone(client, written):
    batch = batches.a_batch()
    response = client.get("/explorer", {"q": written(batch.pk)})
    assert (response.status_code, response.headers["Location"]) == (302, batches.path(batch))


@pytest.mark.parametrize(
    "text", [BOB, BOB[:2] + BOB[2:].upper(), "77", f"0x{batches.TRANSACTION[2:].upper()}", batches.HASH]
)
def test_a_search_finds_batches_by_account_block_number_and_hash_of_transaction_or_block(alice, text):
    batches.a_batch()
    batch = batches.a_batch(BOB, block=77)
    batches.a_batch(CHARLIE, block=78)
    batches.send(batch)
    Block.objects.filter(number=77).update(hash=batches.HASH)
    assert listed(alice, q=text) == [batch.pk]
    assert listed(client_of(BOB), q=text) == []


@pytest.mark.parametrize(
    "blocks",
    [
        {"block_9": {"transactions": {batches.TRANSACTION: {"props": ["STATUS"]}}}},
        {f"transaction_{batches.TRANSACTION}": {"header": ["GAS_USED"]}},
    ],
    ids=("a fact of it", "its block"),
)
def test_a_search_finds_batches_by_the_hash_of_a_requested_transaction(alice, blocks):
    batches.batch_at(block_9={"transactions": {f"0x{'7b' * 32}": {"props": ["STATUS"]}}})
    batch = batches.batch_at(**blocks)
    assert listed(alice, q=batches.TRANSACTION.upper().replace("X", "x")) == [batch.pk]


@pytest.mark.parametrize(
    "text", ["what is this", "0x12", "-1", "9" * 99, "<script>", "%00", "\0", "é", "0x" + "g" * 40]
)
def test_a_search_for_nothing_that_can_be_found_says_so(alice, text):
    batches.a_batch()
    response = alice.get("/explorer", {"q": text})
    assert response.status_code == 200
    assert "<script>" not in response.text
    assert text == "\0" or "None of your batches matches" in response.text


def test_batches_are_filtered_by_status_and_destination(alice):
    open_batch, rejected = batches.a_batch(), batches.a_batch(block=13)
    batch_states.reject([rejected.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    assert listed(alice, status="REJECTED") == [rejected.pk]
    assert listed(alice, status="RECEIVED", chain="31337") == [open_batch.pk]
    assert listed(alice, chain="5") == []
    assert listed(alice, status="", chain="") == [rejected.pk, open_batch.pk]


def test_batches_are_filtered_by_source_property_and_date_on_the_page_and_in_its_file(alice, tmp_path):
    batches.connect_source(tmp_path)
    first, second = batches.batch_at(block_9={"header": ["TIMESTAMP"]}), batches.of_two_sources()
    slots = batches.batch_at(block_12={"accounts": {ALICE: {"slots": ["0x1"]}}})
    days = ("2026-01-30T23:59:59Z", "2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z")
    for batch, day in zip((first, second, slots), days, strict=True):
        Batch.objects.filter(pk=batch.pk).update(created_at=datetime.fromisoformat(day))
    for parameters, expected in (
        ({"source": "5"}, [second]),
        ({"source": "31337"}, [slots, second, first]),
        ({"source": "6"}, []),
        ({"property": "TIMESTAMP"}, [first]),
        ({"property": "BALANCE"}, [second]),
        ({"property": "SLOT", "status": "RECEIVED"}, [slots]),
        ({"property": "SLOT", "source": "5"}, []),
        ({"since": "2026-01-31"}, [slots, second]),
        ({"until": "2026-01-31"}, [second, first]),
        ({"since": "2026-01-31", "until": "2026-01-31"}, [second]),
    ):
        ids = [batch.pk for batch in expected]
        assert listed(alice, **parameters) == ids, parameters
        rows = csv.DictReader(io.StringIO(alice.get("/explorer.csv", parameters).content.decode("utf-8-sig")))
        assert [row["internal_id"] for row in rows] == ids


def test_the_beginning_of_an_identifier_finds_what_its_reader_may_list(alice, client, settings):
    others, mine = submit(a_key(BOB), request(BOB, block=12)), [f"01ABCDEF{end * 18}" for end in "01"]
    key = a_key()
    Batch.objects.bulk_create(Batch(id=pk, user=key.user, api_key=key, **COMMON) for pk in mine)
    bob = client_of(BOB)

    def found(reader: Client, text: str) -> str:
        return str(reader.get("/explorer", {"q": text}).headers.get("Location", ""))

    assert found(alice, f" {mine[1][:9].lower()} ") == f"/explorer/query/{mine[1]}"
    assert listed(alice, q="01abcdef") == mine[::-1]
    assert listed(alice, q=mine[1][:7]) == []
    for reader in (alice, client):
        page = reader.get("/explorer", {"q": others.pk[:25]})
        assert (page.status_code, others.pk in page.text) == (200, False)
    assert found(bob, others.pk[:25]) == batches.path(others)
    assert found(bob, mine[1][:9]) == found(client, mine[1][:9]) == ""
    assert found(client, mine[1]) == f"/explorer/query/{mine[1]}"
    settings.PUBLIC_BATCH_LIST = True
    assert found(client, others.pk[:25]) == found(alice, others.pk[:25]) == batches.path(others)
    # A number is that of a block.
    batch = batches.a_batch(block=12_345_678)
    assert listed(alice, q="12345678") == [batch.pk]


def test_a_row_tells_that_a_fee_is_the_estimate_to_come(alice):
    batches.a_batch()
    Batch.objects.update(fee_is_estimate=True)
    assert re.search(r" 0 ETH ?, fee auto RECEIVED", text_of(alice.get("/explorer").text))


def test_a_row_tells_fee_and_progress_with_digits_in_groups(alice, settings):
    batches.finish(done := batches.a_batch(block=1_234_567))
    batch, _ = batches.a_batch(BOB, block=13, fee=1_234_567_890_000_000_000_000), batches.a_batch(block=14)
    batches.accept(batch)
    batches.complete(batch, StepKind.INITIAL_STATE)
    batch_states.reject([Batch.objects.latest("pk").pk], code=RejectionCode.BLOCK_TOO_OLD, reason="X.", retryable=False)
    html = alice.get("/explorer").text
    text = text_of(html)
    assert f"Balance of {ALICE} at block 1,234,567 123,456,789.012345678901234567 ETH" in text
    assert re.search(r" 0 / ?of at most 1,234.56789 ETH IN_PROGRESS 1 of 4 steps Cancel batch \w+", text)
    assert re.search(r"DONE in \d", text)
    assert "REJECTED block_too_old" in text
    assert f'<a href="{batches.path(done)}">' in html
    assert not re.search(r"(?<![.\d])\d{5}", re.sub(r"0x\w+|[0-9A-Z]{26}|\(\d+\)", "", text))


def test_a_row_names_the_chains_only_where_there_are_several(alice, tmp_path):
    batches.finish(batches.a_batch())
    for address in ("/explorer", f"/facts?account={ALICE}"):
        assert ">Chains</th>" not in alice.get(address, headers={"accept": "text/html"}).text
    batches.connect_source(tmp_path)
    for address in ("/explorer", f"/facts?account={ALICE}"):
        assert ">Chains</th>" in alice.get(address, headers={"accept": "text/html"}).text


NEGATIVE = {"slot": "2", "keys": [], "part": {"offset": 0, "size": 128, "form": "signed"}, "decimals": 18}


@pytest.mark.parametrize(
    ("slot", "number", "shown"),
    [
        ("0x2", 10**22, "10,000,000,000,000,000,000,000"),
        ({"slot": "2", "keys": [ALICE]}, 10**27, "1,000,000,000,000,000,000,000,000,000"),
        (NEGATIVE, 2**128 - 5 * 10**17 - 1, "-0.500000000000000001"),
        ("0x2", 10**31, f"0x{10**31:064x}"),
    ],
    ids=("an amount of a token", "of a named slot", "a negative one", "longer"),
)
def test_a_value_has_all_its_digits_in_lists(alice, slot, number, shown):
    """Only words of more digits than an amount has are shortened, and copied whole."""
    batches.settle(batches.finish(batches.batch_at(block_12={"accounts": {ALICE: {"slots": [slot]}}})))
    SlotProof.objects.update(value=number)
    for address in ("/explorer", "/dashboard", f"/facts?account={ALICE}"):
        html = alice.get(address, headers={"accept": "text/html"}).text
        value = re.search(r'class="r value">\s*<strong>(.*?)</strong>', html, re.DOTALL)
        assert value
        assert re.sub("<.*?>", "", value[1]).partition("\xa0")[0] == shown


def test_a_batch_that_its_owner_cancelled_is_cancelled_on_pages_and_rejected_in_programs(alice):
    cancelled, rejected, by_operator = (batches.a_batch(block=block) for block in (12, 13, 14))
    batches.reject(cancelled, "cancelled_by_user", "X.", retryable=False)
    batches.reject(rejected)
    batches.reject(by_operator, "cancelled_by_operator", "X.", retryable=False)
    assert listed(alice, status="CANCELLED") == [cancelled.pk]
    assert listed(alice, status="REJECTED") == [by_operator.pk, rejected.pk, cancelled.pk]
    rows = csv.DictReader(io.StringIO(alice.get("/explorer.csv?status=CANCELLED").content.decode("utf-8-sig")))
    assert [(row["internal_id"], row["status"]) for row in rows] == [(cancelled.pk, "REJECTED")]
    for address in ("/explorer?status=REJECTED", "/dashboard"):
        statuses = re.findall(r'<span class="chip (\w+)">', alice.get(address).text)
        assert statuses == ["REJECTED", "REJECTED", "CANCELLED"]
    html = batches.page(cancelled)
    assert '<strong class="chip CANCELLED">' in html
    assert "<title>CANCELLED · " in html
    assert "The batch is CANCELLED." in html
    assert ">Rejected" not in html
    assert '<strong class="chip REJECTED">' in batches.page(by_operator)
    assert alice.get(f"{batches.path(cancelled)}.json").json()["status"] == "REJECTED"


BLOCK_77 = "sourceChainId=31337&amp;block=77"


def test_a_search_shows_what_is_proven_of_an_account_or_a_block_for_whomever(client, alice):
    batches.finish(batch := batches.a_batch(BOB, block=77))
    batches.send(batch)
    Block.objects.update(hash=batches.HASH)
    charlie = client_of(CHARLIE)
    for text in (BOB, BOB.lower(), "77", batches.HASH, batches.TRANSACTION):
        html = charlie.get("/explorer", {"q": text}).text.partition("<main")[2]
        assert "123,456,789.0123" in html
        links = re.findall(r'href="/facts\?([^"]+)"', html)
        assert links[0] == (f"account={BOB}" if len(text) == 42 else "block=77" if text == "77" else BLOCK_77)
        assert batch.pk not in html
        # Visitors who may not list batches see no facts in the search either.
        assert "123,456,789.0123" not in client.get("/explorer", {"q": text}).text
    assert "Proven of this account" not in charlie.get("/explorer", {"q": ALICE}).text


def test_a_block_of_a_batch_that_proves_nothing_is_not_told(alice):
    batch = submit(a_key(BOB), request(BOB, block=12))
    batches.send(batch)
    Block.objects.update(hash=batches.HASH)
    for text in (batches.HASH, batches.TRANSACTION):
        html = alice.get("/explorer", {"q": text}).text.partition("<main")[2]
        assert "/facts?" not in html
        assert "None of your batches matches" in html


@pytest.fixture
def ens(settings, tmp_path, monkeypatch) -> dict[str, Any]:
    """Configure ENS for the search. The dict has addresses by name, and the requested names under "asked"."""
    settings.CHAINS_FILE.write_text(settings.CHAINS_FILE.read_text() + "\n[ens]\nchain = 31337\n")
    known: dict[str, Any] = {"asked": []}

    def resolve(names: list[str], _: object) -> dict[str, Any]:
        known["asked"] += names
        if "away.eth" in names:
            raise ens_names.NamesUnavailable("names_unavailable", "Away.")
        return {name: known.get(name, NoAccount("is nobody's")) for name in names}

    monkeypatch.setattr(ens_names, "resolve_names", resolve)
    return known


def test_a_name_is_searched_by_its_address_and_only_where_ens_is_configured(alice, client, ens, settings):
    ens["bob.eth"] = Account(BOB, "bob.eth")
    batch = batches.a_batch(BOB)
    assert listed(alice, q="bob.eth") == [batch.pk]
    html = alice.get("/explorer", {"q": "bob.eth"}).text
    assert "bob.eth is " in html
    assert "as ENS says now." in html
    assert "The name nobody.eth is nobody&#x27;s." in alice.get("/explorer", {"q": "nobody.eth"}).text
    assert listed(alice, q="nobody.eth") == []
    assert "or an ENS name" in alice.get("/explorer", {"q": "what is this"}).text
    for name, status in (("nobody.eth", 400), ("away.eth", 503)):
        for address in ("/facts", "/facts.csv"):
            answer = alice.get(address, {"account": name}, headers={"accept": "text/html"})
            assert (answer.status_code, f"The name {name} " in answer.text) == (status, True)
    # A visitor who may not list batches must cause no request to a node.
    ens["asked"].clear()
    client.get("/explorer", {"q": "bob.eth"})
    assert ens["asked"] == []
    batches.read_files()
    assert "has sent too many reads" in alice.get("/explorer", {"q": "bob.eth"}).text
    assert alice.get("/facts", {"account": "bob.eth"}, headers={"accept": "text/html"}).status_code == 429


def test_the_list_is_a_file_too_as_it_is_filtered(alice, client):
    batches.finish(done := batches.a_batch())
    rejected = batches.a_batch(block=13)
    batch_states.reject([rejected.pk], code=RejectionCode.PROOF_UNAVAILABLE, reason="X.", retryable=False)
    submit(a_key(BOB), request(BOB, block=12))
    answer = alice.get("/explorer.csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))
    assert [row["internal_id"] for row in rows] == [rejected.pk, done.pk]
    assert rows[0]["rejection_code"] == "proof_unavailable"
    assert (rows[1]["status"], rows[1]["source_chain_ids"], rows[1]["cost_wei"]) == ("DONE", "31337", "0")
    assert rows[1]["asked"] == f"Balance of {ALICE[:6]}…{ALICE[-4:]} at block 12: 123,456,789.012345678901234567 ETH"
    assert datetime.fromisoformat(rows[1]["ended"]) >= datetime.fromisoformat(rows[1]["submitted"])
    assert alice.get("/explorer", {"status": "DONE"}).text.count("/explorer.csv?status=DONE") == 1
    assert done.pk in (text := alice.get("/explorer.csv", {"status": "DONE"}).text)
    assert rejected.pk not in text
    assert client.get("/explorer.csv").headers["Location"].startswith("/sign-in")


def test_a_long_list_is_several_files(alice, monkeypatch):
    expected = many(60)
    monkeypatch.setattr(batch_list, "MOST_IN_FILE", 25)
    ids, address = [], "/explorer.csv"
    while address:
        answer = alice.get(address)
        ids += [row["internal_id"] for row in csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig")))]
        link = re.fullmatch('<([^>]+)>; rel="next"', answer.headers.get("Link", ""))
        address = f"/explorer.csv{link[1]}" if link else ""
    assert ids == expected


# --- Pages ------------------------------------------------------------------------------------------------------------


def many(count: int) -> list[str]:
    """Store batches of Alice. Return their ids, newest first."""
    key = a_key()
    ids = (f"01J2VM6636VWW45ZRPGEQE{number:04d}" for number in range(count))
    rows = [Batch(id=pk, user=key.user, api_key=key, **COMMON) for pk in ids]
    Batch.objects.bulk_create(rows)
    return [row.pk for row in reversed(rows)]


def follow(client: Client, html: str, relation: str) -> str:
    match = re.search(rf'<a href="([^"]+)" rel="{relation}"', html)
    return client.get("/explorer" + match[1].replace("&amp;", "&")).text if match else ""


def test_pages_hold_every_batch_once_in_both_directions(alice):
    expected = many(60)
    html, seen, last = alice.get("/explorer").text, [], ""
    while html:
        seen += ids(html)
        html, last = follow(alice, html, "next"), html
    assert seen == expected
    back: list[str] = []
    while last:
        back = ids(last) + back
        last = follow(alice, last, "prev")
    assert back == expected
