from django.db import migrations, models
from django.db.models import Case, Q, Value, When


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0001_version_0_3"),
    ]

    operations = [
        migrations.AddField(
            model_name="query",
            name="kind",
            field=models.GeneratedField(
                db_persist=True,
                expression=Case(
                    When(~Q(address=""), then=Value("ACCOUNT")),
                    When(~Q(transaction_name=""), then=Value("TRANSACTION")),
                    default=Value("HEADER"),
                ),
                output_field=models.CharField(
                    choices=[("ACCOUNT", "Account"), ("TRANSACTION", "Entry"), ("HEADER", "Header")], max_length=16
                ),
            ),
        ),
    ]
