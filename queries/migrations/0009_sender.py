from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0008_account_names"),
    ]

    operations = [
        migrations.AddField(
            model_name="batch",
            name="sender",
            field=models.CharField(
                choices=[("operator", "Operator"), ("self", "Self")],
                db_default="operator",
                default="operator",
                max_length=8,
            ),
        ),
    ]
