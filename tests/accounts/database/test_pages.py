import html
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as project_settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from accounts.models import AccountEvent, ApiKey, EventKind, SignInNonce, User
from devnet.devchain import ACCOUNTS
from tests.accounts import over_http as keys
from tests.accounts.wallets import ALICE, BOB, sign

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

HTMX = {"HTTP_HX_REQUEST": "true"}
JSON = {"Accept": "application/json"}


def post_json(client: Client, path: str, body: object, **extra):
    return client.post(path, body, content_type="application/json", **extra)


def message_for(client: Client, address: str = ALICE.address) -> str:
    response = post_json(client, "/sign-in/message", {"address": address, "chainId": "31337"})
    return str(response.json()["message"])


# --- Pages ------------------------------------------------------------------------------------------------------------


def test_the_sign_in_page_begins_with_the_wallet_and_says_why_the_form_of_batches_sent_one_there():
    answer = Client().get("/new-batch?from=1", follow=True)
    assert "Sign in to make a batch." in answer.text
    page = Client().get("/sign-in").text
    assert "Sign in to make a batch." not in page
    assert re.findall(r'<h2 id="([^"]+)"', page)[0] == "by-wallet"


def test_the_keys_page_is_a_table_whose_parts_have_anchors_and_whose_code_can_be_copied():
    client, user = Client(), User.objects.for_address(ALICE.address)
    client.force_login(user)
    for name in ("nightly", "daily"):
        client.post("/dashboard/keys", {"name": name})
    page = client.get("/keys").text.partition("<main")[2]
    rows = re.findall(r'<tr role="row" id="key-\d+".*?</tr>', page, re.DOTALL)
    assert [name in row for name, row in zip(("nightly", "daily"), rows, strict=True)] == [True, True]
    anchors = re.findall(r'<a href="#([^"]+)"', page)
    assert {"keys", "webhooks", "activity"} <= {*anchors}
    assert [anchor for anchor in anchors if f'id="{anchor}"' not in page] == []
    code = re.findall(r'<pre[^>]*id="([^"]+)"', page)
    assert len(code) == page.count("<pre")
    assert code == re.findall(r'data-copy-from="([^"]+)"', page)


# --- Sign-in of programs ----------------------------------------------------------------------------------------------


def test_a_program_signs_in_and_takes_its_key():
    client = Client(enforce_csrf_checks=True)
    client.get("/sign-in")
    token = {"X-CSRFToken": client.cookies[project_settings.CSRF_COOKIE_NAME].value}
    response = post_json(client, "/sign-in/message", {"address": ALICE.address, "chainId": 31337}, headers=token)
    message = response.json()["message"]
    signed = {"message": message, "signature": sign(message, ALICE)}
    response = post_json(client, "/sign-in/verify", signed, headers=token)
    assert response.json() == {"address": ALICE.address, "chainId": None, "next": "/dashboard"}

    shown = client.get("/dashboard", headers=JSON).json()
    key = ApiKey.objects.get()
    assert shown == {
        "address": ALICE.address,
        "chainId": None,
        "keys": [
            {"id": key.pk, "name": "default", "access": "full", "expiresAt": None}
            | {"prefix": key.prefix, "lastFour": key.last_four}
        ],
    }
    token = {"X-CSRFToken": client.cookies[project_settings.CSRF_COOKIE_NAME].value}
    response = client.post(f"/dashboard/keys/{key.pk}/reveal", headers=JSON | token)
    assert keys.authenticate(response.json()["apiKey"]) == key
    assert "no-store" in response.headers["Cache-Control"]


ANOTHER = {"x-csrftoken": "t" * 32}


