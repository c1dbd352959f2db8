from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("proving", "0009_beacon_data"),
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
