"""Hostile nodes take limited time and memory."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from chains import bounded_http
from chains.bounded_http import HttpReply, HttpRequest
from chains.nodes import chain_nodes, questions
from chains.nodes.node_errors import InvalidReply, NodeUnavailable
from chains.nodes.questions import ProofRequest
from chains.nodes.rpc import RpcClient
from chains.tries.trie import EMPTY_TRIE_ROOT
from devnet.devchain import PROJECT
from tests.chains.hostile_node import (
    DRIPS,
    FLOODS,
    LIES,
    Exchange,
    endless_logs,
    endless_logs_of_spaces,
    hostile_node,
)
from tests.chains.lying_node import Raw, each, is_chain_id, lying_node, recording, result
from tests.http_server import serving
from tests.proxies import EXCEPTED, NOT_EXCEPTED, answering
from tests.tls_failures import FAILURES, failing

# Print the growth of peak memory in MB for each node URL in the arguments.
_ASK_EACH = """
import resource, sys
from chains.chains_file import Chain
from chains.nodes.node_errors import NodeUnavailable
from chains.nodes.rpc import RpcClient

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

for url in sys.argv[1:]:
    before = peak()
    for ask in (lambda rpc: rpc.header("latest"), lambda rpc: rpc.call("eth_getBlockReceipts", "0x1")):
        try:
            ask(RpcClient(Chain(id=31337, name="Test chain", rpc_urls=(url,)), timeout_seconds=5))
            why = "it answered"
            break
        except NodeUnavailable as error:
            why = str(error)
    print(peak() - before, why, flush=True)
