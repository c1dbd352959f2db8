"""Errors are reported to Sentry by processes that run as operators run them."""

import gzip
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from devnet.devchain import PROJECT
from tests.serving.process import WebServer, ask, serving

pytestmark = [pytest.mark.outside, pytest.mark.long]

KEY = "bqs_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
NODE_KEY = "f00dcafe-the-key-of-a-node"
SECONDS = 30


@dataclass
class Sentry:
    """A server that receives reports."""

    port: int
    sent: list[bytes] = field(default_factory=list)
    """The unpacked bodies of requests."""

    @property
    def dsn(self) -> str:
        return f"http://public@127.0.0.1:{self.port}/1"

    def events(self, count: int) -> list[dict[str, Any]]:
        """Return the error events once there are at least `count`."""
        deadline = time.monotonic() + SECONDS
        while True:
            items = [line for body in list(self.sent) for line in body.split(b"\n") if line.startswith(b"{")]
            reports = [json.loads(item) for item in items]
            events = [report for report in reports if report.get("level") == "error"]
            if len(events) >= count:
                return events
            assert time.monotonic() < deadline, items
            time.sleep(0.05)


@contextmanager
def sentry() -> Iterator[Sentry]:
    kept: list[bytes] = []

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kept.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            kept[-1] += str(self.headers).encode()
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Keep) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Sentry(server.server_port, kept)
        server.shutdown()


def lose_batches(server: WebServer) -> None:
    """Make each request about a batch fail from now on."""
    with closing(sqlite3.connect(server.installation.folder / "db.sqlite3")) as database:
        database.execute("ALTER TABLE queries_batch RENAME TO lost")
        database.commit()


def ask_with_key(server: WebServer) -> int:
    path = f"/batch-query-status?batchQueryId=01M7W1MRHW703BTRFFPT53VVP5&apiKey={KEY}&other={KEY}"
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"api-key: {KEY}", f"Referer: http://127.0.0.1{path}"]
    lines += [f"Cookie: sessionid={KEY[4:]}", f"Authorization: Bearer {KEY}", "X-Secret: s3cr3t-header"]
    return ask(server.port, "\r\n".join([*lines, "", ""]).encode()).status


REFUSED = [
    b"GET / HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n",
    b"GET /explorer HTTP/1.1\r\nHost: a b\r\n\r\n",
    b"POST /batch-query-status HTTP/1.1\r\nHost: [\r\nContent-Length: 0\r\n\r\n",
    b"POST /sign-out HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Cookie: csrftoken=" + b"a" * 32 + b"\r\nContent-Length: 6000\r\n\r\n" + b"a&" * 3000,
]


def test_an_error_of_a_request_is_reported_without_its_key_and_no_refusal(tmp_path):
    with sentry() as reports, serving(tmp_path, SENTRY_DSN=reports.dsn) as server:
        secrets = [(server.installation.folder / name).read_text() for name in ("secret_key", "api_key_secret")]
        # Any client can cause refusals as often as it likes.
        for refused in REFUSED:
            assert {ask(server.port, refused).status for _ in range(2)} == {400}
        lose_batches(server)
        assert ask_with_key(server) == 500
        server.installation.stop()
        (event,) = reports.events(1)
    sent = b"".join(reports.sent).decode()
    for secret in (KEY[4:], "s3cr3t-header", "sessionid", "127.0.0.1:1", *secrets):
        assert secret not in sent
    assert event["transaction"] == "/batch-query-status"
    assert event["request"] == {"method": "GET"}
    assert "no such table" in json.dumps(event["exception"])
    frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames
    assert not any("vars" in frame for frame in frames)
    assert len(event["tags"]["request"]) == 16
    assert "user" not in event


_IN_A_WORKER = f"""
import logging
import django
django.setup()
import requests
from config import logs
from config.configured_chains import get_chains
get_chains()
url = "http://user:passw0rd-of-node@127.0.0.1:1/v2/{NODE_KEY}?token={NODE_KEY}"
logger = logging.getLogger("proving.working.worker")
with logs.about(batch="01M7W1MRHW703BTRFFPT53VVP5", chain=31337):
    logger.warning("asking %s", url, extra={{"url": url}})
    try:
        requests.get(url)
    except requests.RequestException:
        logger.exception("asking a node failed: %s; its key is {NODE_KEY}", url, extra={{"url": url}})
"""


def run(folder: Path, code: str, **variables: str) -> None:
    """Run code in a process of the service. The URL of the process's node contains a key."""
    chains = folder / "chains.toml"
    chains.write_text("""
[[chains]]
id = 31337
name = "Development chain"
rpc_urls = ["http://127.0.0.1:1/v2/${NODE_KEY}"]
""")
    env = {
        **os.environ,
        "STATE_DIR": str(folder),
        "CHAINS_FILE": str(chains),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "NODE_KEY": NODE_KEY,
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=env | variables, cwd=PROJECT, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_an_error_of_a_worker_is_reported_without_the_key_of_its_node(tmp_path):
    with sentry() as reports:
        (tmp_path / "dsn").write_text(reports.dsn)
        run(tmp_path, _IN_A_WORKER, SENTRY_DSN_FILE=str(tmp_path / "dsn"))
        (event,) = reports.events(1)
    sent = b"".join(reports.sent).decode()
    for secret in (NODE_KEY, "passw0rd", str(tmp_path / "chains.toml")):
        assert secret not in sent
    assert event["tags"] == {"batch": "01M7W1MRHW703BTRFFPT53VVP5", "chain": "31337"}


def test_nothing_is_reported_unless_it_is_set(tmp_path):
    run(tmp_path, "import django, sys; django.setup(); assert 'sentry_sdk' not in sys.modules")


@pytest.mark.release
def test_reports_that_nobody_takes_hold_up_nothing(tmp_path):
    # This server accepts connections and never answers.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"http://public@127.0.0.1:{silent.getsockname()[1]}/1"
        with serving(tmp_path, SENTRY_DSN=dsn) as server:
            lose_batches(server)
            began = time.monotonic()
            assert [ask_with_key(server) for _ in range(150)] == [500] * 150
            assert time.monotonic() - began < 150
            assert ask(server.port, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").status == 200
            began = time.monotonic()
            server.installation.stop()
            assert time.monotonic() - began < 15
