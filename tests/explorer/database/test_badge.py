"""The badge of a batch's status."""

import re
from xml.etree import ElementTree as ET

import pytest

from tests.explorer import batches

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

OPEN, FINAL = 5, 604_800


def cancelled():
    batch = batches.a_batch()
    batches.reject(batch, "cancelled_by_user", "Cancelled.", retryable=False)
    return batch


def rejected():
    batches.reject(batch := batches.a_batch())
    return batch


@pytest.mark.parametrize(
    ("make", "status", "seconds"),
    [
        (batches.a_batch, "RECEIVED", OPEN),
        (lambda: batches.accept(batches.a_batch()), "ACCEPTED", OPEN),
        (lambda: batches.finish(batches.a_batch()), "DONE", 60),
        (lambda: batches.settle(batches.finish(batches.a_batch())), "DONE", FINAL),
        (rejected, "REJECTED", FINAL),
        (cancelled, "CANCELLED", FINAL),
    ],
)
def test_a_badge_tells_the_status_and_caches_keep_it_as_long_as_it_stays(client, make, status, seconds):
    batch = make()
    address = f"{batches.path(batch)}/badge.svg"
    answer = client.get(address)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/svg+xml")
    assert answer.headers["Cache-Control"] == f"public, max-age={seconds}"
    assert not answer.cookies
    assert "Vary" not in answer.headers
    svg = ET.fromstring(answer.content)
    assert svg.attrib["role"] == "img"
    named = {part.attrib.get("id"): part for part in svg.iter()}
    assert named[svg.attrib["aria-labelledby"]].text == f"batch: {status}"
    assert [part.text for part in svg.iter() if part.tag.endswith("text")] == ["batch", status]
    assert len(answer.content) < 1000
    assert not re.search(r"script|style|href|on\w+=", answer.text)
    known = client.get(address, headers={"if-none-match": answer.headers["ETag"]})
    assert (known.status_code, known.content, known.headers["Cache-Control"]) == (
        304,
        b"",
        answer.headers["Cache-Control"],
    )
    assert client.head(address).status_code == 200


def test_a_known_badge_is_sent_anew_once_the_status_is_another(client):
    batch = batches.accept(batches.a_batch())
    address = f"{batches.path(batch)}/badge.svg"
    etag = client.get(address).headers["ETag"]
    batches.finish(batch)
    answer = client.get(address, headers={"if-none-match": etag})
    assert (answer.status_code, "batch: DONE" in answer.text) == (200, True)


def test_the_badge_of_an_unknown_batch_says_so(client):
    for name in ("0" * 26, "x", "<script>"):
        answer = client.get(f"/explorer/query/{name}/badge.svg", headers={"accept": "image/svg+xml,image/*"})
        assert answer.status_code == 404
        assert "batch: unknown" in answer.text
        assert "script" not in answer.text
