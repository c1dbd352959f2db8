import queries.waits
from config.database.expansions import Expansion
from django.db import migrations, models


class Migration(Expansion):
    dependencies = [("proving", "0001_version_0_3")]

    operations = [
        migrations.AddField("signedtransaction", "refused_at", models.DateTimeField(null=True)),
        migrations.AddField("signer", "accounted_nonce", models.PositiveBigIntegerField(null=True)),
        migrations.AddField("signer", "foreign_count", models.PositiveBigIntegerField(db_default=0, default=0)),
        migrations.AddField("signer", "foreign_since", models.DateTimeField(null=True)),
        migrations.AddField("signer", "wait_seen_at", models.DateTimeField(null=True)),
        migrations.AddField("signer", "nonce_fault", queries.waits.WaitField(blank=True, null=True)),
        migrations.AddField("signer", "receipt_fault", queries.waits.WaitField(blank=True, null=True)),
        # Only versions before 0.3.0 wrote this column. Version 0.3.0 empties it.
        migrations.AlterField("signer", "notice", models.TextField(blank=True, db_default="")),
        migrations.AddField("chainwatch", "proofs_measured_at", models.DateTimeField(null=True)),
        migrations.AddField("chainwatch", "measured_head", models.PositiveBigIntegerField(null=True)),
        migrations.AddField("chainwatch", "oldest_provable", models.PositiveBigIntegerField(null=True)),
        migrations.AddField("chainwatch", "proving_nodes", models.JSONField(db_default=[], default=list)),
        migrations.AddField("factsregistry", "risk", queries.waits.WaitField(blank=True, null=True)),
        migrations.AddField("factsregistry", "risk_seen_at", models.DateTimeField(null=True)),
        # Codes stand in other columns instead of this sentence. Version 0.3.0 may write it.
        migrations.AlterField("factsregistry", "notice", models.TextField(blank=True, db_default="")),
        # Only versions before 0.3.0 wrote this column. Version 0.3.0 empties it.
        migrations.AlterField("factsregistry", "waiting_for", models.TextField(blank=True, db_default="")),
        migrations.AddField("workerheartbeat", "has_old_chains", models.BooleanField(db_default=False, default=False)),
        # Codes stand in other columns instead of this sentence. Version 0.3.0 may write it.
        migrations.AlterField("transaction", "last_error", models.TextField(blank=True, db_default="")),
        # Header properties that come with forks aren't listed.
        migrations.AlterField("blocktrie", "root", models.PositiveSmallIntegerField()),
        # The words of the codes are others, and the column is the same.
        migrations.AlterField(
            "stop",
            "code",
            models.CharField(
                choices=[
                    ("operator", ""),
                    ("not_believed", "Nodes repeatedly report impossible states of the signer's transactions."),
                ],
                default="operator",
                max_length=20,
            ),
        ),
        # Version 0.5.0 drops them.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveField("factsregistry", "waiting_for"),
                migrations.RemoveField("factsregistry", "notice"),
                migrations.RemoveField("signer", "notice"),
                migrations.RemoveField("signer", "nonce_problem"),
                migrations.RemoveField("signer", "receipt_problem"),
                migrations.RemoveField("transaction", "last_error"),
            ]
        ),
    ]
