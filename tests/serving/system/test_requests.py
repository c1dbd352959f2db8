"""The web server's treatment of requests before any view, and its behaviour while nodes hang."""

import json
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from urllib.parse import urlsplit

import pytest
import requests
from django.test import Client

from devnet.devchain import ACCOUNTS, PROJECT
from tests.serving.askers import Asker, askers
from tests.serving.batches import BODY, database, submit
from tests.serving.process import ANSWER_SECONDS, Answer, ask, read_answer, serving

HOST = b"Host: 127.0.0.1\r\n"
KEY = "bqs_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"


def request(line: bytes = b"GET /sign-out HTTP/1.1", *fields: bytes, host: bytes = HOST, body: bytes = b"") -> bytes:
    return line + b"\r\n" + host + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


@pytest.mark.long
def test_only_a_server_on_loopback_signs_visitors_in(web, tmp_path):
    with serving(tmp_path, host="0.0.0.0") as for_all:
        pages = [ask(server.port, request(b"GET /sign-in HTTP/1.1")).body for server in (web, for_all)]
    assert [b"Sign in as a development account" in page for page in pages] == [True, False]


# --- Trusted headers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [b"SCRIPT_NAME", b"Script-Name", b"SCRIPT-NAME", b"X-Script-Name", b"PATH_INFO"])
@pytest.mark.parametrize("value", [b"/elsewhere", b"x", b"/sign-in"])
def test_nobody_says_where_the_service_lies(web, name, value):
    answer = ask(web.port, request(b"GET /sign-in HTTP/1.1", name + b": " + value))
    assert answer.status == 200
    assert b"/elsewhere" not in answer.body
    assert b'href="/explorer"' in answer.body


@pytest.mark.long
@pytest.mark.parametrize(("behind_proxy", "status"), [("false", 301), ("true", 200)])
def test_the_scheme_is_believed_behind_a_tls_proxy_alone(tmp_path, behind_proxy, status):
    with serving(tmp_path, BASE_URL="https://127.0.0.1", BEHIND_TLS_PROXY=behind_proxy) as server:
        sent_request = request(b"GET /sign-in HTTP/1.1", b"X-Forwarded-Proto: https")
        answer = ask(server.port, sent_request)
        assert answer.status == status
        if status == 200:
            cookie = answer.headers["Set-Cookie"]
            assert re.fullmatch(r"__Host-csrftoken=\w+; (?!.*Domain).*Path=/;.* Secure", cookie)
        # Proxies don't send these fields, so they wouldn't overwrite a client's.
        for field in (b"X_Forwarded_Proto: https", b"X-Forwarded-Ssl: on", b"X-Forwarded-Protocol: ssl"):
            assert ask(server.port, request(b"GET /sign-in HTTP/1.1", field)).status == 301


# --- Cookies of several programs on a host ----------------------------------------------------------------------------

FOREIGN = {"sessionid": "of another program", "csrftoken": "c" * 32, "messages": "m:1:x"}


def sign_in(browser: requests.Session, url: str) -> int:
    page = browser.get(f"{url}/sign-in").text
    token = re.findall(r'csrfmiddlewaretoken" value="(\w+)"', page)[0]
    signed_in = browser.post(f"{url}/sign-in/development", {"csrfmiddlewaretoken": token}, allow_redirects=False)
    return signed_in.status_code


@pytest.mark.long
def test_services_and_other_programs_on_a_host_leave_each_other_signed_in(tmp_path):
    for folder in (first := tmp_path / "first", second := tmp_path / "second"):
        folder.mkdir()
    # The address that people type may have another port than the server's.
    with serving(first, BASE_URL="http://127.0.0.1:8001") as one, serving(second, BASE_URL="http://127.0.0.1") as two:
        urls = [f"http://127.0.0.1:{server.port}" for server in (one, two)]
        browser = requests.Session()
        browser.cookies.update(FOREIGN)

        def keys() -> list[int]:
            return [browser.get(f"{url}/keys", headers={"accept": "application/json"}).status_code for url in urls]

        assert [sign_in(browser, urls[0]), *keys()] == [302, 200, 401]
        assert [sign_in(browser, urls[1]), *keys(), *keys()] == [302, 200, 200, 200, 200]
        of_services = {f"bqs-{port}-{name}" for port in (8001, 80) for name in ("sessionid", "csrftoken")}
        assert {*browser.cookies.keys()} == {*FOREIGN, *of_services}
        token = {"X-CSRFToken": browser.cookies["bqs-8001-csrftoken"]}
        assert browser.post(f"{urls[0]}/sign-out", headers=token, allow_redirects=False).status_code == 302
        assert keys() == [401, 200]
        assert {name: browser.cookies[name] for name in FOREIGN} == FOREIGN


