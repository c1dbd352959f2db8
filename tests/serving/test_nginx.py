"""docs/operating/nginx.conf: nginx's own refusals look like the service's."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from http.client import HTTPException, HTTPResponse

import pytest
import requests

from devnet.ports import free_port
from tests.serving.nginx import NGINX, OPENSSL, TRUSTING, running_nginx

pytestmark = pytest.mark.skipif(not (NGINX and OPENSSL), reason="nginx or openssl is not installed")


@pytest.fixture(scope="module")
def nginx(tmp_path_factory) -> Iterator[int]:
    """Yield nginx's port. No service is behind it."""
    with running_nginx(tmp_path_factory.mktemp("nginx"), behind=1) as port:
        yield port


HOST = b"Host: batch-queries.example.org\r\n"


def connect(port: int, source: str = "127.0.0.1") -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), 20, source_address=(source, 0))
    return TRUSTING.wrap_socket(plain, server_hostname="batch-queries.example.org")


def ask(port: int, request_: bytes, source: str = "127.0.0.1") -> tuple[HTTPResponse, bytes]:
    """Return the answer with its body."""
    with connect(port, source) as connection:
        connection.sendall(request_)
        answer = HTTPResponse(connection)
        answer.begin()
        return answer, answer.read()


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (b"GET /chain-connections?%s HTTP/1.1\r\n%s\r\n" % (b"x" * 9000, HOST), 414, "uri_too_long"),
        (b"GET /chain-connections HTTP/1.1\r\n%sX: %s\r\n\r\n" % (HOST, b"x" * 9000), 431, "header_too_large"),
        (b"GET /chain-connections HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (b"no request\r\n\r\n", 400, "bad_request"),
        (b"POST /submit-batch-query HTTP/1.1\r\n%sContent-Length: 9999999\r\n\r\n" % HOST, 413, "too_large"),
        (b"GET /chain-connections HTTP/1.1\r\n%s\r\n" % HOST, 502, "unavailable"),
    ],
    ids=["request line", "header", "no host", "no request", "body", "no service"],
)
def test_what_nginx_refuses_is_json(nginx, request_, status, code):
    answer, body = ask(nginx, request_)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    error = json.loads(body)
    assert error.keys() == {"error", "code"}
    assert error["code"] == code


@pytest.mark.parametrize("megabytes", [10, 30])
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_client_that_reads_only_after_it_has_sent_all_is_told_that_its_body_is_too_large(nginx, megabytes):
    url, host = f"https://127.0.0.1:{nginx}/submit-batch-query", {"Host": "batch-queries.example.org"}
    answer = requests.post(url, bytes(megabytes * 1_000_000), headers=host, verify=False, timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("path", [b"/metrics", b"//metrics", b"/x/../metrics", b"/%6detrics", b"/metrics?a"])
def test_nobody_reads_the_metrics_through_nginx(nginx, path):
    answer, _ = ask(nginx, b"GET %s HTTP/1.1\r\n%s\r\n" % (path, HOST))
    assert answer.status == 404


@pytest.mark.parametrize(
    ("cookie", "encoding"), [(b"a=b", "gzip"), (b"sessionid=x", None), (b"a=b; __Host-sessionid=x", None)]
)
def test_only_pages_of_who_is_not_signed_in_are_compressed(web, tmp_path, cookie, encoding):
    request = b"GET /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\nCookie: %s\r\n\r\n" % cookie
    with running_nginx(tmp_path, behind=web.port) as port:
        answer, _ = ask(port, request)
    assert (answer.status, answer.headers["Content-Encoding"]) == (200, encoding)


@pytest.mark.parametrize(("version", "is_taken"), [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_no_client_comes_by_an_old_tls(nginx, version, is_taken):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    plain = socket.create_connection(("127.0.0.1", nginx), 20)
    with plain, nullcontext() if is_taken else pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        context.wrap_socket(plain, server_hostname="batch-queries.example.org").close()


def test_http_leads_to_the_service_s_own_name_whatever_the_client_says(tmp_path):
    port = free_port()
    with running_nginx(tmp_path, behind=1, changed=[("listen 80", f"listen 127.0.0.1:{port}")]):
        answer = requests.get(
            f"http://127.0.0.1:{port}/a?b", headers={"Host": "evil.example"}, allow_redirects=False, timeout=20
        )
    assert (answer.status_code, answer.headers["Location"]) == (301, "https://batch-queries.example.org/a?b")


@pytest.mark.parametrize(
    ("path", "kilobytes"),
    [("sign-out", 128), ("new-batch", 1024), ("new-batch/estimate", 1024), ("submit-batch-query", 4096)],
)
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_path_takes_bodies_as_large_as_it_needs(guarded, path, kilobytes):
    def post(length: int, kind: str = "") -> int:
        headers = {"Host": "batch-queries.example.org", "Content-Type": kind}
        url = f"https://127.0.0.1:{guarded}/{path}"
        return requests.post(url, bytes(length), headers=headers, verify=False, timeout=60).status_code

    assert [post(kilobytes * 1024), post(kilobytes * 1024 + 1)] == [200, 413]
    # A megabyte of such fields would occupy a thread for a second.
    assert post(9, "application/x-www-form-urlencoded") == (415 if "new-batch" in path else 200)


# --- Slow clients -----------------------------------------------------------------------------------------------------

BODY = b"POST /submit-batch-query HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n{"
PROBE = b"GET /chain-connections HTTP/1.1\r\n" + HOST + b"\r\n"
# Connections per address that `limit_conn` allows.
OF_ADDRESS = 20


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, app) -> Iterator[int]:
    """Yield the port of an nginx before an application with four threads."""
    with running_nginx(tmp_path_factory.mktemp("guarded"), behind=app.port) as port:
        yield port


@contextmanager
def trickling(port: int, sources: list[str]) -> Iterator[None]:
    """Run a client for each source that sends a body byte by byte, and starts again after a refusal."""
    over = threading.Event()

    def send_slowly(source: str) -> None:
        while not over.wait(0.3):
            with suppress(OSError), connect(port, source) as connection:
                connection.sendall(BODY)
                connection.settimeout(0.5)
                while not over.is_set() and is_silent(connection):
                    connection.sendall(b" ")

    clients = [threading.Thread(target=send_slowly, args=(source,)) for source in sources]
    for client in clients:
        client.start()
    time.sleep(3)
    try:
        yield
    finally:
        over.set()
        for client in clients:
            client.join()


def is_silent(connection: ssl.SSLSocket) -> bool:
    """Return whether the connection stays open without an answer until its time-out."""
    try:
        connection.recv(100)
    except TimeoutError:
        return True
    return False


def is_answered(port: int) -> bool:
    try:
        return ask(port, PROBE, "127.0.0.9")[0].status == 200
    except (OSError, HTTPException):
        return False


@pytest.mark.parametrize(("addresses", "clients"), [(1, 3 * OF_ADDRESS), (2, OF_ADDRESS)])
def test_who_does_not_fill_the_connections_of_nginx_shuts_nobody_out(guarded, addresses, clients):
    with trickling(guarded, [f"127.0.{addresses}.{number}" for number in range(addresses)] * clients):
        assert all(is_answered(guarded) for _ in range(10))
