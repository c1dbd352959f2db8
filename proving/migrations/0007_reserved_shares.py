from django.db import migrations, models

import queries.uint256


class Migration(migrations.Migration):
    dependencies = [("proving", "0006_signer_nonce_problem")]

    operations = [
        migrations.AddField(
            model_name="share",
            name="reserved_gas",
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="share",
            name="reserved_wei",
            field=queries.uint256.Uint256Field(db_default=0, default=0),
        ),
    ]
