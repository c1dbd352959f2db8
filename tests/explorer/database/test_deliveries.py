"""A webhook's deliveries on the batch's page. Only the owner sees them, with a button to send one again."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from queries.models import Batch, DeliveryStatus, StepKind, Webhook, WebhookDelivery
from tests.explorer.batches import accept, complete, path
from tests.factories import client_of
from tests.service import ALICE, BOB, a_key, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.usefixtures("unreachable_chain")]

HTMX = {"hx-request": "true"}


@pytest.fixture
def batch() -> Batch:
    """Return a DONE batch whose first event could not be delivered."""
    webhook = {"url": "https://hooks.example.org/s3cret", "headers": {"x": "s3cret"}, "events": ["STEP", "DONE"]}
    batch = accept(submit(a_key(), {**request(ALICE, block=12), "webhook": webhook}))
    complete(batch, *StepKind)
    first = batch.webhook.deliveries.earliest("pk")
    attempt = {"at": timezone.now().isoformat(), "httpStatus": 503, "outcome": "It said no.", "seconds": 0.25}
    WebhookDelivery.objects.filter(pk=first.pk).update(attempts=[attempt], failures=1)
    return batch


@pytest.mark.long
def test_nobody_else_does(batch):
    for client in (Client(), client_of(BOB)):
        for of in (path(batch), f"{path(batch)}.json", f"{path(batch)}/1"):
            text = client.get(of).text
            assert "msg_" not in text
            assert "hooks.example.org" not in text
    assert client_of(BOB).get(f"{path(batch)}/deliveries", headers=HTMX).status_code == 404


def test_a_signed_out_user_comes_back_to_the_page_and_never_to_a_part_of_it(batch):
    part = f"{path(batch)}/deliveries"
    signed_out = Client().get(part, headers=HTMX)
    # htmx follows this header at any status. A redirect would load the sign-in page into the part.
    assert (signed_out.status_code, signed_out.json()["code"]) == (401, "not_signed_in")
    assert signed_out.headers["HX-Redirect"] == f"/sign-in?next={path(batch)}"
    for reader in (Client(), client_of(ALICE), client_of(BOB)):
        opened = reader.get(part)
        assert (opened.status_code, opened.headers["Location"]) == (302, path(batch))


def test_the_part_of_the_page_is_refreshed_with_it(batch):
    client = client_of(ALICE)
    page = client.get(path(batch)).text
    assert f'hx-get="{path(batch)}/deliveries" hx-trigger="refresh from:#batch"' in " ".join(page.split())
    part = client.get(f"{path(batch)}/deliveries", headers=HTMX).text
    assert part.strip().startswith('<section id="deliveries"')
    assert "It said no." in part
    # The page's refresh is the same for all visitors, so it has no deliveries.
    assert "msg_" not in client.get(path(batch), headers=HTMX).text


def test_older_deliveries_are_on_further_pages(batch):
    like = batch.webhook.deliveries.latest("pk")
    for number in range(40):
        like.pk, like.message_id = None, f"msg_{number:026}"
        like.save(force_insert=True)
    expected = list(batch.webhook.deliveries.order_by("-pk").values_list("message_id", flat=True))
    listed: list[str] = []
    address, nexts = path(batch), 0
    while address:
        html = client_of(ALICE).get(address).text
        listed += re.findall(r'mono">(msg_\w+)', html)
        nexts += html.count("The next attempt is")
        following = re.search(r'href="([^"#]+deliveries=\d+)#deliveries" rel="next"', html)
        address = following[1] if following else ""
    assert (listed, nexts) == (expected, 1)
    assert client_of(ALICE).get(path(batch), {"deliveries": "x"}).status_code == 400


def test_a_button_sends_one_again(batch):
    first = batch.webhook.deliveries.earliest("pk")
    WebhookDelivery.objects.update(status=DeliveryStatus.DELIVERED, ended_at=timezone.now())
    Webhook.objects.update(due_at=None)
    button = f"{path(batch)}/deliveries/{first.message_id}"
    assert f'action="{button}"' in client_of(ALICE).get(path(batch)).text

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.for_address(ALICE))
    assert strict.post(button).status_code == 403
    assert client_of(BOB).post(button).status_code == 404
    assert Client().post(button).status_code == 302
    assert client_of(ALICE).get(button).status_code == 302
    assert not WebhookDelivery.objects.filter(status=DeliveryStatus.PENDING).exists()

    client = client_of(ALICE)
    answer = client.post(button.lower())
    assert (answer.status_code, answer.headers["Location"]) == (302, f"{path(batch)}#deliveries")
    assert list(WebhookDelivery.objects.filter(status=DeliveryStatus.PENDING)) == [first]
    assert "Sending the delivery again" in client.get(path(batch)).text
