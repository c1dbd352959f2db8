"""`/livez` and `/readyz`."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen, run

import psycopg
import pytest
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from devnet.devchain import PROJECT
from tests.databases import same_database
from tests.disks import locked_database

pytestmark = [pytest.mark.django_db, pytest.mark.outside]


@pytest.fixture
def empty_database(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment variables for processes that shall have it."""
    (tmp_path / "chains.toml").touch()
    variables = {"STATE_DIR": str(tmp_path), "CHAINS_FILE": str(tmp_path / "chains.toml")}
    if connection.vendor == "sqlite":
        yield variables
        return
    server, name = same_database()["DATABASE_URL"].rsplit("/", 1)[0], f"empty_{os.getpid()}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as other:
        other.execute(f"CREATE DATABASE {name}")
        yield variables | {"DATABASE_URL": f"{server}/{name}"}
        other.execute(f"DROP DATABASE {name}")


def ready() -> tuple[int, str]:
    answer = Client().get("/readyz")
    assert "no-store" in answer.headers["Cache-Control"]
    return answer.status_code, answer.json()["problem"]


def test_a_process_is_ready_with_its_database_and_lives_without(django_assert_num_queries):
    assert ready() == (200, "")
    # Once migrated it stays so, and whether anything can be stored is looked at each ten seconds.
    with django_assert_num_queries(0):
        assert ready() == (200, "")
        assert Client().get("/livez").json() == {"status": "ok"}


def test_it_is_not_ready_before_this_version_s_migrations():
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("queries", "0012_jumps")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE queries_block DROP COLUMN path_origin")
    lacks = "The database lacks migrations of this version: run manage.py migrate."
    assert ready() == (503, lacks)
    health = Client().get("/healthz")
    assert (health.status_code, health.json()["database"]) == (503, "unavailable")
    assert (health.json()["codes"], health.json()["problems"]) == (["database_unavailable"], [lacks])
    # The tables are not those of its migrations.
    recorder.record_applied("queries", "0012_jumps")
    status, problem = ready()
    assert status == 503
    assert "queries_block has no column path_origin" in problem


def drop_constraint(table: str, name: str) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
            return
        cursor.execute("PRAGMA writable_schema = ON")
        cursor.execute(
            "UPDATE sqlite_master SET sql = replace(sql, %s, 'CONSTRAINT \"other\"') WHERE name = %s",
            [f'CONSTRAINT "{name}"', table],
        )
        cursor.execute("PRAGMA writable_schema = OFF")


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        (["ALTER TABLE accounts_keyuse RENAME TO other"], "there is no table accounts_keyuse"),
        (["DROP INDEX one_webhook_secret_without_end"], "accounts_webhooksecret lacks one_webhook_secret_without_end"),
        (
            [
                "ALTER TABLE queries_batch DROP COLUMN looked_at",
                "ALTER TABLE queries_batch ADD COLUMN looked_at varchar(9) NOT NULL DEFAULT ''",
            ],
            "queries_batch.looked_at is another column",
        ),
        (
            [
                "ALTER TABLE accounts_operatordeed DROP COLUMN reason",
                "ALTER TABLE accounts_operatordeed ADD COLUMN reason varchar(9) NOT NULL DEFAULT ''",
            ],
            "accounts_operatordeed.reason is another column",
        ),
    ],
)
def test_it_is_not_ready_with_other_tables_than_its_migrations_make(statements, problem):
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    assert problem in ready()[1]


def test_it_is_not_ready_without_a_constraint_of_its_migrations():
    drop_constraint("accounts_keyuse", "key_use_per_hour")
    assert "accounts_keyuse lacks key_use_per_hour" in ready()[1]


def test_it_is_ready_with_what_a_newer_version_has_added():
    """While the processes are replaced, one after the other."""
    MigrationRecorder(connection).record_applied("queries", "9999_newer")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE queries_batch ADD COLUMN newer integer NULL")
    assert ready() == (200, "")


def test_of_those_who_migrate_at_once_one_waits_for_the_other(empty_database):
    command = [sys.executable, str(PROJECT / "manage.py"), "migrate", "--no-input", "-v", "0"]
    environment = os.environ | empty_database
    both = [Popen(command, env=environment, stderr=PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate()[1] for process in both)
    assert said == ["", "The database is being migrated by another process: waiting until it has ended.\n"]
    assert [process.returncode for process in both] == [0, 0]


KILLED = """
import os
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

record = MigrationExecutor.record_migration

def record_and_die(executor, migration):
    if not connection.in_atomic_block:
        os._exit(9)
    record(executor, migration)

MigrationExecutor.record_migration = record_and_die
call_command("migrate", verbosity=0)
"""


def test_none_is_killed_between_a_migration_and_its_record(empty_database):
    if connection.vendor == "sqlite":
        Path(empty_database["STATE_DIR"], "db.sqlite3").touch()
    command = [sys.executable, str(PROJECT / "manage.py"), "shell", "--no-imports", "-c", KILLED]
    run(command, env=os.environ | empty_database, check=True)


@pytest.mark.django_db(transaction=True)
def test_it_is_not_ready_while_nothing_can_be_stored():
    with locked_database():
        assert ready() == (503, "The database of this service is locked for longer than usual.")


def test_it_is_not_ready_while_the_database_does_not_answer():
    def fail(_execute, _sql, _params, _many, _context):
        raise OperationalError("unable to open /somewhere/private.sqlite3")

    with connection.execute_wrapper(fail):
        assert ready() == (503, "The database does not answer.")
        assert Client().get("/livez").status_code == 200


def test_probes_are_answered_over_http_and_only_read(settings):
    settings.SECURE_SSL_REDIRECT = True
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