@pytest.mark.parametrize(
    ("secure", "has_cookie", "headers", "code"),
    [
        (False, True, ANOTHER, "csrf_failed"),
        (False, True, {}, "csrf_failed"),
        (False, False, {}, "csrf_failed"),
        (False, False, ANOTHER, "cookie_missing"),
        (True, False, ANOTHER | {"origin": "https://testserver"}, "cookie_missing"),
        (True, False, ANOTHER | {"referer": "https://testserver/sign-in"}, "cookie_missing"),
        (True, True, ANOTHER, "origin_hidden"),
        (True, False, ANOTHER, "origin_hidden"),
        (False, True, ANOTHER | {"origin": "null"}, "origin_hidden"),
        (True, True, ANOTHER | {"origin": "null", "referer": "https://testserver/"}, "origin_hidden"),
        (False, True, ANOTHER | {"origin": "https://testserver"}, "other_origin"),
        (True, True, ANOTHER | {"referer": "https://other.example/"}, "other_origin"),
        (True, True, ANOTHER | {"referer": "https://[other.example/"}, "other_origin"),
    ],
)
@pytest.mark.parametrize("asks", [{"content_type": "application/json"}, {"HTTP_ACCEPT": "application/json"}, HTMX])
def test_a_page_hears_why_its_request_was_refused(secure, has_cookie, headers, code, asks):
    client = Client(enforce_csrf_checks=True)
    if has_cookie:
        client.get("/sign-in")
    for path in ("/sign-in/verify", "/dashboard/keys/1/reveal"):
        refused = client.post(path, secure=secure, headers=headers, **asks)
        assert (refused.status_code, refused.json()["code"]) == (403, code)


@pytest.mark.parametrize("path", ["/sign-in/message", "/sign-in/verify"])
def test_a_program_without_the_csrf_token_is_refused(path, settings):
    response = post_json(Client(enforce_csrf_checks=True), path, {})
    assert response.status_code == 403
    assert response.json()["code"] == "csrf_failed"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("message", {"address": ["0x12"], "chainId": "31337"}, 400, "malformed_address"),
        ("message", {"address": ALICE.address}, 400, "unknown_chain"),
        ("message", {"address": ALICE.address, "chainId": True}, 400, "unknown_chain"),
        ("message", {"address": ALICE.address, "chainId": -31337}, 400, "unknown_chain"),
        ("message", {"address": ALICE.address, "chainId": 10**100}, 400, "unknown_chain"),
        ("message", "not an object", 400, "malformed_request"),
        ("verify", {}, 400, "malformed_signature"),
        ("verify", {"message": "x" * 60_000, "signature": "0x"}, 400, "malformed_message"),
        ("verify", [1], 400, "malformed_request"),
    ],
)
def test_a_wrong_request_gets_a_sentence_and_a_code(path, body, status, code):
    response = Client().generic("POST", f"/sign-in/{path}", json.dumps(body), content_type="application/json")
    assert response.status_code == status
    assert response.json()["code"] == code
    assert response.json()["error"].endswith(".")


@pytest.mark.parametrize("body", [b" ", b"{", b"\xff\xfe", b"[" * 60_000, b'"\xed\xa0\x80"'], ids=range(5))
@pytest.mark.parametrize("path", ["message", "verify"])
def test_a_body_that_is_no_json_gets_a_sentence_and_a_code(path, body):
    response = Client().generic("POST", f"/sign-in/{path}", body, content_type="application/json")
    assert (response.status_code, response.json()["code"]) == (400, "malformed_request")


def test_a_person_with_an_old_form_hears_what_to_do(settings):
    response = Client(enforce_csrf_checks=True).post("/sign-in/message", {"address": ALICE.address})
    assert response.status_code == 403
    assert "Go back, copy what you typed, reload the page, and send the form again." in response.text


def test_the_host_header_does_not_get_into_the_message(settings):
    settings.ALLOWED_HOSTS = ["*"]
    settings.BASE_URL = "https://prover.example"
    body = {"address": ALICE.address, "chainId": "31337"}
    message = post_json(Client(), "/sign-in/message", body, headers={"host": "evil.example"}).json()["message"]
    assert message.startswith("https://prover.example wants")
    assert "evil" not in message


