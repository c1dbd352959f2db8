from django.db import migrations

from queries.waits import WaitField


class Migration(migrations.Migration):
    dependencies = [("proving", "0017_reserved_versions")]

    operations = [
        migrations.AddField("factsregistry", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("signer", "wait", WaitField(null=True, blank=True)),
        migrations.AddField("transaction", "error", WaitField(null=True, blank=True)),
    ]
