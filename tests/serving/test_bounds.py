"""How the web server's processes begin and end, and what nodes that hang hold of it."""

import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest
import requests

from tests.serving.app import SLOW_SECONDS
from tests.serving.askers import askers
from tests.serving.batches import BODY, submit
from tests.serving.load import GET, Load
from tests.serving.process import connect, is_closed, read_answer, serving


def test_a_process_that_dies_is_replaced(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server:
        _, [process] = server.pids()
        os.kill(process, signal.SIGKILL)
        server.installation.wait_until(server.answers)
        assert process not in server.pids()[1]


def test_told_to_stop_it_answers_what_it_has_and_closes_what_waits(tmp_path):
    with serving(tmp_path, app="tests.serving.app:application") as server, ExitStack() as opened:
        idle, asking = (opened.enter_context(connect(server.port)) for _ in range(2))
        idle.sendall(GET % b"/one")
        read_answer(idle)
        asking.sendall(GET % b"/slow")
        time.sleep(SLOW_SECONDS / 4)  # It is being answered.
        os.kill(server.pids()[0], signal.SIGTERM)
        assert read_answer(asking).body == b"/slow"
        assert is_closed(idle)
        assert server.installation._processes["web"]._process.wait(15) == 0


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM], ids=["reloaded", "stopped"])
def test_under_load_no_request_is_lost(tmp_path, number):
    with serving(tmp_path, app="tests.serving.app:application", WEB_CONCURRENCY="2") as server:
        _, before = server.pids()
        load = Load(partial(connect, server.port), GET % b"/mine")
        with load:
            time.sleep(1)
            os.kill(server.pids()[0], number)
            answered = len(load.took)
            time.sleep(6)
        assert load.lost == []
        assert answered > 0
        if number == signal.SIGHUP:
            assert len(load.took) > answered + 50
            assert not load.refused
            assert not {*before} & {*server.pids()[1]}
        else:
            assert load.refused
            assert server.installation._processes["web"]._process.wait(15) == 0


def test_nodes_that_hang_hold_up_nobody_for_long(tmp_path):
    """Time-outs and limits of users are all that bounds it."""
    with socket.create_server(("127.0.0.1", 0)) as hangs, ThreadPoolExecutor(40) as clients:
        node = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        with serving(tmp_path, node=node, MAX_BATCHES_PER_MINUTE="20") as server:
            one, two, other = askers(server)[:3]

            def estimate(number: int) -> int:
                key, url = (one, two)[number % 2].key, f"{server.url}/estimate-batch-query"
                return requests.post(url, json=BODY, headers={"api-key": key}, timeout=60).status_code

            asked = clients.map(estimate, range(40))
            began = time.monotonic()
            assert submit(server, other.key).status_code == 200
            assert other.ask(0).status == 200
            assert time.monotonic() - began < 15
            assert set(asked) == {503}
