from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queries", "0003_transactions")]

    operations = [
        migrations.AlterField(
            model_name="webhook",
            name="batch",
            field=models.OneToOneField(
                db_constraint=False,
                on_delete=models.deletion.CASCADE,
                primary_key=True,
                related_name="webhook",
                serialize=False,
                to="queries.batch",
            ),
        ),
        migrations.AlterField(
            model_name="webhookdelivery",
            name="event",
            field=models.CharField(
                choices=[
                    ("DONE", "Done"),
                    ("REJECTED", "Rejected"),
                    ("WENT_BACK", "Went Back"),
                    ("STEP", "Step"),
                    ("TEST", "Test"),
                ],
                max_length=16,
            ),
        ),
        migrations.AddIndex("webhook", models.Index(fields=["user", "batch"], name="queries_web_user_id_e065a8_idx")),
    ]
