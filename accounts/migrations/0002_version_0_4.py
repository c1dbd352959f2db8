from django.db import migrations, models

from config.database.expansions import Expansion


class Migration(Expansion):
    dependencies = [("accounts", "0001_version_0_3")]

    operations = [
        # In version 0.3.0, false marks a user of before, whose rows its `hand_over` may move. New users are none.
        migrations.AlterField("user", "own_key_known", models.BooleanField(db_default=True)),
        # Version 0.5.0 drops it.
        migrations.SeparateDatabaseAndState(state_operations=[migrations.RemoveField("user", "own_key_known")]),
    ]
