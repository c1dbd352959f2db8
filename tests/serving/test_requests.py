"""What the web server makes of requests before any view sees them."""

import re
from contextlib import suppress
from http.client import HTTPException, IncompleteRead

import pytest
import requests

from tests.accounts.wallets import ALICE, sign
from tests.explorer.batches import many_accounts
from tests.serving.app import LARGE as ALL_OF_IT
from tests.serving.process import ANSWER_SECONDS, WebServer, ask, connect, is_closed, read_answer, serving

HOST = b"Host: 127.0.0.1\r\n"
KEY = "bqs_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


def request(line: bytes = b"GET /theme HTTP/1.1", *fields: bytes, host: bytes = HOST, body: bytes = b"") -> bytes:
    return line + b"\r\n" + host + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


POST = b"POST /submit-batch-query HTTP/1.1"
FAULTS = {
    "two lengths": (request(POST, b"Content-Length: 2", b"Content-Length: 3", body=b"abc"), 400),
    "two equal lengths": (request(POST, b"Content-Length: 2, 2", body=b"ab"), 400),
    "another encoding": (request(POST, b"Transfer-Encoding: gzip"), 501),
    "chunks without a size": (request(POST, b"Transfer-Encoding: chunked", body=b"x\r\n\r\n"), 400),
    "a negative length": (request(POST, b"Content-Length: -1"), 400),
    "a body that is too large": (request(POST, b"Content-Length: 4194305"), 413),
    "no host": (request(POST, host=b""), 400),
    "two hosts": (request(POST, HOST.strip()), 400),
    "a space before a colon": (request(POST, b"Content-Length : 1"), 400),
    "an end of line of its own": (request(POST, b"a: b\nc: d"), 400),
    "a field that is none": (request(POST, b"nothing"), 400),
    "a long path": (request(b"GET /%s HTTP/1.1" % (b"a" * 9016)), 414),
    "a long query": (request(b"GET /chain-connections?%s HTTP/1.1" % (b"a" * 9000)), 414),
    "a large header": (request(POST, b"a: " + b"b" * 32_768), 431),
    "no request": (request(b"\xff\x00 / HTTP/1.1"), 400),
    "another protocol": (request(b"\x16\x03\x01"), 400),
}


