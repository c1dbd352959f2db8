"""How many SQL statements a batch takes, from its submission to a page that shows that it is DONE."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.proving.working import work_until_done
from tests.service import ALICE, a_key, header, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

# Where rows are locked, that takes statements of its own.
_MOST = {"sqlite": 270, "postgresql": 296}


def test_one_batch_alone(service, client: Client):
    key = a_key()
    submit(key, request(ALICE, block=1))
    work_until_done()  # what is done once, for all batches
    service.mine()
    with CaptureQueriesContext(connection) as submitted:
        batch = submit(key, request(ALICE, block=service.head()))
    worked = work_until_done()
    with CaptureQueriesContext(connection) as shown:
        assert client.get(f"/explorer/query/{batch.pk}", headers=header(key)).status_code == 200
    assert len(submitted) + worked + len(shown) <= _MOST[connection.vendor]