# --- Host names -------------------------------------------------------------------------------------------------------

HERE = "http://127.0.0.1"
BY_BROWSER = b"Accept: text/html"


def to_host(host: str, line: str, *fields: bytes, body: bytes = b"") -> bytes:
    return request(f"{line} HTTP/1.1".encode(), *fields, host=f"Host: {host}\r\n".encode(), body=body)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost:80", "[::1]", "[::1]:80"])
@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("GET /sign-in?next=/new-batch%3Fx%3D1&y", "/sign-in?next=/new-batch%3Fx%3D1&y"),
        ("HEAD /", "/"),
        ("GET /nothing", "/nothing"),
        # A key in the address is left out.
        (f"GET /chains?apiKey={KEY}&x=1", "/chains?x=1"),
        # No path leads to another host.
        ("GET //evil", "//evil"),
        ("GET /@evil", "/@evil"),
        (r"GET /\evil", "/%5Cevil"),
        ("GET http://evil.example/chains", "/chains"),
        ("GET /%0d%0aLocation:%20http://evil/", "/%0D%0ALocation:%20http://evil/"),
    ],
)
def test_a_page_at_another_name_of_this_machine_redirects_to_the_address(web, host, line, path):
    answer = ask(web.port, to_host(host, line, b"Connection: close"))
    assert (answer.status, answer.headers.get_all("Location")) == (302, [HERE + path])
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("host", ["localhost", "[::1]:80"])
@pytest.mark.parametrize(
    ("line", "fields", "status"),
    [
        ("GET /chain-connections", (), 200),
        ("GET /chain-connections", (BY_BROWSER,), 200),
        ("GET /batch-query-status?batchQueryId=1", (b"api-key: " + KEY.encode(),), 401),
        (f"GET /batch-query-status?batchQueryId=1&apiKey={KEY}", (), 401),
        ("GET /facts", (BY_BROWSER, b"api-key: " + KEY.encode()), 401),
        ("POST /submit-batch-query", (b"Content-Type: application/json", b"Content-Length: 2"), 401),
        ("GET /chains.json", (), 200),
        ("GET /livez", (BY_BROWSER,), 200),
        ("GET /keys", (b"Accept: application/json",), 401),
        # A form is only accepted with the cookies of the address.
        ("POST /sign-out", (b"Origin: http://localhost", b"Content-Length: 2"), 403),
    ],
)
def test_programs_are_answered_at_other_names_of_this_machine(web, host, line, fields, status):
    body = b"{}" if b"Content-Length: 2" in fields else b""
    answer = ask(web.port, to_host(host, line, *fields, body=body))
    assert (answer.status, answer.headers["Location"]) == (status, None)


WRONG_HOSTS = (
    "localhost:8000 [::1]:8000 localhost. localhost: localhost:080 evil.example localhost.evil.example evil.localhost "
    "127.0.0.1.evil.example localhost@evil.example 127.0.0.2 127.1 2130706433 0.0.0.0 [::] [::ffff:127.0.0.1] ::1"
)


@pytest.mark.parametrize("host", [*WRONG_HOSTS.split(), "b\u00fccher.localhost", "a_b.localhost"])
def test_any_other_host_is_refused_with_the_right_address(web, host):
    page = ask(web.port, to_host(host, "GET /", BY_BROWSER))
    assert page.status == 400
    assert f'This service is at <a href="{HERE}">{HERE}</a>, and not at {host}.' in page.body.decode()
    for line in ("GET /chain-connections", "POST /submit-batch-query"):
        answer = ask(web.port, to_host(host, line))
        error = {"error": f"This service is at {HERE}, and not at {host}.", "code": "bad_request"}
        assert (answer.status, json.loads(answer.body)) == (400, error)


