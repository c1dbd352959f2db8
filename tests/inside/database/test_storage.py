"""Errors of an unusable database."""

import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import psycopg
import pytest
from django.db import DatabaseError, InternalError, OperationalError, connection, transaction

from config import error_answers
from tests.databases import same_database
from tests.factories import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_error_with_which_a_pooler_ends_the_connection_is_told_from_a_defect():
    """Supavisor ends connections with `db_termination` and the SQLSTATE of an internal error."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!i", len(body) + 4) + body

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(1000)
            client.sendall(message(b"R", bytes(4)) + message(b"Z", b"I"))
            client.recv(1000)
            client.sendall(message(b"E", b"SFATAL\0VFATAL\0CXX000\0Mdb_termination\0\0"))

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as server:
        served = server.submit(serve)
        url = f"postgresql://u@127.0.0.1:{listener.getsockname()[1]}/d?sslmode=disable&gssencmode=disable"
        with pytest.raises(psycopg.InternalError) as ended:
            psycopg.connect(url, autocommit=True).execute("SELECT 1")
        served.result(10)
    error = InternalError()
    error.__cause__ = ended.value
    assert error_answers.why_unavailable(error) == error_answers.AWAY


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
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '25P04'; END $$", error_answers.AWAY),  # transaction_timeout
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'data_corrupted'; END $$", error_answers.FULL),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'index_corrupted'; END $$", error_answers.FULL),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege'; END $$", error_answers.READ_ONLY),
        ("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'internal_error'; END $$", None),
        ("SELECT * FROM no_table", None),
        ("SELECT 1 / 0", None),
        ("COMMIT; VACUUM no_table", None),
    ],
)
def test_refusals_by_postgresql_are_told_from_defects(sql, sentence):
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


@of_postgresql
def test_an_error_without_a_connection_says_what_the_server_said(monkeypatch):
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # as above
    with monkeypatch.context() as wrong:
        wrong.setitem(connection.settings_dict, "NAME", "nowhere")
        wrong.setitem(connection.settings_dict["OPTIONS"]["pool"], "timeout", 0.5)
        with pytest.raises(OperationalError, match=r'0\.50 sec: .* database "nowhere" does not exist$') as refused:
            connection.ensure_connection()
        connection.close_pool()  # type: ignore[attr-defined]  # as above
    assert error_answers.why_unavailable(refused.value) == error_answers.AWAY


@of_postgresql
def test_a_restart_that_broke_many_connections_of_the_pool_delays_no_request():
    held = Barrier(8)

    def hold() -> None:
        connection.ensure_connection()
        held.wait(20)
        connection.close()

    assert at_once(*[hold] * 8) == [None] * 8
    with psycopg.connect(same_database()["DATABASE_URL"], autocommit=True) as admin:
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        admin.execute(f"SELECT pg_terminate_backend(pid, 5000) {others}")
    began = time.monotonic()
    connection.ensure_connection()
    assert time.monotonic() - began < 1


@of_postgresql
def test_a_migration_has_time_limits_of_its_own_and_leaves_none_behind():
    names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")

    def limits() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}")
            return [*cursor.fetchone()]

    with connection.schema_editor():
        assert limits() == ["20s", "0", "1min"]
    assert limits() == ["20s", "0", "5s"]