@pytest.mark.parametrize(("raw", "status"), FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_is_refused(web, raw, status):
    assert ask(web.port, raw).status == status


@pytest.mark.parametrize(("also", "is_offered"), [([], True), (["0.0.0.0:0"], False)], ids=["loopback", "everywhere"])
def test_only_a_server_on_loopback_alone_signs_visitors_in(tmp_path, also, is_offered):
    with serving(tmp_path, also=also) as server:
        page = ask(server.port, request(b"GET /sign-in HTTP/1.1")).body
        assert (b"Sign in as a development account" in page) == is_offered


def test_chunks_are_taken_within_the_same_bound(web):
    def posted(length: int) -> bytes:
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (length, b" " * length)
        return request(POST, b"Transfer-Encoding: chunked", body=body)

    assert ask(web.port, posted(2)).code == "unauthorized"
    with connect(web.port) as connection:
        with suppress(ConnectionError):
            connection.sendall(posted(4194305))
        assert read_answer(connection).status == 413


def test_chunks_count_and_no_length_beside_them(web):
    """So that nothing is hidden behind another request, as in smuggling."""
    hidden = request(b"GET /chain-connections HTTP/1.1", b"Connection: close")
    fields = (b"Content-Length: %d" % (5 + len(hidden)), b"Transfer-Encoding: chunked")
    # The second was no body.
    assert statuses_of(web, request(POST, *fields, body=b"0\r\n\r\n") + hidden) == [401, 200]


def statuses_of(web: WebServer, requests: bytes) -> list[int]:
    """Return the statuses of the answers to all of `requests`, the last of which closes the connection."""
    with connect(web.port) as connection:
        connection.sendall(requests)
        came = b"".join(iter(lambda: connection.recv(65536), b""))
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", came)]


def test_many_fields_that_are_allowed_and_the_largest_body_get_through(web):
    assert ask(web.port, request(b"GET /sign-in HTTP/1.1", *[b"a: b"] * 59)).status == 200
    body = b" " * (4 * 1024 * 1024)
    answer = requests.post(f"{web.url}/submit-batch-query", data=body, timeout=20)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


# --- Large bodies -----------------------------------------------------------------------------------------------------

LARGE = 30 * 1024 * 1024


def test_a_body_of_30_megabytes_is_refused_before_it_has_come(web):
    """Its sender sees a reset, and the answer if it reads on. nginx reads on instead, see test_nginx.py."""
    with connect(web.port) as connection:
        connection.sendall(request(POST, b"Content-Length: %d" % LARGE))
        with pytest.raises(ConnectionError):
            connection.sendall(b"x" * LARGE)
        assert read_answer(connection).status == 413


URL_ENCODED, MULTIPART = b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=b"


def a_form(kind: bytes, length: int) -> bytes:
    """Return a form's body of `length` bytes."""
    if kind == URL_ENCODED:
        return b"%" * length
    begin, end = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n', b"\r\n--b--\r\n"
    return begin + b"x" * (length - len(begin + end)) + end


@pytest.mark.parametrize(
    ("line", "status"),
    [(b"POST /theme HTTP/1.1", 302), (b"GET /sign-in?/submit-batch-query HTTP/1.1", 200)],
)
def test_a_page_takes_bodies_of_forms_alone(web, line, status):
    length = 128 * 1024
    form = b"Content-Type: " + URL_ENCODED
    taken = request(line, form, b"Content-Length: %d" % length, body=a_form(URL_ENCODED, length))
    assert ask(web.port, taken).status == status
    too_much = request(line, form, b"Content-Length: %d" % (length + 1), body=a_form(URL_ENCODED, length + 1))
    refused = ask(web.port, too_much)
    assert (refused.status, refused.body) == (413, b"The body is larger than 131072 bytes.\n")


@pytest.mark.parametrize("path", [b"/new-batch", b"/new-batch/estimate"])
@pytest.mark.parametrize(("kind", "length"), [(URL_ENCODED, 128 * 1024), (MULTIPART, 1024 * 1024)])
def test_the_form_of_a_batch_may_be_larger_as_far_as_it_is_cheap_to_read(web, path, kind, length):
    line, form = b"POST " + path + b" HTTP/1.1", b"Content-Type: " + kind
    taken = request(line, form, b"Content-Length: %d" % length, body=a_form(kind, length))
    assert ask(web.port, taken).status in {302, 403}
    too_much = request(line, form, b"Content-Length: %d" % (length + 1), body=a_form(kind, length + 1))
    refused = ask(web.port, too_much)
    assert (refused.status, refused.headers["Content-Type"]) == (413, "text/html; charset=utf-8")
    assert b"<h1>This is too much for one form</h1>" in refused.body
    assert int(refused.headers["Content-Length"]) == len(refused.body)


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


# --- Expect: 100-continue ---------------------------------------------------------------------------------------------

EXPECTING = b"Expect: 100-continue"


def test_who_asks_first_is_told_to_continue(web):
    with connect(web.port) as connection:
        connection.sendall(request(POST, EXPECTING, b"Content-Length: 2"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert read_answer(connection).code == "unauthorized"


# --- Connections ------------------------------------------------------------------------------------------------------


def test_a_connection_serves_many_requests(web):
    with connect(web.port) as connection:
        for line in (
            b"GET /sign-in HTTP/1.1",
            b"GET /chain-connections HTTP/1.1",
            b"POST /submit-batch-query HTTP/1.1",
        ):
            connection.sendall(request(line, b"Content-Length: 0"))
            answer = read_answer(connection)
            assert (answer.status in {200, 401}, answer.headers["Connection"]) == (True, None)


@pytest.mark.parametrize("path", [b"/healthz", b"/submit-batch-query", b"/static/site.css"])
def test_an_answer_to_head_is_that_to_get_without_its_body(web, path):
    with connect(web.port) as connection:
        for _ in range(2):
            connection.sendall(request(b"HEAD %s HTTP/1.1" % path))
            of_head = read_answer(connection, "HEAD")
            connection.sendall(request(b"GET %s HTTP/1.1" % path))
            of_get = read_answer(connection)
            assert of_head.status == of_get.status
            assert int(of_head.headers["Content-Length"]) == len(of_get.body) > 0
            # What serves is nobody's business.
            assert of_get.headers["Server"] is None


def test_what_is_streamed_comes_whole_and_then_its_connection_ends(app):
    with connect(app.port) as connection:
        connection.sendall(request(b"GET /streamed HTTP/1.1"))
        answer = read_answer(connection)
        assert (answer.body == ALL_OF_IT, answer.headers["Connection"]) == (True, "close")
        assert is_closed(connection)


def test_what_is_streamed_is_not_made_for_head(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server:
        with connect(server.port) as connection:
            connection.sendall(request(b"HEAD /streamed?fails HTTP/1.1"))
            assert read_answer(connection, "HEAD").status == 200
        assert "a defect in the middle" not in server.log(until="A streamed answer is closed.")


def test_what_fails_while_it_is_streamed_is_not_taken_for_whole(app):
    with connect(app.port) as connection:
        connection.sendall(request(b"GET /streamed?fails HTTP/1.1"))
        with pytest.raises(IncompleteRead):
            read_answer(connection)
    app.log(until="a defect in the middle")
    assert ask(app.port, request(b"GET /after HTTP/1.1")).status == 200


def test_any_origin_may_ask_what_the_api_takes(web):
    fields = [b"Origin: https://elsewhere.example", b"Access-Control-Request-Method: POST"]
    answer = ask(web.port, request(b"OPTIONS /submit-batch-query HTTP/1.1", *fields))
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "*")


@pytest.mark.parametrize(("field", "goes_on"), [([], False), ([b"Connection: keep-alive"], True)])
def test_http_1_0_is_spoken(web, field, goes_on):
    with connect(web.port) as connection:
        connection.sendall(request(b"GET /sign-in HTTP/1.0", *field))
        assert read_answer(connection).status == 200
        if goes_on:
            connection.sendall(request(b"GET /sign-in HTTP/1.0"))
            assert read_answer(connection).status == 200
        assert is_closed(connection)


def test_requests_that_come_together_are_answered_in_their_order(web):
    both = request(b"GET /nowhere HTTP/1.1") + request(b"GET /sign-in HTTP/1.1", b"Connection: close")
    assert statuses_of(web, both) == [404, 200]


def test_empty_lines_between_requests_are_nothing(web):
    with connect(web.port) as connection:
        for _ in range(2):
            posted = request(b"POST /submit-batch-query HTTP/1.1", b"Content-Length: 2", body=b"{}\r\n")
            connection.sendall(b"\r\n\r\n" + posted)
            assert read_answer(connection).status == 401


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
        request(b"GET /forged%0a2026-11-20%20INFO HTTP/1.1"),
    ):
        ask(web.port, raw)
    with pytest.raises(OSError, match="closed"):
        ask(web.port, request(b"GET http://[%s/ HTTP/1.1" % secret))
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


def test_a_program_of_another_protocol_does_no_harm(web):
    for noise in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), b"\r\n" * 20_000, b"\0" * 40_000):
        with connect(web.port) as connection:
            connection.sendall(noise)
            connection.shutdown(1)
            try:
                assert read_answer(connection).status in {400, 414, 431}
            except (OSError, HTTPException):
                continue
    assert web.answers()
