"""Leaves of jumps are fetched by themselves, and say why they are not; no summaries are shipped."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def forget_shipped(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    """Forget the anchors that go on from what was shipped. The next jump begins at another block."""
    rows = apps.get_model("proving", "BeaconAnchor").objects.filter(shipped__gt=0)
    sources = list(rows.values_list("chain_id", flat=True).distinct())
    apps.get_model("proving", "FactsRegistry").objects.filter(source_chain_id__in=sources).update(jump_origin=None)
    rows.delete()


class Migration(migrations.Migration):
    dependencies = (("proving", "0011_stops"),)

    operations = (
        migrations.AddField("jumpleaves", "problem", models.TextField(blank=True, db_default="", default="")),
        migrations.RunPython(forget_shipped, migrations.RunPython.noop),
    )
