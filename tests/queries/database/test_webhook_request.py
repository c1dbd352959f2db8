"""The field `webhook` of a submission: all faults are reported at once, and its secrets are shown nowhere."""

import json
import logging
from collections.abc import Iterator
from ipaddress import ip_network

import pytest
from django.test import Client

from queries.models import Batch, Webhook
from tests.databases import all_that_is_stored
from tests.proving.receiver import Receiver, receiver
from tests.queries.submissions import faults
from tests.service import ALICE, expire, request, work

pytestmark = pytest.mark.outside

URL = "https://hooks.example.org/in?token=s3cret-in-the-url"
HEADERS = {"Authorization": "Bearer s3cret-in-a-header", "X-Mine": ""}


def body(**webhook: object) -> dict[str, object]:
    return {**request(ALICE, block=1), "webhook": webhook}


@pytest.fixture
def hook(settings) -> Iterator[Receiver]:
    settings.WEBHOOK_ALLOW = [ip_network("127.0.0.0/8")]
    with receiver() as hook:
        yield hook


def overdue() -> None:
    """Reject all batches, so their webhooks get an event."""
    expire()
    work()


def test_a_webhook_is_stored_and_sent_to(post, hook):
    assert post(body(url=URL, headers=HEADERS, events=["STEP", "DONE", "STEP"])).status_code == 200
    webhook = Webhook.objects.get()
    assert (webhook.batch, webhook.receiver, webhook.due_at) == (Batch.objects.get(), "hooks.example.org:443", None)
    assert webhook.events == ["STEP", "DONE"]
    assert post(body(url=f"{hook.url}?token=mine", headers=HEADERS)).status_code == 200
    overdue()
    (got,) = hook.received
    assert got.path == "/hook?token=mine"
    assert {name: got.headers[name.lower()] for name in HEADERS} == HEADERS


def test_a_webhook_gets_three_events_unless_the_request_says_otherwise(post):
    post(body(url=URL))
    assert Webhook.objects.get().events == ["DONE", "REJECTED", "WENT_BACK"]


@pytest.mark.parametrize("none", [{}, {"webhook": None}], ids=["missing", "null"])
def test_a_batch_needs_none(post, none):
    assert post({**request(ALICE, block=1), **none}).status_code == 200
    assert not Webhook.objects.exists()


def test_nothing_secret_of_it_is_shown_logged_or_stored_as_it_is(post, caplog):
    caplog.set_level(logging.DEBUG)
    pk = post(body(url=URL, headers=HEADERS)).json()["internalId"]
    # This submission has another fault, too.
    refused = post({**body(url=URL, headers=HEADERS), "fee": "x"})
    pages = [Client().get(f"/explorer/query/{pk}{suffix}").text for suffix in ("", ".json", "/request.json")]
    for text in (*pages, refused.text, caplog.text, all_that_is_stored()):
        assert "s3cret" not in text
    shown = Client().get(f"/explorer/query/{pk}/request.json").json()
    assert shown == {**request(ALICE, block=1), "webhook": {"url": "(not shown)"}}


def test_a_sealed_webhook_opens_for_its_own_row_alone(post, hook):
    for path in ("right", "other", "changed", "empty"):
        post(body(url=f"{hook.url}/{path}"))
    right, other, changed, empty = Webhook.objects.order_by("pk")
    sealed = bytes(right.sealed)
    for webhook, bad in ((other, sealed), (changed, sealed[:-1] + bytes([sealed[-1] ^ 1])), (empty, b"")):
        Webhook.objects.filter(pk=webhook.pk).update(sealed=bad)
    overdue()
    assert [got.path for got in hook.received] == ["/hook/right"]


@pytest.mark.parametrize(
    ("webhook", "at"),
    [
        ({}, {"/webhook/url"}),
        ("https://example.org", {"/webhook"}),
        ([], {"/webhook"}),
        ({"url": "http://example.org"}, {"/webhook/url"}),
        ({"url": 5}, {"/webhook/url"}),
        ({"url": URL, "secret": "x"}, {"/webhook/secret"}),
        ({"url": URL, "events": []}, {"/webhook/events"}),
        ({"url": URL, "events": ["done"]}, {"/webhook/events/0"}),
        ({"url": URL, "events": "DONE"}, {"/webhook/events"}),
        ({"url": URL, "events": ["DONE"] * 17}, {"/webhook/events"}),
        ({"url": URL, "headers": []}, {"/webhook/headers"}),
        ({"url": URL, "headers": {f"x-{n}": "" for n in range(17)}}, {"/webhook/headers"}),
        ({"url": URL, "headers": {"x-a": "", "X-A": ""}}, {"/webhook/headers"}),
        ({"url": URL, "headers": {"x-a": "ü", "X-A": ""}}, {"/webhook/headers", "/webhook/headers/x-a"}),
        (
            {"url": "x", "headers": {"Host": "y", "x-a": "ü"}, "events": ["x", "DONE"], "z": 1},
            {"/webhook/url", "/webhook/headers/Host", "/webhook/headers/x-a", "/webhook/events/0", "/webhook/z"},
        ),
    ],
)
def test_every_fault_is_named_at_once(post, webhook, at):
    answer = post({**request(ALICE, block=1), "webhook": webhook, "fee": "x"})
    assert set(faults(answer)) == at | {"/fee"}
    assert answer.json()["code"] == "invalid_request"
    assert not Batch.objects.exists()


@pytest.mark.parametrize(
    "value", ["application/json", "Application/JSON;charset=utf-8", "application/json ; charset=UTF-8"]
)
def test_the_content_type_that_is_sent_anyway_may_be_named(post, hook, value):
    """The replaced service's documentation names this header, and its clients send it."""
    assert post(body(url=hook.url, headers={"x-a": "b", "content-Type": value})).status_code == 200
    overdue()
    (got,) = hook.received
    assert (got.headers["content-type"], got.headers["x-a"]) == ("application/json", "b")


WRONG_HEADERS = [
    *((name, "x") for name in ("Host", "connection", "Keep-Alive", "Proxy-Authorization", "proxy-connection", "TE")),
    *((name, "x") for name in ("Trailer", "Upgrade", "Transfer-Encoding", "Content-Length", "Content-Type", "Expect")),
    *((name, "x") for name in ("content-encoding", "Accept-Encoding", "webhook-id", "Webhook-Signature", "User-Agent")),
    *((name, "x") for name in ("webhook-timestamp", "", " ", "a b", "a:b", "a\r\nb", "ü", "a" * 65, "(", "x\u0000")),
    *(("Content-Type", value) for value in ("", "text/plain", "application/json; charset=latin-1", 5, None)),
    ("Content-Type", "application/json\n"),
    *(
        ("x-a", value)
        for value in ("s3cret\r\nX: y", "\n", "\x00", "ü", " x", "x ", "\x7f", "x" * 1025, 5, None, ["x"])
    ),
    *(("x-a", value) for value in ("\ud7ff", {"s3cret": 1})),
]


@pytest.mark.parametrize(("name", "value"), WRONG_HEADERS)
def test_no_other_header_may_be_named_and_no_fault_shows_a_url_or_a_value(post, name, value):
    answer = post(body(url="http://s3cret@example.org/s3cret", headers={name: value}))
    assert set(faults(answer)) == {"/webhook/url", f"/webhook/headers/{name}"}
    assert "s3cret" not in json.dumps(answer.json())
