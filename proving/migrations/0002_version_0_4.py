from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("proving", "0001_version_0_3")]

    operations = [
        migrations.AddField("signedtransaction", "refused_at", models.DateTimeField(null=True)),
        migrations.AddField("signer", "accounted_nonce", models.PositiveBigIntegerField(null=True)),
        migrations.AddField("signer", "foreign_count", models.PositiveBigIntegerField(db_default=0, default=0)),
        migrations.AddField("signer", "foreign_since", models.DateTimeField(null=True)),
    ]
