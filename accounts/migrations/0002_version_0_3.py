"""The schema of version 0.3."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_before_0_3")]

    operations = [
        # Databases of commit f79de48e still have them; no model does.
        migrations.RunSQL(["DROP TABLE IF EXISTS accounts_operatordeed"]),
        migrations.RemoveField(model_name="user", name="daily_gas_budget"),
        migrations.RemoveField(model_name="user", name="max_open_blocks"),
        migrations.RemoveField(model_name="user", name="max_stored_megabytes"),
        migrations.RemoveField(model_name="user", name="stored_bytes"),
        migrations.DeleteModel(name="KeyUse"),
    ]
