"""The form that people submit a batch with. Its chain has a node only where estimates need one."""

import json
import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, RequestFactory
from django.utils import timezone

from accounts import keys
from accounts.models import ApiKey, User
from config.configured_chains import forget_chains
from explorer.new_batch.drafts import MAX_ROWS
from explorer.new_batch.forms import RowForm
from proving.budget import allowance
from proving.budget.reservations import Reservation
from queries import progress
from queries.models import Batch, Webhook
from queries.properties import AccountField, HeaderField
from queries.rejection_codes import RejectionCode
from tests.explorer.batches import a_batch, batch_at, connect_source, many_accounts, page, path
from tests.service import ALICE, BOB, chains_toml, request, submit, work_until_done

pytestmark = pytest.mark.django_db
HTMX = {"hx-request": "true"}
TOKEN = "a-token-of-22-letters-"


PROVEN_ALREADY = 'Proven already <span class="under">of accounts, slots and header fields</span></dt><dd>'


@pytest.fixture
def alice(key, alice) -> Client:
    """Signed in, with a key."""
    signed_in: Client = alice
    return signed_in


def form(*rows: dict[str, Any], **others: Any) -> dict[str, Any]:
    """Return a form as a browser posts it. A row is at the latest block and about a balance, unless told otherwise."""
    usual = {"source": "31337", "at": "latest", "props": ["BALANCE"], "slot_of": "address"}
    data = {"destination": "31337", "sender": "service", "fee": "", "token": TOKEN}
    data |= {"rows-TOTAL_FORMS": str(len(rows)), "rows-INITIAL_FORMS": str(len(rows))} | others
    for number, row in enumerate(rows):
        data |= {f"rows-{number}-{name}": value for name, value in (usual | row).items()}
    return data


def a_file(content: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("accounts.csv", content)


def test_no_file_of_a_form_is_written_to_disk():
    sizes = (1, 4 * 1024 * 1024 + 1)
    assert [len(RequestFactory().post("/new-batch", {"file": a_file(bytes(size))}).FILES) for size in sizes] == [1, 0]


def revealed() -> str:
    text = keys.reveal(ApiKey.objects.get())
    assert text
    return text


def post(client: Client, do: str, data: dict[str, Any], *, status: int = 200) -> str:
    answer = client.post("/new-batch", data | {"do": do})
    assert answer.status_code == status, answer.text
    return unescape(answer.text)


def values(html: str, name: str) -> list[str]:
    """Return what the fields of this name hold, in each row."""
    fields = rf'<(?:input|textarea)[^>]*name="(?:rows-\d+-)?{name}"[^>]*>'
    found = []
    for tag in re.finditer(fields, html):
        is_area = tag[0].startswith("<textarea")
        if is_area:
            found.append(html[tag.end() : html.index("</textarea>", tag.end())].removeprefix("\n"))
        elif " checked" in tag[0] or 'type="text"' in tag[0] or "datetime" in tag[0] or "hidden" in tag[0]:
            value = re.search(r'value="([^"]*)"', tag[0])
            found.append(value[1] if value else "")
    return found


def described(html: str, control: str) -> str:
    """Return what a reader of the invalid control is told: the text of what it says it is described by."""
    tag = re.search(rf'<[a-z]+[^>]*id="{control}"[^>]*>', html)
    assert tag, control
    assert 'aria-invalid="true"' in tag[0]
    by = re.search(r'aria-describedby="([^"]+)"', tag[0])
    assert by
    texts = [
        html[html.index(f'id="{name}"') :].partition(">")[2].partition("</div></div>")[0] for name in by[1].split()
    ]
    return re.sub(r"<[^>]+>", "", " ".join(texts))


# --- Who may --------------------------------------------------------------------------------------------------------


def test_who_is_signed_out_signs_in_and_comes_back(client):
    answer = client.get("/new-batch?from=X")
    assert (answer.status_code, answer.url) == (302, "/sign-in?next=/new-batch%3Ffrom%3DX")
    # htmx would put the page of the sign-in into the form.
    told = client.post("/new-batch", form({"accounts": ALICE}) | {"do": "add-row"}, headers=HTMX)
    assert (told.status_code, told.headers["HX-Retarget"]) == (200, "#estimate")
    assert "You are signed out" in told.text
    html = post(client, "submit", form({"accounts": ALICE}), status=401)
    assert "You are signed out" in html
    assert values(html, "accounts") == [ALICE]
    assert client.get("/new-batch/estimate").url == "/sign-in?next=/new-batch/estimate"


def test_the_first_page_asks_little_of_the_database_and_no_node(alice, django_assert_num_queries):
    with django_assert_num_queries(2):  # session and user
        html = alice.get("/new-batch").text
    assert values(html, "at") == ["latest"]
    assert values(html, "props") == ["BALANCE"]
    assert "It is empty so far" in html
    assert alice.get("/new-batch").headers["Cache-Control"] == "max-age=0, no-cache, no-store, must-revalidate, private"


def test_it_takes_the_protection_against_forged_requests():
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.for_address(ALICE))
    assert strict.post("/new-batch", form({"accounts": ALICE}) | {"do": "submit"}).status_code == 403
    assert strict.post("/new-batch/estimate", form({"accounts": ALICE})).status_code == 403


