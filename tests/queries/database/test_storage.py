"""The check of storage by a small write, and its messages."""

import shutil

import pytest
from django.db import connection
from django.test import Client

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.outside]


def problem() -> str | None:
    """Return the problem with storage that `/healthz` reports."""
    told = Client().get("/healthz").json()
    return next((says for code, says in zip(told["codes"], told["problems"], strict=True) if code == "storage"), None)


@pytest.mark.sqlite_only(reason="PostgreSQL may be on another machine, with another disk")
def test_a_disk_on_which_no_large_batch_has_room_is_a_problem(monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_230_000))
    assert problem() == "The disk of this service is nearly full: 1.2 MB are left."


@pytest.mark.sqlite_only(reason="PostgreSQL has no such pragma")
def test_a_database_that_may_only_be_read_is_a_problem_until_it_is_not(pass_time, client, settings):
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON")
    try:
        assert problem() == "The database of this service can't be written to."
        assert client.get("/healthz").status_code == 503
        assert client.get("/").status_code == 200
    finally:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA query_only = OFF")
    pass_time(10)
    assert problem() is None
