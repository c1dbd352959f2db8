"""The web server and a worker with PgBouncer before PostgreSQL, as operators run them."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psycopg
import pytest
import requests

from demo import client
from demo.installation import CHAIN_ID, CHAINS_TOML, MANAGE, Service
from devnet.devchain import ACCOUNTS
from devnet.servers import Postgres
from tests.chain_fixtures import chain_fixture
from tests.service import ALICE, request
from tests.serving.pgbouncer import PGBOUNCER, PgBouncer

pytestmark = [pytest.mark.long, pytest.mark.skipif(PGBOUNCER is None, reason="there is no pgbouncer")]

SECONDS = 90
# With transaction pooling, more clients share these connections than there are.
SETTINGS = {
    "session": ("pool_mode = session", "default_pool_size = 48", "query_wait_timeout = 5"),
    "transaction": ("pool_mode = transaction", "default_pool_size = 4", "query_wait_timeout = 5"),
}
SQL = (
    "ALTER ROLE CURRENT_USER SET lock_timeout = '5s'; "
    "ALTER ROLE CURRENT_USER SET idle_in_transaction_session_timeout = '5s'; "
    "ALTER ROLE CURRENT_USER SET statement_timeout = '30s';"
)
ABSENT = (
    "The pooler's connections to PostgreSQL have no lock_timeout and no idle_in_transaction_session_timeout and no "
    f"statement_timeout. Run {SQL} Then restart the pooler."
)


chain = chain_fixture(chain_id=CHAIN_ID, block_seconds=1)


class Unlimited(Service):
    """A service that is well but for the time limits of its connections, which `/healthz` reports from the start."""

    def health(self) -> tuple[list[str], list[str], list[str]]:
        answer = requests.get(f"{self.base_url}/healthz", timeout=60).json()
        return answer["codes"], answer["critical"], answer["problems"]

    def is_healthy(self) -> bool:
        with suppress(requests.ConnectionError):
            return self.health() == (["pooler_limits"], [], [ABSENT])
        return False


@pytest.fixture
def server() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture(params=SETTINGS)
def pooler(server, request) -> Iterator[PgBouncer]:
    with PgBouncer(server, *SETTINGS[request.param]) as pooler:
        yield pooler


@pytest.fixture
def service(chain, pooler, tmp_path) -> Iterator[Unlimited]:
    with ExitStack() as running:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
        toml, key = CHAINS_TOML % chain.url, ACCOUNTS[3][1]
        service = Unlimited(running, tmp_path / "state", toml, key, port, DATABASE_URL=pooler.url())
        service.deploy_registry(CHAIN_ID, CHAIN_ID)
        service.serve()
        yield service


def test_the_service_works_behind_a_pooler_and_names_time_limits_that_the_role_lacks(server, pooler, chain, service):
    def prove() -> None:
        pk = client.submit(service.base_url, key, request(ALICE, block=chain.head()))
        client.follow(service.base_url, key, pk, lambda _: None, SECONDS)

    def ready() -> tuple[int, str]:
        answer = requests.get(f"{service.base_url}/readyz", timeout=60)
        return answer.status_code, answer.json()["problem"]

    def checked() -> str:
        command = [*MANAGE, "check", "--deploy"]
        return subprocess.run(
            command, env=service.environment, cwd=service.project, capture_output=True, text=True, check=True
        ).stderr

    def tracebacks() -> list[int]:
        return [log.read_text().count("Traceback") for log in logs]

    logs = [service.log(name) for name in service.names()]
    key = client.take_api_key(service.base_url, *ACCOUNTS[0], CHAIN_ID)
    assert ready() == (503, ABSENT)
    assert all(ABSENT in log.read_text() for log in logs)
    assert f"(accounts.W006) {ABSENT}" in checked()
    for _ in range(3):
        prove()
    assert tracebacks() == [0, 0]

    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(SQL)
    pooler.stop()
    pooler.start()
    prove()
    assert ready() == (200, "")
    assert service.health() == ([], [], [])
    assert "accounts.W006" not in checked()
    with psycopg.connect(server.url()) as other:
        other.execute("SET idle_in_transaction_session_timeout = 0")
        other.execute("LOCK TABLE queries_batch IN EXCLUSIVE MODE")
        began = time.monotonic()
        refused = requests.post(
            f"{service.base_url}/submit-batch-query",
            headers={"api-key": key},
            json=request(ALICE, block=chain.head()),
            timeout=60,
        )
        assert (refused.status_code, refused.json()["code"]) == (503, "storage_unavailable")
        assert time.monotonic() - began < 10
    prove()
