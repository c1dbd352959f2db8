from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("proving", "0008_balance_costs"),
    ]

    operations = [
        migrations.AddField(
            model_name="factsregistry",
            name="beacon_history",
            field=models.CharField(blank=True, db_default="", default="", max_length=42),
        ),
        migrations.AddField(
            model_name="factsregistry",
            name="jump_origin",
            field=models.PositiveBigIntegerField(null=True),
        ),
    ]
