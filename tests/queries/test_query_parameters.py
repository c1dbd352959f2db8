"""What becomes of a request whose query parameter is malformed."""

import gc
import logging

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.test import Client

from tests.service import a_key, header

pytestmark = [pytest.mark.django_db, pytest.mark.outside]

REQUESTS = 20


@pytest.fixture
def no_logs():
    """Else pytest keeps records, which have the request."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def kept() -> int:
    gc.collect()
    # Not `isinstance`: lazy objects of other tests would be evaluated for it.
    return sum(type(each) is WSGIRequest for each in gc.get_objects())


@pytest.mark.parametrize(
    "path",
    [
        *("/facts?account=x", "/facts?block=x", "/facts?block=1&slot=x", "/facts?block=1&sourceChainId=x"),
        *("/batch-queries?account=x", "/batch-queries?createdAfter=0001-01-01T00:00:00%2B14:00"),
        *("/batch-queries?limit=x", "/batch-query-status?wait=x", "/webhook-deliveries?cursor=x"),
    ],
)
def test_no_request_stays_in_memory(no_logs, path):
    fields, before = header(a_key()), kept()
    for _ in range(REQUESTS):
        assert Client().get(path, headers=fields).status_code == 400
    assert kept() - before < REQUESTS / 2