# --- Submitting -------------------------------------------------------------------------------------------------------


def test_what_is_submitted_is_the_batch_that_the_api_would_make(alice):
    rows = (
        {"at": "block", "block": "1,2", "accounts": f"{ALICE}\r\n{BOB}\r\n", "slots": "0x1"},
        {"at": "finalized", "props": [], "header": ["GAS_USED", "TIMESTAMP"]},
    )
    answer = alice.post("/new-batch", form(*rows, fee="0.5") | {"do": "submit"})
    batch = Batch.objects.get()
    assert (answer.status_code, answer.url) == (303, path(batch))
    asked = {"props": ["BALANCE"], "slots": ["0x1"]}
    assert json.loads(batch.request) == {
        "destinationChainId": "31337",
        "fee": "500000000000000000",
        "data": {
            "31337": {
                "block:12": {"accounts": {ALICE: asked, BOB: asked}},
                "finalized": {"header": ["GAS_USED", "TIMESTAMP"]},
            }
        },
    }
    assert (batch.user.address, batch.api_key, batch.size) == (ALICE, ApiKey.objects.get(), 5)


def test_a_webhook_is_part_of_the_batch_and_what_is_wrong_with_it_stands_at_its_field(alice):
    html = post(alice, "submit", form({"accounts": ALICE}, webhook="x"), status=400)
    assert described(html, "id_webhook")
    assert values(html, "webhook") == ["x"]
    alice.post("/new-batch", form({"accounts": ALICE}, webhook=" https://hooks.example.org/a ") | {"do": "submit"})
    assert Batch.objects.get().webhook.receiver == "hooks.example.org:443"


@pytest.mark.parametrize("is_configured", [True, False])
def test_ens_is_offered_where_it_is_configured_and_only_there(alice, settings, is_configured):
    if is_configured:
        settings.CHAINS_FILE.write_text(settings.CHAINS_FILE.read_text() + "\n[ens]\nchain = 31337\n")
        forget_chains()
    html = alice.get("/new-batch").text
    assert ("Addresses or ENS names, as many as you like" in html) == is_configured
    assert ("ENS" in html) == is_configured
    if not is_configured:
        html = post(alice, "submit", form({"accounts": "vitalik.eth"}), status=400)
        assert "This service resolves no ENS names. Type the address instead." in described(html, "id_rows-0-accounts")


def test_the_rows_are_a_file_too(alice):
    row = {"at": "block", "block": "12", "accounts": f"{ALICE}\r\n{BOB}", "slots": "0x1\r\n0x2"}
    answer = alice.post("/new-batch", form(row) | {"do": "csv"})
    assert answer.headers["Content-Disposition"] == 'attachment; filename="batch.csv"'
    assert answer.text.splitlines() == [
        "address,block,properties,slots,header,chain",
        f"{ALICE},12,BALANCE,0x1 0x2,,31337",
        f"{BOB},12,BALANCE,0x1 0x2,,31337",
    ]


def test_a_double_click_makes_one_batch_and_a_changed_form_another(alice):
    data = form({"accounts": ALICE})
    urls = [alice.post("/new-batch", data | {"do": "submit"}).url for _ in range(2)]
    assert urls == [path(Batch.objects.get())] * 2
    alice.post("/new-batch", form({"accounts": BOB}) | {"do": "submit"})
    alice.post("/new-batch", data | {"do": "submit", "token": "another-token-of-22-ab"})
    assert Batch.objects.count() == 3


def test_a_request_that_was_killed_is_found_again(alice, monkeypatch):
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("queries.submission.logger.info", die)  # between commit and answer
        with pytest.raises(Killed):
            alice.post("/new-batch", form({"accounts": ALICE}) | {"do": "submit"})
    assert alice.post("/new-batch", form({"accounts": ALICE}) | {"do": "submit"}).url == path(Batch.objects.get())


