"""The user that a block queues for has that name in the code. The column keeps its own, which the last version reads."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

_INDEXES = {
    "places": ["destination_chain_id", "source_chain_id", "queued_for", "queue_at", "due_at", "leased_until"],
    "due_blocks": ["destination_chain_id", "source_chain_id", "due_at", "queued_for"],
    "blocks_due_by_user": ["queued_for"],
}


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("queries", "0016_rejecting_checks"),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                *(migrations.RemoveIndex(model_name="block", name=name) for name in _INDEXES),
                migrations.RenameField(model_name="block", old_name="turn_of", new_name="queued_for"),
                migrations.AlterField(
                    model_name="block",
                    name="queued_for",
                    field=models.ForeignKey(
                        db_column="turn_of_id",
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                *(
                    migrations.AddIndex(
                        model_name="block",
                        index=models.Index(condition=models.Q(("due_at__isnull", False)), fields=fields, name=name),
                    )
                    for name, fields in _INDEXES.items()
                ),
            ],
        ),
    ]
