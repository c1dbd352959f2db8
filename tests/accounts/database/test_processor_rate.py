"""The limit of processor time costs no statement."""

from collections.abc import Callable

import pytest
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext

from config.processor_rate import limited
from tests.explorer.batches import a_batch, path

# The application closes connections.
pytestmark = pytest.mark.django_db(transaction=True)


def test_no_page_writes_a_count_and_a_refused_one_asks_the_database_nothing(settings):
    application = limited(get_wsgi_application())
    pages = ["/", "/explorer", "/chains", "/sign-in", path(a_batch())]

    def get(page: str) -> tuple[str, list[str]]:
        statuses: list[str] = []

        def start(status: str, *_: object) -> Callable[[bytes], object]:
            statuses.append(status)
            return bytes

        with CaptureQueriesContext(connection) as queries:
            application(RequestFactory().get(page).environ, start)
        return statuses[0], [query["sql"] for query in queries]

    for page in pages:
        status, statements = get(page)
        assert status == "200 OK"
        assert [sql for sql in statements if not sql.startswith(("SELECT", "SAVEPOINT", "RELEASE"))] == []
    settings.PROCESSOR_PERCENT = 1
    application = limited(get_wsgi_application())
    answers = [get(page) for page in 20 * pages]
    assert ("429 Too Many Requests", []) in answers
