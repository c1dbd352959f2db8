import logging

import pytest
from django.contrib.sessions.models import Session
from django.db import DatabaseError, connection
from django.test import Client

from accounts.models import AccountEvent, ApiKey
from tests.accounts.over_http import reveal

pytestmark = [pytest.mark.django_db, pytest.mark.outside, pytest.mark.urls("tests.accounts.urls_that_fail")]


@pytest.fixture(params=[False, True], ids=["production", "debug"])
def debug(request, settings):
    settings.DEBUG = request.param
    return request.param


@pytest.fixture
def secret(alice_client):
    return reveal(ApiKey.objects.get())


def answers(client: Client, path: str, secret: str) -> list[str]:
    """Return the answers to three requests, with the key in the URL, in a header and in the Referer."""
    client.raise_request_exception = False
    return [
        client.get(path, {"a": "1", "apiKey": secret}).text,
        client.get(path, headers={"api-key": secret}).text,
        client.get(path, headers={"api-key": "x", "referer": f"http://testserver/?apiKey={secret}"}).text,
    ]


def test_a_view_that_fails_with_a_key_shows_it_nowhere(secret, debug, caplog):
    """Request a view that fails. tests/serving/database/test_no_key_anywhere.py requests the service's own paths."""
    caplog.set_level(logging.DEBUG)
    texts = answers(Client(), "/fail", secret)
    assert secret not in "".join(texts) + caplog.text
    assert "RuntimeError" in caplog.text
    assert ("RuntimeError" in texts[0]) == debug


def test_an_authentication_that_fails_in_the_database_shows_no_key(secret, debug, caplog):
    def fail(_execute, _sql, _params, _many, _context):
        raise DatabaseError("The disk is full.")

    caplog.set_level(logging.DEBUG)
    with connection.execute_wrapper(fail):
        texts = answers(Client(), "/batch-queries", secret)
    assert secret not in "".join(texts)
    assert "The disk is full." in caplog.text
    assert secret not in caplog.text


def test_a_page_that_fails_while_it_shows_a_key_shows_none(alice_client, secret, debug, caplog, settings):
    broken = {"base.html": "{% block content %}{% endblock %}{% url 'nowhere' %}"}
    [engine] = settings.TEMPLATES
    loaders = [
        ("django.template.loaders.locmem.Loader", broken),
        ("django.template.loaders.filesystem.Loader", engine["DIRS"]),
    ]
    settings.TEMPLATES = [engine | {"APP_DIRS": False, "OPTIONS": engine["OPTIONS"] | {"loaders": loaders}}]
    alice_client.raise_request_exception = False
    response = alice_client.post(f"/dashboard/keys/{ApiKey.objects.get().pk}/reveal")
    assert response.status_code == 500
    assert ("NoReverseMatch" in response.text) == debug
    assert secret not in response.text
    assert secret not in caplog.text


@pytest.mark.long
def test_nothing_but_the_answer_to_its_request_holds_a_key(alice_client, secret, caplog):
    caplog.set_level(logging.DEBUG)
    path = f"/dashboard/keys/{ApiKey.objects.get().pk}"
    texts = ""
    for url, form in (
        ("/dashboard/keys", {"name": ""}),
        ("/dashboard/keys", {"name": "new"}),
        (f"{path}/rotate", {}),
        (f"{path}/rotate", {"name": "newer", "overlap": "1h"}),
        (f"{path}/revoke", {}),
    ):
        assert secret in alice_client.post(f"{path}/reveal").text
        answers = [alice_client.post(url, form), *map(alice_client.get, ("/keys", "/dashboard/log", f"{path}/rotate"))]
        texts += "".join(f"{answer.headers} {answer.text} {answer.cookies}" for answer in answers)
    secrets = [secret, *(reveal(key) for key in ApiKey.objects.filter(revoked_at=None))]
    assert len(secrets) == 3
    stored = repr(list(AccountEvent.objects.values())) + repr(
        [session.get_decoded() for session in Session.objects.all()]
    )
    for text in secrets:
        assert text.removeprefix("bqs_") not in texts + stored + caplog.text
