"""Statements written by hand say the same to every database."""

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from django.db import connection, transaction

from accounts import statements
from accounts.models import ThrottleCount, User
from devnet.devchain import PROJECT
from queries.models import Batch
from tests.accounts.wallets import ALICE
from tests.service import a_key, request, submit

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
HAND_WRITTEN = (
    *("accounts/keys.py", "accounts/throttle.py", "accounts/statements.py", "explorer/pages/changes.py"),
    *("queries/bulk_writes.py", "queries/clock.py", "queries/status.py", "queries/submission.py"),
)


@pytest.mark.parametrize(
    "at", ["2026-01-02 03:04:05.678901", AT.replace(tzinfo=None), AT, AT.astimezone(timezone(timedelta(hours=5)))]
)
def test_a_time_is_read_from_text_and_from_what_other_databases_return(at):
    assert statements.read(at) == AT


def test_a_time_of_a_whole_second_is_read():
    assert statements.read("2026-01-02 03:04:05") == AT.replace(microsecond=0)


def test_no_time_is_none():
    assert statements.read(None) is None


@pytest.mark.parametrize(("value", "is_true"), [(1, True), (True, True), (0, False), (False, False), (None, False)])
def test_a_truth_is_read_from_numbers_and_from_booleans(value, is_true):
    assert statements.read_boolean(value) is is_true


def test_a_time_is_stored_as_the_database_wants_it(monkeypatch):
    assert statements.stored(AT) == ("2026-01-02 03:04:05.678901" if connection.vendor == "sqlite" else AT)
    monkeypatch.setattr(connection.ops, "adapt_datetimefield_value", lambda at: at)
    assert statements.stored(AT) is AT


@pytest.mark.django_db
def test_what_is_stored_is_read_again():
    row = ThrottleCount.objects.create(what_and_who="a:1", began_at=datetime(2025, 1, 1, tzinfo=UTC))
    assert statements.run("UPDATE accounts_throttlecount SET began_at = %s", (statements.stored(AT),)) == 1
    row.refresh_from_db()
    assert row.began_at == AT
    ((began_at,),) = statements.every("SELECT began_at FROM accounts_throttlecount WHERE used < %s", (1,))
    assert statements.read(began_at) == AT


@pytest.mark.django_db
def test_an_object_is_what_django_would_read(unreachable_chain):
    key = a_key()
    batch = submit(key, request(ALICE.address, block=1, fee=2**255))
    batch.refresh_from_db()
    found = statements.objects(Batch, "WHERE id = %s", (batch.pk,), without=("request",))
    (read,) = found
    assert read.get_deferred_fields() == {"request"}
    for field in Batch._meta.concrete_fields:
        assert getattr(read, field.attname) == getattr(batch, field.attname), field
    read.status = "DONE"
    read.save(update_fields=["status"])
    assert Batch.objects.get().status == "DONE"


@pytest.mark.django_db(transaction=True)
def test_a_row_is_locked_where_rows_can_be(monkeypatch):
    user = User.objects.create(address=ALICE.address)
    said: list[str] = []

    def note(execute, sql, values, many, context):
        if not sql.startswith("BEGIN"):
            said.append(sql)
        return execute(sql.removesuffix(" FOR NO KEY UPDATE"), values, many, context)

    with connection.execute_wrapper(note), transaction.atomic():
        monkeypatch.setattr(connection.features, "has_select_for_update", False)
        statements.lock("accounts_user", user.pk)
        assert said == []
        monkeypatch.setattr(connection.features, "has_select_for_update", True)
        statements.lock("accounts_user", user.pk)
    assert said == ["SELECT id FROM accounts_user WHERE id = %s FOR NO KEY UPDATE"]


@pytest.mark.parametrize("path", HAND_WRITTEN)
def test_what_only_one_database_knows_is_in_one_place(path):
    text = Path(PROJECT / path).read_text()
    own = re.findall(
        r"(?i)\b(?:json_(?:group_)?array|strftime|datetime\('|group_concat|pragma|rowid|instr\(|ifnull|isoformat)", text
    )
    assert bool(own) == (path == "accounts/statements.py")
    assert ("connection.vendor" in text) == (path == "accounts/statements.py")
