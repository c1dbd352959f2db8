"""The check of the database while it is slow, and the errors that tell that it can't be used."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DatabaseError, OperationalError, ProgrammingError, connection, transaction
from django.utils import timezone

from config import database_errors
from queries import storage
from queries.models import StorageCheck
from tests.disks import full_disk

pytestmark = pytest.mark.django_db(transaction=True)


class SlowCheck:
    """In place of a check: one that waits until it is told what to find."""

    def __init__(self, monkeypatch) -> None:
        self.began, self.may_end, self.count, self.found = threading.Event(), threading.Event(), 0, "The disk is full."
        monkeypatch.setattr(storage, "_try_to_write", self)

    def __call__(self) -> str | None:
        self.count += 1
        self.began.set()
        assert self.may_end.wait(30)
        return self.found


def test_a_full_disk_is_told_from_a_defect():
    with full_disk(), pytest.raises(OperationalError) as full:
        StorageCheck.objects.bulk_create(StorageCheck(at=timezone.now()) for _ in range(10_000))
    assert database_errors.why_unavailable(full.value) == "The disk of this service is full, so nothing can be stored."
    # SQLite says that it is one of the database's own.
    with connection.cursor() as cursor, pytest.raises(DatabaseError) as missing:
        cursor.execute("SELECT * FROM no_table")
    assert database_errors.why_unavailable(missing.value) is None
    assert database_errors.why_unavailable(ProgrammingError("a defect")) is None


def test_who_asks_during_the_first_check_gets_what_it_finds(monkeypatch):
    check = SlowCheck(monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(storage.problem)
        assert check.began.wait(30)
        others = [pool.submit(storage.problem) for _ in range(3)]
        check.may_end.set()
        assert [asked.result(30) for asked in (first, *others)] == ["The disk is full."] * 4
    assert check.count == 1


def test_nobody_waits_without_end_for_the_first_check(monkeypatch):
    monkeypatch.setattr(storage, "_FIRST_CHECK_SECONDS", 0.01)
    check = SlowCheck(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(storage.problem)
        assert check.began.wait(30)
        assert storage.problem() == "The database of this service takes longer to answer than usual."
        check.may_end.set()
        assert first.result(30) == "The disk is full."


def test_who_asks_during_a_later_check_gets_what_was_found_before(monkeypatch, pass_time):
    assert storage.problem() is None
    pass_time(10)
    check = SlowCheck(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(storage.problem)
        assert check.began.wait(30)
        assert storage.problem() is None
        check.may_end.set()
        assert later.result(30) == "The disk is full."
    assert storage.problem() == "The disk is full."


# --- PostgreSQL -------------------------------------------------------------------------------------------------------

of_postgresql = pytest.mark.postgresql_only(reason="SQLite has other codes, and neither pool nor server")


@of_postgresql
@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SET TRANSACTION READ ONLY; DELETE FROM queries_storagecheck", database_errors.READ_ONLY),
        ("SET LOCAL statement_timeout = 1; SELECT pg_sleep(20)", database_errors.LOCKED),
        ("SELECT pg_terminate_backend(pg_backend_pid())", database_errors.AWAY),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '25P03'; END $$", database_errors.AWAY),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$", database_errors.FULL),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'io_error'; END $$", database_errors.FAILS),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'cannot_connect_now'; END $$", database_errors.AWAY),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'out_of_memory'; END $$", database_errors.SHORT),
        ("SELECT * FROM no_table", None),
        ("SELECT 1 / 0", None),
        ("COMMIT; VACUUM no_table", None),
    ],
)
def test_what_postgresql_refuses_is_told_from_a_defect(sql, sentence):
    def run() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            for part in sql.split("; ") if not sql.startswith("DO") else [sql]:
                cursor.execute(part)

    with pytest.raises(DatabaseError) as refused:
        run()
    connection.close()
    assert database_errors.why_unavailable(refused.value) == sentence


@of_postgresql
def test_a_pool_that_is_used_up_is_told_from_a_defect(monkeypatch):
    pool = connection.settings_dict["OPTIONS"]["pool"]

    def take_one() -> None:
        connection.ensure_connection()

    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # PostgreSQL's
    with monkeypatch.context() as small, ThreadPoolExecutor(1) as other:
        small.setitem(pool, "min_size", 1)
        small.setitem(pool, "max_size", 1)
        small.setitem(pool, "timeout", 5)
        take_one()
        connection.pool.timeout = 0.05  # type: ignore[attr-defined]  # as above
        with pytest.raises(OperationalError) as refused:
            other.submit(take_one).result(20)
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]  # as above
    assert database_errors.why_unavailable(refused.value) == (
        "The database of this service can't be reached, or takes no more connections."
    )
