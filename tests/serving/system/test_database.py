"""Database connections of the web server's threads."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import requests

from tests.serving.batches import a_key, database, submit
from tests.serving.process import WebServer, serving

pytestmark = pytest.mark.outside

THREADS = 3


@pytest.fixture
def server(tmp_path) -> Iterator[WebServer]:
    with serving(tmp_path, threads=THREADS) as server:
        yield server


def statuses(server: WebServer, key: str, batch: str, times: int = 40) -> set[int]:
    """Return the statuses of so many concurrent requests that each thread answers some."""

    def ask(_: int) -> int:
        parameters = {"batchQueryId": batch}
        url = f"{server.url}/batch-query-status"
        return requests.get(url, parameters, headers={"api-key": key}, timeout=20).status_code

    with ThreadPoolExecutor(2 * THREADS) as pool:
        return set(pool.map(ask, range(times)))


@pytest.mark.long
def test_a_database_that_was_locked_is_written_to_again_by_all_threads(server):
    key = a_key(server)
    batch = submit(server, key).json()["internalId"]
    with closing(sqlite3.connect(database(server), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ThreadPoolExecutor(THREADS) as pool:
            refused = list(pool.map(lambda _: submit(server, key), range(2 * THREADS)))
        assert {(answer.status_code, answer.json()["code"]) for answer in refused} == {(503, "storage_unavailable")}
        assert statuses(server, key, batch) == {200}
        other.execute("ROLLBACK")
    with ThreadPoolExecutor(THREADS) as pool:
        taken = list(pool.map(lambda _: submit(server, key), range(2 * THREADS)))
    assert {answer.status_code for answer in taken} == {200}


@pytest.mark.long
def test_a_database_that_is_put_in_its_place_is_read_by_all_threads(server):
    key = a_key(server)
    batch = submit(server, key).json()["internalId"]
    assert statuses(server, key, batch) == {200}
    path = database(server)
    restored = path.with_name("restored")
    server.installation.manage("backup", str(restored))
    with closing(sqlite3.connect(restored)) as other:
        other.execute("DELETE FROM queries_step")
        other.execute("DELETE FROM queries_query")
        other.execute("DELETE FROM queries_batch")
        other.commit()
    for name in ("db.sqlite3-wal", "db.sqlite3-shm"):
        path.with_name(name).unlink()
    restored.rename(path)
    # Each thread then has a connection no older than a second.
    deadline = time.monotonic() + 10
    while statuses(server, key, batch) != {404}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    answer = submit(server, key)
    assert answer.status_code == 200, answer.text
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT id FROM queries_batch").fetchall() == [(answer.json()["internalId"],)]
