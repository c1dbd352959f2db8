"""What the web server makes of requests before any view sees them."""

import re

import pytest
import requests

from tests.accounts.wallets import ALICE, sign
from tests.explorer.batches import many_accounts
from tests.serving.batches import a_key
from tests.serving.process import ANSWER_SECONDS, WebServer, ask, serving

HOST = b"Host: 127.0.0.1\r\n"
KEY = "bqs_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


def request(line: bytes = b"GET /sign-out HTTP/1.1", *fields: bytes, host: bytes = HOST, body: bytes = b"") -> bytes:
    return line + b"\r\n" + host + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


POST = b"POST /submit-batch-query HTTP/1.1"


@pytest.mark.parametrize(("host", "is_offered"), [("127.0.0.1", True), ("0.0.0.0", False)])
def test_only_a_server_on_loopback_signs_visitors_in(tmp_path, host, is_offered):
    with serving(tmp_path, host=host) as server:
        page = ask(server.port, request(b"GET /sign-in HTTP/1.1")).body
        assert (b"Sign in as a development account" in page) == is_offered


def test_a_body_that_is_too_large_is_refused_in_the_form_of_the_api(web):
    body = bytes(4 * 1024 * 1024 + 1)
    for key, told in ((a_key(web), (413, "too_large")), ("", (401, "unauthorized"))):
        answer = requests.post(f"{web.url}/submit-batch-query", body, headers={"api-key": key}, timeout=20)
        assert (answer.status_code, answer.json()["code"]) == told


def test_ten_thousand_addresses_with_their_properties_are_a_form(web):
    """The requests are those of a browser: the addresses are pasted, estimated, and submitted."""
    with signed_in(web) as browser:
        row = {"source": "31337", "at": "latest", "props": "BALANCE", "slot_of": "address"}
        fields = {f"rows-0-{name}": value for name, value in row.items()}
        fields |= {"destination": "31337", "sender": "service", "rows-TOTAL_FORMS": "1", "rows-INITIAL_FORMS": "1"}
        fields |= {"csrfmiddlewaretoken": browser.cookies["csrftoken"], "token": "a-token-of-22-letters-"}

        def post(path: str = "", **more: str) -> requests.Response:
            typed = {name: (None, value) for name, value in (fields | more).items()}
            return browser.post(f"{web.url}/new-batch{path}", files=typed, allow_redirects=False, timeout=60)

        lines = [f"{one},12345678,BALANCE NONCE CODE_HASH STORAGE_ROOT" for one in many_accounts(10_000)]
        pasted = post(do="paste", pasted="\r\n".join(lines))
        assert "10,000 lines are in the form." in pasted.text
        fields["rows-0-accounts"] = "\r\n".join(many_accounts(10_000))
        assert "10,000 facts of 10,000 accounts" in " ".join(post("/estimate").text.split())
        assert post(do="submit").status_code == 303


def signed_in(web: WebServer) -> requests.Session:
    browser = requests.Session()
    browser.get(f"{web.url}/sign-in", timeout=ANSWER_SECONDS).raise_for_status()
    asked = {"address": ALICE.address, "chainId": "31337"}

    def post(path: str, body: dict[str, str]) -> dict[str, str]:
        token = {"X-CSRFToken": browser.cookies["csrftoken"]}
        answer = browser.post(f"{web.url}/sign-in/{path}", json=body, headers=token, timeout=ANSWER_SECONDS)
        answer.raise_for_status()
        return dict(answer.json())

    message = post("message", asked)["message"]
    post("verify", {"message": message, "signature": sign(message, ALICE)})
    browser.get(f"{web.url}/new-batch", timeout=ANSWER_SECONDS).raise_for_status()
    return browser


# --- What is believed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"SCRIPT_NAME", b"Script-Name", b"SCRIPT-NAME", b"X-Script-Name", b"PATH_INFO"])
@pytest.mark.parametrize("value", [b"/elsewhere", b"x", b"/sign-in"])
def test_nobody_says_where_the_service_lies(web, name, value):
    answer = ask(web.port, request(b"GET /sign-in HTTP/1.1", name + b": " + value))
    assert answer.status == 200
    assert b"/elsewhere" not in answer.body
    assert b'href="/explorer"' in answer.body


@pytest.mark.parametrize(("behind_proxy", "status"), [("false", 301), ("true", 200)])
def test_the_scheme_is_believed_behind_a_tls_proxy_alone(tmp_path, behind_proxy, status):
    with serving(tmp_path, BASE_URL="https://127.0.0.1", BEHIND_TLS_PROXY=behind_proxy) as server:
        asked = request(b"GET /sign-in HTTP/1.1", b"X-Forwarded-Proto: https")
        assert ask(server.port, asked).status == status
        # Not what a proxy writes, and so not what it would overwrite.
        for field in (b"X_Forwarded_Proto: https", b"X-Forwarded-Ssl: on", b"X-Forwarded-Protocol: ssl"):
            assert ask(server.port, request(b"GET /sign-in HTTP/1.1", field)).status == 301


# --- Logs -------------------------------------------------------------------------------------------------------------


def test_the_log_has_paths_and_no_query_string_whatever_comes_of_a_request(web):
    secret = KEY.encode()
    for raw in (
        request(b"GET /chain-connections?apiKey=%s&logged=1 HTTP/1.1" % secret),
        request(b"GET /not/%s HTTP/1.1" % secret),
        request(b"GET /chain-connections?logged=1 HTTP/1.1", b"api-key : " + secret),
        request(b"%s / HTTP/1.1" % secret),
        request(b"GET http://[%s/ HTTP/1.1" % secret),
        request(b"GET /forged%0a2026-11-20%20INFO HTTP/1.1"),
    ):
        ask(web.port, raw)
    log = web.log(until=' "GET /forged\\x0a2026-11-20 INFO" 404 ')
    assert re.search(r'gunicorn\.access: 127\.0\.0\.1 "GET /chain-connections" 200 \d+ \d+ms\n', log)
    assert "logged=1" not in log
    assert KEY not in log
    assert KEY[4:20] not in log
    assert "Traceback" not in log


def test_the_log_shortens_a_path(web):
    ask(web.port, request(b"GET /long/%s HTTP/1.1" % (b"%01" * 1200)))
    log = web.log(until=' "GET /long/')
    assert ' "GET /long/' + "\\x01" * 194 + '..." 404 ' in web.log(until='..." 404 ')
    assert max(map(len, log.splitlines())) < 1000


def test_an_unknown_host_leaves_one_line_that_names_it(web):
    assert ask(web.port, request(b"GET /unknown-host HTTP/1.1", host=b"Host: elsewhere.example\r\n")).status == 400
    log = web.log(until=' "GET /unknown-host" 400 ')
    assert "ERROR django.security.DisallowedHost: Invalid HTTP_HOST header: 'elsewhere.example'" in log
    assert "Traceback" not in log
