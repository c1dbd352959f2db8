"""What the API's requests pass by, no page loses, and nobody sees it in an answer."""

import re
from collections.abc import Iterator
from itertools import product

import pytest
from django.conf import settings as django_settings
from django.contrib.auth import SESSION_KEY
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from accounts import keys
from accounts.models import User
from tests.accounts.wallets import ALICE
from tests.service import a_key, header, request, submit

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unreachable_chain")]

# Instead of those of `config.stacks`, in their order: for all paths.
WHOLE = {
    "config.stacks.Compression": "config.stacks.PageCompression",
    "config.stacks.WhiteNoise": "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.stacks.ContentSecurityPolicy": "csp.middleware.CSPMiddleware",
    "config.stacks.Session": "django.contrib.sessions.middleware.SessionMiddleware",
    "config.stacks.Authentication": "django.contrib.auth.middleware.AuthenticationMiddleware",
    "config.stacks.Message": "django.contrib.messages.middleware.MessageMiddleware",
    "config.stacks.Htmx": "django_htmx.middleware.HtmxMiddleware",
}
ULID = "01M7W1MRHW703BTRFFPT53VVP5"
NAMES = {
    "<internal_id>": ULID,
    "<batch:internal_id>": ULID,
    "<internalId>": ULID,
    "<int:number>": "1",
    "<number>": "1",
    "<int:key_id>": "1",
    "<delivery_id>": f"msg_{ULID}",
    "<deliveryId>": f"msg_{ULID}",
}


def paths(resolver: URLResolver, before: str = "") -> Iterator[str]:
    for each in resolver.url_patterns:
        path = before + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from paths(each, path)
        elif isinstance(each, URLPattern):
            for name, value in NAMES.items():
                path = path.replace(name, value)
            yield "/" + path


# The state of health has the time, and metrics count the very requests.
CHANGING = {"/healthz", "/metrics"}
# What the admin's framework makes of models and its catch-all is no path.
ALL = sorted(path for path in paths(get_resolver()) if not re.search(r"[<(\\]", path))
PAGES = [path for path in ALL if path not in django_settings.API_PATHS]


def test_the_paths_are_those_of_pages_and_api():
    for pattern in django_settings.API_PATHS:
        assert re.sub("<(.*)>", lambda part: NAMES[part[0]], pattern) in ALL
    assert {"/", "/explorer", "/sign-in", "/dashboard", "/healthz", "/admin/login/", "/api/docs"} <= set(PAGES)
    assert len(PAGES) > 20


def test_each_middleware_of_the_stack_is_one_that_exists_elsewhere():
    ours = [name for name in django_settings.MIDDLEWARE if name.startswith("config.stacks.")]
    assert ours == list(WHOLE)


def seen(path: str, method: str, *, signed_in: bool) -> tuple[int, dict[str, str], set[str], bytes]:
    """Status, headers, names of cookies, and the body of what isn't a page, of an answer."""
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    if signed_in:
        client.force_login(User.objects.for_address(ALICE.address))
    answer = client.generic(method, path, b"", headers={"origin": "https://elsewhere.example"})
    headers = {
        name: value
        for name, value in answer.headers.items()
        if name not in {"Content-Length", "ETag", "Expires", "X-Request-Id"}
    }
    # Pages have tokens that differ each time.
    says_the_same = not answer.headers.get("Content-Type", "").startswith("text/html") and path not in CHANGING
    body = answer.getvalue() if says_the_same else b""
    return answer.status_code, headers, set(answer.cookies), body


@pytest.mark.parametrize("path", [*ALL, "/unknown", "/submit-batch-query/", "//submit-batch-query"])
def test_every_answer_is_that_of_the_whole_stack(settings, path):
    requests = list(product(("GET", "POST", "OPTIONS"), (False, True)))
    of_stacks = [seen(path, method, signed_in=signed_in) for method, signed_in in requests]
    settings.MIDDLEWARE = [WHOLE.get(name, name) for name in settings.MIDDLEWARE]
    assert of_stacks == [seen(path, method, signed_in=signed_in) for method, signed_in in requests]
    for _, headers, *_ in of_stacks:
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(("debug", "status", "has_it"), [(False, 404, True), (True, 404, False), (True, 200, True)])
def test_only_django_s_own_pages_about_errors_have_no_policy(settings, debug, status, has_it):
    settings.DEBUG = debug
    answer = Client().get("/unknown" if status == 404 else "/theme")
    assert ("Content-Security-Policy" in answer.headers) == has_it


def test_what_the_api_answers_to_a_key_is_that_of_the_whole_stack(settings):
    key = a_key()
    batch = submit(key, request(ALICE.address, block=1))

    def answers() -> list[tuple[int, dict[str, str]]]:
        client = Client(enforce_csrf_checks=True)
        asked = [
            client.get("/batch-query-status", {"batchQueryId": batch.pk}, headers=header(key)),
            client.get("/batch-query-status", headers=header(key)),
            client.post("/submit-batch-query", "{}", content_type="application/json", headers=header(key)),
            client.get("/chain-connections", headers=header(key)),
        ]
        for answer in asked:
            del answer.headers["X-Request-Id"]
        return [(answer.status_code, dict(answer.headers)) for answer in asked]

    of_stacks = answers()
    settings.MIDDLEWARE = [WHOLE.get(name, name) for name in settings.MIDDLEWARE]
    assert of_stacks == answers()
    assert [status for status, _ in of_stacks] == [200, 400, 400, 200]


@pytest.mark.parametrize("path", [f"{path}/" for path in ALL if path in django_settings.API_PATHS])
def test_a_program_that_takes_compressed_answers_can_read_that_nothing_is_behind_a_slash(path):
    answer = Client().get(path, headers={"accept-encoding": "gzip"})
    assert answer.status_code == 404
    assert "Content-Encoding" not in answer.headers
    assert answer.json()["code"] == "not_found"


def test_json_ends_the_line_of_a_terminal():
    for path in ("/chain-connections", "/facts", "/livez"):
        answer = Client().get(path, headers={"accept": "application/json"})
        assert answer.content.endswith(b"}\n")
        assert int(answer.headers.get("Content-Length", len(answer.content))) == len(answer.content)


def test_pages_are_compressed_only_for_visitors_who_are_not_signed_in():
    client = Client(headers={"accept-encoding": "gzip"})
    assert client.get("/sign-in").headers["Content-Encoding"] == "gzip"
    client.force_login(User.objects.for_address(ALICE.address))
    assert "Content-Encoding" not in client.get("/new-batch").headers


def test_a_form_without_its_token_is_refused_and_a_cookie_opens_no_api():
    client = Client(enforce_csrf_checks=True)
    user = User.objects.for_address(ALICE.address)
    keys.issue(user, "default")
    client.force_login(user)
    assert SESSION_KEY in client.session
    for path in ("/dashboard/keys", "/sign-out", "/sign-out/everywhere", "/sign-in/message"):
        assert client.post(path, {"name": "another"}).status_code == 403, path
    assert client.post("/submit-batch-query", "{}", content_type="application/json").status_code == 401