def test_faults_stand_beside_their_fields_and_nothing_typed_is_lost(alice):
    rows = (
        {"accounts": f"{ALICE}\r\n0x12"},
        {"at": "block", "block": "twelve", "accounts": BOB, "props": [], "slots": "0xyz", "slot_key": "7"},
    )
    html = post(alice, "submit", form(*rows, fee="much", pasted="x,y"), status=400)
    assert not Batch.objects.exists()
    assert "Line 2: '0x12' is not 0x and 40 hexadecimal digits" in described(html, "id_rows-0-accounts")
    assert "A block number has decimal digits" in described(html, "id_rows-1-block")
    assert "A storage slot is up to 64" in described(html, "id_rows-1-slots")
    assert "The fee cap must be an amount in ETH" in described(html, "id_fee")
    linked = re.findall(r'<li><a href="#([^"]+)"', html)
    assert linked == ["id_fee", "id_rows-0-accounts", "id_rows-1-block", "id_rows-1-slots"]
    assert all(f'id="{target}"' in html for target in linked)
    assert "4 things need correcting." in html
    assert values(html, "accounts") == [f"{ALICE}\r\n0x12", BOB]
    assert [values(html, name) for name in ("block", "slots", "slot_key")] == [["", "twelve"], ["", "0xyz"], ["", "7"]]
    assert [values(html, name) for name in ("fee", "pasted", "token")] == [["much"], ["x,y"], [TOKEN]]
    assert values(html, "props") == ["BALANCE"]


def test_limits_are_those_of_the_api_and_said_as_sentences(alice, settings):
    settings.MAX_BATCHES_PER_MINUTE = 1
    data = form({"accounts": ALICE})
    assert alice.post("/new-batch", data | {"do": "submit"}).status_code == 303
    answer = alice.post("/new-batch", form({"accounts": BOB}) | {"do": "submit"})
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0
    assert "You may submit 1 batches a minute" in answer.text
    assert values(answer.text, "accounts") == [BOB]
    # One count for both: who has used it up here has used it up there.
    header = {"api-key": revealed()}
    assert alice.post("/submit-batch-query", "{}", content_type="application/json", headers=header).status_code == 429
    assert Batch.objects.count() == 1


@pytest.mark.parametrize(
    ("setting", "value", "status", "sentence"),
    [
        ("MAX_QUERIES_PER_BATCH", 1, 400, "2 accounts, slots and headers are too many; a batch may name 1."),
        ("MAX_OPEN_BATCHES", 0, 403, "You may have 0 batches open at a time"),
        ("ALLOWED_ADDRESSES", {BOB}, 403, "Your address may not use this service any more."),
    ],
)
def test_what_is_too_much_is_refused(alice, settings, setting, value, status, sentence):
    setattr(settings, setting, value)
    html = post(alice, "submit", form({"accounts": f"{ALICE}\n{BOB}"}), status=status)
    assert sentence in html
    assert not Batch.objects.exists()


def test_without_a_live_key_it_says_where_to_make_one(alice):
    ApiKey.objects.update(revoked_at=timezone.now())
    html = post(alice, "submit", form({"accounts": ALICE}), status=403)
    assert "You have no API key." in html
    assert 'href="/keys">Go to your keys</a>' in html
    assert not Batch.objects.exists()


def test_one_pays_oneself_where_the_service_has_no_signer(alice, settings, tmp_path):
    content = (
        chains_toml(tmp_path, "http://127.0.0.1:1").read_text().replace('[chains.signer]\nkey_file = "signer.key"', "")
    )
    settings.CHAINS_FILE.write_text(content)
    forget_chains()
    assert values(alice.get("/new-batch").text, "sender") == ["self"]
    html = post(alice, "submit", form({"accounts": ALICE}), status=400)
    assert '<a href="#id_sender_0">Who pays</a>: The service has no signer' in html
    alice.post("/new-batch", form({"accounts": ALICE}, sender="self") | {"do": "submit"})
    assert Batch.objects.get().is_self_funded


@pytest.mark.parametrize("others", [{"rows-TOTAL_FORMS": "x"}, {"rows-0-accounts": "a\0b"}, {"rows-TOTAL_FORMS": "0"}])
def test_a_form_that_no_browser_sends_is_answered(alice, others):
    answer = alice.post("/new-batch", form({"accounts": ALICE}) | others | {"do": "submit"})
    assert answer.status_code == 400
    assert not Batch.objects.exists()
    assert alice.post("/new-batch/estimate", form({"accounts": ALICE}) | others).status_code == 200