"""


@pytest.mark.long
def test_no_flood_of_a_node_fills_our_memory():
    with ExitStack() as running:
        urls = [running.enter_context(hostile_node(flood)) for flood in FLOODS.values()]
        command = [sys.executable, "-c", _ASK_EACH, *urls]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=True)
    growth = dict(zip(FLOODS, done.stdout.splitlines(), strict=True))
    grown = {name: int(line.split()[0]) for name, line in growth.items()}
    assert all(megabytes < 50 for megabytes in grown.values()), growth
    assert not any("it answered" in line for line in growth.values()), growth


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_no_flood_of_a_node_holds_us_up(client_of, flood):
    began = time.monotonic()
    with hostile_node(flood) as url, pytest.raises(NodeUnavailable):
        client_of(url, timeout_seconds=1).head()
    assert time.monotonic() - began < 30


@pytest.mark.long
@pytest.mark.parametrize("drip", DRIPS.values(), ids=DRIPS)
def test_a_drip_is_not_waited_for_whatever_drips(client_of, drip):
    began = time.monotonic()
    late = r"did not answer eth_getBlockByNumber within 0\.3 seconds"
    with hostile_node(drip) as url, pytest.raises(NodeUnavailable, match=late):
        client_of(url, timeout_seconds=0.3).head()
    assert time.monotonic() - began < 20


def test_a_url_that_timed_out_is_not_asked_again_until_it_has_rested():
    asked, let_go = list[Any](), threading.Event()

    def hang(body: Any) -> Any:
        asked.append(body)
        let_go.wait()
        return result(body, None)

    def ask(rest_seconds: float) -> object:
        body = b'{"id": 1}'
        request = HttpRequest(url, body, 100, silence_seconds=0.3, total_seconds=0.3, rest_seconds=rest_seconds)
        (answer,) = bounded_http.send_all([request])
        return type(answer), str(answer)

    late = (bounded_http.TimedOut, "did not answer within 0.3 seconds")
    with lying_node(hang) as url, ExitStack() as stack:
        stack.callback(let_go.set)
        for rest_seconds, count in ((0, 1), (0.2, 2)):
            assert ask(rest_seconds) == late
            assert len(asked) == count
        assert (ask(0), len(asked)) == (late, 2)
        while len(asked) == 2:
            assert ask(3600) == late
        assert (ask(0), len(asked)) == (late, 3)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_node_that_hangs_up_or_lies_is_unavailable(client_of, lie):
    with hostile_node(lie) as url, pytest.raises(NodeUnavailable):
        client_of(url, timeout_seconds=5).head()


def test_no_redirect_to_another_port_is_followed(client_of):
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)

        def redirect(exchange: Exchange) -> None:
            location = f"Location: http://127.0.0.1:{elsewhere.getsockname()[1]}/\r\n"
            exchange.answer(b"", status="307 Temporary Redirect", headers=location)

        with hostile_node(redirect) as url, pytest.raises(NodeUnavailable, match="HTTP status 307"):
            client_of(url).head()
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


@pytest.mark.parametrize(("behave", "told"), FAILURES.values(), ids=FAILURES)
def test_a_node_without_valid_tls_is_said_with_the_cause(client_of, behave, told):
    with failing(behave) as url, pytest.raises(NodeUnavailable) as caught:
        client_of(url).head()
    assert f"{url.removeprefix('https://')} {told}." in str(caught.value)


@pytest.mark.parametrize("path", ["/v2/a%2Bc%2Fd%3D", "/?key=%7ea%2f", "/a//b/./c/../%2e%2e?x=c+d;e&y=[]&z"])
def test_a_node_is_asked_at_its_url_byte_for_byte(path):
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with serving(Handler) as url:
        bounded_http.send_all([HttpRequest(url + path, b"", 1_000, 5, 5, method="GET")])
    assert paths == [path]


def test_redirects_are_followed_only_where_they_are_allowed():
    """Signing services, attesters, beacon nodes and the operator's webhook don't."""
    asked: list[Any] = []

    def redirect(body: Any) -> Raw:
        asked.append(body)
        return Raw(b"", 307, {"Location": "/"})

    with lying_node(redirect) as url:
        for redirects, requests in ((0, 1), (2, 3)):
            asked.clear()
            (reply,) = bounded_http.send_all([HttpRequest(url, b"{}", 1_000, 5, 5, redirects=redirects)])
            assert isinstance(reply, HttpReply)
            assert (reply.status, len(asked)) == (307, requests)


WANTED = ProofRequest(1, b"\1" * 32, EMPTY_TRIE_ROOT, "0x" + "11" * 20, [1, 2])


def prove(client: RpcClient, proof_request: ProofRequest) -> None:
    (answer,) = client.proofs([proof_request])
    assert isinstance(answer, NodeUnavailable)
    raise answer


@pytest.mark.parametrize(
    ("ask", "most"),
    [
        (lambda client: client.balance("0x" + "11" * 20), 16 * 1024),
        (lambda client: client.eth_call("0x" + "11" * 20, b""), 64 * 1024),
        (lambda client: client.code("0x" + "11" * 20), 1024 * 1024),
        (lambda client: client.header(1), 4 * 1024 * 1024),
        (lambda client: prove(client, WANTED), 4 * 80 * 1024),
    ],
    ids=["balance", "call", "code", "header", "proof"],
)
def test_each_method_has_a_bound_of_its_own(client_of, ask, most):
    def long(body):
        return result(body, "0x7a69" if is_chain_id(body) else "0x" + "00" * (most // 2))

    with lying_node(long) as url, pytest.raises(InvalidReply, match=f"sent more than {most:,} bytes"):
        ask(client_of(url))


@pytest.mark.parametrize(
    ("behave", "most"),
    [
        pytest.param(endless_logs, "1,048,576 bytes of shortened JSON", id="endless_logs"),
        pytest.param(endless_logs_of_spaces, "8,388,608 bytes", id="endless_logs_of_spaces"),
        (lambda exchange: exchange.answer(b'{"logs": [%b0]}' % (b"0, " * 250_000)), "250,000 values"),
    ],
)
def test_receipts_that_are_too_long_are_told_with_the_limit(client_of, monkeypatch, behave, most):
    monkeypatch.setattr(chain_nodes, "MAX_REPLY_BYTES", 1024 * 1024)
    with hostile_node(behave) as url, pytest.raises(InvalidReply, match=rf"sent more than {most}\.$"):
        client_of(url).call("eth_getBlockReceipts", "0x1")


def test_fewer_are_asked_for_where_a_reply_to_many_is_too_long(client_of, monkeypatch):
    """An honest node may have large blocks, so the client divides the batch."""
    monkeypatch.setattr(chain_nodes, "MAX_REPLY_BYTES", 10_000)
    node_requests: list[Any] = []

    @each
    def large(body: Any) -> Any:
        return result(body, "0x7a69" if is_chain_id(body) else "x" * 1000)

    with lying_node(recording(node_requests, large)) as url:
        assert client_of(url).answers([questions.plain("echo", n) for n in range(20)]) == ["x" * 1000] * 20
    assert sorted(len(body) if isinstance(body, list) else 1 for body in node_requests) == [1, 5, 5, 5, 5, 10, 10, 20]


def test_a_chain_id_is_short(client_of):
    with (
        lying_node(lambda body: result(body, "0x" + "0" * 20_000)) as url,
        pytest.raises(InvalidReply, match="more than 16,384 bytes"),
    ):
        client_of(url).head()


# --- Proxies of the environment ---------------------------------------------------------------------------------------


@pytest.fixture
def no_proxies(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def ask(url: str) -> str:
    """Return the status of the answer, or the failure."""
    (answer,) = bounded_http.send_all([HttpRequest(url, b"", 1_000, 5, 5, method="GET")])
    return answer.status_text if isinstance(answer, HttpReply) else str(answer)


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize("value", ["http://127.0.0.1:1", "socks5://x", "http://anna:1/s3cret@x"])
def test_requests_to_this_machine_use_no_proxy(monkeypatch, client_of, value):
    monkeypatch.setenv("HTTP_PROXY", value)
    with answering() as (address, seen):
        port = address.rpartition(":")[2]
        hosts = ("localhost", "127.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]", "LOCALHOST")
        assert [ask(f"http://{host}:{port}") for host in hosts] == ["answered with HTTP status 200"] * len(hosts)
    assert len(seen) == len(hosts)
    for host in ("127.8.9.10", "[::1]", "[::]"):
        assert ask(f"http://{host}:1") == "can't be reached"
    for host in ("a.localhost", "localhost.", "ip6-localhost", "127.1", "0x7f.1", "2130706433"):
        assert "proxy" not in ask(f"http://{host}:1")


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(("host", "exceptions"), EXCEPTED)
def test_no_proxy_excepts_names_addresses_and_networks(monkeypatch, host, exceptions):
    with answering() as (proxy, seen):
        monkeypatch.setenv("HTTP_PROXY", f"http://anna:s3cret@{proxy}")
        assert ask(f"http://{host}:81") == f"answered through the proxy {proxy} (HTTP_PROXY) with HTTP status 200"
        monkeypatch.setenv("NO_PROXY", exceptions)
        assert "proxy" not in ask(f"http://{host}:81")
    (line,) = seen
    assert line.startswith(f"GET http://{host}:81 HTTP/1.1 Basic ")


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(("host", "exceptions"), NOT_EXCEPTED)
def test_what_no_proxy_does_not_name_uses_the_proxy(monkeypatch, host, exceptions):
    monkeypatch.setenv("NO_PROXY", exceptions)
    with answering() as (proxy, _):
        monkeypatch.setenv("http_proxy", proxy)
        assert ask(f"http://{host}:81") == f"answered through the proxy {proxy} (http_proxy) with HTTP status 200"


@pytest.mark.usefixtures("no_proxies")
def test_a_failure_through_a_proxy_names_it_without_its_login(monkeypatch, client_of):
    dead = "the proxy 127.0.0.1:1 (HTTPS_PROXY)"
    monkeypatch.setenv("HTTPS_PROXY", "http://anna:s3cret@127.0.0.1:1")
    with pytest.raises(NodeUnavailable, match=re.escape(f"node.invalid can't be reached through {dead}")):
        client_of("https://node.invalid").head()
    with answering(407) as (proxy, _):
        for variable in ("HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(variable, f"http://anna:s3cret@{proxy}")
        assert ask("http://node.invalid") == f"answered through the proxy {proxy} (HTTP_PROXY) with HTTP status 407"
        assert ask("https://node.invalid") == (
            f"can't be reached (HTTP status 407) through the proxy {proxy} (HTTPS_PROXY)"
        )


@pytest.mark.usefixtures("no_proxies")
@pytest.mark.parametrize(
    "value",
    [
        *("socks5://x:1", "socks://anna:s3cret@x", "http://", ":8080", "http://x:port", "http://x:0", "http://[::1"),
        *("http://anna:1/s3cret@x", "http://anna:1#s3cret@x", "http://anna:1?s3cret@x"),
    ],
)
def test_a_proxy_that_can_not_be_used_is_said_with_its_variable(monkeypatch, value):
    monkeypatch.setenv("HTTPS_PROXY", value)
    assert ask("https://node.invalid") == (
        "can't be reached, because the proxy in HTTPS_PROXY has no http or https URL"
    )