@pytest.mark.parametrize(
    ("base_url", "host", "status"),
    [
        ("http://localhost:8000", "127.0.0.1:8000", 302),
        ("http://[::1]:8000", "localhost:8000", 302),
        ("https://localhost", "127.0.0.1:443", 302),
        ("http://127.0.0.1:8000", "localhost", 400),
        ("http://127.0.0.2:8000", "localhost:8000", 400),
        ("http://0.0.0.0:8000", "localhost:8000", 400),
        ("http://localhost.example:8000", "localhost:8000", 400),
        ("https://prover.example", "localhost", 400),
    ],
)
def test_only_an_address_of_this_machine_has_other_names(settings, base_url, host, status):
    settings.BASE_URL, settings.ALLOWED_HOSTS = base_url, [urlsplit(base_url).hostname]
    answer = Client().get("/nothing", headers={"host": host}, secure=base_url.startswith("https:"))
    assert answer.status_code == status
    assert answer.headers.get("Location") == (f"{base_url}/nothing" if status == 302 else None)


def test_a_name_of_this_machine_that_the_operator_allows_has_pages_of_its_own(settings):
    settings.BASE_URL, settings.ALLOWED_HOSTS = "http://127.0.0.1:8000", ["127.0.0.1", "localhost"]
    assert Client().get("/nothing", headers={"host": "localhost:8000"}).status_code == 404


PRINT_HOSTS = """
import importlib, os, sys
for url in sys.argv[1:]:
    os.environ["BASE_URL"] = url
    try:
        print(*importlib.reload(importlib.import_module("config.settings")).ALLOWED_HOSTS)
    except SystemExit as error:
        print(error)
"""


