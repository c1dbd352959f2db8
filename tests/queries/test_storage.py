"""Whether a small write succeeds, and what is said where it doesn't."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import DatabaseError, OperationalError, ProgrammingError, connection, transaction
from django.utils import timezone
from prometheus_client import REGISTRY

from config import database_errors
from queries import storage
from queries.models import StorageCheck
from tests.disks import full_disk, locked_database

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pass_time(monkeypatch):
    """Lets seconds pass, as `time.monotonic` counts them."""
    monotonic = time.monotonic

    def pass_time(seconds: float) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)

    return pass_time


def test_no_problem_is_said_when_a_write_succeeds():
    assert storage.problem() is None
    assert StorageCheck.objects.count() == 1


def test_a_locked_database_is_a_problem_until_it_is_not(pass_time):
    with locked_database():
        assert storage.problem() == "The database of this service is locked for longer than usual."
    pass_time(10)
    assert storage.problem() is None


@pytest.mark.sqlite_only(reason="PostgreSQL may be on another machine, with another disk")
def test_a_disk_on_which_no_large_batch_has_room_is_a_problem(monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_230_000))
    assert storage.problem() == "The disk of this service is nearly full: 1.2 MB are left."


def test_a_full_disk_is_told_from_a_defect():
    with full_disk(), pytest.raises(OperationalError) as full:
        StorageCheck.objects.bulk_create(StorageCheck(at=timezone.now()) for _ in range(10_000))
    assert database_errors.why_unavailable(full.value) == "The disk of this service is full, so nothing can be stored."
    # SQLite says that it is one of the database's own.
    with connection.cursor() as cursor, pytest.raises(DatabaseError) as missing:
        cursor.execute("SELECT * FROM no_table")
    assert database_errors.why_unavailable(missing.value) is None
    assert database_errors.why_unavailable(ProgrammingError("a defect")) is None


def fill() -> None:
    with full_disk(), pytest.raises(OperationalError):
        StorageCheck.objects.bulk_create(StorageCheck(at=timezone.now()) for _ in range(10_000))


def refusals() -> float:
    return REGISTRY.get_sample_value("batchquery_database_refusals_total", {"reason": "full"}) or 0


def test_what_is_refused_is_told_for_a_minute_though_small_writes_succeed(client):
    before = refusals()
    fill()
    assert refusals() == before + 1
    assert storage.check() is None
    assert "storage" in client.get("/healthz").json()["codes"]
    assert client.get("/readyz").status_code == 200
    assert storage.problem() == "The disk of this service is full, so nothing can be stored."
    # What another process was refused is told by this one, too.
    assert not storage._refused
    StorageCheck.objects.update(at=timezone.now() - timedelta(seconds=61))
    assert storage.problem() is None


def test_what_a_commit_or_a_lock_refuses_is_no_full_disk():
    with locked_database(), pytest.raises(OperationalError):
        StorageCheck.objects.create(at=timezone.now())
    assert storage.problem() is None


def test_a_request_that_was_refused_tells_all_processes(client):
    fill()
    client.get("/livez")
    assert StorageCheck.objects.filter(pk__gt=1).count() == 1


def test_between_two_checks_nothing_is_written():
    storage.problem()
    first = StorageCheck.objects.get().at
    storage.problem()
    assert StorageCheck.objects.get().at == first


def test_a_clock_that_is_set_back_keeps_nobody_from_checking(monkeypatch, pass_time):
    assert storage.problem() is None
    now, seconds = timezone.now, time.time
    monkeypatch.setattr(timezone, "now", lambda: now() - timedelta(days=1))
    monkeypatch.setattr(time, "time", lambda: seconds() - 86_400)
    pass_time(10)
    with locked_database():
        assert storage.problem() == "The database of this service is locked for longer than usual."


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


@pytest.mark.sqlite_only(reason="PostgreSQL has no such pragma")
def test_a_database_that_may_only_be_read_is_a_problem_until_it_is_not(pass_time, client, settings):
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON")
    try:
        assert storage.problem() == "The database of this service can't be written to."
        assert client.get("/healthz").status_code == 503
        assert client.get("/").status_code == 200
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA query_only = OFF")
    pass_time(10)
    assert storage.problem() is None


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
