from django.db import migrations

from queries.waits import WaitField


class Migration(migrations.Migration):
    dependencies = [("queries", "0015_admitted_in_part")]

    operations = [
        migrations.AddField("batch", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("batch", "rejected_because", WaitField(null=True, blank=True)),
        migrations.AddField("block", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("step", "error", WaitField(null=True, blank=True)),
    ]
