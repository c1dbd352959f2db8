"""What is written to be told, with what it tells of; and what the API says of it."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from queries import progress, webhooks
from queries.models import Batch, DeliveryStatus, StepKind, Webhook, WebhookDelivery
from queries.rejection_codes import RejectionCode
from tests.explorer.batches import accept, complete, queries_of
from tests.service import ALICE, BOB, a_key, header, request, submit

pytestmark = pytest.mark.django_db

INITIAL, AVAILABLE, HEADER, ACCOUNT = StepKind
EVERY = ["DONE", "REJECTED", "WENT_BACK", "STEP"]
THREE = EVERY[:3]
WHY = "Chain 31337 was reorganised."


@pytest.fixture
def batch(key) -> Batch:
    return with_webhook(key)


def with_webhook(
    key, *, events: list[str] | None = None, accounts: tuple[str, ...] = (ALICE, BOB), block: int = 12
) -> Batch:
    """Accepted, and told of everything unless `events` says otherwise."""
    body = request(*accounts, block=block)
    made = submit(key, {**body, "webhook": {"url": "https://hooks.example.org", "events": events or EVERY}})
    accept(made)
    return made


def said(batch: Batch) -> list[tuple[str, str]]:
    """Return what is to be told, in order: the type's last part, and the step or code that it names."""
    found = []
    for row in batch.webhook.deliveries.order_by("pk"):
        body = json.loads(row.body)
        assert body["data"]["internalId"] == batch.pk
        assert body["type"].startswith("batch_query.")
        found.append((body["type"].partition(".")[2], body["data"].get("step") or body["data"].get("code", "")))
    return found


def data(batch: Batch) -> dict[str, Any]:
    """Return the data of the last event."""
    return dict(json.loads(batch.webhook.deliveries.order_by("pk").last().body)["data"])  # type: ignore[union-attr]


def reject(batch: Batch) -> None:
    progress.reject([batch.pk], code=RejectionCode.FEE_TOO_LOW, reason="It is too low.", retryable=True)


# --- What is written --------------------------------------------------------------------------------------------------


def test_each_step_is_told_once_when_all_queries_have_completed_it_and_then_done(batch):
    first, second = queries_of(batch)
    for kind in StepKind:
        progress.complete([first], kind)
    assert said(batch) == []
    for kind in StepKind:
        progress.complete([second, first], kind)
        progress.complete([second], kind)
    assert said(batch) == [*(("step_completed", kind) for kind in StepKind), ("done", "")]
    assert data(batch) == {"internalId": batch.pk, "queryStatus": "DONE"}


def test_a_batch_of_headers_alone_is_told_of_its_three_steps(key):
    body = {"destinationChainId": "31337", "fee": "0", "data": {"31337": {"block:1": {"header": ["TIMESTAMP"]}}}}
    made = submit(key, {**body, "webhook": {"url": "https://hooks.example.org", "events": EVERY}})
    accept(made)
    complete(made, INITIAL, AVAILABLE, HEADER)
    assert said(made) == [*(("step_completed", kind) for kind in (INITIAL, AVAILABLE, HEADER)), ("done", "")]


def test_only_what_was_asked_for_is_told(key):
    batch = with_webhook(key, events=["DONE"])
    complete(batch, *StepKind)
    progress.reopen(queries_of(batch), HEADER, reason=WHY)
    complete(batch, HEADER, ACCOUNT)
    assert [type_ for type_, _ in said(batch)] == ["done", "done"]


def test_a_rejection_is_told_with_why_and_once(batch):
    reject(batch)
    reject(batch)
    assert said(batch) == [("rejected", "fee_too_low")]
    assert data(batch) == {
        "internalId": batch.pk,
        "queryStatus": "REJECTED",
        "error": "It is too low.",
        "code": "fee_too_low",
        "retryable": True,
    }


def test_others_that_are_rejected_with_it_are_told_each_by_itself(key):
    ours, theirs = with_webhook(key), with_webhook(a_key(BOB), block=13)
    without = submit(key, request(ALICE, block=14))
    progress.reject(
        [theirs.pk, ours.pk, without.pk], code=RejectionCode.FEE_TOO_LOW, reason="It is too low.", retryable=True
    )
    assert said(ours) == said(theirs) == [("rejected", "fee_too_low")]
    assert WebhookDelivery.objects.count() == 2


@pytest.mark.parametrize("events", [EVERY, THREE], ids=["with steps", "without"])
def test_going_back_from_done_is_told_once_however_many_queries_go_back(key, events):
    batch = with_webhook(key, events=events)
    complete(batch, *StepKind)
    before = len(said(batch))
    for query in queries_of(batch):
        progress.reopen([query], HEADER, reason=WHY)
    assert said(batch)[before:] == [("went_back", HEADER)]
    assert data(batch) == {"internalId": batch.pk, "queryStatus": "IN_PROGRESS", "step": HEADER, "reason": WHY}
    complete(batch, HEADER, ACCOUNT)
    assert [type_ for type_, _ in said(batch)[before:] if type_ != "step_completed"] == ["went_back", "done"]