def test_the_session_is_a_new_one_after_sign_in():
    client = Client()
    session = client.session
    session["planted"] = "yes"
    session.save()
    before = session.session_key
    message = message_for(client)
    post_json(client, "/sign-in/verify", {"message": message, "signature": sign(message, ALICE)})
    assert client.session.session_key != before
    assert not Session.objects.filter(session_key=before).exists()


# --- Sign-in of people ------------------------------------------------------------------------------------------------


def test_a_person_signs_in_with_forms_alone():
    client = Client(enforce_csrf_checks=True)
    page = client.get("/sign-in?next=/dashboard%3Fa=1")
    form = {"csrfmiddlewaretoken": client.cookies[project_settings.CSRF_COOKIE_NAME].value, "next": "/dashboard?a=1"}
    assert 'value="/dashboard?a=1"' in page.text

    page = client.post("/sign-in/message", form | {"address": ALICE.address, "chainId": "31337"})
    match = re.search(r"<textarea id=\"message\"[^>]*>\n([^<]*)</textarea>", page.text)
    assert match is not None
    message = html.unescape(match[1])
    assert f"cast wallet sign --interactive &#x27;{html.escape(message)}&#x27;" in page.text

    # Browsers send line breaks in form fields as CRLF.
    form |= {"message": message.replace("\n", "\r\n"), "signature": f" {sign(message, ALICE)}\r\n"}
    response = client.post("/sign-in/verify", form)
    assert (response.status_code, response.headers["Location"]) == (302, "/dashboard?a=1")
    assert ALICE.address in client.get("/keys").text


def test_a_refused_person_sees_why_and_may_try_again():
    response = Client().post("/sign-in/message", {"address": "<b>0x12", "chainId": "31337"})
    assert response.status_code == 400
    assert "This is no address, which is 0x and 40 hexadecimal digits." in response.text
    assert "&lt;b&gt;0x12" in response.text
    assert "<b>" not in response.text


@pytest.mark.parametrize(
    ("requested", "location"),
    [
        ("/explorer/query/1?a=b", "/explorer/query/1?a=b"),
        ("", "/dashboard"),
        ("//evil.example", "/dashboard"),
        ("/\\evil.example", "/dashboard"),
        ("///evil.example", "/dashboard"),
        ("https://evil.example", "/dashboard"),
        ("http://testserver/dashboard", "/dashboard"),
        ("javascript:alert(1)", "/dashboard"),
        ("\x00/x", "/dashboard"),
        ("/[", "/["),
    ],
)
def test_only_paths_of_this_service_come_next(requested, location):
    client = Client()
    message = message_for(client)
    signed = {"message": message, "signature": sign(message, ALICE), "next": requested}
    response = client.post("/sign-in/verify", signed)
    assert response.headers["Location"] == location
    assert client.get("/sign-in", {"next": requested}).headers["Location"] == location


def test_cookies_of_other_programs_end_no_session_and_are_kept(alice_client):
    (key,) = alice_client.get("/keys", headers=JSON).json()["keys"]
    own = "; ".join(f"{name}={morsel.value}" for name, morsel in alice_client.cookies.items())
    for foreign in (
        "sessionid=x; csrftoken=y; messages=z",
        f"a={'x' * 20_000}",
        'a="\\000',
        "=; ;a",
        "__Host-sessionid=x",
    ):
        shown = Client().get("/keys", headers={"cookie": f"{foreign}; {own}"})
        assert (shown.status_code, [*shown.cookies]) == (200, [project_settings.CSRF_COOKIE_NAME])
    # The next page reports the change, without a cookie of Django's name.
    done = Client().post(f"/dashboard/keys/{key['id']}/revoke", headers={"cookie": f"messages=z; {own}"})
    assert (done.status_code, [*done.cookies]) == (302, [project_settings.SESSION_COOKIE_NAME])
    assert "The key default was revoked." in Client().get("/keys", headers={"cookie": own}).text


