from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0002_version_0_3"),
    ]

    operations = [
        migrations.AddField(
            model_name="query",
            name="block_logs",
            field=models.JSONField(db_default=[], default=list),
        ),
        migrations.AddField(
            model_name="query",
            name="block_of",
            field=models.CharField(blank=True, db_default="", default="", max_length=66),
        ),
        migrations.AddField(
            model_name="query",
            name="first_log",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="query",
            name="logs",
            field=models.JSONField(db_default=[], default=list),
        ),
        migrations.AddField(
            model_name="query",
            name="transaction_name",
            field=models.CharField(blank=True, db_default="", default="", max_length=66),
        ),
        migrations.AddField(
            model_name="query",
            name="transaction_index",
            field=models.PositiveIntegerField(null=True),
        ),
    ]
