"""nginx before the service, on a host and in a container: its refusals, its limits, and whom it believes."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from http.client import HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import BaseRequestHandler, BaseServer, UDPServer

import pytest
import requests

from devnet.devchain import ACCOUNTS
from devnet.ports import free_port
from tests.factories import until
from tests.serving.nginx import COMPOSE, NGINX, OPENSSL, Nginx, running_container_nginx, running_nginx
from tests.serving.process import serving

pytestmark = pytest.mark.skipif(not (NGINX and OPENSSL), reason="nginx or openssl is not installed")


@pytest.fixture(scope="module", params=["host", "container"])
def nginx(tmp_path_factory, request) -> Iterator[Nginx]:
    """Yield an nginx without a service behind it."""
    folder = tmp_path_factory.mktemp("nginx")
    is_host = request.param == "host"
    with running_nginx(folder, behind=1) if is_host else running_container_nginx(folder, "127.0.0.1:1") as running:
        yield running


HOST = b"Host: batch-queries.example.org\r\n"


def ask(nginx: Nginx, request_: bytes, source: str = "127.0.0.1") -> tuple[HTTPResponse, bytes]:
    """Return the answer with its body."""
    with nginx.connect(source) as connection:
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
def test_requests_that_nginx_refuses_are_answered_in_json(nginx, request_, status, code):
    answer, body = ask(nginx, request_)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    error = json.loads(body)
    assert error.keys() == {"error", "code"}
    assert error["code"] == code


@pytest.mark.parametrize("megabytes", [10, 30])
@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_client_that_reads_only_after_it_has_sent_all_is_told_that_its_body_is_too_large(nginx, megabytes):
    url, host = f"{nginx.url}/submit-batch-query", {"Host": "batch-queries.example.org"}
    answer = requests.post(url, bytes(megabytes * 1_000_000), headers=host, verify=False, timeout=60)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_probes_have_no_lines_in_its_log(tmp_path):
    with running_nginx(tmp_path, behind=1) as nginx:
        for path in (b"/healthz", b"/readyz", b"/livez", b"/metrics", b"/chain-connections"):
            ask(nginx, b"GET %s HTTP/1.1\r\n%s\r\n" % (path, HOST))
        log = tmp_path / "batch-queries.log"
        until(lambda: "/chain-connections" in log.read_text(), "its line", says=log.read_text)
        assert log.read_text().count("\n") == 1


@pytest.mark.parametrize("path", [b"/metrics", b"//metrics", b"/x/../metrics", b"/%6detrics", b"/metrics?a"])
def test_nobody_reads_the_metrics_through_nginx(nginx, path):
    answer, _ = ask(nginx, b"GET %s HTTP/1.1\r\n%s\r\n" % (path, HOST))
    assert answer.status == 404


@pytest.mark.parametrize(
    ("cookie", "encoding"), [(b"a=b", "gzip"), (b"sessionid=x", None), (b"a=b; __Host-sessionid=x", None)]
)
def test_only_pages_of_who_is_not_signed_in_are_compressed(web, tmp_path, cookie, encoding):
    request = b"GET /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\nCookie: %s\r\n\r\n" % cookie
    with running_nginx(tmp_path, behind=web.port) as nginx:
        answer, _ = ask(nginx, request)
    assert (answer.status, answer.headers["Content-Encoding"]) == (200, encoding)


@pytest.mark.parametrize(("version", "is_taken"), [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_no_client_comes_by_an_old_tls(guarded, version, is_taken):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    plain = socket.create_connection(("127.0.0.1", guarded.port), 20)
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
        url = f"{guarded.url}/{path}"
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
def guarded(tmp_path_factory, app) -> Iterator[Nginx]:
    """Yield an nginx before an application with four threads."""
    with running_nginx(tmp_path_factory.mktemp("guarded"), behind=app.port) as nginx:
        yield nginx


@contextmanager
def trickling(nginx: Nginx, sources: list[str]) -> Iterator[None]:
    """Run a client for each source that sends a body byte by byte, and starts again after a refusal."""
    over = threading.Event()

    def send_slowly(source: str) -> None:
        while not over.wait(0.3):
            with suppress(OSError), nginx.connect(source) as connection:
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


def is_silent(connection: socket.socket) -> bool:
    """Return whether the connection stays open without an answer until its time-out."""
    try:
        connection.recv(100)
    except TimeoutError:
        return True
    return False


def is_answered(nginx: Nginx) -> bool:
    try:
        return ask(nginx, PROBE, "127.0.0.9")[0].status == 200
    except (OSError, HTTPException):
        return False


@pytest.mark.long
@pytest.mark.parametrize(("addresses", "clients"), [(1, 3 * OF_ADDRESS), (2, OF_ADDRESS)])
def test_open_connections_below_the_bound_of_nginx_shut_nobody_out(guarded, addresses, clients):
    with trickling(guarded, [f"127.0.{addresses}.{number}" for number in range(addresses)] * clients):
        assert all(is_answered(guarded) for _ in range(10))


# --- In a container ---------------------------------------------------------------------------------------------------

OUTER_PROXY, STRANGER = "127.0.0.77", "127.0.0.1"
CLIENT, OTHER_CLIENT = "198.51.100.7", "198.51.100.8"


@pytest.fixture(scope="module")
def contained(tmp_path_factory) -> Iterator[Nginx]:
    """Yield an nginx that trusts `OUTER_PROXY`, before the service with the settings of compose.yml."""
    environment = COMPOSE["x-service"]["environment"]
    settings = {name: environment[name] for name in ("BEHIND_TLS_PROXY", "CLIENT_ADDRESS_HEADER")}
    folder, url = tmp_path_factory.mktemp("contained"), "https://queries.example.org"
    with (
        serving(folder, BASE_URL=url, MAX_SIGN_INS_PER_MINUTE="2", **settings) as server,
        running_container_nginx(folder, f"127.0.0.1:{server.port}", OUTER_PROXY) as nginx,
    ):
        yield nginx


def request(line: bytes, *fields: str, body: bytes = b"") -> bytes:
    header = "\r\n".join(["Host: queries.example.org", f"Content-Length: {len(body)}", *fields])
    return line + b" HTTP/1.1\r\n" + header.encode() + b"\r\n\r\n" + body


def forwarded(address: str) -> tuple[str, ...]:
    """Return what the outer proxy sends for a client that forges each header: it appends to one, and sets another."""
    forged = ("X-Real-IP: 203.0.113.1", "Forwarded: for=203.0.113.1;proto=http", "X-Forwarded-Host: evil.example")
    return (f"X-Forwarded-For: 203.0.113.1, {OUTER_PROXY}, {address}", "X-Forwarded-Proto: https", *forged)


def start_sign_in(nginx: Nginx, source: str, *fields: str) -> int:
    """Return the status of a sign-in's start, which the service counts by the client's address."""
    token = "a" * 32
    line, body = b"POST /sign-in/message", json.dumps({"address": ACCOUNTS[0][0], "chainId": 31337}).encode()
    cookie = (f"Cookie: __Host-csrftoken={token}", f"X-CSRFToken: {token}", "Origin: https://queries.example.org")
    return ask(nginx, request(line, "Content-Type: application/json", *cookie, *fields, body=body), source)[0].status


def test_the_outer_proxy_alone_tells_address_and_scheme(contained):
    def page(source: str, *fields: str) -> HTTPResponse:
        return ask(contained, request(b"GET /sign-in", *fields), source)[0]

    by_tls = page(OUTER_PROXY, *forwarded(CLIENT))
    assert (by_tls.status, "__Host-csrftoken" in by_tls.headers["Set-Cookie"]) == (200, True)
    plain = ("X-Forwarded-Proto: http", f"X-Forwarded-For: {CLIENT}")
    for answer in (page(OUTER_PROXY, *plain), page(OUTER_PROXY), page(STRANGER, *forwarded(CLIENT))):
        assert (answer.status, answer.headers["Location"]) == (301, "https://queries.example.org/sign-in")
    # A token of the form and the origin of BASE_URL are enough, so the service takes the request for one by TLS.
    started = [start_sign_in(contained, OUTER_PROXY, *forwarded(client)) for client in [CLIENT] * 3 + [OTHER_CLIENT]]
    assert started == [200, 200, 429, 200]


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        (STRANGER, "X-Forwarded-For: 198.18.0.%d\r\nX-Real-IP: 198.18.0.%d"),
        (OUTER_PROXY, f"X-Forwarded-For: 198.18.0.%d, 198.18.1.%d, {CLIENT}"),
        (OUTER_PROXY, f"X-Forwarded-For: 198.18.0.%d, 198.18.1.%d, {OUTER_PROXY}"),
    ],
    ids=["stranger", "client of the proxy", "machine of the proxy"],
)
def test_forged_addresses_give_no_more_requests(contained, source, fields):
    statuses = [form_status(contained, source, fields % (number, number)) for number in range(40)]
    assert statuses[0] != 429
    assert statuses[-1] == 429
    assert form_status(contained, OUTER_PROXY, *forwarded(OTHER_CLIENT)) != 429


def test_nobody_is_trusted_by_default(tmp_path, app):
    with running_container_nginx(tmp_path, f"127.0.0.1:{app.port}") as nginx:
        statuses = [form_status(nginx, STRANGER, f"X-Forwarded-For: 198.18.0.{number}") for number in range(40)]
    assert (statuses[0], statuses[-1]) == (200, 429)


def form_status(nginx: Nginx, source: str, *fields: str) -> int:
    """Return the status of a path that an address may request once a second, and 20 times more at once."""
    return ask(nginx, request(b"GET /new-batch", *fields), source)[0].status


@pytest.mark.long
def test_a_web_server_that_is_created_anew_is_found_at_its_new_address(tmp_path):
    addresses, port = ["127.0.0.2", "127.0.0.3"], free_port()
    with name_server(addresses) as resolver, running_container_nginx(tmp_path, f"web:{port}", "", resolver) as nginx:
        with static_server(addresses[0], port):
            until(lambda: ask(nginx, PROBE)[0].status == 200, "an answer")
        until(lambda: ask(nginx, PROBE)[0].status == 502, "an answer of nobody")
        del addresses[0]
        with static_server(addresses[0], port):
            until(lambda: ask(nginx, PROBE)[0].status == 200, "an answer from the new address")


@contextmanager
def name_server(addresses: list[str]) -> Iterator[str]:
    """Run a name server that answers by the first of these addresses, and yield its own."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            question, connection = self.request
            header = question[:2] + bytes.fromhex("8180 0001 0001 0000 0000")
            record = bytes.fromhex("c00c 0001 0001 00000e10 0004") + socket.inet_aton(addresses[0])
            connection.sendto(header + question[12:] + record, self.client_address)

    with UDPServer(("127.0.0.1", 0), Handler) as server, in_thread(server):
        yield f"127.0.0.1:{server.server_address[1]}"


@contextmanager
def in_thread(server: BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def static_server(host: str, port: int) -> Iterator[None]:
    """Run a web server that answers every request by 200."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer((host, port), Handler) as server, in_thread(server):
        yield