def test_sign_out_takes_a_post_and_ends_the_session(alice_client):
    assert alice_client.get("/sign-out").status_code == 405
    assert alice_client.get("/dashboard").status_code == 200
    assert alice_client.post("/sign-out").headers["Location"] == "/sign-in"
    assert alice_client.get("/dashboard").status_code == 302


# --- Sign-in as a development account ---------------------------------------------------------------------------------

DEAD_NODE = "http://127.0.0.1:1"
# SERVER_NAME is the address on which the web server listens.
LOCAL: dict[str, Any] = {"SERVER_NAME": "127.0.0.1", "REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "127.0.0.1:8000"}
DEVELOPMENT = "/sign-in/development"


@pytest.fixture
def demo_chains(configure_chains, settings):
    """Configure the chains of a demo that accepts any host name."""
    settings.ALLOWED_HOSTS = ["*"]
    configure_chains(*((chain, True, DEAD_NODE) for chain in (31337, 31338, 31339)), destinations=(31337,))


@pytest.mark.parametrize(
    "more",
    [{}, {"REMOTE_ADDR": "::1", "HTTP_HOST": "[::1]:8000"}, {"HTTP_HOST": "localhost"}],
    ids=["IPv4", "IPv6", "localhost"],
)
def test_a_visitor_of_a_demo_signs_in_without_a_wallet(demo_chains, more):
    client = Client(enforce_csrf_checks=True, **LOCAL | more)
    page = client.get("/sign-in", {"next": "/new-batch"}).text
    assert f'action="{DEVELOPMENT}"' in page
    token = {"csrfmiddlewaretoken": client.cookies[project_settings.CSRF_COOKIE_NAME].value}
    response = client.post(DEVELOPMENT, {"next": "/new-batch"} | token)
    assert (response.status_code, response.headers["Location"]) == (302, "/new-batch")
    assert User.objects.get().address == ALICE.address == ACCOUNTS[0][0]
    assert [event.kind for event in AccountEvent.objects.order_by("pk")] == [EventKind.SIGNED_IN, EventKind.KEY_MADE]
    # The message signed by the user is one of the service's own, and its nonce is used up.
    assert SignInNonce.objects.get().consumed_at
    assert client.get("/dashboard").status_code == 200


def test_a_sign_in_as_a_development_account_takes_the_token_of_its_form(demo_chains):
    assert Client(enforce_csrf_checks=True, **LOCAL).post(DEVELOPMENT).status_code == 403
    assert not User.objects.exists()


@pytest.mark.parametrize(
    "more",
    [
        {"SERVER_NAME": "0.0.0.0"},
        {"SERVER_NAME": ""},
        {"REMOTE_ADDR": "192.0.2.1"},
        {"REMOTE_ADDR": ""},
        {"HTTP_HOST": "demo.example"},
        {"HTTP_HOST": "127.0.0.1.demo.example"},
        {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"HTTP_X_REAL_IP": "127.0.0.1"},
        {"HTTP_FORWARDED": "for=127.0.0.1"},
        {"HTTP_VIA": "1.1 proxy"},
    ],
    ids=str,
)
def test_a_remote_visitor_finds_no_development_account(demo_chains, more):
    _finds_none(Client(**LOCAL | more))


@pytest.mark.parametrize("other", [(1, True), (11155111, True), (31338, False)], ids=str)
def test_one_chain_that_is_no_development_chain_is_enough_for_none(configure_chains, other):
    configure_chains((31337, True, DEAD_NODE), (*other, DEAD_NODE), destinations=(31337,))
    _finds_none(Client(**LOCAL))


def _finds_none(client: Client) -> None:
    assert DEVELOPMENT not in client.get("/sign-in").text
    assert client.post(DEVELOPMENT).status_code == client.get(DEVELOPMENT).status_code == 404
    assert not User.objects.exists()


# --- Dashboard --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/dashboard"),
        ("get", "/keys"),
        ("get", "/dashboard/log"),
        ("post", "/dashboard/keys"),
        ("post", "/dashboard/keys/1/reveal"),
        ("get", "/dashboard/keys/1/rotate"),
        ("post", "/dashboard/keys/1/rotate"),
        ("get", "/dashboard/keys/1/revoke"),
        ("post", "/dashboard/keys/1/revoke"),
        ("post", "/sign-out/everywhere"),
    ],
)
def test_dashboard_and_keys_are_for_those_who_signed_in(db, method, path):
    response = getattr(Client(), method)(path)
    back = path if method == "get" else "/dashboard"
    assert (response.status_code, response.headers["Location"]) == (302, f"/sign-in?next={back}")
    response = getattr(Client(), method)(path, headers=JSON)
    assert (response.status_code, response.json()["code"]) == (401, "not_signed_in")
    assert "no-store" in response.headers["Cache-Control"]


