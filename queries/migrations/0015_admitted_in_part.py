"""Batches that were admitted in part: what was still to come of them is waited for block by block from now on."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Count, Q
from django.utils import timezone


def admit_the_rest(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make the blocks due that were not admitted, and let the estimate of the batch count for all of it."""
    batches, blocks = apps.get_model("queries", "Batch"), apps.get_model("queries", "Block")
    admitted = {"asked": Count("queries"), "admitted": Count("queries", filter=Q(queries__is_admitted=True))}
    opened = batches.objects.filter(status__in=("ACCEPTED", "IN_PROGRESS"), queries__is_admitted=False).distinct()
    for pk in opened.values_list("pk", flat=True):
        batch = batches.objects.annotate(**admitted).get(pk=pk)
        share = batch.asked, max(1, batch.admitted)
        batch.estimated_gas = (batch.estimated_gas or 0) * share[0] // share[1]
        batch.estimated_wei = (batch.estimated_wei or 0) * share[0] // share[1]
        if batch.fee_is_estimate:
            batch.fee = batch.estimated_wei
        batch.save(update_fields=["estimated_gas", "estimated_wei", "fee"])
        waiting = blocks.objects.filter(queries__batch=pk, queries__is_admitted=False)
        ids = list(waiting.values_list("pk", flat=True))
        for first in range(0, len(ids), 500):
            some = blocks.objects.filter(pk__in=ids[first : first + 500])
            some.filter(turn_of=None).update(turn_of=batch.user_id)
            some.update(due_at=timezone.now())
        batch.queries.update(is_admitted=True)


class Migration(migrations.Migration):
    dependencies = [("queries", "0014_due_blocks")]

    operations = [migrations.RunPython(admit_the_rest, migrations.RunPython.noop)]
