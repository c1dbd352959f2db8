"""What slow clients may hold of the web server, and how its processes begin and end."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from devnet.devchain import PROJECT
from tests.serving.app import LARGE, SLOW_SECONDS
from tests.serving.load import GET, Load
from tests.serving.process import WebServer, ask, connect, is_closed, read_answer, serving

HEADER = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BODY = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"
SLOW_CLIENTS = 200
# Alone a probe takes some milliseconds; the rest is for a busy machine.
PROMPT_SECONDS = 2


@contextmanager
def trickling(port: int, start: bytes, count: int) -> Iterator[list[socket.socket]]:
    """Clients of one address that have begun a request, and send a byte of it every half second."""
    over = threading.Event()
    with ExitStack() as opened:
        slow = [opened.enter_context(connect(port)) for _ in range(count)]
        for each in slow:
            each.sendall(start)

        def drip() -> None:
            while not over.wait(0.5):
                for each in slow:
                    try:
                        each.send(b"a")
                    except OSError:
                        continue

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            yield slow
        finally:
            over.set()
            dripping.join()


# --- Slow clients -----------------------------------------------------------------------------------------------------


def assert_others_are_answered(server: WebServer) -> None:
    for _ in range(20):
        began = time.monotonic()
        assert ask(server.port, GET % b"/mine", source="127.0.0.2").body == b"/mine"
        assert time.monotonic() - began < PROMPT_SECONDS
        time.sleep(0.05)


@pytest.mark.parametrize("start", [HEADER, BODY], ids=["headers", "bodies"])
def test_slow_requests_hold_no_thread(app, start):
    with trickling(app.port, start, SLOW_CLIENTS):
        assert_others_are_answered(app)


def test_slow_readers_hold_no_thread(app):
    with ExitStack() as opened:
        for _ in range(6):
            slow = opened.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", app.port))
            # Thrice 16 MB: waitress keeps no more than 16 MB beside a thread, unless it is told to.
            slow.sendall(GET % b"/large" * 3)
        assert_others_are_answered(app)


def test_slow_readers_of_a_page_hold_no_thread(web):
    with ExitStack() as opened:
        for _ in range(SLOW_CLIENTS):
            slow = opened.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            slow.connect(("127.0.0.1", web.port))
            slow.sendall(GET % b"/static/admin/js/vendor/xregexp/xregexp.js")
        for _ in range(20):
            began = time.monotonic()
            assert ask(web.port, GET % b"/chain-connections", source="127.0.0.2").status == 200
            assert time.monotonic() - began < PROMPT_SECONDS


def test_who_fills_all_connections_shuts_others_out_until_one_closes(tmp_path):
    """Without a proxy, and from one address. test_nginx.py has what it takes with one."""
    with serving(tmp_path, app="tests.serving.app:application", MAX_CONNECTIONS="30") as server:
        with trickling(server.port, HEADER, 29):
            assert ask(server.port, GET % b"/last").status == 200
        with trickling(server.port, HEADER, 30) as slow, connect(server.port) as other:
            other.sendall(GET % b"/other")
            other.settimeout(2)
            with pytest.raises(TimeoutError):
                other.recv(1, socket.MSG_PEEK)
            slow[0].close()
            other.settimeout(20)
            assert read_answer(other).body == b"/other"


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [(1024, 3000, 2200, 700), (2500, 3000, 2500, 700), (300, 400, 400, 100), (200, 200, 200, 33)],
)
def test_the_limit_of_open_files_is_raised_for_the_connections(soft, hard, raised, connections):
    script = f"""
import resource
from tests.serving import app
from config import web_worker
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(web_worker._most_connections(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    environment = os.environ | {"MAX_CONNECTIONS": "700"}
    told = subprocess.run([sys.executable, "-c", script], env=environment, cwd=PROJECT, capture_output=True, check=True)
    assert told.stdout.split() == [b"%d" % connections, b"%d" % raised]


# --- Processes --------------------------------------------------------------------------------------------------------


def test_a_process_that_dies_is_replaced(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server:
        _, [process] = server.pids()
        os.kill(process, signal.SIGKILL)
        server.installation.wait_until(server.answers)
        assert process not in server.pids()[1]


def test_told_to_stop_it_answers_what_it_has_and_closes_what_waits(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server, ExitStack() as opened:
        idle, asking, beginning = (opened.enter_context(connect(server.port)) for _ in range(3))
        idle.sendall(GET % b"/one")
        read_answer(idle)
        asking.sendall(GET % b"/slow")
        beginning.sendall(HEADER.replace(b" / ", b" /streamed "))
        time.sleep(SLOW_SECONDS / 4)  # It is being answered.
        supervisor, _ = server.pids()
        began = time.monotonic()
        os.kill(supervisor, signal.SIGTERM)
        answer = read_answer(asking)
        assert (answer.body, answer.headers["Connection"]) == (b"/slow", "close")
        beginning.sendall(b"\r\n")
        assert read_answer(beginning).body == LARGE
        assert is_closed(idle)
        server.log(until="A streamed answer is closed.")
        assert server.installation._processes["web"]._process.wait(15) == 0
        assert time.monotonic() - began < 12


def test_told_to_stop_it_answers_who_has_connected_already(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server, ExitStack() as opened:
        supervisor, (process,) = server.pids()
        # So that it hears of the clients and of its end at once.
        os.kill(process, signal.SIGSTOP)
        # On a busy machine it could still take the next signal first.
        server.installation.wait_until(lambda: "T (stopped)" in Path(f"/proc/{process}/status").read_text())
        clients = [opened.enter_context(connect(server.port)) for _ in range(5)]
        for client in clients:
            client.sendall(GET % b"/mine")
        os.kill(supervisor, signal.SIGTERM)
        server.installation.wait_until(lambda: is_told(process, signal.SIGTERM))
        os.kill(process, signal.SIGCONT)
        assert [read_answer(client).body for client in clients] == [b"/mine"] * 5


def is_told(process: int, number: signal.Signals) -> bool:
    """Return whether the signal waits for the process."""
    (pending,) = re.findall(r"ShdPnd:\s*([0-9a-f]+)", Path(f"/proc/{process}/status").read_text())
    return bool(int(pending, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM], ids=["reloaded", "stopped"])
def test_under_load_no_request_is_lost(tmp_path, number):
    with serving(tmp_path, app="tests.serving.app:application", WEB_CONCURRENCY="2") as server:
        _, before = server.pids()
        load = Load(server)
        with load:
            time.sleep(1)
            os.kill(server.pids()[0], number)
            answered = load.answered
            time.sleep(6)
        assert load.lost == []
        assert answered > 0
        if number == signal.SIGHUP:
            assert load.answered > answered + 50
            assert not load.refused
            assert not {*before} & {*server.pids()[1]}
        else:
            assert load.refused
            assert server.installation._processes["web"]._process.wait(15) == 0


def test_without_its_supervisor_it_stops(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server:
        supervisor, _ = server.pids()
        os.kill(supervisor, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while server.answers():
            assert time.monotonic() < deadline
            time.sleep(0.1)