def test_the_key_is_shown_only_on_request(alice_client):
    key = ApiKey.objects.get()
    secret = keys.reveal(key)
    page = alice_client.get("/keys")
    assert secret not in page.text
    assert f"{key.prefix}…{key.last_four}" in page.text
    assert "no-store" in page.headers["Cache-Control"]

    page = alice_client.post(f"/dashboard/keys/{key.pk}/reveal")
    assert page.text.count(secret) == 1
    assert "no-store" in page.headers["Cache-Control"]
    assert page.headers["Referrer-Policy"] == "same-origin"
    assert f"apiKey={secret}" not in page.text
    again = alice_client.get(f"/dashboard/keys/{key.pk}/reveal", follow=True)
    assert again.redirect_chain == [("/keys", 302)]
    assert secret not in again.text


@pytest.mark.parametrize("headers", [{}, JSON], ids=["page", "json"])
@pytest.mark.parametrize("whose", ["revoked", "ended", "bob", "nobody"])
@pytest.mark.parametrize("act", ["reveal", "rotate", "revoke"])
def test_a_key_that_is_not_one_s_own_live_one_is_not_found(alice_client, headers, whose, act):
    key_id = {
        "revoked": lambda: ApiKey.objects.get().pk,
        "ended": lambda: ApiKey.objects.get().pk,
        "bob": lambda: keys.issue(User.objects.for_address(BOB.address), "bob's").pk,
        "nobody": lambda: 10**30,
    }[whose]()
    if whose == "revoked":
        keys.revoke(ApiKey.objects.get())
    if whose == "ended":
        ApiKey.objects.update(expires_at=timezone.now())
    assert alice_client.post(f"/dashboard/keys/{key_id}/{act}", headers=headers).status_code == 404
    assert act != "reveal" or not AccountEvent.objects.filter(kind=EventKind.KEY_SHOWN).exists()


@pytest.mark.parametrize("name", ["", "default", "<b>"])
def test_a_person_s_name_for_a_key_comes_back_escaped(alice_client, name):
    response = alice_client.post("/dashboard/keys", {"name": name})
    page = response.text if response.status_code != 302 else alice_client.get("/keys").text
    assert response.status_code == {"": 400, "default": 409, "<b>": 302}[name]
    assert "<b>" not in page
    assert html.escape(name) in page


def test_the_last_use_is_stored_once_a_minute_and_nobody_waits_for_it(alice_client, client):
    key = ApiKey.objects.get()
    headers = {"api-key": keys.reveal(key)}

    def last_used_at() -> Any:
        assert client.get("/batch-queries", headers=headers).status_code == 200
        return ApiKey.objects.get().last_used_at

    first = last_used_at()
    assert first == last_used_at()
    for ago in (61, -61):
        ApiKey.objects.update(last_used_at=first - timedelta(seconds=ago))
        assert last_used_at() > first


# --- The log ----------------------------------------------------------------------------------------------------------


