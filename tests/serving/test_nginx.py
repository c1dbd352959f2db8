"""docs/operating/nginx.conf as nginx takes it: what it refuses itself looks like what the service refuses."""

import json
import math
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path

import pytest
import requests
from django.conf import settings

from devnet.devchain import PROJECT
from devnet.ports import free_port
from tests.serving.process import serving

WORKER_CONNECTIONS = 64
NGINX, OPENSSL = shutil.which("nginx"), shutil.which("openssl")
pytestmark = pytest.mark.skipif(not (NGINX and OPENSSL), reason="nginx or openssl is not installed")


@pytest.fixture(scope="module")
def nginx(tmp_path_factory) -> Iterator[int]:
    """Its port. Behind it there is no service."""
    with running_nginx(tmp_path_factory.mktemp("nginx"), behind=1) as port:
        yield port


@contextmanager
def running_nginx(folder: Path, behind: int) -> Iterator[int]:
    """Its port, with the service at the port `behind`, and one worker of `WORKER_CONNECTIONS`."""
    port = free_port()
    subject = ("-subj", "/CN=batch-queries.example.org", "-keyout", str(folder / "key"), "-out", str(folder / "pem"))
    assert NGINX
    assert OPENSSL
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject], check=True, capture_output=True
    )
    text = (PROJECT / "docs" / "operating" / "nginx.conf").read_text()
    for there, here in {
        "    listen [::]:443 ssl;\n": "",
        "    listen [::]:80;\n": "",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "listen 80": f"listen 127.0.0.1:{free_port()}",
        "127.0.0.1:8000": f"127.0.0.1:{behind}",
        "/etc/ssl/private/batch-queries.example.org.key": str(folder / "key"),
        "/etc/ssl/batch-queries.example.org.pem": str(folder / "pem"),
        "/var/log/nginx": str(folder),
    }.items():
        assert there in text
        text = text.replace(there, here)
    (folder / "service.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; events {{ worker_connections {WORKER_CONNECTIONS}; }}\nhttp {{\ngzip on;\n"
        + "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        + f"include {folder}/service.conf;\n}}\n"
    )
    # Its worker would be nobody, who may not read a test's folder.
    user = ["-g", "user root;"] if os.getuid() == 0 else []
    command = [NGINX, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"), *user]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 20
        while not is_listening(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


HOST = b"Host: batch-queries.example.org\r\n"


# It trusts whomever it meets. One for all: each would read the system's certificates.
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


def connect(port: int, source: str = "127.0.0.1") -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), 5, source_address=(source, 0))
    return TRUSTING.wrap_socket(plain, server_hostname="batch-queries.example.org")


def ask(port: int, request_: bytes, source: str = "127.0.0.1") -> tuple[HTTPResponse, bytes]:
    """The answer, with its body."""
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
        (
            b"POST /submit-batch-query HTTP/1.1\r\n%sContent-Length: 9999999\r\n\r\n" % HOST,
            413,
            "too_large",
        ),
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


def test_nginx_compresses_no_page(nginx):
    """The service alone knows which ones are shown to one person."""
    answer, _ = ask(nginx, b"GET /metrics HTTP/1.1\r\nAccept-Encoding: gzip\r\n%s\r\n" % HOST)
    assert (answer.headers["Content-Type"], answer.headers["Content-Encoding"]) == ("text/html", None)


# --- Clients that trickle ---------------------------------------------------------------------------------------------

BODY = b"POST /submit-batch-query HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n{"
PROBE = b"GET /chain-connections HTTP/1.1\r\n" + HOST + b"\r\n"
# `limit_conn` of an address.
OF_ADDRESS = 20


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[int]:
    """nginx's port, before an application of which 30 connections are all, see test_bounds.py."""
    with (
        serving(tmp_path_factory.mktemp("app"), app="tests.serving.app:application", MAX_CONNECTIONS="30") as server,
        running_nginx(tmp_path_factory.mktemp("guarded"), behind=server.port) as port,
    ):
        yield port


@contextmanager
def trickling(port: int, sources: list[str]) -> Iterator[None]:
    """A client for each source, which sends bodies byte by byte, and begins anew where it is refused."""
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
    """Return whether the connection stays open without an answer, until its time-out."""
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
    """The service itself is filled by 30 connections of one address."""
    with trickling(guarded, [f"127.0.{addresses}.{number}" for number in range(addresses)] * clients):
        assert all(is_answered(guarded) for _ in range(10))


def test_who_fills_the_connections_of_nginx_from_many_addresses_shuts_others_out(guarded):
    with trickling(guarded, [f"127.0.5.{number}" for number in range(5)] * OF_ADDRESS):
        deadline = time.monotonic() + 30
        while any(is_answered(guarded) for _ in range(3)):
            assert time.monotonic() < deadline
    assert is_answered(guarded)


def test_the_pages_say_the_numbers_that_follow_from_the_settings():
    """The two tests above show the same with smaller numbers."""
    conf = (PROJECT / "docs/operating/nginx.conf").read_text()
    (connections,), (of_address,) = (
        re.findall(rf"{name} ([0-9]+)", conf) for name in ("worker_connections", "limit_conn connections_of_subscriber")
    )
    assert int(of_address) == OF_ADDRESS
    addresses = f"{math.ceil(int(connections) / OF_ADDRESS)} addresses"
    assert f"{addresses} of {OF_ADDRESS} such bodies fill {connections}" in conf
    deploying = (PROJECT / "docs/operating/deploying.md").read_text()
    (processes,) = re.findall("--workers ([0-9]+) --threads", deploying)
    of_service = f"{int(processes) * settings.MAX_CONNECTIONS:,}"
    assert f"{addresses} for each" in deploying
    assert f"of {int(connections):,}" in deploying
    assert f"from one address: {of_service}" in deploying


# --- Bodies -----------------------------------------------------------------------------------------------------------

LARGE = 30 * 1024 * 1024


def by_requests(url: str) -> str:
    host = {"Host": "batch-queries.example.org"}
    answer = requests.post(url, data=b"x" * LARGE, headers=host, timeout=60, verify=False)
    return f"{answer.status_code} {answer.text}"


def by_curl(url: str) -> str:
    command = ["curl", "-sk", "--http1.1", "--data-binary", "@-", "-H", "Expect:", "-w", "%{http_code}", url]
    command += ["-H", "Host: batch-queries.example.org"]
    done = subprocess.run(command, input=b"x" * LARGE, capture_output=True, timeout=60, check=False)
    return f"{done.stdout[-3:].decode()} {done.stdout[:-3].decode()}"


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize("send", [by_requests, by_curl])
def test_who_sends_30_megabytes_sees_why_they_are_not_taken(nginx, send):
    assert send(f"https://127.0.0.1:{nginx}/submit-batch-query") == (
        '413 {"error": "The body is too large.", "code": "too_large"}'
    )
