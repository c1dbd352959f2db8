"""What nodes that hang hold of the web server. `tests/deploy/test_units.py` restarts and reloads it."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor

import requests

from tests.serving.askers import askers
from tests.serving.batches import BODY, submit
from tests.serving.process import serving


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
