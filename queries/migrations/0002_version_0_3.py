"""The schema of version 0.3."""

from django.db import migrations, models

from queries.waits import WaitField


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
        migrations.AddField("batch", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("batch", "rejected_because", WaitField(null=True, blank=True)),
        migrations.AddField("block", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("step", "error", WaitField(null=True, blank=True)),
    ]
