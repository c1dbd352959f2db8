"""Labels of batches in the API: submission, answers, filters and events."""

import json
import unicodedata

import pytest
from django.test import Client

from queries.models import Batch, WebhookDelivery
from tests.explorer.batches import reject
from tests.factories import client_of
from tests.queries.submissions import faults
from tests.service import ALICE, BOB, a_key, header, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

LABEL = "Überweisung <b>März</b> & “two”"


def labelled(key, label: str | None = LABEL, **more) -> Batch:
    return submit(key, {**request(ALICE, block=1), "label": label, **more})


def post(client: Client, key, label: object, **headers: str):
    body = {**request(ALICE, block=1), "label": label}
    headers = header(key) | headers
    return client.post("/submit-batch-query", body, content_type="application/json", headers=headers)


def test_every_answer_about_a_batch_has_its_label(client: Client, key):
    batch, other = labelled(key, webhook={"url": "https://hooks.example.org"}), labelled(key, None)
    by_key = header(key)

    def answered(path: str, **parameters: str):
        return client.get(path, parameters, headers=by_key).json()

    assert answered("/batch-query-status", batchQueryId=batch.pk) == {"queryStatus": "IN_PROGRESS", "label": LABEL}
    assert answered("/batch-query-status", batchQueryId=other.pk) == {"queryStatus": "IN_PROGRESS"}
    assert [each["label"] for each in answered("/batch-queries")["batchQueries"]] == [None, LABEL]
    assert answered(f"/batch-queries/{batch.pk}")["label"] == LABEL
    assert client.get(f"/explorer/query/{batch.pk}.json").json()["label"] == LABEL
    assert client.get(f"/explorer/query/{batch.pk}/request.json").json()["label"] == LABEL
    client.post(f"/batch-queries/{batch.pk}/cancel", headers=by_key)
    told = json.loads(WebhookDelivery.objects.get().body)["data"]
    assert (told["internalId"], told["label"], told["queryStatus"]) == (batch.pk, LABEL, "REJECTED")


@pytest.mark.parametrize(
    "label",
    [
        *("", "  ", "a" * 101, "a\nb", "\0", "\x1b[31m", "evil\u202egnp", "\u2066x", "\u200b", 7, ["a"], {"a": "b"}),
        *(
            "Z" + "\u0301" * 99,
            "e" + "\u0301" * 5,
            "o" + "\u20dd" * 5,
            "o" + "\U0001d165" * 5,
            "a" + "\u0e49" * 5,
            "\u0915" + "\u0951\u093e" * 5,
        ),
    ],
    ids=ascii,
)
def test_a_label_that_nobody_could_read_is_refused(client: Client, key, label):
    code, sentence = faults(post(client, key, label))["/label"]
    assert code == "invalid_request"
    assert sentence.startswith("A label has 1 to 100 visible characters")
    assert not Batch.objects.exists()


SCRIPTS = {
    "Thai": "\u0e17\u0e35\u0e48\u0e19\u0e35\u0e48 \u0e19\u0e49\u0e33",
    "Vietnamese": "Ti\u1ebfng Vi\u1ec7t",
    "Hebrew": "\u05e9\u05bc\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
    "Devanagari": "\u0915\u094d\u0937\u0924\u094d\u0930\u093f\u092f\u0903 \u095b\u093f\u0902\u0926\u0917\u0940",
    "Burmese": "\u101c\u103b\u103e\u102d\u102f\u1037\u101d\u103e\u1000\u103a",
    "Tibetan": "\u0f56\u0f66\u0f92\u0fb2\u0f74\u0f56\u0f66",
    "Arabic": "\u0671\u0644\u0631\u0651\u064e\u062d\u0652\u0645\u064e\u0640\u0670\u0646\u0650",
    "Emoji": "1\ufe0f\u20e3 \U0001f44d\U0001f3fd \u2764\ufe0f",
}


@pytest.mark.parametrize("label", SCRIPTS.values(), ids=SCRIPTS)
def test_a_label_in_any_script_is_taken_and_shown(client: Client, key, label):
    label = unicodedata.normalize("NFC", label)
    batch = submit(key, {**request(ALICE, block=1), "label": unicodedata.normalize("NFD", label)})
    assert client.get(f"/explorer/query/{batch.pk}.json").json()["label"] == label
    assert f">{label}<" in client_of(ALICE).get("/explorer").text


def test_a_label_is_no_api_key(client: Client, key):
    assert "/label" in faults(post(client, key, f"with {header(key)['api-key']}"))


def test_labels_that_look_the_same_are_the_same(client: Client, key):
    assert post(client, key, " Ma\u0308rz  2026 ").status_code == 200
    assert post(client, key, "a" * 100).status_code == 200
    assert set(Batch.objects.values_list("label", flat=True)) == {"März 2026", "a" * 100}


def test_the_same_request_with_another_label_is_another_request(client: Client, key):
    """The body counts byte for byte, as with another webhook."""
    named = {"idempotency-key": "k"}
    first = post(client, key, "one", **named)
    assert post(client, key, "one", **named).json() == first.json()
    refused = post(client, key, "two", **named)
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert Batch.objects.get().label == "one"


def test_one_s_own_batches_are_filtered_by_label_and_those_that_one_has_cancelled_by_status(client: Client, key):
    march, april, unnamed = labelled(key, "March"), labelled(key, "April"), labelled(key, None)
    labelled(a_key(BOB), "March")
    reject(april)
    client.post(f"/batch-queries/{march.pk}/cancel", headers=header(key))

    def listed(**parameters: str) -> list[str]:
        answer = client.get("/batch-queries", parameters, headers=header(key))
        assert answer.status_code == 200, answer.text
        return [batch["internalId"] for batch in answer.json()["batchQueries"]]

    assert listed(label="March") == listed(status="CANCELLED") == [march.pk]
    assert listed(label="Mar") == []
    assert listed(status="REJECTED") == [april.pk, march.pk]
    assert listed(status="CANCELLED", label="April") == []
    assert listed() == [unnamed.pk, april.pk, march.pk]
    refused = client.get("/batch-queries", {"label": "a\nb"}, headers=header(key))
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
