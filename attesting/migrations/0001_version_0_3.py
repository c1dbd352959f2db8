"""The schema of version 0.3.0, whose migrations it replaces."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    replaces = [
        ("attesting", "0001_initial"),
    ]

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="SignedBlock",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source_chain_id", models.PositiveBigIntegerField()),
                ("number", models.PositiveBigIntegerField()),
                ("hash", models.CharField(max_length=66)),
                ("signed_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("source_chain_id", "number"), name="one_hash_per_number")
                ],
            },
        ),
    ]
