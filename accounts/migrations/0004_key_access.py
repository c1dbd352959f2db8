from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_contract_wallets")]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="access",
            field=models.CharField(
                choices=[("full", "Full access"), ("read", "Read only")],
                db_default="full",
                default="full",
                max_length=4,
            ),
        ),
        migrations.AlterField(
            model_name="accountevent",
            name="kind",
            field=models.CharField(
                choices=[
                    ("signed_in", "Signed in"),
                    ("signed_out", "Signed out"),
                    ("signed_out_everywhere", "Signed out everywhere"),
                    ("key_made", "Key created"),
                    ("key_shown", "Key shown or copied"),
                    ("key_rotated", "Key rotated"),
                    ("key_revoked", "Key revoked"),
                    ("webhook_secret_shown", "Webhook secret shown or copied"),
                    ("webhook_secret_rotated", "Webhook secret rotated"),
                ],
                max_length=30,
            ),
        ),
    ]
