from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("queries", "0013_overdue_since"),
    ]

    operations = [
        migrations.AddIndex(
            "block",
            models.Index(
                fields=["destination_chain_id", "source_chain_id", "due_at", "turn_of"],
                condition=models.Q(due_at__isnull=False),
                name="due_blocks",
            ),
        ),
    ]
