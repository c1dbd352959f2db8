from config.database.expansions import Expansion
from django.db import migrations, models


class Migration(Expansion):
    dependencies = [("proving", "0002_version_0_4")]

    operations = [
        # The table of reports becomes that of problems, and keeps its name. Version 0.4.0 goes on writing reports.
        migrations.AddField(
            "problemreport", "seen_by", models.CharField(blank=True, db_default="", default="", max_length=20)
        ),
        migrations.AddField("problemreport", "chain_id", models.PositiveBigIntegerField(db_default=0, default=0)),
        migrations.AddField("problemreport", "shown", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField("problemreport", "public", models.TextField(blank=True, db_default="", default="")),
        # Problems are rows of their own. Version 0.4.0 writes and reads this column.
        migrations.AlterField("chainwatch", "problems", models.JSONField(db_default=[], default=list)),
        migrations.AddField(
            "transaction",
            "failure",
            models.CharField(
                choices=[("out_of_gas", "Out Of Gas"), ("outdated", "Outdated"), ("reverted", "Reverted")],
                max_length=10,
                null=True,
            ),
        ),
        migrations.AddField("signer", "foreign_is_suspected", models.BooleanField(null=True)),
        migrations.AddField("signer", "accounted_is_doubtful", models.BooleanField(null=True)),
        migrations.AddField("factsregistry", "history_end", models.PositiveBigIntegerField(null=True)),
        migrations.AddField("chainhead", "gas_limit", models.PositiveBigIntegerField(db_default=0, default=0)),
        migrations.AddField("chainhead", "gas_prices", models.CharField(db_default="", default="", max_length=20)),
        migrations.AddField("chainhead", "gas_prices_at", models.DateTimeField(null=True)),
        migrations.AddField("chainhead", "gas_scale", models.FloatField(db_default=1, default=1)),
        migrations.AddField("chainhead", "timestamp", models.PositiveBigIntegerField(db_default=0, default=0)),
        migrations.AddField("chainhead", "final_timestamp", models.PositiveBigIntegerField(null=True)),
        migrations.AddField("chainhead", "fork", models.JSONField(null=True)),
        migrations.AddField("workerheartbeat", "unanswered", models.JSONField(db_default=[], default=list)),
        migrations.AlterField(
            "jumpleaves",
            "kind",
            models.CharField(choices=[("period", "Period"), ("epoch", "Epoch"), ("state", "State")], max_length=6),
        ),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RenameModel("ProblemReport", "Problem"),
                migrations.AlterModelTable("problem", "proving_problemreport"),
                migrations.RemoveField("chainwatch", "problems"),
            ]
        ),
    ]
