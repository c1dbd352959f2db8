from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("proving", "0012_leaves_and_anchors")]

    operations = [
        migrations.CreateModel(
            name="Lane",
            fields=[
                ("name", models.CharField(max_length=60, primary_key=True, serialize=False)),
                ("token", models.CharField(blank=True, max_length=32)),
                ("until", models.DateTimeField(null=True)),
            ],
        ),
    ]
