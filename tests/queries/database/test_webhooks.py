"""Stored webhook events, their content, and the API's view of them."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from queries.models import Batch, BatchStatus, DeliveryStatus, Step, StepKind, Webhook, WebhookDelivery
from tests.explorer.batches import accept, complete
from tests.factories import client_of
from tests.service import ALICE, BOB, a_key, expire, fresh, header, request, submit, work, work_until_done

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

INITIAL, AVAILABLE, HEADER, ACCOUNT = StepKind
EVERY = ["DONE", "REJECTED", "WENT_BACK", "STEP"]
THREE = EVERY[:3]


@pytest.fixture
def batch(key) -> Batch:
    accept(batch := with_webhook(key))
    return batch


def with_webhook(
    key, *, events: list[str] | None = None, accounts: tuple[str, ...] = (ALICE, BOB), block: int = 12
) -> Batch:
    """Return a batch with a webhook for `events`, by default for all."""
    body = request(*accounts, block=block)
    return submit(key, {**body, "webhook": {"url": "https://hooks.example.org", "events": events or EVERY}})


def events_of(batch: Batch) -> list[tuple[str, str]]:
    """Return the events in order: the last part of the type, and the step or the code."""
    events = []
    for row in batch.webhook.deliveries.order_by("pk"):
        body = json.loads(row.body)
        assert body["data"]["internalId"] == batch.pk
        assert body["type"].startswith("batch_query.")
        events.append((body["type"].partition(".")[2], body["data"].get("step") or body["data"].get("code", "")))
    return events


def data(batch: Batch) -> dict[str, Any]:
    """Return the data of the last event."""
    return dict(json.loads(batch.webhook.deliveries.order_by("pk").last().body)["data"])  # type: ignore[union-attr]


# --- Stored events ----------------------------------------------------------------------------------------------------


def overdue() -> None:
    expire()
    work()


@pytest.mark.long
def test_each_step_is_told_once_when_all_queries_have_completed_it_and_then_done(service, key):
    body = request(ALICE, block=service.head())
    body["data"]["31337"][f"block:{service.head() + 6}"] = {"accounts": {BOB: {"props": ["NONCE"]}}}
    batch = submit(key, {**body, "webhook": {"url": "https://hooks.example.org", "events": EVERY}})
    work(4)
    first, second = batch.queries.order_by("position")
    assert (first.step, second.step, events_of(batch)) == (None, INITIAL, [])
    service.mine(6)
    work_until_done(batch, service)
    assert events_of(batch) == [*(("step_completed", kind) for kind in StepKind), ("done", "")]
    assert data(batch) == {"internalId": batch.pk, "queryStatus": "DONE"}


@pytest.mark.long
def test_a_batch_of_headers_alone_is_told_of_its_three_steps(service, key):
    body = {"destinationChainId": "31337", "fee": "0", "data": {"31337": {"block:1": {"header": ["TIMESTAMP"]}}}}
    batch = submit(key, {**body, "webhook": {"url": "https://hooks.example.org", "events": EVERY}})
    work_until_done(batch, service)
    assert events_of(batch) == [*(("step_completed", kind) for kind in (INITIAL, AVAILABLE, HEADER)), ("done", "")]


def test_a_rejection_is_told_with_why_and_once_of_each_batch_by_itself(batch, key):
    theirs, without = with_webhook(a_key(BOB), block=13), submit(key, request(ALICE, block=14))
    overdue()
    overdue()
    assert events_of(batch) == events_of(theirs) == [("rejected", "deadline_exceeded")]
    event = data(batch)
    assert event.pop("error") == fresh(batch).rejection_reason != ""
    assert event == {
        "internalId": batch.pk,
        "queryStatus": "REJECTED",
        "code": "deadline_exceeded",
        "retryable": batch.rejection_retryable,
    }
    assert fresh(without).status == BatchStatus.REJECTED
    assert WebhookDelivery.objects.count() == 2


@pytest.mark.long
def test_going_back_from_done_is_told_once_however_many_queries_go_back(service, key):
    """Each webhook gets only its kinds of events. The batch keeps the time and the reason."""
    before = service.head()
    batches = [with_webhook(key, events=events, block=2) for events in (EVERY, THREE, ["DONE"])]
    for batch in batches:
        work_until_done(batch)
    counts = [len(events_of(batch)) for batch in batches]
    service.rpc("anvil_reorg", service.head() - before, [])
    work(4)
    with_steps, without, of_done = (events_of(batch)[count:] for batch, count in zip(batches, counts, strict=True))
    (went_back, step), *steps, done = with_steps
    assert (went_back, done, {event for event, _ in steps}) == ("went_back", ("done", ""), {"step_completed"})
    assert (without, of_done) == ([("went_back", step), ("done", "")], [("done", "")])
    body = json.loads(batches[1].webhook.deliveries.get(event="WENT_BACK").body)["data"]
    why = fresh(batches[1]).went_back_because
    assert why
    assert body == {"internalId": batches[1].pk, "queryStatus": "IN_PROGRESS", "step": step, "reason": why}
    # The batch and the step keep the reason after the step is completed again.
    assert set(Step.objects.filter(kind=step).values_list("went_back_because", flat=True)) == {why}


# --- The API ----------------------------------------------------------------------------------------------------------


def listed(key, **query: str | int) -> dict[str, Any]:
    answer = Client().get("/webhook-deliveries", query, headers=header(key))
    assert answer.status_code == 200, answer.content
    return dict(answer.json())


def again(key, delivery: str):
    return Client().post(f"/webhook-deliveries/{delivery}/send-again", headers=header(key))


def test_own_deliveries_are_listed_by_pages_newest_first(key, batch):
    complete(batch, *StepKind)
    other = accept(with_webhook(a_key(BOB), block=13))
    complete(other, INITIAL)
    deliveries: list[Any] = []
    more: dict[str, str] = {}
    while not deliveries or more["cursor"]:
        page = listed(key, limit=2, **more)
        deliveries += page["deliveries"]
        more = {"cursor": page["next"]}
        assert len(page["deliveries"]) <= 2
    assert [listed_delivery["event"] for listed_delivery in deliveries] == ["DONE", *["STEP"] * 4]
    assert {listed_delivery["internalId"] for listed_delivery in deliveries} == {batch.pk}
    first = WebhookDelivery.objects.get(message_id=deliveries[0]["id"])
    assert first.next_try_at
    assert deliveries[0] == {
        "id": first.message_id,
        "internalId": batch.pk,
        "event": "DONE",
        "status": "PENDING",
        "createdAt": first.created_at.isoformat(),
        "nextTryAt": first.next_try_at.isoformat(),
        "attempts": [],
    }


def test_deliveries_are_listed_by_batch_or_by_status(key, batch):
    complete(batch, INITIAL, AVAILABLE)
    WebhookDelivery.objects.filter(pk=WebhookDelivery.objects.earliest("pk").pk).update(status=DeliveryStatus.DELIVERED)
    assert len(listed(key, internalId=batch.pk)["deliveries"]) == 2
    assert [listed_delivery["status"] for listed_delivery in listed(key, status="DELIVERED")["deliveries"]] == [
        "DELIVERED"
    ]
    for nothing in ({"internalId": "01M7W1MRHW703BTRFFPT53VVP5"}, {"status": "FAILED"}):
        assert listed(key, **nothing) == {"deliveries": [], "next": None}


@pytest.mark.parametrize(
    "query", [{"status": "x"}, {"internalId": "\x00"}, {"limit": 0}, {"limit": 101}, {"limit": "x"}, {"cursor": "x"}]
)
def test_a_wrong_parameter_is_refused(key, query):
    answer = Client().get("/webhook-deliveries", query, headers=header(key))
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_sending_again_makes_it_pending_and_due(key, batch):
    complete(batch, INITIAL)
    WebhookDelivery.objects.update(status=DeliveryStatus.DELIVERED, failures=7, next_try_at=None)
    Webhook.objects.update(due_at=None)
    (delivery,) = listed(key)["deliveries"]
    answer = again(key, delivery["id"])
    assert (answer.status_code, answer.json()) == (202, {"id": delivery["id"]})
    row = WebhookDelivery.objects.get()
    assert (row.status, row.failures, row.message_id) == (DeliveryStatus.PENDING, 0, delivery["id"])
    assert row.next_try_at
    assert abs(row.gives_up_at - row.next_try_at - timedelta(days=1)) < timedelta(minutes=1)
    assert Webhook.objects.get().due_at


def test_nobody_sends_anothers_again(key, batch):
    complete(batch, INITIAL)
    (own_delivery,) = listed(key)["deliveries"]
    WebhookDelivery.objects.update(status=DeliveryStatus.DELIVERED)
    for other, delivery in (
        (a_key(BOB), own_delivery["id"]),
        (key, "msg_01M7W1MRHW703BTRFFPT53VVP5"),
        (key, "msg_%00"),
    ):
        answer = again(other, delivery)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    for written in (own_delivery["id"], own_delivery["id"].lower(), own_delivery["id"].upper()):
        assert (again(key, written).status_code, again(key, written).json()) == (202, {"id": own_delivery["id"]})
    assert Client().post(f"/webhook-deliveries/{own_delivery['id']}/send-again").status_code == 401
    assert Client().get("/webhook-deliveries").status_code == 401


def test_test_events_and_deliveries_sent_again_are_counted_together(key, batch):
    """A URL may be a stranger's. Each eleventh request is refused, by whichever way it comes."""
    complete(batch, INITIAL)
    page, url = client_of(ALICE), "https://hooks.example.org"
    assert [page.post("/webhooks/test", {"url": url}).status_code for _ in range(4)] == [302] * 4
    test, *_, of_batch = (delivery["id"] for delivery in listed(key)["deliveries"])
    assert [again(key, delivery).status_code for delivery in (test, of_batch) * 2] == [202] * 4
    listed_again, of_page = f"/webhooks/deliveries/{test}", f"/explorer/query/{batch.pk}/deliveries/{of_batch}"
    assert [page.post(button).status_code for button in (listed_again, of_page)] == [302] * 2
    WebhookDelivery.objects.update(status=DeliveryStatus.DELIVERED)
    by_api = again(key, test)
    assert (by_api.status_code, by_api.json()["code"]) == (429, "too_many_requests")
    pages = [page.post("/webhooks/test", {"url": url}), page.post(listed_again), page.post(of_page)]
    for answer in (by_api, *pages):
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) > 0
        assert "You may send 10 test events and deliveries again in a minute" in answer.text
    assert not WebhookDelivery.objects.filter(status=DeliveryStatus.PENDING).exists()
