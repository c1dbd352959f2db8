"""The schema of version 0.3."""

from datetime import timedelta

from django.apps.registry import Apps
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Q
from django.db.models.functions import Now
from django.db import migrations, models

from queries.waits import WaitField


def count_reservations(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    """Count what an older version than that has stored, and no worker since, as the maximum that it can cost."""
    counts = Q(state__in=("PENDING", "MINED", "CONFIRMED", "DISPLACED")) | Q(spent_at__gt=Now() - timedelta(days=2))
    rows = apps.get_model("proving", "Transaction").objects.filter(counts, reserved_gwei=None)
    for tx in rows.defer("data").prefetch_related("versions", "shares"):
        costs = [(version.gas_limit or tx.gas_limit) * version.max_fee_per_gas for version in tx.versions.all()]
        wei = max(costs, default=0) + max(tx.data_fee, tx.expected_data_fee)
        rows.filter(pk=tx.pk).update(reserved_gwei=min(2**53, -(-wei // 10**9)))
        total = sum(share.weight for share in tx.shares.all())
        for share in tx.shares.all():
            tx.shares.filter(pk=share.pk).update(reserved_gwei=min(2**53, -(-wei * share.weight // total // 10**9)))


class Migration(migrations.Migration):
    dependencies = [("proving", "0001_before_0_3")]

    operations = [
        # Databases of commit f79de48e still have them; no model does.
        migrations.RunSQL(["DROP TABLE IF EXISTS proving_signingstop", "DROP TABLE IF EXISTS proving_connectionpause"]),
        migrations.RunPython(count_reservations),
        migrations.RemoveField(model_name="beaconanchor", name="shipped"),
        migrations.RemoveField(model_name="chainwatch", name="attempts"),
        migrations.RemoveField(model_name="chainwatch", name="balance_costs"),
        migrations.RemoveField(model_name="chainwatch", name="failing_since"),
        migrations.RemoveField(model_name="chainwatch", name="lease_token"),
        migrations.RemoveField(model_name="chainwatch", name="leased_until"),
        migrations.RemoveField(model_name="chainwatch", name="sampled_at"),
        migrations.RemoveField(model_name="chainwatch", name="spent_by_signer"),
        migrations.RemoveField(model_name="factsregistry", name="events_read_to"),
        migrations.RemoveField(model_name="factsregistry", name="lease_token"),
        migrations.RemoveField(model_name="factsregistry", name="leased_until"),
        migrations.RemoveField(model_name="jumpleaves", name="lease_token"),
        migrations.RemoveField(model_name="jumpleaves", name="leased_until"),
        migrations.RemoveField(model_name="share", name="reserved_gas"),
        migrations.RemoveField(model_name="share", name="reserved_wei"),
        migrations.RemoveField(model_name="signer", name="lease_token"),
        migrations.RemoveField(model_name="signer", name="leased_until"),
        migrations.RemoveField(model_name="signer", name="paused_at"),
        migrations.RemoveField(model_name="signer", name="paused_because"),
        migrations.RemoveField(model_name="transaction", name="leads_to"),
        migrations.RemoveField(model_name="workerheartbeat", name="broker_problem"),
        migrations.RemoveField(model_name="workerheartbeat", name="clock_problem"),
        migrations.RemoveField(model_name="workerheartbeat", name="exchanges"),
        migrations.AddField(
            model_name="signer", name="receipt_problem", field=models.TextField(blank=True, db_default="", default="")
        ),
        migrations.AlterField(model_name="transaction", name="reserved_gwei", field=models.BigIntegerField(default=0)),
        migrations.DeleteModel(name="ParentFact"),
        migrations.AlterField("signedtransaction", "hash", models.CharField(max_length=66, null=True, unique=True)),
        migrations.AddField("factsregistry", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("signer", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("transaction", "error", WaitField(null=True, blank=True)),
    ]