def test_the_address_of_the_service_is_allowed_or_refused_in_a_sentence(tmp_path):
    wrong = ("http://[::1", "http://localhost:port", "http://localhost:65536", "http://localhost:0", "localhost:80")
    sentences = {url: f"BASE_URL: Must look like https://example.org, not {url!r}." for url in wrong}
    named = "http://b\xfccher.localhost"
    sentences[named] = f"BASE_URL: Write the name as browsers send it, with xn-- (RFC 5891), not {named!r}."
    hosts = {"http://[::1]:8000": "[::1]", "http://[::1]": "[::1]", "https://prover.example:443/": "prover.example"}
    command = [sys.executable, "-c", PRINT_HOSTS, *hosts, *sentences]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env={"STATE_DIR": str(tmp_path), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [*hosts.values(), *sentences.values()]


# --- Costly fields ----------------------------------------------------------------------------------------------------

COSTLY = {
    "backslashes in a cookie": b'Cookie: a="%s"' % (b"\\" * 30_000),
    "a quoted parameter of the body's type": b'Content-Type: a/b; x="%s' % (b";" * 30_000),
    "a quoted parameter of a wanted type": b'Accept: a/b; x="%s' % (b";" * 30_000),
    "many wanted types": b"Accept: %s" % (b"a/b;q=1," * 3_750),
}


@pytest.mark.long("backslashes in a cookie")
@pytest.mark.parametrize("field", COSTLY.values(), ids=COSTLY)
def test_a_field_of_the_header_costs_no_more_than_the_page(web, field):
    def seconds(*fields: bytes) -> float:
        before = web.processor_seconds()
        for _ in range(20):
            assert ask(web.port, request(b"GET /explorer/query/none HTTP/1.1", *fields)).status == 404
        return float(web.processor_seconds() - before)

    seconds()
    plain = seconds()
    # The time comes in hundredths of a second. A busy machine may take longer once.
    assert any(seconds(field) < 3 * plain + 0.02 for _ in range(3))


@pytest.mark.long
def test_no_name_of_a_charset_stays_in_memory(web):
    def kept(first: int) -> int:
        before = web.memory()
        with requests.Session() as session:
            for number in range(first, first + 1000):
                kind = f"text/plain; charset={number:0>900}"
                assert session.get(f"{web.url}/livez", headers={"Content-Type": kind}, timeout=ANSWER_SECONDS).ok
        return int(web.memory() - before)

    kept(0)
    assert any(kept(first) < 500_000 for first in (1000, 2000, 3000))


CHARSETS = (
    *("idna", "rot13", "punycode", "undefined", "zip", "base64", "hex", "uu", "quopri", "bz2", "mbcs", "nonsense"),
    *("utf-16", "utf-32", "utf-7", "unicode_escape", "raw_unicode_escape", "cp037", "latin-1", "x" * 900, "\xe9", ""),
)
PATHS = ("/", "/livez", "/chain-connections", "/static/x", "/nothing")


def statuses(port: int, *fields: str, paths: Sequence[str] = PATHS) -> dict[str, int]:
    raw = [field.encode("latin-1") for field in fields]
    return {path: ask(port, request(f"GET {path}?x=%ff HTTP/1.1".encode(), *raw)).status for path in paths}


@pytest.mark.parametrize("name", ["charset=", "Charset =", "charset*=", "charset*0*=", 'a="b;c";charset=', "Accept"])
def test_no_charset_of_a_header_field_changes_an_answer(web, name):
    plain = statuses(web.port)
    for charset in CHARSETS:
        # Pages of errors depend on the types that the client accepts.
        fields = (
            f"Accept: */*, text/html; x*={charset}''%ff" if name == "Accept" else f"Content-Type: x; {name}{charset}"
        )
        assert statuses(web.port, fields) == plain, charset


def posted(port: int, path: str, kind: str) -> int:
    body = json.dumps({"address": ACCOUNTS[0][0], "chainId": "31337"}).encode()
    fields = f"Content-Type: {kind}".encode("latin-1"), b"Content-Length: %d" % len(body)
    return ask(port, request(f"POST {path} HTTP/1.1".encode(), *fields, body=body)).status


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", "text/plain"])
def test_a_body_is_utf_8_whatever_its_type_says(web, kind):
    for path in ("/sign-in/message", "/submit-batch-query", "/new-batch", "/nothing"):
        plain = posted(web.port, path, kind)
        assert plain < 500
        for charset in CHARSETS:
            assert posted(web.port, path, f"{kind}; charset={charset}") == plain, charset


def test_a_body_in_another_charset_is_not_json(web):
    text = json.dumps({"address": ACCOUNTS[0][0], "chainId": "31337"})
    with requests.Session() as session:
        session.get(f"{web.url}/sign-in", timeout=ANSWER_SECONDS)
        fields = {"X-CSRFToken": session.cookies["bqs-80-csrftoken"], "Content-Type": "application/json"}

        def status(charset: str) -> int:
            body = text.encode(charset)
            answer = session.post(f"{web.url}/sign-in/message", body, headers=fields, timeout=ANSWER_SECONDS)
            return answer.status_code

        assert [status(charset) for charset in ("utf-8", "utf-16", "utf-32", "utf-16-le")] == [200, 400, 400, 400]


def test_no_charset_of_a_part_of_a_form_is_an_error_of_the_service(web):
    with requests.Session() as session:
        session.get(f"{web.url}/sign-in", timeout=ANSWER_SECONDS)
        token = session.cookies["bqs-80-csrftoken"]

        def status(charset: str, part: str) -> int:
            fields = {"Content-Type": f"multipart/form-data; charset={charset}; boundary=B", "X-CSRFToken": token}
            body = f"--B\r\nContent-Disposition: form-data; {part}\r\n\r\n\xff%ff\r\n--B--\r\n".encode("latin-1")
            encoded = {name: value.encode("latin-1") for name, value in fields.items()}
            return session.post(f"{web.url}/new-batch", body, headers=encoded, allow_redirects=False).status_code

        for charset in CHARSETS:
            for part in (
                f'name="a"\r\nContent-Type: text/plain; charset={charset}',
                f'name="file"; filename="a"\r\nContent-Type: text/csv; charset={charset}',
                f"name*={charset}''%ff",
                f"name=file; filename*={charset}''%ff",
            ):
                # The form is read before the visitor's session.
                assert status(charset, part) == 401, part
        # Django's parser can't sort these.
        assert status("utf-8", "name*=utf-8''a; name*0=b") == 400


@pytest.mark.parametrize("value", ["x*; x*0=1", "x*=a; x*0=b", "x*0*=nonsense''y; x*", "x*=nonsense''y"])
def test_a_malformed_parameter_breaks_nothing(web, value):
    assert {ask(web.port, request(b"GET /nothing HTTP/1.1")).status} == {404}
    for field in ("Accept: a/b; ", "Accept: */*, text/html;", "Content-Type: text/plain; "):
        assert statuses(web.port, field + value, paths=["/nothing", "/livez"]) == {"/nothing": 404, "/livez": 200}


# --- Conditions -------------------------------------------------------------------------------------------------------


def test_a_client_that_wants_no_version_gets_304_in_place_of_200(web):
    with requests.Session() as session:

        def ask_for(method: str, path: str, **fields: str) -> requests.Response:
            return session.request(method, web.url + path, headers=fields, timeout=ANSWER_SECONDS)

        (static,) = {*re.findall(r"/static/site\.\w+\.css", ask_for("GET", "/").text)}
        found = ("/", "/chains.json", "/explorer.csv?x=1", "/chain-connections", "/livez", "/api/openapi.json", static)
        for path in (*found, "/nothing", "/static/nothing", "/batch-query-status?batchQueryId=1"):
            for method in ("GET", "HEAD"):
                plain = ask_for(method, path)
                assert (plain.status_code == 200) == (path in found), path
                none = ask_for(method, path, **{"If-None-Match": "* "})
                assert none.status_code == (304 if path in found else plain.status_code), path
                assert (none.content == b"") == (path in found or method == "HEAD")
                for name in ("ETag", "Vary", "Cache-Control", "Access-Control-Allow-Origin"):
                    assert none.headers.get(name) == plain.headers.get(name), name
                for other in ('"*"', "*, *"):
                    assert ask_for(method, path, **{"If-None-Match": other}).status_code == plain.status_code
        ask_for("GET", "/sign-in")
        fields = {"X-CSRFToken": session.cookies["bqs-80-csrftoken"], "If-None-Match": "*"}
        form = {"address": ACCOUNTS[0][0], "chainId": "31337"}
        answer = session.post(f"{web.url}/sign-in/message", form, headers=fields, timeout=ANSWER_SECONDS)
        assert answer.status_code == 200


# --- Reloads ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "file", "content", "fault"),
    [
        ((), "chains.toml", "not toml [", "it is not TOML: Expected '='"),
        (("--preload",), "chains.toml", "nonsense = 1", "nonsense: is not known here"),
        ((), "secret", "", "SECRET_KEY_FILE: The file that it names is unreadable or empty."),
    ],
)
def test_a_reload_with_a_wrong_file_ends_the_server_with_a_sentence(tmp_path, options, file, content, fault):
    secret = tmp_path / "state" / "secret"
    secret.parent.mkdir()
    secret.write_text("x" * 64)
    with serving(tmp_path, options=options, SECRET_KEY_FILE=str(secret)) as server:
        (server.installation.folder / file).write_text(content)
        process = server.installation.process("web")
        process.send(signal.SIGHUP)
        assert process.wait(ANSWER_SECONDS) == 1
        log = server.log(until="Reason: ")
        assert fault in log.partition("Reason: ")[2].partition("\n")[0]
        assert "Traceback" not in log
        assert "failed to boot" not in log


