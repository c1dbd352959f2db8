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
    """The answers to a request with the key in its URL, in its header, and in the page that it came from."""
    client.raise_request_exception = False
    return [
        client.get(path, {"a": "1", "apiKey": secret}).text,
        client.get(path, headers={"api-key": secret}).text,
        client.get(path, headers={"api-key": "x", "referer": f"http://testserver/?apiKey={secret}"}).text,
    ]


@pytest.mark.parametrize("path", ["/fail", "/nowhere", "/sign-out", "/dashboard"])
def test_no_page_and_no_log_line_holds_the_key(secret, debug, caplog, path):
    caplog.set_level(logging.DEBUG)
    for text in answers(Client(), path, secret):
        assert secret not in text
    assert secret not in caplog.text
    if path == "/fail":
        assert "RuntimeError" in caplog.text
        assert ("RuntimeError" in answers(Client(), path, secret)[0]) == debug


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


def test_the_session_does_not_hold_the_key(alice_client, secret):
    assert secret in alice_client.post(f"/dashboard/keys/{ApiKey.objects.get().pk}/reveal").text
    session = Session.objects.get(pk=alice_client.session.session_key)
    assert secret not in repr(session.get_decoded())
    assert secret not in session.session_data


def test_signing_in_is_not_sent_on_with_the_key(secret):
    assert (
        Client().get("/dashboard", {"apiKey": secret, "a": "1"}).headers["Location"]
        == "/sign-in?next=/dashboard%3Fa%3D1"
    )


def test_nothing_but_the_answer_to_its_request_holds_a_key(alice_client, secret, debug, caplog):
    caplog.set_level(logging.DEBUG)
    alice_client.raise_request_exception = False
    key = ApiKey.objects.get()
    path = f"/dashboard/keys/{key.pk}"
    pages = [
        "/",
        "/dashboard",
        "/keys",
        "/dashboard/log",
        f"{path}/rotate",
        f"{path}/revoke",
        "/nowhere",
        "/fail",
        "/sign-in",
    ]
    posts = [
        ("/dashboard/keys", {"name": ""}),
        ("/dashboard/keys", {"name": "new"}),
        (f"{path}/rotate", {}),
        (f"{path}/rotate", {"name": "newer", "overlap": "1h"}),
        (f"{path}/revoke", {}),
        ("/sign-out/everywhere", {}),
    ]

    def visit() -> str:
        return "".join(f"{answer.headers} {answer.text}" for answer in map(alice_client.get, pages))

    shown = alice_client.post(f"{path}/reveal", headers={"Accept": "application/json"})
    assert secret in shown.text
    assert "no-store" in shown.headers["Cache-Control"]
    texts = visit()
    for place, form in posts:
        answer = alice_client.post(place, form)
        texts += f"{answer.headers} {answer.text} {answer.cookies}" + visit()
    assert ApiKey.objects.count() == 3
    live = ApiKey.objects.filter(revoked_at=None)
    secrets = [secret, *(reveal(key) for key in live)]
    assert len(secrets) == 3
    stored = repr(list(AccountEvent.objects.values())) + repr(list(Session.objects.values()))
    for text in secrets:
        assert text.removeprefix("bqs_") not in texts + stored + caplog.text
