"""`/livez` by a port of its own, beside threads that are busy and a database that is away."""

import os
import signal
import socket
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest

from devnet.ports import free_port
from tests.serving.app import SLOW_SECONDS
from tests.serving.batches import a_key, database, submit
from tests.serving.liveness import LIVEZ, assert_soon, seconds
from tests.serving.process import WebServer, ask, connect, serving


@pytest.fixture
def port() -> int:
    return free_port()


def test_it_is_answered_while_all_threads_are_busy(tmp_path, port):
    with (
        serving(tmp_path, app="tests.serving.app:application", LIVENESS_BIND=f"127.0.0.1:{port}") as server,
        ExitStack() as opened,
    ):
        for _ in range(40):
            opened.enter_context(connect(server.port)).sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        began = time.monotonic()
        took = seconds(port)
        assert time.monotonic() - began < 40 * SLOW_SECONDS / 4, "they are no longer busy"
        assert_soon(took)


def test_it_is_answered_while_the_database_is_away(tmp_path, port):
    with serving(tmp_path, LIVENESS_BIND=f"127.0.0.1:{port}") as server:
        key = a_key(server)
        submit(server, key)
        with closing(sqlite3.connect(database(server), isolation_level=None)) as other, ThreadPoolExecutor(40) as pool:
            other.execute("BEGIN IMMEDIATE")
            waiting = [pool.submit(submit, server, key) for _ in range(12)]
            time.sleep(0.5)
            took = seconds(port)
            assert not any(each.done() for each in waiting), "nobody waits for the database"
            other.execute("ROLLBACK")
        assert_soon(took)


def test_it_says_when_no_process_gives_a_sign_of_life(tmp_path, port):
    with serving(
        tmp_path,
        app="tests.serving.app:application",
        LIVENESS_BIND=f"127.0.0.1:{port}",
        GUNICORN_CMD_ARGS="--timeout 3",
    ) as server:
        _, (process,) = server.pids()
        os.kill(process, signal.SIGSTOP)
        deadline = time.monotonic() + 20
        while (answer := ask(port, LIVEZ)).status == 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert (answer.status, answer.body) == (503, b'{"status": "no process lives"}')
        # Which is why the supervisor starts another.
        server.installation.wait_until(server.answers)
        assert ask(port, LIVEZ).status == 200
        assert ask(port, b"GET / HTTP/1.1\r\n\r\n").status == 404


def test_the_port_goes_with_the_supervisor(tmp_path, port):
    with serving(tmp_path, app="tests.serving.app:application", LIVENESS_BIND=f"127.0.0.1:{port}") as server:
        supervisor, _ = server.pids()
        os.kill(supervisor, signal.SIGKILL)
        server.installation._processes["web"]._process.wait(10)
        with pytest.raises(ConnectionRefusedError):
            connect(port)


def test_the_server_goes_on_where_the_port_cannot_be_had(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving(tmp_path, app="tests.serving.app:application", LIVENESS_BIND=f"127.0.0.1:{port}") as server:
            assert f"no liveness is told: can't listen on port {port}" in server.installation.log("web").read_text()


def test_the_web_server_itself_answers_as_well(web: WebServer):
    assert ask(web.port, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").status == 200
