"""docs/operating/nginx.conf as nginx takes it: what it refuses itself looks like what the service refuses."""

import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import pytest

from devnet.devchain import PROJECT

NGINX, OPENSSL = shutil.which("nginx"), shutil.which("openssl")
pytestmark = pytest.mark.skipif(not (NGINX and OPENSSL), reason="nginx or openssl is not installed")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def nginx(tmp_path_factory) -> Iterator[int]:
    """Its port. Behind it there is no service."""
    folder: Path = tmp_path_factory.mktemp("nginx")
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
        "127.0.0.1:8000": "127.0.0.1:1",
        "/etc/ssl/private/batch-queries.example.org.key": str(folder / "key"),
        "/etc/ssl/batch-queries.example.org.pem": str(folder / "pem"),
        "/var/log/nginx": str(folder),
    }.items():
        assert there in text
        text = text.replace(there, here)
    (folder / "service.conf").write_text(text)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; events {{ worker_connections 64; }}\nhttp {{\n"
        + "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        + f"include {folder}/service.conf;\n}}\n"
    )
    command = [NGINX, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
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


def ask(port: int, request_: bytes) -> tuple[HTTPResponse, bytes]:
    """The answer, with its body."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        trusting.wrap_socket(plain, server_hostname="batch-queries.example.org") as connection,
    ):
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


@pytest.mark.parametrize("path", [b"/metrics", b"//metrics", b"/x/../metrics", b"/%6detrics", b"/metrics?a"])
def test_nobody_reads_the_metrics_through_nginx(nginx, path):
    answer, _ = ask(nginx, b"GET %s HTTP/1.1\r\n%s\r\n" % (path, HOST))
    assert answer.status == 404
