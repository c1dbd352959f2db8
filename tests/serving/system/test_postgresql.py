"""The web server and a worker on PostgreSQL as operators run them. The database may go away."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
import requests

from demo import client
from demo.installation import CHAIN_ID, CHAINS_TOML, MANAGE, Service
from devnet.devchain import ACCOUNTS, PROJECT, DevChain
from devnet.servers import Postgres
from tests.chain_fixtures import chain_fixture
from tests.factories import until
from tests.service import ALICE, request

pytestmark = pytest.mark.long

SECONDS = 90
HOW_TO_DUMP = ("--format", "jsonl", "--natural-foreign", "--exclude", "contenttypes", "--exclude", "auth.permission")
AWAY = "The database of this service can't be reached, or accepts no more connections. Try again later."


chain = chain_fixture(chain_id=CHAIN_ID, block_seconds=1)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres(durable=True, settings=["max_connections=30"]) as server:
        yield server


@pytest.fixture(scope="module")
def start(chain, tmp_path_factory) -> Iterator[Callable[..., Service]]:
    """Return a function that starts installations, by default each in its own folder."""
    with ExitStack() as running:

        def start(folder: Path | None = None, **environment: str) -> Service:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port: int = listener.getsockname()[1]
            folder = folder or tmp_path_factory.mktemp("installation") / "state"
            service = Service(
                running, folder, CHAINS_TOML % chain.url, ACCOUNTS[3][1], port, LEASE_SECONDS="5", **environment
            )
            service.deploy_registry(CHAIN_ID, CHAIN_ID)
            service.serve()
            return service

        yield start


@pytest.fixture(scope="module")
def service(start, server) -> Service:
    started: Service = start(DATABASE_URL=server.url())
    return started


@pytest.fixture(scope="module")
def key(service) -> str:
    return api_key_of(service)


def api_key_of(service: Service) -> str:
    return client.take_api_key(service.base_url, *ACCOUNTS[0], CHAIN_ID)


def prove(service: Service, key: str, chain: DevChain) -> str:
    """Prove a batch. Return its id."""
    pk = client.submit(service.base_url, key, request(ALICE, block=chain.head()))
    client.follow(service.base_url, key, pk, lambda _: None, SECONDS)
    return pk


def ask(service: Service, key: str, chain: DevChain) -> list[requests.Response]:
    url, headers = service.base_url, {"api-key": key}
    body = request(ALICE, block=chain.head())
    return [
        requests.post(f"{url}/submit-batch-query", headers=headers, json=body, timeout=60),
        requests.get(f"{url}/batch-query-status", {"batchQueryId": "x"}, headers=headers, timeout=60),
    ]


def refused(service: Service, key: str, chain: DevChain) -> set[tuple[int, str, str, str]]:
    return {
        (answer.status_code, answer.headers["Retry-After"], answer.json()["code"], answer.json()["error"])
        for answer in ask(service, key, chain)
    }


@pytest.mark.release("kill")
@pytest.mark.parametrize("end", [Postgres.stop, Postgres.kill])
def test_web_server_and_worker_go_on_when_the_database_is_there_again(service, server, chain, key, end):
    prove(service, key, chain)
    end(server)
    try:
        # Every thread's connection may be broken, and each request uses one.
        for _ in range(3):
            assert refused(service, key, chain) == {(503, "10", "storage_unavailable", AWAY)}
        assert requests.get(f"{service.base_url}/healthz", timeout=60).status_code == 503
    finally:
        server.start()
    submitted, _ = ask(service, key, chain)
    assert submitted.status_code == 200, submitted.text
    prove(service, key, chain)
    service.require_running()


def test_a_database_that_was_restarted_unseen_fails_no_request(service, server, chain, key):
    prove(service, key, chain)
    server.stop()
    server.start()
    assert [answer.status_code for _ in range(5) for answer in ask(service, key, chain)] == [200, 404] * 5


@pytest.mark.release
def test_a_read_only_database_stores_nothing_and_answers_the_rest(service, server, chain, key):
    pk = prove(service, key, chain)
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
        end_others(admin)
        try:
            submitted, _ = ask(service, key, chain)
            assert (submitted.status_code, submitted.json()["code"]) == (503, "storage_unavailable")
            assert submitted.json()["error"].startswith("The database of this service can't be written to.")
            assert submitted.headers["Retry-After"] == "10"
            parameters = {"batchQueryId": pk}
            status = requests.get(
                f"{service.base_url}/batch-query-status", parameters, headers={"api-key": key}, timeout=60
            )
            assert status.json() == {"queryStatus": "DONE"}
        finally:
            admin.execute("SET default_transaction_read_only = off")
            admin.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
            end_others(admin)
    prove(service, key, chain)


def test_check_deploy_opens_one_connection(server, tmp_path):
    with psycopg.connect(server.url("template1"), autocommit=True) as watching:
        watching.execute("CREATE DATABASE checked")
        env = {"PATH": os.environ["PATH"], "STATE_DIR": str(tmp_path), "DATABASE_URL": server.url("checked")}
        command = [*MANAGE, "check", "--deploy"]
        done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert "accounts.E004" in done.stderr
        # The server counts a session when it ends.
        ended = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'checked'"
        until(lambda: watching.execute(ended).fetchone() == (True,), "the end of the connections")
        counted = watching.execute("SELECT sessions FROM pg_stat_database WHERE datname = 'checked'").fetchone()
        assert counted == (1,)


def test_a_database_that_takes_no_more_connections_is_said_to_be_away(service, server, chain, key):
    with ExitStack() as opened, psycopg.connect(server.url(), autocommit=True) as admin:
        service.process("worker").stop()
        # The web server's connections are ended, so other clients can take all of them.
        end_others(admin)
        while (more := connected(server)) is not None:
            opened.enter_context(more)
        assert refused(service, key, chain) == {(503, "10", "storage_unavailable", AWAY)}
    service.start_worker()
    prove(service, key, chain)


def test_a_statement_that_takes_too_long_ends_and_is_told_as_a_delay(service, server, chain, key):
    slow = "CREATE FUNCTION slow() RETURNS boolean LANGUAGE sql AS $$ SELECT pg_sleep(60) IS NOT NULL $$"
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(slow)
        admin.execute("ALTER TABLE accounts_apikey RENAME TO kept")
        admin.execute("CREATE VIEW accounts_apikey AS SELECT * FROM kept WHERE slow()")
        try:
            answer = requests.get(f"{service.base_url}/facts?block=1", headers={"api-key": key}, timeout=60)
            assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
        finally:
            admin.execute("DROP VIEW accounts_apikey")
            admin.execute("ALTER TABLE kept RENAME TO accounts_apikey")
    prove(service, key, chain)


def connected(server: Postgres) -> "psycopg.Connection[tuple[object, ...]] | None":
    try:
        return psycopg.connect(server.url())
    except psycopg.OperationalError:
        return None


def end_others(admin: "psycopg.Connection[tuple[object, ...]]") -> None:
    admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


@pytest.mark.release
def test_an_installation_that_is_moved_from_sqlite_goes_on(start, server, chain):
    before = start()
    key = api_key_of(before)
    done = [prove(before, key, chain) for _ in range(2)]
    registry = before.deploy_registry(CHAIN_ID, CHAIN_ID)
    before.stop()
    file = before.folder / "db.sqlite3"
    dump = before.folder / "moved.jsonl"
    before.manage("dumpdata", *HOW_TO_DUMP, "--output", str(dump))
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("CREATE DATABASE moved")
    before.environment["DATABASE_URL"] = server.url("moved")
    before.manage("migrate", "--no-input", "-v", "0")
    before.manage("loaddata", str(dump))
    file.unlink()
    moved = start(before.folder, DATABASE_URL=server.url("moved"))
    assert moved.deploy_registry(CHAIN_ID, CHAIN_ID) == registry
    assert {client.status(moved.base_url, key, pk) for pk in done} == {"DONE"}
    done.append(prove(moved, key, chain))
    moved.stop()
    # Move the data back to SQLite.
    moved.manage("dumpdata", *HOW_TO_DUMP, "--output", str(dump))
    del moved.environment["DATABASE_URL"]
    moved.manage("migrate", "--no-input", "-v", "0")
    moved.manage("loaddata", str(dump))
    back = start(before.folder)
    assert back.deploy_registry(CHAIN_ID, CHAIN_ID) == registry
    assert {client.status(back.base_url, key, pk) for pk in done} == {"DONE"}
    back.stop()
