from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("proving", "0014_reserved_gwei")]

    operations = [
        migrations.AddField("transaction", "expected_gas", models.PositiveBigIntegerField(db_default=0, default=0)),
    ]
