"""Labels of batches on pages: shown, changed by the owner, searched, filtered and in files."""

import csv
import io
import json
import re

import pytest
from django.test import Client

from accounts.models import ApiKey, User
from queries.models import Batch
from tests.explorer import batches
from tests.explorer.pages import text_of
from tests.factories import client_of
from tests.service import ALICE, BOB, a_key, fresh, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

LABEL = "Payroll <b>March</b>"
STACKED = "Z" + "\u0301" * 99


def labelled(label: str, *, block: int = 12) -> Batch:
    return batches.submitted({**request(ALICE, block=block), "label": label})


def test_a_label_is_shown_as_text_to_whoever_sees_the_batch(alice, client):
    batch = labelled(LABEL)
    for html in (client.get(batches.path(batch)).text, alice.get("/explorer").text, alice.get("/dashboard").text):
        assert "Payroll &lt;b&gt;March&lt;/b&gt;" in html
        assert "<b>March" not in html
    assert "<title>RECEIVED · Payroll &lt;b&gt;March&lt;/b&gt; · Balance" in client.get(batches.path(batch)).text


def test_the_owner_alone_changes_the_label_on_the_batch_s_page(alice, client):
    batch = labelled(LABEL)
    path = f"{batches.path(batch)}/label"
    assert f'action="{path}"' in alice.get(batches.path(batch)).text
    for other in (client, client_of(BOB)):
        assert f'action="{path}"' not in other.get(batches.path(batch)).text
    for text, label in ((" Ma\u0308rz  2026 ", "März 2026"), ("a" * 100, "a" * 100), ("  ", None)):
        answer = alice.post(path, {"label": text})
        assert (answer.status_code, answer.headers["Location"]) == (302, batches.path(batch))
        assert fresh(batch).label == label
        # The former one may have been a mistake.
        assert alice.get(f"{batches.path(batch)}/request.json").json()["label"] == label
    assert client_of(BOB).post(path, {"label": "mine"}).status_code == 404
    assert client_of(ALICE, 31337).post(path, {"label": "mine"}).status_code == 404
    assert client.post(path, {"label": "mine"}).headers["Location"].startswith("/sign-in")
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.for_address(ALICE))
    assert strict.post(path, {"label": "forged"}).status_code == 403
    assert alice.get(path).headers["Location"] == batches.path(batch)
    assert fresh(batch).label is None


@pytest.mark.parametrize(
    "text", ["a" * 101, "a\nb\x07", "evil\u202egnp", "\u3164", "a\u2800b", "\ufe0f", "a\U000e0100", STACKED], ids=ascii
)
def test_a_label_that_nobody_could_read_is_refused_and_can_be_corrected(alice, text):
    batch = labelled(LABEL)
    answer = alice.post(f"{batches.path(batch)}/label", {"label": text})
    assert answer.status_code == 400
    assert "A label has 1 to 100 visible characters" in text_of(answer.text)
    assert text in answer.text
    assert fresh(batch).label == LABEL


def test_batches_are_found_by_a_part_of_their_label_and_filtered_by_the_whole(alice, settings):
    march, april = labelled(LABEL), labelled("December 12 payroll")
    unnamed = batches.a_batch(block=77)
    theirs = submit(a_key(BOB), {**request(BOB, block=12), "label": "payroll of Bob"})

    def listed(address: str = "/explorer.csv", **parameters: str) -> list[str]:
        rows = csv.DictReader(io.StringIO(alice.get(address, parameters).content.decode("utf-8-sig")))
        return [row["internal_id"] for row in rows]

    assert listed(q="payroll") == [april.pk, march.pk]
    assert listed(q="<b>") == listed(label=LABEL) == [march.pk]
    # Such texts may also be the beginning of an identifier, a block's number or the letters of a pattern.
    assert listed(q="december") == [april.pk]
    assert listed(q="12") == [april.pk, march.pk]
    assert listed(q="77") == [unnamed.pk]
    assert listed(q="%") == listed(q="p_yroll") == listed(label="Payroll") == []
    settings.PUBLIC_BATCH_LIST = True
    assert listed(q="payroll", of="everybody") == [theirs.pk, april.pk, march.pk]
    html = alice.get("/explorer", {"q": "payroll"}).text
    assert (march.pk in html, unnamed.pk in html) == (True, False)
    assert alice.get("/explorer", {"label": "a\x07"}).status_code == 400


