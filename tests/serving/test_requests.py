"""What the web server makes of requests before any view sees them."""

import re
import subprocess
from contextlib import suppress
from http.client import HTTPException, IncompleteRead

import pytest
import requests

from devnet.devchain import PROJECT
from tests.accounts.wallets import ALICE, sign
from tests.explorer.batches import many_accounts
from tests.serving.app import LARGE as ALL_OF_IT
from tests.serving.process import ANSWER_SECONDS, WebServer, ask, connect, is_closed, read_answer, serving

HOST = b"Host: 127.0.0.1\r\n"
KEY = "bqs_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


def request(line: bytes = b"GET /theme HTTP/1.1", *fields: bytes, host: bytes = HOST, body: bytes = b"") -> bytes:
    return line + b"\r\n" + host + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


POST = b"POST %s HTTP/1.1"
FAULTS = {
    "two lengths": (request(POST, b"Content-Length: 2", b"Content-Length: 3", body=b"abc"), 400, "bad_request"),
    "two equal lengths": (request(POST, b"Content-Length: 2, 2", body=b"ab"), 400, "bad_request"),
    "a length and chunks": (
        request(POST, b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
        400,
        "bad_request",
    ),
    "no length but chunks": (request(POST, b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 411, "length_required"),
    "no length but an empty encoding": (request(POST, b"Transfer-Encoding:"), 411, "length_required"),
    "a length and an empty encoding": (
        request(POST, b"Content-Length: 1", b"transfer-encoding:", body=b"x"),
        400,
        "bad_request",
    ),
    "another encoding": (request(POST, b"Transfer-Encoding: gzip"), 501, "not_implemented"),
    "chunks in HTTP/1.0": (request(b"POST %s HTTP/1.0", b"Transfer-Encoding: chunked"), 400, "bad_request"),
    "a negative length": (request(POST, b"Content-Length: -1"), 400, "bad_request"),
    "a length with thousands of digits": (request(POST, b"Content-Length: " + b"9" * 5000), 400, "bad_request"),
    "a body that is too large": (request(POST, b"Content-Length: 4194305"), 413, "too_large"),
    "another expectation": (request(POST, b"Content-Length: 1", b"Expect: tea"), 417, "expectation_failed"),
    "no host": (request(POST, host=b""), 400, "bad_request"),
    "two hosts": (request(POST, HOST.strip()), 400, "bad_request"),
    "a space before a colon": (request(POST, b"Content-Length : 1"), 400, "bad_request"),
    "an end of line of its own": (request(POST, b"a: b\nc: d"), 400, "bad_request"),
    "a folded line": (request(POST, b"a: b", b" c"), 400, "bad_request"),
    "a field that is none": (request(POST, b"nothing"), 400, "bad_request"),
    "a long request line": (request(b"GET %s?" + b"x" * 4096 + b" HTTP/1.1"), 414, "uri_too_long"),
    "many fields": (request(POST, *[b"a: b"] * 60), 431, "header_too_large"),
    "a large header": (request(POST, b"a: " + b"b" * 32_768), 431, "header_too_large"),
    "another version": (request(b"POST %s HTTP/2.0"), 505, "version_not_supported"),
    "no version": (request(b"GET %s"), 505, "version_not_supported"),
    "a method in lower case": (request(b"post %s HTTP/1.1"), 400, "bad_request"),
}


@pytest.mark.parametrize(("raw", "status", "code"), FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_is_refused_as_json_on_the_apis_paths_and_in_a_sentence_elsewhere(web, raw, status, code):
    # Not by formatting: a field may hold what looks like a place to fill.
    to_api = ask(web.port, raw.replace(b"%s", b"/submit-batch-query", 1))
    elsewhere = ask(web.port, raw.replace(b"%s", b"/sign-in", 1))
    assert (to_api.status, to_api.code) == (elsewhere.status, code) == (status, code)
    assert to_api.headers["Access-Control-Allow-Origin"] == "*"
    assert to_api.headers["Connection"] == elsewhere.headers["Connection"] == "close"
    assert elsewhere.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert re.fullmatch(rb"[A-Z][^<>\n]+\.\n", elsewhere.body)


@pytest.mark.parametrize("line", [b"GET http://[ HTTP/1.1", b"", b"GET", b"\xff\x00 / HTTP/1.1", b"\x16\x03\x01"])
def test_what_is_no_request_gets_a_sentence(web, line):
    answer = ask(web.port, request(line or b" "))
    assert (answer.status, answer.body) == (400, b"The request is malformed.\n")


def test_many_fields_that_are_allowed_and_the_largest_body_get_through(web):
    assert ask(web.port, request(b"GET /sign-in HTTP/1.1", *[b"a: b"] * 59)).status == 200
    body = b" " * (4 * 1024 * 1024)
    answer = requests.post(f"{web.url}/submit-batch-query", data=body, timeout=20)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


# --- Large bodies -----------------------------------------------------------------------------------------------------

LARGE = 30 * 1024 * 1024
FETCH = """
fetch(process.argv[1], {method: "POST", body: Buffer.alloc(Number(process.argv[2]))})
  .then(async answer => console.log(answer.status, await answer.text()))
  .catch(error => console.log(error.cause))
"""


def by_requests(url: str) -> str:
    answer = requests.post(url, data=b"x" * LARGE, timeout=60)
    return f"{answer.status_code} {answer.text}"


def by_curl(url: str) -> str:
    command = ["curl", "-s", "--data-binary", "@-", "-H", "Expect:", "-w", "%{http_code}", url]
    done = subprocess.run(command, input=b"x" * LARGE, capture_output=True, timeout=60, check=False)
    body, status = done.stdout[:-3].decode(), done.stdout[-3:].decode()
    return f"{status} {body}"


def by_fetch(url: str) -> str:
    command = [str(PROJECT / ".venv" / "bin" / "node"), "-e", FETCH, url, str(LARGE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip()


@pytest.mark.parametrize("send", [by_requests, by_curl, by_fetch])
def test_who_sends_30_megabytes_sees_why_they_are_not_taken(web, send):
    assert send(f"{web.url}/submit-batch-query") == (
        '413 {"error": "The body is larger than 4194304 bytes.", "code": "too_large"}'
    )


URL_ENCODED, MULTIPART = b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=b"


def a_form(kind: bytes, length: int) -> bytes:
    """Of so many bytes."""
    if kind == URL_ENCODED:
        return b"%" * length
    begin, end = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n', b"\r\n--b--\r\n"
    return begin + b"x" * (length - len(begin + end)) + end


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"POST /theme HTTP/1.1", URL_ENCODED),
        (b"POST /theme HTTP/1.1", MULTIPART),
        (b"POST //submit-batch-query HTTP/1.1", URL_ENCODED),
        (b"GET /sign-in?/submit-batch-query HTTP/1.1", URL_ENCODED),
        (b"POST //new-batch HTTP/1.1", MULTIPART),
    ],
)
def test_a_page_takes_bodies_of_forms_alone(web, line, kind):
    length = 128 * 1024
    form = b"Content-Type: " + kind
    taken = request(line, form, b"Content-Length: %d" % length, body=a_form(kind, length))
    assert ask(web.port, taken).status in {200, 302, 403, 404, 415}
    refused = ask(web.port, request(line, form, b"Content-Length: %d" % (length + 1)))
    assert (refused.status, refused.body) == (413, b"The body is larger than 131072 bytes.\n")


@pytest.mark.parametrize("path", [b"/new-batch", b"/new-batch/estimate"])
@pytest.mark.parametrize(("kind", "length"), [(URL_ENCODED, 128 * 1024), (MULTIPART, 1024 * 1024)])
def test_the_form_of_a_batch_may_be_larger_as_far_as_it_is_cheap_to_read(web, path, kind, length):
    line, form = b"POST " + path + b" HTTP/1.1", b"Content-Type: " + kind
    taken = request(line, form, b"Content-Length: %d" % length, body=a_form(kind, length))
    assert ask(web.port, taken).status in {302, 403}
    refused = ask(web.port, request(line, form, b"Content-Length: %d" % (length + 1)))
    assert (refused.status, refused.headers["Content-Type"]) == (413, "text/html; charset=utf-8")
    assert b"<h1>This is too much for one form</h1>" in refused.body
    assert int(refused.headers["Content-Length"]) == len(refused.body)


def test_ten_thousand_addresses_with_their_properties_are_a_form(web):
    """As a browser sends them: pasted, estimated, and submitted."""
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
        assert "10,000 facts of 10,000 accounts" in post("/estimate").text
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


def test_who_sends_all_before_reading_sees_it_as_well_and_then_the_end(web):
    with connect(web.port) as connection:
        connection.sendall(request(b"POST /chain-connections HTTP/1.1", b"Content-Length: %d" % LARGE))
        connection.sendall(b"x" * LARGE)
        answer = read_answer(connection)
        assert (answer.status, answer.code) == (413, "too_large")
        assert connection.recv(1) == b""


def test_no_more_is_read_of_it_than_64_megabytes(web):
    announced = 10**10
    with connect(web.port) as connection:
        connection.sendall(request(b"POST /chain-connections HTTP/1.1", b"Content-Length: %d" % announced))
        sent, piece = 0, b"x" * (1024 * 1024)
        with suppress(ConnectionError):
            while sent < announced:
                connection.sendall(piece)
                sent += len(piece)
    # What lies in the buffers of either side is sent, but not read.
    assert 64 * 1024 * 1024 <= sent < 80 * 1024 * 1024


# --- Expect: 100-continue ---------------------------------------------------------------------------------------------

EXPECTING = b"Expect: 100-continue"


def test_who_asks_first_is_told_to_continue(web):
    with connect(web.port) as connection:
        connection.sendall(request(POST % b"/submit-batch-query", EXPECTING, b"Content-Length: 2"))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert read_answer(connection).code == "unauthorized"


@pytest.mark.parametrize(
    ("line", "length", "status"),
    [(b"POST /submit-batch-query HTTP/1.1", b"5000000", 413), (b"GET /sign-in HTTP/1.1", b"0", 200)],
)
def test_nobody_is_told_to_continue_with_what_is_refused_or_not_there(web, line, length, status):
    assert ask(web.port, request(line, EXPECTING, b"Content-Length: " + length)).status == status


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


def test_what_is_streamed_comes_whole_and_then_its_connection_ends(short):
    with connect(short.port) as connection:
        connection.sendall(request(b"GET /streamed HTTP/1.1"))
        answer = read_answer(connection)
        assert (answer.body == ALL_OF_IT, answer.headers["Connection"]) == (True, "close")
        assert is_closed(connection)


def test_what_is_streamed_is_not_made_for_head(short):
    with connect(short.port) as connection:
        connection.sendall(request(b"HEAD /streamed?fails HTTP/1.1"))
        came = b"".join(iter(lambda: connection.recv(4096), b""))
    assert came.startswith(b"HTTP/1.1 200 OK\r\n")
    assert came.index(b"\r\n\r\n") == len(came) - 4
    assert b"Content-Length" not in came
    assert "a defect in the middle" not in short.log(until="A streamed answer is closed.")


def test_what_fails_while_it_is_streamed_is_not_taken_for_whole(short):
    with connect(short.port) as connection:
        connection.sendall(request(b"GET /streamed?fails HTTP/1.1"))
        with pytest.raises(IncompleteRead):
            read_answer(connection)
    short.log(until="a defect in the middle")
    assert ask(short.port, request(b"GET /after HTTP/1.1")).status == 200


def test_a_refusal_of_head_has_no_body(web):
    with connect(web.port) as connection:
        connection.sendall(request(b"HEAD /sign-in HTTP/1.1", b"Expect: tea"))
        assert b"\r\n\r\n" in connection.recv(4096)
        assert connection.recv(1) == b""


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


def test_what_comes_before_the_answer_is_dropped_and_not_served(web):
    smuggled = request(b"GET /chain-connections HTTP/1.1")
    with connect(web.port) as connection:
        connection.sendall(request(b"GET /sign-in HTTP/1.1") + smuggled)
        answer = read_answer(connection)
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert is_closed(connection)


def test_empty_lines_between_requests_are_nothing(web):
    with connect(web.port) as connection:
        for _ in range(2):
            posted = request(b"POST /submit-batch-query HTTP/1.1", b"Content-Length: 2", body=b"{}\r\n")
            connection.sendall(b"\r\n\r\n" + posted)
            assert read_answer(connection).status == 401


def test_who_sends_no_more_still_gets_an_answer(web):
    with connect(web.port) as connection:
        connection.sendall(request(b"GET /sign-in HTTP/1.1"))
        connection.shutdown(1)
        assert read_answer(connection).status == 200


def test_a_path_exists_once(web):
    assert ask(web.port, request(b"GET //chain-connections HTTP/1.1")).status == 404


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
        request(b"GET /chain-connections?apiKey=%s&logged=1 HTTP/9.9" % secret),
        request(b"GET /not/%s HTTP/1.1" % secret),
        request(b"GET /chain-connections?logged=1 HTTP/1.1", b"api-key : " + secret),
        request(b"%s / HTTP/1.1" % secret),
        request(b"GET http://[%s/ HTTP/1.1" % secret),
        request(b"GET /forged%0a2026-11-20%20INFO HTTP/1.1"),
    ):
        ask(web.port, raw)
    log = web.log(until=' "GET /forged\\x0a2026-11-20 INFO" 404 ')
    assert re.search(r'gunicorn\.access: 127\.0\.0\.1 "GET /chain-connections" 200 \d+ \d+ms\n', log)
    assert re.search(r'gunicorn\.access: 127\.0\.0\.1 "GET /chain-connections" 505 \d+ \d+ms\n', log)
    assert "logged=1" not in log
    assert KEY not in log
    assert KEY[4:20] not in log
    assert "Traceback" not in log


def test_the_log_shortens_a_path(short):
    ask(short.port, request(b"GET /long/%s HTTP/1.1" % (b"%01" * 1200)))
    log = short.log(until=' "GET /long/')
    assert ' "GET /long/' + "\\x01" * 194 + '..." 200 ' in short.log(until='..." 200 ')
    assert max(map(len, log.splitlines())) < 1000


def test_an_application_that_raises_is_answered_and_logged_as_what_was_asked(short):
    to_api = ask(short.port, request(b"GET /batch-query-status?fails HTTP/1.1"))
    elsewhere = ask(short.port, request(b"GET /sign-in?fails HTTP/1.1"))
    of_head = ask(short.port, request(b"HEAD /failing?fails HTTP/1.1"), method="HEAD")
    assert (to_api.status, elsewhere.status, of_head.status) == (500, 500, 500)
    assert (to_api.code, elsewhere.code) == ("internal_error", None)
    assert elsewhere.body == b"Something went wrong here; it has been logged.\n"
    # Each line is written after its answer, by the thread that gave it.
    for line in (' "GET /batch-query-status" 500 ', ' "GET /sign-in" 500 ', ' "HEAD /failing" 500 '):
        log = short.log(until=line)
    assert "a defect" in log


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
