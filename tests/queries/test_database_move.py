"""`manage.py move_database`: all of an installation, or nothing of it."""

import os
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from accounts.models import ApiKey, KeyUse, User
from demo.installation import MANAGE
from proving.models import Transaction
from queries.models import Batch, Query, Step
from tests.databases import same_database
from tests.service import ALICE, BOB, a_key

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql_only(reason="it is PostgreSQL that is moved to"),
]

FEE = 2**256 - 1
AT = datetime(2025, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
# An installation with a row of every kind of value. It is all of long ago.
FILL = f"""
from datetime import datetime, UTC
from django.contrib.sessions.models import Session
from accounts import keys
from accounts.models import KeyUse, User
from proving.models import ChainWatch, Signer, Transaction
from queries import submission
from queries.models import Batch, Query, Step
at = datetime.fromisoformat("{AT.isoformat()}")
key = keys.issue(User.objects.for_address("{ALICE}"), "näme \\U0001f511")
KeyUse.objects.create(key=key, hour=at, requests=2**40)
batch = Batch.objects.create(user=key.user, api_key=key, destination_chain_id=2**62, fee={FEE}, request="{{}}",
                             created_at=at, deadline_at=at)
block = submission.find_blocks(2**62, [(1, 2**60)])[1, 2**60]
queries = [Query.objects.create(batch=batch, source_chain_id=1, block_id=block, position=n, slots=["0x1", "0x2"])
           for n in range(1200)]
Step.objects.create(query=queries[0], kind="INITIAL_STATE", started_at=at)
signer = Signer.objects.create(chain_id=1, address="{BOB}")
tx = Transaction.objects.create(signer=signer, nonce=3, data=bytes(range(256)),
                                gas_limit=2**50, gas_price={FEE}, succeeded=False)
tx.queries.set(queries)
ChainWatch.objects.create(chain_id=7, problems=[["code", "A sentence."]])
Session.objects.create(session_key="s" * 32, session_data="x", expire_date=at)
"""


def manage(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"STATE_DIR": str(folder), **variables}
    env |= {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "SQLITE_FILE"}}
    return subprocess.run([*MANAGE, *arguments], env=env, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installation")
    manage(folder, "migrate", "-v", "0")
    manage(folder, "shell", "--no-imports", "-c", FILL)
    return Path(folder / "db.sqlite3")


@pytest.fixture
def file(filled, tmp_path) -> Path:
    """One of its own."""
    with closing(sqlite3.connect(filled)) as whole, closing(sqlite3.connect(tmp_path / "db.sqlite3")) as copy:
        whole.backup(copy)
    return Path(tmp_path / "db.sqlite3")


def change(file: Path, sql: str) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(sql)


def is_empty() -> bool:
    names = ("accounts", "queries", "proving", "sessions")
    models = [model for name in names for model in apps.get_app_config(name).get_models(include_auto_created=True)]
    return not any(model._base_manager.exists() for model in models)


def test_everything_is_moved_exactly_and_ids_go_on_where_they_were(file, capsys):
    call_command("move_database", str(file))
    said = capsys.readouterr().out
    assert "DIFFERS" not in said
    assert "hold the same in PostgreSQL" in said
    assert {"django_migrations", "django_session", "proving_transaction_queries", "queries_query"} <= {
        line.split()[0] for line in said.splitlines()
    }
    batch, tx = Batch.objects.get(), Transaction.objects.get()
    assert (batch.fee, batch.created_at, batch.destination_chain_id) == (FEE, AT, 2**62)
    assert (bytes(tx.data), tx.gas_price, tx.succeeded, tx.hash) == (bytes(range(256)), FEE, False, "")
    assert tx.queries.count() == Query.objects.count() == 1200
    assert {tuple(slots) for slots in Query.objects.values_list("slots", flat=True)} == {("0x1", "0x2")}
    assert ApiKey.objects.get().name == "näme \U0001f511"
    assert KeyUse.objects.get().requests == 2**40
    # No id is given again.
    last = Step.objects.get().pk
    query = Query.objects.order_by("pk")[1]
    assert Step.objects.create(query=query, kind="INITIAL_STATE", started_at=timezone.now()).pk > last
    assert User.objects.for_address(BOB).pk > User.objects.get(address=ALICE).pk


HEARTBEAT = "worker, started_at, beat_at, clock_problem"


def trigger(table: str, body: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
        cursor.execute(f"CREATE TRIGGER fault BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fault()")


@pytest.fixture
def no_fault_is_left(transactional_db) -> Iterator[None]:
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION IF EXISTS fault CASCADE")


@pytest.mark.parametrize(
    ("table", "body"),
    [
        ("queries_query", "NEW.position := NEW.position + 5000; RETURN NEW;"),
        ("queries_query", "NEW.slots := '[]'; RETURN NEW;"),
        ("queries_batch", "NEW.created_at := NEW.created_at + interval '1 microsecond'; RETURN NEW;"),
        ("proving_transaction", "NEW.data := NEW.data || '\\x00'; RETURN NEW;"),
        ("proving_transaction", "NEW.succeeded := NULL; RETURN NEW;"),
        ("queries_step", "RETURN NULL;"),
    ],
)
def test_what_comes_out_different_is_noticed_and_nothing_is_moved(no_fault_is_left, file, capsys, table, body):
    trigger(table, body)
    with pytest.raises(CommandError, match=f"came out different: {table}"):
        call_command("move_database", str(file))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "DIFFERS" in line)
    assert line.startswith(table)
    assert is_empty()


def test_what_refers_to_nothing_is_refused(file):
    change(file, "DELETE FROM queries_block")
    with pytest.raises(CommandError, match=r"Nothing was moved: .*violates foreign key"):
        call_command("move_database", str(file))
    assert is_empty()


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        (
            "DELETE FROM django_migrations WHERE app = 'proving'",
            "not migrated to the same version: proving.0001_initial",
        ),
        ("CREATE TABLE notes (id integer)", "has tables that are not this service's: notes"),
        (
            "INSERT INTO queries_storagecheck (id, at) VALUES (1, strftime('%Y-%m-%d %H:%M:%f'))",
            "has written to the file in the last 30 seconds",
        ),
        (
            "UPDATE queries_batch SET created_at = strftime('%Y-%m-%d %H:%M:%f')",
            "has written to the file in the last 30 seconds",
        ),
        (
            f"INSERT INTO proving_workerheartbeat ({HEARTBEAT}) VALUES ('one', datetime('now'), datetime('now'), '')",
            "has written to the file in the last 30 seconds",
        ),
    ],
)
def test_a_file_that_is_in_use_or_of_another_version_is_refused(file, sql, sentence):
    change(file, sql)
    with pytest.raises(CommandError, match=sentence):
        call_command("move_database", str(file))
    assert is_empty()


