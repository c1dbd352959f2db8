"""The log of what operators did: Django's, which the admin shows. Rows are only ever added."""

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model

from accounts.models import User

# The name for the user of a command on the machine: Django doesn't know who it is.
COMMAND = "manage.py"
_NAME_CHARS = 200


def record(operator: User | None, row: Model | str, message: str, *, reason: str = "") -> None:
    """Record an action on a row, or on what has this name, in the database transaction of the action.

    `operator` is None for a command.
    """
    LogEntry.objects.create(
        user=operator or User.objects.for_address(COMMAND),
        content_type=ContentType.objects.get_for_model(row) if isinstance(row, Model) else None,
        object_id=row.pk if isinstance(row, Model) else None,
        object_repr=str(row)[:_NAME_CHARS],
        action_flag=CHANGE,
        change_message=f"{message} {f'Why: {reason}' if reason else ''}".strip(),
    )