NASTY = [
    "\0",
    "a\0b",
    "9" * 5000,
    "-1",
    "\u0663",
    "\u2028",
    "\ud7ff\uffff",
    "<script>",
    "%00",
    " ",
    "x" * 40_000,  # 18 times in a form of which a megabyte is taken
    "1e999",
    ".",
]


OF_FORM = ("destination", "sender", "fee", "pasted", "token")
BUTTONS = ("submit", "estimate", "add-row", "remove-0", "slot-0", "json", "csv", "paste")


def typed(name: str, value: str) -> dict[str, Any]:
    row = {"accounts": ALICE, "at": "block", "block": "1", "slot_key": "1", "slot_base": "1"}
    if name == "time":
        row["at"] = "time"
    return form(row, **{name: value}) if name in OF_FORM else form(row | {name: value})


@pytest.mark.parametrize("value", NASTY)
def test_whatever_is_typed_is_answered(alice, client, settings, value):
    settings.MAX_BATCHES_PER_MINUTE = 10_000
    for at in ("block", "time", value):
        every = form(dict.fromkeys(RowForm.base_fields, value) | {"at": at}, **dict.fromkeys(OF_FORM, value))
        for do in BUTTONS if at != "time" else BUTTONS[:1]:
            assert alice.post("/new-batch", every | {"do": do}).status_code in {200, 400}, do
    assert alice.post("/new-batch/estimate", every).status_code == 200
    assert client.post("/new-batch", every).status_code == 401
    assert client.post("/new-batch/estimate", every).status_code == 401


@pytest.mark.parametrize("name", [*OF_FORM, *RowForm.base_fields])
def test_whatever_is_typed_in_one_field_is_answered(alice, settings, name):
    settings.MAX_BATCHES_PER_MINUTE = 10_000
    for value in ("\0", "9" * 5000):
        assert alice.post("/new-batch", typed(name, value) | {"do": "slot-0"}).status_code in {200, 400}
        assert alice.post("/new-batch", typed(name, value) | {"do": "submit"}).status_code in {303, 400}
        assert alice.post("/new-batch/estimate", typed(name, value)).status_code == 200


@pytest.mark.parametrize("name", ["accounts", "slots", "pasted", "fee", "destination"])
def test_what_no_text_has_is_shown_among_what_was_typed(alice, name):
    typed = f"{ALICE}\r\n\0{BOB}"
    data = form({"accounts": "", name: typed}) if name in {"accounts", "slots"} else form({}, **{name: typed})
    html = post(alice, "submit", data, status=400)
    assert "characters that are not text" in html
    assert f"{ALICE}\r\n\ufffd{BOB}" in html


def test_no_more_rows_are_shown_than_were_sent(alice):
    for total in ("3", "50", "60", "9" * 30):
        for sent in range(3):
            data = form(*[{"accounts": ALICE}] * sent, **{"rows-TOTAL_FORMS": total})
            html = post(alice, "paste", data, status=400)
            assert len(values(html, "accounts")) == max(1, sent), (total, sent)
            assert "The form arrived incomplete" in html
            post(alice, "submit", data, status=400)
    assert not Batch.objects.exists()
    # Nor more than it says, and than a form holds.
    assert len(values(post(alice, "json", form({}, {}, **{"rows-TOTAL_FORMS": "60"}), status=400), "accounts")) == 2
    many = form(*[{"accounts": ALICE}] * 60)
    assert len(values(post(alice, "submit", many, status=400), "accounts")) == MAX_ROWS


def test_the_largest_form_with_all_ticked_has_few_enough_parts(alice):
    row = dict.fromkeys(RowForm.base_fields, "1") | {"props": AccountField.names, "header": HeaderField.names}
    html = post(alice, "add-row", form(*[row] * MAX_ROWS, csrfmiddlewaretoken="x" * 64, file=a_file(b"x")))
    assert len(values(html, "accounts")) == MAX_ROWS


# --- Row by row, without JavaScript -----------------------------------------------------------------------------------


