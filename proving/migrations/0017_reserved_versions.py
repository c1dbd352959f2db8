from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("proving", "0016_receipt_problem")]

    operations = [
        migrations.AlterField("signedtransaction", "hash", models.CharField(max_length=66, null=True, unique=True)),
    ]
