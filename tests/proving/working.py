"""Works as a worker does, until all batches are done, and counts its statements."""

from django.db import connection
from django.test.utils import CaptureQueriesContext

from chains import together
from proving.models import Signer
from proving.worker.due import due
from queries.models import Batch, BatchStatus, Block


def work_until_done() -> int:
    """Do what is due of one kind as one group. Return the number of its statements."""
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
