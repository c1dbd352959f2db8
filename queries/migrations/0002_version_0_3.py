"""The schema of version 0.3."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import F

from queries.waits import WaitField


def count_rejecting_checks(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    """Take over the count of batches that are not decided yet: with a code, `attempts` was that count."""
    doubted = apps.get_model("queries", "Batch").objects.filter(status="RECEIVED").exclude(rejection_code="")
    doubted.update(rejecting_checks=F("attempts"))


class Migration(migrations.Migration):
    dependencies = [("queries", "0001_before_0_3")]

    operations = [
        migrations.RemoveIndex(model_name="block", name="places"),
        migrations.RemoveField(model_name="batch", name="lease_token"),
        migrations.RemoveField(model_name="batch", name="leased_until"),
        migrations.RemoveField(model_name="batch", name="stored_bytes"),
        migrations.RemoveField(model_name="block", name="gathers_until"),
        migrations.RemoveField(model_name="block", name="lease_token"),
        migrations.RemoveField(model_name="block", name="leased_until"),
        migrations.RemoveField(model_name="block", name="queue_at"),
        migrations.RemoveField(model_name="pruning", name="lease_token"),
        migrations.RemoveField(model_name="pruning", name="leased_until"),
        migrations.RemoveField(model_name="query", name="estimated_gas"),
        migrations.RemoveField(model_name="query", name="is_admitted"),
        migrations.RemoveField(model_name="step", name="attempts"),
        migrations.RemoveField(model_name="webhook", name="lease_token"),
        migrations.RemoveField(model_name="webhook", name="leased_until"),
        migrations.AlterField(
            model_name="block",
            name="path_unit",
            field=models.CharField(blank=True, choices=[("hops", "Hops"), ("jumps", "Jumps")], max_length=8),
        ),
        migrations.RemoveIndex("block", "due_blocks"),
        migrations.RemoveIndex("block", "blocks_due_by_user"),
        migrations.RenameField("block", "turn_of", "queued_for"),
        migrations.AddIndex(
            "block",
            models.Index(
                condition=models.Q(("due_at__isnull", False)),
                fields=["destination_chain_id", "source_chain_id", "due_at", "queued_for"],
                name="due_blocks",
            ),
        ),
        migrations.AddIndex(
            "block",
            models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["queued_for"], name="blocks_due_by_user"
            ),
        ),
        migrations.AddField("batch", "rejecting_checks", models.PositiveIntegerField(db_default=0, default=0)),
        migrations.RunPython(count_rejecting_checks),
        migrations.AddField("batch", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("batch", "rejected_because", WaitField(null=True, blank=True)),
        migrations.AddField("block", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("step", "error", WaitField(null=True, blank=True)),
    ]