def test_buttons_add_and_remove_rows(alice):
    html = post(alice, "add-row", form({"accounts": ALICE, "at": "block", "block": "12"}))
    assert values(html, "accounts") == [ALICE, ""]
    assert values(html, "block") == ["12", "12"], "the next row is about the same block"
    assert re.search(r'id="id_rows-1-accounts"[^>]* autofocus|autofocus[^>]*id="id_rows-1-accounts"', html)
    html = post(alice, "remove-0", form({"accounts": ALICE}, {"accounts": BOB}))
    assert values(html, "accounts") == [BOB]
    assert values(post(alice, "remove-0", form({"accounts": ALICE})), "accounts") == [""]
    full = form(*({"accounts": ALICE} for _ in range(MAX_ROWS)))
    html = post(alice, "add-row", full)
    assert len(values(html, "accounts")) == MAX_ROWS
    assert f"The form holds {MAX_ROWS} rows." in html
    # For htmx it is the form alone.
    fragment = alice.post("/new-batch", form({"accounts": ALICE}) | {"do": "add-row"}, headers=HTMX).text
    assert fragment.lstrip().startswith('<form id="new-batch"')


def test_the_helper_adds_the_slot_of_a_mapping(alice):
    row = {"accounts": ALICE, "slots": "0x5", "slot_of": "uint256", "slot_base": "0", "slot_key": "0"}
    html = post(alice, "slot-0", form(row))
    (slots,) = values(html, "slots")
    assert slots == "0x5\n0xad3228b676f7d3cd4284a5443f17f1962b36e491b30a40b2405849e597ba5fb5"
    assert [values(html, name) for name in ("slot_base", "slot_key")] == [["0"], [""]]
    html = post(alice, "slot-0", form(row | {"slot_of": "array", "slot_key": "two"}), status=400)
    assert "The index is a number" in described(html, "id_rows-0-slot_key")
    assert values(html, "slots") == ["0x5"]


# --- Lists and tables -------------------------------------------------------------------------------------------------


def test_fifty_pasted_addresses_are_one_row(alice):
    text = "address,block,properties\n" + "".join(f"{account},15,BALANCE\n" for account in many_accounts(50))
    html = post(alice, "paste", form({}, pasted=text))
    assert values(html, "accounts") == ["\n".join(many_accounts(50))]
    assert [values(html, name) for name in ("at", "block", "pasted")] == [["block"], ["15"], [""]]
    assert "<b>50 facts of 50 accounts</b>" in " ".join(html.split())


def test_a_file_is_read_and_added_to_what_is_there(alice):
    file = a_file(f"\ufeff{BOB},latest,NONCE\r\n".encode())
    html = post(alice, "paste", form({"accounts": ALICE}, file=file))
    assert values(html, "accounts") == [ALICE, BOB]
    html = post(alice, "paste", form({"accounts": ALICE}, file=a_file(b"\xff\xfe")), status=400)
    assert "The file is no text in UTF-8." in html


def test_faults_of_a_table_are_told_by_line_and_nothing_is_added(alice):
    text = f"address,block\n{ALICE},12\n\n0x12,12\n{BOB},-5\n{BOB},12"
    html = post(alice, "paste", form({}, pasted=text), status=400)
    assert re.findall(r"<li>(Line \d+): (\S+ \w+)", html) == [("Line 4", "'0x12' is"), ("Line 5", "The block")]
    assert values(html, "pasted") == [text]
    assert values(html, "accounts") == [""]


def test_it_says_how_many_lines_it_has_read(alice):
    assert "2 lines are in the form." in post(alice, "paste", form({}, pasted=f"{ALICE} {BOB}\n{BOB}\n"))
    for pasted in ({"pasted": "address,block"}, {"file": a_file(b"address,block\n")}):
        assert "There is nothing below the names" in post(alice, "paste", form({}, **pasted), status=400)


def test_pasting_makes_no_more_rows_than_the_form_holds(alice):
    text = "\n".join(f"{BOB},{block}" for block in range(MAX_ROWS))
    html = post(alice, "paste", form({"accounts": ALICE}, pasted=text), status=400)
    assert f"The form holds {MAX_ROWS} rows, and would have more." in html
    assert (values(html, "accounts"), values(html, "pasted")) == ([ALICE], [text])
    assert len(values(post(alice, "paste", form({}, pasted=text)), "accounts")) == MAX_ROWS


def test_pasting_is_counted_as_estimates_are(alice, settings):
    settings.MAX_BATCHES_PER_MINUTE = 1
    assert values(post(alice, "paste", form({}, pasted=ALICE)), "accounts") == [ALICE]
    html = post(alice, "paste", form({}, pasted="a,b,c,d,e,f,g"), status=429)
    assert "You may estimate 1 batches a minute" in html
    assert values(html, "pasted") == ["a,b,c,d,e,f,g"]


