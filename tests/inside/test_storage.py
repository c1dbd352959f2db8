"""Errors of an unusable database."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import DatabaseError, OperationalError, connection, transaction

from config import error_answers

pytestmark = pytest.mark.django_db(transaction=True)


# --- PostgreSQL -------------------------------------------------------------------------------------------------------

of_postgresql = pytest.mark.postgresql_only(reason="SQLite has other codes, and neither pool nor server")


@of_postgresql
@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("SET TRANSACTION READ ONLY; DELETE FROM queries_storagecheck", error_answers.READ_ONLY),
        ("SET LOCAL statement_timeout = 1; SELECT pg_sleep(20)", error_answers.LOCKED),
        ("SELECT pg_terminate_backend(pg_backend_pid())", error_answers.AWAY),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '25P03'; END $$", error_answers.AWAY),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full'; END $$", error_answers.FULL),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'io_error'; END $$", error_answers.FULL),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'cannot_connect_now'; END $$", error_answers.AWAY),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'out_of_memory'; END $$", error_answers.AWAY),
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
    assert error_answers.why_unavailable(refused.value) == sentence


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
    assert error_answers.why_unavailable(refused.value) == error_answers.AWAY
