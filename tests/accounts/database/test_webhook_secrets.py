"""Webhook secrets are sealed in the database, shown to their owner and rotated with an overlap."""

import base64

import pytest
from django.test import Client

from accounts.models import AccountEvent, EventKind, User, WebhookSecret
from tests.databases import all_that_is_stored

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

JSON = {"Accept": "application/json"}
REVEAL, ROTATE = "/dashboard/webhooks/reveal", "/dashboard/webhooks/rotate"


def user_of(client: Client) -> User:
    return User.objects.get(pk=client.session["_auth_user_id"])


def shown(client: Client) -> str:
    answer = client.post(REVEAL, headers=JSON)
    assert answer.status_code == 200
    return str(answer.json()["webhookSecret"])


def test_a_webhook_secret_is_made_when_first_shown_and_stays_the_same(alice_client):
    assert not WebhookSecret.objects.exists()
    assert "whsec_…" in alice_client.get("/keys").text
    secret = shown(alice_client)
    assert secret.startswith("whsec_")
    # Standard Webhooks requires 24 to 64 bytes.
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert shown(alice_client) == secret
    assert [event.kind for event in AccountEvent.objects.order_by("pk")][-2:] == [EventKind.WEBHOOK_SECRET_SHOWN] * 2


def test_only_a_post_of_its_owner_shows_it(alice_client):
    secret = shown(alice_client)
    assert secret not in alice_client.get("/keys").text
    assert f"{secret[:10]}…{secret[-4:]}" in alice_client.get("/keys").text
    assert secret in alice_client.post(REVEAL).text
    assert alice_client.get(REVEAL).status_code == 302
    assert Client().post(REVEAL, headers=JSON).status_code == 401
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user_of(alice_client))
    for path in (REVEAL, ROTATE):
        assert strict.post(path, {"overlap": "1d"}, headers=JSON).status_code == 403
    assert shown(alice_client) == secret


def test_a_database_that_leaks_does_not_give_it_away(alice_client):
    secret = shown(alice_client)
    stored = all_that_is_stored()
    assert secret not in stored
    assert secret.removeprefix("whsec_") not in stored
    assert repr(base64.b64decode(secret.removeprefix("whsec_")))[2:-1] not in stored


def test_a_webhook_secret_is_rotated_with_an_overlap_or_at_once(alice_client):
    first = shown(alice_client)
    answer = alice_client.post(ROTATE, {"overlap": "1d"}, headers=JSON)
    assert answer.status_code == 201
    second = shown(alice_client)
    assert "also signs until" in alice_client.get("/keys").text
    # At most two secrets sign at a time, so a third one displaces the oldest.
    assert alice_client.post(ROTATE, {"overlap": "7d"}).status_code == 302
    third = shown(alice_client)
    alice_client.post(ROTATE, {"overlap": "now"})
    assert len({first, second, third, shown(alice_client)}) == 4
    assert WebhookSecret.objects.count() == 2


@pytest.mark.parametrize("overlap", ["", "2d", "bqs_" + "x" * 43])
def test_an_unknown_overlap_is_refused(alice_client, overlap):
    answer = alice_client.post(ROTATE, {"overlap": overlap}, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_overlap")
    assert alice_client.post(ROTATE, {"overlap": overlap}).status_code == 400
    assert not WebhookSecret.objects.exists()


def test_under_another_api_key_secret_it_is_lost_until_it_is_rotated(alice_client, settings):
    shown(alice_client)
    settings.API_KEY_SECRET = "another"
    answer = alice_client.post(REVEAL, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (409, "secret_lost")
    assert "The service sends no webhooks until you rotate" in alice_client.post(REVEAL).text
    alice_client.post(ROTATE, {"overlap": "1d"})
    assert shown(alice_client)