def test_a_file_has_the_labels_and_no_formula(alice):
    # In many languages spreadsheets separate cells by semicolons. Some take wide signs for the usual ones.
    for label in ("=1+1", "\uff1d1+1", "a;=1+1", "a;-1"):
        labelled(label)
    rows = csv.DictReader(io.StringIO(alice.get("/explorer.csv").content.decode("utf-8-sig")))
    assert [row["label"] for row in rows] == ["a;'-1", "a;'=1+1", "'\uff1d1+1", "'=1+1"]


def test_a_label_turns_the_direction_of_nothing_beside_it(alice):
    batch = labelled("\u05d0\u05d1 12.5")
    for html in (alice.get(batches.path(batch)).text, alice.get("/explorer").text, alice.get("/dashboard").text):
        assert re.search("<bdi\\s*>\u05d0\u05d1 12.5</bdi>", html)


def test_no_text_of_a_page_has_many_marks_that_draw_over_other_texts(alice, client):
    """An earlier version has stored such names. Contracts and requests may have any text."""
    key = {"key": "K" + "\u0336" * 99, "type": "string"}
    body = request(ALICE, block=12)
    ((_, blocks),) = body["data"].items()
    ((_, asked),) = blocks.items()
    asked["accounts"][ALICE] = {"slots": [{"slot": "0x1", "keys": [key]}]}
    batch = batches.submitted(body)
    # Invisible joiners do not end a character.
    Batch.objects.update(label="Y" + "\u0301\u200d\u0323\u093e" * 24)
    ApiKey.objects.update(name=STACKED)
    pages = [(client, batches.path(batch)), (alice, batches.path(batch)), (client, f"{batches.path(batch)}/1")]
    pages += [(alice, path) for path in ("/explorer", "/dashboard", "/keys")]
    for reader, path in pages:
        page = reader.get(path, headers={"accept": "text/html"}).text
        # Fields are no larger than they are, whatever is in them, and a form sends what they have.
        drawn = re.sub(r"<[^>]*>", "", page)
        marks = re.findall(r"[\u0301\u0323\u0336\u200d\u093e]+", drawn)
        assert marks, path
        assert max(len(re.sub("[\u200d\u093e]", "", run)) for run in marks) == 4, path
    assert f'value="{fresh(batch).label}"' in alice.get(batches.path(batch)).text
    assert f">\n{STACKED}</textarea>" in alice.post("/new-batch", {"pasted": STACKED}).text
    # A request on a page is the same if it is copied. Programs get what is stored.
    assert "K" + "\u0336" * 4 + "\\u0336" * 95 in client.get(batches.path(batch), headers={"accept": "text/html"}).text
    assert client.get(f"{batches.path(batch)}.json").json()["label"] == fresh(batch).label
    assert json.loads(client.get(f"{batches.path(batch)}/request.json").text)["data"] == body["data"]


def test_the_form_sends_a_label_and_a_batch_that_is_submitted_again_keeps_it(alice):
    batch = labelled(LABEL)
    html = alice.get("/new-batch", {"from": batch.pk}).text
    assert 'name="label" value="Payroll &lt;b&gt;March&lt;/b&gt;"' in html
    fields = {
        "destination": "31337",
        "sender": "service",
        "fee": "0",
        "do": "submit",
        "label": "From a form",
        "rows-0-source": "31337",
        "rows-0-at": "block",
        "rows-0-block": "12",
        "rows-0-accounts": ALICE,
        "rows-0-props": "BALANCE",
    }
    assert alice.post("/new-batch", fields | {"label": "evil\u202egnp"}).status_code == 400
    assert alice.post("/new-batch", fields).status_code == 303
    made = Batch.objects.latest("pk")
    assert (made.label, json.loads(made.request)["label"]) == ("From a form", "From a form")
