"""One table of stops instead of two tables and two columns. These stay as they were: the last version reads them.

Whoever migrates back to the last version finds in them what is stopped then.
"""

import django.utils.timezone
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# The reason that workers of the last version gave, word by word.
NOT_BELIEVED = "Nodes say again and again what can't be true of its transactions."


def stop(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    """Stop what is stopped or paused."""
    stops = apps.get_model("proving", "Stop").objects
    for row in apps.get_model("proving", "SigningStop").objects.all():
        stops.create(chain_id=row.chain_id, reason=row.reason, since=row.since, by="manage.py")
    for row in apps.get_model("proving", "ConnectionPause").objects.all():
        stops.create(
            chain_id=row.destination_chain_id,
            source_chain_id=row.source_chain_id,
            reason=row.reason,
            since=row.since,
            by="manage.py",
        )
    for row in apps.get_model("proving", "Signer").objects.exclude(paused_at=None):
        by_worker = row.paused_because == NOT_BELIEVED
        stops.create(
            chain_id=row.chain_id,
            signer=row.address,
            code="not_believed" if by_worker else "operator",
            reason="" if by_worker else row.paused_because,
            since=row.paused_at,
            by="a worker" if by_worker else "manage.py",
        )


def give_back(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    """Write what is stopped now as the last version does."""
    signing_stops = apps.get_model("proving", "SigningStop").objects
    pauses = apps.get_model("proving", "ConnectionPause").objects
    signers = apps.get_model("proving", "Signer").objects
    signing_stops.all().delete()
    pauses.all().delete()
    signers.update(paused_at=None, paused_because="")
    for row in apps.get_model("proving", "Stop").objects.all():
        reason = NOT_BELIEVED if row.code == "not_believed" else row.reason
        if row.signer:
            signers.update_or_create(
                chain_id=row.chain_id,
                address=row.signer,
                defaults={"paused_at": row.since, "paused_because": reason},
            )
        elif row.source_chain_id:
            pauses.create(
                destination_chain_id=row.chain_id,
                source_chain_id=row.source_chain_id,
                reason=reason,
                since=row.since,
            )
        else:
            signing_stops.create(chain_id=row.chain_id, reason=reason, since=row.since)


class Migration(migrations.Migration):
    dependencies = [("proving", "0010_beacon_data")]

    operations = [
        migrations.CreateModel(
            name="Stop",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("chain_id", models.PositiveBigIntegerField()),
                ("source_chain_id", models.PositiveBigIntegerField(default=0)),
                ("signer", models.CharField(blank=True, max_length=42)),
                (
                    "code",
                    models.CharField(
                        choices=[
                            ("operator", ""),
                            ("not_believed", NOT_BELIEVED),
                        ],
                        default="operator",
                        max_length=20,
                    ),
                ),
                ("reason", models.CharField(blank=True, max_length=200)),
                ("by", models.CharField(max_length=60)),
                ("since", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("chain_id", "source_chain_id", "signer"), name="one_stop_of_each")
                ],
            },
        ),
        migrations.RunPython(stop, give_back),
        # The tables stay for the last version.
        migrations.SeparateDatabaseAndState(
            state_operations=[migrations.DeleteModel("SigningStop"), migrations.DeleteModel("ConnectionPause")]
        ),
    ]
