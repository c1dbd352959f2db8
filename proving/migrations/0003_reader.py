from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("proving", "0002_version_0_3")]

    operations = [
        migrations.AddField(
            "factsregistry", "reader", models.CharField(max_length=42, blank=True, db_default="", default="")
        ),
    ]
