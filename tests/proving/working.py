"""Proves a batch as a worker does, and counts its statements: what is due of one kind is one group."""

from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import ApiKey
from chains import together
from proving.models import Signer
from proving.worker.due import due
from queries.models import Batch, BatchStatus, Block
from tests.service import header, submit


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
