"""The connections to the database that the web server's threads keep."""

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

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


@pytest.fixture
def key(server) -> str:
    return a_key(server)


def opened(server: WebServer) -> list[str]:
    """Return what the processes have open of the database, its log apart."""
    _, pids = server.pids()
    found = []
    for pid in pids:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            try:
                found.append(str(each.readlink()))
            except FileNotFoundError:  # closed meanwhile
                continue
    return [path for path in found if path.removesuffix(" (deleted)") == str(database(server))]


def statuses(server: WebServer, key: str, batch: str, times: int = 40) -> set[int]:
    """Return the statuses of requests that come at once, so that each thread answers some."""

    def ask(_: int) -> int:
        asked = {"batchQueryId": batch}
        url = f"{server.url}/batch-query-status"
        return requests.get(url, asked, headers={"api-key": key}, timeout=20).status_code

    with ThreadPoolExecutor(2 * THREADS) as pool:
        return set(pool.map(ask, range(times)))


def test_each_thread_keeps_one_and_the_log_is_emptied_when_the_server_ends(server, key):
    batch = submit(server, key).json()["internalId"]
    for _ in range(3):
        assert statuses(server, key, batch) == {200}
        # The thread that writes the use of keys has one for a moment.
        assert 1 <= len(opened(server)) <= THREADS + 1
    path = database(server)
    assert path.with_name("db.sqlite3-wal").exists()
    server.installation.stop()
    assert not path.with_name("db.sqlite3-wal").exists()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT COUNT(*) FROM queries_batch").fetchone() == (1,)


def test_a_key_that_another_process_revokes_works_no_more(server, key):
    batch = submit(server, key).json()["internalId"]
    assert statuses(server, key, batch) == {200}
    server.installation.manage("revoke_keys", "--all")
    assert statuses(server, key, batch) == {401}
    assert submit(server, key).status_code == 401


def test_a_database_that_was_locked_is_written_to_again_by_all_threads(tmp_path):
    with serving(tmp_path, threads=THREADS) as server:
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


def test_a_database_that_is_put_in_its_place_is_read_by_all_threads(server, key):
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
    # Each thread's connection is a second old by then, at most.
    deadline = time.monotonic() + 10
    while statuses(server, key, batch) != {404}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    answer = submit(server, key)
    assert answer.status_code == 200, answer.text
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT id FROM queries_batch").fetchall() == [(answer.json()["internalId"],)]