# --- Logs -------------------------------------------------------------------------------------------------------------


def test_the_log_has_paths_and_no_query_string_whatever_comes_of_a_request(web):
    secret = KEY.encode()
    for raw in (
        request(b"GET /long/%s HTTP/1.1" % (b"%01" * 1200)),
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
    assert ' "GET /long/' + "\\x01" * 194 + '..." 404 ' in log
    assert max(map(len, log.splitlines())) < 1000


@pytest.mark.long
def test_nodes_that_hang_hold_up_nobody_for_long(tmp_path):
    """Only time-outs and users' limits keep requests to hanging nodes from occupying all threads."""
    with socket.create_server(("127.0.0.1", 0)) as hangs, ThreadPoolExecutor(40) as clients:
        node = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        with serving(tmp_path, node=node, MAX_BATCHES_PER_MINUTE="20") as server:
            first_user, second_user, other = askers(server)[:3]

            def estimate(number: int) -> int:
                key, url = (first_user, second_user)[number % 2].key, f"{server.url}/estimate-batch-query"
                return requests.post(url, json=BODY, headers={"api-key": key}, timeout=60).status_code

            estimates = clients.map(estimate, range(40))
            began = time.monotonic()
            assert submit(server, other.key).status_code == 200
            assert other.ask(0).status == 200
            assert time.monotonic() - began < 18
            assert set(estimates) == {503}


# --- Long polls: a limited number of waiting clients hold a thread each -----------------------------------------------


THREADS = 8
# Seconds. The service checks every half second, and a busy machine needs more time.
SOON = 15


@pytest.fixture(scope="module")
def users(tmp_path_factory) -> Iterator[list[Asker]]:
    limits = {"MAX_BATCHES_PER_MINUTE": "1000", "MAX_OPEN_BATCHES": "1000"}
    with serving(tmp_path_factory.mktemp("long_poll"), threads=THREADS, **limits) as server:
        yield askers(server)


@pytest.fixture
def asker(users) -> Iterator[Asker]:
    yield users[0]
    users[0].become("RECEIVED")


def is_answered(connection: socket.socket, seconds: float) -> bool:
    return bool(select.select([connection], [], [], seconds)[0])


def status(answer: Answer) -> str:
    assert answer.status == 200
    return str(json.loads(answer.body)["queryStatus"])


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.story
def test_a_long_poll_is_answered_as_soon_as_the_status_changes(asker):
    with asker.waiting() as connection:
        assert not is_answered(connection, 0.7)
        # Clients of the API see ACCEPTED as IN_PROGRESS, so nothing has changed for them.
        asker.become("ACCEPTED")
        assert not is_answered(connection, 1.2)
        asker.become("DONE")
        assert is_answered(connection, SOON)
        assert status(read_answer(connection)) == "DONE"
        # The connection can be used again.
        connection.sendall(asker.request(0))
        assert status(read_answer(connection)) == "DONE"


@pytest.mark.long
def test_after_its_time_it_is_answered_as_before(asker):
    began = time.monotonic()
    answer = asker.ask(2)
    assert 1.4 < time.monotonic() - began < SOON
    assert (status(answer), answer.headers["Retry-After"]) == ("IN_PROGRESS", "2")
    began = time.monotonic()
    assert asker.ask(2, f"If-None-Match: {answer.headers['ETag']}").status == 304
    assert 1.4 < time.monotonic() - began < SOON


@pytest.mark.long
def test_news_is_told_at_once(asker):
    assert status(asker.ask(25, 'If-None-Match: W/"another"')) == "IN_PROGRESS"
    asker.become("DONE")
    answer = asker.ask(25)
    assert status(answer) == "DONE"
    # A client that knows DONE gets the change by a reorg.
    with asker.waiting(f"If-None-Match: {answer.headers['ETag']}") as connection:
        assert not is_answered(connection, 1.2)
        asker.become("IN_PROGRESS")
        assert status(read_answer(connection)) == "IN_PROGRESS"


@pytest.mark.long
def test_a_key_that_is_revoked_meanwhile_is_told_nothing(asker):
    with asker.waiting() as connection:
        assert not is_answered(connection, 0.7)
        with closing(sqlite3.connect(database(asker.server), isolation_level=None, timeout=20)) as other:
            ends = asker.key[-4:]
            other.execute("UPDATE accounts_apikey SET revoked_at = '2026-01-01' WHERE last_four = ?", (ends,))
            asker.become("DONE")
            assert read_answer(connection).status == 401
            other.execute("UPDATE accounts_apikey SET revoked_at = NULL WHERE last_four = ?", (ends,))


@pytest.mark.long
def test_beyond_the_bound_the_answer_comes_at_once_and_says_when_to_ask_again(asker):
    with all_places_taken(asker):
        began = time.monotonic()
        answer = asker.ask(25)
        assert time.monotonic() - began < 15
        assert (status(answer), answer.headers["Retry-After"]) == ("IN_PROGRESS", "2")


@contextmanager
def all_places_taken(asker: Asker) -> Iterator[None]:
    """Let two clients wait, each holding a thread."""
    with ExitStack() as opened:
        deadline = time.monotonic() + ANSWER_SECONDS
        held: list[socket.socket] = []
        while len(held) < 2:
            connection = opened.enter_context(asker.waiting())
            held += [] if is_answered(connection, 1) else [connection]
            assert time.monotonic() < deadline
        yield
        asker.become("DONE")
        # Open connections would delay the server's end.
        for connection in held:
            read_answer(connection)