def test_a_file_that_somebody_is_writing_to_is_refused(file):
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(CommandError, match="Nothing was moved: database is locked"):
            call_command("move_database", str(file))


def test_no_database_is_overwritten(file):
    a_key(BOB)
    with pytest.raises(CommandError, match="not empty: there are rows in accounts_user, accounts_apikey"):
        call_command("move_database", str(file))
    assert User.objects.get().address == BOB


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(CommandError, match="There is no file"):
        call_command("move_database", str(tmp_path / "none.sqlite3"))
    assert not (tmp_path / "none.sqlite3").exists()


def test_sqlite_is_not_moved_to(file, monkeypatch):
    monkeypatch.setattr(connection, "vendor", "sqlite")
    with pytest.raises(CommandError, match="Set DATABASE_URL"):
        call_command("move_database", str(file))


def test_killed_on_its_way_it_has_moved_nothing(no_fault_is_left, file, tmp_path):
    trigger("queries_step", "PERFORM pg_sleep(60); RETURN NEW;")
    env = {**os.environ, "STATE_DIR": str(tmp_path), **same_database()}
    moving = subprocess.Popen([*MANAGE, "move_database", str(file)], env=env)
    try:
        with psycopg.connect(same_database()["DATABASE_URL"], autocommit=True) as watching:
            deadline = time.monotonic() + 60
            asleep = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
            while not (found := watching.execute(asleep).fetchone()):
                assert moving.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            moving.kill()
            assert is_empty()
            # It would find out by itself when it wakes up.
            watching.execute("SELECT pg_terminate_backend(%s, 10000)", found)
    finally:
        moving.kill()
        moving.wait()
    assert is_empty()
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION fault CASCADE")
    call_command("move_database", str(file))
    assert Step.objects.count() == 1


def test_backups_are_left_to_pg_dump(tmp_path):
    with pytest.raises(CommandError, match="pg_dump"):
        call_command("backup", str(tmp_path / "copy"))
