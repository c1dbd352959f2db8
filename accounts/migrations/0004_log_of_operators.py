"""Django's log of the admin instead of one of our own, whose table stays as it was for the last version."""

from django.apps.registry import Apps
from django.contrib.admin.models import CHANGE
from django.contrib.auth.hashers import make_password
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def move(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    users, log = apps.get_model("accounts", "User").objects, apps.get_model("admin", "LogEntry").objects
    for deed in apps.get_model("accounts", "OperatorDeed").objects.order_by("pk"):
        user, _created = users.get_or_create(address=deed.operator, defaults={"password": make_password(None)})
        why = f"Why: {deed.reason}" if deed.reason else ""
        log.create(
            action_time=deed.at,
            user=user,
            object_repr=deed.subject,
            action_flag=CHANGE,
            change_message=" ".join(filter(None, (f"{deed.get_kind_display()}.", deed.detail, why))),
        )


def forget(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    """Delete what was moved: the next migration moves it again."""
    times = list(apps.get_model("accounts", "OperatorDeed").objects.values_list("at", flat=True))
    apps.get_model("admin", "LogEntry").objects.filter(content_type=None, action_time__in=times).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_webhook_secrets"),
        ("admin", "0003_logentry_add_action_flag_choices"),
    ]

    operations = [
        migrations.RunPython(move, forget),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("OperatorDeed")]),
    ]
