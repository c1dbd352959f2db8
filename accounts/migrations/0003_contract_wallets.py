"""Contract wallets are users of their chain. Nobody knows which of the users before are contract wallets."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_version_0_3")]

    operations = [
        migrations.AlterField(model_name="user", name="address", field=models.CharField(max_length=42)),
        migrations.AddField(
            model_name="user",
            name="chain_id",
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="user",
            name="own_key_known",
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.UniqueConstraint(
                condition=models.Q(("chain_id", None)), fields=("address",), name="one_user_per_own_key"
            ),
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.UniqueConstraint(fields=("address", "chain_id"), name="one_user_per_contract_wallet"),
        ),
    ]
