"""How many SQL statements a batch takes, from its submission to a page that shows that it is DONE.

It is proven as by a worker: what is due of one kind is one group.
"""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import ApiKey
from chains import together
from proving.models import Signer
from proving.worker.due import due
from queries.models import Batch, BatchStatus, Block
from tests.service import ALICE, a_key, header, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

# Where rows are locked, that takes statements of its own.
_MOST = {"sqlite": 150, "postgresql": 158}
_MOST_IN_A_GROUP = {"sqlite": 42, "postgresql": 42}
_GROUP = 64


@pytest.fixture
def key(service, settings):
    """A key of somebody one of whose batches is DONE: what is done once, for all batches, is done."""
    settings.MAX_BATCHES_PER_MINUTE = 1000
    key = a_key()
    submit(key, request(ALICE, block=1))
    work_on_all()
    service.mine(_GROUP)
    return key


def test_one_batch_alone(service, client: Client, key):
    statements = prove_and_show(client, key, request(ALICE, block=service.head()))
    assert statements <= _MOST[connection.vendor]


def test_each_of_a_group(service, client: Client, key):
    """Each is about a block of its own."""
    asked = [request(ALICE, block=service.head() - place) for place in range(_GROUP)]
    statements = prove_and_show(client, key, *asked)
    assert statements <= _GROUP * _MOST_IN_A_GROUP[connection.vendor]


def prove_and_show(client: Client, key: ApiKey, *asked: dict[str, Any]) -> int:
    """Submit these, work until all are DONE, and show the page of each. Return the number of statements."""
    with CaptureQueriesContext(connection) as submitted:
        batches = [submit(key, one) for one in asked]
    worked = work_on_all()
    with CaptureQueriesContext(connection) as shown:
        pages = [client.get(f"/explorer/query/{batch.pk}", headers=header(key)) for batch in batches]
    for batch, page in zip(batches, pages, strict=True):
        assert page.status_code == 200
        assert batch.pk in page.text
    return len(submitted) + worked + len(shown)


def work_on_all() -> int:
    """Work until all batches are DONE. Return the number of statements."""
    statements = 0
    for _ in range(5):
        for model in (Batch, Block, Signer):
            # Time passes.
            model.objects.filter(due_at__isnull=False).update(due_at="2026-01-01T00:00:00Z")
            with CaptureQueriesContext(connection) as captured:
                together.run([task for task in due() if task.kind == model.__name__.lower()])
            statements += len(captured)
        if not Batch.objects.exclude(status=BatchStatus.DONE).exists():
            return statements
    raise AssertionError("not done")
