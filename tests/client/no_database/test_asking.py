"""The client repeats requests by rules: which ones, how often and when. It rejects answers that don't fit the API."""

from dataclasses import replace

import pytest

import batch_query_client as client
from batch_query_client.answers import Status
from batch_query_client.asking import ask, read, require
from batch_query_client.effects import HttpAnswer, Request, Unreachable
from tests.client.world import PATIENCE, World, answer

pytestmark = pytest.mark.outside

URL = "https://service.example/secret-path"
GET = Request("GET", URL)
LOST = Unreachable("broke off its answer", was_sent=True)
NEVER_SENT = Unreachable("can't be reached", was_sent=False)


@pytest.mark.parametrize(
    ("answers", "pauses"),
    [
        ([answer()], []),
        ([answer(404)], []),
        ([answer(500)], []),
        ([LOST, answer()], [0.25]),
        ([NEVER_SENT, LOST, answer(502), answer(504), answer()], [0.25, 0.5, 1, 2]),
        ([answer(503, retry_after="7"), answer()], [7.25]),
        ([answer(429, retry_after="7"), answer(429, retry_after="3"), answer()], [7.25, 3.5]),
        ([answer(503, retry_after="Wed, 21 Oct 2026 07:28:00 GMT"), answer()], [0.25]),
        ([*[LOST] * 7, answer()], [0.25, 0.5, 1, 2, 4, 7.5, 7.5]),
    ],
)
def test_temporary_failures_are_asked_again_after_growing_pauses(answers, pauses):
    world = World(*answers)
    assert world.run(ask(GET, PATIENCE)) is answers[-1]
    assert world.pauses == pauses


@pytest.mark.parametrize(
    ("answers", "is_asked_again"),
    [([LOST], False), ([answer(502)], False), ([NEVER_SENT], True), ([answer(503)], True), ([answer(429)], True)],
)
def test_an_unrepeatable_request_is_sent_again_only_if_it_had_no_effect(answers, is_asked_again):
    world = World(*answers, answer())
    if answers == [LOST]:
        with pytest.raises(client.Unavailable):
            world.run(ask(GET, PATIENCE, is_repeatable=False))
    else:
        world.run(ask(GET, PATIENCE, is_repeatable=False))
    assert len(world.requests) == 1 + is_asked_again


def test_patience_ends_and_the_last_answer_counts():
    world = World(*[answer(503, {"error": "Full.", "code": "busy"}, retry_after="20")] * 9)
    assert world.run(ask(GET, PATIENCE)).status == 503
    assert len(world.requests) == 4
    assert world.seconds <= PATIENCE.seconds


def test_patience_begins_with_the_first_failure():
    world = World(answer(503, after=50), answer(503, after=50), answer())
    assert world.run(ask(GET, PATIENCE)).status == 200


@pytest.mark.parametrize("seconds", [15, 75])
def test_an_advice_within_a_minute_is_kept_to(seconds):
    patience = replace(PATIENCE, seconds=seconds, advised_seconds=75)
    for status, advised in ((429, "17"), (429, "60"), (503, "30")):
        world = World(answer(status, retry_after=advised), answer())
        assert world.run(ask(GET, patience)).status == 200
        assert world.pauses == [int(advised) + 0.25]
    # Without an advice, the usual limit holds.
    world = World(*[answer(503)] * 50)
    world.run(ask(GET, patience))
    assert world.seconds <= seconds


def test_an_advice_beyond_all_patience_is_not_kept_to():
    world = World(answer(503, retry_after="999999999"))
    assert world.run(ask(GET, PATIENCE)).status == 503
    assert world.pauses == []


def test_without_patience_nothing_is_asked_again_and_no_url_is_shown():
    with pytest.raises(client.Unavailable, match=r"^service\.example broke off its answer\.$") as caught:
        World(LOST).run(ask(GET, client.Patience(0)))
    assert "secret" not in repr(GET) + repr(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, client.InvalidRequest),
        (422, client.InvalidRequest),
        (401, client.Unauthorized),
        (403, client.Unauthorized),
        (404, client.NotFound),
        (410, client.NotFound),
        (409, client.Conflict),
        (418, client.ServiceRefused),
        (429, client.Unavailable),
        (500, client.Unavailable),
        (503, client.Unavailable),
    ],
)
def test_an_error_s_kind_is_that_of_its_status(status, kind):
    with pytest.raises(kind, match=r"^A sentence\.$") as caught:
        require(answer(status, {"error": "A sentence.", "code": "a_word"}, retry_after="5"), URL)
    assert caught.value.code == "a_word"
    if kind is client.Unavailable:
        assert caught.value.retry_after == 5


def test_every_fault_of_a_request_is_told():
    details = [{"path": "/fee", "message": "No.", "code": "invalid_request"}, {"path": "/data"}, "x", None]
    with pytest.raises(client.InvalidRequest) as caught:
        require(answer(400, {"error": "No.", "code": "invalid_request", "details": details}), URL)
    assert [(fault.path, fault.message) for fault in caught.value.faults] == [("/fee", "No."), ("/data", "")]


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b"[" * 100_000, b'{"error": 7, "code": []}', b"[]", b"null", b'{"error": "', b"\xff", b"1" * 5000],
)
@pytest.mark.parametrize("status", [302, 400, 401, 404, 500, 502])
def test_an_error_of_any_content_is_an_error(status, content):
    with pytest.raises((client.ServiceRefused, client.Unavailable)) as caught:
        require(HttpAnswer(status, (), content), URL)
    assert str(caught.value).isprintable()


def test_text_of_others_can_not_move_the_cursor():
    with pytest.raises(client.InvalidRequest) as caught:
        require(answer(400, {"error": "No.\x1b[2J\r\n\u202eAll is well", "code": "a\x07"}), URL)
    assert str(caught.value) == "No. [2J All is well"
    assert caught.value.code == "a"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"queryStatus": 5}',
        b'{"queryStatus": "DONE", "info": "x"}',
        b'{"queryStatus": "DONE", "retryable": {}}',
        b"[" * 1_000_000,
        b'{"queryStatus": "DONE"',
        b'{"queryStatus": "\xff"}',
        b"9" * 100_000,
    ],
)
def test_an_answer_that_is_no_status_is_refused_as_unexpected(content):
    with pytest.raises(client.UnexpectedAnswer, match=r"^service\.example didn't answer like a Batch Query Service"):
        read(Status, HttpAnswer(200, (), content), URL)


def test_fields_that_are_not_known_yet_are_left_aside():
    status = read(Status, HttpAnswer(200, (), b'{"queryStatus": "DONE", "new": [1], "info": ["a"]}'), URL)
    assert status == Status(query_status="DONE", info=("a",))