@pytest.mark.parametrize("token", ["", "short", "x" * 65, "with blanks and more <b>", "x" * 21 + "\u00e9"])
def test_a_token_that_no_form_had_is_replaced(alice, token):
    (new,) = values(post(alice, "add-row", form({"accounts": ALICE}, token=token)), "token")
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", new)
    assert values(post(alice, "add-row", form({"accounts": ALICE})), "token") == [TOKEN]


def test_ten_thousand_addresses_are_one_row_and_a_batch(alice):
    text = "\n".join(many_accounts(10_000))
    html = post(alice, "paste", form({}, pasted=text))
    assert html.count('<details class="ask') == 1
    assert len(html) < 600_000
    answer = alice.post("/new-batch", form({"accounts": values(html, "accounts")[0]}) | {"do": "submit"})
    assert answer.status_code == 303
    assert Batch.objects.get().size == 10_000


# --- Estimates --------------------------------------------------------------------------------------------------------


def test_the_estimate_is_that_of_the_api_and_knows_what_is_proven(service, alice):
    data = form({"at": "block", "block": str(service.head()), "accounts": f"{ALICE}\n{BOB}"})
    told = alice.post("/new-batch/estimate", data, headers=HTMX).text
    assert f"{PROVEN_ALREADY}0 of 2" in told
    assert "Transactions</dt><dd>1<" in told
    assert 'id="fact-count" hx-swap-oob="innerHTML">2 facts<' in told
    made_at = re.search(r'As it was at <time datetime="([^"]+)">', told)
    assert made_at
    assert abs(timezone.now() - datetime.fromisoformat(made_at[1])) < timedelta(minutes=1)
    assert f'data-aged="{made_at[1]}"' in told
    body = json.loads(unescape(re.search(r"<code>(\{.*?\})</code>", told, re.DOTALL)[1]))  # type: ignore[index]
    key = {"api-key": revealed()}
    api = alice.post("/estimate-batch-query", body, content_type="application/json", headers=key).json()
    assert f"Gas</dt><dd>{api['gas']['expected']:,}<" in told
    assert "$API_KEY" in told
    assert key["api-key"] not in told

    alice.post("/new-batch", data | {"do": "submit"})
    work_until_done(Batch.objects.get(), service)
    assert f"{PROVEN_ALREADY}2 of 2, free" in alice.post("/new-batch/estimate", data, headers=HTMX).text
    # Without JavaScript it is a button.
    assert f"{PROVEN_ALREADY}2 of 2, free" in post(alice, "estimate", data)


def test_the_estimate_says_what_would_be_rejected_and_what_is_to_be_corrected(service, alice):
    far = form({"at": "block", "block": str(service.head() + 1000), "accounts": ALICE})
    told = alice.post("/new-batch/estimate", far, headers=HTMX).text
    assert "<code>block_too_far_ahead</code>" in told
    assert f"Block {service.head() + 1000} of Development chain is " in told
    wrong = alice.post("/new-batch/estimate", form({"accounts": "0x12"}), headers=HTMX)
    assert wrong.status_code == 200  # htmx swaps in nothing else
    assert '<a href="#id_rows-0-accounts">Row 1, accounts</a>: &#x27;0x12&#x27; is not 0x and 40' in wrong.text
    assert "stands here" in alice.post("/new-batch/estimate", form({}), headers=HTMX).text


def test_each_row_says_which_block_it_means(service, alice):
    head = service.head() + 2
    time = int(service.rpc("eth_getBlockByNumber", hex(head - 2), False)["timestamp"], 16)
    for later in (10, 20):
        service.rpc("evm_setNextBlockTimestamp", time + later)
        service.mine()
    rows: list[dict[str, str]] = [
        {"at": "latest"},
        {"at": "block", "block": str(head - 1)},
        {"at": "time", "time": str(time)},
        {"at": "block", "block": str(head + 5)},
    ]
    data = form(*(row | {"accounts": ALICE} for row in rows))
    told = " ".join(alice.post("/new-batch/estimate", data, headers=HTMX).text.split())
    said = re.findall(r'id="row-\d" hx-swap-oob="innerHTML">.*?class="sub2">Development chain, (.*?) · BALANCE', told)
    assert said[:2] == [f"latest block, now {head}", f"block {head - 1}, 1 block before the newest"]
    assert said[2].endswith(f" UTC, now {head - 2}, 2 blocks before the newest")
    assert said[3] == f"block {head + 5}, still to come"


