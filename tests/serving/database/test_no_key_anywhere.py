"""No page of the service shows a key that a request contained. The test requests all paths."""

import logging
import re
from collections.abc import Iterator
from itertools import product
from urllib.parse import quote

import pytest
from django.apps import apps
from django.conf import settings
from django.db.models import Model
from django.http import HttpResponseBase
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import ApiKey, User
from tests.databases import all_that_is_stored
from tests.explorer.batches import a_batch, finish
from tests.service import ALICE, secret_of

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

# Only this path answers with a key, when its owner posts to it.
REVEALING = "dashboard/keys/<int:key_id>/reveal"
IDENTIFIER = re.compile(r"<(?:batch:)?internal_?[Ii]d>")


def routes(resolver: URLResolver | None = None, before: str = "") -> Iterator[str]:
    for pattern in (resolver or get_resolver("config.urls")).url_patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield route
        else:
            yield from routes(pattern, route)


@pytest.fixture
def key(unreachable_chain, settings) -> ApiKey:
    """Return Alice's key. She has a DONE batch. Her chain has no node; nothing listens on port 1."""
    settings.PUBLIC_BATCH_LIST, settings.OPERATOR_ADDRESSES = True, [ALICE]
    store_a_batch()
    return ApiKey.objects.get()


# Stored rows of a DONE batch by model. Proving a batch takes longer than most pages.
_rows: dict[type[Model], list[Model]] = {}


def store_a_batch() -> None:
    if not _rows:
        finish(a_batch())
        own = [
            model
            for app in ("accounts", "queries", "proving")
            for model in apps.get_app_config(app).get_models(include_auto_created=True)
        ]
        _rows.update((model, list(model._base_manager.all())) for model in own)
        return
    for model, rows in _rows.items():
        model._base_manager.bulk_create(rows)


def filled(route: str, key: ApiKey) -> str:
    route = IDENTIFIER.sub(key.batches.get().pk, route)
    values = {"<int:number>": "1", "<number>": "1", "<int:key_id>": str(key.pk)}
    values |= dict.fromkeys(("<delivery_id>", "<deliveryId>"), "msg_01M7W1MRHW703BTRFFPT53VVP5")
    values |= {"<request_id>": key.batches.get().pk, "<query_id>": f"{key.batches.get().pk}-1"}
    values |= {"<path:object_id>": "1", "<path:content_type_id>": "1", "<slug:action>": "cancel"}
    values |= {"^(?P<app_label>accounts|admin)/$": "accounts/", "(?P<url>.*)$": "anything"}
    for name, value in values.items():
        route = route.replace(name, value)
    assert "<" not in route, "say here what the path's new part may be"
    return f"/{route}"


def client_of(user: User | None) -> Client:
    client = Client(raise_request_exception=False)
    if user:
        client.force_login(user)
    return client


def all_of(answer: HttpResponseBase) -> str:
    """Return the whole content, also of an answer in parts."""
    body = answer.getvalue().decode()
    return f"{answer.headers} {answer.cookies} {body}"


class Caller:
    """A signed-in client. Signing in takes longer than most pages, so it is repeated only after an answer has signed
    the client out.
    """

    def __init__(self, user: User | None) -> None:
        self._user = user
        self._enter()

    def _enter(self) -> None:
        self._client = client_of(self._user)

    def ask(self, method: str, path: str, *arguments: object, **named: object) -> HttpResponseBase:
        answer: HttpResponseBase = getattr(self._client, method)(path, *arguments, **named)
        if settings.SESSION_COOKIE_NAME in answer.cookies:
            self._enter()
        return answer


ROUTES = ["nowhere", *sorted(set(routes()))]


@pytest.mark.long(
    "admin/accounts/user/<path:object_id>/change/-False",
    "api/docs-False",
    "dashboard/webhooks/reveal-False",
    "explorer/query/<batch:internal_id>/<int:number>/read-False",
    "explorer/query/<batch:internal_id>/facts.csv-False",
    "api/docs-True",
)
@pytest.mark.parametrize(("route", "debug"), [*product(ROUTES, [False]), *product(ROUTES[::8], [True])])
def test_no_page_and_no_log_line_holds_the_key_that_it_was_called_with(key, route, debug, settings, caplog):
    settings.DEBUG = debug
    caplog.set_level(logging.DEBUG)
    path, secret = filled(route, key), secret_of(key)
    names = ["q", "account", "from", "slots", "status", "chain", "before", "after", "next", "name", "version", "a"]
    pasted = dict.fromkeys(names, f" {secret}") | {"next": f"/explorer?q={secret}"}
    calls = [
        {"query_params": {"a": "1", "apiKey": secret}},
        {"headers": {"api-key": secret, "referer": f"http://testserver/explorer?q={secret}&apiKey={secret}"}},
        {"query_params": pasted},
        {"query_params": {"next": f"/explorer?apiKey={secret}"}, "headers": {"hx-request": "true"}},
    ]
    for user in (None, key.user):
        caller = Caller(user)
        for call in calls:
            methods = ["get"] if user and route == REVEALING else ["get", "post"]
            for method in methods:
                answer = caller.ask(method, path, **call)
                assert secret not in all_of(answer), (user, call, method)
        if route != REVEALING or user is None:
            form = pasted | {"address": secret, "chainId": "31337", "overlap": secret}
            answer = caller.ask("post", path, form)
            assert secret not in all_of(answer), (user, "form")
    assert secret not in caplog.text
    assert secret not in all_that_is_stored()


@pytest.mark.parametrize("route", sorted(route for route in set(routes()) if IDENTIFIER.search(route)))
def test_no_page_holds_a_key_that_was_pasted_for_an_identifier(key, route, caplog):
    secret = secret_of(key)
    path = filled(IDENTIFIER.sub(quote(secret), route), key)
    answer = client_of(key.user).get(path)
    # A form's address redirects to the page with the form. An API endpoint requires a key or POST.
    api = 405 if route.endswith("/cancel") else 401
    page = 302 if route.endswith(("/read", "/deliveries", "/<delivery_id>")) else 404
    assert answer.status_code == (api if route.startswith("batch-queries/") else page)
    assert secret not in all_of(answer)
    assert secret not in caplog.text


def test_the_one_page_that_answers_with_a_key_does_so_to_its_owner_alone(key):
    assert REVEALING in routes()
    path = filled(REVEALING, key)
    assert secret_of(key) in client_of(key.user).post(path).text
    assert secret_of(key) not in client_of(None).post(path).text


def test_a_search_for_a_key_goes_on_without_it(key):
    text = client_of(key.user).get("/explorer", {"q": secret_of(key)}).text
    assert 'value="bqs_[redacted]"' in text
