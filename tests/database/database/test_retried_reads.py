"""A read that the database ends because of a deadlock is made again."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from django.db import connection
from django.test import Client

from tests import databases, service
from tests.users import header

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.long,
    pytest.mark.postgresql_only(reason="SQLite has neither privileges nor locks of tables"),
]
WAITS = "SELECT count(*) FROM pg_locks WHERE NOT granted"


def test_a_poll_that_waits_in_a_circle_for_tables_is_answered():
    key = service.a_key()
    url = databases.same_database()["DATABASE_URL"]

    def poll() -> int:
        try:
            return Client().get("/batch-query-status?batchQueryId=none", headers=header(key)).status_code
        finally:
            connection.close()

    with closing(psycopg.connect(url)) as other, ThreadPoolExecutor(1) as pool:
        # The poll looks for a circle after a second, and the other transaction later.
        other.execute("SET LOCAL deadlock_timeout = '20s'")
        # A poll reads the key, and then the key's user.
        other.execute("LOCK TABLE accounts_user IN ACCESS EXCLUSIVE MODE")
        polled = pool.submit(poll)
        with closing(psycopg.connect(url, autocommit=True)) as third:
            while third.execute(WAITS).fetchone() == (0,):
                pass
        other.execute("LOCK TABLE accounts_apikey IN ACCESS EXCLUSIVE MODE")
        other.commit()
        assert polled.result() == 404