def test_the_estimate_says_what_is_left_of_the_budget_that_it_takes_of(service, alice, settings, tmp_path):
    left = "left in 24 hours"
    data = form({"at": "block", "block": "3", "accounts": ALICE})
    assert left not in alice.post("/new-batch/estimate", data, headers=HTMX).text
    settings.CHAINS_FILE = chains_toml(tmp_path, service.url, chain="test_network = false")
    forget_chains()
    settings.DAILY_GAS_BUDGET, settings.ALLOWED_ADDRESSES = 12_000_000, [ALICE]
    told = alice.post("/new-batch/estimate", data, headers=HTMX).text
    assert f"Your budget has 12.0 M gas of 12.0 M {left}." in told
    own = alice.post("/new-batch/estimate", data | {"sender": "self"}, headers=HTMX).text
    assert "You pay about" in own
    assert left not in own


@pytest.mark.parametrize(
    ("is_test_network", "said"),
    [
        ("true", ("A test network has no budget.", "On a test network it limits nothing.")),
        ("false", ("The operator pays, within your daily budget.", "It is rejected if it would cost more.")),
    ],
)
def test_it_says_what_limits_a_batch_on_the_chosen_chain(alice, settings, tmp_path, is_test_network, said):
    settings.ALLOWED_ADDRESSES = [ALICE]
    settings.CHAINS_FILE = chains_toml(tmp_path, "http://127.0.0.1:1", chain=f"test_network = {is_test_network}")
    forget_chains()
    beside = alice.post("/new-batch/estimate", form({"accounts": ALICE}), headers=HTMX).text
    for sentence in said:
        assert sentence in alice.get("/new-batch").text
        assert sentence in beside


def test_an_estimate_that_can_t_be_had_is_said(alice, settings):
    assert "Nothing was stored" in alice.post("/new-batch/estimate", form({"accounts": ALICE}), headers=HTMX).text
    settings.MAX_BATCHES_PER_MINUTE = 1
    told = alice.post("/new-batch/estimate", form({"accounts": ALICE}), headers=HTMX)
    assert "You may estimate 1 batches a minute" in told.text


def test_the_json_can_be_kept(alice):
    answer = alice.post("/new-batch", form({"accounts": ALICE}) | {"do": "json"})
    assert answer.headers["Content-Disposition"] == 'attachment; filename="batch.json"'
    assert submit(ApiKey.objects.get(), json.loads(answer.text)).size == 1


# --- Submitting again -------------------------------------------------------------------------------------------------


def rejected(batch: Batch, code: RejectionCode, reason: str) -> Batch:
    progress.reject([batch.pk], code=code, reason=reason, retryable=False)
    batch.refresh_from_db()
    return batch


def test_the_owner_is_offered_to_submit_it_again(alice):
    batch = a_batch()
    link = f'<a href="/new-batch?from={batch.pk}">Submit again</a>'
    assert link in alice.get(path(batch)).text
    assert "ubmit again" not in page(batch)
    rejected(batch, RejectionCode.BLOCK_TOO_OLD, "Block 12 is too old.")
    main = f'<a class="button main" href="/new-batch?from={batch.pk}">Change it and submit again</a>'
    for answer in (alice.get(path(batch)), alice.get(path(batch), headers=HTMX)):
        assert (answer.text.count(main), answer.text.count("ubmit again")) == (1, 1)
    stranger = Client()
    stranger.force_login(User.objects.for_address(BOB))
    assert "ubmit again" not in stranger.get(path(batch)).text
    assert f"You have no batch {batch.pk}." in stranger.get(f"/new-batch?from={batch.pk}").text


def test_it_is_filled_in_from_a_batch(alice):
    batch = a_batch(ALICE, BOB, fee=15)
    html = alice.get(f"/new-batch?from={batch.pk}").text
    assert values(html, "accounts") == [f"{ALICE}\n{BOB}"]
    assert [values(html, name) for name in ("at", "block", "fee")] == [["block"], ["12"], ["0.000000000000000015"]]


