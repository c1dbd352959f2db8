from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("proving", "0015_expected_gas")]

    operations = [
        migrations.AddField("signer", "receipt_problem", models.TextField(blank=True, db_default="", default="")),
    ]
