from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("proving", "0005_what_is_seen_of_chains")]

    operations = [
        migrations.AddField(
            model_name="signer",
            name="nonce_problem",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
    ]