@pytest.mark.parametrize(
    ("code", "reason", "control"),
    [
        (RejectionCode.TIMESTAMP_TOO_FAR_AHEAD, "The time 1795176000 is far.", "id_rows-2-time"),
        (RejectionCode.HEADER_PROPERTY_MISSING, "It lacks one.", "id_rows-1-header_0"),
        (RejectionCode.FEE_TOO_LOW, "It is too low.", "id_fee"),
    ],
)
def test_for_a_rejected_one_it_stands_at_what_must_be_changed(alice, code, reason, control):
    balance = {"accounts": {ALICE: {"props": ["BALANCE"]}}}
    batch = batch_at(block_12=balance, block_13=balance | {"header": ["REQUESTS_HASH"]}, timestamp_1795176000=balance)
    html = alice.get(f"/new-batch?from={rejected(batch, code, reason).pk}").text
    tag = re.search(rf'<[a-z]+[^>]*id="{control}"[^>]*>', html)
    assert tag
    assert "autofocus" in tag[0]
    assert 'aria-invalid="true"' in tag[0]
    assert f'<a href="#{control}">' in html


def test_beside_a_rejected_one_stand_one_sentence_and_one_advice(alice):
    reason = "Block 12 of chain 31337 is far above the newest one. Send it again when the block is nearer."
    batch = batch_at(block_12={"accounts": {ALICE: {"props": ["BALANCE"]}}})
    html = alice.get(f"/new-batch?from={rejected(batch, RejectionCode.BLOCK_TOO_FAR_AHEAD, reason).pk}").text
    shown = html[html.index("was rejected.</strong>") :]
    assert "Check the block number." in shown
    assert "Send it again when the block is nearer." not in shown[: shown.index("</div></div>")]


def test_the_highest_fee_is_taken_again(alice):
    batch = a_batch(fee=2**256 - 1)
    (fee,) = values(alice.get(f"/new-batch?from={batch.pk}").text, "fee")
    alice.post("/new-batch", form({"accounts": ALICE}, fee=fee) | {"do": "submit"})
    assert Batch.objects.exclude(pk=batch.pk).get().fee == 2**256 - 1


def test_what_the_form_can_t_hold_is_said(alice, settings, tmp_path):
    connect_source(tmp_path)
    accounts = {account: {"slots": [f"{number:x}"]} for number, account in enumerate(many_accounts(MAX_ROWS + 1))}
    batch = batch_at(block_12={"accounts": accounts})
    assert "more than the form holds" in alice.get(f"/new-batch?from={batch.pk}").text


def hooked(**more: Any) -> Batch:
    webhook = {"url": "https://93.184.215.14/?secret", **more}
    return submit(ApiKey.objects.get(), request(ALICE, block=12) | {"webhook": webhook})


def test_the_webhook_of_a_batch_is_filled_in_and_what_the_form_does_not_hold_is_said(alice):
    html = alice.get(f"/new-batch?from={hooked().pk}").text
    assert values(html, "webhook") == ["https://93.184.215.14/?secret"]
    lacks = "The headers and the events of its webhook are left out"
    assert lacks not in html
    for more in ({"headers": {"X-Token": "token"}}, {"events": ["DONE"]}):
        html = alice.get(f"/new-batch?from={hooked(**more).pk}").text
        assert values(html, "webhook") == ["https://93.184.215.14/?secret"]
        assert lacks in html
        assert "X-Token" not in html
    batch = hooked()
    Webhook.objects.update(sealed=b"of another secret")
    html = alice.get(f"/new-batch?from={batch.pk}").text
    assert values(html, "webhook") == [""]
    assert "Its webhook is left out: it can&#x27;t be read any more." in html


def test_a_fee_that_was_too_low_is_told_beside_what_the_batch_may_cost(alice):
    batch = a_batch(ALICE, fee=5 * 10**9)
    low = allowance.fee_too_low(batch.fee, Reservation(gas=200_000, wei=123_456_789_012_345), path_gas=0, data_wei=0)
    assert low is not None
    html = alice.get(f"/new-batch?from={rejected(batch, low.code, low.reason).pk}").text
    assert values(html, "fee") == ["0.000000005"]
    assert "Proving this batch may cost 0.000123 ETH, more than its fee of 0.000000005 ETH." in html
    assert " wei" not in html
    # The estimate, as it was asked for, is no amount.
    batch = submit(ApiKey.objects.get(), request(ALICE, block=12) | {"fee": "auto"})
    html = alice.get(f"/new-batch?from={rejected(batch, low.code, low.reason).pk}").text
    assert values(html, "fee") == [""]


def test_the_largest_form_is_taken(alice):
    row = {"props": AccountField.names, "header": HeaderField.names, "slot_base": "0", "slot_key": "0"}
    rows = [row | {"accounts": account} for account in many_accounts(MAX_ROWS)]
    html = post(alice, "add-row", form(*rows, fee="1", pasted="x"))
    assert values(html, "accounts") == list(many_accounts(MAX_ROWS))
