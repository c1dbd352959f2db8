"""The page of webhooks: receivers, deliveries over all batches, and test events. Only their user sees them."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import User
from queries.models import DeliveryStatus, Webhook, WebhookDelivery
from tests.browser import states
from tests.explorer.batches import finish
from tests.factories import client_of, copies
from tests.plans import plans
from tests.service import ALICE, BOB, a_key, header, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unreachable_chain")]

PAGE, TEST = "/webhooks", "/webhooks/test"
URL = "https://hooks.example.org/s3cret"
RECEIVER = "hooks.example.org:443"


def receivers(text: str) -> list[tuple[str, str]]:
    """Return each receiver with the text of its last event."""
    rows = re.findall(r'class="mono">([^<]+)</th>\s*<td role="cell">(\w+)', text)
    return [(name, event) for name, event in rows]


def listed(text: str) -> list[str]:
    return re.findall(r'<span\s+class="under mono">(msg_\w+)</span>', text)


def test_only_their_user_sees_them_and_nobody_sees_a_url():
    states.with_tests()
    text = client_of(ALICE).get(PAGE).text
    assert receivers(text) == [("another.example.org:443", "TEST"), (RECEIVER, "TEST")]
    assert "It said no." in text
    assert "s3cret" not in text
    assert client_of(BOB).get(PAGE).text.count("example.org") == 0
    assert Client().get(PAGE).headers["Location"] == f"/sign-in?next={PAGE}"


def test_a_receiver_that_was_told_nothing_is_listed():
    submit(a_key(), {**request(ALICE, block=12), "webhook": {"url": URL}})
    client = client_of(ALICE)
    assert receivers(client.get(PAGE).text) == [(RECEIVER, "none")]


def test_pages_lead_to_each_delivery_once_and_reading_takes_an_index():
    batch = states.with_webhook()
    delivery = batch.webhook.deliveries.latest("pk")
    copies(delivery, 60, message_id="'msg_00000000000000000000' || (100000 + i)")
    client, page, seen = client_of(ALICE), PAGE, list[str]()
    while page:
        with CaptureQueriesContext(connection) as statements:
            text = client.get(page).text
        seen += listed(text)
        older = re.search(r'href="([^"]+)#deliveries" rel="next"', text)
        page = older[1] if older else ""
    newest_first = WebhookDelivery.objects.order_by("-pk").values_list("message_id", flat=True)
    assert seen == list(newest_first)
    of_webhooks = [line for line in plans(statements) if "queries_webhook" in line]
    assert of_webhooks
    assert not [line for line in of_webhooks if line.startswith("SCAN") or "Seq Scan" in line]


def test_a_delivery_is_sent_again_from_its_page():
    first = states.with_webhook().webhook.deliveries.earliest("pk")
    WebhookDelivery.objects.update(status=DeliveryStatus.DELIVERED, ended_at=timezone.now())
    Webhook.objects.update(due_at=None)
    client, page = client_of(ALICE), f"{PAGE}?before={first.pk + 1}"
    button = f"{PAGE}/deliveries/{first.message_id}?before={first.pk + 1}"
    assert f'action="{button}"' in client.get(page).text
    assert client_of(BOB).post(button).status_code == 404
    assert client.post(button).headers["Location"] == f"{page}#deliveries"
    assert list(WebhookDelivery.objects.filter(status=DeliveryStatus.PENDING)) == [first]
    assert Webhook.objects.get().due_at


# --- Test events ------------------------------------------------------------------------------------------------------


def send(user: str = ALICE, **form: str) -> Any:
    return client_of(user).post(TEST, form)


@pytest.mark.parametrize(
    "url", ["http://hooks.example.org", "https://10.0.0.1", "https://localhost", "https://x.example:8443", "x", ""]
)
def test_a_url_that_no_webhook_may_have_gets_no_test_event(url):
    answer = send(url=url)
    assert answer.status_code == 400
    assert 'id="url-error">' in answer.text
    assert f'value="{url}"' in answer.text
    assert not Webhook.objects.exists()


def test_a_test_event_is_listed_like_any_other_and_takes_the_token_of_the_form():
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.for_address(ALICE))
    assert strict.post(TEST, {"url": URL}).status_code == 403
    assert Client().post(TEST, {"url": URL}).status_code == 302
    assert client_of(ALICE).get(TEST).headers["Location"] == PAGE
    assert not Webhook.objects.exists()
    assert send(url=URL).headers["Location"] == PAGE
    (delivery,) = Client().get("/webhook-deliveries", headers=header(a_key())).json()["deliveries"]
    assert (delivery["event"], delivery["status"]) == ("TEST", "PENDING")
    text = client_of(ALICE).get(PAGE).text
    assert listed(text) == [delivery["id"]]
    # Whoever owns the URL may have asked for nothing, so it isn't sent for a day.
    row = WebhookDelivery.objects.get()
    assert row.gives_up_at - row.created_at < timedelta(minutes=3)
    # It is about no batch.
    assert "/explorer/query/" not in text
    assert client_of(ALICE).get(f"/explorer/query/{delivery['internalId']}").status_code == 404


def test_nobody_sends_test_events_without_end_or_to_another_s_receiver():
    finish(submit(a_key(), {**request(ALICE, block=12), "webhook": {"url": URL}}))
    assert send(BOB, receiver=RECEIVER).status_code == 404
    answers = [send(receiver=RECEIVER) for _ in range(11)]
    assert [answer.status_code for answer in answers] == [302] * 10 + [429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert WebhookDelivery.objects.filter(event="TEST").count() == 10


def test_metrics_count_those_that_wait():
    send(url=URL)
    metrics = Client().get("/metrics").text
    assert re.search(r'batchquery_queue_rows{destination="0",kind="webhook",source=""} 1.0', metrics)


def test_killed_while_it_is_stored_it_is_stored_as_a_whole_or_not_at_all():
    def die(execute: Any, sql: str, *how: Any) -> Any:
        if sql.startswith('UPDATE "queries_webhook"'):
            raise KeyboardInterrupt
        return execute(sql, *how)

    with connection.execute_wrapper(die), pytest.raises(KeyboardInterrupt):
        send(url=URL)
    assert not Webhook.objects.exists()
    assert not WebhookDelivery.objects.exists()