def test_before_done_it_is_told_to_those_who_were_told_of_the_step(key):
    with_steps, without = with_webhook(key), with_webhook(key, events=THREE, block=13)
    for batch in (with_steps, without):
        complete(batch, INITIAL, AVAILABLE)
        # Nobody was told that the header is there.
        progress.reopen(queries_of(batch), HEADER, reason=WHY)
        progress.reopen(queries_of(batch), AVAILABLE, reason=WHY)
        progress.reopen(queries_of(batch), AVAILABLE, reason=WHY)
    steps = [("step_completed", INITIAL), ("step_completed", AVAILABLE)]
    assert said(with_steps) == [*steps, ("went_back", AVAILABLE)]
    assert said(without) == []


def test_what_is_rolled_back_is_told_to_nobody(batch):
    with transaction.atomic():
        complete(batch, *StepKind)
        assert said(batch)
        transaction.set_rollback(True)
    assert said(batch) == []
    assert Webhook.objects.get().due_at is None


def test_an_event_makes_the_webhook_due_and_leaves_a_pause_as_it_is(batch):
    complete(batch, INITIAL)
    due_at = Webhook.objects.get().due_at
    assert due_at
    complete(batch, AVAILABLE)
    assert Webhook.objects.get().due_at == due_at


def test_batches_without_webhooks_take_one_statement_more(key, django_assert_max_num_queries):
    batch = submit(key, request(ALICE, block=3))
    accept(batch)
    with django_assert_max_num_queries(14):
        complete(batch, INITIAL)


# --- What the API says ------------------------------------------------------------------------------------------------


def listed(key, **query: str | int) -> dict[str, Any]:
    answer = Client().get("/webhook-deliveries", query, headers=header(key))
    assert answer.status_code == 200, answer.content
    return dict(answer.json())


def again(key, delivery: str):
    return Client().post(f"/webhook-deliveries/{delivery}/send-again", headers=header(key))


def test_it_lists_ones_own_by_pages_newest_first(key, batch):
    complete(batch, *StepKind)
    other = with_webhook(a_key(BOB), block=13)
    complete(other, INITIAL)
    found: list[Any] = []
    more: dict[str, str] = {}
    while not found or more["cursor"]:
        page = listed(key, limit=2, **more)
        found += page["deliveries"]
        more = {"cursor": page["next"]}
        assert len(page["deliveries"]) <= 2
    assert [one["event"] for one in found] == ["DONE", *["STEP"] * 4]
    assert {one["internalId"] for one in found} == {batch.pk}
    first = WebhookDelivery.objects.get(message_id=found[0]["id"])
    assert first.next_try_at
    assert found[0] == {
        "id": first.message_id,
        "internalId": batch.pk,
        "event": "DONE",
        "status": "PENDING",
        "createdAt": first.created_at.isoformat(),
        "nextTryAt": first.next_try_at.isoformat(),
        "attempts": [],
    }


def test_it_lists_those_of_a_batch_or_of_a_status(key, batch):
    complete(batch, INITIAL, AVAILABLE)
    WebhookDelivery.objects.filter(pk=WebhookDelivery.objects.earliest("pk").pk).update(status=DeliveryStatus.DELIVERED)
    assert len(listed(key, internalId=batch.pk)["deliveries"]) == 2
    assert [one["status"] for one in listed(key, status="DELIVERED")["deliveries"]] == ["DELIVERED"]
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
    (one,) = listed(key)["deliveries"]
    answer = again(key, one["id"])
    assert (answer.status_code, answer.json()) == (202, {"id": one["id"]})
    row = WebhookDelivery.objects.get()
    assert (row.status, row.failures, row.message_id) == (DeliveryStatus.PENDING, 0, one["id"])
    assert row.next_try_at
    assert abs(row.gives_up_at - row.next_try_at - webhooks.RETRIED) < timedelta(minutes=1)
    assert Webhook.objects.get().due_at


def test_nobody_sends_anothers_again(key, batch):
    complete(batch, INITIAL)
    (one,) = listed(key)["deliveries"]
    WebhookDelivery.objects.update(status=DeliveryStatus.DELIVERED)
    for other, delivery in ((a_key(BOB), one["id"]), (key, "msg_01M7W1MRHW703BTRFFPT53VVP5"), (key, "msg_%00")):
        answer = again(other, delivery)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert again(key, one["id"]).status_code == 202
    assert Client().post(f"/webhook-deliveries/{one['id']}/send-again").status_code == 401
    assert Client().get("/webhook-deliveries").status_code == 401


def test_nobody_sends_again_without_end(key, batch, monkeypatch):
    monkeypatch.setattr(webhooks, "_MAX_AGAIN_PER_MINUTE", 2)
    complete(batch, INITIAL)
    (one,) = listed(key)["deliveries"]
    answers = [again(key, one["id"]) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert int(answers[-1].headers["Retry-After"]) > 0


def test_the_description_has_the_field_and_the_endpoints():
    description = Client().get("/api/openapi.json").json()
    schemas = description["components"]["schemas"]
    offered = schemas["BatchRequest"]["properties"]["webhook"]["anyOf"]
    assert {"$ref": "#/components/schemas/WebhookRequest"} in offered
    webhook = schemas["WebhookRequest"]
    assert set(webhook["properties"]) == {"url", "headers", "events"}
    assert webhook["required"] == ["url"]
    assert {"/webhook-deliveries", "/webhook-deliveries/{deliveryId}/send-again"} <= set(description["paths"])
