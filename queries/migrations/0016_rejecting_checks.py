"""The checks in a row that would have rejected a batch have a column of their own."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import F


def count_apart(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Take over the count of batches that are not decided yet: with a code, `attempts` was that count."""
    doubted = apps.get_model("queries", "Batch").objects.filter(status="RECEIVED").exclude(rejection_code="")
    doubted.update(rejecting_checks=F("attempts"))


class Migration(migrations.Migration):
    dependencies = [("queries", "0015_admitted_in_part")]

    operations = [
        migrations.AddField(
            model_name="batch",
            name="rejecting_checks",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.RunPython(count_apart, migrations.RunPython.noop),
    ]
