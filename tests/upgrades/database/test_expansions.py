"""Migrations of a database in use: each changes one table at a time, and goes on where it was killed."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.exceptions import IrreversibleError

from devnet.devchain import PROJECT
from tests.databases import same_database
from tests.upgrades import baselines
from tests.upgrades.schema import rows, schema

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside, pytest.mark.long]

migrate = partial(call_command, "migrate", verbosity=0)


@pytest.fixture(params=baselines.VERSIONS)
def version(request) -> str:
    """Return the version that wrote the database."""
    return str(request.param)


@pytest.fixture
def old(version, transactional_db, tmp_path, monkeypatch) -> Iterator[None]:
    with baselines.database_of(baselines.read(version), tmp_path, monkeypatch):
        yield


class Killed(BaseException):
    """The process ends before its next statement."""


def before_each(look: Callable[[str], object]) -> Any:
    """Return a context in which `look` gets each statement before the database does."""

    def execute(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        look(sql)
        return execute(sql, *rest)

    return connection.execute_wrapper(execute)


def test_a_killed_upgrade_goes_on_from_each_statement(version, transactional_db, tmp_path, monkeypatch):
    expected, content = schema(), baselines.read(version)
    for statements in count():
        left = statements

        def kill(sql: str) -> None:
            nonlocal left
            if not sql.startswith(("ALTER TABLE", 'INSERT INTO "django_migrations')):
                return
            if not left:
                raise Killed
            left -= 1

        with baselines.database_of(content, tmp_path, monkeypatch):
            try:
                with before_each(kill):
                    migrate()
            except Killed:
                connection.close()
                migrate()
                assert schema() == expected, statements
            else:
                break
    assert statements > 5


@pytest.mark.parametrize("back", [("accounts", "0001"), ("queries", "0001"), ("proving", "0002"), ("queries", "zero")])
def test_no_migration_goes_back(transactional_db, back):
    before = schema()
    with pytest.raises(IrreversibleError, match="would drop what was written since"):
        migrate(*back)
    assert schema() == before


@pytest.mark.postgresql_only(reason="SQLite has neither privileges nor locks of tables")
def test_an_upgrade_locks_one_table_at_a_time_and_rewrites_only_queries(old):
    files = "SELECT relname, relfilenode FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    locks = """
        SELECT DISTINCT relname FROM pg_locks JOIN pg_class ON relation = pg_class.oid
        WHERE pid = pg_backend_pid() AND mode IN ('ShareLock', 'AccessExclusiveLock') AND relkind = 'r'
            AND relname = ANY(%s)
    """
    before = dict(rows(files))
    locked = set()

    def look(_: str) -> None:
        found = connection.connection.execute(locks, [list(before)]).fetchall()
        locked.add(tuple(name for (name,) in found))

    with before_each(look):
        migrate()
    assert [tables for tables in locked if len(tables) > 1] == []
    assert any(locked)
    assert {name for name, file in rows(files) if before.get(name, file) != file} <= {"queries_query"}


@pytest.mark.postgresql_only(reason="SQLite has neither privileges nor locks of tables")
@pytest.mark.parametrize("version", ["0.3.0"])
def test_an_upgrade_beside_an_open_reader_lets_others_read(old):
    """A dump reads one table for long. The others' statements queue behind the migration, which soon stands back."""
    environment = {"PATH": os.environ["PATH"], **same_database()}
    url = environment["DATABASE_URL"]
    with closing(psycopg.connect(url)) as dump, closing(psycopg.connect(url, autocommit=True)) as web:
        dump.execute("SELECT count(*) FROM queries_query")
        web.execute("SET lock_timeout = '5s'")
        with subprocess.Popen(
            [sys.executable, "manage.py", "migrate"], cwd=PROJECT, env=environment, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr
            told = ""
            while "the table of query is in use" not in told:
                told = process.stderr.readline()
                assert told, "it has ended"
                web.execute("SELECT count(*) FROM queries_query")
            dump.rollback()
            assert process.wait() == 0, process.stderr.read()
        assert web.execute("SELECT count(kind) > 0 FROM queries_query").fetchone() == (True,)
