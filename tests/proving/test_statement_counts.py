"""How many SQL statements a batch takes, from its submission to a page that shows that it is DONE."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from chains import together
from proving.models import Signer
from proving.worker.due import due
from queries.models import Batch, BatchStatus, Block
from tests.service import ALICE, a_key, header, request, submit

pytestmark = pytest.mark.django_db(transaction=True)

# Where rows are locked, that takes statements of its own.
_MOST = {"sqlite": 270, "postgresql": 296}


def work_until_done() -> int:
    """Work as a worker does, what is due of one kind as one group. Return the number of its statements."""
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
