"""`/livez` and `/readyz`."""

import pytest
from django.db import OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from explorer.health import probes
from queries import storage

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch) -> None:
    monkeypatch.setattr(probes, "_migrated", False)


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
    recorder.record_unapplied("queries", "0011_last_looks")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE queries_batch DROP COLUMN looked_at")
        cursor.execute("ALTER TABLE queries_block DROP COLUMN looked_at")
    assert ready() == (503, "The database lacks migrations of this version: run manage.py migrate.")
    # The tables are not those of its migrations.
    recorder.record_applied("queries", "0011_last_looks")
    status, problem = ready()
    assert status == 503
    assert "queries_batch has no column looked_at" in problem


def test_it_is_ready_with_what_a_newer_version_has_added():
    """While the processes are replaced, one after the other."""
    MigrationRecorder(connection).record_applied("queries", "9999_newer")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE queries_batch ADD COLUMN newer integer NULL")
    assert ready() == (200, "")


def test_it_is_not_ready_while_nothing_can_be_stored(monkeypatch):
    monkeypatch.setattr(storage, "check", lambda: "The disk is full.")
    assert ready() == (503, "The disk is full.")


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
