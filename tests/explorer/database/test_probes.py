"""The probes `/livez` and `/readyz`."""

import html
import time

import pytest
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from accounts.models import ApiKey
from config.configured_chains import forget_chains
from tests.disks import full_tablespace, locked_database, locked_table, table_without_insert
from tests.service import ALICE, a_key, chains_toml, header, request

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


def ready() -> tuple[int, str]:
    answer = Client().get("/readyz")
    assert "no-store" in answer.headers["Cache-Control"]
    return answer.status_code, answer.json()["problem"]


def test_a_process_is_ready_with_its_database_and_lives_without(django_assert_num_queries):
    assert ready() == (200, "")
    # The first call has cached its results: migrations for good, and the check of storage for ten seconds.
    with django_assert_num_queries(0):
        assert ready() == (200, "")
        assert Client().get("/livez").json() == {"status": "ok"}


def test_readiness_fails_before_this_versions_migrations():
    MigrationRecorder(connection).record_unapplied("queries", "0001_version_0_3")
    lacks = "The database lacks migrations of this version: run manage.py migrate."
    assert ready() == (503, lacks)
    health = Client().get("/healthz")
    assert (health.status_code, health.json()["database"]) == (503, "unavailable")
    assert (health.json()["codes"], health.json()["problems"]) == (["database_unavailable"], [lacks])


def test_readiness_holds_with_migrations_of_a_newer_version():
    """In an upgrade, processes of both versions run for a while."""
    MigrationRecorder(connection).record_applied("queries", "9999_newer")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE queries_batch ADD COLUMN newer integer NULL")
    assert ready() == (200, "")


@pytest.mark.django_db(transaction=True)
def test_readiness_fails_while_the_database_is_locked():
    with locked_database():
        assert ready() == (503, "The database of this service is locked for longer than usual.")


of_postgresql = pytest.mark.postgresql_only(reason="SQLite has neither privileges nor locks of tables")
FULL = "The disk of this service is full or fails, so nothing can be stored."


def health() -> tuple[int, list[str]]:
    """Return the status of `/healthz`, and its codes about the database."""
    answer = Client().get("/healthz")
    return answer.status_code, [code for code in answer.json()["codes"] if code in {"storage", "database_unavailable"}]


@of_postgresql
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "table", ["accounts_throttlecount", "queries_batch", "queries_block", "queries_query", "queries_step"]
)
def test_readiness_fails_while_a_table_of_submissions_takes_no_row(table, unreachable_chain, pass_time):
    with table_without_insert(table):
        assert ready() == (503, "The database of this service can't be written to.")
        assert health() == (503, ["storage"])
        assert submitted() == 503
    pass_time(10)
    assert (ready(), submitted()) == ((200, ""), 200)


@of_postgresql
@pytest.mark.django_db(transaction=True)
def test_readiness_fails_while_a_table_of_submissions_is_locked_for_long(pass_time):
    began = time.perf_counter()
    with locked_table("queries_step"):
        assert ready() == (503, "The database of this service is locked for longer than usual.")
    # A probe must answer within ten seconds.
    assert time.perf_counter() - began < 10
    pass_time(10)
    assert ready() == (200, "")


@of_postgresql
@pytest.mark.django_db(transaction=True)
def test_readiness_fails_while_the_disk_has_no_room_for_submissions(unreachable_chain, pass_time, settings):
    settings.MAX_BATCHES_PER_MINUTE = 10_000
    assert (ready(), submitted()) == ((200, ""), 200)
    with full_tablespace():
        # The tables' last pages may have room for a few rows.
        while submitted() == 200:
            pass
        pass_time(10)
        assert (ready(), submitted()) == ((503, FULL), 503)
        assert health() == (503, ["storage"])
    pass_time(20)
    assert (ready(), submitted()) == ((200, ""), 200)


def submitted() -> int:
    """Submit a small batch. Return the answer's status."""
    key = ApiKey.objects.first() or a_key()
    body = request(ALICE, block=1)
    client = Client(raise_request_exception=False)
    return client.post("/submit-batch-query", body, content_type="application/json", headers=header(key)).status_code


def test_readiness_fails_while_the_database_does_not_answer():
    def fail(_execute, _sql, _params, _many, _context):
        raise OperationalError("unable to open /somewhere/private.sqlite3")

    with connection.execute_wrapper(fail):
        assert ready() == (503, "The database does not answer.")
        assert Client().get("/livez").status_code == 200


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("not toml [", "it is not TOML: Expected '=' after a key"),
        ("nonsense = 1", "chains: at least one is needed; nonsense: is not known here."),
        (None, "it can't be read: No such file or directory"),
    ],
)
def test_without_chains_it_is_not_ready_and_each_request_hears_so(settings, tmp_path, content, fault):
    settings.CHAINS_FILE.unlink()
    if content:
        settings.CHAINS_FILE.write_text(content)
    forget_chains()
    status, problem = ready()
    assert status == 503
    assert problem.startswith(f"chains.toml can't be used: {fault}")
    by_proxy = Client().get("/readyz", headers={"via": "1.1 proxy"})
    assert (by_proxy.status_code, by_proxy.json()["problem"]) == (503, "chains.toml can't be used.")
    health = Client().get("/healthz")
    assert (health.status_code, health.json()["codes"], health.json()["problems"]) == (503, ["chains_file"], [problem])
    client = Client(raise_request_exception=False)
    for path in ("/", "/sign-in", "/chain-connections", "/metrics"):
        answer = client.get(path)
        assert (path, answer.status_code, "Retry-After" in answer.headers) == (path, 503, True)
        assert "until the operator corrects it" in html.unescape(answer.text)
    assert client.get("/chain-connections").json()["code"] == "chain_unavailable"
    # The service reads the repaired file without a restart.
    chains_toml(tmp_path, "http://127.0.0.1:1")
    assert ready() == (200, "")
    assert client.get("/chain-connections").status_code == 200


def test_probes_are_answered_over_http_and_only_read(settings):
    settings.SECURE_SSL_REDIRECT = True
    assert Client().get("/healthz").status_code != 301
    for path in ("/livez", "/readyz", "/metrics"):
        assert Client().get(path).status_code == 200
        assert Client().post(path).status_code == 405


def test_clients_of_older_services_hear_from_any_page_that_it_is_alive():
    answer = Client().get("/is-alive", headers={"origin": "https://elsewhere.example"})
    assert (answer.status_code, answer.content, answer.headers["Content-Type"]) == (
        200,
        b"OK",
        "text/plain; charset=utf-8",
    )
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert Client(enforce_csrf_checks=True).post("/is-alive").status_code == 405
