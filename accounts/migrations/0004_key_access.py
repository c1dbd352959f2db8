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
    ]