def test_the_log_says_what_happened_to_keys_and_sessions(alice_client):
    first = ApiKey.objects.get()
    alice_client.post(f"/dashboard/keys/{first.pk}/reveal")
    alice_client.post("/dashboard/keys", {"name": "second"})
    alice_client.post(f"/dashboard/keys/{first.pk}/rotate", {"name": "third", "overlap": "now"})
    third = ApiKey.objects.get(name="third")
    alice_client.post(f"/dashboard/keys/{third.pk}/revoke")
    alice_client.post("/sign-out")
    log = AccountEvent.objects.order_by("pk")
    assert list(log.values_list("kind", "key_name", "detail", "client_network")) == [
        ("signed_in", "", "", "127.0.0.0/24"),
        ("key_made", "default", "", "127.0.0.0/24"),
        ("key_shown", "default", "", "127.0.0.0/24"),
        ("key_made", "second", "", "127.0.0.0/24"),
        ("key_rotated", "default", f"It has expired. third ({third.ends}) replaces it.", "127.0.0.0/24"),
        ("key_revoked", "third", "", "127.0.0.0/24"),
        ("signed_out", "", "", "127.0.0.0/24"),
    ]


def test_the_log_is_one_s_own_paged_and_kept_for_90_days(alice_client):
    alice, bob = User.objects.get(), User.objects.for_address(BOB.address)
    AccountEvent.objects.all().delete()
    now = timezone.now()
    for user, age, name in [(alice, 91, "too old"), (bob, 0, "bob's")]:
        AccountEvent.objects.create(user=user, at=now - timedelta(days=age), kind=EventKind.KEY_MADE, key_name=name)
    for n in range(25 + 1):
        AccountEvent.objects.create(user=alice, kind=EventKind.KEY_MADE, key_name=f"number-{n}.")

    newest = alice_client.get("/dashboard/log").text
    link = re.search(r'href="(/dashboard/log\?before=\d+)"', newest)
    assert link is not None
    alice_client.post("/dashboard/keys", {"name": "meanwhile"})
    older = alice_client.get(link[1]).text
    assert (newest.count("number-"), older.count("number-")) == (25, 1)
    assert "number-0." in older
    assert 'rel="next"' not in older
    assert "too old" not in newest + older
    assert "bob" not in newest + older


# --- Sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_more_than_60_key_changes_in_a_minute_are_refused_with_429(alice_client):
    key = ApiKey.objects.get()
    answers = [post_json(alice_client, f"/dashboard/keys/{key.pk}/reveal", {}).status_code for _ in range(61)]
    assert answers == [200] * 60 + [429]
    for path, body in (("", {"name": "c"}), (f"/{key.pk}/reveal", {}), (f"/{key.pk}/rotate", {"name": "c"})):
        refused = post_json(alice_client, f"/dashboard/keys{path}", body)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_changes")
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        page = alice_client.post(f"/dashboard/keys{path}", body)
        assert page.status_code == 429
        assert "60 times in a minute" in page.text
    assert ApiKey.objects.count() == 1
    # Revoking a key has no rate limit.
    assert post_json(alice_client, f"/dashboard/keys/{key.pk}/revoke", {}).json()["revoked"]


def test_a_sign_in_drops_what_is_left_of_sessions_that_ended(alice_client):
    ended = Session.objects.get()
    ended.expire_date = timezone.now() - timedelta(seconds=1)
    ended.save()
    client = Client()
    message = message_for(client)
    assert (
        post_json(client, "/sign-in/verify", {"message": message, "signature": sign(message, ALICE)}).status_code == 200
    )
    assert not Session.objects.filter(pk=ended.pk).exists()
    assert Session.objects.count() == 1


def test_signing_out_everywhere_ends_all_sessions_of_the_user_alone(alice_client):
    other, bob = Client(), Client()
    other.force_login(User.objects.get())
    bob.force_login(User.objects.for_address(BOB.address))
    assert alice_client.post("/sign-out/everywhere").headers["Location"] == "/sign-in"
    assert [client.get("/dashboard").status_code for client in (alice_client, other, bob)] == [302, 302, 200]
    assert AccountEvent.objects.latest("pk").kind == EventKind.SIGNED_OUT_EVERYWHERE
