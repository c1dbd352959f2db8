from django.db import migrations, models
from django.db.models import Case, Q, Value, When

from config.database.expansions import Expansion


class Migration(Expansion):
    dependencies = [
        ("queries", "0001_version_0_3"),
    ]

    operations = [
        migrations.AddField(
            model_name="query",
            name="kind",
            field=models.GeneratedField(
                db_persist=True,
                expression=Case(
                    When(~Q(address=""), then=Value("ACCOUNT")),
                    When(~Q(transaction_name=""), then=Value("TRANSACTION")),
                    default=Value("HEADER"),
                ),
                output_field=models.CharField(
                    choices=[("ACCOUNT", "Account"), ("TRANSACTION", "Entry"), ("HEADER", "Header")], max_length=16
                ),
            ),
        ),
        # Version 0.3.0 leaves the column out, so it is null.
        migrations.AddField("batch", "label", models.CharField(max_length=100, null=True, blank=True)),
        migrations.AddIndex(
            "batch", models.Index(fields=["user", "label"], condition=Q(label__isnull=False), name="batches_by_label")
        ),
        # Only versions before 0.3.0 wrote these columns. Version 0.3.0 empties them.
        migrations.AlterField("batch", "waiting_for", models.TextField(blank=True, db_default="")),
        migrations.AlterField("block", "waiting_for", models.TextField(blank=True, db_default="")),
        migrations.AlterField("step", "last_error", models.TextField(blank=True, db_default="")),
        # Version 0.5.0 drops them.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveField("batch", "waiting_for"),
                migrations.RemoveField("block", "waiting_for"),
                migrations.RemoveField("step", "last_error"),
            ]
        ),
    ]
